"""Arrays with borders, turned round, or rotated along their dimensions: copies of parts of arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import empty
from cupytma.ops.column_plan import ColumnTilePlan, plan_im2col
from cupytma.ops.convolution import Convolution
from cupytma.ops.convolution_columns import column_launch
from cupytma.ops.copy_launches import plan_launches
from cupytma.ops.copy_plan import CopyPlan, plan_copy
from cupytma.ops.filling import FillPlan, element_bytes, fill_launch, plan_fill
from cupytma.ops.paired import carry_out
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.runtime.kernel import current_device
from cupytma.runtime.plan import Plan
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.words import counted

_MAX_SPATIAL = 3
Part = tuple[tuple[int, int], ...]
"""First element and extent along each dimension."""
ArrangedPart = ColumnTilePlan | CopyPlan | FillPlan


def pad(x: Any, pad_width: Any, value: Any = 0, out: Any = None, *, stream: Any = None) -> Any:
    """An array with a border of one value, as ``numpy.pad(x, pad_width, constant_values=value)``.

    Borders of zeros come from the out-of-bounds fill of an im2col map, in one launch, where its rules allow: up to
    three neighbouring dimensions with borders, a multiple of 16 bytes in the dimensions after them, borders that fit
    the map's corners (see `im2col`). Else the inside moves as `cupytma.copy` moves it and the borders are filled; no
    element is written twice.

    Parameters
    ----------
    x : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides.
    pad_width : int, pair of int, or sequence of pairs of int
        Elements before and after each dimension, in array order: one number for all sides, one pair for all
        dimensions, or a pair for each.
    value : number
        What the borders hold; the dtype must be able to.
    out : array, optional
        Of the padded shape, the same dtype and device; it may not overlap ``x``. Default: a new C-contiguous array of
        the caller's kind.
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
        If a width or the value does not fit the array, an array is in host memory, or ``out`` does not fit.
    """
    cupy()
    view = view_of(x)
    widths, pattern = pad_widths(pad_width, len(view.shape)), element_bytes(view.dtype, value)
    if out is None:
        out = empty(x, padded_shape(view.shape, widths), stream)
    _carry_out("pad", pad_plans, x, out, stream, widths, pattern)
    return out


def flip(x: Any, axes: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """An array with the order of its elements reversed along some dimensions, as ``numpy.flip`` in memory of its own.

    Dimensions that are not the last move as rows; the last one moves by ordinary loads and stores.

    Parameters
    ----------
    x : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides.
    axes : int or sequence of int, optional
        Default: all.
    out : array, optional
        Of the same shape, dtype and device; it may not overlap ``x``. Default: a new C-contiguous array of the
        caller's kind.
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
        If there is no such axis, an array is in host memory, or ``out`` does not fit.
    """
    cupy()
    shape = view_of(x).shape
    chosen = flip_axes(axes, len(shape))
    if out is None:
        out = empty(x, shape, stream)
    _carry_out("flip", flip_plans, x, out, stream, chosen)
    return out


def roll(x: Any, shift: Any, axis: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """An array with its elements moved along dimensions, those that leave coming in again, as ``numpy.roll``.

    Each dimension that is rolled splits the array in two; every part is a copy of a window.

    Parameters
    ----------
    x : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides.
    shift : int or sequence of int
        In elements, one for all axes or one for each; may be negative, or longer than the array.
    axis : int or sequence of int, optional
        Default: as if the array were one row, which a C-contiguous array alone can be.
    out : array, optional
        Of the same shape, dtype and device; it may not overlap ``x``. Default: a new C-contiguous array of the
        caller's kind.
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
        If there is no such axis, the shifts do not fit the axes, the array is no row and no axis is given, an array is
        in host memory, or ``out`` does not fit.
    """
    cupy()
    view = view_of(x)
    if out is None:
        out = empty(x, view.shape, stream)
    _carry_out("roll", roll_plans, x, out, stream, roll_shifts(shift, axis, view), axis is None)
    return out


def pad_plans(
    source: ArrayView, destination: ArrayView, widths: tuple[tuple[int, int], ...], pattern: bytes
) -> list[tuple[str, ArrangedPart]]:
    """What pads an array, in order, each with what it is of the result: all at once, or the inside and the borders."""
    check_same(source, destination, padded_shape(source.shape, widths))
    plan: ColumnTilePlan | str = "the border is not of zeros, and the out-of-bounds fill gives no other numbers"
    if not any(pattern):
        plan = plan_window(source, destination, widths)
    if isinstance(plan, ColumnTilePlan):
        return [("inside and borders", plan)]
    inside, *borders = pad_parts(source.shape, widths)
    filled = [("border", plan_fill(part_of(destination, border), pattern, plan)) for border in borders]
    copied = "inside", plan_copy(source, part_of(destination, inside))
    return [copied, *((name, part) for name, part in filled if part is not None)]


def flip_plans(
    source: ArrayView, destination: ArrayView, axes: tuple[int, ...]
) -> list[tuple[str, ArrangedPart]]:
    """What flips an array, as for `pad_plans`."""
    check_same(source, destination, source.shape)
    return [("", plan_copy(flipped(source, axes), destination))]


def roll_plans(
    source: ArrayView, destination: ArrayView, shifts: tuple[int, ...], as_one_row: bool
) -> list[tuple[str, ArrangedPart]]:
    """What rolls an array, as for `pad_plans`: a window for each side of the places where it is cut."""
    check_same(source, destination, source.shape)
    if as_one_row:
        source, destination = as_row(source), as_row(destination)
    parts = roll_parts(source.shape, shifts)
    return [
        (
            f"window at {tuple(first for first, _ in other)}" if any(shifts) else "",
            plan_copy(part_of(source, one), part_of(destination, other)),
        )
        for one, other in parts
    ]


def _carry_out(
    name: str, plans: Callable[..., list[tuple[str, ArrangedPart]]], x: Any, out: Any, stream: Any, *operands: Any
) -> None:
    def launches(source: ArrayView, destination: ArrayView) -> list[Plan]:
        found = plans(source, destination, *operands)
        return [launch for _, plan in found for launch in _LAUNCHES[type(plan)](plan)]

    carry_out((name, *operands), launches, x, out, stream)


def plan_window(
    source: ArrayView, destination: ArrayView, widths: tuple[tuple[int, int], ...]
) -> ColumnTilePlan | str:
    """A border of zeros as windows of one pixel over a padded input; the rule that forbids it where it cannot be.

    Parameters
    ----------
    source, destination : ArrayView
        The array and the padded one.
    widths : tuple of pairs of int
        Elements before and after each dimension.
    """
    padded = [axis for axis, pair in enumerate(widths) if any(pair)]
    if not padded or not source.size:
        return "there is no border" if source.size else "the array is empty"
    if padded[-1] - padded[0] >= _MAX_SPATIAL:
        return f"borders reach over {padded[-1] - padded[0] + 1} dimensions, and an im2col map fills {_MAX_SPATIAL}"
    first, last = padded[0], padded[-1] + 1
    batch, channels = _merged(source, 0, first), _merged(source, last, len(widths))
    rows, row = _merged(destination, 0, last), _merged(destination, last, len(widths))
    if batch is None or channels is None or rows is None or row is None:
        return "dimensions around the borders do not follow one another in memory"
    spatial = range(first, last)
    extents, ones = tuple(source.shape[axis] for axis in spatial), (1,) * len(spatial)
    strides = tuple(source.strides[axis] for axis in spatial)
    one = replace(
        source, shape=(batch[0], *extents, channels[0]), strides=(batch[1], *strides, channels[1])
    )
    other = replace(destination, shape=(rows[0], row[0]), strides=(rows[1], row[1]))
    found = Convolution(batch[0], channels[0], extents, ones, ones, widths[first:last], ones)
    plan = plan_im2col(one, other, found)
    if isinstance(plan, ColumnTilePlan):
        return plan
    return "the result is empty" if plan is None else plan.reason


def _merged(view: ArrayView, start: int, stop: int) -> tuple[int, int] | None:
    """Extent and stride of several dimensions as one; None where they do not follow one another in memory."""
    extent, stride = 1, view.itemsize
    for n, step in zip(reversed(view.shape[start:stop]), reversed(view.strides[start:stop]), strict=True):
        if n == 1:
            continue
        if extent == 1:
            stride = step
        elif step != extent * stride:
            return None
        extent *= n
    return extent, stride


def pad_widths(given: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """Elements before and after each dimension.

    Raises
    ------
    ArrayError
        If the widths do not fit the rank, or one is negative.
    """
    try:
        if not isinstance(given, Sequence):
            pairs = [(operator.index(given),) * 2] * rank
        elif len(given) == 2 and not any(isinstance(entry, Sequence) for entry in given):
            pairs = [(operator.index(given[0]), operator.index(given[1]))] * rank
        else:
            pairs = [(operator.index(before), operator.index(after)) for before, after in given]
    except (TypeError, ValueError):
        raise ArrayError(
            f"pad_width = {shown(given)}: expected a number, a pair, or a pair for each dimension"
        ) from None
    if len(pairs) != rank:
        raise ArrayError(
            f"pad_width = {shown(given)} has {counted(len(pairs), 'pair')}, and the array {counted(rank, 'dimension')}"
        )
    for pair in pairs:
        if not 0 <= min(pair) <= max(pair) < 2**48:
            raise ArrayError(
                f"pad_width = {shown(given)}: {shown(pair)} is outside 0 … 2^48 - 1; slice the array to cut it"
            )
    return tuple(pairs)


def padded_shape(shape: tuple[int, ...], widths: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Of an array with its borders."""
    return tuple(before + extent + after for extent, (before, after) in zip(shape, widths, strict=True))


