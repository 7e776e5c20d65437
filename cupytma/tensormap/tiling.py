"""How a tile falls into boxes: the limits of each dimension, parts within them, and views with one dimension more.

Everything is in driver order: dimension 0 moves fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, lcm, prod

from cupytma.limits import MAX_BOX, MAX_RANK, STRIDE_LIMIT
from cupytma.tensormap.enums import Interleave, Swizzle
from cupytma.tensormap.fields import DATA_TYPES, PACKED_ROW
from cupytma.tensormap.parameters import Tiled

_UNIT_BITS = 128
_LINE = 128


@dataclass(frozen=True)
class Axis:
    """One dimension of the view that a plan's tensor maps describe.

    Attributes
    ----------
    source : int
        The tensor's dimension it comes from.
    divisor : int
        The coordinate is the tensor's, divided by this.
    modulus : int or None
        And then taken modulo this, where the dimension is the inner one of two.
    """

    source: int
    divisor: int = 1
    modulus: int | None = None

    def coordinate(self, x: int) -> int:
        """The coordinate along this dimension of the tensor's coordinate ``x``."""
        x //= self.divisor
        return x if self.modulus is None else x % self.modulus

    def __str__(self) -> str:
        text = f"x{self.source}" if self.divisor == 1 else f"x{self.source} // {self.divisor}"
        return text if self.modulus is None else f"{text} % {self.modulus}"


@dataclass(frozen=True)
class Part:
    """A run of one dimension of a tile, in elements."""

    start: int
    extent: int


@dataclass(frozen=True)
class Box:
    """One box of a tile, all in elements: where it starts in the tile, and how large it is."""

    start: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True)
