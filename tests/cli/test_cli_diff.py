"""``cupytma diff``: named differences, and exit codes as diff has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import cupytma as tma
from cupytma.cli.application import cli

A = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), box_dim=(64, 32), swizzle="128B"
).encode()
B = A.replace(global_dim={1: 300}, swizzle="64B", box_dim={0: 32})
IM2COL = tma.Im2col(
    data_type="FLOAT32", global_address=0x1FFFFFFFFFFFFF0, global_dim=(64, 2**31 - 8, 56, 56, 32),
    pixel_box_lower_corner=(-16, -1, 0), pixel_box_upper_corner=(-1, -1, 0), channels_per_pixel=64,
    pixels_per_column=128, oob_fill="NAN_REQUEST_ZERO_FMA", global_strides=(2**40 - 16,) * 4,
).encode()
ROWS = (f"{16 * i:#x}:\t{A.words[2 * i]:#018x}\t{A.words[2 * i + 1]:#018x}" for i in range(8))
FORMS = {
    "hex": bytes(A).hex().encode(), "raw": bytes(A), "c": A.to_c().encode(), "json": A.to_json().encode(),
    "x/16gx": "\n".join(ROWS).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_map_is_the_same(invoke, tmp_path, form):
    path = tmp_path / "a"
    path.write_bytes(FORMS[form])
    result = invoke("diff", str(path), "-", input=bytes(A).hex())
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert invoke("diff", "-", str(path), input=bytes(A).hex()).exit_code == 0
    assert invoke("diff", bytes(A).hex(), str(path)).exit_code == 0


def test_differences_are_those_of_the_library(invoke):
    result = invoke("diff", bytes(A).hex(), bytes(B).hex(), "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["same"] is False
    assert [(row["field"], row["bits"], row["a"], row["b"]) for row in document["differences"]] == [
        (d.label, d.bits, d.value, d.other) for d in A.diff(B)
    ]
    by_field = {row["field"]: row for row in document["differences"]}
    assert (by_field["global_dim[1]"]["a"], by_field["global_dim[1]"]["b"]) == (512, 300)
    assert (by_field["swizzle_mode"]["a_meaning"], by_field["swizzle_mode"]["b_meaning"]) == ("128B", "64B")


def test_no_difference_as_json(invoke):
    result = invoke("diff", bytes(A).hex(), bytes(A).hex(), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"same": True, "differences": []}


def test_the_table_names_files_fields_and_values(invoke, tmp_path):
    for name, tensor_map in (("before.bin", A), ("after.bin", B)):
        (tmp_path / name).write_bytes(bytes(tensor_map))
    result = invoke("diff", str(tmp_path / "before.bin"), str(tmp_path / "after.bin"))
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["global_dim[1]", "w4[63:32]", "512", "300"] in rows
    assert ["swizzle_mode", "w1[14:13]", "3", "(128B)", "2", "(64B)"] in rows
    flat = result.stdout.replace("\n", "").replace(" ", "")
    assert "before.bin" in flat
    assert "after.bin" in flat


@pytest.mark.parametrize("columns", ["40", "80"])
def test_it_fits_the_terminal_and_breaks_no_value(columns):
    runner = CliRunner(env={"COLUMNS": columns})
    result = runner.invoke(cli, ["diff", bytes(A).hex(), bytes(IM2COL).hex()], prog_name="cupytma")
    assert result.exit_code == 1
    assert max(map(len, result.stdout.splitlines())) <= int(columns)
    for value in ("0x1fffffffffffff0", "pixel_box_lower_corner[0]", "(NAN_REQUEST_ZERO_FMA)", str(2**31 - 8)):
        assert value in result.stdout


def test_payload_leaves_out_what_the_hardware_does_not_read(invoke):
    on_device = (bytes(A)[:64] + bytes(64)).hex()
    assert invoke("diff", bytes(A).hex(), on_device).exit_code == 1
    assert invoke("diff", bytes(A).hex(), on_device, "--payload").exit_code == 0
    assert invoke("diff", bytes(B).hex(), on_device, "--payload").exit_code == 1


def test_offsets_into_dumps(invoke, tmp_path):
    path = tmp_path / "core"
    path.write_bytes(bytes(64) + bytes(A) + bytes(64) + bytes(B))
    assert invoke("diff", str(path), str(path), "--offset-a", "64", "--offset-b", "256").exit_code == 1
    assert invoke("diff", str(path), bytes(B).hex(), "--offset-a", "0x100").exit_code == 0
    assert invoke("diff", bytes(A).hex(), "-", "--offset-b", "64", input=path.read_bytes()).exit_code == 0


def test_maps_whose_rank_means_nothing_are_compared_by_words(invoke):
    words = list(A.words)
    words[1] |= 7 << 4
    result = invoke("diff", bytes(A).hex(), " ".join(map(hex, words)), "--json")
    assert result.exit_code == 1
    assert [(row["field"], row["bits"]) for row in json.loads(result.stdout)["differences"]] == [("word", "w1[63:0]")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-", "-"], "file for the other"),
        ([bytes(A).hex()], "Missing argument 'B'"),
        ([], "Missing argument 'A'"),
        ([bytes(A).hex(), "missing.bin"], "B: there is no file 'missing.bin'"),
        (["", bytes(A).hex()], "A: no input"),
        ([bytes(A).hex(), "zz zz"], "no hex"),
        ([bytes(A).hex(), bytes(B).hex(), "--offset-a", "0"], "there is no file"),
        ([bytes(A).hex(), ".", "--offset-b", "0"], "directory"),
        ([bytes(A).hex(), "a\0b"], "'a\\x00b'"),
        ([bytes(A).hex(), "🙂"], "'🙂'"),
    ],
)
def test_errors_end_with_2(invoke, arguments, said):
    result = invoke("diff", *arguments, input=b"")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in " ".join(result.stderr.split())
    assert max(map(len, result.stderr.splitlines())) <= 80


@pytest.mark.skipif(os.name != "posix", reason="closes the stream as a shell does")
def test_a_reader_that_goes_away():
    command = f"{sys.executable} -m cupytma diff {bytes(A).hex()} {bytes(IM2COL).hex()} | head -c 1"
    assert b"Traceback" not in subprocess.run(command, shell=True, capture_output=True).stderr
