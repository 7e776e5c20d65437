"""Columns of convolutions and their sums: plans, carried out on the simulator against numpy, and the kernels' code."""

from __future__ import annotations

import numpy as np
import pytest
from convolution_reference import columns_of, folded
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cupytma.errors import ArrayError
from cupytma.ops.column_plan import ColumnTilePlan, ColumnWordPlan, plan_im2col
from cupytma.ops.convolution import convolution, spatial_axes
from cupytma.ops.fold_plan import FoldTilePlan, FoldWordPlan, plan_col2im
from cupytma.ops.simulated_columns import simulate_col2im, simulate_im2col
from cupytma.tensormap.arrays import ArrayView, view_of

GUARD = 64
ADDED = ["f2", "f4", "f8", "i4", "u4", "i8", "u8", "c8", "c16"]


def placed(shape: tuple[int, ...], dtype: str, pads: tuple[int, ...] = (), offset: int = 0) -> np.ndarray:
    """A random array inside a larger buffer (its base), dimensions some bytes longer than need be, the last first."""
    itemsize = np.dtype(dtype).itemsize
    strides, step = [], itemsize
    for i, extent in enumerate(reversed(shape)):
        strides.insert(0, step)
        step = step * extent + (pads[i] if i < len(pads) else 0)
    generator = np.random.default_rng(sum(shape) + offset)
    buffer = generator.integers(0, 256, step + 2 * GUARD + 64, dtype=np.uint8)
    return np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % 64 + GUARD + offset, tuple(strides))


def within(array: np.ndarray, buffer: np.ndarray, dtype: str | None = None) -> np.ndarray:
    """The place of an array in a copy of its buffer."""
    offset = array.ctypes.data - array.base.ctypes.data
    return np.ndarray(array.shape, dtype or array.dtype, buffer, offset, array.strides)


def bits(array: np.ndarray) -> np.ndarray:
    """The same elements as unsigned integers, so that NaNs compare equal; 16 bytes as two."""
    size = array.dtype.itemsize
    return np.ascontiguousarray(array).view(f"u{min(size, 8)}")


def numbers(array: np.ndarray) -> None:
    """Small whole numbers in every element: sums that are exact in every order."""
    array[...] = np.random.default_rng(array.size).integers(0, 4, array.shape)


