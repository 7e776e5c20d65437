"""``cupytma tile``: counts of tiles and bytes are those of copies that the simulator makes one by one."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoking import Invoke

import cupytma as tma
from cupytma import sim

RAGGED = ("--data-type", "FLOAT16", "--global-dim", "1000,500", "--box-dim", "64,32")


def _counted(p: tma.Tiled) -> dict[str, int]:
    """The same by making every copy."""
    encoded = p.encode()
    steps = [1, *p.element_strides[1:]]
    starts = [
        [box * i + phase for i in range(-(-extent // box)) for phase in range(step)]
        for extent, box, step in zip(p.global_dim, p.box_dim, steps, strict=True)
    ]
    found = {"copies": 0, "whole_copies": 0, "out_of_bounds_bytes": 0, "bytes": 0}
    moved: set[int] = set()
    inside_count = 0
    for start in itertools.product(*starts):
        tile = sim.tile_map(encoded, start)
        outside = int((~tile.inside).sum())
        found["copies"] += 1
        found["whole_copies"] += not outside
        found["out_of_bounds_bytes"] += outside * tile.unit_bytes
        found["bytes"] += encoded.box_bytes
        moved.update(tile.global_address[tile.inside].tolist())
        inside_count += int(tile.inside.sum())
    found["tensor_bytes"] = len(moved) * p.element_bits // 8
    found["repeated_bytes"] = (inside_count - len(moved)) * p.element_bits // 8
    return found


@st.composite
def tiled(draw: st.DrawFn) -> tma.Tiled:
    rank = draw(st.integers(1, 3))
    outer = st.integers(1, 9)
    dims = (draw(st.integers(1, 70)), *(draw(outer) for _ in range(rank - 1)))
    box = (16 * draw(st.integers(1, 3)), *(draw(outer) for _ in range(rank - 1)))
    steps = (1, *(draw(st.integers(1, min(4, b))) for b in box[1:]))
    strides = tuple(itertools.accumulate(dims[1:-1], lambda a, b: a * b, initial=128))[: rank - 1]
    return tma.Tiled(
        data_type="UINT8", global_address=0, global_dim=dims, global_strides=strides, box_dim=box, element_strides=steps
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(p=tiled())
def test_counts_are_those_of_every_copy(invoke: Invoke, p: tma.Tiled) -> None:
    found = json.loads(invoke("tile", bytes(p.encode()).hex(), "--json").stdout)
    expected = _counted(p)
    assert {name: found[name] for name in expected} == expected
    assert found["wasted_share"] == pytest.approx(1 - expected["tensor_bytes"] / expected["bytes"])


def test_an_interleaved_tensor_is_covered_slice_by_slice(invoke: Invoke) -> None:
    p = tma.Tiled(
        data_type="FLOAT16", global_address=0, global_dim=(10, 6, 3, 2), global_strides=(320, 1920, 5760),
        box_dim=(8, 4, 2, 1), interleave="32B", swizzle="32B",
    )  # fmt: skip
    found = json.loads(invoke("tile", bytes(p.encode()).hex(), "--json").stdout)
    assert [d["tiles"] for d in found["dimensions"]] == [2, 2, 3, 2]
    assert (found["transaction_bytes"], found["copies"]) == (8 * 4 * 32, 24)
    assert found["tensor_bytes"] == 10 * 6 * 3 * 2 * 32


def test_the_text_says_how_many_and_how_much_is_wasted(invoke: Invoke) -> None:
    text = " ".join(invoke("tile", *RAGGED).stdout.split())
    assert "loads 256, 31 of which reach out of bounds" in text
    assert "all loads 1,048,576 B, for 1,000,000 B of the tensor" in text
    assert "wasted 4.6 %: 48,576 B are out of bounds and filled" in text
    assert "the last has 40 20 and outside 24 12" in text
    assert "past the rows" not in text


def test_stores_past_the_rows_are_told_and_loads_are_not(invoke: Invoke) -> None:
    arguments = ("tile", "--data-type", "UINT8", "--box-dim", "32")
    text = " ".join(invoke(*arguments, "--global-dim", "100", "--store").stdout.split())
    assert "past the rows 12 B are written after each of the tensor's rows" in text
    assert "past the rows" not in invoke(*arguments, "--global-dim", "100").stdout
    text = invoke(*arguments, "--global-dim", "64", "--store").stdout
    assert "past the rows" not in text
    assert "nothing: boxes and tensor end together" in text


def test_a_stride_that_does_not_divide_the_box_brings_elements_twice(invoke: Invoke) -> None:
    arguments = ("--data-type", "UINT8", "--global-dim", "16,10", "--box-dim", "16,5", "--element-strides", "1,3")
    text = " ".join(invoke("tile", *arguments).stdout.split())
    assert "16 B are of the next box (its element stride does not divide the box)" in text


def test_a_picture_without_boxes_left_out_shades_what_is_outside(invoke: Invoke) -> None:
    text = invoke("tile", "--data-type", "UINT8", "--global-dim", "48,10", "--box-dim", "32,6").stdout
    assert text[text.index("dimension 0 across") :].splitlines()[1:] == [
        "     0       32      64",
        "   0 +-------+-------+",
        "     |.......|....xxx|",
        "     |.......|....xxx|",
        "   6 +-------+-------+",
        "     |.......|....xxx|",
        "     |xxxxxxx|xxxxxxx|",
        "  12 +-------+-------+",
        "  . the tensor   x out of bounds",
    ]


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "arguments",
    [
        RAGGED,
        ("--data-type", "UINT8", "--global-dim", "4294967296,4294967296", "--box-dim", "256,256"),
        ("--data-type", "UINT8", "--global-dim", "16", "--box-dim", "16"),
        ("--data-type", "UINT8", "--global-dim", "16,100000,3,4,5", "--box-dim", "16,1,2,2,2"),
        (*RAGGED, "--at", "960,480"),
        (*RAGGED, "--at", "-64,-2147483648"),
    ],
)
def test_it_fits_the_terminal(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, columns: int, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size((columns, 24)))
    result = invoke("tile", *arguments)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= columns


def test_one_box_is_drawn_where_it_is(invoke: Invoke) -> None:
    arguments = ("--data-type", "UINT8", "--global-dim", "20,6", "--global-strides", "32", "--box-dim", "16,4")
    text = invoke("tile", *arguments, "--at", "16,4").stdout
    assert "The box at 16, 4: 8 in bounds, 56 outside" in text
    assert "  4 ................####xxxxxxxxxxxx" in text


def test_svg_is_of_the_last_box_or_the_one_asked_for(invoke: Invoke, tmp_path: Path) -> None:
    from cupytma import view

    encoded = tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(1000, 500), box_dim=(64, 32)).encode()
    path = tmp_path / "tile.svg"
    invoke("tile", *RAGGED, "--picture", str(path))
    assert path.read_text() == view.tile(encoded, (960, 480)).svg
    invoke("tile", *RAGGED, "--picture", str(path), "--at", "0,32")
    assert path.read_text() == view.tile(encoded, (0, 32)).svg
    assert invoke("tile", *RAGGED, "--picture", "-").stdout.strip() == view.tile(encoded, (960, 480)).svg.strip()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--data-type", "UINT8"), "missing --global-dim, --box-dim"),
        (("00" * 128, "--data-type", "UINT8"), "give it, or options"),
        (("--data-type", "UINT8", "--global-dim", "16", "--box-dim", "8"), "multiple of 16"),
        (("--data-type", "UINT8", "--global-dim", "16,2", "--box-dim", "16"), "rank"),
        (("--data-type", "UINT8", "--global-dim", "0", "--box-dim", "16"), "dim-range"),
        (("--data-type", "UINT8", "--global-dim", "", "--box-dim", ""), "rank 0"),
        (("--data-type", "99", "--global-dim", "16", "--box-dim", "16"), "broken rule"),
        ((*RAGGED, "--at", "1,0"), "illegal instruction"),
        ((*RAGGED, "--at", "0"), "1 coordinate for a tensor map of rank 2"),
        ((*RAGGED, "--at", f"0,{2**31}"), "32-bit"),
        ((*RAGGED, "--picture", "/"), "cannot write"),
        (("missing.bin",), "there is no file 'missing.bin'"),
        (("00" * 128,), ""),
    ],
)
def test_what_makes_no_sense_is_one_block_and_exit_code_2(
    invoke: Invoke, arguments: tuple[str, ...], word: str
) -> None:
    result = invoke("tile", *arguments)
    assert result.exit_code == 2
    assert word in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80


def test_pixels_are_covered_by_no_boxes(invoke: Invoke) -> None:
    p = tma.Im2col(
        data_type="UINT8", global_address=0, global_dim=(32, 9, 7, 2), pixel_box_lower_corner=(-1, -1),
        pixel_box_upper_corner=(-1, -1), channels_per_pixel=16, pixels_per_column=40,
    )  # fmt: skip
    result = invoke("tile", "-", input=bytes(p.encode()))
    assert result.exit_code == 2
    assert "only tiled copies" in result.stderr


def test_a_packed_tensor_is_counted_in_its_packed_bytes(invoke: Invoke) -> None:
    arguments = ("--data-type", "16U4_ALIGN16B", "--global-dim", "256,10", "--box-dim", "128,4", "--target", "sm_100a")
    found = json.loads(invoke("tile", *arguments, "--json").stdout)
    assert (found["tensor_bytes"], found["transaction_bytes"], found["bytes"]) == (1280, 256, 1536)
    assert np.isclose(found["wasted_share"], 1 / 6)
