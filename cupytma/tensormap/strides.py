"""What a tensor map can say of an array's layout: shapes, strides, and dimensions that may be merged.

Everything is in array order (the last dimension is the fastest in a C-contiguous array); strides are in bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from cupytma.errors import DescriptorError
from cupytma.limits import MAX_RANK, STRIDE_LIMIT, UNIT
from cupytma.tensormap.rule import Violation
from cupytma.tensormap.views import ArrayView

# A size-1 dimension needs some legal stride; one so large that a tensor map cannot hold it is of no use to it.
_MAX_STRIDE = STRIDE_LIMIT // 2
Axes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Coalesced:
    """An array with dimensions merged, and how.

    Attributes
    ----------
    view : ArrayView
        The merged array; the array functions take it like any other.
    axes : tuple of tuple of int
        For each dimension of `view` the axes of the array that became it, both in array order. Index ``(i, j)`` of
        axes ``(0, 1)`` is index ``i * shape[1] + j`` of the dimension.
    """

    view: ArrayView
    axes: Axes

    def __str__(self) -> str:
        parts = (
            f"{'axis' if len(group) == 1 else 'axes'} {', '.join(map(str, group))} → dimension {i}"
            for i, group in enumerate(self.axes)
        )
        return f"shape {self.view.shape}: {'; '.join(parts)}"


def coalesce_view(view: ArrayView, axes: Sequence[Sequence[int]] | None = None) -> Coalesced:
    """Merge dimensions that follow one another in memory: the groups given, or all that can be.

    Raises
    ------
    DescriptorError
        If the groups are not all axes in order, or a group does not follow one another in memory.
    """
    groups = mergeable_axes(view) if axes is None else _checked_groups(view, axes)
    extents = tuple(prod(view.shape[axis] for axis in group) for group in groups)
    steps = tuple(_step(view, group) for group in groups)
    return Coalesced(replace(view, shape=extents, strides=steps), groups)


def mergeable_axes(view: ArrayView) -> Axes:
    """The fewest groups of neighbouring axes that each are one dimension in memory."""
    groups: list[list[int]] = []
    for axis in reversed(range(len(view.shape))):
        if groups and _gap(view, (axis, *groups[0])) is None:
            groups[0].insert(0, axis)
        else:
            groups.insert(0, [axis])
    return tuple(map(tuple, groups))


def _checked_groups(view: ArrayView, axes: Sequence[Sequence[int]]) -> Axes:
    groups = tuple(tuple(operator.index(axis) for axis in group) for group in axes)
    if [axis for group in groups for axis in group] != list(range(len(view.shape))) or () in groups:
        raise DescriptorError(
            f"coalesce = {groups} must name every axis of 0…{len(view.shape) - 1} once, in order, in groups, such as "
            f"{mergeable_axes(view)}"
        )
    gaps = [gap for group in groups if (gap := _gap(view, group)) is not None]
    if gaps:
        raise DescriptorError(
            "; ".join(
                f"axes {outer} and {inner} do not follow one another in memory: strides[{outer}] = "
                f"{view.strides[outer]} B is not shape[{inner}] × strides[{inner}] = {view.shape[inner]} × "
                f"{view.strides[inner]} B"
                for outer, inner in gaps
            )
            + f"; what can be merged: {mergeable_axes(view)}"
        )
    return groups


def _gap(view: ArrayView, group: Sequence[int]) -> tuple[int, int] | None:
    """The first two axes of a group that do not follow one another. Axes of size 1 stand in nobody's way."""
    walked = [axis for axis in group if view.shape[axis] != 1]
    for outer, inner in pairwise(walked):
        if view.strides[outer] != view.strides[inner] * view.shape[inner]:
            return outer, inner
    return None


def _step(view: ArrayView, group: Sequence[int]) -> int:
    walked = [axis for axis in group if view.shape[axis] != 1]
    return view.strides[walked[-1] if walked else group[-1]]


def check_shape(view: ArrayView, extra: int = 0) -> None:
    """Refuse arrays that have too few or too many dimensions, or no elements.

    Parameters
    ----------
    view : ArrayView
    extra : int
        Dimensions of the array that are none of the tensor map.

    Raises
    ------
    DescriptorError
    """
    rank = len(view.shape)
    if rank == 0:
        raise DescriptorError("the array has no dimensions; a tensor map has 1 to 5: pass array.reshape(1)")
    if rank > MAX_RANK + extra:
        groups = mergeable_axes(view)
        way_out = (
            f"coalesce=True merges it to rank {len(groups)}, axes {groups}"
            if len(groups) <= MAX_RANK + extra
            else "index the outer dimensions away and make one map for each, or reshape a contiguous copy"
        )
        raise DescriptorError(f"the array has rank {rank}; a tensor map has 1 to 5 dimensions: {way_out}")
    if 0 in view.shape:
        axis = view.shape.index(0)
        violation = Violation(
            "dim-range",
            f"the array of shape {view.shape} is empty: shape[{axis}] = 0 is outside 1 … 2^32 elements",
            "skip the launch: there is nothing to move",
            rank - 1 - axis,
        )
        raise DescriptorError(str(violation), (violation,))


