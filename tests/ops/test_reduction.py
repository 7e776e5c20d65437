"""Reductions: plans, carried out on the simulator against numpy, and the kernels' code."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import plan_reduction, simulate_reduction
from cupytma.ops.reduction import reduction_module
from cupytma.ops.reduction_plan import element_type
from cupytma.ptx.reductions import REDUCTIONS
from cupytma.tensormap.arrays import ArrayView, view_of

INTEGERS = ("u4", "i4", "u8", "i8")
SMALL = ("f2", ml_dtypes.bfloat16)
# By what numpy calls them; of floats the values are such that every sum is exact.
TRUTH = {
    "add": (np.add, (*INTEGERS, *SMALL, "f4", "f8")),
    "min": (np.minimum, (*INTEGERS, *SMALL)),
    "max": (np.maximum, (*INTEGERS, *SMALL)),
    "and": (np.bitwise_and, INTEGERS),
    "or": (np.bitwise_or, INTEGERS),
    "xor": (np.bitwise_xor, INTEGERS),
    "inc": (lambda old, limit: np.where(old >= limit, 0, old + 1).astype("u4"), ("u4",)),
    "dec": (lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1).astype("u4"), ("u4",)),
}
CASES = [(operation, dtype) for operation, (_, dtypes) in TRUTH.items() for dtype in dtypes]
GUARD = 64


def placed(shape, dtype, padding=0, offset=0, seed=0) -> tuple[np.ndarray, np.ndarray]:
    """An array of random numbers in a larger buffer, rows some elements longer than they need be; and the buffer."""
    dtype = np.dtype(dtype)
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent + (padding * dtype.itemsize if len(strides) == 1 else 0)
    generator = np.random.default_rng(seed)
    buffer = generator.integers(0, 256, step + 2 * GUARD + 64 + offset, dtype=np.uint8)
    array = np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % 64 + GUARD + offset, tuple(strides))
    if dtype.kind in "iu":
        array[...] = generator.integers(0, 9 if dtype == "u4" else 2**31, shape).astype(dtype)
    else:
        array[...] = generator.integers(-8, 9, shape).astype(dtype)
    return array, buffer


def assert_reduces(operation: str, destination: np.ndarray, source: np.ndarray, buffer: np.ndarray) -> None:
    """A simulated reduction gives numpy's result and changes nothing else of the buffer."""
    expected = buffer.copy()
    offset = destination.ctypes.data - buffer.ctypes.data
    place = np.ndarray(destination.shape, destination.dtype, expected, offset, destination.strides)
    slices = source.reshape(-1, *destination.shape) if source.size else []
    for part in slices:
        place[...] = TRUTH[operation][0](place, part)
    before = buffer.copy()
    for atomic in (False, True):
        buffer[...] = before
        simulate_reduction(operation, destination, source, atomic=atomic)
        np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize(("operation", "dtype"), CASES)
@pytest.mark.parametrize("shape", [(4099,), (37, 83), (5, 64, 64)])
def test_every_reduction_of_every_type(operation: str, dtype: str, shape: tuple[int, ...]) -> None:
    destination, buffer = placed(shape, dtype, seed=1)
    source, _ = placed(shape, dtype, seed=2)
    assert_reduces(operation, destination, source, buffer)


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_any_pair_of_strided_arrays_is_reduced_exactly_and_nothing_else_is_touched(data: st.DataObject) -> None:
    operation, dtype = data.draw(st.sampled_from(CASES))
    rank = data.draw(st.integers(0, 5))
    extents = st.sampled_from([1, 1, 2, 3, 4, 5, 8, 17, 33] if rank > 3 else [1, 2, 7, 16, 31, 64, 65, 130])
    shape = tuple(data.draw(extents) for _ in range(rank))
    leads = [(), (), (1,), (3,), (2, 3)]
    lead = data.draw(st.sampled_from(leads[:-1] if operation in ("inc", "dec") else leads))  # in order along one alone
    size = np.dtype(dtype).itemsize
    paddings, offsets = st.sampled_from([0, 0, 1, 3, 8, 16]), st.sampled_from([0, 16, size])
    source, _ = placed((*lead, *shape), dtype, data.draw(paddings), data.draw(offsets), seed=1)
    destination, buffer = placed(shape, dtype, data.draw(paddings), data.draw(offsets), seed=2)
    assert_reduces(operation, destination, source, buffer)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_transposed_and_flipped_arrays_and_broadcast_sources(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.sampled_from([1, 2, 4, 5, 16])) for _ in range(rank))
    dtype = data.draw(st.sampled_from(["f2", "f4", "f8", "i4"]))
    source, _ = placed(shape, dtype, seed=1)
    source = source.transpose(data.draw(st.permutations(range(rank))))
    source = source[tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in range(rank))]
    destination, buffer = placed(source.shape, dtype, seed=2)
    if data.draw(st.booleans()):
        source = np.broadcast_to(source, (3, *source.shape))
    assert_reduces("add", destination, source, buffer)


