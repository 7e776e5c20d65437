"""The windows of convolutions as rows of a matrix, and their adjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.limits import TILE_ALIGNMENT, WARP_THREADS
from cupytma.ops.array_copy import empty
from cupytma.ops.column_plan import ColumnTilePlan, ColumnWordPlan, plan_im2col
from cupytma.ops.convolution import Convolution, convolution, spatial_axes
from cupytma.ops.filling import FillPlan, fill_launch, plan_fill
from cupytma.ops.fold_plan import FoldTilePlan, FoldWordPlan, plan_col2im
from cupytma.ops.launch_size import LaunchSize
from cupytma.ops.layout import permuted_view
from cupytma.ops.paired import carry_out, kernels, spatial
from cupytma.ops.permutation import permute
from cupytma.ops.prepared import Address
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.runtime.plan import Plan
from cupytma.tensormap.arrays import ArrayView, view_of

# Tiles in a block, those whose stores may still read them while others are loaded, and blocks of a multiprocessor.
STAGES = 6
READING = 2
BLOCKS_PER_MULTIPROCESSOR = 2
_WORD_THREADS = 256
_WORD_BLOCKS_PER_MULTIPROCESSOR = 8

ColumnPart = ColumnTilePlan | ColumnWordPlan | FoldTilePlan | FoldWordPlan | FillPlan
_COLUMN_TILING = np.dtype(
    [
        ("origin", "i4", 3), ("stride", "i4", 3), ("dilation", "u4", 3), ("kernel", "u4", 3), ("outputs", "u4", 3),
        ("taps", "u4"), ("tile_taps", "u4"), ("tap_count", "u4"), ("channel_words", "u4"), ("channel_count", "u4"),
        ("pixels", "u4"), ("tiles", "u4"), ("load_bytes", "u4"), ("stage_bytes", "u4"),
    ]
)  # fmt: skip
_COLUMN_WORDS = np.dtype(
    [
        ("batch_stride", "i8"), ("spatial_strides", "i8", 3), ("source_channel_stride", "i8"), ("row_stride", "i8"),
        ("tap_stride", "i8"), ("channel_stride", "i8"), ("pixels", "u8"), ("origin", "i8", 3), ("stride", "i8", 3),
        ("dilation", "i8", 3), ("extents", "i8", 3), ("kernel", "u4", 3), ("outputs", "u4", 3), ("taps", "u4"),
        ("words", "u4"), ("parts", "u4"), ("word_bytes", "i4"),
    ],
    align=True,
)  # fmt: skip
_FOLD_TILING = np.dtype(
    [
        ("origin", "i4", 3), ("stride", "i4", 3), ("dilation", "i4", 3), ("kernel", "u4", 3), ("windows", "i4", 3),
        ("extents", "i4", 3), ("box", "i4", 4), ("counts", "u4", 4), ("taps", "u4"), ("channels", "i4"),
        ("tile_channels", "i4"), ("channel_count", "u4"), ("tiles", "u4"), ("tile_bytes", "u4"), ("stage_bytes", "u4"),
    ]
)  # fmt: skip
_FOLD_WORDS = np.dtype(
    [
        ("batch_stride", "i8"), ("spatial_strides", "i8", 3), ("destination_channel_stride", "i8"),
        ("row_stride", "i8"), ("tap_stride", "i8"), ("channel_stride", "i8"), ("numbers", "u8"), ("origin", "i8", 3),
        ("stride", "i8", 3), ("dilation", "i8", 3), ("extents", "u4", 3), ("kernel", "u4", 3), ("windows", "u4", 3),
        ("channels", "u4"), ("parts", "u4"),
    ],
    align=True,
)  # fmt: skip


def im2col(
    x: Any,
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str = "NHWC",
    out: Any = None,
    *,
    stream: Any = None,
) -> Any:
    """The windows of a 1-D, 2-D or 3-D convolution as rows of a matrix.

    Row ``r`` holds what output pixel ``r`` sees, output pixels counted with the batch slowest and W fastest; column
    ``tap * C + c`` is channel ``c`` of a tap, taps counted with W fastest. With weights of shape ``(taps * C, K)``,
    ``im2col(x, …) @ weights`` is the convolution of all images, channels last. What lies outside the input is zero.

    Where the tensor-map rules allow, tiles are loaded through an im2col map and stored through a tiled one: channels of
    a pixel in a multiple of 16 bytes, addresses and strides too, strides up to 8, and corners and offsets of the
    windows that fit 16, 8 or 5 bits in 1-D, 2-D or 3-D (driver API, ``cuTensorMapEncodeIm2col``). All else moves by
    ordinary loads and stores.

    Parameters
    ----------
    x : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of rank 3, 4 or 5.
    kernel_size, stride, dilation : int or sequence of int
        In pixels, one for all spatial dimensions or one for each, in array order ((D, H, W)); each at least 1.
    padding : int, sequence of int, or sequence of pairs of int
        Pixels of zeros on both sides of each spatial dimension, or before and after each.
    layout : str
        ``"NWC"``, ``"NHWC"`` or ``"NDHWC"``; or ``"NCW"``, ``"NCHW"`` or ``"NCDHW"``, whose channels are brought
        last first, unless they lie so in memory already (torch's channels_last). ``"NHWC"`` and ``"NCHW"`` stand for
        channels last and first at every rank. The result is the same for all of them.
    out : array, optional
        Of shape ``(N * output pixels, taps * C)``, the same dtype and device; it may not overlap ``x``. Default: a new
        C-contiguous array of the caller's kind.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``out``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If the layout or a number does not fit the array, no window fits the padded input, an array is in host memory,
        or ``out`` does not fit.
    """
    cupy()
    shape = tuple(x.shape) if hasattr(x, "shape") else view_of(x).shape
    axes, found = windows(shape, layout, kernel_size, stride, padding, dilation)
    if is_turned_first(x, axes):
        x, axes = permute(x, axes, stream=stream), tuple(range(len(shape)))
    if out is None:
        out = empty(x, found.columns, stream)
    carry_out(
        ("im2col", found, axes),
        lambda source, destination: _launched(column_plans(source, destination, found, axes)),
        x, out, stream,
    )  # fmt: skip
    return out


def col2im(
    columns: Any,
    shape: Sequence[int],
    kernel_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str = "NHWC",
    out: Any = None,
    *,
    stream: Any = None,
) -> Any:
    """Rows of a matrix added up where a convolution's windows lie: the adjoint of `im2col`.

    Each pixel of the result is the sum of every column that `im2col` takes from it; what falls on the padding is
    dropped. Where the tensor-map rules allow, the result is zeroed and tiles of the columns are added to it by tensor
    reductions: float16, bfloat16, float32, float64, 32- and 64-bit integers and complex numbers, channels of a pixel in
    a multiple of 16 bytes, addresses and strides too, strides up to 8. These round after every addition, in an order
    that differs from call to call. All else is added by ordinary instructions in the order of the taps; float16 and
    bfloat16 are then summed in float32. Integers wrap.

    Parameters
    ----------
    columns : array
        Of shape ``(N * output pixels, taps * C)``, as `im2col` returns it.
    shape : sequence of int
        Of the result, in its layout.
    kernel_size, stride, padding, dilation, layout
        As for `im2col`.
    out : array, optional
        Of the given shape, of the columns' dtype and device; what it holds is replaced. Default: a new C-contiguous
        array of the caller's kind.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``out``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        As `im2col`; or if elements are of a type that is not added up.
    """
    cupy()
    extents = extents_of(shape)
    axes, found = windows(extents, layout, kernel_size, stride, padding, dilation)
    if out is None:
        out = empty(columns, extents, stream)
    elif view_of(out).shape != extents:
        raise ArrayError(f"out has shape {view_of(out).shape}, and the result has shape {extents}")
    carry_out(
        ("col2im", found, axes),
        lambda source, destination: _launched(fold_plans(source, destination, found, axes)),
        columns, out, stream,
    )  # fmt: skip
    return out


def windows(shape: tuple[int, ...], layout: Any, *operands: Any) -> tuple[tuple[int, ...], Convolution]:
    """Where an array of a shape has its batch, spatial dimensions and channels, and the convolution over it.

    Parameters
    ----------
    shape : tuple of int
    layout : str
    *operands
        Kernel size, stride, padding and dilation, as for `im2col`.
    """
    axes = spatial_axes(layout, len(shape))
    return axes, _convolution(tuple(shape[axis] for axis in axes), *map(_frozen, operands))


def is_turned_first(x: Any, axes: tuple[int, ...]) -> bool:
    """Whether an array's channels are brought last before columns are made of it."""
    return axes[-1] != len(axes) - 1 and _channels_apart(view_of(x))


def _frozen(value: Any) -> Any:
    """Lists as tuples, which can be keys."""
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _convolution(shape: tuple[int, ...], *operands: Any) -> Convolution:
    try:
        return _known_convolution(shape, *operands)
    except TypeError:  # what is no key
        return convolution(shape, *operands)


_known_convolution = lru_cache(maxsize=1024, typed=True)(convolution)


def extents_of(shape: Any) -> tuple[int, ...]:
    """A shape that was given, as integers."""
    shape = _frozen(shape)
    if shape.__class__ is tuple and all(extent.__class__ is int and extent >= 0 for extent in shape):
        return shape
    try:
        found = tuple(int(extent) for extent in np.array(shape, dtype=object).reshape(-1) if extent == int(extent))
        if len(found) != len(shape) or any(not 0 <= extent < 2**62 for extent in found):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ArrayError(f"shape = {shown(shape)}: expected an extent of 0 or more for each dimension") from None
    return found


def _channels_apart(view: ArrayView) -> bool:
    """Whether channels, dimension 1, do not lie one after the other."""
    return view.size > 0 and view.shape[1] > 1 and view.strides[1] != view.itemsize


def check_pair(one: ArrayView, other: ArrayView, columns: ArrayView, found: Convolution) -> None:
    """Refuse arrays that do not fit a convolution, and results whose elements overlap.

    Parameters
    ----------
    one, other : ArrayView
        What is read and what is written.
    columns : ArrayView
        Which of the two is the matrix.
    found : Convolution
    """
    if columns.shape != found.columns:
        raise ArrayError(
            f"the columns have shape {columns.shape}, and {found.pixels} output pixels of {found.taps} taps and "
            f"{found.channels} channels need {found.columns}"
        )
    if one.dtype != other.dtype or one.itemsize != other.itemsize:
        raise ArrayError(f"the types differ: {one.dtype} and {other.dtype}; view or convert one of the arrays first")
    if one.dtype == "object":
        raise ArrayError("arrays of objects hold references, and their bits cannot be moved; use numpy")
    if not other.size:
        return
    reach = other.itemsize
    for step, extent in sorted((abs(s), n) for s, n in zip(other.strides, other.shape, strict=True) if n > 1):
        if step < reach:
            raise ArrayError(f"elements of the result overlap in memory (strides {other.strides} B)")
        reach = max(reach, step * (extent - 1) + reach)


def column_plans(
    source: ArrayView, destination: ArrayView, found: Convolution, axes: tuple[int, ...]
) -> list[tuple[str, ColumnPart]]:
    """What makes columns, in order, each with what it is of the result.

    Parameters
    ----------
    source, destination : ArrayView
    found : Convolution
    axes : tuple of int
        Where the source has its batch, spatial dimensions and channels.
    """
    check_pair(source, destination, destination, found)
    plan = plan_im2col(permuted_view(source, axes), destination, found)
    return [] if plan is None else [("columns", plan)]


def fold_plans(
    source: ArrayView, destination: ArrayView, found: Convolution, axes: tuple[int, ...]
) -> list[tuple[str, ColumnPart]]:
    """What adds columns up, as for `column_plans`; the axes are the destination's."""
    check_pair(source, destination, source, found)
    plan = plan_col2im(source, permuted_view(destination, axes), found)
    zeros = None if isinstance(plan, FoldWordPlan) else plan_fill(destination, bytes(destination.itemsize))
    return [(name, part) for name, part in (("zeros", zeros), ("sums", plan)) if part is not None]


def _launched(plans: Sequence[tuple[str, ColumnPart]]) -> list[Plan]:
    return [_LAUNCHES[type(plan)](plan) for _, plan in plans]


def _stage_bytes(plan: ColumnTilePlan | FoldTilePlan) -> int:
    loads = plan.taps if isinstance(plan, ColumnTilePlan) else 1
    return -(-loads * plan.source.box_bytes // TILE_ALIGNMENT) * TILE_ALIGNMENT


def _geometry(argument: Any, found: Convolution) -> None:
    """Write what all four kernels are told of a convolution."""
    argument["origin"] = spatial([-before for before, _ in found.padding], 0)
    argument["stride"] = spatial(found.stride, 1)
    argument["dilation"] = spatial(found.dilation, 1)
    argument["kernel"] = spatial(found.kernel, 1)


def _tile_launch(name: str, plan: ColumnTilePlan | FoldTilePlan, tiling: Any) -> Plan:
    module = kernels(f"{name}.cu", str(current_target()), STAGES=STAGES, READING=READING)
    kernel = module.kernel(f"{name}_{len(plan.convolution.extents)}d")
    return column_tile_size(plan).plan(kernel, (plan.source, plan.destination, tiling[()]))


def column_tile_size(plan: ColumnTilePlan | FoldTilePlan) -> LaunchSize:
    """Of a launch that moves tiles of columns."""
    shared = STAGES * _stage_bytes(plan) + TILE_ALIGNMENT
    return LaunchSize(plan.tiles, BLOCKS_PER_MULTIPROCESSOR, WARP_THREADS, shared, STAGES)


def column_word_size(plan: ColumnWordPlan | FoldWordPlan) -> LaunchSize:
    """Of a launch that moves columns by ordinary loads and stores."""
    if isinstance(plan, FoldWordPlan):
        units = plan.destination.size * plan.parts
    else:
        units = plan.convolution.pixels * min(WARP_THREADS, plan.convolution.taps * plan.words)
    return LaunchSize(-(-units // _WORD_THREADS), _WORD_BLOCKS_PER_MULTIPROCESSOR, _WORD_THREADS)


def column_launch(plan: ColumnTilePlan) -> Plan:
    """The launch of columns that move through tensor maps."""
    tiling, found = np.zeros((), _COLUMN_TILING), plan.convolution
    _geometry(tiling, found)
    tiling["outputs"] = spatial(found.outputs, 1)
    tiling["taps"], tiling["tile_taps"] = found.taps, plan.taps
    tiling["tap_count"], tiling["channel_count"], _ = plan.counts
    tiling["channel_words"], tiling["pixels"], tiling["tiles"] = plan.channel_words, plan.pixels, plan.tiles
    tiling["load_bytes"] = plan.source.box_bytes
    tiling["stage_bytes"] = _stage_bytes(plan)
    return _tile_launch("im2col", plan, tiling)


def _fold_tiles(plan: FoldTilePlan) -> Plan:
    tiling, found = np.zeros((), _FOLD_TILING), plan.convolution
    _geometry(tiling, found)
    tiling["windows"], tiling["extents"] = spatial(found.outputs, 1), spatial(found.extents, 1)
    tiling["box"][: len(plan.box) - 1], tiling["counts"][: len(plan.box) - 1] = plan.box[1:], plan.counts[1:]
    tiling["taps"], tiling["channels"], tiling["tile_channels"] = found.taps, plan.channels, plan.box[0]
    tiling["channel_count"], tiling["tiles"] = plan.counts[0], plan.tiles
    tiling["tile_bytes"] = plan.source.box_bytes
    tiling["stage_bytes"] = _stage_bytes(plan)
    return _tile_launch("col2im", plan, tiling)


def _word_launch(name: str, kernel: str, plan: ColumnWordPlan | FoldWordPlan, words: Any) -> Plan:
    module = kernels(f"{name}.cu", str(current_target()), STAGES=STAGES, READING=READING)
    arguments = Address(plan.source.address), Address(plan.destination.address), words[()]
    return column_word_size(plan).plan(module.kernel(kernel), arguments)


def _column_words(plan: ColumnWordPlan) -> Plan:
    words, found = np.zeros((), _COLUMN_WORDS), plan.convolution
    _geometry(words, found)
    words["batch_stride"], *strides, _ = plan.source.strides
    words["spatial_strides"], words["extents"] = spatial(strides, 0), spatial(found.extents, 1)
    words["source_channel_stride"], words["channel_stride"] = plan.channel_strides
    words["row_stride"], words["tap_stride"] = plan.destination.strides[0], plan.tap_stride
    words["pixels"], words["outputs"], words["taps"] = found.pixels, spatial(found.outputs, 1), found.taps
    words["words"], words["parts"], words["word_bytes"] = plan.words, plan.parts, plan.word_bytes
    return _word_launch("im2col", "im2col_words", plan, words)


def _fold_words(plan: FoldWordPlan) -> Plan:
    words, found = np.zeros((), _FOLD_WORDS), plan.convolution
    _geometry(words, found)
    words["batch_stride"], *strides, words["destination_channel_stride"] = plan.destination.strides
    words["spatial_strides"], words["extents"] = spatial(strides, 0), spatial(found.extents, 1)
    words["row_stride"], words["channel_stride"] = plan.source.strides
    words["tap_stride"] = found.channels * plan.source.strides[1]
    words["windows"] = spatial(found.outputs, 1)
    words["channels"], words["parts"] = plan.parts * found.channels, plan.parts
    words["numbers"] = plan.destination.size * plan.parts
    return _word_launch("col2im", f"col2im_{plan.number}", plan, words)


_LAUNCHES: dict[type, Callable[[Any], Plan]] = {
    ColumnTilePlan: column_launch,
    ColumnWordPlan: _column_words,
    FillPlan: fill_launch,
    FoldTilePlan: _fold_tiles,
    FoldWordPlan: _fold_words,
}