def pad_parts(shape: tuple[int, ...], widths: tuple[tuple[int, int], ...]) -> list[Part]:
    """The inside of a padded array, then its borders, which overlap neither it nor one another."""
    inside = tuple((before, extent) for extent, (before, _) in zip(shape, widths, strict=True))
    parts = [inside]
    for i, (extent, (before, after)) in enumerate(zip(shape, widths, strict=True)):
        whole = tuple((0, sum(pair) + n) for n, pair in zip(shape[i + 1 :], widths[i + 1 :], strict=True))
        parts += [(*inside[:i], side, *whole) for side in ((0, before), (before + extent, after)) if side[1]]
    return parts


def roll_parts(shape: tuple[int, ...], shifts: tuple[int, ...]) -> list[tuple[Part, Part]]:
    """The parts of a rolled array: where each is taken from and where it goes."""
    sides = [
        [((0, extent), (0, extent))] if shift == 0
        else [((0, extent - shift), (shift, extent - shift)), ((extent - shift, shift), (0, shift))]
        for extent, shift in zip(shape, shifts, strict=True)
    ]  # fmt: skip
    return [(tuple(s[0] for s in chosen), tuple(s[1] for s in chosen)) for chosen in product(*sides)]


def shifts_of(shift: Any, axis: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """How far each dimension is rolled, from 0 to less than its extent.

    Raises
    ------
    ArrayError
        If there is no such axis, or the shifts do not fit the axes.
    """
    axes = _axes(axis, len(shape))
    try:
        given = [operator.index(s) for s in (shift if isinstance(shift, Sequence) else [shift] * len(axes))]
    except TypeError:
        raise ArrayError(f"shift = {shown(shift)}: expected an integer, or one for each axis") from None
    if len(given) != len(axes):
        raise ArrayError(
            f"shift = {shown(shift)} has {counted(len(given), 'entry')} for {counted(len(axes), 'axis', 'axes')}"
        )
    found = [0] * len(shape)
    for number, amount in zip(axes, given, strict=True):
        found[number] = (found[number] + amount) % max(1, shape[number])
    return tuple(found)


def _axes(given: Any, rank: int) -> tuple[int, ...]:
    """Axes that were given, counted from 0."""
    try:
        chosen = [operator.index(a) for a in given] if isinstance(given, (Sequence, range)) else [operator.index(given)]
        if not all(-rank <= axis < rank for axis in chosen):
            raise TypeError
    except TypeError:
        raise ArrayError(f"axis = {shown(given)}: the array has axes 0 to {rank - 1}") from None
    return tuple(axis % rank for axis in chosen)


def flip_axes(given: Any, rank: int) -> tuple[int, ...]:
    """The axes that an array is flipped along, counted from 0, each once; None is all."""
    return tuple(sorted(set(_axes(range(rank) if given is None else given, rank))))


def roll_shifts(shift: Any, axis: Any, view: ArrayView) -> tuple[int, ...]:
    """How far each dimension is rolled, or the one row that the array is taken for without an axis."""
    return shifts_of(shift, 0, (view.size,)) if axis is None else shifts_of(shift, axis, view.shape)


def flipped(view: ArrayView, axes: Sequence[int]) -> ArrayView:
    """A view from the other end of some dimensions."""
    if not view.size:
        return view
    address = view.address + sum((view.shape[axis] - 1) * view.strides[axis] for axis in set(axes))
    strides = tuple(-stride if axis in axes else stride for axis, stride in enumerate(view.strides))
    return replace(view, address=address, strides=strides)


def part_of(view: ArrayView, part: Part) -> ArrayView:
    """A window of a view."""
    address = view.address + sum(first * stride for (first, _), stride in zip(part, view.strides, strict=True))
    return replace(view, address=address, shape=tuple(extent for _, extent in part))


def as_row(view: ArrayView) -> ArrayView:
    """A C-contiguous view as one row.

    Raises
    ------
    ArrayError
        If it is not C-contiguous.
    """
    step = view.itemsize
    for extent, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if extent > 1 and stride != step and view.size:
            raise ArrayError("an array is rolled as one row only if it is C-contiguous: copy it, or give an axis")
        step *= extent
    return replace(view, shape=(view.size,), strides=(view.itemsize,))


def check_same(source: ArrayView, destination: ArrayView, shape: tuple[int, ...]) -> None:
    """Refuse a result that has another shape or type."""
    if destination.shape != shape:
        raise ArrayError(f"out has shape {destination.shape}, and the result has shape {shape}")
    if source.dtype != destination.dtype or source.itemsize != destination.itemsize:
        raise ArrayError(f"the types differ: {source.dtype} and {destination.dtype}; view or convert one of them first")


_LAUNCHES: dict[type, Callable[[Any], Sequence[Plan]]] = {
    ColumnTilePlan: lambda plan: [column_launch(plan)],
    CopyPlan: lambda plan: plan_launches(plan, current_device()),
    FillPlan: lambda plan: [fill_launch(plan)],
}
