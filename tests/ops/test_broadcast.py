"""Vectors combined with arrays: plans, the schedule on the simulator against numpy, and the kernels' code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import broadcast_program, plan_broadcast
from cupytma.ops.broadcast import (
    _ELEMENTS,
    _STRIPES,
    BROADCAST_STAGES,
    PreparedBroadcast,
    broadcast_module,
    elements_argument,
    parts_of,
    shared_bytes_of,
    stripes_argument,
)
from cupytma.ops.broadcast_plan import CLUSTERS, ELEMENTS, OPERATIONS, BroadcastPlan, axis_of
from cupytma.ops.broadcast_schedule import combine
from cupytma.ops.prepared import span_bytes
from cupytma.ops.simulated_copy import memory_at, span_of
from cupytma.runtime.device import has_tma_device
from cupytma.sim import ProgramError
from cupytma.tensormap.arrays import ArrayView, view_of

GUARD = 64
TRUTH = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
# What goes wrong without a step of the kernel.
FAULTS = {
    "first barrier": "init-unordered",
    "init fence": "init-not-fenced",
    "announce the vector": "multicast-not-expected",
    "wait for the vector": "tile-not-complete",
    "announce": "arrival-missing",
    "wait for the load": "tile-not-complete",
    "proxy fence": "proxy-fence",
    "hand over": "arrival-missing",
    "wait for the combined tile": "unordered",
    "commit": "group-not-committed",
    "wait for the stage": "source-still-read",
    "wait for the stores": "exit-in-flight",
}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def placed(shape, name: str, padding=0, offset=0, seed=0) -> np.ndarray:
    """Random numbers in a larger buffer of random bytes, rows some elements longer than they need be."""
    dtype = dtype_of(name)
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent + (padding * dtype.itemsize if len(strides) == 1 else 0)
    generator = np.random.default_rng(seed)
    buffer = generator.integers(0, 256, step + 2 * GUARD + 64 + offset, dtype=np.uint8)
    array = np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % 64 + GUARD + offset, tuple(strides))
    array[...] = (generator.standard_normal(shape) * 50).astype(dtype) if "float" in name else generator.integers(
        np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True
    )
    return array


def expected_of(operation: str, x: np.ndarray, vector: np.ndarray, axis: int) -> np.ndarray:
    shape = [1] * x.ndim
    shape[axis] = -1
    with np.errstate(all="ignore"):
        return TRUTH[operation](x, vector.reshape(shape))


def assert_combines(
    operation: str, x: np.ndarray, vector: np.ndarray, out: np.ndarray, axis: int, schedules: int = 1, **options: Any
) -> BroadcastPlan:
    """The program leaves numpy's result in the memory of the result, and nothing else changes."""
    report = broadcast_program(operation, x, vector, out, axis=axis, **options).run(schedules=schedules)
    assert report.clean, report
    assert not report.order_dependent
    plan = plan_broadcast(view_of(x), view_of(vector), view_of(out), axis % x.ndim)
    kept = span_of(x)[0].copy(), span_of(vector)[0].copy()
    out[...] = expected_of(operation, x, vector, axis)
    name = "destination" if "destination" in report.arrays else "memory"
    found = report.arrays[name]
    if name == "memory":
        start = min(span_of(array)[1] for array in (x, out))
        np.testing.assert_array_equal(found, memory_at(start, found.shape, (1,)))
    else:
        np.testing.assert_array_equal(found, span_of(out)[0])
        for key, before in zip(("source", "vector"), kept, strict=True):
            if key in report.arrays:
                np.testing.assert_array_equal(report.arrays[key], before)
    return plan


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("axis", [0, 1])
def test_every_operation_on_every_type(operation: str, name: str, axis: int) -> None:
    x, out = placed((37, 64), name, 16), placed((37, 64), name, 32)
    assert assert_combines(operation, x, placed((x.shape[axis],), name, seed=1), out, axis).tiles is not None


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_arrays_are_combined_exactly_and_nothing_else_is_touched(data: st.DataObject) -> None:
    operation, name = data.draw(st.sampled_from(sorted(OPERATIONS))), data.draw(st.sampled_from(sorted(ELEMENTS)))
    size, rank = dtype_of(name).itemsize, data.draw(st.integers(1, 4))
    extents = st.sampled_from([1, 2, 3, 4, 16, 33] if rank > 2 else [1, 2, 7, 16, 31, 64, 65, 130, 300])
    shape = tuple(data.draw(extents) for _ in range(rank))
    axis = data.draw(st.integers(-rank, rank - 1))
    paddings, offsets = st.sampled_from([0, 0, 16 // size, 1, 3]), st.sampled_from([0, 0, 16, size])
    x = placed(shape, name, data.draw(paddings), data.draw(offsets))
    out = x if data.draw(st.booleans()) else placed(shape, name, data.draw(paddings), data.draw(offsets), 1)
    vector = placed((shape[axis],), name, 0, data.draw(offsets), 2)
    assert_combines(operation, x, vector, out, axis, parts=data.draw(st.integers(1, 2)))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_turned_and_flipped_arrays_and_strided_vectors(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.sampled_from([1, 4, 16, 33, 64])) for _ in range(data.draw(st.integers(1, 3))))
    order = data.draw(st.permutations(range(len(shape))))
    steps = tuple(slice(None, None, data.draw(st.sampled_from([1, 1, -1, 2]))) for _ in shape)
    x = placed(shape, "float32", 4).transpose(order)[steps]
    out = placed(shape, "float32", 8, seed=1).transpose(order)[steps]
    if data.draw(st.booleans()):
        out = placed(x.shape, "float32", seed=1)
    axis = data.draw(st.integers(0, len(shape) - 1))
    vector = placed((2 * x.shape[axis],), "float32", seed=2)[:: data.draw(st.sampled_from([2, -2]))]
    assert_combines("add", x, vector, out, axis)


@pytest.mark.parametrize("width", [*range(1, 40), 100, 255, 257])
@pytest.mark.parametrize("name", ["uint8", "float16", "float32"])
def test_rows_that_end_inside_a_16_byte_unit(width: int, name: str) -> None:
    """In rows apart, and in rows that follow one another."""
    x, out = placed((40, width), name, 320 - width), placed((40, width), name, 352 - width, 16)
    vector = placed((width,), name, seed=2)
    plan = assert_combines("add", x, vector, out, 1)
    assert (plan.tiles is not None) == (width * x.itemsize >= 16)
    x, out = placed((40, width), name), placed((40, width), name, 0, 16)
    plan = assert_combines("add", x, vector, out, 1)
    if width > 1 and width * x.itemsize % 16 and x.nbytes >= 2048:
        assert plan.tiles is not None
        assert plan.tiles.is_flat


WIDE, TALL = (64, 4096), (3000, 48)


@pytest.mark.parametrize(
    ("shape", "name", "axis", "form", "stripes", "length"),
    [
        ((2000, 512), "float32", 1, "columns", 1, 512),
        ((2000, 513), "float32", 1, "flat", 1, 513),
        ((2000, 100), "float32", 1, "flat", 1, 100),
        ((2000, 300), "float32", 1, "columns", 1, 320),
        (WIDE, "float32", 1, "columns", 8, 512),
        (WIDE, "uint8", 1, "columns", 2, 2048),
        (WIDE, "float32", 0, "rows", 1, 64),
        (TALL, "float32", 0, "rows", 3, 1024),
        (TALL, "uint8", 0, "rows", 3, 1024),
        ((8, 3, 56, 64), "float16", 1, "rows", 1, 3),
        ((5000, 1), "float64", 1, "flat", 1, 1),
    ],
)
def test_the_plan_chooses_the_way(
    shape: tuple[int, ...], name: str, axis: int, form: str, stripes: int, length: int
) -> None:
    itemsize = dtype_of(name).itemsize
    strides = tuple(itemsize * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    x, out = (ArrayView(address, shape, strides, name, itemsize, 0) for address in (1 << 40, 1 << 44))
    plan = plan_broadcast(x, ArrayView(1 << 42, (shape[axis],), (itemsize,), name, itemsize, 0), out, axis)
    tiles = plan.tiles
    assert tiles is not None
    assert plan.reason == ""
    assert (tiles.by_rows, tiles.is_flat) == (form == "rows", form == "flat")
    assert (tiles.stripes, tiles.length) == (stripes, length)
    assert sum(map(tiles.blocks_of, range(stripes))) == tiles.tiles
    numbers = [
        stripe * tiles.steps[0] + block * tiles.steps[1]
        for stripe in range(stripes) for block in range(tiles.blocks_of(stripe))
    ]
    assert sorted(numbers) == list(range(tiles.tiles)), "every tile is in one stripe"
    assert tiles.vector_boxes * tiles.vector_box >= length
    assert 2 * (shared_bytes_of(tiles) + 1024) <= 227 * 1024, "two blocks on a multiprocessor"


def test_many_tiles_under_many_schedules() -> None:
    vectors = {width: placed((width,), "float32", seed=2) for width in (512, 1300, 33, 700, 2500)}
    arrays = [placed((300, 512), "float32", seed=i) for i in range(2)]
    plan = assert_combines("add", arrays[0], vectors[512], arrays[1], 1, schedules=6, parts=2)
    assert plan.tiles is not None
    assert plan.tiles.cluster == 4
    assert_combines("mul", placed((90, 1300), "float32", 12), vectors[1300], placed((90, 1300), "float32"), 1, parts=1)
    assert_combines("add", placed((700, 33), "float32"), vectors[33], placed((700, 33), "float32"), 1, schedules=3)
    assert_combines("add", placed((2500, 12), "float32"), vectors[2500], placed((2500, 12), "float32"), 0, parts=2)


def test_an_array_may_take_its_own_result_and_its_row() -> None:
    x = placed((100, 512), "float32")
    assert_combines("add", x, placed((512,), "float32", seed=1), x, 1, schedules=4)
    assert_combines("max", x, x[3], placed((100, 512), "float32", seed=1), 1)


@pytest.mark.parametrize("step", FAULTS)
def test_every_step_of_the_kernel_is_needed(step: str) -> None:
    """A run long enough to fill the ring of stages in each block."""
    arrays = placed((200, 512), "float32"), placed((512,), "float32", seed=1), placed((200, 512), "float32", seed=2)
    program = broadcast_program("add", *arrays)
    assert program.cluster == 4
    # The model lets a block end while a load that it has started for others is under way.
    assert set(program.steps) == {*FAULTS, "last barrier"}
    for seed in range(4):
        assert FAULTS[step] in program.without(step).run(schedules=1, seed=seed).rules


def test_the_stages_are_the_kernels() -> None:
    arrays = placed((200, 512), "float32"), placed((512,), "float32", seed=1), placed((200, 512), "float32", seed=2)
    program = broadcast_program("add", *arrays)
    assert program.shared_bytes == broadcast_program("add", *arrays, stages=BROADCAST_STAGES).shared_bytes
    assert program.shared_bytes < broadcast_program("add", *arrays, stages=BROADCAST_STAGES - 1).shared_bytes + 2**15
    tiles = plan_broadcast(*map(view_of, arrays), 1).tiles
    assert tiles is not None
    assert 0 <= shared_bytes_of(tiles) - program.shared_bytes <= 128


@pytest.mark.parametrize("resident", [1, 33, 66])
@pytest.mark.parametrize("columns", [256, 512, 1536, 20 * 512, 40 * 512, 100 * 512])
def test_few_clusters_are_without_work_in_the_last_round(columns: int, resident: int) -> None:
    shape, strides = (2**17, columns), (4 * columns, 4)
    x, out = (ArrayView(address, shape, strides, "float32", 4, 0) for address in (1 << 40, 1 << 44))
    tiles = plan_broadcast(x, ArrayView(1 << 50, (columns,), (4,), "float32", 4, 0), out, 1).tiles
    assert tiles is not None
    clusters = tiles.stripes * parts_of(tiles, resident)
    rounds = -(-clusters // resident)
    assert clusters >= 0.875 * rounds * resident
    assert tiles.blocks >= 8 * tiles.cluster * parts_of(tiles, resident), "many tiles for each piece of the vector"


def test_small_arrays_have_no_more_blocks_than_tiles() -> None:
    x, vector, out = placed((40, 512), "float32"), placed((512,), "float32"), placed((40, 512), "float32")
    tiles = plan_broadcast(view_of(x), view_of(vector), view_of(out), 1).tiles
    assert tiles is not None
    assert tiles.tiles <= parts_of(tiles, 66) * tiles.cluster < tiles.tiles + tiles.cluster


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)])
def test_empty_arrays_need_no_work(shape: tuple[int, ...]) -> None:
    vector = np.empty(shape[-1])
    axis = len(shape) - 1
    assert plan_broadcast(view_of(np.empty(shape)), view_of(vector), view_of(np.empty(shape)), axis).is_empty
    with pytest.raises(ArrayError, match="nothing is launched"):
        broadcast_program("add", np.empty(shape), vector, np.empty(shape))


