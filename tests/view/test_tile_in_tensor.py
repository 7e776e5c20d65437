"""The picture of a tile against what the simulator loads."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reading import Drawing, span

import cupytma as tma
from cupytma import sim, view
from cupytma.errors import DescriptorError, Fault, PictureError, SimulationError

drawn = settings(max_examples=60, deadline=None, derandomize=True)
_RUN = r"(loaded|filled): dimension 0 (.*), dimension 1 (.*)"


def _positions(drawing: Drawing) -> dict[str, set[tuple[int, int]]]:
    """The positions that are drawn as loaded, and as filled."""
    found: dict[str, set[tuple[int, int]]] = {"loaded": set(), "filled": set()}
    for _, match in drawing.tipped(_RUN):
        run = {(x, y) for x in span(match[2]) for y in span(match[3])}
        assert not run & (found["loaded"] | found["filled"])
        found[match[1]] |= run
    return found


@st.composite
def matrices(draw):
    """A matrix of float32, a box, element strides and a start."""
    width = 4 * draw(st.integers(1, 10))
    p = tma.Tiled(
        data_type="FLOAT32", global_address=0, global_dim=(width, draw(st.integers(1, 12))),
        box_dim=(4 * draw(st.integers(1, 8)), draw(st.integers(1, 12))), element_strides=(1, draw(st.integers(1, 4))),
    )  # fmt: skip
    return p, (4 * draw(st.integers(-4, 12)), draw(st.integers(-8, 16)))


@drawn
@given(matrices())
def test_a_position_is_drawn_as_filled_where_a_load_fills_it(case):
    p, start = case
    width, height = p.global_dim
    # No element is 0, which is the fill; each tells its position.
    matrix = np.arange(1, 1 + width * height, dtype=np.float32).reshape(height, width)
    rows = -(-p.box_dim[1] // p.element_strides[1])
    tile = np.full((rows, p.box_dim[0]), -1, np.float32)
    memory, shared = (array.reshape(-1).view(np.uint8) for array in (matrix, tile))
    sim.load(p.encode(), start, memory=memory, base=0, shared=shared)
    loaded = {((int(v) - 1) % width, (int(v) - 1) // width) for v in tile.ravel() if v > 0}
    outside = {
        (start[0] + x, start[1] + y * p.element_strides[1])
        for y in range(rows) for x in range(p.box_dim[0]) if not tile[y, x]
    }  # fmt: skip
    drawing = Drawing(view.tile(p, start).svg)
    assert _positions(drawing) == {"loaded": loaded, "filled": outside}
    assert f"{len(loaded):,} loaded, {len(outside):,} outside and filled with zero" in drawing.words


@drawn
@given(matrices())
def test_shapes_are_to_scale(case):
    p, start = case
    runs = Drawing(view.tile(p, start).svg).tipped(_RUN)
    first, match = runs[0]
    pixels = first.width / len(span(match[2]))
    left, top = first.x - span(match[2])[0] * pixels, first.y - span(match[3])[0] * pixels
    tall = 26 if p.global_dim[1] == 1 and first.height / len(span(match[3])) == 26 else pixels
    assume(tall == pixels)
    for rect, m in runs:
        columns, rows = span(m[2]), span(m[3])
        assert rect.width == pytest.approx(len(columns) * pixels, abs=0.3)
        assert rect.height == pytest.approx(len(rows) * pixels, abs=0.3)
        assert rect.x == pytest.approx(left + columns[0] * pixels, abs=1)
        assert rect.y == pytest.approx(top + rows[0] * pixels, abs=1)


def test_outside_is_told_by_more_than_colour():
    edge = view.tile(tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 4)), (12, 6))
    middle = view.tile(tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 4)), (4, 2))
    # One hatch is in the legend; the other's two outside parts have one each.
    assert edge.svg.count('class="c1 hatch"') == 3
    assert middle.svg.count('class="c1 hatch"') == 1


def test_other_dimensions_are_told_and_a_plane_with_something_in_it_is_drawn():
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 10, 5), box_dim=(8, 6, 4),
                  oob_fill="NAN_REQUEST_ZERO_FMA")  # fmt: skip
    drawing = Drawing(view.tile(p, (12, 6, -2)).svg)
    assert "Dimension 2, of extent 5: 4 positions of the tile (-2 to 1), 2 outside; drawn is 0." in drawing.words
    found = sim.tile_map(p.encode(), (12, 6, -2))
    assert f"{found.inside.sum()} loaded, {(~found.inside).sum()} outside and filled with NaN" in drawing.words
    assert len(_positions(drawing)["loaded"]) == 4 * 4


@pytest.mark.parametrize("interleave", ["16B", "32B"])
def test_slices_of_an_interleaved_tensor_are_positions(interleave):
    p = tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(8, 6, 4, 2), global_strides=(512, 4096, 65536),
                  box_dim=(8, 4, 1, 1), interleave=interleave,
                  swizzle="NONE" if interleave == "16B" else "32B")  # fmt: skip
    start = (6, -1, 2, 1)
    found = sim.tile_map(p.encode(), start)
    places = _positions(Drawing(view.tile(p, start).svg))
    inside = {tuple(c[:2]) for c in found.coordinates[found.inside].tolist()}
    assert places == {"loaded": inside, "filled": {tuple(c[:2]) for c in found.coordinates[~found.inside].tolist()}}


def test_packed_elements_are_drawn_in_their_groups():
    p = tma.Tiled(data_type="16U4_ALIGN8B", global_address=0, global_dim=(96, 8), global_strides=(48,), box_dim=(64, 2))
    places = _positions(Drawing(view.tile(p, (64, 7)).svg))
    assert places["loaded"] == {(x, 7) for x in range(64, 96)}
    assert len(places["filled"]) == 2 * 64 - 32


def test_gathered_rows_are_drawn_one_by_one():
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 20), box_dim=(8, 1))
    places = _positions(Drawing(view.tile(p, (4, 1, 19, 7, 30), mode="tile::gather4").svg))
    assert places["loaded"] == {(x, y) for x in range(4, 12) for y in (1, 7, 19)}
    assert places["filled"] == {(x, 30) for x in range(4, 12)}


def test_a_tensor_in_one_dimension():
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(100,), box_dim=(64,))
    assert _positions(Drawing(view.tile(p, (60,)).svg)) == {
        "loaded": {(x, 0) for x in range(60, 100)}, "filled": {(x, 0) for x in range(100, 124)},
    }  # fmt: skip


def test_of_large_tensors_a_part_is_drawn_and_that_is_said():
    p = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(2**20, 2**20), box_dim=(128, 64))
    assert "goes on beyond" in Drawing(view.tile(p, (2**19, 2**19)).svg).words
    assert "too far from the tile" in Drawing(view.tile(p, (2**21, 2**21)).svg).words
    small = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(256, 64), box_dim=(128, 64))
    assert "goes on beyond" not in Drawing(view.tile(small).svg).words


def test_a_default_start_and_a_map_in_place_of_parameters():
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 4))
    given = view.tile(p, (0, 0)).svg
    assert view.tile(p).svg == view.tile(p.encode()).svg == given == view.tile(p, [0, np.int64(0)]).svg


def test_what_would_kill_the_kernel_is_no_picture():
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 4))
    with pytest.raises(Fault, match="16"):
        view.tile(p, (2, 0))


@pytest.mark.parametrize(
    "start", [(0,), (0, 0, 0), 5, "ab", (0.5, 0), (None, 0), {0, 4}, (2**31, 0), (float("nan"), 0)]
)
def test_coordinates_that_no_instruction_takes_are_refused(start):
    p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 4))
    with pytest.raises(SimulationError):
        view.tile(p, start)


def test_other_maps_and_illegal_parameters_are_refused():
    images = tma.Im2col(
        data_type="FLOAT16", global_address=0, global_dim=(64, 8, 8, 2), pixel_box_lower_corner=(0, 0),
        pixel_box_upper_corner=(0, 0), channels_per_pixel=64, pixels_per_column=8,
    )  # fmt: skip
    with pytest.raises(PictureError, match=r"view\.im2col"):
        view.tile(images)
    with pytest.raises(DescriptorError, match="box-range"):
        view.tile(tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 999)))


def test_the_number_of_slots_is_that_of_the_box():
    p = tma.Tiled(
        data_type="FLOAT32", global_address=0, global_dim=(16, 8, 3), box_dim=(8, 4, 2), element_strides=(1, 3, 1)
    )
    places = _positions(Drawing(view.tile(p, (12, 4, 0)).svg))
    assert len(places["loaded"] | places["filled"]) == prod((8, -(-4 // 3)))
