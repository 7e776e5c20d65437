"""``cupytma simulate`` with files and options that are wrong in every way: one block, exit code 2, nothing executed."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoking import Invoke

import cupytma as tma

ENCODED = tma.Tiled(data_type="FLOAT16", global_address=0x1000, global_dim=(200, 100), box_dim=(64, 32)).encode()
SOURCE = bytes(ENCODED).hex()
GATHERED = bytes(
    tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(64, 8), box_dim=(64, 1)).encode("sm_100a")
).hex()
FUZZ = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_refused(result, *words: str) -> None:
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80
    flat = " ".join(result.stderr.split())
    for word in words:
        assert word in flat


class _Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


def _npy(array: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def _header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    data = text.encode("latin1")
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(data)) + data


def _with_shape(shape: str, descr: str = "'<f2'") -> bytes:
    return _header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n")


GOOD = _npy(np.zeros((100, 200), np.float16))
FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is empty"),
    "text": (b"1, 2, 3\n", "is no .npy file"),
    "half a magic": (b"\x93NUM", "is no .npy file"),
    "a magic alone": (b"\x93NUMPY", "can be read"),
    "half a header": (GOOD[:40], "can be read"),
    "half the data": (GOOD[:-1000], "can be read"),
    "an archive": (b"PK\x03\x04" + bytes(100), "an archive"),
    "version 9": (b"\x93NUMPY\x09\x00" + GOOD[8:], "can be read"),
    "no dictionary": (_header("[1, 2]"), "can be read"),
    "code for a header": (_header("__import__('os').system('true')"), "can be read"),
    "deep nesting": (_header("(" * 5000), "can be read"),
    "a long header": (_header("{" + " " * 60_000 + "}", (2, 0)), "can be read"),
    "unfinished text": (_header("{'descr': '"), "can be read"),
    "a negative shape": (_with_shape("(-1, 200)"), ""),
    "a shape of text": (_with_shape("('a',)"), "can be read"),
    "a huge shape": (_with_shape("(1048576, 1048576)"), "can be read"),
    "a shape past 64 bits": (_with_shape("(4294967296, 4294967296, 4294967296)"), "can be read"),
    "a dtype that is none": (_with_shape("(100, 200)", "'<q9'"), "can be read"),
    "no elements": (_npy(np.zeros((0, 200), np.float16)), "an empty array, of shape (0, 200)"),
    "text elements": (_npy(np.array(["ab"] * 4)), "must be numbers"),
    "dates": (_npy(np.zeros(4, "M8[s]")), "must be numbers"),
    "a structure": (_npy(np.zeros(4, [("a", "i2")])), "must be numbers"),
    "no dimensions": (_npy(np.float16(3)), "shape ()"),
    "driver order": (_npy(np.zeros((200, 100), np.float16)), "describes (100, 200) (numpy's order"),
    "one row too few": (_npy(np.zeros((99, 200), np.float16)), "shape (99, 200)"),
    "wider elements": (_npy(np.zeros((100, 200))), "elements of 8 B, and the map's have 2 B"),
    "too little memory": (_npy(np.zeros(39_999, np.uint8)), "39999 bytes of memory"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_such_array(invoke: Invoke, tmp_path: Path, name: str) -> None:
    data, word = FILES[name]
    (tmp_path / "x.npy").write_bytes(data)
    assert_refused(invoke("simulate", SOURCE, "--input", str(tmp_path / "x.npy")), word)
    assert_refused(invoke("simulate", SOURCE, "--input", "-", input=data), word)


@pytest.mark.parametrize("option", ["--input", "--tile"])
def test_pickles_are_never_loaded(invoke: Invoke, tmp_path: Path, option: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / "x.npy"
    trapped = np.array([_Trap(mark)], dtype=object)
    for data in (
        pickle.dumps(_Trap(mark)), pickle.dumps(_Trap(mark), 0), _npy(trapped, allow_pickle=True),
        _with_shape("(1,)", "'|O'") + pickle.dumps(trapped),
    ):  # fmt: skip
        path.write_bytes(data)
        assert_refused(invoke("simulate", SOURCE, "--direction", "store", option, str(path)))
    np.savez(tmp_path / "x.npz", x=trapped)
    assert_refused(invoke("simulate", SOURCE, "--direction", "store", option, str(tmp_path / "x.npz")), "an archive")
    assert not mark.exists()
    pickle.loads(pickle.dumps(_Trap(mark)))
    assert mark.exists()  # the trap works


@FUZZ
@given(data=st.binary(max_size=200), place=st.integers(0, len(GOOD) - 1))
def test_any_damage_to_a_file_is_told(invoke: Invoke, data: bytes, place: int) -> None:
    damaged = GOOD[: place % 140] + data + GOOD[place % 140 + len(data) :]
    assert invoke("simulate", SOURCE, "--input", "-", "-o", "hex", input=damaged).exit_code in (0, 2)


@FUZZ
@given(
    text=st.text(max_size=12) | st.integers().map(str)
    | st.lists(st.integers(-(2**33), 2**33)).map(lambda numbers: str(numbers)[1:-1]),
    option=st.sampled_from(["--at", "--offsets", "--rows", "--shared-offset", "--seed", "--mode", "--op", "--limit"]),
    direction=st.sampled_from(["load", "store", "reduce", "prefetch"]),
    source=st.sampled_from([SOURCE, GATHERED]),
)
def test_any_operand_ends_well_or_is_told(
    invoke: Invoke, text: str, option: str, direction: str, source: str
) -> None:
    result = invoke("simulate", source, option, text, "--direction", direction)
    assert result.exit_code in (0, 1, 2)
    assert bool(result.stderr) == (result.exit_code == 2)


@FUZZ
@given(data=st.binary(min_size=128, max_size=128))
def test_any_128_bytes(invoke: Invoke, data: bytes) -> None:
    for command in ("simulate", "tile"):
        assert invoke(command, "-", input=data).exit_code in (0, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--at", "0"), "1 coordinate for a tensor map of rank 2"),
        (("--at", "0,0,0"), "3 coordinates"),
        (("--at", f"{2**31},0"), "32-bit signed"),
        (("--at", f"{2**70},0"), "does not fit 64 bits"),
        (("--at", "0;0"), "numbers with commas"),
        (("--rows", "1,2,3"), "--rows has 3 entries"),
        (("--rows", "1,2,3,4"), "box_dim[1] = 32; it must be 1"),
        (("--rows", "1,2,3,4", "--at", "0,0"), "the column alone"),
        (("--rows", "1,2,3,4", "--direction", "reduce"), "mode tile alone"),
        (("--offsets", "1"), "only im2col loads take offsets"),
        (("--offsets", "1", "--direction", "store"), "no store takes them"),
        (("--mode", "nonsense"), "mode 'nonsense' is none"),
        (("--direction", "sideways"), "'sideways'"),
        (("--shared-offset", "-128"), "0 or above"),
        (("--shared-offset", f"{2**32}"), "32 bits"),
        (("--every-box", "--at", "0,0"), "leave --at and --rows out"),
        (("--tile", "x.npy"), "a load brings it"),
        (("--input", "/nowhere/x.npy"), "cannot read"),
        (("--input", "/"), "cannot read"),
        (("--input", "a\0b"), "cannot read"),
        (("--input", ""), "cannot read"),
        (("--save", "/nowhere/x.npy"), "cannot write"),
        (("--save", "/"), "cannot write"),
        (("--picture", "/nowhere/x.svg"), "cannot write"),
        (("--save", "-", "--picture", "-"), "standard output can hold one thing"),
        (("--limit", "-1"), "x>=0"),
        (("-o", "npy", "--save", "x.npy"), "give one of them"),
        (("--every-box", "-o", "hex"), "hex is of one copy, and there are 16"),
        (("--direction", "prefetch", "-o", "elements"), "brings nothing to look at"),
    ],
)
def test_options_that_make_no_sense(invoke: Invoke, arguments: tuple[str, ...], word: str) -> None:
    assert_refused(invoke("simulate", SOURCE, *arguments), word)


def test_one_standard_input_for_two_things(invoke: Invoke) -> None:
    assert_refused(invoke("simulate", "-", "--input", "-", input=GOOD), "standard input can hold one thing")
    assert_refused(invoke("simulate", "--input", "-", input=GOOD), "standard input can hold one thing")


def test_a_tile_of_another_shape(invoke: Invoke, tmp_path: Path) -> None:
    path, arguments = str(tmp_path / "tile.npy"), ("simulate", SOURCE, "--direction", "store", "--tile")
    for array, word in (
        (np.zeros((32, 63), np.float16), "shape (32, 64) of 2 B each"),
        (np.zeros((32, 32), np.float32), "elements of 4 B"),
        (np.zeros(100, np.uint8), "100 bytes of shared memory"),
    ):
        np.save(path, array)
        assert_refused(invoke(*arguments, path), word)


def test_tensors_too_large_to_be_held(invoke: Invoke) -> None:
    huge = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(2**32, 2**32), box_dim=(256, 16)).encode()
    source = bytes(huge).hex()
    assert invoke("simulate", source, "--at", "2147483632,2147483647", "-o", "hex").exit_code == 2  # rows 4 GiB apart
    assert_refused(invoke("simulate", source, "--direction", "store"), "this command holds 1 GiB at most")
    assert_refused(invoke("simulate", source, "--every-box"), "at most 100,000 are simulated")
    narrow = tma.Tiled(
        data_type="UINT8", global_address=0, global_dim=(16, 2**32), global_strides=(16,), box_dim=(16, 256)
    ).encode()
    result = invoke("simulate", bytes(narrow).hex(), "--at", "0,2147483600", "-o", "hex", "--limit", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith("0000  " + " ".join(f"{i:02x}" for i in range(16)) + "  0,2147483600")


@pytest.mark.skipif(os.name != "posix", reason="closes the stream as a shell does")
@pytest.mark.parametrize(
    "line",
    [
        "simulate {map} -o hex --limit 0 | head -c 1", "simulate {map} -o elements --limit 0 | head -n 1",
        "simulate {map} -o npy | head -c 1", "simulate {map} >&-", "simulate {map} -o npy >&-",
        "simulate {map} --json >&-", "simulate <&-", "simulate - <&-", "simulate {map} --input - <&-",
        "simulate {map} --every-box 2>&-", "tile {map} >&-", "tile {map} | head -c 1", "tile <&-", "swizzle >&-",
        "swizzle | head -c 1",
    ],
)  # fmt: skip
def test_closed_streams_give_no_traceback(line: str) -> None:
    command = f"{sys.executable} -m cupytma {line.format(map=SOURCE)}"
    result = subprocess.run(command, shell=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert b"Traceback" not in result.stderr
    assert b"Exception" not in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
def test_a_full_disk_is_told() -> None:
    for more in (["--save", "/dev/full"], ["--picture", "/dev/full"]):
        result = subprocess.run([sys.executable, "-m", "cupytma", "simulate", SOURCE, *more], capture_output=True)
        assert result.returncode == 2
        assert b"cannot write '/dev/full': No space left" in result.stderr


def test_nothing_is_coloured_in_a_pipe() -> None:
    for command in (["simulate", SOURCE, "--at", "160,80"], ["tile", SOURCE], ["swizzle"]):
        assert b"\x1b" not in subprocess.run([sys.executable, "-m", "cupytma", *command], capture_output=True).stdout


def test_an_encoding_without_the_signs() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for command in (["simulate", SOURCE, "--every-box", "--limit", "1"], ["tile", SOURCE], ["swizzle"]):
        result = subprocess.run([sys.executable, "-m", "cupytma", *command], capture_output=True, env=environment)
        assert (result.returncode, result.stderr) == (0, b"")