def view(shape, strides, address=1 << 32, dtype="float32", itemsize=4) -> ArrayView:
    return ArrayView(address, shape, strides, dtype, itemsize, 0)


X, V, OUT = view((4, 8), (32, 4)), view((8,), (4,), 1 << 36), view((4, 8), (32, 4), 1 << 40)


@pytest.mark.parametrize("lost", range(3))
def test_what_was_prepared_is_not_launched_without_memory(lost: int) -> None:
    views = X, V, OUT
    launched: list[tuple[int, ...]] = []
    prepared = PreparedBroadcast(
        (lambda handle, *addresses: launched.append(addresses),), views, tuple(map(span_bytes, views))  # type: ignore[arg-type]
    )
    places = [one.address for one in views]
    prepared(0, *places)
    assert launched == [tuple(places)]
    places[lost] = 0
    with pytest.raises(ArrayError, match=f"{('x', 'vector', 'out')[lost]} has .* elements at a null address"):
        prepared(0, *places)
    assert len(launched) == 1


@pytest.mark.parametrize(
    ("x", "vector", "out", "message"),
    [
        (X, view((4,), (4,), 1 << 36), OUT, "the vector has shape"),
        (X, view((1, 8), (32, 4), 1 << 36), OUT, "the vector has shape"),
        (X, view((), (), 1 << 36), OUT, "the vector has shape"),
        (X, V, view((4, 9), (36, 4), 1 << 40), "out has shape"),
        (X, V, view((4, 8), (32, 4), 1 << 40, "int32"), "types differ"),
        (X, view((8,), (4,), 1 << 36, "int32"), OUT, "types differ"),
        (X, V, view((4, 8), (16, 4), 1 << 40), "elements of the destination overlap"),
        (X, V, view((4, 8), (32, 4), (1 << 32) + 16), "source and destination overlap"),
        (X, view((8,), (4,), (1 << 40) + 64), OUT, "the vector overlaps the result"),
        (view((4, 8), (32, 4), (1 << 32) + 2), V, OUT, "the array's float32 elements do not lie"),
        (X, view((8,), (4,), (1 << 36) + 1), OUT, "the vector's float32 elements do not lie"),
        (X, V, view((4, 8), (34, 4), 1 << 40), "the out array's float32 elements do not lie"),
    ],
)
def test_what_does_not_fit_is_refused(x: ArrayView, vector: ArrayView, out: ArrayView, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        plan_broadcast(x, vector, out, 1)


@pytest.mark.parametrize("dtype", ["?", "c8", "c16", "V4", "M8[s]"])
def test_types_without_arithmetic_are_refused(dtype: str) -> None:
    with pytest.raises(ArrayError):
        broadcast_program("add", np.zeros((4, 8), dtype), np.zeros(8, dtype), np.zeros((4, 8), dtype))


@pytest.mark.parametrize("axis", [2, -3, 1.0, None, "0", float("nan"), (0,)])
def test_what_is_no_axis_is_refused(axis: object) -> None:
    with pytest.raises(ArrayError, match="the array has axes 0 to 1"):
        axis_of(axis, 2)
    with pytest.raises(ArrayError, match="has no dimensions"):
        axis_of(axis, 0)


def test_what_has_no_schedule_is_refused() -> None:
    arrays = placed((4, 8), "float32"), placed((8,), "float32"), placed((4, 8), "float32")
    with pytest.raises(ArrayError, match="there is add, mul, min, max"):
        broadcast_program("pow", *arrays)
    with pytest.raises(ArrayError, match="read-only"):
        broadcast_program("add", arrays[0], arrays[1], np.broadcast_to(np.zeros(8, np.float32), (4, 8)))
    for wrong in ({"stages": 1}, {"parts": 0}, {"parts": 1.5}):
        with pytest.raises(ProgramError, match=next(iter(wrong))):
            broadcast_program("add", *arrays, **wrong)


def test_nans_and_infinities() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3.4e38, 1.0], np.float32)
    for operation in OPERATIONS:
        found = combine(operation, special[:, None], special)
        np.testing.assert_array_equal(found, expected_of(operation, np.repeat(special[:, None], 8, 1), special, 1))
    assert np.isnan(combine("min", special[:1], special)).all()


