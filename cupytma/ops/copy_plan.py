"""How a copy is carried out: which bytes move through tensor maps, in which boxes, and which do not.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from cupytma.limits import ADDRESS_LIMIT, MAX_BOX, MAX_EXTENT, MAX_GRID, MAX_RANK, STRIDE_LIMIT, UNIT, WARP_THREADS
from cupytma.ops.layout import Dimension, Region, check_overlap, common_region
from cupytma.ops.transposition import TransposePlan, TurnPlan, plan_transposition
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap

# Bytes move as UINT64: the widest type gives the longest rows, and every tensor map counts in 16-byte steps anyway.
WORD = 8
# What a block or a warp moves. Enough in flight to keep the memory busy, and no more: what is read and written at a
# time then lies close together (measured on an H200).
TILE_BYTES = 4 * 1024
CHUNK_BYTES = 512
CHUNKS_PER_BLOCK = 4
# Shorter rows are faster by ordinary loads and stores; so are rows of up to twice that which end within a 16-byte unit,
# whose ends would have to move apart (measured on an H200).
LEAST_ROW_BYTES = 256
# A run that is shorter is copied sooner by ordinary loads and stores, which do not go through shared memory: by 0.2 µs
# of 1.4 at 64 KiB and 0.3 of 6.2 at 16 MiB (measured on an H200).
LEAST_BULK_BYTES = 1 << 25
# A line of memory. Boxes start on whole ones; plans hold for all addresses with the same remainder.
LINE = 128
MAX_TILES = MAX_GRID[0]
# With something left over each block has a warp that counts its threads among all of them, in 32 bits.
MAX_TILES_BESIDE_REST = (2**32 - 1) // WARP_THREADS


@dataclass(frozen=True)
class TilePlan:
    """The part of a copy that moves through tensor maps.

    Attributes
    ----------
    source, destination : TensorMap
        Over the same extents, with the same box.
    global_dim, box_dim : tuple of int
        In words of 8 bytes (dimension 0) and rows, driver order.
    """

    source: TensorMap
    destination: TensorMap
    global_dim: tuple[int, ...]
    box_dim: tuple[int, ...]

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

    def coordinates(self) -> list[tuple[int, ...]]:
        """Start coordinates of every tile, driver order, dimension 0 fastest: the order the kernel takes them in."""
        starts = [range(0, count * box, box) for count, box in zip(self.counts, self.box_dim, strict=True)]
        return [coordinates[::-1] for coordinates in product(*reversed(starts))]


@dataclass(frozen=True)
class BulkPlan:
    """One run, which moves by bulk copies without a tensor map.

    Attributes
    ----------
    source, destination : int
        Addresses, multiples of 128 bytes.
    bytes : int
        In all; those after the last whole 16-byte unit move one by one.
    """

    source: int
    destination: int
    bytes: int

    @property
    def whole(self) -> int:
        """Bytes in whole units, which bulk copies move."""
        return self.bytes // UNIT * UNIT

    @property
    def chunks(self) -> int:
        """Bulk copies of `CHUNK_BYTES` and one of the rest, a warp for each."""
        return -(-self.whole // CHUNK_BYTES)

    @property
    def blocks(self) -> int:
        """Of a launch."""
        return -(-self.chunks // CHUNKS_PER_BLOCK)


@dataclass(frozen=True)
class CopyPlan:
    """A copy, split into what moves through tensor maps and what ordinary loads and stores move.

    Attributes
    ----------
    tiles : TilePlan or None
    rest : Region or None
        Bytes that no tensor map may move: a tensor store rounds each row up to 16 bytes, so row ends within a 16-byte
        unit are kept out of it.
    reason : str
        The rule that keeps the copy from tensor maps; empty where they move it.
    turned : TransposePlan, TurnPlan or None
        Where two dimensions change places, so that the arrays have no row in common.
    bulk : BulkPlan or None
        Where the arrays are one run each.
    owned : bool
        Of a reduction: whether every element of the destination has a thread of its own.
    """

    tiles: TilePlan | None
    rest: Region | None
    reason: str = ""
    turned: TransposePlan | TurnPlan | None = None
    bulk: BulkPlan | None = None
    owned: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to copy."""
        return self.tiles is None and self.rest is None and self.turned is None and self.bulk is None


@lru_cache(maxsize=1024)
def plan_copy(source: ArrayView, destination: ArrayView) -> CopyPlan:
    """Plan a copy between two views of device memory.

    Raises
    ------
    ArrayError
        If the shapes or types differ, or the result would depend on the order of the elements.
    """
    region = common_region(source, destination)
    if source.size == 0:
        return CopyPlan(None, None, "the arrays are empty")
    check_overlap(source, destination)
    short = not region.outer and region.run < LEAST_BULK_BYTES
    if not region.outer and not short and _goes_in_bulk(region):
        return CopyPlan(None, None, bulk=BulkPlan(region.source, region.destination, region.run))
    obstacle = obstacle_of(region)
    if obstacle or region.run == UNIT:
        turned, rest, reason = plan_transposition(region)
        if turned is not None:
            return CopyPlan(None, rest, reason, turned)
    if obstacle:
        return CopyPlan(None, region, obstacle)
    if short:
        return CopyPlan(None, region, f"a run of {region.run} B is short: bulk copies pay from {LEAST_BULK_BYTES} B on")
    least = LEAST_ROW_BYTES * (1 if region.run % UNIT == 0 else 2)
    if region.run < least:
        return CopyPlan(None, region, f"rows of {region.run} B are short: tensor maps pay from {least} B on")
    tiles, rest = tile(region)
    if too_many := tile_limit(tiles, rest):
        return CopyPlan(None, common_region(source, destination), too_many)
    return CopyPlan(tiles, rest)


