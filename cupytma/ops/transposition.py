"""How two dimensions of an array change places: through swizzled tiles, or through plain ones where no map may be.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from cupytma.limits import ADDRESS_LIMIT, MAX_EXTENT, MAX_GRID, STRIDE_LIMIT, UNIT
from cupytma.ops.layout import Dimension, Region
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap

SPAN = 128  # bytes of a row of a square
MAX_BATCHES = 3  # dimensions that a map has beside the two
# Shorter sides leave most of a tile empty.
_LEAST_BYTES = 64
_LEAST_ELEMENTS = 16
_DATA_TYPES = {1: DataType.UINT8, 2: DataType.UINT16, 4: DataType.UINT32, 8: DataType.UINT64, 16: DataType.UINT64}
_WORD = 8  # bytes of the longest element that a map counts


@dataclass(frozen=True)
class TileShape:
    """How one element size is worked on; measured on an H100.

    Attributes
    ----------
    square_rows, square_columns : int
        Squares of 128 bytes by as many elements in a tile, along the source's rows and columns.
    threads : int
        That turn tiles, in a block.
    stages, outputs : int
        Tiles of shared memory for loads and for stores.
    blocks : int
        Of one multiprocessor.
    """

    square_rows: int
    square_columns: int
    threads: int
    stages: int
    outputs: int
    blocks: int


SHAPES = {
    1: TileShape(1, 2, 128, 4, 2, 1),
    2: TileShape(2, 2, 128, 3, 3, 1),
    4: TileShape(2, 2, 256, 4, 2, 2),
    8: TileShape(2, 2, 128, 11, 2, 2),
    16: TileShape(4, 2, 256, 11, 2, 2),
}
# Tile rows that are walked together, before the next column of tiles.
BAND = 256


@dataclass(frozen=True)
class TransposePlan:
    """Two dimensions that change places, through tensor maps.

    Attributes
    ----------
    source, destination : TensorMap
        Dimension 0 of the one is dimension 1 of the other; further dimensions are the same.
    element_bytes : int
    columns, rows : int
        Extents in elements of the source's dimensions 0 and 1.
    batches : tuple of int
        Extents of the further dimensions.
    """

    source: TensorMap
    destination: TensorMap
    element_bytes: int
    columns: int
    rows: int
    batches: tuple[int, ...]

    @property
    def shape(self) -> TileShape:
        """How tiles are worked on."""
        return SHAPES[self.element_bytes]

    @property
    def square(self) -> int:
        """Elements along each side of a square."""
        return SPAN // self.element_bytes

    @property
    def words(self) -> int:
        """Of an element, as the tensor maps count."""
        return max(1, self.element_bytes // _WORD)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile, in elements."""
        return self.shape.square_rows * self.square, self.shape.square_columns * self.square

    @property
    def box_dim(self) -> tuple[int, ...]:
        """Of the source's tensor map, in words of up to 8 bytes, driver order."""
        return SPAN // min(self.element_bytes, _WORD), self.tile[0], *(1 for _ in self.batches)

    @property
    def counts(self) -> tuple[int, int]:
        """Tiles along the source's rows and columns."""
        return -(-self.rows // self.tile[0]), -(-self.columns // self.tile[1])

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return prod(self.counts) * prod(self.batches)

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile in shared memory."""
        return prod(self.tile) * self.element_bytes

    def coordinates(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Row, column and the further coordinates of every tile, in elements."""
        ranges = [range(count) for count in reversed(self.batches)]
        for outer in product(*ranges):
            for row, column in product(*(range(count) for count in self.counts)):
                yield row * self.tile[0], column * self.tile[1], outer[::-1]


@dataclass(frozen=True)
class TurnPlan:
    """Two dimensions that change places, by ordinary loads and stores through tiles of shared memory.

    Attributes
    ----------
    region : Region
        Its runs are the elements; its first two outer dimensions are the one that is dense in the source, and the one
        that is dense in the destination.
    """

    region: Region

    @property
    def side(self) -> int:
        """Elements along each side of a tile."""
        return 64 if self.region.run <= 4 else 32

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        across, along, *others = (dim.extent for dim in self.region.outer)
        return -(-across // self.side) * -(-along // self.side) * prod(others)


def plan_transposition(region: Region) -> tuple[TransposePlan | TurnPlan | None, Region | None, str]:
    """How a region whose elements lie together in neither array in the same order is moved.

    Returns
    -------
    plan : TransposePlan, TurnPlan or None
        None where no two dimensions change places, or they are too short for tiles.
    rest : Region or None
        What the plan leaves: row ends within a 16-byte unit, which a tensor store would round up.
    reason : str
        The rule that keeps it from tensor maps; empty when none does.
    """
    turned = _turned(region)
    if turned is None:
        return None, None, "no two dimensions change places"
    across, along, *_ = turned.outer
    if min(across.extent, along.extent) < _LEAST_ELEMENTS:
        return None, None, f"sides of {across.extent} and {along.extent} elements are too short for tiles"
    obstacle = _obstacle(turned)
    if obstacle and not _is_aligned(turned):
        return None, None, f"what lies together, {turned.run} B, is not at multiples of {turned.run} B"
    if obstacle:
        plain = TurnPlan(turned)
        if plain.tiles > MAX_GRID[0]:
            return None, None, f"{plain.tiles} tiles are too many for one launch"
        return plain, None, obstacle
    whole = along.extent * turned.run // UNIT * UNIT // turned.run
    rest = _from(turned, 1, whole) if whole < along.extent else None
    plan = _transpose_plan(replace(turned, outer=(across, replace(along, extent=whole), *turned.outer[2:])))
    if plan.tiles > MAX_GRID[0]:
        return None, None, f"{plan.tiles} tiles are too many for one launch"
    return plan, rest, ""


def _turned(region: Region) -> Region | None:
    """The region with the dimensions that change places first; None where there are no two."""
    if region.run not in _DATA_TYPES:
        return None
    across = [dim for dim in region.outer if dim.source_stride == region.run]
    along = [dim for dim in region.outer if dim.destination_stride == region.run]
    if not across or not along or across[0] is along[0]:
        return None
    others = tuple(dim for dim in region.outer if dim is not across[0] and dim is not along[0])
    return replace(region, outer=(across[0], along[0], *others))


def _is_aligned(region: Region) -> bool:
    """Whether every run can be loaded and stored at once."""
    strides = (s for dim in region.outer for s in (dim.source_stride, dim.destination_stride))
    return all(number % region.run == 0 for number in (region.source, region.destination, *strides))


def _from(region: Region, dimension: int, start: int) -> Region:
    """What a region has from a position along one of its outer dimensions on."""
    cut = region.outer[dimension]
    outer = list(region.outer)
    outer[dimension] = replace(cut, extent=cut.extent - start)
    return Region(
        region.source + start * cut.source_stride, region.destination + start * cut.destination_stride, region.run,
        tuple(outer),
    )  # fmt: skip


def _obstacle(region: Region) -> str:
    """The rule that keeps a turned region from tensor maps; empty when none does."""
    across, along, *others = region.outer
    strides = [along.source_stride, across.destination_stride]
    strides += [stride for dim in others for stride in (dim.source_stride, dim.destination_stride)]
    extents = [max(1, region.run // _WORD) * dim.extent for dim in region.outer]
    sides = across.extent * region.run, along.extent * region.run
    checks = (
        (min(sides) >= _LEAST_BYTES, f"sides of {sides[0]} and {sides[1]} B are too short for tiles of {SPAN} B"),
        (len(others) <= MAX_BATCHES, f"{len(region.outer)} dimensions are left after merging; 5 is the most"),
        (region.source % UNIT == 0, f"the source address is {region.source % UNIT} mod {UNIT} bytes"),
        (region.destination % UNIT == 0, f"the destination address is {region.destination % UNIT} mod {UNIT} bytes"),
        (all(s % UNIT == 0 for s in strides), f"a stride of {strides} B is no multiple of {UNIT}"),
        (all(0 <= s < STRIDE_LIMIT for s in strides), f"a stride of {strides} B is outside 0 … 2^40 - 1"),
        (max(extents) <= MAX_EXTENT, "an extent exceeds 2^31, and coordinates are signed 32-bit numbers"),
        (max(region.source, region.destination) < ADDRESS_LIMIT, "an address is 2^57 or above"),
    )
    return next((text for holds, text in checks if not holds), "")


def _transpose_plan(region: Region) -> TransposePlan:
    across, along, *others = region.outer
    shape, square = SHAPES[region.run], SPAN // region.run
    batches = tuple(dim.extent for dim in others)
    source = _map(
        region.source, region.run, across, along, [dim.source_stride for dim in others], along.source_stride, batches,
        shape.square_rows * square,
    )  # fmt: skip
    destination = _map(
        region.destination, region.run, along, across, [dim.destination_stride for dim in others],
        across.destination_stride, batches, shape.square_columns * square,
    )  # fmt: skip
    return TransposePlan(source, destination, region.run, across.extent, along.extent, batches)


def _map(
    address: int, element: int, inner: Dimension, second: Dimension, strides: list[int], second_stride: int,
    batches: tuple[int, ...], box_rows: int,
) -> TensorMap:  # fmt: skip
    word = min(element, _WORD)
    return Tiled(
        data_type=_DATA_TYPES[element],
        global_address=address,
        global_dim=(inner.extent * element // word, second.extent, *batches),
        global_strides=(second_stride, *strides),
        box_dim=(SPAN // word, box_rows, *(1 for _ in batches)),
        swizzle="128B",  # type: ignore[arg-type]  # a name is taken for a member
        l2_promotion="L2_256B",  # type: ignore[arg-type]
    ).encode()


def tile_map(element: int, rows: int) -> TensorMap:
    """A tensor map of elements of some bytes whose boxes are columns of squares of so many rows, for a rebind."""
    one = Dimension(1, 0, 0)
    return _map(0, element, one, one, [], UNIT, (), rows)
