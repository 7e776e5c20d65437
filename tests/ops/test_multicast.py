"""Copies to many places: plans carried out on the simulator against numpy, the schedule, and the kernels' code."""

from __future__ import annotations

import doctest
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import multicast_plan, multicast_program, plan_multicast, simulate_multicast_copy
from cupytma.ops.multicast import _COPIES, MULTICAST_STAGES, copies_argument, copies_of, multicast_module
from cupytma.ops.multicast_plan import CLUSTERS, MulticastPlan, cluster_for
from cupytma.ops.simulated_copy import span_of
from cupytma.runtime.device import has_tma_device
from cupytma.sim import ProgramError
from cupytma.tensormap.arrays import ArrayView, view_of

GUARD = 64
DTYPES = ("u1", "f2", "f4", "f8", "c16")
# What goes wrong without a step of the kernel.
FAULTS = {
    "first barrier": "init-unordered",
    "init fence": "init-not-fenced",
    "announce": "arrival-missing",
    "wait for the load": "tile-not-complete",
    "wait for the other blocks": "refill-unordered",
    "commit": "group-not-committed",
    "wait for the stage": "source-still-read",
    "wait for the stores": "exit-in-flight",
}


def placed(shape, dtype, padding=0, offset=0) -> tuple[np.ndarray, np.ndarray]:
    """Random bytes as an array in a larger buffer, rows some elements longer than they need be; and the buffer."""
    dtype = np.dtype(dtype)
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent + (padding * dtype.itemsize if len(strides) == 1 else 0)
    buffer = np.random.default_rng(step).integers(0, 256, step + 2 * GUARD + 64 + offset, dtype=np.uint8)
    return np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % 64 + GUARD + offset, tuple(strides)), buffer


def as_bytes(array: np.ndarray) -> Any:
    return np.lib.stride_tricks.as_strided(
        array.reshape(-1)[:1].view("u1") if array.size else np.zeros(1, "u1"),
        (*array.shape, array.itemsize), (*array.strides, 1),
    )  # fmt: skip


def assert_spreads(source: np.ndarray, destination: np.ndarray, buffer: np.ndarray) -> MulticastPlan:
    """Every place holds the source's bits, and nothing else of the buffer changes."""
    expected, bits = buffer.copy(), f"V{source.itemsize}"
    offset = destination.ctypes.data - buffer.ctypes.data
    np.ndarray(destination.shape, bits, expected, offset, destination.strides)[...] = np.ascontiguousarray(source).view(
        bits
    ) if source.ndim else source.reshape(1).view(bits)[0]
    simulate_multicast_copy(source, destination)
    np.testing.assert_array_equal(buffer, expected)
    return plan_multicast(view_of(source), view_of(destination))


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_any_array_is_copied_to_any_places_and_nothing_else_is_touched(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    size, rank = np.dtype(dtype).itemsize, data.draw(st.integers(0, 4))
    extents = st.sampled_from([1, 2, 3, 5, 16, 33] if rank > 2 else [1, 2, 7, 16, 31, 64, 65, 130, 600])
    shape = tuple(data.draw(extents) for _ in range(rank))
    lead = data.draw(st.sampled_from([(1,), (2,), (3,), (5,), (8,), (13,), (2, 3), (1, 4), (2, 1, 2)]))
    paddings, offsets = st.sampled_from([0, 0, 1, 3, 16]), st.sampled_from([0, 0, 16, size])
    source, _ = placed(shape, dtype, data.draw(paddings), data.draw(offsets))
    destination, buffer = placed((*lead, *shape), dtype, data.draw(paddings), data.draw(offsets))
    assert_spreads(source, destination, buffer)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_turned_sources_and_places_in_any_order(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.sampled_from([1, 4, 16, 33, 64])) for _ in range(data.draw(st.integers(1, 3))))
    dtype = data.draw(st.sampled_from(["f2", "f4", "f8"]))
    source, _ = placed(shape, dtype, data.draw(st.sampled_from([0, 4])))
    source = source.transpose(data.draw(st.permutations(range(len(shape)))))
    source = source[tuple(slice(None, None, data.draw(st.sampled_from([1, 1, -1, 2]))) for _ in shape)]
    destination, buffer = placed((3, 2, *source.shape), dtype)
    if data.draw(st.booleans()):
        destination = destination[:: data.draw(st.sampled_from([-1, 2]))]
    assert_spreads(source, destination, buffer)


