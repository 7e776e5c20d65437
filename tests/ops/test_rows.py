"""Gathers and scatters of rows: plans, carried out on the simulator against numpy, and the kernels' code."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.errors import ArrayError, RowIndexError
from cupytma.ops.index_errors import out_of_range
from cupytma.ops.rows import _ROWS, rows_argument, rows_module, rows_size
from cupytma.ops.rows_plan import GROUP_BYTES, ROWS_PER_STAGE, STAGE_BYTES, RowsPlan, plan_rows
from cupytma.ops.simulated_rows import simulate_gather_rows, simulate_scatter_add_rows, simulate_scatter_rows
from cupytma.tensormap.arrays import ArrayView, view_of

GUARD = 64
SUMMED = ("u4", "i4", "u8", "i8", "f2", ml_dtypes.bfloat16, "f4", "f8")


def placed(rows: int, width: int, dtype, pad: int = 0, offset: int = 0, seed: int = 0):
    """A table in a larger random buffer, each row some bytes after the end of the one before; and the buffer."""
    dtype = np.dtype(dtype)
    stride = width * dtype.itemsize + pad
    generator = np.random.default_rng(seed)
    buffer = generator.integers(0, 256, rows * stride + 2 * GUARD + 256, dtype=np.uint8)
    start = -buffer.ctypes.data % 128 + GUARD + offset
    table = np.ndarray((rows, width), dtype, buffer, start, (stride, dtype.itemsize))
    table[...] = generator.integers(-8 if dtype.kind != "u" else 0, 9, (rows, width)).astype(dtype)
    return table, buffer


def plan_of(operation: str, source, destination, index, **options) -> RowsPlan:
    return plan_rows(operation, view_of(source), view_of(destination), view_of(index), **options)


def expected_in(buffer: np.ndarray, array: np.ndarray):
    """A copy of a buffer, and the same array in it."""
    copied = buffer.copy()
    return copied, np.ndarray(array.shape, array.dtype, copied, array.ctypes.data - buffer.ctypes.data, array.strides)


ROW_BYTES = (8, 16, 24, 48, 64, 128, 160, 256, 272, 320, 1024, 1040, 2048, 2304, 20000, 40064)


@st.composite
def layouts(draw: st.DrawFn, dtypes=("u1", "u2", "f4", "f8", "c16")):
    """Row layouts of which some suit bulk copies, and indices of which some are out of range."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    row_bytes = draw(st.sampled_from(ROW_BYTES))
    width = max(1, row_bytes // dtype.itemsize)
    pads = [draw(st.sampled_from([0, 0, 16, 64, dtype.itemsize])) for _ in range(2)]
    offsets = [draw(st.sampled_from([0, 0, 0, 16, dtype.itemsize])) for _ in range(2)]
    table_rows = draw(st.integers(1, 40))
    count = draw(st.integers(0, 8 if row_bytes > 10000 else 70))
    margin = draw(st.sampled_from([0, 0, 1]))
    numbers = draw(st.lists(st.integers(-margin, table_rows - 1 + margin), min_size=count, max_size=count))
    step = draw(st.sampled_from([1, 1, 2, -1]))
    index = np.repeat(np.array(numbers, draw(st.sampled_from(["i4", "i8"]))), abs(step))[::step]
    return dtype, width, pads, offsets, table_rows, index


def valid(index: np.ndarray, rows: int) -> np.ndarray:
    return (index >= 0) & (index < rows)


def run(function, arguments, mode: str, quads: bool | None, is_valid: bool) -> None:
    options = {} if quads is None else {"quads": quads}
    if mode == "raise" and not is_valid:
        with pytest.raises(RowIndexError, match="out of range"):
            function(*arguments, mode=mode, **options)
    else:
        function(*arguments, mode=mode, **options)


@given(layouts(), st.sampled_from(["raise", "clip"]), st.booleans())
@settings(max_examples=250, deadline=None)
def test_any_rows_are_gathered_exactly_and_nothing_else_is_touched(layout, mode: str, quads: bool) -> None:
    dtype, width, pads, offsets, rows, index = layout
    x, _ = placed(rows, width, dtype, pads[0], offsets[0], seed=1)
    out, buffer = placed(len(index), width, dtype, pads[1], offsets[1], seed=2)
    expected, place = expected_in(buffer, out)
    good = valid(index, rows) if mode == "raise" else np.ones(len(index), bool)
    place[good] = x[np.clip(index[good], 0, rows - 1)]
    run(simulate_gather_rows, (x, index, out), mode, quads, good.all())
    np.testing.assert_array_equal(buffer, expected)


@given(layouts(), st.sampled_from(["raise", "clip"]), st.booleans())
@settings(max_examples=250, deadline=None)
def test_any_rows_are_scattered_exactly_and_nothing_else_is_touched(layout, mode: str, quads: bool) -> None:
    dtype, width, pads, offsets, rows, index = layout
    index = np.unique(index)  # which row stays where an index repeats is not defined
    src, _ = placed(len(index), width, dtype, pads[0], offsets[0], seed=1)
    dst, buffer = placed(rows, width, dtype, pads[1], offsets[1], seed=2)
    if mode == "clip":
        index = index[valid(index, rows)] if len(index) > rows else index
        index = np.unique(np.clip(index, 0, rows - 1))
        src = src[: len(index)]
    expected, place = expected_in(buffer, dst)
    good = valid(index, rows)
    place[index[good]] = src[good]
    run(simulate_scatter_rows, (dst, index, src), mode, quads, good.all())
    np.testing.assert_array_equal(buffer, expected)


@given(layouts(SUMMED), st.sampled_from(["raise", "clip"]))
@settings(max_examples=250, deadline=None)
def test_any_rows_are_added_exactly_and_nothing_else_is_touched(layout, mode: str) -> None:
    dtype, width, pads, offsets, rows, index = layout
    size = dtype.itemsize
    pads, offsets = [-(-pad // size) * size for pad in pads], [-(-offset // size) * size for offset in offsets]
    src, _ = placed(len(index), width, dtype, pads[0], offsets[0], seed=1)
    dst, buffer = placed(rows, width, dtype, pads[1], offsets[1], seed=2)
    expected, place = expected_in(buffer, dst)
    good = valid(index, rows) if mode == "raise" else np.ones(len(index), bool)
    for row, added in zip(np.clip(index[good], 0, rows - 1), src[good], strict=True):
        place[row] += added
    run(simulate_scatter_add_rows, (dst, index, src), mode, None, good.all())
    np.testing.assert_array_equal(buffer, expected)


def test_rows_of_several_dimensions_and_of_none() -> None:
    x = np.arange(6 * 8 * 40, dtype="f4").reshape(6, 8, 40)
    index = np.array([5, 0, 5, 2])
    np.testing.assert_array_equal(simulate_gather_rows(x, index), x[index])
    np.testing.assert_array_equal(simulate_gather_rows(x[::-2], index[1:2]), x[::-2][[0]])
    np.testing.assert_array_equal(simulate_gather_rows(x[:, 0, 0], index), x[index, 0, 0])
    np.testing.assert_array_equal(simulate_gather_rows(np.broadcast_to(x[:1], (9, 8, 40)), index + 3), x[[0] * 4])


def view(shape, strides, address=1 << 32, dtype="float32", itemsize=4) -> ArrayView:
    return ArrayView(address, shape, strides, dtype, itemsize, 0)


def test_rows_go_in_groups_each_of_which_has_a_block() -> None:
    x, out = view((1 << 22, 256), (1024, 4)), view((1 << 20, 256), (1024, 4), 1 << 42)
    index = view((1 << 20,), (8,), 1 << 46, "int64", 8)
    plan = plan_rows("gather", x, out, index)
    assert plan.stages is not None
    assert plan.stages.rows_per_stage * plan.row_bytes == plan.stages.stage_bytes == GROUP_BYTES
    assert plan.items == (1 << 30) // GROUP_BYTES
    assert rows_size(plan).grid(132) == plan.items
    assert plan.reason == ""
    assert plan.verified


def test_groups_have_no_more_rows_than_there_are_nor_than_threads() -> None:
    for rows, row_bytes, expected in ((3, 256, 3), (400, 256, GROUP_BYTES // 256), (400, GROUP_BYTES + 256, 1)):
        x, out = view((4096, row_bytes // 4), (row_bytes, 4)), view((rows, row_bytes // 4), (row_bytes, 4), 1 << 42)
        plan = plan_rows("gather", x, out, view((rows,), (8,), 1 << 46, "int64", 8))
        assert plan.stages is not None
        assert (plan.stages.rows_per_stage, plan.items) == (expected, -(-rows // expected))
    x, out = view((4096, 4), (16, 4)), view((400, 4), (16, 4), 1 << 42)
    plan = plan_rows("scatter_add", out, x, view((400,), (8,), 1 << 46, "int64", 8))
    assert plan.stages is not None
    assert plan.stages.rows_per_stage == min(ROWS_PER_STAGE, GROUP_BYTES // 128)


def test_long_rows_go_in_pieces() -> None:
    x, out = view((64, 100_000), (400_000, 4)), view((3, 100_000), (400_000, 4), 1 << 42)
    index = view((3,), (8,), 1 << 46, "int64", 8)
    for operation, source, destination in (("gather", x, out), ("scatter", out, x), ("scatter_add", out, x)):
        plan = plan_rows(operation, source, destination, index)
        assert plan.stages is not None
        assert plan.stages.rows_per_stage == 1
        assert plan.stages.stage_bytes <= STAGE_BYTES
        assert plan.stages.pieces * plan.stages.piece_bytes >= plan.row_bytes
        assert (plan.stages.pieces - 1) * plan.stages.piece_bytes < plan.row_bytes


@pytest.mark.parametrize(
    ("operation", "x", "reason"),
    [
        ("gather", view((64, 256), (1024, 4), (1 << 32) + 4), "multiples of 4 B"),
        ("gather", view((64, 254), (1016, 4)), "multiples of 8 B"),
        ("gather", view((64, 256), (1028, 4)), "multiples of 4 B"),
        ("gather", view((64, 32), (128, 4)), "rows of 128 B are too short"),
        ("scatter_add", view((2**31 + 1, 32), (128, 4)), "more than 2^31 rows"),
        ("scatter_add", view((64, 32), (-128, 4)), "outside 0"),
        ("scatter_add", view((64, 32), (1 << 40, 4)), "outside 0"),
    ],
)
def test_what_bulk_copies_cannot_move_is_moved_otherwise_and_the_plan_says_why(
    operation: str, x: ArrayView, reason: str
) -> None:
    dense = view((5, x.shape[1]), (4 * x.shape[1], 4), 1 << 52)
    pair = (x, dense) if operation == "gather" else (dense, x)
    plan = plan_rows(operation, *pair, view((5,), (4,), 1 << 54, "int32", 4))
    assert plan.stages is None
    assert reason in plan.reason


@pytest.mark.parametrize(
    ("row_bytes", "stride", "whole"),
    [(256, 256, True), (2048, 4096, True), (2080, 2080, False), (272, 272, False), (256, -256, False)],
)
def test_rows_go_four_at_a_time_where_a_box_holds_them(row_bytes: int, stride: int, whole: bool) -> None:
    x = view((64, row_bytes // 4), (stride, 4))
    out = view((50, row_bytes // 4), (row_bytes, 4), 1 << 42)
    plan = plan_rows("gather", x, out, view((50,), (8,), 1 << 46, "int64", 8), quads=True)
    assert plan.quads == whole
    assert plan.verified != whole
    assert (plan.tensor_map is not None) == whole


@pytest.mark.parametrize(
    ("operation", "source", "destination", "index", "message"),
    [
        ("gather", np.zeros((4, 8)), np.zeros((3, 8)), np.zeros(4, "i8"), "the shapes do not fit"),
        ("gather", np.zeros((4, 8)), np.zeros((4, 7)), np.zeros(4, "i8"), "the shapes do not fit"),
        ("scatter", np.zeros((4, 8)), np.zeros((3, 8)), np.zeros(3, "i8"), "the shapes do not fit"),
        ("gather", np.zeros((4, 8)), np.zeros((4, 8), "f4"), np.zeros(4, "i8"), "the types differ"),
        ("gather", np.zeros((4, 8)), np.zeros((4, 8)), np.zeros(4, "i2"), "convert it to int32 or int64"),
        ("gather", np.zeros((4, 8)), np.zeros((4, 8)), np.zeros(4), "convert it to int32 or int64"),
        ("gather", np.zeros((4, 8)), np.zeros((4, 8)), np.zeros((2, 2), "i8"), "reshape"),
        ("gather", np.zeros((8, 4)).T, np.zeros((4, 8)), np.zeros(4, "i8"), "source's rows are not contiguous"),
        ("gather", np.zeros((4, 8)), np.zeros((8, 4)).T, np.zeros(4, "i8"), "destination's rows are not contiguous"),
        ("gather", np.zeros(()), np.zeros(4), np.zeros(4, "i8"), "the source has no dimensions"),
        ("gather", np.zeros((0, 8)), np.zeros((4, 8)), np.zeros(4, "i8"), "has no rows"),
        ("scatter", np.zeros((4, 8)), np.broadcast_to(np.zeros(8), (9, 8)), np.zeros(4, "i8"), "read-only"),
        ("scatter_add", np.zeros((4, 8), "u1"), np.zeros((9, 8), "u1"), np.zeros(4, "i8"), "no reduction"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(operation: str, source, destination, index, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        plan_of(operation, source, destination, index)


def test_overlap_is_refused() -> None:
    memory, numbers = np.zeros((16, 8)), np.zeros(64, "i8")
    with pytest.raises(ArrayError, match="the source and the destination overlap"):
        plan_of("gather", memory[:9], memory[8:12], numbers[:4])
    with pytest.raises(ArrayError, match="the index and the destination overlap"):
        plan_of("gather", memory, numbers[:32].view("f8").reshape(4, 8), numbers[30:34])
    with pytest.raises(ArrayError, match="elements of the destination overlap"):
        plan_of("scatter", memory[:4], np.lib.stride_tricks.as_strided(memory[8:], (4, 8), (32, 8)), numbers[:4])
    plan_of("gather", memory[:8], memory[8:12], numbers[:4])
    with pytest.raises(ArrayError, match="mode = 'wrap'"):
        simulate_gather_rows(memory, numbers, mode="wrap")


@pytest.mark.parametrize("shape", [(0, 8), (5, 0), (0, 0)])
def test_empty_arrays_need_no_work(shape: tuple[int, int]) -> None:
    index = np.zeros(shape[0], "i8")
    plan = plan_of("gather", np.zeros((3, shape[1])), np.zeros(shape), index)
    assert plan.is_empty
    assert simulate_gather_rows(np.zeros((3, shape[1])), index).shape == shape


def test_an_index_out_of_range_is_named() -> None:
    with pytest.raises(IndexError, match=r"gather_rows: index\[2\] = -7 .* 5 rows"):
        simulate_gather_rows(np.zeros((5, 64)), np.array([0, 4, -7, 9]))
    assert "index[3] = -1 " in str(out_of_range("scatter_rows", 4, 3, 2**64 - 1))
    assert issubclass(RowIndexError, tma.CupytmaError)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
def test_kernels_compile(target: str) -> None:
    module = rows_module(target, None)
    words = {f"{operation}_words_{size}" for operation in ("gather", "scatter") for size in (1, 2, 4, 8, 16)}
    assert set(module.signatures) == {"gather_rows", "scatter_rows", *words}
    assert ("tile::gather4" in module.ptx) == (target != "sm_90a")
    assert ("tile::scatter4" in module.ptx) == (target == "sm_100a")
    assert {signature.parameters[0].size for signature in module.signatures.values()} == {_ROWS.itemsize}


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("data_type", [tma.DataType.BFLOAT16, tma.DataType.FLOAT32, tma.DataType.UINT64])
def test_kernels_that_add_compile(target: str, data_type: tma.DataType) -> None:
    module = rows_module(target, data_type)
    assert set(module.signatures) == {"scatter_add_rows", "scatter_add_words"}
    assert "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add" in module.ptx


def test_kernels_are_told_of_the_plan() -> None:
    x, out, index = np.zeros((40, 256), "f4"), np.zeros((20, 256), "f4"), np.zeros(20, "i4")
    plan = plan_of("gather", x, out, index)
    argument = rows_argument(plan, True, (1, 2, 3))
    assert [int(argument[name]) for name in ("source", "destination", "index")] == [1, 2, 3]
    assert (argument["rows"], argument["table_rows"], argument["row_bytes"], argument["clips"]) == (20, 40, 1024, 1)
    assert (argument["words"], argument["words_per_row"], argument["index_bytes"]) == (20 * 64, 64, 4)


def described(shape: tuple[int, ...], dtype: str, address: int, device: int = 0) -> ArrayView:
    """A dense array that does not exist."""
    itemsize = np.dtype(dtype).itemsize
    strides = tuple(itemsize * int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))
    return ArrayView(address, shape, strides, dtype, itemsize, device)


@pytest.mark.parametrize("operation", ["gather", "scatter"])
@pytest.mark.parametrize("count", [2**24, 2**25, 2**40])
def test_grids_have_no_more_threads_than_kernels_can_count(operation: str, count: int) -> None:
    table, dense = described((1000, 257), "uint8", 1 << 40), described((count, 257), "uint8", 1 << 50)
    source, destination = (table, dense) if operation == "gather" else (dense, replace(table, shape=(1 << 30, 257)))
    size = rows_size(plan_rows(operation, source, destination, described((count,), "int64", 1 << 45)))
    assert 2**31 < size.grid(132) * size.threads < 2**32


@pytest.mark.parametrize("width", [2**31 + 512, 2**32 + 512, 2**33])
def test_rows_of_more_elements_than_coordinates_reach_are_added_otherwise(width: int) -> None:
    views = described((2, width), "float32", 1 << 40), described((2, width), "float32", 1 << 50)
    plan = plan_rows("scatter_add", *views, described((2,), "int64", 1 << 56))
    assert (plan.stages, plan.tensor_map) == (None, None)
    assert "2^31 elements" in plan.reason
