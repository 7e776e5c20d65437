"""Tensor maps inside a core or a dump: ``cupytma decode FILE --offset N`` and ``--search``."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.cli import dumps
from cupytma.tensormap.random_records import random_records

TILED = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), box_dim=(64, 32), swizzle="128B"
).encode()
IM2COL = tma.Im2col(
    data_type="FLOAT16", global_address=0x7F0000100000, global_dim=(64, 56, 56, 32), pixel_box_lower_corner=(-1, -1),
    pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
).encode()
NEWER = tma.Tiled(
    data_type="16U4_ALIGN16B", global_address=0x7F0000000000, global_dim=(1024, 512), box_dim=(128, 32), swizzle="128B"
).encode("sm_100a")
ON_DEVICE = bytes(TILED)[:64] + bytes(64)
PLACES = {0x40: bytes(TILED), 0x1008: bytes(IM2COL), 0x3000: ON_DEVICE, 0x4FC0: bytes(NEWER)}


def dump() -> bytes:
    """Zeros, noise and counters with four maps among them."""
    noise = random.Random(7)
    data = bytearray(bytes(0x2000) + noise.randbytes(0x1000) + bytes(0x1000) + np.arange(0x200, dtype="<u8").tobytes())
    for offset, found in PLACES.items():
        data[offset : offset + 128] = found
    return bytes(data)


@pytest.fixture
def core(tmp_path):
    path = tmp_path / "core.1234"
    path.write_bytes(dump())
    return str(path)


@pytest.mark.parametrize("offset", PLACES)
@pytest.mark.parametrize("form", ["{}", "{:#x}"])
def test_the_map_at_an_offset(invoke, core, offset, form):
    result = invoke("decode", core, "--offset", form.format(offset), "-o", "raw")
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes == PLACES[offset]


def test_the_map_at_an_offset_of_standard_input(invoke):
    assert invoke("decode", "-", "--offset", "0x3000", "-o", "raw", input=dump()).stdout_bytes == ON_DEVICE
    assert invoke("decode", "--offset", "0x3000", "-o", "raw", input=dump()).stdout_bytes == ON_DEVICE


@pytest.mark.skipif(os.name != "posix", reason="needs a pipe that cannot be sought")
@pytest.mark.parametrize("offset", [0x40, 0xFF0, 0x3000, 0x4FC0])
def test_the_map_at_an_offset_of_a_pipe(offset):
    command = [sys.executable, "-m", "cupytma", "decode", "-", "--offset", str(offset), "-o", "raw"]
    data = dump()
    result = subprocess.run(command, input=data, capture_output=True)
    assert result.stdout in (b"", data[offset : offset + 128])
    assert result.stdout == data[offset : offset + 128] or offset not in PLACES


def test_search_lists_every_map_with_its_offset(invoke, core):
    result = invoke("decode", core, "--search", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [(row["offset"], bytes.fromhex(row["bytes"])) for row in found] == sorted(PLACES.items())
    assert [row["as_encoded"] for row in found] == [True, True, False, True]


def test_search_as_a_table(invoke, core):
    table = invoke("decode", core, "--search").stdout
    assert "0x1008" in table
    assert "FLOAT16 64×56×56×32 at 0x7f0000100000, im2col 64 channels × 128 pixels" in " ".join(table.split())
    assert "made or changed on a device" in " ".join(table.split())
    assert "4 tensor maps in" in table
    assert max(map(len, table.splitlines())) <= 80


def test_search_prints_bytes_that_are_maps_again(invoke, core):
    assert invoke("decode", core, "--search", "-o", "raw").stdout_bytes == b"".join(PLACES[at] for at in sorted(PLACES))


@pytest.mark.parametrize("shift", range(-128, 136, 8))
def test_search_across_pieces(invoke, monkeypatch, tmp_path, shift):
    monkeypatch.setattr(dumps, "_HEAD", 64)
    monkeypatch.setattr(dumps, "_PIECE", 1024)
    path = tmp_path / "core"
    data = bytearray(4096)
    data[1024 + shift : 1024 + shift + 128] = bytes(TILED)
    path.write_bytes(data)
    found = json.loads(invoke("decode", str(path), "--search", "--json").stdout)
    assert [row["offset"] for row in found] == [1024 + shift]


def test_search_finds_every_map_of_an_array_of_them(invoke):
    records = random_records(300, seed=3)
    status, payload = tma.encode_records(records, target="sm_90a")
    maps = payload[status == 0]
    assert len(maps) > 50
    found = json.loads(invoke("decode", "-", "--search", "--json", input=maps.tobytes()).stdout)
    assert [row["offset"] for row in found] == [128 * i for i in range(len(maps))]
    assert all(row["as_encoded"] for row in found)


@pytest.mark.parametrize("data", [b"", bytes(127), bytes(1 << 16), b"\xff" * 4096, bytes(range(256)) * 64], ids=len)
def test_search_that_finds_nothing_ends_with_1(invoke, data):
    result = invoke("decode", "-", "--search", input=data)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "no tensor map found in standard input" in result.stderr
    assert json.loads(invoke("decode", "-", "--search", "--json", input=data).stdout) == []


@pytest.mark.parametrize("column", ["{address:#x}:", "{address:#x} <map+{offset}>:", ""])
@pytest.mark.parametrize("width", [8, 4, 2, 1])
def test_memory_as_a_debugger_prints_it(invoke, column, width):
    data = bytes(64) + bytes(TILED) + bytes(64)
    lines = []
    for offset in range(0, len(data), 16):
        numbers = [int.from_bytes(data[at : at + width], "little") for at in range(offset, offset + 16, width)]
        head = column.format(address=0x7FFF0000 + offset, offset=offset)
        lines.append("\t".join([head, *(f"0x{number:0{2 * width}x}" for number in numbers)]))
    text = "(cuda-gdb) x/32gx &parameters\n" + "\n".join(lines)
    assert invoke("decode", "-", "--offset", "64", "-o", "raw", input=text).stdout_bytes == bytes(TILED)
    found = json.loads(invoke("decode", "-", "--search", "--json", input=text).stdout)
    assert [row["offset"] for row in found] == [64]


def test_bytes_that_begin_like_text(invoke):
    data = b"a" * 8192 + bytes(TILED) + bytes(64)
    assert invoke("decode", "-", "--offset", "8192", "-o", "raw", input=data).stdout_bytes == bytes(TILED)
    found = json.loads(invoke("decode", "-", "--search", "--json", input=data).stdout)
    assert [row["offset"] for row in found] == [8192]


def test_hex_with_an_offset(invoke):
    text = (bytes(16) + bytes(TILED)).hex(" ", 2)
    assert invoke("decode", "-", "--offset", "16", "-o", "raw", input=text).stdout_bytes == bytes(TILED)


def assert_refused(result, *words):
    assert result.exit_code == 2
    assert max(map(len, result.stderr.splitlines())) <= 80
    flat = " ".join(result.stderr.split())
    assert "Error: " in flat
    for word in words:
        assert word in flat


@pytest.mark.parametrize("offset", [0x4FC8, 1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_an_offset_past_the_end(invoke, core, offset):
    assert_refused(invoke("decode", core, "--offset", str(offset)), "ends before", str(offset), "--search")
    assert_refused(invoke("decode", "-", "--offset", str(offset), input=dump()), "ends before")


def test_wrong_uses(invoke, core, tmp_path):
    assert_refused(invoke("decode", core, "--offset", "-8"), "from 0 up")
    assert_refused(invoke("decode", core, "--offset", "x"), "no integer")
    assert_refused(invoke("decode", core, "--offset", str(2**64)), "does not fit 64 bits")
    assert_refused(invoke("decode", core, "--offset", "8", "--search"), "one of them")
    assert_refused(invoke("decode", core, core, "--search"), "one file")
    assert_refused(invoke("decode", "missing", "--search"), "cannot read 'missing'")
    assert_refused(invoke("decode", "missing", "--offset", "8"), "no file 'missing'")
    assert_refused(invoke("decode", str(tmp_path), "--search"), "directory")
    assert_refused(invoke("decode", str(tmp_path), "--offset", "0"), "directory")
    assert_refused(invoke("decode", "a\0b", "--search"), "cannot read")
    assert_refused(invoke("decode", "-", "--search", input="no numbers here"), "'no'", "x/64gx")
    assert_refused(invoke("decode", "-", "--offset", "0", input="0x123 0x45"), "'0x123'")


def test_a_dump_without_an_offset_says_how_to_find_maps(invoke, core):
    assert_refused(invoke("decode", core), f"{len(dump())} bytes of binary data", "--offset N", "--search")


def test_the_bit_of_the_driver_defect_is_warned_of(invoke):
    words = list(TILED.words)
    words[1] |= 1 << 21
    text = " ".join(map(hex, words))
    for output in ("hex", "json", "c"):
        result = invoke("decode", text, "-o", output)
        assert result.exit_code == 0
        assert "w1[21] is set" in result.stderr
        assert "apply_workaround" in result.stderr
    table = invoke("decode", text)
    assert "driver-defect" in table.stdout
    assert table.stderr == ""
    assert "w1[21] is set" not in invoke("decode", bytes(TILED).hex(), "-o", "hex").stderr


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400), at=st.integers(0, 300))
def test_any_bytes(invoke, data, at):
    assert invoke("decode", "-", "--search", input=data).exit_code in (0, 1, 2)
    assert invoke("decode", "-", "--offset", str(at), input=data).exit_code in (0, 2)