@pytest.mark.parametrize("width", range(1, 40))
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4"])
def test_rows_that_end_inside_a_16_byte_unit_do_not_spill(width: int, dtype: str) -> None:
    source, _ = placed((9, width), dtype, 80 - width)
    destination, buffer = placed((5, 9, width), dtype, 96 - width, 16)
    plan = assert_spreads(source, destination, buffer)
    assert (plan.tiles is not None) == (width * source.itemsize >= 16)


def test_each_tile_is_loaded_once_for_a_cluster() -> None:
    source, _ = placed((96, 512), "f4")
    destination, buffer = placed((16, 96, 512), "f4")
    plan = assert_spreads(source, destination, buffer)
    tiles = plan.tiles
    assert tiles is not None
    assert (plan.before, plan.rest, plan.reason) == (None, None, "")
    assert (tiles.cluster, tiles.groups, tiles.copies) == (8, 2, (16,))
    assert tiles.items == 2 * tiles.tiles
    assert tiles.tiles * tiles.source.box_bytes == source.nbytes
    assert tiles.source.decode().box_dim == tiles.destination.decode().box_dim
    places = {tiles.place(tile, copy) for tile in range(tiles.tiles) for copy in range(16)}
    assert len(places) == 16 * tiles.tiles


def test_a_source_that_no_tensor_map_describes_is_copied_once_and_spread_from_there() -> None:
    source, _ = placed((64, 128), "f4")
    destination, buffer = placed((9, 128, 64), "f4")
    plan = assert_spreads(source.T, destination, buffer)
    assert plan.before is not None
    assert plan.before.turned is not None
    assert plan.tiles is not None
    assert plan.tiles.copies == (8,)
    assert "lie together" in plan.reason
    misplaced, _ = placed((64, 128), "f4", 0, 4)
    destination, buffer = placed((3, 4, 64, 128), "f4")
    plan = assert_spreads(misplaced, destination, buffer)
    assert plan.tiles is not None
    assert plan.tiles.copies == (11,)
    assert "source address is 4 mod 16" in plan.reason


@pytest.mark.parametrize(("padding", "offset", "rule"), [(1, 0, "no multiple of 16"), (0, 8, "address is 8 mod 16")])
def test_places_that_no_tensor_map_describes_are_written_by_ordinary_stores(
    padding: int, offset: int, rule: str
) -> None:
    source, _ = placed((40, 64), "f4")
    destination, buffer = placed((4, 40, 64), "f4", padding, offset)
    plan = assert_spreads(source, destination, buffer)
    assert plan.tiles is None
    assert plan.before is not None
    assert rule in plan.reason


