"""Plans of boxes carried out by the simulator: exactly the tile arrives, where and in as many bytes as stated."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma import DescriptorError, Im2col, TargetError, Tiled, sim
from cupytma.tensormap.planning import BoxPlan, plan_boxes

DTYPES = ("u1", "u2", "f2", "i4", "f4", "u8", "f8")
SWIZZLES = ("NONE", "32B", "64B", "128B")


def aligned(shape: tuple[int, ...], dtype: str, padding: int = 0) -> np.ndarray:
    """Distinct bytes as an array on a 64-byte boundary, with a multiple of 16 bytes after each row."""
    itemsize = np.dtype(dtype).itemsize
    row = -(-shape[-1] * itemsize // 16) * 16 + 16 * padding
    rows = prod(shape[:-1])
    buffer = np.random.default_rng(rows + row).integers(0, 256, rows * row + 64, dtype=np.uint8)
    start = -buffer.ctypes.data % 64
    strides = [row]
    for extent in reversed(shape[1:-1]):
        strides.insert(0, strides[0] * extent)
    return np.ndarray(shape, dtype, buffer, start, (*strides[len(strides) - len(shape) + 1 :], itemsize))


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


def expected_tile(array: np.ndarray, origin: tuple[int, ...], tile: tuple[int, ...]) -> np.ndarray:
    """The tile in array order, zeros where it leaves the array."""
    found = np.zeros(tile, array.dtype)
    inside = [slice(max(0, o), max(0, min(n, o + t))) for o, t, n in zip(origin, tile, array.shape, strict=True)]
    if all(s.start < s.stop for s in inside):
        place = tuple(slice(s.start - o, s.stop - o) for s, o in zip(inside, origin, strict=True))
        found[place] = array[tuple(inside)]
    return found


def carried_out(plan: BoxPlan, array: np.ndarray, origin: tuple[int, ...], ctas: tuple[int, ...]) -> np.ndarray:
    """The tile that the loads of some blocks bring to one shared memory, put together again, in array order.

    Asserts that the bytes are those stated, that boxes overlap nowhere, and that nothing else is written.
    """
    memory = np.frombuffer(array.base, np.uint8)
    shared = np.full(plan.shared_bytes, 0xA5, np.uint8)
    tile = np.zeros(plan.tile[::-1], array.dtype)
    covered = np.zeros(plan.tile[::-1], int)
    written = np.zeros(plan.shared_bytes, bool)
    starts = plan.at(origin[::-1])
    total = 0
    for load, (m, coords, offset) in zip(plan.loads, starts, strict=True):
        if load.cta not in ctas:
            continue
        assert offset % plan.shared_alignment == 0
        got = sim.load(m, coords, memory=memory, base=array.base.ctypes.data, shared=shared, shared_offset=offset)
        assert got == load.bytes
        total += got
        box = plan.boxes[load.tensor_map]
        places = element_places(plan, box, offset, array.itemsize)
        mine = np.zeros_like(written)
        mine[places[..., None] + np.arange(array.itemsize)] = True
        assert not (written & mine).any()
        written |= mine
        values = shared[places[..., None] + np.arange(array.itemsize)].view(bits(array).dtype)[..., 0]
        for position, value in zip(product(*map(range, box[::-1])), values.ravel(), strict=True):
            at = tile_index(plan, load.coordinates, position[::-1])
            bits(tile)[at] = value
            covered[at] += 1
    assert (shared[~written] == 0xA5).all()
    assert total == sum(plan.bytes_per_cta[cta] for cta in ctas)
    assert set(covered.ravel()) <= {0, 1}
    return tile if covered.all() else tile[covered.astype(bool)]


def element_places(plan: BoxPlan, box: tuple[int, ...], offset: int, itemsize: int) -> np.ndarray:
    """Where each element of a box is found in shared memory, in array order."""
    swizzle = plan.tensor_maps[0].decode().swizzle
    pitch = max(box[0] * itemsize, swizzle.span)
    rows = np.arange(prod(box[1:])) * pitch
    linear = offset + rows[:, None] + np.arange(box[0]) * itemsize
    return (sim.swizzle_address(linear // 16 * 16, swizzle) + linear % 16).reshape(box[::-1])


def tile_index(plan: BoxPlan, start: tuple[int, ...], position: tuple[int, ...]) -> tuple[int, ...]:
    """The tile's element, in array order, that a position of a box stands for."""
    x = [0] * len(plan.tile)
    for axis, s, p in zip(plan.view, start, position, strict=True):
        x[axis.source] += (s + p) * axis.divisor
    return tuple(reversed(x))


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], dict[str, object]]:
    rank = draw(st.integers(1, 4))
    dtype, swizzle = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SWIZZLES))
    unit = max(1, 16 // np.dtype(dtype).itemsize)
    inner = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16, 17, 24, 33])) * unit
    outer = {1: (), 2: (1, 3, 8, 32, 255, 257, 300, 512), 3: (1, 2, 5, 16, 64), 4: (1, 2, 3, 8)}[rank]
    tile = (*(draw(st.sampled_from(outer)) for _ in range(rank - 1)), inner)
    while prod(tile) * np.dtype(dtype).itemsize > 1 << 15:
        tile = (*(max(1, extent // 2) for extent in tile[:-1]), max(unit, tile[-1] // 2 // unit * unit))
    multiple = st.sampled_from([1, 2])
    extent = st.integers(-3, 5)
    shape = tuple(
        max(1, t * draw(multiple) + draw(st.sampled_from([0, 0, draw(extent)]))) for t in tile
    )
    array = aligned(shape, dtype, draw(st.integers(0, 2)))
    return array, tile, {"swizzle": swizzle, "higher_rank": draw(st.booleans())}


def origin_of(draw: st.DrawFn, plan: BoxPlan) -> tuple[int, ...]:
    return tuple(multiple * draw(st.integers(-2, 2)) for multiple in plan.origin_multiples[::-1])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_loads_bring_exactly_the_tile_at_the_stated_places_in_the_stated_bytes(data: st.DataObject) -> None:
    array, tile, options = data.draw(cases())
    plan = plan_boxes(array, tile, **options)
    assert plan.tile == tile[::-1]
    assert plan.transaction_bytes == prod(tile) * array.itemsize
    origin = origin_of(data.draw, plan)
    found = carried_out(plan, array, origin, (0,))
    np.testing.assert_array_equal(bits(found), bits(expected_tile(array, origin, tile)))


@given(st.data(), st.sampled_from([2, 3, 4, 8, 16]))
@settings(max_examples=60, deadline=None)
def test_a_multicast_brings_the_whole_tile_to_every_block_in_shares(data: st.DataObject, count: int) -> None:
    array, tile, options = data.draw(cases())
    plan = plan_boxes(array, tile, multicast=count, **options)
    assert plan.ctas == count
    assert sum(plan.bytes_per_cta) == plan.transaction_bytes == prod(tile) * array.itemsize
    origin = origin_of(data.draw, plan)
    found = carried_out(plan, array, origin, tuple(range(count)))
    np.testing.assert_array_equal(bits(found), bits(expected_tile(array, origin, tile)))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_each_block_of_a_pair_gets_its_half_and_both_count_on_one_barrier(data: st.DataObject) -> None:
    array, tile, options = data.draw(cases())
    outermost = next((axis for axis, extent in enumerate(tile) if extent > 1), len(tile) - 1)
    if tile[outermost] % 2 or (outermost == len(tile) - 1 and tile[-1] * array.itemsize % 32):
        with pytest.raises(DescriptorError, match=r"odd|no multiple of 16"):
            plan_boxes(array, tile, cta_pair=True, target="sm_100a", **options)
        return
    plan = plan_boxes(array, tile, cta_pair=True, target="sm_100a", **options)
    assert plan.transaction_bytes == prod(tile) * array.itemsize
    assert plan.bytes_per_cta == (plan.transaction_bytes // 2,) * 2
    origin = origin_of(data.draw, plan)
    expected = np.split(expected_tile(array, origin, tile), 2, axis=outermost)
    for cta in (0, 1):
        found = carried_out(plan, array, origin, (cta,))
        np.testing.assert_array_equal(bits(found).ravel(), bits(expected[cta]).ravel())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_element_strides_pass_over_elements_in_plans_as_they_do_in_boxes(data: st.DataObject) -> None:
    steps = (data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8)), 1)
    tile = (data.draw(st.integers(1, 12)), data.draw(st.sampled_from([1, 9, 255, 256, 257, 300, 511])), 8)
    array = aligned((12, 80, 8), "f4")
    plan = plan_boxes(array, tile, element_strides=steps)
    reference = expected_tile(array, (-2, 3, 0), tile)[:: steps[0], :: steps[1]]
    assert plan.transaction_bytes == reference.nbytes
    memory, rows = np.frombuffer(array.base, np.uint8), []
    for load, (m, coords, offset) in zip(plan.loads, plan.at((0, 3, -2)), strict=True):
        shared = np.zeros(plan.shared_bytes, np.uint8)
        assert load.bytes == sim.load(
            m, coords, memory=memory, base=array.base.ctypes.data, shared=shared, shared_offset=offset
        )
        rows.append(shared[offset : offset + load.bytes].view("f4").reshape(-1, 8))
    found, expected = np.concatenate(rows), reference.reshape(-1, 8)
    order = (np.lexsort(bits(found).T[::-1]), np.lexsort(bits(expected).T[::-1]))
    np.testing.assert_array_equal(bits(found)[order[0]], bits(expected)[order[1]])


@pytest.mark.parametrize("dtype", ["f2", "u2"])
@pytest.mark.parametrize("rows", [256, 128, 1])
def test_a_tile_wider_than_the_span_is_one_load_for_each_span(dtype: str, rows: int) -> None:
    plan = plan_boxes(aligned((512, 1024), dtype), (rows, 256), swizzle="128B")
    assert plan.boxes == ((64, rows),)
    assert [load.coordinates for load in plan.loads] == [(0, 0), (64, 0), (128, 0), (192, 0)]
    step = -(-128 * rows // 1024) * 1024
    assert [load.shared_offset for load in plan.loads] == [0, step, 2 * step, 3 * step]
    assert plan.transaction_bytes == rows * 512
    assert not plan.higher_rank


def test_a_wide_tile_is_one_box_in_a_view_of_one_dimension_more_with_the_same_places() -> None:
    array = aligned((512, 1024), "f2")
    many, one = (plan_boxes(array, (256, 256), swizzle="128B", higher_rank=view) for view in (False, True))
    assert one.boxes == ((64, 256, 4),)
    assert [str(axis) for axis in one.view] == ["x0 % 64", "x1", "x0 // 64"]
    assert one.tensor_maps[0].decode().global_dim == (64, 512, 16)
    assert one.tensor_maps[0].decode().global_strides == (2048, 128)
    assert (one.transaction_bytes, one.shared_bytes) == (many.transaction_bytes, many.shared_bytes)
    assert one.origin_multiples == (64, 1)
    tiles = [carried_out(plan, array, (256, 512), (0,)) for plan in (many, one)]
    np.testing.assert_array_equal(*map(bits, tiles))


@pytest.mark.parametrize("width", [1000, 1016])
def test_a_tensor_that_ends_inside_a_span_keeps_its_own_dimensions(width: int) -> None:
    plan = plan_boxes(aligned((512, width), "f2"), (64, 256), swizzle="128B", higher_rank=True)
    assert not plan.higher_rank
    assert len(plan.loads) == 4


@pytest.mark.parametrize(
    ("tile", "boxes", "loads"),
    [
        ((512, 64), ((64, 256),), 2),
        ((300, 64), ((64, 256), (64, 44)), 2),
        ((257, 64), ((64, 256), (64, 1)), 2),
        ((384, 64), ((64, 192),), 2),
        ((8, 96), ((64, 8), (32, 8)), 2),
        ((256, 8), ((8, 256),), 1),
    ],
)
def test_rows_follow_rows_without_gaps_and_parts_are_equal_where_that_leaves_none(
    tile: tuple[int, ...], boxes: tuple[tuple[int, ...], ...], loads: int
) -> None:
    plan = plan_boxes(aligned((600, 128), "f2"), tile, swizzle="128B")
    assert plan.boxes == boxes
    assert len(plan.loads) == loads
    assert plan.shared_bytes == tile[0] * -(-tile[1] // 64) * 128


def test_a_long_run_lies_in_shared_memory_as_in_the_array() -> None:
    array = aligned((8192,), "f4")
    for view in (False, True):
        plan = plan_boxes(array, (4096,), higher_rank=view)
        assert len(plan.loads) == (1 if view else 16)
        assert [load.shared_offset for load in plan.loads] == [1024 * i for i in range(len(plan.loads))]


def test_places_are_on_the_boundary_that_the_swizzle_repeats_at() -> None:
    for swizzle, period in (("NONE", 128), ("32B", 256), ("64B", 512), ("128B", 1024)):
        plan = plan_boxes(aligned((16, 512), "u1"), (3, 512), swizzle=swizzle)
        assert plan.shared_alignment == period
        assert all(load.shared_offset % period == 0 for load in plan.loads)


def test_interleaved_slices_are_loaded_one_by_one() -> None:
    array = aligned((2, 4, 300, 8), "f2").reshape(2, 4, 300, 8)
    plan = plan_boxes(np.ascontiguousarray(array)[None], (1, 1, 3, 264, 8), interleave="16B")
    assert plan.tile == (264, 3, 1, 1)
    assert plan.transaction_bytes == 264 * 3 * 16
    with_slices = plan_boxes(np.ascontiguousarray(array)[None], (1, 2, 3, 264, 8), interleave="16B")
    assert with_slices.transaction_bytes == 2 * plan.transaction_bytes
    assert {box[2] for box in with_slices.boxes} == {1}


def test_shares_of_a_multicast_are_equal_where_an_extent_divides() -> None:
    array = aligned((512, 512), "f2")
    plan = plan_boxes(array, (128, 64), swizzle="128B", multicast=4)
    assert plan.boxes == ((64, 32),)
    assert plan.bytes_per_cta == (4096,) * 4
    assert [load.cta for load in plan.loads] == [0, 1, 2, 3]
    plan = plan_boxes(array, (128, 256), swizzle="128B", multicast=2)
    assert plan.boxes == ((64, 128),)
    assert plan.bytes_per_cta == (32768,) * 2


def test_parameters_and_tensor_maps_are_in_driver_order_and_their_box_does_not_matter() -> None:
    parameters = Tiled(
        data_type="FLOAT16", global_address=1 << 40, global_dim=(1024, 512), box_dim=(8, 1), swizzle="128B"
    )
    plan = plan_boxes(parameters, (128, 300))
    assert plan == plan_boxes(parameters.encode(), (128, 300))
    assert plan.tile == (128, 300)
    assert plan.boxes == ((64, 256), (64, 44))
    assert plan_boxes(parameters, (128, 300), swizzle="NONE", l2_promotion="128B").boxes == ((128, 150),)


def test_dimensions_may_be_merged_first() -> None:
    plan = plan_boxes(aligned((4, 8, 16, 2, 2, 64), "f2"), (64, 64), coalesce=((0, 1, 2, 3, 4), (5,)), swizzle="128B")
    assert plan.tensor_maps[0].decode().global_dim == (64, 2048)


@pytest.mark.parametrize(
    ("tile", "options", "message"),
    [
        ((64, 7), {}, r"tile\[1\] = 7, are 14 B, no multiple of 16 bytes: use 8"),
        ((0, 8), {}, r"tile\[0\] = 0; 1 is the least"),
        ((1 << 40, 1 << 20), {}, "232448 B at most"),
        ((1024, 64), {"target": "sm_120a"}, "on sm_120a has 101376 B at most"),
        ((64,), {}, "tile has 1 entry; the array has 2 dimensions"),
        (64, {}, "expected one integer per dimension"),
        ((64, 64), {"multicast": 0}, "a cluster has 1 to 16"),
        ((64, 64), {"multicast": 17}, "a cluster has 1 to 16"),
        ((63, 64), {"cta_pair": True, "target": "sm_100a"}, r"tile\[0\] = 63 has an odd number of parts, 63"),
        ((64, 64), {"cta_pair": True, "multicast": 2, "target": "sm_100a"}, "either multicast or split"),
        ((64, 64), {"swizzle": "128B_ATOM_32B"}, "swizzle 128B_ATOM_32B is not available on sm_90a"),
        ((64, 64), {"oob_fill": 1, "data_type": "UINT16"}, "an integer type has no NaN"),
    ],
)
def test_a_tile_without_a_legal_plan_is_refused_in_the_arrays_order(
    tile: tuple[int, ...], options: dict[str, object], message: str
) -> None:
    with pytest.raises(DescriptorError, match=message):
        plan_boxes(aligned((512, 512), "f2"), tile, **options)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    array = aligned((64, 100), "f4")[:, 1:]
    with pytest.raises(DescriptorError) as caught:
        plan_boxes(array, (0, 3))
    text = str(caught.value)
    assert "tile[0] = 0" in text
    assert "tile[1] = 3" in text
    assert "the array's address" in text
    assert [v.rule for v in caught.value.violations] == ["address-alignment"]


def test_pairs_need_a_target_that_has_them() -> None:
    with pytest.raises(TargetError, match="sm_100a"):
        plan_boxes(aligned((64, 64), "f2"), (64, 64), cta_pair=True)


def test_im2col_parameters_are_refused() -> None:
    parameters = Im2col(
        data_type="FLOAT16", global_address=1 << 40, global_dim=(64, 8, 8, 2), channels_per_pixel=64,
        pixels_per_column=32, pixel_box_lower_corner=(0, 0), pixel_box_upper_corner=(0, 0),
    )
    with pytest.raises(DescriptorError, match="walk over pixels"):
        plan_boxes(parameters, (64, 8, 8, 1))


def test_origins_that_loads_cannot_start_from_are_refused() -> None:
    array = aligned((512, 512), "f2")
    with pytest.raises(DescriptorError, match=r"origin\[0\] = 4 is 4 mod 8"):
        plan_boxes(array, (8, 64)).at((4, 0))
    with pytest.raises(DescriptorError, match=r"origin\[0\] = 32 is 32 mod 64"):
        plan_boxes(array, (8, 128), swizzle="128B", higher_rank=True).at((32, 0))
    with pytest.raises(DescriptorError, match="origin has 1 entry"):
        plan_boxes(array, (8, 64)).at((0,))


@pytest.mark.parametrize("swizzle", ["128B_ATOM_32B", "128B_ATOM_64B"])
def test_swizzles_of_newer_targets_are_planned_for_those(swizzle: str) -> None:
    plan = plan_boxes(aligned((512, 512), "f4"), (128, 128), swizzle=swizzle, target="sm_100a")
    assert plan.boxes == ((32, 128),)
    assert len(plan.loads) == 4


@pytest.mark.parametrize("swizzle", ["NONE", "128B", "128B_ATOM_32B"])
@pytest.mark.parametrize("data_type", ["16U4_ALIGN16B", "16U6_ALIGN16B"])
def test_rows_of_padded_types_are_split_into_boxes_of_128(data_type: str, swizzle: str) -> None:
    operands = {"global_dim": (1024, 512), "global_strides": (1024,), "box_dim": (1, 1)}
    tensor = Tiled(data_type=data_type, global_address=0, **operands)
    plan = plan_boxes(tensor, (512, 8), swizzle=swizzle, target="sm_100a")
    assert [load.coordinates for load in plan.loads] == [(0, 0), (128, 0), (256, 0), (384, 0)]
    assert plan.boxes == ((128, 8),)
    with pytest.raises(DescriptorError, match="must be 128"):
        plan_boxes(tensor, (192, 8), swizzle=swizzle, target="sm_100a")