@pytest.mark.parametrize("width", range(1, 40))
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_rows_that_end_inside_a_16_byte_unit_do_not_spill(width: int, dtype: str) -> None:
    source, _ = placed((4, 9, width), dtype, 80 - width, seed=1)
    destination, buffer = placed((9, width), dtype, 96 - width, 16, seed=2)
    plan = plan_reduction("add", view_of(source), view_of(destination), atomic=True)
    assert (plan.tiles is not None) == (width * source.itemsize >= 16)
    assert_reduces("add", destination, source, buffer)


def test_many_tiles_accumulate_in_one_place() -> None:
    source, _ = placed((6, 96, 160), "f4", seed=1)
    destination, buffer = placed((96, 160), "f4", seed=2)
    plan = plan_reduction("add", view_of(source), view_of(destination), atomic=True)
    assert plan.tiles is not None
    assert plan.rest is None
    assert plan.tiles.box_dim == (256, 1, 4)
    assert plan.tiles.counts[:2] == (1, 6), "the tiles of one place follow one another"
    assert_reduces("add", destination, source, buffer)
    bias, buffer = placed((64,), "f4", seed=3)
    rows, _ = placed((1000, 64), "f4", seed=4)
    plan = plan_reduction("add", view_of(rows), view_of(bias))
    assert plan.tiles is not None
    assert plan.tiles.source.box_bytes >= 4096
    assert_reduces("add", bias, rows, buffer)


@pytest.mark.parametrize(
    ("shape", "parts", "atomic", "owned"),
    [
        ((1 << 20,), 1, False, True), ((1 << 20,), 1, True, False), ((1 << 20,), 1000, False, True),
        ((64,), 1, False, True), ((64,), 8, False, True), ((64,), 1000, False, False),
    ],
)  # fmt: skip
def test_elements_have_threads_of_their_own_where_these_are_enough(
    shape: tuple[int, ...], parts: int, atomic: bool, owned: bool
) -> None:
    size = 4 * shape[0]
    source = ArrayView(1 << 32, (parts, *shape), (size, 4), "float32", 4, 0)
    plan = plan_reduction("add", source, ArrayView(1 << 45, shape, (4,), "float32", 4, 0), atomic)
    assert (plan.tiles is None) == owned
    assert ("one thread's" in plan.reason) == owned


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (0, 2), (2,), (1, 2), (0, 1, 2)])
def test_dimensions_of_stride_0_are_accumulated(axes: tuple[int, ...]) -> None:
    shape = (3, 5, 48)
    source, _ = placed(shape, "f4", seed=1)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    destination, buffer = placed(kept, "f4", seed=2)
    expected = destination + source.sum(axis=axes, keepdims=True)
    strides = tuple(0 if axis in axes else stride for axis, stride in enumerate(destination.strides))
    simulate_reduction("add", as_strided(destination, shape, strides), source)
    np.testing.assert_array_equal(destination, expected)
    del buffer


def test_accumulated_dimensions_are_walked_from_either_end() -> None:
    source, _ = placed((4, 6, 40), "f4", seed=1)
    destination, buffer = placed((40,), "f4", seed=2)
    assert_reduces("add", destination, source[::-1, ::-2], buffer)


def test_an_array_may_be_reduced_into_itself() -> None:
    x, buffer = placed((40, 70), "f4", seed=1)
    assert_reduces("add", x, x.copy(), buffer)
    doubled = 2 * x
    simulate_reduction("add", x, x)
    np.testing.assert_array_equal(x, doubled)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_empty_arrays_need_no_work(shape: tuple[int, ...]) -> None:
    destination = np.ones(shape[1:] if shape == (0, 5) else shape)
    assert plan_reduction("add", view_of(np.empty(shape)), view_of(destination)).is_empty
    simulate_reduction("add", destination, np.empty(shape))
    assert (destination == 1).all()