@pytest.mark.skipif(has_tma_device(), reason="there is a GPU here")
def test_without_a_gpu_the_call_says_so() -> None:
    for operation in OPERATIONS:
        with pytest.raises(tma.NoDeviceError):
            getattr(tma, f"broadcast_{operation}")(np.zeros((2, 4)), np.zeros(4))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_documents_itself(operation: str) -> None:
    function = getattr(tma, f"broadcast_{operation}")
    assert function.__name__ == f"broadcast_{operation}"
    assert "{" not in function.__doc__
    assert "not been run on hardware" in function.__doc__


# The kernels.


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_kernels_compile_for_hopper(operation: str, name: str) -> None:
    assert_compiled(broadcast_module("sm_90a", operation, name, 4), "multicast::cluster ")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_kernels_compile_for_blackwell(cluster: int) -> None:
    assert_compiled(
        broadcast_module("sm_100a", "add", "bfloat16", cluster), "multicast::cluster " if cluster > 1 else "bytes "
    )


@pytest.mark.parametrize("cluster", [2, 4])
def test_the_form_for_pairs_of_blocks_compiles_for_blackwell(cluster: int) -> None:
    assert_compiled(broadcast_module("sm_100a", "max", "float16", cluster, 2), "multicast::cluster.cta_group::2 ")