def check_layout(view: ArrayView) -> None:
    """Refuse strides that no tensor map can hold: negative ones, and a last dimension that is not dense.

    Dimensions of size 1 are not looked at: no access uses their stride.

    Raises
    ------
    DescriptorError
        Saying which axis to flip, move or squeeze.
    """
    problems = []
    negative = [axis for axis, s in enumerate(view.strides) if s < 0 and view.shape[axis] > 1]
    if negative:
        which = ", ".join(f"strides[{axis}] = {view.strides[axis]} B" for axis in negative)
        flip = ", ".join("::-1" if axis in negative else ":" for axis in range(len(view.shape)))
        mirrored = ", ".join(f"i of axis {axis} becomes {view.shape[axis] - 1} - i" for axis in negative)
        problems.append(
            f"{which}: a tensor map holds strides from 0 up; flip back with array[{flip}], where index {mirrored} (a "
            "box is then mirrored), or make a contiguous copy"
        )
    if (len(view.shape) - 1) not in negative:
        problems += _inner_problems(view)
    if problems:
        raise DescriptorError("; ".join(problems))


def _inner_problems(view: ArrayView) -> list[str]:
    """Why the last dimension cannot be dimension 0 of a tensor map, whose elements lie one after another.

    A last dimension of size 1 beside a dense one is no exception: its neighbours would have to stand 16 bytes apart,
    and to take the dense dimension in its place would change the order of the coordinates behind the caller's back.
    """
    last = len(view.shape) - 1
    dense = [axis for axis, n in enumerate(view.shape) if n > 1 and view.strides[axis] == view.itemsize]
    if view.shape[last] == 1:
        return [_squeeze_or_move(view, dense[-1])] if dense else []
    if view.strides[last] == view.itemsize:
        return []
    found = f"the last dimension has stride {view.strides[last]} B; a tensor map needs it dense ({view.itemsize} B)"
    if view.strides[last] == 0:
        found += ", and this one is broadcast"
    ways = [f"move axis {dense[-1]} last ({_moved(view, dense[-1])})"] if dense else []
    if not dense and view.strides[last] % UNIT == 0 and last + 1 < MAX_RANK:
        ways.append("add a last dimension of size 1 (array[..., None]), which brings one element per 16 bytes or more")
    return [f"{found}: {' or '.join([*ways, 'make a contiguous copy'])}"]


def _squeeze_or_move(view: ArrayView, dense: int) -> str:
    last = len(view.shape) - 1
    ones = tuple(axis for axis in range(dense + 1, last + 1) if view.shape[axis] == 1)
    found = f"the last dimension has size 1, and the dense one (stride {view.itemsize} B) is axis {dense}: "
    move = f"move axis {dense} last ({_moved(view, dense)}) and give box and coordinates in that order"
    if len(ones) < last - dense:
        return found + move
    squeezed = f"axis {ones[0]}" if len(ones) == 1 else f"axes {ones}"
    shape = tuple(n for axis, n in enumerate(view.shape) if axis not in ones)
    return f"{found}squeeze {squeezed} (shape {shape}, one box entry each), or {move}"


def _moved(view: ArrayView, axis: int) -> str:
    order = [*(a for a in range(len(view.shape)) if a != axis), axis]
    return f"array.transpose({', '.join(map(str, order))}), shape {tuple(view.shape[a] for a in order)}"


def normalised_strides(view: ArrayView, alignment: int = UNIT) -> tuple[int, ...]:
    """The strides with those of dimensions of size 1, which no access uses, replaced by legal ones.

    A replaced stride is that of an array packed from there on, rounded up to the alignment.

    Parameters
    ----------
    view : ArrayView
    alignment : int
        Bytes.
    """
    strides, step = list(view.strides), view.itemsize
    for axis in reversed(range(len(strides))):
        if view.shape[axis] == 1:
            strides[axis] = -(-step // alignment) * alignment
        step = min(max(step, strides[axis] * view.shape[axis]), _MAX_STRIDE)
    return tuple(strides)
