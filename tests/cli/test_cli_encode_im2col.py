"""``cupytma encode im2col`` and ``im2col-wide``: the library's bytes, from options and files, in every form."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cupytma as tma

IM2COL = (
    "encode", "im2col", "--data-type", "FLOAT16", "--address", "0x7f0000000000", "--global-dim", "64,56,56,32",
    "--pixel-box-lower-corner", "-1,-1", "--pixel-box-upper-corner", "-1,-1",
    "--channels-per-pixel", "64", "--pixels-per-column", "128", "--swizzle", "128B",
)
PARAMETERS = tma.Im2col(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(64, 56, 56, 32), pixel_box_lower_corner=(-1, -1),
    pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
)
WIDE = (
    "encode", "im2col-wide", "--data-type", "FLOAT16", "--address", "0x7f0000000000", "--global-dim", "64,56,56,32",
    "--pixel-box-lower-corner-width", "-1", "--pixel-box-upper-corner-width", "-1",
    "--channels-per-pixel", "64", "--pixels-per-column", "128", "--swizzle", "128B",
)
WIDE_PARAMETERS = tma.Im2colWide(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(64, 56, 56, 32), pixel_box_lower_corner_width=-1,
    pixel_box_upper_corner_width=-1, channels_per_pixel=64, pixels_per_column=128, swizzle="128B",
)


def options_of(values: dict) -> list[str]:
    texts = {name: ",".join(map(str, v)) if isinstance(v, tuple) else str(v) for name, v in values.items()}
    return [part for name, text in texts.items() for part in ("--" + name.replace("_", "-"), text)]


def test_im2col_is_the_librarys_bytes(invoke):
    assert invoke(*IM2COL, "-o", "raw").stdout_bytes == bytes(PARAMETERS.encode())


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_wide_is_the_librarys_bytes_for_each_target(invoke, target):
    assert invoke(*WIDE, "--target", target, "-o", "raw").stdout_bytes == bytes(WIDE_PARAMETERS.encode(target))


def test_wide_is_for_a_target_that_documents_it_by_default(invoke):
    assert invoke(*WIDE, "-o", "raw").stdout_bytes == bytes(WIDE_PARAMETERS.encode("sm_100a"))
    assert bytes(WIDE_PARAMETERS.encode("sm_100a")) != bytes(WIDE_PARAMETERS.encode("sm_90a"))
    assert "im2col-wide, rank 4, for sm_100a" in invoke(*WIDE).stdout


def test_wide_on_a_target_that_does_not_document_it_is_warned_of(invoke):
    assert "wide-target" in invoke(*WIDE, "--target", "sm_90a").stdout
    assert "wide-target" not in invoke(*WIDE).stdout


@pytest.mark.parametrize("mode", ["W", "W128"])
def test_the_mode_of_wide(invoke, mode):
    document = json.loads(invoke(*WIDE, "--mode", mode, "--pixels-per-column", "64", "--json").stdout)
    assert document["parameters"]["mode"] == mode
    assert document["box_bytes"] == 64 * 2 * (128 if mode == "W128" else 64)


@pytest.mark.parametrize(("arguments", "kind"), [(IM2COL, "im2col"), (WIDE, "im2col-wide")])
def test_own_json_is_read_back(invoke, arguments, kind):
    document = invoke(*arguments, "--json").stdout
    assert invoke("encode", kind, "--from", "-", "--json", input=document).stdout == document


def test_a_file_may_spell_the_kind_with_a_hyphen(invoke):
    document = json.loads(invoke(*WIDE, "--json").stdout)
    document["kind"] = "im2col-wide"
    result = invoke("encode", "im2col-wide", "--from", "-", "-o", "raw", input=json.dumps(document))
    assert result.stdout_bytes == bytes(WIDE_PARAMETERS.encode("sm_100a"))


def test_a_file_of_another_kind_names_the_command(invoke):
    document = invoke(*WIDE, "--json").stdout
    result = invoke("encode", "im2col", "--from", "-", input=document)
    assert result.exit_code == 2
    assert "cupytma encode im2col-wide" in " ".join(result.stderr.split())
    result = invoke("encode", "im2col", "--from", "-", input='{"kind": "conv"}')
    assert "tiled, im2col, im2col_wide" in " ".join(result.stderr.split())


def test_toml_with_negative_corners(invoke, tmp_path):
    pytest.importorskip("tomllib", reason="TOML needs Python 3.11")
    path = tmp_path / "map.toml"
    path.write_text(
        'data_type = "FLOAT16"\nglobal_address = "0x7f0000000000"\nglobal_dim = [64, 56, 56, 32]\n'
        "pixel_box_lower_corner = [-1, -1]\npixel-box-upper-corner = [-1, -1]\nchannels_per_pixel = 64\n"
        'pixels_per_column = 128\nswizzle = "128B"\n'
    )
    assert invoke("encode", "im2col", "--from", str(path), "-o", "raw").stdout_bytes == bytes(PARAMETERS.encode())


def test_every_violation_is_listed(invoke):
    changes = {
        "global_address": 8, "pixel_box_lower_corner": (-200, 1), "channels_per_pixel": 65, "pixels_per_column": 2000,
    }
    result = invoke(*IM2COL, *options_of(changes))
    broken = replace(PARAMETERS, **changes).violations()
    assert result.exit_code == 2
    assert len(broken) >= 5
    flat = " ".join(result.stderr.split())
    for violation in broken:
        assert f"{violation.rule} {violation.message} fix: {violation.fix}" in flat
    assert max(map(len, result.stderr.splitlines())) <= 80


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [
        ("--pixel-box-lower-corner", "-1", "pixel_box_lower_corner has 1 entry"),
        ("--pixel-box-lower-corner", "1,", "no integer"),
        ("--channels-per-pixel", "many", "no integer"),
        ("--pixels-per-column", str(2**64), "does not fit 64 bits"),
        ("--global-dim", "64,56", "rank 2"),
        ("--box-dim", "64", "--box-dim"),
        ("--mode", "W", "--mode"),
    ],
)
def test_wrong_options(invoke, option, value, word):
    result = invoke(*IM2COL, option, value)
    assert result.exit_code == 2
    assert word in " ".join(result.stderr.split())


def test_missing_parameters_are_named(invoke):
    flat = " ".join(invoke("encode", "im2col").stderr.split())
    assert "--pixel-box-lower-corner, --pixel-box-upper-corner, --channels-per-pixel, --pixels-per-column" in flat


@st.composite
def parameters(draw: st.DrawFn) -> tma.Im2col:
    rank = draw(st.integers(3, 5))
    corner = st.integers(-8, 7)
    corners = [tuple(draw(corner) for _ in range(rank - 2)) for _ in range(2)]
    return tma.Im2col(
        data_type=draw(st.sampled_from(["FLOAT16", "BFLOAT16", "FLOAT32"])),
        global_address=16 * draw(st.integers(0, 2**53 - 1)),
        global_dim=tuple(draw(st.integers(64, 2**20)) for _ in range(rank)),
        pixel_box_lower_corner=corners[0], pixel_box_upper_corner=corners[1],
        global_strides=tuple(16 * draw(st.integers(0, 2**36 - 1)) for _ in range(rank - 1)),
        channels_per_pixel=8 * draw(st.integers(1, 8)), pixels_per_column=draw(st.integers(1, 256)),
        element_strides=tuple(draw(st.integers(1, 8)) for _ in range(rank)),
        oob_fill=draw(st.sampled_from(["NONE", "NAN_REQUEST_ZERO_FMA"])),
    )


@pytest.mark.parametrize("output", ["table", "hex", "c", "json", "raw"])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parameters=parameters())
def test_encode_then_decode_in_every_form(invoke, output, parameters):
    values = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    encoded = invoke("encode", "im2col", *options_of(values), "--output", output)
    assert encoded.exit_code == 0, encoded.stderr
    if output == "table":
        assert max(map(len, encoded.stdout.splitlines())) <= 80
        return
    decoded = invoke("decode", "-", "-o", "raw", input=encoded.stdout_bytes)
    assert decoded.exit_code == 0, decoded.stderr
    assert decoded.stdout_bytes == bytes(parameters.encode())
