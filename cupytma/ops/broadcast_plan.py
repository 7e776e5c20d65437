"""How a vector is combined with every row or column of an array: stripes, their tiles, and what no tensor map may move.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.limits import MAX_BOX, UNIT
from cupytma.ops.copy_plan import MAX_TILES, WORD, even, inner_box, obstacle_of
from cupytma.ops.layout import Dimension, Region, check_overlap, share_memory
from cupytma.runtime.given import shown
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap

# What the operations are called in the kernels.
OPERATIONS = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}
# Element types, of each the type of tensor map that loads the vector.
ELEMENTS = {
    **dict.fromkeys(("int8", "uint8"), DataType.UINT8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), DataType.UINT16),
    **dict.fromkeys(("int32", "uint32", "float32"), DataType.UINT32),
    **dict.fromkeys(("int64", "uint64", "float64"), DataType.UINT64),
}
TILE_BYTES = 16 * 1024
# Blocks of a cluster. Larger ones leave multiprocessors empty: those of one part of a GPU are no multiple of 8.
CLUSTERS = (4, 1)
# A contiguous array of rows shorter than this, or of no whole 16-byte units, is cut without regard to its rows, as long
# as the whole vector fits in shared memory.
_SHORT_ROW = 1024
_WHOLE_VECTOR = 16 * 1024
_FOLD = MAX_BOX * WORD
# Elements of the vector in a stripe of rows.
_STRIPE = 1024


@dataclass(frozen=True)
class Step:
    """One dimension: its extent, and the distance between neighbours in each array, in bytes."""

    extent: int
    source: int
    destination: int
    vector: int


@dataclass(frozen=True)
class ElementRegion:
    """Elements combined by ordinary loads and stores.

    Attributes
    ----------
    source, vector, destination : int
        Addresses in bytes.
    steps : tuple of Step
        The dimensions, innermost first.
    first : int
        How many elements, counted through all dimensions, are left out.
    """

    source: int
    vector: int
    destination: int
    steps: tuple[Step, ...]
    first: int = 0

    @property
    def elements(self) -> int:
        """Elements of all dimensions, those that are left out among them."""
        return prod(step.extent for step in self.steps)


@dataclass(frozen=True)
class StripePlan:
    """What goes through tensor maps: stripes along the vector, each with a piece of it that stays in shared memory.

    Attributes
    ----------
    source, destination : TensorMap
        Over the same extents with the same box, in words of 8 bytes.
    vector : TensorMap
        Of rank 1, in elements.
    itemsize : int
        Bytes of an element.
    global_dim, box_dim : tuple of int
        In words (dimension 0) and rows, driver order. The vector lies along dimension 0, or along the last one.
    by_rows : bool
        Whether it lies along the last one.
    is_flat : bool
        Whether tiles are cut without regard to the rows of a contiguous array.
    length : int
        Elements of the vector that a stripe has; past its end they are zeros.
    cluster : int
        Blocks of a cluster, which share a stripe.
    """

    source: TensorMap
    destination: TensorMap
    vector: TensorMap
    itemsize: int
    global_dim: tuple[int, ...]
    box_dim: tuple[int, ...]
    by_rows: bool
    is_flat: bool
    length: int
    cluster: int = 1

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each dimension."""
        return tuple(-(-extent // box) for extent, box in zip(self.global_dim, self.box_dim, strict=True))

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return prod(self.counts)

    @property
    def stripes(self) -> int:
        """Number of stripes."""
        if self.is_flat:
            return 1
        return -(-self.global_dim[-1] // self.length) if self.by_rows else self.counts[0]

    @property
    def steps(self) -> tuple[int, int]:
        """From one stripe's tiles to the next one's, and from one tile of a stripe to the next."""
        if self.by_rows:
            return prod(self.counts[:-1]) * (self.length // self.box_dim[-1]), 1
        return (0, 1) if self.is_flat else (1, self.counts[0])

    @property
    def blocks(self) -> int:
        """Tiles of a stripe; the last stripe may have fewer."""
        if self.by_rows:
            return min(self.steps[0], self.tiles)
        return self.tiles // self.stripes

    def blocks_of(self, stripe: int) -> int:
        """Tiles of one stripe."""
        stripe_step, block_step = self.steps
        return min(self.blocks, -(-(self.tiles - stripe * stripe_step) // block_step))

    @property
    def vector_box(self) -> int:
        """Elements of the vector that one load brings."""
        parameters = self.vector.decode()
        assert isinstance(parameters, Tiled)
        return parameters.box_dim[0]

    @property
    def vector_boxes(self) -> int:
        """Loads of a stripe's piece of the vector."""
        return -(-self.length // self.vector_box)

    @property
    def per_element(self) -> int:
        """Elements of a tile for each element of the vector, one after another, where it lies along the last one."""
        return prod(self.box_dim[:-1]) * WORD // self.itemsize

    def start(self, tile: int) -> tuple[int, ...]:
        """Start coordinates of a tile."""
        found = []
        for count, box in zip(self.counts, self.box_dim, strict=True):
            tile, position = divmod(tile, count)
            found.append(position * box)
        return tuple(found)

    def vector_indices(self, stripe: int, at: tuple[int, ...]) -> Any:
        """Which element of the stripe's piece of the vector goes with each element of a tile."""
        position = np.arange(prod(self.box_dim) * WORD // self.itemsize)
        if self.by_rows:
            return at[-1] - stripe * self.length + position // self.per_element
        start = at[-1] * (_FOLD // self.itemsize) if self.is_flat else 0
        return (start + position) % self.length


@dataclass(frozen=True)
class BroadcastPlan:
    """An operation with a vector, split into what goes through tensor maps and what does not.

    Attributes
    ----------
    tiles : StripePlan or None
    rest : ElementRegion or None
    reason : str
        The rule that keeps the arrays from tensor maps; empty where none does.
    """

    tiles: StripePlan | None
    rest: ElementRegion | None
    reason: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.tiles is None and self.rest is None


def axis_of(axis: Any, rank: int) -> int:
    """An axis that was given, counted from 0.

    Raises
    ------
    ArrayError
        If there is no such axis.
    """
    try:
        found = operator.index(axis)
    except TypeError:
        found = rank
    if not -rank <= found < rank:
        axes = f"the array has axes 0 to {rank - 1}" if rank else "the array has no dimensions"
        raise ArrayError(f"axis = {shown(axis)}: {axes}")
    return found % rank


@lru_cache(maxsize=1024)
def plan_broadcast(source: ArrayView, vector: ArrayView, destination: ArrayView, axis: int) -> BroadcastPlan:
    """Plan ``destination = source OPERATION vector``, the vector along one axis of the source.

    Parameters
    ----------
    source, vector, destination : ArrayView
    axis : int
        From 0.

    Raises
    ------
    ArrayError
        If shapes or types do not fit, the type has no arithmetic here, or memory overlaps.
    """
    _check(source, vector, destination, axis)
    if source.size == 0:
        return BroadcastPlan(None, None, "the arrays are empty")
    check_operands(source, vector, destination)
    whole = _region(source, vector, destination, axis)
    region, reason = _striped_region(whole, source.itemsize)
    if region is None:
        return BroadcastPlan(None, whole, reason)
    is_flat = _is_flat(region, source.itemsize)
    by_rows = region.steps[0].vector == 0
    reason = _obstacle(region, source.itemsize, is_flat)
    if reason:
        return BroadcastPlan(None, whole, reason)
    tiles = (_flat if is_flat else _by_rows if by_rows else _by_columns)(region, source)
    if tiles.tiles * max(CLUSTERS) > MAX_TILES:
        return BroadcastPlan(None, whole, f"{tiles.tiles} tiles are too many for one launch")
    cluster = next(n for n in CLUSTERS if n <= tiles.blocks)
    return BroadcastPlan(replace(tiles, cluster=cluster), _rest(whole, source.itemsize, is_flat))


def _check(source: ArrayView, vector: ArrayView, destination: ArrayView, axis: int) -> None:
    if vector.shape != (source.shape[axis],):
        raise ArrayError(
            f"the vector has shape {vector.shape}, and axis {axis} of an array of shape {source.shape} takes "
            f"({source.shape[axis]},): reshape it to one dimension, or give another axis"
        )
    if destination.shape != source.shape:
        raise ArrayError(f"out has shape {destination.shape}, and the result has shape {source.shape}")
    if not source.dtype == vector.dtype == destination.dtype:
        raise ArrayError(
            f"the types differ: the array has {source.dtype}, the vector {vector.dtype}, out {destination.dtype}; "
            "convert to one type first"
        )
    if source.dtype not in ELEMENTS:
        raise ArrayError(
            f"there is no arithmetic here for elements of {source.dtype}; there is for {', '.join(ELEMENTS)}: convert "
            "the arrays, or use another library's operation"
        )
    if destination.read_only and destination.size:
        raise ArrayError("out is read-only; give an array that may be written")
    for name, view in (("array", source), ("vector", vector), ("out array", destination)):
        steps = [stride for extent, stride in zip(view.shape, view.strides, strict=True) if extent > 1]
        if any(number % view.itemsize for number in (view.address, *steps)):
            raise ArrayError(
                f"the {name}'s {view.dtype} elements do not lie at multiples of their {view.itemsize} B (address "
                f"{view.address % view.itemsize} mod {view.itemsize}, strides {view.strides} B): copy it to an array "
                "of its own first"
            )


def check_operands(source: ArrayView, vector: ArrayView, destination: ArrayView) -> None:
    """Refuse a result that overlaps what it is made of, other than the array itself.

    Raises
    ------
    ArrayError
        Which says what overlaps.
    """
    check_overlap(source, destination)
    if share_memory(vector, destination):
        raise ArrayError(
            "the vector overlaps the result in memory, which is written while the vector is read: copy the vector"
        )


def _region(source: ArrayView, vector: ArrayView, destination: ArrayView, axis: int) -> ElementRegion:
    """The fewest dimensions that walk all three arrays, innermost first in the destination."""
    addresses = [source.address, destination.address]
    found = []
    for i, (extent, s, d) in enumerate(zip(source.shape, source.strides, destination.strides, strict=True)):
        if extent == 1:
            continue
        along = vector.strides[0] if i == axis else 0
        if not along and min(s, d) < 0 and max(s, d) <= 0:  # walk both from the other end
            addresses = [addresses[0] + (extent - 1) * s, addresses[1] + (extent - 1) * d]
            s, d = -s, -d
        found.append(Step(extent, s, d, along))
    found.sort(key=lambda step: (abs(step.destination), abs(step.source)))
    merged: list[Step] = []
    for step in found:
        inner = merged[-1] if merged else None
        if inner is not None and all(
            getattr(step, name) == inner.extent * getattr(inner, name) for name in ("source", "destination", "vector")
        ):
            merged[-1] = replace(inner, extent=inner.extent * step.extent)
        else:
            merged.append(step)
    return ElementRegion(addresses[0], vector.address, addresses[1], tuple(merged))


def _striped_region(whole: ElementRegion, itemsize: int) -> tuple[ElementRegion | None, str]:
    """The region with the vector's dimension first or last, as tensor maps take it; or why they do not."""
    steps = whole.steps
    if len(steps) < 1 or steps[0].source != itemsize or steps[0].destination != itemsize:
        return None, f"only {itemsize} B lie together in both arrays; a tensor map moves {UNIT} B at least"
    along = [step for step in steps if step.vector]
    if any(step.vector != itemsize for step in along):
        return None, f"the vector's elements lie {along[0].vector} B apart, and a tensor map takes {itemsize} B"
    if whole.vector % UNIT:
        return None, f"the vector's address is {whole.vector % UNIT} mod {UNIT} bytes"
    if steps[0].vector:
        return (whole, "") if len(steps) > 1 else (None, "there is one row, and a vector is as long as the array")
    # A vector of one element has a dimension of its own.
    others = [step for step in steps[1:] if not step.vector]
    return replace(whole, steps=(steps[0], *others, *(along or [Step(1, UNIT, UNIT, 0)]))), ""


def _is_flat(region: ElementRegion, itemsize: int) -> bool:
    """Whether a contiguous array is better cut without regard to its rows."""
    if len(region.steps) != 2 or region.elements * itemsize < _FOLD:
        return False
    inner, outer = region.steps
    if not inner.vector:
        return outer.extent == 1  # one run, and one element of the vector
    row = inner.extent * itemsize
    return outer.source == outer.destination == row <= _WHOLE_VECTOR and (row < _SHORT_ROW or row % UNIT != 0)


def _obstacle(region: ElementRegion, itemsize: int, is_flat: bool) -> str:
    """The rule that keeps both arrays from tensor maps; empty when none does."""
    if is_flat:
        return obstacle_of(Region(region.source, region.destination, region.elements * itemsize, ()))
    inner, *outer = region.steps
    around = tuple(Dimension(step.extent, step.source, step.destination) for step in outer)
    return obstacle_of(Region(region.source, region.destination, inner.extent * itemsize, around))


def _flat(region: ElementRegion, view: ArrayView) -> StripePlan:
    rows = region.elements * view.itemsize // _FOLD
    steps = Step(MAX_BOX, WORD, WORD, 0), Step(rows, _FOLD, _FOLD, 0)
    box = MAX_BOX, even(rows, TILE_BYTES // _FOLD)
    inner = region.steps[0]
    return _striped(region, view, steps, box, length=inner.extent if inner.vector else 1, is_flat=True)


def _by_columns(region: ElementRegion, view: ArrayView) -> StripePlan:
    steps = _in_words(region, view.itemsize)
    box = [inner_box(steps[0].extent, WORD)]
    room = TILE_BYTES // (box[0] * WORD)
    for step in steps[1:]:
        box.append(even(step.extent, max(1, min(MAX_BOX, room))))
        room //= box[-1]
    return _striped(region, view, steps, tuple(box), length=box[0] * WORD // view.itemsize)


def _by_rows(region: ElementRegion, view: ArrayView) -> StripePlan:
    steps = _in_words(region, view.itemsize)
    inner, rows = inner_box(steps[0].extent, WORD), steps[-1].extent
    limit = min(MAX_BOX, TILE_BYTES // (inner * WORD))
    # A power of two, so that stripes are a whole number of tiles.
    high = rows if rows <= limit else 1 << limit.bit_length() - 1
    room, between = TILE_BYTES // (inner * WORD * high), []
    for step in steps[1:-1]:
        between.append(even(step.extent, max(1, min(MAX_BOX, room))))
        room //= between[-1]
    length = rows if rows <= limit else min(_STRIPE, -(-rows // high) * high)
    return _striped(region, view, steps, (inner, *between, high), length=length, by_rows=True)


def _in_words(region: ElementRegion, itemsize: int) -> tuple[Step, ...]:
    """The dimensions as tensor maps have them: words of whole 16-byte units, then the others."""
    inner, *outer = region.steps
    return Step(inner.extent * itemsize // UNIT * UNIT // WORD, WORD, WORD, inner.vector), *outer


def _striped(
    region: ElementRegion, view: ArrayView, steps: tuple[Step, ...], box: tuple[int, ...], *, length: int,
    by_rows: bool = False, is_flat: bool = False,
) -> StripePlan:
    dims = tuple(step.extent for step in steps)
    source, destination = (
        Tiled(
            data_type=DataType.UINT64, global_address=address, global_dim=dims, global_strides=strides, box_dim=box
        ).encode()
        for address, strides in (
            (region.source, tuple(step.source for step in steps[1:])),
            (region.destination, tuple(step.destination for step in steps[1:])),
        )
    )
    along = [step.extent for step in region.steps if step.vector]
    unit = UNIT // view.itemsize
    vector = Tiled(
        data_type=ELEMENTS[view.dtype], global_address=region.vector, global_dim=(along[0] if along else 1,),
        global_strides=(), box_dim=(min(MAX_BOX, -(-length // unit) * unit),),
    ).encode()  # fmt: skip
    return StripePlan(source, destination, vector, view.itemsize, dims, box, by_rows, is_flat, length)


def _rest(whole: ElementRegion, itemsize: int, is_flat: bool) -> ElementRegion | None:
    """What tensor maps leave: a tensor store rounds the end of a row up to 16 bytes."""
    if is_flat:
        rest = replace(whole, first=whole.elements * itemsize // _FOLD * _FOLD // itemsize)
        return rest if rest.first < rest.elements else None
    inner, *outer = whole.steps
    moved = inner.extent * itemsize // UNIT * UNIT // itemsize
    if moved == inner.extent:
        return None
    return replace(
        whole, source=whole.source + moved * itemsize, destination=whole.destination + moved * itemsize,
        vector=whole.vector + moved * inner.vector, steps=(replace(inner, extent=inner.extent - moved), *outer),
    )  # fmt: skip