def tile_limit(tiles: TilePlan, rest: Region | None) -> str:
    """What keeps tiles, and what is left beside them, from one launch; empty when nothing does."""
    limit = MAX_TILES if rest is None else MAX_TILES_BESIDE_REST
    return f"{tiles.tiles} tiles are too many for one launch; {limit} are the most" if tiles.tiles > limit else ""


def _goes_in_bulk(run: Region) -> bool:
    """Whether bulk copies may move most of a run."""
    bulk = BulkPlan(run.source, run.destination, run.run)
    is_aligned = run.source % LINE == run.destination % LINE == 0
    return is_aligned and bulk.whole > 0 and bulk.blocks <= MAX_TILES


def tile(
    region: Region, word: int = WORD, data_type: DataType = DataType.UINT64
) -> tuple[TilePlan, Region | None]:
    """What of a region without an obstacle moves through tensor maps, and what is left of it.

    Parameters
    ----------
    region : Region
    word : int
        Bytes of an element of the tensor maps.
    data_type : DataType
        Of the tensor maps.
    """
    row = MAX_BOX * word
    if _is_long_run(region, row):
        rows = region.run // row
        rest = region.tail(rows * row)
        region = Region(region.source, region.destination, row, (*region.outer, Dimension(rows, row, row)))
    else:
        rest = region.tail(region.run // UNIT * UNIT)
    return _tiled(region, word, data_type), rest if rest.run else None


def _is_long_run(region: Region, row: int) -> bool:
    """Whether a region is one long run, which is folded into rows of a box each."""
    around = [dim for dim in region.outer if dim.destination_stride]  # along others the destination stays in place
    return (
        not around
        and len(region.outer) < MAX_RANK - 1
        and region.run > row
        and region.run // row <= MAX_EXTENT
    )


def obstacle_of(region: Region, word: int = WORD) -> str:
    """The rule that keeps a region from tensor maps of elements of some bytes; empty when none does."""
    strides = [s for dim in region.outer for s in (dim.source_stride, dim.destination_stride)]
    checks = (
        (region.run >= UNIT, f"only {region.run} B lie together in both arrays; a tensor map moves {UNIT} B at least"),
        (len(region.outer) < MAX_RANK, f"{len(region.outer) + 1} dimensions are left after merging; 5 is the most"),
        (region.source % UNIT == 0, f"the source address is {region.source % UNIT} mod {UNIT} bytes"),
        (region.destination % UNIT == 0, f"the destination address is {region.destination % UNIT} mod {UNIT} bytes"),
        (all(s % UNIT == 0 for s in strides), f"a stride of {strides} B is no multiple of {UNIT}"),
        (all(0 <= s < STRIDE_LIMIT for s in strides), f"a stride of {strides} B is outside 0 … 2^40 - 1"),
        (
            all(dim.extent <= MAX_EXTENT for dim in region.outer)
            and (region.run // word <= MAX_EXTENT or _is_long_run(region, MAX_BOX * word)),
            "an extent exceeds 2^31, and the coordinates of a tensor copy are signed 32-bit numbers",
        ),
        (max(region.source, region.destination) < ADDRESS_LIMIT, "an address is 2^57 or above"),
    )
    return next((text for holds, text in checks if not holds), "")


def _tiled(region: Region, word: int, data_type: DataType) -> TilePlan:
    dims = (region.run // UNIT * UNIT // word, *(dim.extent for dim in region.outer))
    box = _box(dims, word, [dim.destination_stride == 0 for dim in region.outer])
    source, destination = (
        Tiled(
            data_type=data_type, global_address=address, global_dim=dims, global_strides=strides, box_dim=box
        ).encode()
        for address, strides in (
            (region.source, tuple(dim.source_stride for dim in region.outer)),
            (region.destination, tuple(dim.destination_stride for dim in region.outer)),
        )
    )
    return TilePlan(source, destination, dims, box)


def _box(dims: tuple[int, ...], word: int, accumulated: Sequence[bool]) -> tuple[int, ...]:
    """Boxes of about `TILE_BYTES`, as even as the extents allow; first along dimensions that the destination has."""
    inner = inner_box(dims[0], word)
    box, room = [inner] + [1] * len(accumulated), TILE_BYTES // (inner * word)
    for dimension in sorted(range(1, len(dims)), key=lambda dimension: accumulated[dimension - 1]):
        box[dimension] = even(dims[dimension], max(1, min(MAX_BOX, room)))
        room //= box[dimension]
    return tuple(box)


def inner_box(extent: int, word: int) -> int:
    """What a box has of the innermost dimension, in words of some bytes: whole lines of memory where it has several."""
    line = LINE // word
    return extent if extent <= line else min(MAX_BOX, -(-even(extent, MAX_BOX) // line) * line)


def even(extent: int, limit: int) -> int:
    """The smallest part that splits an extent into as few parts as the limit allows."""
    parts = -(-extent // limit)
    return -(-extent // parts)