def assert_compiled(module: Any, load: str) -> None:
    assert set(module.signatures) == {"broadcast_elements", *(f"broadcast_{rank}d" for rank in range(2, 6))}
    assert any(
        line.strip().startswith("cp.async.bulk.tensor.1d") and load in line for line in module.ptx.splitlines()
    )
    *_, stripes, elements = module.signatures["broadcast_2d"].parameters
    assert (stripes.size, elements.size) == (_STRIPES.itemsize, _ELEMENTS.itemsize)
    for resources in module.resources.values():
        assert "spills 0 B" in str(resources)


def test_kernels_are_told_the_stripes_and_the_elements() -> None:
    x, out = placed((2100, 19), "float32", 1), placed((2100, 19), "float32", 5)
    plan = plan_broadcast(view_of(x), view_of(placed((2100,), "float32")), view_of(out), 0)
    assert plan.tiles is not None
    assert plan.rest is not None
    argument = stripes_argument(plan.tiles)
    assert (argument["stripes"], argument["by_rows"], argument["is_flat"]) == (3, 1, 0)
    assert argument["per_element"] == 16
    assert argument["blocks"] * argument["block_step"] == argument["stripe_step"]
    rest = elements_argument(plan.rest)
    assert rest["elements"] == 2100 * 3
    assert rest["extents"][:2].tolist() == [3, 2100]
    assert rest["source_strides"][:2].tolist() == [4, 80]
    assert rest["vector_strides"][:2].tolist() == [0, 4]
    assert rest["source"] == x.ctypes.data + 64
