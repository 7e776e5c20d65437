"""``cupytma encode``: the same bytes as the library, in every form, from options and files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.tensormap.enums import DataType, Interleave, L2Promotion, OobFill, Swizzle

OPTIONS = (
    "encode", "tiled", "--data-type", "FLOAT16", "--address", "0x7f0000000000", "--global-dim", "1024,512",
    "--global-strides", "4096", "--box-dim", "64,32", "--swizzle", "128B",
)
EXPECTED = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), global_strides=(4096,),
    box_dim=(64, 32), swizzle="128B",
).encode()


@pytest.fixture
def parameters_toml(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(
        'kind = "tiled"\ntarget = "sm_100a"\n[parameters]\ndata_type = "FLOAT16"\n'
        'global-address = "0x7f0000000000"\nglobal_dim = [1024, 512]\nglobal_strides = [0x1000]\n'
        'box_dim = [64, 32]\nswizzle = "128B"\n'
    )
    pytest.importorskip("tomllib", reason="TOML needs Python 3.11")
    return str(path)


def test_hex_is_the_bytes_in_order(invoke):
    assert invoke(*OPTIONS, "--output", "hex").stdout == bytes(EXPECTED).hex() + "\n"


def test_raw_is_the_bytes(invoke):
    assert invoke(*OPTIONS, "--output", "raw").stdout_bytes == bytes(EXPECTED)


def test_json_says_everything(invoke):
    document = json.loads(invoke(*OPTIONS, "--json").stdout)
    assert document["kind"] == "tiled"
    assert document["target"] == "sm_90a"
    assert document["bytes"] == bytes(EXPECTED).hex()
    assert [int(word, 16) for word in document["words"]] == list(EXPECTED.words)
    assert document["box_bytes"] == EXPECTED.box_bytes
    assert document["shared_alignment"] == EXPECTED.shared_alignment
    assert document["reserved_bits"] == []
    assert document["parameters"]["global_strides"] == [4096]
    assert document["parameters"]["swizzle"] == "128B"
    assert [field["field"] for field in document["fields"]] == [field.label for field in EXPECTED.fields()]


def test_json_option_equals_output_json(invoke):
    assert invoke(*OPTIONS, "--json").stdout == invoke(*OPTIONS, "--output", "json").stdout


def test_c_initialises_the_drivers_structure(invoke):
    text = invoke(*OPTIONS, "--output", "c").stdout
    assert text.startswith("CUtensorMap tensor_map = {{\n")
    assert text.endswith("}};\n")
    for word in EXPECTED.words:
        assert f"{word:#018x}" in text


def test_table_names_every_field_with_its_bits(invoke):
    table = invoke(*OPTIONS).stdout
    for field in EXPECTED.fields():
        row = next(line for line in table.splitlines() if line.strip().startswith(field.bits) and field.label in line)
        assert field.meaning in row
    assert "4096 B, the transaction count of its mbarrier" in table
    assert "1024 B" in table
    assert "for sm_90a" in table


@pytest.mark.parametrize("rank", range(1, 6))
def test_table_fits_80_columns_and_has_no_trailing_blanks(invoke, rank):
    table = invoke(
        "encode", "tiled", "--data-type", "UINT64", "--address", hex(2**57 - 16),
        "--global-dim", ",".join([str(2**32)] * rank), "--global-strides", ",".join([str(2**40 - 16)] * (rank - 1)),
        "--box-dim", ",".join(["2"] * rank), "--element-strides", ",".join(["8"] * rank),
    ).stdout
    assert "Bit fields" in table
    assert max(map(len, table.splitlines())) <= 80
    assert all(line == line.rstrip() for line in table.splitlines())


def test_strides_are_dense_by_default(invoke):
    result = invoke(
        "encode", "tiled", "--data-type", "FLOAT32", "--global-dim", "8,4,2", "--box-dim", "4,1,1", "--json"
    )
    assert json.loads(result.stdout)["parameters"]["global_strides"] == [32, 128]


@pytest.mark.parametrize("address", ["139637976727552", "0x7f0000000000", "0x7F00_0000_0000"])
def test_address_is_decimal_or_hexadecimal(invoke, address):
    assert invoke(*OPTIONS, "--global-address", address, "-o", "hex").stdout.strip() == bytes(EXPECTED).hex()


@pytest.mark.parametrize("name", ["FLOAT16", "float16", "CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "6"])
def test_enumerations_by_name_drivers_name_and_number(invoke, name):
    assert invoke(*OPTIONS, "--data-type", name, "-o", "hex").stdout.strip() == bytes(EXPECTED).hex()


def test_parameters_from_toml(invoke, parameters_toml):
    result = invoke("encode", "tiled", "--from", parameters_toml, "--json")
    assert json.loads(result.stdout)["bytes"] == bytes(EXPECTED).hex()
    assert json.loads(result.stdout)["target"] == "sm_100a"


def test_the_file_may_be_the_argument(invoke, parameters_toml):
    expected = invoke("encode", "tiled", "--from", parameters_toml, "--json").stdout
    assert invoke("encode", "tiled", parameters_toml, "--json").stdout == expected
    assert invoke("encode", "tiled", "-", "--json", input=expected).stdout == expected
    result = invoke("encode", "tiled", parameters_toml, "--from", "-")
    assert result.exit_code == 2
    assert "one file" in result.stderr


def test_without_a_kind_the_kinds_are_named(invoke):
    result = invoke("encode")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "im2col, im2col-wide, tiled" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="arguments are bytes there alone")
@pytest.mark.parametrize(
    "words",
    [
        ["encode", "tiled"], ["encode", "tiled", "--address"], ["encode", "tiled", "--from-array"], ["decode"],
        ["decode", "--search"], ["decode", "--offset", "0"], ["diff", "00"], ["rules"], ["layout"], ["slots"],
    ],
    ids=" ".join,
)
def test_arguments_that_are_no_text(words):
    result = subprocess.run([sys.executable, "-m", "cupytma", *words, b"\xff\xfe"], capture_output=True)
    assert result.returncode == 2
    assert b"Error: " in result.stderr
    assert b"Traceback" not in result.stderr


def test_options_override_the_file(invoke, parameters_toml):
    result = invoke("encode", "tiled", "--from", parameters_toml, "--address", "0", "--target", "sm_90", "--json")
    document = json.loads(result.stdout)
    assert document["parameters"]["global_address"] == 0
    assert document["parameters"]["box_dim"] == [64, 32]
    assert document["target"] == "sm_90"


def test_own_json_is_read_back_from_standard_input(invoke):
    document = invoke(*OPTIONS, "--json").stdout
    assert invoke("encode", "tiled", "--from", "-", "--json", input=document).stdout == document


def test_plain_json_parameters(invoke, tmp_path):
    path = tmp_path / "map.json"
    path.write_text('{"data_type": "FLOAT16", "global_dim": [1024, 512], "box-dim": [64, 32], "swizzle": null}')
    expected = tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(1024, 512), box_dim=(64, 32)).encode()
    assert invoke("encode", "tiled", "--from", str(path), "-o", "hex").stdout.strip() == bytes(expected).hex()


def test_every_violation_is_listed(invoke):
    arguments = {
        "global_address": 8, "global_dim": (0, 512), "global_strides": (2049,), "box_dim": (128, 300),
        "element_strides": (9, 1), "oob_fill": "NAN_REQUEST_ZERO_FMA", "data_type": "UINT16", "swizzle": "64B",
    }
    options = [
        part
        for name, value in arguments.items()
        for part in (
            "--" + name.replace("_", "-"), ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        )
    ]
    result = invoke("encode", "tiled", *options)
    broken = tma.Tiled(**arguments).violations()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(broken) >= 7
    assert f"for sm_90a: {len(broken)} broken rules" in result.stderr
    flat = " ".join(result.stderr.split())
    for violation in broken:
        assert f" {violation.rule} " in flat
        assert violation.message in flat
        assert f"fix: {violation.fix}" in flat
    assert max(map(len, result.stderr.splitlines())) <= 80


def test_violations_as_json(invoke):
    result = invoke(*OPTIONS, "--box-dim", "65,32", "--json")
    assert result.exit_code == 2
    assert {entry["rule"] for entry in json.loads(result.stdout)["violations"]} == {
        "box-inner-multiple", "box-inner-span"
    }
    assert "box-inner-span" in result.stderr


def test_target_decides_what_is_legal(invoke):
    atom = (*OPTIONS, "--swizzle", "128B_ATOM_32B", "-o", "hex")
    assert invoke(*atom).exit_code == 2
    assert invoke(*atom, "--target", "sm_100a").exit_code == 0


def extents(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@st.composite
def legal_parameters(draw: st.DrawFn) -> tma.Tiled:
    rank = draw(st.integers(1, 5))
    return tma.Tiled(
        data_type=draw(st.sampled_from([member for member in DataType if member <= DataType.TFLOAT32_FTZ])),
        global_address=16 * draw(st.integers(0, 2**53 - 1)),
        global_dim=tuple(draw(st.integers(1, 2**32)) for _ in range(rank)),
        global_strides=tuple(16 * draw(st.integers(0, 2**36 - 1)) for _ in range(rank - 1)),
        box_dim=(16, *(draw(st.integers(1, 4)) for _ in range(rank - 1))),
        element_strides=tuple(draw(st.integers(1, 8)) for _ in range(rank)),
        interleave=Interleave.NONE,
        swizzle=draw(st.sampled_from([Swizzle.NONE, Swizzle.B128])),
        l2_promotion=draw(st.sampled_from(list(L2Promotion))),
        oob_fill=OobFill.NONE,
    )


@pytest.mark.parametrize("output", ["table", "hex", "c", "json", "raw"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parameters=legal_parameters())
def test_encode_then_decode_in_every_form(invoke, output, parameters):
    encoded = invoke(
        "encode", "tiled", "--data-type", str(parameters.data_type), "--address", str(parameters.global_address),
        "--global-dim", ",".join(map(str, parameters.global_dim)),
        "--global-strides", ",".join(map(str, parameters.global_strides)),
        "--box-dim", ",".join(map(str, parameters.box_dim)),
        "--element-strides", ",".join(map(str, parameters.element_strides)),
        "--swizzle", str(parameters.swizzle), "--l2-promotion", str(parameters.l2_promotion), "--output", output,
    )
    assert encoded.exit_code == 0, encoded.stderr
    if output == "table":
        assert max(map(len, encoded.stdout.splitlines())) <= 80
        return
    decoded = invoke("decode", "-", "--json", input=encoded.stdout_bytes)
    assert decoded.exit_code == 0, decoded.stderr
    assert json.loads(decoded.stdout)["bytes"] == bytes(parameters.encode()).hex()


def test_a_real_pipe():
    command = [sys.executable, "-m", "cupytma"]
    encoded = subprocess.run([*command, *OPTIONS, "-o", "raw"], capture_output=True, check=True)
    assert encoded.stdout == bytes(EXPECTED)
    decode = [*command, "decode", "-", "-o", "hex"]
    decoded = subprocess.run(decode, input=encoded.stdout, capture_output=True, check=True)
    assert decoded.stdout.decode().strip() == bytes(EXPECTED).hex()


@pytest.mark.parametrize(
    ("arguments", "place"), [((), ""), (("--from-array", "shape=8,8"), " before --from-array")], ids=["bare", "option"]
)
def test_options_without_the_kind_before_them_are_told_the_kinds(invoke, arguments, place):
    result = invoke("encode", *arguments)
    assert result.exit_code == 2
    words = " ".join(result.stderr.split())
    assert f"missing the kind of tensor map{place}: im2col, im2col-wide, tiled; `cupytma encode tiled --help`" in words


@pytest.mark.parametrize("command", [("encode", "tiled"), ("simulate",)])
def test_who_takes_output_for_a_file_is_told_how_to_write_one(invoke, command):
    result = invoke(*command, "-o", "map.bin")
    assert result.exit_code == 2
    assert "'map.bin' is no form" in " ".join(result.stderr.split())
    assert "> FILE" in result.stderr