def view(shape, strides, address=1 << 32, dtype="float32", itemsize=4) -> ArrayView:
    return ArrayView(address, shape, strides, dtype, itemsize, 0)


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        (view((4,), (4,)), view((5,), (4,), 1 << 40), "shapes differ"),
        (view((5,), (4,)), view((3, 5), (20, 4), 1 << 40), "shapes differ"),
        (view((4,), (4,)), view((4,), (4,), 1 << 40, "int32"), "types differ"),
        (view((4, 4), (16, 4)), view((4, 4), (12, 4), 1 << 40), "elements of the destination overlap"),
        (view((2, 4, 4), (64, 16, 4)), view((4, 4), (12, 4), 1 << 40), "elements of the destination overlap"),
        (view((64,), (4,)), view((64,), (4,), (1 << 32) + 16), "source and destination overlap"),
        (view((4, 64), (256, 4)), view((64,), (4,)), "all of the source goes into the same"),
        (view((64,), (4,), 2 + (1 << 32)), view((64,), (4,), 1 << 40), "the source's float32 elements do not lie"),
        (view((8,), (4,)), view((8,), (6,), 1 << 40), "the destination's float32 elements do not lie"),
    ],
)
def test_reductions_without_one_right_answer_are_refused(
    source: ArrayView, destination: ArrayView, message: str
) -> None:
    with pytest.raises(ArrayError, match=message):
        plan_reduction("add", source, destination)


@pytest.mark.parametrize(
    ("operation", "dtype", "message"),
    [
        ("min", "f4", "min exists for u32"),
        ("and", "f4", "f32 has add"),
        ("inc", "i4", "inc exists for u32"),
        ("add", "u1", "no reduction"),
        ("add", "i2", "no reduction"),
        ("add", "?", "no reduction"),
        ("add", "c8", "no reduction"),
        ("mul", "f4", "'mul' is not supported"),
    ],
)
def test_what_the_unit_cannot_reduce_is_refused(operation: str, dtype: str, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        simulate_reduction(operation, np.zeros(8, dtype), np.zeros(8, dtype))


def test_read_only_destinations_are_refused() -> None:
    with pytest.raises(ArrayError, match="read-only"):
        simulate_reduction("add", np.broadcast_to(np.zeros(8), (3, 8)), np.ones((3, 8)))


@pytest.mark.parametrize("dtype", ["f2", ml_dtypes.bfloat16, "f4"])
def test_tails_have_the_arithmetic_of_tiles(dtype: str) -> None:
    """The same bits whether a tensor reduction or an ordinary instruction makes them, NaNs and denormals included."""
    size, kind = np.dtype(dtype).itemsize, f"u{np.dtype(dtype).itemsize}"
    generator = np.random.default_rng(0)
    old, new = generator.integers(0, 2 ** (8 * size), (2, 4096 + 1)).astype(kind)
    whole = old[:-1].copy().view(dtype)
    simulate_reduction("add", whole, new[:-1].view(dtype))
    apart = np.zeros((4097, 3), kind)  # elements lie apart, and no tensor map moves them
    apart[:, 0] = old
    simulate_reduction("add", apart[:, 0].view(dtype), new.view(dtype))
    np.testing.assert_array_equal(apart[:-1, 0], whole.view(kind))
    assert not apart[:, 1:].any()


TARGETS = ("sm_90a", "sm_100a")
ELEMENTS = sorted({(operation, element_type(operation, np.dtype(dtype).name)) for operation, dtype in CASES})


@pytest.mark.parametrize(("operation", "data_type"), ELEMENTS)
def test_kernels_compile_for_hopper(operation: str, data_type: tma.DataType) -> None:
    assert_compiled(reduction_module("sm_90a", operation, data_type), operation)


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_kernels_compile_for_blackwell(operation: str) -> None:
    data_type = next(data_type for name, data_type in ELEMENTS if name == operation)
    assert_compiled(reduction_module("sm_100a", operation, data_type), operation)


def assert_compiled(module, operation: str) -> None:
    kinds = ("tile", "vector", "scalar")
    names = {f"{kind}_reduce_{rank}d" for kind in kinds for rank in range(1, 6)}
    assert set(module.signatures) == {"element_reduce", *names}
    for rank in range(1, 6):
        assert f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}" in module.ptx


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("extent", [2**31 + 1, 2**32 + 1])
def test_more_parts_than_coordinates_reach_are_reduced_otherwise(extent: int, atomic: bool) -> None:
    source = ArrayView(1 << 40, (extent, 300), (0, 4), "float32", 4, 0)
    plan = plan_reduction("add", source, ArrayView(1 << 50, (300,), (4,), "float32", 4, 0), atomic)
    assert plan.tiles is None
    assert "2^31" in plan.reason


@pytest.mark.parametrize("operation", ["inc", "dec"])
def test_parts_along_several_dimensions_come_in_the_order_in_which_they_lie(operation: str) -> None:
    source, _ = placed((4, 5, 5), "u4", seed=1)
    source[...] = np.arange(source.size).reshape(source.shape) % 7
    destination, buffer = placed((5,), "u4", seed=2)
    assert_reduces(operation, destination, source[:, :3], buffer)