@pytest.mark.parametrize("copies", range(1, 100))
def test_no_cluster_has_more_than_a_quarter_of_its_turns_idle(copies: int) -> None:
    cluster = cluster_for(copies)
    slots = -(-copies // cluster) * cluster
    assert cluster in CLUSTERS
    assert 4 * (slots - copies) <= slots
    assert (cluster > 1) == (copies > 1)
    assert cluster == 8 or copies % 8


def test_the_example_of_the_documentation_is_what_comes_out() -> None:
    assert doctest.testmod(multicast_plan).failed == 0


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_empty_arrays_need_no_work(shape: tuple[int, ...]) -> None:
    assert plan_multicast(view_of(np.empty(shape)), view_of(np.empty((4, *shape)))).is_empty
    assert plan_multicast(view_of(np.empty(4)), view_of(np.empty((0, 4)))).is_empty
    simulate_multicast_copy(np.empty(shape), np.empty((4, *shape)))


def view(shape, strides, address=1 << 32, dtype="float32", itemsize=4) -> ArrayView:
    return ArrayView(address, shape, strides, dtype, itemsize, 0)


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        (view((4,), (4,)), view((2, 5), (20, 4), 1 << 40), "shapes do not fit"),
        (view((2, 4), (16, 4)), view((4,), (4,), 1 << 40), "shapes do not fit"),
        (view((4,), (4,)), view((2, 4), (16, 4), 1 << 40, "int32"), "types differ"),
        (view((4,), (4,)), view((2, 4), (8, 4), 1 << 40), "elements of the destination overlap"),
        (view((4,), (4,)), view((2, 4), (0, 4), 1 << 40), "elements of the destination overlap"),
        (view((64,), (4,)), view((2, 64), (256, 4)), "source and destination overlap"),
        (view((64,), (4,), (1 << 32) + 500), view((2, 64), (256, 4)), "source and destination overlap"),
    ],
)
def test_copies_without_one_right_answer_are_refused(source: ArrayView, destination: ArrayView, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        plan_multicast(source, destination)


def test_read_only_places_and_objects_are_refused() -> None:
    with pytest.raises(ArrayError, match="read-only"):
        simulate_multicast_copy(np.zeros(8), np.broadcast_to(np.zeros(8), (3, 8)))
    with pytest.raises(ArrayError):
        simulate_multicast_copy(np.array([None]), np.array([[None]]))


@pytest.mark.parametrize(("given_copies", "found"), [(3, (3,)), (0, (0,)), ((2, 3), (2, 3)), ([np.int64(4)], (4,))])
def test_numbers_of_copies(given_copies: object, found: tuple[int, ...]) -> None:
    assert copies_of(given_copies) == found


@pytest.mark.parametrize(
    "wrong", [-1, (2, -3), 2.5, float("nan"), "3", None, (), [None], 2**60, {3}, np.array([1, 2])]
)
def test_what_is_no_number_of_copies_is_refused(wrong: object) -> None:
    with pytest.raises(ArrayError, match="a number of copies from 0 to"):
        copies_of(wrong)


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU here")
def test_without_a_gpu_the_call_says_so() -> None:
    with pytest.raises(tma.NoDeviceError):
        tma.multicast_copy(np.zeros(4), copies=3)


# The schedule.


def check(source: np.ndarray, destination: np.ndarray, schedules: int = 3, **options: Any) -> None:
    report = multicast_program(source, destination, **options).run(schedules=schedules)
    assert report.clean, report
    assert not report.order_dependent
    simulate_multicast_copy(source, destination)
    np.testing.assert_array_equal(report.arrays["destination"], span_of(destination)[0])
    np.testing.assert_array_equal(report.arrays["source"], span_of(source)[0])


@given(
    shape=st.lists(st.integers(1, 30), min_size=1, max_size=3).map(tuple),
    padding=st.sampled_from([0, 4, 16]),
    copies=st.integers(2, 11),
    clusters=st.integers(1, 3),
    stages=st.integers(2, 5),
)
@settings(max_examples=40, deadline=None)
def test_any_layout_is_copied_under_every_schedule(
    shape: tuple[int, ...], padding: int, copies: int, clusters: int, stages: int
) -> None:
    padding += -(shape[-1] + padding) % 4
    source, destination = placed((*shape[:-1], shape[-1] + 4), "f4", padding)[0], placed(
        (copies, *shape[:-1], shape[-1] + 4), "f4", padding
    )[0]
    if plan_multicast(view_of(source), view_of(destination)).tiles is not None:
        check(source, destination, schedules=2, clusters=clusters, stages=stages)


def test_many_tiles_and_more_copies_than_a_cluster_has_blocks() -> None:
    check(placed((61, 300), "f4", 4)[0], placed((5, 61, 300), "f4", 8)[0], schedules=12, clusters=2)
    check(placed((4003,), "u1")[0], placed((9, 4003), "u1", 13)[0], schedules=6)


@pytest.mark.parametrize("step", FAULTS)
def test_every_step_of_the_kernel_is_needed(step: str) -> None:
    """A run long enough to fill the ring of stages in each block."""
    program = multicast_program(placed((96, 512), "f4")[0], placed((2, 96, 512), "f4")[0])
    # The model lets a block end while a load that it has started for others is under way.
    assert set(program.steps) == {*FAULTS, "release the stage", "last barrier"}
    for seed in range(4):
        assert FAULTS[step] in program.without(step).run(schedules=1, seed=seed).rules


def test_a_block_that_does_not_say_that_its_stage_is_free_holds_up_all() -> None:
    program = multicast_program(placed((96, 512), "f4")[0], placed((2, 96, 512), "f4")[0])
    found = program.without("release the stage").run(schedules=2).findings
    assert "hang" in {finding.kind for finding in found}


def test_the_stages_are_the_kernels() -> None:
    arrays = placed((96, 512), "f4")[0], placed((2, 96, 512), "f4")[0]
    program = multicast_program(*arrays)
    assert program.shared_bytes == multicast_program(*arrays, stages=MULTICAST_STAGES).shared_bytes
    assert program.shared_bytes < multicast_program(*arrays, stages=MULTICAST_STAGES + 1).shared_bytes


def test_one_program_does_not_take_the_place_of_another() -> None:
    from cupytma import ops

    multicast_program(placed((64,), "f4")[0], placed((4, 64), "f4")[0])
    for name in ops.__all__:
        assert callable(getattr(ops, name)), name


def test_what_has_no_schedule_is_refused() -> None:
    turned = placed((64, 64), "f4")[0].T, placed((4, 64, 64), "f4")[0]
    with pytest.raises(ArrayError, match="no tile goes by multicast"):
        multicast_program(*turned)
    for wrong in ({"stages": 1}, {"clusters": 0}, {"clusters": 1.5}):
        with pytest.raises(ProgramError, match=next(iter(wrong))):
            multicast_program(placed((64,), "f4")[0], placed((4, 64), "f4")[0], **wrong)


# The kernels.


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_kernels_compile_and_the_loads_are_multicast(target: str, cluster: int) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    module = multicast_module(target, cluster)
    assert set(module.signatures) == {f"multicast_copy_{rank}d" for rank in range(2, 6)}
    for rank in range(2, 6):
        load = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        assert (f"{load}.multicast::cluster " in module.ptx) == (cluster > 1)
        assert (f"{load} " in module.ptx) == (cluster == 1)
    work = module.signatures["multicast_copy_2d"].parameters[2]
    assert work.size == _COPIES.itemsize


@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_the_form_for_pairs_of_blocks_compiles_for_blackwell(cluster: int) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    ptx = multicast_module("sm_100a", cluster, 2).ptx
    for rank in range(2, 6):
        load = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        assert f"{load}.multicast::cluster.cta_group::2 " in ptx
        assert f"{load}.multicast::cluster " not in ptx


def test_the_form_for_pairs_needs_an_architecture_that_has_it() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    with pytest.raises(tma.CompileError):
        multicast_module("sm_90a", 2, 2)


def test_kernels_are_told_the_tiles_and_the_copies_apart() -> None:
    source, destination = placed((6, 40), "f4")[0], placed((3, 5, 6, 40), "f4", 8)[0][:, :4]
    tiles = plan_multicast(view_of(source), view_of(destination)).tiles
    assert tiles is not None
    assert tiles.copies == (4, 3)
    argument = copies_argument(tiles)
    assert argument["tiling"]["box"].tolist() == [*tiles.box_dim, 1, 1, *(1,) * (5 - tiles.rank)]
    assert argument["tiling"]["tiles"] == tiles.tiles
    assert argument["extents"].tolist() == [*(1,) * len(tiles.box_dim), 4, 3, *(1,) * (5 - tiles.rank)]
    assert (argument["copies"], argument["groups"], argument["items"]) == (12, tiles.groups, tiles.items)
    assert argument["groups"] * tiles.cluster >= prod(tiles.copies)
