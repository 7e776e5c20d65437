"""``--address NAME``: an address that is filled in later, in every form."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess

import pytest

import cupytma as tma

TILED = ("encode", "tiled", "--data-type", "FLOAT16", "--global-dim", "1024,512", "--box-dim", "64,32")
ZERO = tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(1024, 512), box_dim=(64, 32)).encode()
NAMES = ["d_x", "&buffer", "*pointer", "params.x", "launch->maps", "buffers[3]", "space::x", "a.b[i]->c", "_", "abc"]


@pytest.mark.parametrize("name", NAMES)
def test_c_holds_the_name_and_is_read_back_with_it(invoke, name):
    text = invoke(*TILED, "--address", name, "-o", "c").stdout
    assert f"{{{{\n    (cuuint64_t){name}, {ZERO.words[1]:#018x}," in text
    assert "a multiple of 16 bytes" in text
    decoded = invoke("decode", "-", input=text)
    assert decoded.exit_code == 0
    assert f"global_address    {name}, filled in later" in decoded.stdout


def test_c_compiles_and_holds_the_address(invoke, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    definition = invoke(*TILED, "--address", "params.x", "-o", "c").stdout
    source = tmp_path / "map.c"
    source.write_text(
        "#include <stdint.h>\n#include <stdio.h>\ntypedef uint64_t cuuint64_t;\n"
        "typedef struct { _Alignas(64) cuuint64_t opaque[16]; } CUtensorMap;\nstatic char memory[64];\n"
        "int main(void) {\nstruct { void* x; } params = { memory };\n"
        f"{definition}\nfwrite(&tensor_map, 128, 1, stdout);\n"
        "return tensor_map.opaque[0] == (cuuint64_t)memory ? 0 : 1;\n}\n"
    )
    subprocess.run([compiler, "-Wall", "-Werror", str(source), "-o", str(tmp_path / "map")], check=True)
    written = subprocess.run([str(tmp_path / "map")], capture_output=True, check=True).stdout
    assert written[8:] == bytes(ZERO)[8:]
    assert struct.unpack("<Q", written[:8])[0] != 0


def test_json_holds_the_name_where_the_parameter_is(invoke):
    text = invoke(*TILED, "--address", "d_x", "--json").stdout
    document = json.loads(text)
    assert document["parameters"]["global_address"] == "d_x"
    assert document["bytes"] == bytes(ZERO).hex()
    assert invoke("encode", "tiled", "--from", "-", "--json", input=text).stdout == text
    assert "d_x, filled in later" in invoke("decode", "-", input=text).stdout


def test_an_address_fills_the_name_in(invoke):
    text = invoke(*TILED, "--address", "d_x", "--json").stdout
    made = invoke("encode", "tiled", "--from", "-", "--address", "0x7f0000000000", "-o", "raw", input=text).stdout_bytes
    assert made == bytes(ZERO.with_address(0x7F0000000000))


@pytest.mark.parametrize("output", ["hex", "raw"])
def test_bytes_are_zero_and_what_is_to_be_done_is_said_on_stderr(invoke, output):
    result = invoke(*TILED, "--address", "d_x", "-o", output)
    assert result.stdout_bytes == (bytes(ZERO) if output == "raw" else bytes(ZERO).hex().encode() + b"\n")
    assert "d_x goes to bytes 0 to 7" in " ".join(result.stderr.split())
    assert max(map(len, result.stderr.splitlines())) <= 80


def test_the_alignment_is_that_of_the_parameters(invoke):
    words = ("--data-type", "FLOAT16", "--global-dim", "64,64,64", "--box-dim", "16,8,8", "--interleave", "32B")
    result = invoke("encode", "tiled", *words, "--address", "d_x", "-o", "hex")
    assert "a multiple of 32 bytes" in " ".join(result.stderr.split())


def test_the_table_says_name_and_bits(invoke):
    table = invoke(*TILED, "--address", "d_x").stdout
    assert "global_address    d_x, filled in later" in table
    assert "to be d_x" in table
    assert "null-address" not in table
    assert "null-address" in invoke(*TILED).stdout


def test_a_name_in_a_file(invoke):
    file = json.dumps({"global_address": "params.x", "data_type": "FLOAT16", "global_dim": [64], "box_dim": [64]})
    assert "(cuuint64_t)params.x" in invoke("encode", "tiled", "--from", "-", "-o", "c", input=file).stdout


def test_other_rules_are_checked(invoke):
    result = invoke(*TILED, "--address", "d_x", "--box-dim", "300,1")
    assert result.exit_code == 2
    assert "box-range" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7f0000000000", "0x7f0000000000"),
        ("ff00a0000000", "write it as 0xff00a0000000"),
        ("d_x + 4", "no integer"),
        ("f()", "no integer"),
        ("x; y", "no integer"),
        ("a..b", "no integer"),
        ("ä", "no integer"),
        ("x" * 5000, "no integer"),
        ('"x"', "no integer"),
        ("0xg", "no integer"),
    ],
)
def test_what_is_neither_a_number_nor_a_name(invoke, text, said):
    for result in (
        invoke(*TILED, "--address", text),
        invoke("encode", "tiled", "--from", "-", input=json.dumps({"global_address": text})),
    ):
        assert result.exit_code == 2
        assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize("output", ["c", "json"])
@pytest.mark.parametrize(
    "command",
    [("decode",), ("slots",), ("tile",), ("simulate",), ("check",), ("simulate", "--json"), ("diff", ZERO.to_hex())],
    ids=lambda words: words[0],
)
def test_every_command_that_takes_a_map_reads_one_with_a_name(invoke, tmp_path, command, output):
    text = invoke(*TILED, "--address", "d_x", "-o", output).stdout
    path = tmp_path / "map"
    path.write_text(text)
    from_file, from_pipe = invoke(*command, str(path)), invoke(*command, "-", input=text)
    assert from_file.exit_code == 0
    assert from_file.stderr == "" or command[0] == "diff"
    assert from_pipe.stdout == from_file.stdout


def test_names_are_not_compared_and_that_is_said(invoke):
    text = invoke(*TILED, "--address", "d_x", "-o", "c").stdout
    result = invoke("diff", "-", ZERO.to_hex(), input=text)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the name in A is d_x, in B is none" in " ".join(result.stderr.split())


def test_a_map_of_a_parameter_may_have_a_name(invoke, tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    path = tmp_path / "map.c"
    path.write_text(invoke(*TILED, "--address", "d_x", "-o", "c").stdout)
    kernel = "extern \"C\" __global__ void empty(const __grid_constant__ CUtensorMap map) {}"
    result = invoke("check", "-", "--tensormap", f"0={path}", input=f'#include "cupytma.cuh"\n{kernel}')
    assert (result.exit_code, result.stdout) == (0, "nothing found\n")
