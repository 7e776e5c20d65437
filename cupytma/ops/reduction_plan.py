"""How one array is reduced into another: what goes through tensor reductions, and what through ordinary instructions.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from cupytma.errors import ArrayError, EmissionError
from cupytma.ops.copy_plan import MAX_TILES, CopyPlan, obstacle_of, tile
from cupytma.ops.layout import Dimension, Region, check_overlap, common_region, share_memory
from cupytma.ptx.reductions import check_reduction
from cupytma.tensormap.arrays import ArrayView, data_type_of
from cupytma.tensormap.enums import DataType

# Signed 64-bit integers have reductions of their own where the sign matters, and else the bits of the unsigned ones.
_SAME_BITS = {("int64", operation): DataType.UINT64 for operation in ("add", "and", "or", "xor")}


def element_type(operation: str, dtype: str) -> DataType:
    """The tensor-map type by which elements of a dtype are reduced.

    Raises
    ------
    ArrayError
        If the unit has no such reduction; the message says for which types it has it.
    """
    carrier = _SAME_BITS.get((dtype, operation)) or data_type_of(dtype)
    carries_numbers = carrier.name.lower() == dtype or (dtype, operation) in _SAME_BITS
    try:
        check_reduction(operation, carrier if carries_numbers else dtype)
    except EmissionError as error:
        raise ArrayError(f"{error}; convert or view the arrays, or use another library's operation") from None
    return carrier


@lru_cache(maxsize=1024)
def plan_reduction(operation: str, source: ArrayView, destination: ArrayView) -> CopyPlan:
    """Plan a reduction of one view of device memory into another.

    Parameters
    ----------
    operation : str
        As in `cupytma.ptx.reductions.REDUCTIONS`.
    source : ArrayView
    destination : ArrayView
        Of the source's shape, or of its last dimensions. Along dimensions of stride 0, and those that it lacks, all of
        the source goes into the same elements.

    Raises
    ------
    ArrayError
        If shapes or types do not fit, there is no such reduction, or the result would depend on the order of the
        elements for another reason than rounding.
    """
    data_type = element_type(operation, source.dtype)
    destination = broadcast(source, destination)
    region = _region(source, destination)
    if source.size == 0:
        return CopyPlan(None, None, "the arrays are empty")
    check_reduced(source, destination)
    _check_alignment(source, destination)
    if obstacle := obstacle_of(region, source.itemsize):
        return CopyPlan(None, region, obstacle)
    tiles, rest = tile(region, source.itemsize, data_type)
    if tiles.tiles > MAX_TILES:
        return CopyPlan(None, region, f"{tiles.tiles} tiles are too many for one launch")
    return CopyPlan(tiles, rest)


def broadcast(source: ArrayView, destination: ArrayView) -> ArrayView:
    """The destination with the leading dimensions that the source has and it lacks, each of stride 0."""
    missing = len(source.shape) - len(destination.shape)
    if missing <= 0:
        return destination
    return replace(
        destination,
        shape=(*source.shape[:missing], *destination.shape),
        strides=(*(0 for _ in range(missing)), *destination.strides),
    )


def check_reduced(source: ArrayView, destination: ArrayView) -> None:
    """Refuse a reduction whose result would depend on which element is reduced first.

    Raises
    ------
    ArrayError
        If elements of the destination overlap one another, but for dimensions of stride 0, or overlap the source.
        Equal views are no overlap where every element is reduced into itself alone.
    """
    destination = broadcast(source, destination)
    kept = _kept_axes(destination)
    own = _chosen(destination, kept)
    if len(kept) == len(destination.shape):
        check_overlap(source, destination)
        return
    check_overlap(own, own)
    if share_memory(source, own):
        raise ArrayError(
            "source and destination overlap in memory, and all of the source goes into the same elements: reduce a "
            "copy of the source"
        )


def _kept_axes(destination: ArrayView) -> list[int]:
    """The axes along which the destination has elements of its own."""
    steps = zip(destination.shape, destination.strides, strict=True)
    return [axis for axis, (extent, stride) in enumerate(steps) if stride or extent <= 1]


def _chosen(view: ArrayView, axes: Sequence[int]) -> ArrayView:
    return replace(
        view, shape=tuple(view.shape[axis] for axis in axes), strides=tuple(view.strides[axis] for axis in axes)
    )


def _region(source: ArrayView, destination: ArrayView) -> Region:
    """Both arrays as one region; dimensions along which the destination stays in place come first, of stride 0."""
    if source.shape != destination.shape:
        return common_region(source, destination)  # which says that they differ
    kept = _kept_axes(destination)
    region = common_region(_chosen(source, kept), _chosen(destination, kept))
    address = region.source
    accumulated: list[Dimension] = []
    others = [axis for axis in range(len(source.shape)) if axis not in kept]
    for axis in sorted(others, key=lambda axis: abs(source.strides[axis])):
        extent, stride = source.shape[axis], source.strides[axis]
        if stride < 0:
            address, stride = address + (extent - 1) * stride, -stride
        if accumulated and stride == accumulated[-1].extent * accumulated[-1].source_stride:
            accumulated[-1] = replace(accumulated[-1], extent=accumulated[-1].extent * extent)
        else:
            accumulated.append(Dimension(extent, stride, 0))
    return replace(region, source=address, outer=(*accumulated, *region.outer))


def _check_alignment(source: ArrayView, destination: ArrayView) -> None:
    for name, view in (("source", source), ("destination", destination)):
        steps = [stride for extent, stride in zip(view.shape, view.strides, strict=True) if extent > 1]
        if any(number % view.itemsize for number in (view.address, *steps)):
            raise ArrayError(
                f"the {name}'s {view.dtype} elements do not lie at multiples of their {view.itemsize} B (address "
                f"{view.address % view.itemsize} mod {view.itemsize}, strides {view.strides} B): copy it to an array "
                "of its own first"
            )
