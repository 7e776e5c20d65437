"""The plans of operations as the launches they become, in words and numbers, for `cupytma.ops.explain`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cupytma import targets
from cupytma.limits import UNIT
from cupytma.ops.broadcast import broadcast_size
from cupytma.ops.broadcast_plan import BroadcastPlan
from cupytma.ops.column_plan import ColumnTilePlan, ColumnWordPlan
from cupytma.ops.convolution_columns import column_tile_size, column_word_size
from cupytma.ops.copy_launches import bulk_size, item_size, tile_size, transpose_size, turn_size, word_size
from cupytma.ops.copy_plan import CHUNK_BYTES, CopyPlan
from cupytma.ops.filling import FillPlan
from cupytma.ops.fold_plan import FoldTilePlan, FoldWordPlan
from cupytma.ops.launch_size import LaunchSize
from cupytma.ops.layout import Region
from cupytma.ops.matmul_plan import MatmulPlan
from cupytma.ops.multicast import multicast_size
from cupytma.ops.multicast_plan import MulticastPlan
from cupytma.ops.ordinary import GRANULE, GROUPS, items_of, word_bytes
from cupytma.ops.reduction_plan import owned_parts
from cupytma.ops.rows import rows_size
from cupytma.ops.rows_plan import GATHER, SCATTER_ADD, RowsPlan
from cupytma.ops.transposition import TransposePlan
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

MAPS, BULK, WORDS = "tensor maps", "bulk copies", "ordinary loads and stores"
_ROW_ENDS = "a tensor store rounds the end of a row up to 16 bytes, so that row ends move apart"
_FOLDED = "one long run is folded into rows of a box each, and this is less than such a row"


@dataclass(frozen=True)
class Machine:
    """What a plan depends on of the GPU.

    Attributes
    ----------
    target : Target
    multiprocessors : int
    """

    target: targets.Target
    multiprocessors: int


@dataclass(frozen=True)
class Part:
    """A part of an operation that is carried out in one way.

    Attributes
    ----------
    name : str
        What it is of the whole, such as ``"body"`` or ``"tail"``.
    path : str
        How it is carried out, in words.
    through : str
        What moves it: ``"tensor maps"``, ``"bulk copies"`` or ``"ordinary loads and stores"``.
    bytes : int
        Of the elements that move, each counted once.
    tiles : int
        In all; 0 where there are none.
    box_dim : tuple of int
        Of the tensor map, in elements of `data_type`, driver order; empty where there is none.
    data_type : str
        Of the tensor map.
    stages : int
        Tiles in flight in a block; 0 where there are none.
    grid, threads : int
        Blocks of the launch, and threads of a block.
    blocks : int
        The most of the grid for each multiprocessor; 0 where each piece of the work has a block.
    shared_bytes : int
        Dynamic shared memory of a block.
    reason : str
        The rule that keeps it from a better way; empty where none does.
    plan : object
        What it was read from.
    launch : int
        Number of the launch, from 0; parts of one launch run beside one another.
    """

    name: str
    path: str
    through: str
    bytes: int
    tiles: int
    box_dim: tuple[int, ...]
    data_type: str
    stages: int
    grid: int
    threads: int
    blocks: int
    shared_bytes: int
    reason: str
    plan: Any
    launch: int = 0

    def lines(self, shares_launch: bool = False) -> list[str]:
        """The part as text, which is shorter where it shares the launch of the part before it."""
        moved = f"{self.bytes} B through {self.through}"
        if self.tiles:
            moved += f", in {counted(self.tiles, 'tile')}"
            moved += f" of {self.box_dim} {self.data_type}" if self.box_dim else ""
        launched = f"grid of {self.grid} × {self.threads} threads"
        if self.blocks:
            launched += f", {counted(self.blocks, 'block')} on a multiprocessor at most"
        if shares_launch:
            launched = "in the same launch"
        elif self.shared_bytes:
            launched += f", {self.shared_bytes} B shared"
        in_flight = f"{counted(self.stages, 'tile')} in flight in a block" if self.stages else ""
        because = f"because {self.reason}" if self.reason else ""
        return [f"{self.name}: {self.path}", *(f"  {line}" for line in (moved, launched, in_flight, because) if line)]


Launches = list[list[Part]]
"""Parts, by the launch they share."""


def _part(
    name: str, path: str, through: str, size: LaunchSize, machine: Machine, plan: Any, moved: int, *,
    tiles: int = 0, tensor_map: TensorMap | None = None, reason: str = "",
) -> Part:  # fmt: skip
    box, data_type = ((), "") if tensor_map is None else _box_of(tensor_map)
    return Part(
        name, path, through, moved, tiles, box, data_type, size.stages, size.grid(machine.multiprocessors),
        size.threads, size.blocks, size.shared_bytes, reason, plan,
    )  # fmt: skip


def _box_of(tensor_map: TensorMap) -> tuple[tuple[int, ...], str]:
    parameters = tensor_map.decode()
    box: tuple[int, ...] = getattr(parameters, "box_dim", ())
    return tuple(map(int, box)), str(parameters.data_type)


def copied(name: str, plan: CopyPlan, machine: Machine) -> Launches:
    """The launches of a copy."""
    rest = plan.rest
    tail = f"{name} tail".strip()
    if plan.tiles is not None:
        return _tiled(name, plan, tile_size(plan.tiles, rest), machine, "stores")
    if plan.bulk is not None:
        path = f"one run, in bulk copies of {CHUNK_BYTES} B, without a tensor map"
        size, bulk = bulk_size(plan.bulk), plan.bulk
        return [[_part(name or "body", path, BULK, size, machine, plan, bulk.bytes, tiles=bulk.chunks)]]
    if plan.turned is None:
        return [] if rest is None else [[_words(name or "body", rest, machine, plan, plan.reason)]]
    if isinstance(plan.turned, TransposePlan):
        turned = plan.turned
        moved = turned.rows * turned.columns * turned.element_bytes * prod(turned.batches)
        body = _part(
            name or "body", "two dimensions change places, in swizzled tiles between tensor loads and stores", MAPS,
            transpose_size(turned), machine, plan, moved, tiles=turned.tiles, tensor_map=turned.source,
            reason=plan.reason,
        )  # fmt: skip
    else:
        region = plan.turned.region
        body = _part(
            name or "body", "two dimensions change places, in tiles of shared memory by ordinary loads and stores",
            WORDS, turn_size(plan.turned), machine, plan, region.bytes, tiles=plan.turned.tiles, reason=plan.reason,
        )  # fmt: skip
    return [[body], *([] if rest is None else [[_words(tail, rest, machine, plan, _ROW_ENDS)]])]


def reduced(plan: CopyPlan, itemsize: int, machine: Machine) -> Launches:
    """The launches of a reduction of elements of some bytes."""
    rest = plan.rest
    if plan.tiles is not None:
        return _tiled("", plan, tile_size(plan.tiles, rest), machine, "reductions")
    if rest is None:
        return []
    if (parts := owned_parts(plan, itemsize)) is not None:
        path = f"a thread for {parts.items.word} B of the destination, by ordinary loads and stores"
        if parts.count > 1:
            path += f", which takes {parts.count} parts of the source"
        return [[_part("body", path, WORDS, item_size(parts.items), machine, plan, rest.bytes, reason=plan.reason)]]
    path, size = "element by element, by ordinary instructions", word_size(rest.bytes // itemsize)
    return [[_part("body", path, WORDS, size, machine, plan, rest.bytes, reason=plan.reason)]]


def _tiled(name: str, plan: CopyPlan, size: LaunchSize, machine: Machine, stored: str) -> Launches:
    """Tiles between two maps, and beside them what they leave."""
    tiles, rest = plan.tiles, plan.rest
    assert tiles is not None
    moved = prod(tiles.global_dim) * tiles.source.box_bytes // prod(tiles.box_dim)
    path = f"rows as they are, in boxes between tensor loads and {stored}"
    parts = [
        _part(
            name or "body", path, MAPS, size, machine, plan, moved, tiles=tiles.tiles, tensor_map=tiles.source,
            reason=plan.reason,
        )
    ]  # fmt: skip
    if rest is not None:
        path, reason = "row ends, by the other warps of the same blocks", _ROW_ENDS if rest.run < UNIT else _FOLDED
        parts.append(
            _part(
                f"{name} tail".strip(), path, WORDS, replace(size, stages=0), machine, plan, rest.bytes,
                reason=reason,
            )
        )
    return [parts]


def _words(name: str, rest: Region, machine: Machine, plan: CopyPlan, reason: str) -> Part:
    word, items = word_bytes(rest), items_of(rest)
    if items is None:
        path, size = f"word by word, {word} B each, by ordinary loads and stores", word_size(rest.bytes // word)
    elif items.in_granules:
        path = f"in aligned granules of {GRANULE} B, shifted together where need be, by ordinary loads and stores"
        size = item_size(items)
    else:
        grouped = f", {GROUPS[word]} for a thread" if GROUPS[word] > 1 else ""
        path = f"word by word, {word} B each{grouped}, by ordinary loads and stores"
        size = item_size(items)
    return _part(name, path, WORDS, size, machine, plan, rest.bytes, reason=reason)


def _filled(name: str, plan: FillPlan, machine: Machine) -> Launches:
    path, size = "one value everywhere, by ordinary stores", word_size(plan.words)
    return [[_part(name, path, WORDS, size, machine, plan, plan.region.bytes, reason=plan.reason)]]


def _columns(name: str, plan: ColumnTilePlan, machine: Machine) -> Launches:
    row, found = plan.row_words * plan.source.box_bytes // (plan.channel_words * plan.pixels), plan.convolution
    path = "windows loaded through an im2col map, one load for each tap, and stored through a tiled map"
    return [[
        _part(
            name, path, MAPS, column_tile_size(plan), machine, plan, row * found.pixels * found.taps, tiles=plan.tiles,
            tensor_map=plan.destination,
        )
    ]]  # fmt: skip


def _column_words(name: str, plan: ColumnWordPlan, machine: Machine) -> Launches:
    path = f"word by word, {plan.word_bytes} B each, by ordinary loads and stores"
    moved = plan.destination.size * plan.destination.itemsize
    return [[_part(name, path, WORDS, column_word_size(plan), machine, plan, moved, reason=plan.reason)]]


def _sums(name: str, plan: FoldTilePlan, machine: Machine) -> Launches:
    numbers = plan.convolution.pixels * plan.convolution.taps * plan.channels
    moved = numbers * plan.source.box_bytes // prod(plan.box)
    path = "loaded through a tiled map, and added through another by tensor reductions; some tiles may add nothing"
    size = column_tile_size(plan)
    return [[_part(name, path, MAPS, size, machine, plan, moved, tiles=plan.tiles, tensor_map=plan.source)]]


def _sum_words(name: str, plan: FoldWordPlan, machine: Machine) -> Launches:
    path = "a thread sums up each number of the output, by ordinary loads and additions"
    moved = plan.source.size * plan.source.itemsize
    return [[_part(name, path, WORDS, column_word_size(plan), machine, plan, moved, reason=plan.reason)]]


def _rows(name: str, plan: RowsPlan, machine: Machine) -> Launches:
    if plan.is_empty:
        return []
    moved, size, name = plan.rows * plan.row_bytes, rows_size(plan), name or "body"
    if plan.stages is None:
        verb = "added by ordinary atomic instructions" if plan.operation == SCATTER_ADD else "moved word by word"
        path = f"rows by index, {verb}, {plan.word_bytes} B each"
        return [[_part(name, path, WORDS, size, machine, plan, moved, reason=plan.reason)]]
    of_rows = f"{plan.stages.rows_per_stage} rows" if plan.stages.pieces == 1 else f"1 of {plan.stages.pieces} pieces"
    loads, stores = "bulk loads", "tensor reductions" if plan.operation == SCATTER_ADD else "bulk stores"
    if plan.quads:
        loads, stores = ("tile::gather4", stores) if plan.operation == GATHER else (loads, "tile::scatter4")
    path = f"rows by index, {of_rows} of a row in a tile, by {loads} and {stores}".replace("rows of a row", "rows")
    if not plan.verified:
        path += " (compiled and simulated, not run on hardware)"
    through = BULK if plan.tensor_map is None else f"{BULK} and {MAPS}"
    return [[
        _part(name, path, through, size, machine, plan, moved, tiles=plan.items, tensor_map=plan.tensor_map)
    ]]  # fmt: skip


def _multicast(name: str, plan: MulticastPlan, machine: Machine) -> Launches:
    before = [] if plan.before is None else copied("first place" if plan.tiles else name, plan.before, machine)
    tiles = plan.tiles
    if tiles is None:
        return before
    path = f"each box loaded once for {tiles.cluster} blocks of a cluster, and stored by each to a copy of its own"
    moved = prod(tiles.global_dim) * prod(tiles.copies) * tiles.source.box_bytes // prod(tiles.box_dim)
    size, left = multicast_size(plan, tiles), None if plan.rest is None else plan.rest.bytes
    return [*before, _with_ends(name, path, size, machine, plan, moved, tiles.items, tiles.source, left)]


def broadcasted(plan: BroadcastPlan, itemsize: int, machine: Machine) -> Launches:
    """The launches of an operation of elements of some bytes with a vector."""
    tiles, left = plan.tiles, None if plan.rest is None else plan.rest.elements * itemsize
    if tiles is None:
        if left is None:
            return []
        path, size = "element by element, by ordinary loads and stores", word_size(left // itemsize)
        return [[_part("body", path, WORDS, size, machine, plan, left, reason=plan.reason)]]
    blocks = f"{tiles.cluster} blocks of a cluster" if tiles.cluster > 1 else "one block"
    path = f"boxes stream past a piece of the vector, which is loaded once for {blocks}"
    size, moved = broadcast_size(plan, tiles), prod(tiles.global_dim) * itemsize
    return [_with_ends("", path, size, machine, plan, moved, tiles.stripes * tiles.blocks, tiles.source, left)]


def _with_ends(
    name: str, path: str, size: LaunchSize, machine: Machine, plan: Any, moved: int, tiles: int, tensor_map: TensorMap,
    left: int | None,
) -> list[Part]:  # fmt: skip
    """A part of tiles, and beside it the row ends that they leave."""
    body = _part(
        name or "body", path, MAPS, size, machine, plan, moved, tiles=tiles, tensor_map=tensor_map, reason=plan.reason
    )
    if left is None:
        return [body]
    ends = "row ends, by other warps of the same blocks"
    tail = f"{name} tail".strip()
    return [body, _part(tail, ends, WORDS, replace(size, stages=0), machine, plan, left, reason=_ROW_ENDS)]


def multiplied(plan: MatmulPlan, machine: Machine) -> Launches:
    """The launch of a matrix product; none where nothing is to be computed."""
    if plan.is_empty:
        return []
    o, cost = plan.operands, plan.cost
    promoted = ", sums of 128 along K added in float32" * plan.is_promoted
    path = (
        f"{o.a.type.name} × {o.b.type.name} to {o.result} by wgmma, {plan.configuration}{promoted}; {cost.flops} flops "
        f"in {counted(cost.waves, 'wave')}, {cost.seconds * 1e6:.1f} µs expected, no less than "
        f"{cost.floor_seconds * 1e6:.1f} µs at the full rate of the tensor cores and of memory"
    )
    path += "" if plan.measured is None else f"; {plan.measured}"
    otherwise = o.m * (o.n - plan.columns_by_unit) * o.result_bytes
    tensor_map = plan.maps()[0] if o.k else None
    parts = [
        _part(
            "product", path, MAPS, plan.size, machine, plan, cost.bytes - otherwise, tiles=plan.tiles,
            tensor_map=tensor_map,
        )
    ]  # fmt: skip
    if otherwise:
        size, written = replace(plan.size, stages=0), "tiles from shared memory"
        reason = "rows of the result do not begin and end on 16 bytes, or are not dense"
        if plan.is_stored_by_unit:
            written = "the last columns from shared memory"
            reason = f"they are no whole tile of {plan.configuration.tile_rows}"
        parts.append(_part("result", written, WORDS, size, machine, plan, otherwise, reason=reason))
    return [parts]


# How a plan of each kind is told of.
_TOLD: dict[type, Callable[[str, Any, Machine], Launches]] = {
    ColumnTilePlan: _columns,
    ColumnWordPlan: _column_words,
    CopyPlan: copied,
    FillPlan: _filled,
    FoldTilePlan: _sums,
    FoldWordPlan: _sum_words,
    MulticastPlan: _multicast,
    RowsPlan: _rows,
}


def told(name: str, plan: Any, machine: Machine) -> Launches:
    """The launches of a plan of any kind, none where it is empty.

    Parameters
    ----------
    name : str
        What it is of the whole; empty where it is the whole.
    """
    return _TOLD[type(plan)](name, plan, machine)
