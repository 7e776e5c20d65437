"""How one array is reduced into another: what goes through tensor reductions, and what through ordinary instructions.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cupytma.errors import ArrayError, EmissionError
from cupytma.ops.copy_plan import CopyPlan, obstacle_of, tile, tile_limit
from cupytma.ops.layout import Dimension, Region, check_overlap, common_region, share_memory
from cupytma.ops.ordinary import GRANULE, Items, dealt, word_bytes
from cupytma.ptx.reductions import check_reduction
from cupytma.runtime.given import shown
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


def check_atomic(atomic: object) -> None:
    """Refuse what does not say whether others may reduce at the same time.

    Raises
    ------
    ArrayError
        If it is no bool.
    """
    if not isinstance(atomic, bool):
        raise ArrayError(
            f"atomic = {shown(atomic)}: give True if others may reduce into dst at the same time, or False"
        )


# What a thread for each vector of the destination needs to keep the memory busy, and how many parts of the source it
# takes in its stride where there are fewer.
_ENOUGH_ITEMS = 2**14
_FEW_PARTS = 8
_MOST_PARTS = 2**32 - 1
_OWNED = (
    "every element of the destination is one thread's: ordinary loads and stores are faster than the reductions of the "
    "L2 cache, unless many parts go into few elements or atomic = True asks for these"
)


@dataclass(frozen=True)
class Parts:
    """A reduction in which a thread has each vector of the destination.

    Attributes
    ----------
    region : Region
        Without the dimension along which the destination stays in place.
    items : Items
        Vectors of 16 bytes, or elements.
    count, stride : int
        Of that dimension; the stride in bytes of the source.
    """

    region: Region
    items: Items
    count: int
    stride: int


def parts_of(region: Region, itemsize: int) -> Parts | None:
    """The reduction with a thread for each vector; None where that keeps too few threads busy, or cannot be said."""
    turns = [dim for dim in region.outer if dim.destination_stride == 0]
    if len(turns) > 1:
        return None
    count, stride = (turns[0].extent, turns[0].source_stride) if turns else (1, 0)
    own = replace(region, outer=tuple(dim for dim in region.outer if dim.destination_stride))
    word = GRANULE if word_bytes(own) == GRANULE and stride % GRANULE == 0 else itemsize
    items = dealt(own, word, own.run // word)
    if items is None or count > _MOST_PARTS or (count > _FEW_PARTS and items.total < _ENOUGH_ITEMS):
        return None
    return Parts(own, items, count, stride)


def owned_parts(plan: CopyPlan, itemsize: int) -> Parts | None:
    """How a plan has a thread for each vector; None where it has not."""
    return parts_of(plan.rest, itemsize) if plan.rest is not None and plan.owned else None


@lru_cache(maxsize=1024)
def plan_reduction(operation: str, source: ArrayView, destination: ArrayView, atomic: bool = False) -> CopyPlan:
    """Plan a reduction of one view of device memory into another.

    Parameters
    ----------
    operation : str
        As in `cupytma.ptx.reductions.REDUCTIONS`.
    source : ArrayView
    destination : ArrayView
        Of the source's shape, or of its last dimensions. Along dimensions of stride 0, and those that it lacks, all of
        the source goes into the same elements.
    atomic : bool
        Whether others may reduce into the same elements at the same time.

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
    if not atomic and parts_of(region, source.itemsize) is not None:
        return CopyPlan(None, region, _OWNED, owned=True)
    if obstacle := obstacle_of(region, source.itemsize):
        return CopyPlan(None, region, obstacle)
    tiles, rest = tile(region, source.itemsize, data_type)
    if too_many := tile_limit(tiles, rest):
        return CopyPlan(None, region, too_many)
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