class Tiling:
    """A tile of a tensor, or of a view of it with more dimensions, before it is cut.

    Attributes
    ----------
    parameters : Tiled
        The tensor or the view; its box does not matter.
    tile : tuple of int
        In elements of `parameters`.
    axes : tuple of Axis
        Where the dimensions come from.
    """

    parameters: Tiled
    tile: tuple[int, ...]
    axes: tuple[Axis, ...]

    @property
    def interleaved(self) -> bool:
        """Whether positions of dimension 0 are slices of channels."""
        return self.parameters.interleave != Interleave.NONE

    @property
    def source_tile(self) -> tuple[int, ...]:
        """The tile in elements of the tensor's own dimensions."""
        extents: dict[int, int] = {}
        for axis, extent in zip(self.axes, self.tile, strict=True):
            extents[axis.source] = extents.get(axis.source, 1) * extent
        return tuple(extents[source] for source in sorted(extents))

    @property
    def quanta(self) -> tuple[int, ...]:
        """What the parts of each dimension must be a multiple of, but for the last of an outer one."""
        p = self.parameters
        steps = list(p.element_strides)
        if self.interleaved:
            steps[p.rank - 2] = 1
        # The driver wants rows of 16-byte multiples, and counts dimension 0 in elements even where it means slices.
        unit = _UNIT_BITS // gcd(_UNIT_BITS, p.shared_bits)
        steps[0] = lcm(unit, steps[0]) if self.interleaved else unit
        return tuple(steps)

    @property
    def limits(self) -> tuple[int, ...]:
        """The largest legal box extent of each dimension that is a multiple of its quantum."""
        p = self.parameters
        most = [MAX_BOX] * p.rank
        if self.interleaved:
            most[p.rank - 2] = 1  # a copy takes one slice of channels, whatever the box says
        elif p.swizzle != Swizzle.NONE:
            most[0] = min(MAX_BOX, 8 * p.swizzle.span // p.shared_bits)
        if DATA_TYPES[p.data_type].gap_bits:
            most[0] = PACKED_ROW
        return tuple(max(1, limit // quantum) * quantum for limit, quantum in zip(most, self.quanta, strict=True))

    @property
    def counts(self) -> tuple[int, ...]:
        """The fewest parts of each dimension."""
        return tuple(-(-extent // limit) for extent, limit in zip(self.tile, self.limits, strict=True))

    def boxes(self, slices: int = 1, sliced: int = 0) -> tuple[Box, ...]:
        """The tile in the fewest boxes, in the order they have in shared memory.

        Spans of dimension 0 are outermost, so that each span has its rows together; else dimension 0 is fastest.

        Parameters
        ----------
        slices, sliced : int
            Dimension `sliced` is first cut into this many equal parts, which it must divide into.
        """
        parts: list[list[Part]] = []
        for dimension, extent in enumerate(self.tile):
            if dimension == sliced and slices > 1:
                share = extent // slices
                one = self._parts(dimension, share, parts)
                parts.append([Part(i * share + part.start, part.extent) for i in range(slices) for part in one])
            else:
                parts.append(self._parts(dimension, extent, parts))
        return tuple(
            Box(tuple(p.start for p in chosen), tuple(p.extent for p in chosen))
            for inner, *outer in product(parts[0], *reversed(parts[1:]))
            for chosen in ((inner, *reversed(outer)),)
        )

    def _parts(self, dimension: int, extent: int, inner: Sequence[Sequence[Part]]) -> list[Part]:
        """The fewest parts: equal ones where they leave no gap in shared memory, else full ones and a rest.

        Full parts of 256 leave none, since rows are multiples of 16 bytes; spans of a swizzle are full ones.
        """
        limit, quantum = self.limits[dimension], self.quanta[dimension]
        count = -(-extent // limit)
        size = extent // count
        even = extent % count == 0 and size % quantum == 0 and not (dimension == 0 and self.parameters.swizzle)
        if even and count > 1:
            box = [*(parts[0].extent for parts in inner), size, *[1] * (len(self.tile) - dimension - 1)]
            even = self.shared_bytes(box) % self.period == 0
        size = size if even else limit
        return [Part(start, min(size, extent - start)) for start in range(0, extent, size)]

    @property
    def period(self) -> int:
        """Bytes of shared memory that boxes are aligned to: after as many the pattern of the swizzle repeats."""
        return max(_LINE, 8 * self.parameters.swizzle.span)

    def shared_bytes(self, box: Sequence[int]) -> int:
        """Bytes that a box takes in shared memory, the gaps after rows shorter than the swizzle's span included."""
        p = self.parameters
        counts = [-(-extent // step) for extent, step in zip(box, p.element_strides, strict=True)]
        if self.interleaved:
            counts[p.rank - 2] = box[p.rank - 2]
            return p.slice_bytes * prod(counts)
        return max(box[0] * p.shared_bits // 8, p.swizzle.span) * prod(counts[1:])


def plain(parameters: Tiled, tile: Sequence[int]) -> Tiling:
    """A tile in the tensor's own dimensions."""
    return Tiling(parameters, tuple(tile), tuple(Axis(i) for i in range(parameters.rank)))


def with_more_dimensions(tiling: Tiling) -> Tiling:
    """The same tile in a view that needs fewer boxes, where there is one within 5 dimensions.

    A dimension whose tile is longer than a box becomes two, ``x % n`` and ``x // n``, where n divides both the tile's
    extent and the tensor's: then the tensor ends where the view does, and what is out of bounds stays so. Under a
    swizzle dimension 0 is split at the span: ``(span, rows, spans)``.
    """
    while tiling.parameters.rank < MAX_RANK and not tiling.interleaved:
        long = [i for i, count in enumerate(tiling.counts) if count > 1]
        views = [view for i in long if (view := _split(tiling, i)) is not None]
        if not views:
            break
        tiling = min(views, key=lambda view: prod(view.counts))
    return tiling


def _split(tiling: Tiling, dimension: int) -> Tiling | None:
    """The view with one dimension split in two; None where that is impossible."""
    p = tiling.parameters
    size = _split_size(tiling, dimension)
    if size is None or p.element_strides[dimension] != 1:
        return None
    step = p.global_strides[dimension - 1] if dimension else p.element_bits // 8
    if step * size >= STRIDE_LIMIT or (dimension == 0 and p.element_bits % 8):
        return None
    # Dimension 0 splits into rows of spans, one span after another; others stay together, so that rows follow rows.
    place = p.rank if dimension == 0 else dimension + 1
    dims, strides, steps = list(p.global_dim), list(p.global_strides), list(p.element_strides)
    tile, axes = list(tiling.tile), list(tiling.axes)
    dims.insert(place, dims[dimension] // size)
    strides.insert(place - 1, step * size)
    steps.insert(place, 1)
    tile.insert(place, tile[dimension] // size)
    axis = axes[dimension]
    axes.insert(place, Axis(axis.source, axis.divisor * size, axis.modulus and axis.modulus // size))
    dims[dimension] = tile[dimension] = size
    axes[dimension] = replace(axis, modulus=size)
    view = replace(
        p, global_dim=tuple(dims), global_strides=tuple(strides), element_strides=tuple(steps), box_dim=tuple(tile)
    )
    found = Tiling(view, tuple(tile), tuple(axes))
    return found if prod(found.counts) < prod(tiling.counts) else None


def _split_size(tiling: Tiling, dimension: int) -> int | None:
    """Elements of the inner one of two dimensions; None where none divides both the tensor and the tile."""
    common = gcd(tiling.parameters.global_dim[dimension], tiling.tile[dimension])
    limit, quantum = tiling.limits[dimension], tiling.quanta[dimension]
    if dimension == 0 and tiling.parameters.swizzle != Swizzle.NONE:
        return limit if common % limit == 0 else None
    return next((size for size in range(limit, 1, -1) if common % size == 0 and size % quantum == 0), None)