def geometries(data: st.DataObject, spatial: int, most: int):
    def draw(low: int, high: int):
        return tuple(data.draw(st.integers(low, high)) for _ in range(spatial))

    kernel, stride, dilation = draw(1, 3), draw(1, 3), draw(1, 2)
    extents, before, after = draw(1, most), draw(0, 3), draw(0, 3)
    padding = tuple(zip(before, after, strict=True))
    fits = (
        n + b + a > d * (k - 1) for n, b, a, k, d in zip(extents, before, after, kernel, dilation, strict=True)
    )
    assume(all(fits))
    return extents, kernel, stride, padding, dilation


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_columns_of_any_array_are_exact_and_nothing_else_is_touched(data: st.DataObject) -> None:
    spatial = data.draw(st.integers(1, 3))
    extents, *operands = geometries(data, spatial, {1: 40, 2: 9, 3: 5}[spatial])
    dtype = data.draw(st.sampled_from(["u1", "f2", "f4", "f8", "c16"]))
    size = np.dtype(dtype).itemsize
    channels = data.draw(st.sampled_from([1, 3, 16 // size or 1, 64 // size, 144 // size, 560 // size]))
    offsets, pads = st.sampled_from([0, 0, 0, 16, size]), st.sampled_from([0, 0, 16, size])
    shape = (data.draw(st.integers(1, 3)), *extents, channels)
    x = placed(shape, dtype, (data.draw(pads), data.draw(pads)), data.draw(offsets))
    expected = columns_of(x, *operands)
    out = placed(expected.shape, dtype, (data.draw(pads),), data.draw(offsets))
    buffer = out.base.copy()
    within(out, buffer)[...] = 0
    simulate_im2col(x, out, *operands)
    np.testing.assert_array_equal(bits(out), bits(expected))
    out[...] = 0
    np.testing.assert_array_equal(out.base, buffer)


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_columns_are_added_up_exactly_and_nothing_else_is_touched(data: st.DataObject) -> None:
    spatial = data.draw(st.integers(1, 3))
    extents, *operands = geometries(data, spatial, {1: 40, 2: 9, 3: 5}[spatial])
    dtype = data.draw(st.sampled_from([*ADDED, "i1", "u2"]))
    size = np.dtype(dtype).itemsize
    channels = data.draw(st.sampled_from([1, 3, 16 // size or 1, 64 // size, 560 // size]))
    offsets, pads = st.sampled_from([0, 0, 16, size]), st.sampled_from([0, 0, 16, size])
    shape = (data.draw(st.integers(1, 3)), *extents, channels)
    found = convolution(shape, *operands)
    columns = placed(found.columns, dtype, (data.draw(pads),), data.draw(offsets))
    numbers(columns)
    out = placed(shape, dtype, (data.draw(pads), data.draw(pads)), data.draw(offsets))
    buffer = out.base.copy()
    within(out, buffer)[...] = 0
    simulate_col2im(columns, out, *operands)
    np.testing.assert_array_equal(out, folded(columns, shape, *operands))
    out[...] = 0
    np.testing.assert_array_equal(out.base, buffer)


@pytest.mark.parametrize(
    ("shape", "operands", "dtype"),
    [
        ((3, 30, 29, 64), ((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), "f2"),
        ((2, 33, 31, 280), ((3, 2), (2, 3), ((2, 1), (0, 3)), (2, 1)), "f2"),
        ((2, 400, 24), ((5,), (3,), ((2, 7),), (4,)), "f4"),
        ((2, 9, 10, 11, 36), ((2, 3, 2), (1, 2, 1), ((1, 0), (2, 2), (0, 1)), (2, 1, 3)), "f4"),
        ((1, 60, 60, 8), ((7, 7), (2, 2), ((3, 3), (3, 3)), (1, 1)), "f2"),
        ((1, 10, 10, 3000), ((2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1)), "f8"),
        ((1, 4, 1900, 16), ((1, 3), (40, 8), ((0, 0), (9, 9)), (1, 9)), "f4"),
    ],
)
def test_many_tiles_cover_every_window(shape, operands, dtype: str) -> None:
    x = placed(shape, dtype)
    expected = columns_of(x, *operands)
    out = placed(expected.shape, dtype)
    plan = plan_im2col(view_of(x), view_of(out), convolution(shape, *operands))
    assert isinstance(plan, ColumnTilePlan)
    assert plan.tiles > 8
    simulate_im2col(x, out, *operands)
    np.testing.assert_array_equal(bits(out), bits(expected))
    numbers(out)
    assert isinstance(plan_col2im(view_of(out), view_of(x), convolution(shape, *operands)), FoldTilePlan)
    simulate_col2im(out, x, *operands)
    np.testing.assert_array_equal(x, folded(out, shape, *operands))


def test_the_adjoint_is_one() -> None:
    x, operands = placed((2, 7, 6, 8), "f8"), ((3, 2), (2, 1), (1, 1), (1, 2))
    numbers(x)
    out = placed(convolution(x.shape, *operands).columns, "f8")
    simulate_im2col(x, out, *operands)
    columns, back = placed(out.shape, "f8", (), 16), placed(x.shape, "f8", (), 32)
    numbers(columns)
    simulate_col2im(columns, back, *operands)
    assert np.vdot(out, columns) == np.vdot(x, back)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_layouts_name_the_same_columns(layout: str) -> None:
    last = placed((2, 5, 6, 16), "f2")
    x = last if layout == "NHWC" else last.transpose(0, 3, 1, 2).copy()
    out = placed((2 * 5 * 6, 9 * 16), "f2")
    simulate_im2col(x, out, 3, padding=1, layout=layout)
    expected = columns_of(last, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    np.testing.assert_array_equal(bits(out), bits(expected))
    numbers(out)
    back = np.empty_like(x)
    simulate_col2im(out, back, 3, padding=1, layout=layout)
    added = folded(out, last.shape, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    np.testing.assert_array_equal(back, added if layout == "NHWC" else added.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "NWC", "NCW", "NDHWC", "NCDHW"])
def test_a_layout_says_where_batch_and_channels_are(layout: str) -> None:
    axes = spatial_axes(layout, len(layout))
    assert [layout[axis] for axis in axes] == ["N", *(name for name in layout if name in "DHW"), "C"]


def dense(shape: tuple[int, ...], itemsize: int = 2, address: int = 1 << 40, dtype: str = "float16") -> ArrayView:
    strides = tuple(itemsize * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return ArrayView(address, shape, strides, dtype, itemsize, 0)


@pytest.mark.parametrize(
    ("shape", "operands", "why"),
    [
        ((32, 56, 56, 64), (3, 1, 1), ""),
        ((32, 224, 224, 3), (7, 2, 3), "6 B, which is no multiple"),
        ((8, 56, 56, 64), (3, 9, 1), "stride 9 exceeds"),
        ((8, 56, 56, 64), (3, 8, 1), ""),
        ((8, 20, 20, 20, 64), (3, 1, 16), ""),
        ((8, 20, 20, 20, 64), (3, 1, 17), "lower corner of -17"),
        ((8, 40, 40, 40, 64), (17, 1, 0), ""),
        ((8, 40, 40, 40, 64), (18, 1, 0), "upper corner of -17"),
        ((8, 40, 40, 40, 64), (3, 1, 16, 16), "32 pixels from the first exceeds"),
        ((8, 300, 300, 64), (3, 1, 128, 127), ""),
        ((8, 300, 300, 64), (3, 1, 129, 127), "lower corner of -129"),
        ((8, 300, 300, 64), (3, 1, 128, 128), "256 pixels from the first exceeds"),
        ((8, 70000, 64), (3, 1, 32768, 32767), ""),
        ((8, 70000, 64), (3, 1, 32769, 32767), "lower corner of -32769"),
    ],
)
def test_im2col_maps_take_what_their_corners_and_offsets_hold(shape, operands, why: str) -> None:
    found = convolution(shape, *(*operands, *(1, 0, 1)[len(operands) - 1 :]))
    plan = plan_im2col(dense(shape), dense(found.columns, address=1 << 44), found)
    assert isinstance(plan, ColumnWordPlan if why else ColumnTilePlan)
    assert why in getattr(plan, "reason", "")


def test_the_plan_of_the_documentation_moves_whole_lines() -> None:
    found = convolution((32, 56, 56, 64), 3, 1, 1, 1)
    plan = plan_im2col(dense(found.shape), dense(found.columns, address=1 << 44), found)
    assert isinstance(plan, ColumnTilePlan)
    assert plan.channel_words * 8 == 128
    assert plan.source.box_bytes * plan.taps == 16 * 1024


def test_what_no_reduction_adds_is_added_otherwise() -> None:
    found = convolution((2, 8, 8, 64), 3, 1, 1, 1)
    kinds = {"float16": FoldTilePlan, "int16": FoldWordPlan}
    for dtype, kind in kinds.items():
        plan = plan_col2im(dense(found.columns, dtype=dtype), dense(found.shape, address=1 << 44, dtype=dtype), found)
        assert isinstance(plan, kind)
    with pytest.raises(ArrayError, match="columns of bool are not added up"):
        plan_col2im(view_of(np.zeros(found.columns, bool)), view_of(np.zeros(found.shape, bool)), found)


@pytest.mark.parametrize(
    ("shape", "operands", "message"),
    [
        ((2, 5, 5, 8), (7, 1, 0, 1), "no window fits spatial dimension 0: a kernel of 7"),
        ((2, 5, 5, 8), (3, 0, 0, 1), "stride = 0: 0 is outside 1"),
        ((2, 5, 5, 8), ((3, 3, 3), 1, 0, 1), "has 3 entries; there are 2 spatial dimensions"),
        ((2, 5, 5, 8), (None, 1, 0, 1), "kernel_size = None: expected an integer"),
        ((2, 5, 5, 8), (3.5, 1, 0, 1), "expected an integer"),
        ((2, 5, 5, 8), (3, 1, -1, 1), "-1 is outside 0"),
        ((2, 5, 5, 8), (3, 1, ((1, 1),), 1), "has 1 entry"),
        ((2, 5, 5, 8), (3, 1, ((1, 1), (1,)), 1), "has 1 entry"),
        ((2, 5, 5, 8), (3, 1, (1, "a"), 1), "expected an integer"),
        ((2, 5, 5, 8), (2**40, 1, 0, 1), "is outside 1"),
    ],
)
def test_impossible_windows_are_refused(shape, operands, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        convolution(shape, *operands)


@pytest.mark.parametrize(("layout", "rank"), [("NHWC", 2), ("NHWC", 6), ("NWC", 4), ("CHWN", 4), (None, 4)])
def test_impossible_layouts_are_refused(layout: object, rank: int) -> None:
    with pytest.raises(ArrayError, match=r"layout = |the array has [26] dimensions"):
        spatial_axes(layout, rank)


def test_arrays_that_do_not_fit_are_refused() -> None:
    x = np.zeros((1, 4, 4, 8), "f4")
    with pytest.raises(ArrayError, match=r"need \(4, 72\)"):
        simulate_im2col(x, np.zeros((4, 71), "f4"), 3)
    with pytest.raises(ArrayError, match="types differ"):
        simulate_im2col(x, np.zeros((4, 72), "f2"), 3)
    with pytest.raises(ArrayError, match="overlap"):
        simulate_im2col(x, np.lib.stride_tricks.as_strided(np.zeros(72, "f4"), (4, 72), (0, 4)), 3)


@pytest.mark.parametrize("shape", [(0, 4, 4, 8), (2, 4, 4, 0), (2, 0, 4, 8)])
def test_empty_arrays_give_what_padding_gives(shape: tuple[int, ...]) -> None:
    x, found = np.zeros(shape, "f4"), convolution(shape, 3, 1, 2, 1)
    out = np.ones(found.columns, "f4")
    simulate_im2col(x, out, 3, padding=2)
    assert not out.any()
    back = np.ones(shape, "f4")
    assert not simulate_col2im(np.ones(found.columns, "f4"), back, 3, padding=2).any()


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_kernels_compile_and_take_what_they_are_given(target: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    from cupytma.ops import convolution_columns as columns
    from cupytma.ops.paired import kernels

    options = {"STAGES": columns.STAGES, "READING": columns.READING}
    gathered = kernels("im2col.cu", target, **options).signatures
    assert set(gathered) == {"im2col_1d", "im2col_2d", "im2col_3d", "im2col_words"}
    added = kernels("col2im.cu", target, **options).signatures
    types = (*(f"uint{size}" for size in (8, 16, 32, 64)), "float16", "bfloat16", "float32", "float64")
    assert set(added) == {f"col2im_{name}" for name in ("1d", "2d", "3d", *types)}
    for signature, dtype in (
        (gathered["im2col_2d"], columns._COLUMN_TILING), (gathered["im2col_words"], columns._COLUMN_WORDS),
        (added["col2im_2d"], columns._FOLD_TILING), (added["col2im_float32"], columns._FOLD_WORDS),
    ):
        assert signature.parameters[2].size == dtype.itemsize
