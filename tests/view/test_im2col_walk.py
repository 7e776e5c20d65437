"""The picture of an im2col walk against what the simulator loads."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import Drawing, span

import cupytma as tma
from cupytma import sim, view
from cupytma.errors import Fault, PictureError, SimulationError

drawn = settings(max_examples=60, deadline=None, derandomize=True)
_RUN = r"(loaded|filled): pixels (.*) of the walk, W (.*), H (.*)"


def _walk(drawing: Drawing) -> dict[int, tuple[int, int, bool]]:
    """From the number of a pixel to W, H and whether it is loaded."""
    found: dict[int, tuple[int, int, bool]] = {}
    for _, match in drawing.tipped(_RUN):
        orders, columns, rows = map(span, match.groups()[1:])
        assert len(orders) == len(columns)
        assert len(rows) == 1
        found |= {o: (c, rows[0], match[1] == "loaded") for o, c in zip(orders, columns, strict=True)}
    return found


def _images(spatial, batch, lower, upper, pixels, steps=None):
    """Images of 4 channels of float32, 16 bytes a pixel."""
    return tma.Im2col(
        data_type="FLOAT32", global_address=0, global_dim=(4, *spatial, batch), pixel_box_lower_corner=lower,
        pixel_box_upper_corner=upper, channels_per_pixel=4, pixels_per_column=pixels,
        element_strides=(1, *(steps or (1,) * len(spatial)), 1),
    )  # fmt: skip


def _loaded(p: tma.Im2col, start, offsets) -> list[int]:
    """The pixels that a load brings, each as its number in memory; -1 for fill."""
    count = prod(p.global_dim[1:])
    memory = np.arange(1, 1 + count, dtype=np.int32).repeat(4)
    tile = np.zeros((p.pixels_per_column, 4), np.int32)
    sim.load(
        p.encode(), start, memory=memory.view(np.uint8), base=0, shared=tile.reshape(-1).view(np.uint8), offsets=offsets
    )
    return [int(pixel) - 1 for pixel in tile[:, 0]]


@st.composite
def walks(draw):
    """Images in one or two dimensions, small enough to be drawn whole, a start and offsets."""
    spatial = tuple(draw(st.integers(5, 9)) for _ in range(draw(st.integers(1, 2))))
    lower = tuple(draw(st.integers(-2, 1)) for _ in spatial)
    upper = tuple(draw(st.integers(-2, 1)) for _ in spatial)
    steps = tuple(draw(st.integers(1, 2)) for _ in spatial)
    batch = draw(st.integers(1, 3))
    cycle = prod((n + up - 1 - low) // step + 1 for n, low, up, step in zip(spatial, lower, upper, steps, strict=True))
    p = _images(spatial, batch, lower, upper, draw(st.integers(1, 3 * cycle)), steps)
    start = tuple(draw(st.integers(low, n + up - 1)) for n, low, up in zip(spatial, lower, upper, strict=True))
    return p, (0, *start, draw(st.integers(0, batch - 1))), tuple(draw(st.integers(0, 3)) for _ in spatial)


@drawn
@given(walks())
def test_pixels_are_drawn_in_the_order_and_at_the_place_that_a_load_reads_them(case):
    p, start, offsets = case
    drawing = Drawing(view.im2col(p, start, offsets).svg)
    walk, loaded = _walk(drawing), _loaded(p, start, offsets)
    height = p.global_dim[2] if p.rank > 3 else 1
    per_image = p.global_dim[1] * height
    assert sorted(walk) == list(range(len(loaded))) or "planes are drawn" in drawing.words
    for order, (column, row, inside) in walk.items():
        pixel = loaded[order]
        assert inside == (pixel >= 0)
        if inside:
            assert (column, row) == (pixel % p.global_dim[1], pixel % per_image // p.global_dim[1])
    outside = sum(pixel < 0 for pixel in loaded)
    assert f"{len(loaded) - outside:,} loaded, {outside:,} outside and filled with zero" in drawing.words
    images = [pixel // per_image for pixel in loaded if pixel >= 0]
    named = {text.text for text in drawing.texts if text.text.startswith("image ")}
    assert {f"image {n}" for n in images} <= named | {f"image {n}" for n in images if len(named) == 4}


@drawn
@given(walks())
def test_every_number_stands_in_its_pixel(case):
    p, start, offsets = case
    drawing = Drawing(view.im2col(p, start, offsets).svg)
    numbers = {(t.x, t.y): t.text for t in drawing.texts if {"small", "middle"} == t.classes}
    for rect, match in drawing.tipped(_RUN):
        orders = list(span(match[2]))
        inside = sorted(
            (x, text) for (x, y), text in numbers.items()
            if rect.x < x < rect.x + rect.width and rect.y < y < rect.y + rect.height
        )  # fmt: skip
        assert [text for _, text in inside] == [str(order) for order in orders]


def test_the_default_start_is_the_first_base_pixel():
    p = _images((9, 7), 2, (-1, -2), (-1, -1), 30)
    given = view.im2col(p.encode(), (0, -1, -2, 0)).svg
    assert view.im2col(p).svg == given == view.im2col(p, None, [0, 0]).svg.replace(", offsets (0, 0)", "")


def test_base_pixels_are_told_with_their_steps():
    words = Drawing(view.im2col(_images((9, 7), 2, (-1, -2), (-1, -1), 30, (2, 3))).svg).words
    assert "Base pixels: W -1 to 7, H -2 to 5 in steps of 2 × 3." in words


def test_depths_and_images_are_planes():
    words = Drawing(view.im2col(_images((3, 2, 2), 2, (0, 0, 0), (0, 0, 0), 20)).svg).words
    assert all(name in words for name in ("D 0, image 0", "D 1, image 0", "D 0, image 1", "D 1, image 1"))


def test_of_many_planes_four_are_drawn():
    drawing = Drawing(view.im2col(_images((3,), 20, (0,), (0,), 30)).svg)
    assert "4 of 10 planes are drawn." in drawing.words
    assert sorted(_walk(drawing)) == list(range(12))


def test_of_large_images_the_part_around_the_walk_is_drawn():
    drawing = Drawing(view.im2col(_images((40, 2000), 1, (0, 0), (0, 0), 60), (0, 0, 1000, 0)).svg)
    assert "Drawn are W 0 to 39 and H 998 to 1003" in drawing.words
    assert sorted(_walk(drawing)) == list(range(60))


def test_interleaved_images_are_walked_too():
    p = tma.Im2col(
        data_type="FLOAT16", global_address=0, global_dim=(8, 6, 4, 2), global_strides=(512, 4096, 65536),
        pixel_box_lower_corner=(-1, 0), pixel_box_upper_corner=(-1, 0), channels_per_pixel=8, pixels_per_column=40,
        interleave="16B",
    )  # fmt: skip
    found = sim.tile_map(p.encode(), (2, 1, 3, 0))
    walk = _walk(Drawing(view.im2col(p, (2, 1, 3, 0)).svg))
    pixels = zip(found.coordinates.tolist(), found.inside, strict=True)
    assert walk == {i: (*position[:2], inside) for i, (position, inside) in enumerate(pixels)}
    assert "slice 3, image 0" in view.im2col(p, (2, 1, 3, 0)).svg


def test_a_wide_walk_is_drawn_with_its_halo():
    p = tma.Im2colWide(
        data_type="FLOAT16", global_address=0, global_dim=(64, 12, 10, 4), pixel_box_lower_corner_width=-1,
        pixel_box_upper_corner_width=-1, channels_per_pixel=64, pixels_per_column=8, swizzle="128B",
    )  # fmt: skip
    walk = _walk(Drawing(view.im2col(p, (0, 2, 3, 1), (2, 1)).svg))
    assert walk == {i: (3 + i, 3, 3 + i < 12) for i in range(10)}


def test_what_would_kill_the_kernel_is_no_picture():
    with pytest.raises(Fault, match="bounding box"):
        view.im2col(_images((9, 7), 2, (0, 0), (0, 0), 30), (0, 9, 0, 0))


@pytest.mark.parametrize("offsets", [(1,), (1, 2, 3), 5, "ab", (0.5, 1), (None, 0), (-1, 0), (2**16, 0)])
def test_offsets_that_no_instruction_takes_are_refused(offsets):
    with pytest.raises(SimulationError):
        view.im2col(_images((9, 7), 2, (0, 0), (0, 0), 30), None, offsets)


def test_a_tiled_map_is_refused():
    with pytest.raises(PictureError, match=r"view\.tile"):
        view.im2col(tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 4)))
