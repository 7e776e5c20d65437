"""Tiled copies against the plain-Python reference: every edge, every type, every swizzle, element strides."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sim_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupytma import sim
from cupytma.tensormap import Tiled

BASE = 0x7F0000000000
SHARED = 1 << 14
TYPES = [
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT32_FTZ",
    "TFLOAT32", "TFLOAT32_FTZ", "FLOAT64",
]  # fmt: skip


def size_of_window(p: Tiled) -> int:
    """Bytes from the tensor's first to the end of its last row, rounded up as stores round."""
    rows = sum((extent - 1) * stride for extent, stride in zip(p.global_dim[1:], p.global_strides, strict=True))
    return p.global_address - BASE + rows + -(-p.global_dim[0] * p.element_bytes // 16) * 16


def check_load(p: Tiled, coords: tuple[int, ...], shared_offset: int = 0) -> None:
    memory = sim_reference.random_bytes(size_of_window(p))
    shared = sim_reference.random_bytes(SHARED, seed=1)
    expected = bytearray(shared.tobytes())
    count = sim_reference.load(p, coords, memory.tobytes(), BASE, expected, shared_offset)
    m = p.encode()
    moved = sim.load(m, coords, memory=memory, base=BASE, shared=shared, shared_offset=shared_offset)
    assert moved == count == m.box_bytes
    assert shared.tobytes() == bytes(expected)


def check_store(p: Tiled, coords: tuple[int, ...], shared_offset: int = 0) -> None:
    memory = sim_reference.random_bytes(size_of_window(p))
    shared = sim_reference.random_bytes(SHARED, seed=1)
    expected, before = bytearray(memory.tobytes()), shared.copy()
    sim_reference.store(p, coords, expected, BASE, shared.tobytes(), shared_offset)
    sim.store(p.encode(), coords, memory=memory, base=BASE, shared=shared, shared_offset=shared_offset)
    assert memory.tobytes() == bytes(expected)
    assert np.array_equal(shared, before)


def cube(rank: int, **changes: Any) -> Tiled:
    """A tensor of odd extents that no tile divides, rows padded to 16 bytes."""
    dims = (11, 5, 5, 5, 5)[:rank]
    strides = tuple(48 * 5**i for i in range(rank - 1))
    values: dict[str, Any] = {
        "data_type": "FLOAT32", "global_address": BASE + 32, "global_dim": dims, "global_strides": strides,
        "box_dim": (8, 3, 2, 2, 2)[:rank],
    }  # fmt: skip
    return Tiled(**(values | changes))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("swizzle", ["NONE", "32B"])
def test_tiles_over_every_edge_load_what_the_reference_loads(rank: int, swizzle: str) -> None:
    before_inside_after = [(-4, 0, 8), (-1, 1, 3), (-1, 2, 4), (-1, 3, 4), (-1, 0, 4)][:rank]
    for coords in itertools.product(*before_inside_after):
        check_load(cube(rank, swizzle=swizzle), coords)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_tiles_over_every_upper_edge_store_what_the_reference_stores(rank: int) -> None:
    start_inside_after = [(0, 4, 8), (0, 1, 3), (0, 2, 4), (0, 3, 4), (0, 1, 4)][:rank]
    for coords in itertools.product(*start_inside_after):
        check_store(cube(rank), coords)


def test_a_tile_around_a_whole_tensor_smaller_than_its_box() -> None:
    p = cube(3, global_dim=(3, 2, 1), box_dim=(16, 7, 4))
    check_load(p, (-8, -3, -1))
    check_store(p, (0, 0, 0))


@pytest.mark.parametrize("coords", [(-(2**31), 0), (0, -(2**31)), (2**31 - 4, 5), (4, 2**31 - 1)])
def test_a_tile_far_outside_is_all_fill(coords: tuple[int, int]) -> None:
    check_load(cube(2, oob_fill="NAN_REQUEST_ZERO_FMA"), coords)
    wide = cube(2, global_strides=(2**40 - 16,), global_dim=(11, 1))
    check_load(wide, (0, coords[1] or 1))


@pytest.mark.parametrize("strides", [(0, 16), (2**40 - 16, 2**40 - 16), (48, 0)])
def test_dimensions_of_size_one_may_have_any_stride(strides: tuple[int, int]) -> None:
    p = cube(3, global_dim=(11, 1, 1), global_strides=strides)
    check_load(p, (4, -1, 0))
    check_store(p, (0, 0, 0))


@pytest.mark.parametrize("steps", [(1, 2, 1), (1, 3, 2), (5, 8, 3), (8, 1, 4)])
def test_element_strides_skip_rows_and_do_nothing_in_dimension_0(steps: tuple[int, int, int]) -> None:
    p = cube(3, element_strides=steps, box_dim=(8, 7, 5))
    for coords in [(0, 0, 0), (-4, -1, -2), (4, 3, 1)]:
        check_load(p, coords)
    check_store(p, (4, 1, 2))


@pytest.mark.parametrize("data_type", TYPES)
def test_every_element_type(data_type: str) -> None:
    floats = data_type in TYPES[6:]
    p = cube(2, data_type=data_type, box_dim=(16, 3), global_dim=(13, 5), global_strides=(112,))
    for fill in ("NONE", "NAN_REQUEST_ZERO_FMA")[: 1 + floats]:
        check_load(replace(p, oob_fill=fill), (-16, 3))
        check_load(replace(p, oob_fill=fill), (0, -1))
    check_store(p, (0, 3))


@st.composite
def tiles(draw: st.DrawFn) -> tuple[Tiled, tuple[int, ...], int]:
    """A legal descriptor with a small tile, a start near its edges, and a shared offset."""
    rank = draw(st.integers(1, 5))
    data_type = draw(st.sampled_from(TYPES))
    size = Tiled(data_type=data_type, global_address=0, global_dim=(1,), box_dim=(16,)).element_bytes
    swizzle = draw(st.sampled_from(["NONE", "32B", "64B", "128B"]))
    longest = {"NONE": 160, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    width = draw(st.integers(1, longest // 16)) * 16
    dims = [draw(st.integers(1, 2 * width // size))] + [draw(st.integers(1, 5)) for _ in range(rank - 1)]
    stride, strides = -(-dims[0] * size // 16) * 16, []
    for extent in dims[1:]:
        strides.append(stride + 16 * draw(st.integers(0, 2)))
        stride = strides[-1] * extent
    p = Tiled(
        data_type=data_type,
        global_address=BASE + 16 * draw(st.integers(0, 3)),
        global_dim=tuple(dims),
        global_strides=tuple(strides),
        box_dim=(width // size, *(draw(st.integers(1, 4)) for _ in range(rank - 1))),
        element_strides=(1, *(draw(st.integers(1, 3)) for _ in range(rank - 1))),
        swizzle=swizzle,
        oob_fill=draw(st.sampled_from([0, 1])) if data_type in TYPES[6:] else 0,
    )
    aligned = 16 // size
    inner = aligned * draw(st.integers(-width // 16, dims[0] // aligned + 1))
    coords = (inner, *(draw(st.integers(-2, extent)) for extent in dims[1:]))
    return p, coords, 128 * draw(st.integers(0, 9))


# The reference handles a byte at a time, so an example's time says nothing.
slow = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@slow
@given(tiles())
def test_any_tile_loads_what_the_reference_loads(tile: tuple[Tiled, tuple[int, ...], int]) -> None:
    check_load(*tile)


@slow
@given(tiles())
def test_any_tile_stores_what_the_reference_stores(tile: tuple[Tiled, tuple[int, ...], int]) -> None:
    p, coords, shared_offset = tile
    inner = coords[0] if coords[0] >= 0 else 0
    check_store(p, (inner, *(max(c, 0) for c in coords[1:])), shared_offset)


@slow
@given(tiles())
def test_load_then_store_copies_the_elements_in_bounds_and_touches_nothing_else(
    tile: tuple[Tiled, tuple[int, ...], int],
) -> None:
    p, coords, shared_offset = tile
    if p.data_type.name.startswith("TFLOAT32"):
        p = replace(p, data_type="FLOAT32")  # loads of the others change no value
    # Whole 16-byte rows, so that a store writes elements in bounds and no others.
    whole = max(p.global_dim[0] * p.element_bytes // 16, 1) * 16 // p.element_bytes
    p = replace(p, global_dim=(whole, *p.global_dim[1:]))
    coords = tuple(max(c, 0) for c in coords)
    source = sim_reference.random_bytes(size_of_window(p))
    target = sim_reference.random_bytes(size_of_window(p), seed=2)
    expected = target.copy()
    for x, address, places in sim_reference.elements(p, coords, shared_offset):
        if sim_reference.inside(p, x):
            place = address - BASE
            expected[place : place + len(places)] = source[place : place + len(places)]
    shared = np.zeros(SHARED, dtype=np.uint8)
    m = p.encode()
    sim.load(m, coords, memory=source, base=BASE, shared=shared, shared_offset=shared_offset)
    sim.store(m, coords, memory=target, base=BASE, shared=shared, shared_offset=shared_offset)
    assert np.array_equal(target, expected)


def test_a_window_into_the_middle_of_memory_serves_a_tile_that_needs_no_more() -> None:
    p = cube(2, global_dim=(12, 5))
    memory = sim_reference.random_bytes(size_of_window(p))
    whole, part = np.zeros((2, 96), dtype=np.uint8)
    m = p.encode()
    sim.load(m, (4, 2), memory=memory, base=BASE, shared=whole)
    begin, end = 32 + 2 * 48 + 16, 32 + 4 * 48 + 48
    sim.load(m, (4, 2), memory=memory[begin:end].copy(), base=BASE + begin, shared=part)
    assert np.array_equal(whole, part)


def test_the_tile_map_says_where_each_element_comes_from_and_goes() -> None:
    for p, coords in [
        (cube(3, swizzle="32B", element_strides=(1, 2, 1)), (-4, 1, 4)),
        (cube(1), (8,)),
        (cube(2, data_type="UINT16", box_dim=(8, 3)), (0, -1)),
    ]:
        found = sim.tile_map(p.encode(), coords, shared_offset=384)
        wanted = list(sim_reference.elements(p, coords, 384))
        assert found.unit_bytes == p.element_bytes
        assert [tuple(x) for x in found.coordinates] == [x for x, _, _ in wanted]
        assert found.inside.tolist() == [sim_reference.inside(p, x) for x, _, _ in wanted]
        assert found.shared_byte.tolist() == [places[0] for _, _, places in wanted]
        assert found.global_address.tolist() == [a if sim_reference.inside(p, x) else -1 for x, a, _ in wanted]


def test_a_tile_of_64_kib_takes_well_under_a_millisecond() -> None:
    from time import process_time

    memory = sim_reference.random_bytes(1 << 22)
    m = Tiled(
        data_type="FLOAT32", global_address=BASE, global_dim=(1024, 1024), global_strides=(4096,), box_dim=(64, 256)
    ).encode()
    shared = np.zeros(1 << 16, dtype=np.uint8)
    times = []
    for i in range(50):
        begin = process_time()
        sim.load(m, (64 * (i % 16), 256), memory=memory, base=BASE, shared=shared)
        times.append(process_time() - begin)
    assert sorted(times)[len(times) // 4] < 1e-3
