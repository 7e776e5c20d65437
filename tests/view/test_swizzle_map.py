"""The swizzle map against the bytes that the simulator's load puts into shared memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from reading import Drawing

import cupytma as tma
from cupytma import sim, view
from cupytma.errors import PictureError, SimulationError
from cupytma.view.drawing import HUES

ATOM, FLIP = tma.Swizzle.B128_ATOM_32B, tma.Swizzle.B128_ATOM_32B_FLIP_8B


def _loaded(swizzle: tma.Swizzle, unit: int, base: int) -> dict[tuple[int, int], int]:
    """Where a load puts each piece of a tile of 8 rows: from row and piece to the byte of shared memory."""
    span = swizzle.span or 128
    pieces = np.arange(1, 1 + 8 * span // unit, dtype=np.uint64).repeat(unit // 8)
    p = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(span, 8), box_dim=(span, 8), swizzle=swizzle)
    target = "sm_100a" if p.violations() else "sm_90a"
    shared = np.zeros(base + 2048, np.uint8)
    sim.load(p.encode(target), (0, 0), memory=pieces.view(np.uint8), base=0, shared=shared, shared_offset=base)
    held = shared.view(np.uint64)[:: unit // 8].tolist()
    return {divmod(int(piece) - 1, span // unit): i * unit for i, piece in enumerate(held) if piece}


@pytest.mark.parametrize("base", [0, 128, 384, 896])
@pytest.mark.parametrize("swizzle", tma.Swizzle)
def test_every_piece_is_drawn_where_a_load_puts_it_in_the_colour_and_with_the_label_of_its_banks(swizzle, base):
    unit = 8 if swizzle is FLIP else 16
    places = _loaded(swizzle, unit, base)
    drawing = Drawing(view.swizzle(swizzle, base=base).svg)
    before = drawing.tipped(r"row (\d+), bytes (\d+) to (\d+): shared byte (\d+), banks (\d+) to (\d+)")
    assert len(before) == len(places)
    for rect, match in before:
        row, first, last, place, low, high = map(int, match.groups())
        assert last - first + 1 == unit
        assert place == places[row, first // unit]
        assert (low, high) == (place % 128 // 4, (place % 128 + unit) // 4 - 1)
        assert drawing.label_of(rect) == f"{low}–{high}"
        assert HUES[place % 128 // 16] in rect.classes
    after = drawing.tipped(r"shared byte (\d+): row (\d+), bytes (\d+) to \d+")
    assert len(after) == len(places)
    for rect, match in after:
        place, row, first = map(int, match.groups())
        assert place == places[row, first // unit]
        assert drawing.label_of(rect) == f"{row}·{first // unit}"
        assert HUES[place % 128 // 16] in rect.classes
    # To the right by the byte within the line, down by the line.
    lefts = {place % 128: rect.x for rect, match in after for place in [int(match[1])]}
    assert [lefts[i] for i in sorted(lefts)] == sorted(set(lefts.values()))
    tops = {place // 128: rect.y for rect, match in after for place in [int(match[1])]}
    assert [tops[i] for i in sorted(tops)] == sorted(set(tops.values()))


@pytest.mark.parametrize("swizzle", [s for s in tma.Swizzle if s is not FLIP])
def test_what_is_said_of_a_column_is_what_counting_bank_conflicts_finds(swizzle):
    span = swizzle.span or 128
    p = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(span, 8), box_dim=(span, 8), swizzle=swizzle)
    m = p.encode("sm_100a")
    column = np.array([(0, row) for row in range(8)])
    found = sim.bank_conflicts(m, column, access_bytes=16)
    words = Drawing(view.swizzle(swizzle).svg).words
    # Eight reads of 16 bytes are one phase: as many wavefronts as reads share a group of banks.
    assert f"lies in {8 // found.wavefronts} of the 8 groups of four banks" in words
    without = re.findall(r"without a swizzle in (\d)", words)
    assert without == [str(8 // found.unswizzled_wavefronts)] * (swizzle != tma.Swizzle.NONE)


@pytest.mark.parametrize(("size", "label"), [(1, "e16–31"), (2, "e8–15"), (4, "e4–7"), (8, "e2–3"), (16, "e1")])
def test_columns_are_numbered_in_elements(size, label):
    assert label in [text.text for text in Drawing(view.swizzle("128B", size).svg).texts]


def test_many_rows_are_drawn_in_part():
    drawing = Drawing(view.swizzle("64B", rows=1000).svg)
    assert "64 of 1,000 rows are drawn; the pattern repeats every 4 lines." in drawing.words
    assert len(drawing.tipped(r"row .*")) == 64 * 4
    assert "are drawn" not in Drawing(view.swizzle("64B", rows=64).svg).words
    assert len(Drawing(view.swizzle("128B", rows=1).svg).tipped(r"row .*")) == 8


def test_members_names_and_numbers_are_the_same():
    given = view.swizzle(tma.Swizzle.B128).svg
    assert given == view.swizzle("128B").svg == view.swizzle(3).svg == view.swizzle("128b").svg
    assert view.swizzle(ATOM).svg != view.swizzle("128B").svg


@pytest.mark.parametrize("name", ["96B", 9, None, 2.5, [], float("nan"), True])
def test_what_is_no_swizzle_is_refused(name):
    with pytest.raises(SimulationError, match="no member"):
        view.swizzle(name)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [({"element_size": 3}, "element_size is 3"), ({"element_size": 0}, "element_size is 0"), ({"rows": 0}, "rows is 0"),
     ({"rows": -5}, "rows is -5"), ({"base": 64}, "base is 64"), ({"base": -128}, "base is -128")],
)  # fmt: skip
def test_numbers_that_no_tile_has_are_refused(numbers, message):
    with pytest.raises(PictureError, match=message):
        view.swizzle("128B", **numbers)


@pytest.mark.parametrize("name", ["element_size", "rows", "base"])
@pytest.mark.parametrize("value", [None, "8", 2.0, float("nan"), True, [8]])
def test_what_is_no_integer_is_refused(name, value):
    with pytest.raises(SimulationError, match=name):
        view.swizzle("128B", **{name: value})


def test_a_base_beyond_shared_memory_is_refused():
    for base in (2**32, 10**30 // 128 * 128):
        with pytest.raises(PictureError, match=r"below 2\^32 bytes"):
            view.swizzle("128B", base=base)
    assert view.swizzle("128B", base=2**32 - 1024).svg
