"""The launches of copies: which kernel each part of a plan has, with what arguments, and how large."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from cupytma.limits import MAX_RANK, SWIZZLE_PERIOD, TILE_ALIGNMENT, WARP_THREADS
from cupytma.ops.copy_plan import CHUNK_BYTES, CHUNKS_PER_BLOCK, BulkPlan, CopyPlan, TilePlan
from cupytma.ops.launch_size import LaunchSize
from cupytma.ops.layout import Region
from cupytma.ops.ordinary import GROUPS, MAX_OUTER_RANK, Items, items_of, places_argument, region_argument
from cupytma.ops.prepared import Address, addresses_in
from cupytma.ops.transposition import BAND, MAX_BATCHES, SHAPES, TransposePlan, TurnPlan
from cupytma.runtime.compiler import Module, compile, current_target
from cupytma.runtime.kernel import Kernel
from cupytma.runtime.plan import Plan, Template
from cupytma.tensormap.tensor_map import TensorMap

# What the ring of a block holds where it has several tiles; a launch has a block for each tile where it may.
STAGES = 2
_ITEM_THREADS = 256
_WORD_COPY_THREADS = 256
_WORDS_PER_THREAD = 4
_WORD_COPY_BLOCKS_PER_MULTIPROCESSOR = 16
TURN_THREADS = 256
TURN_BLOCKS_PER_MULTIPROCESSOR = 8

TILING = np.dtype([("box", "i4", 5), ("counts", "u4", 5), ("tiles", "u4"), ("tile_bytes", "u4")])
_TRANSPOSE_TILING = np.dtype(
    [("rows", "u4"), ("columns", "u4"), ("batches", "u4", MAX_BATCHES), ("tiles", "u4"), ("band", "u4")]
)


def plan_launches(plan: CopyPlan, device: int) -> tuple[Plan, ...]:
    """The launches of a plan that has something to copy."""
    if plan.tiles is not None:
        return (_tile_launch(plan.tiles, plan.rest),)
    launches = []
    if plan.bulk is not None:
        launches.append(_bulk_launch(plan.bulk))
    elif isinstance(plan.turned, TransposePlan):
        launches.append(_transpose_launch(plan.turned, device))
    elif plan.turned is not None:
        launches.append(_turn_launch(plan.turned, device))
    if plan.rest is not None:
        launches.append(_ordinary_launch(plan.rest, device))
    return tuple(launches)


def _bulk_launch(bulk: BulkPlan) -> Plan:
    kernel = _copy_module(str(current_target())).kernel("bulk_copy")
    return bulk_size(bulk).plan(kernel, (Address(bulk.source), Address(bulk.destination), bulk.bytes))


def bulk_size(bulk: BulkPlan) -> LaunchSize:
    """Of a launch that moves one run by bulk copies, a warp for each."""
    return LaunchSize(bulk.blocks, 0, WARP_THREADS * CHUNKS_PER_BLOCK)


def _tile_launch(tiles: TilePlan, rest: Region | None) -> Plan:
    kernel = _copy_module(str(current_target())).kernel(f"tile_copy_{tiles.rank}d")
    return plan_tiles(kernel, tiles, rest, region_argument(rest))


def plan_tiles(kernel: Kernel, tiles: TilePlan, rest: Region | None, argument: Any) -> Plan:
    """A launch of a kernel that moves tiles, one in each block, and beside them what is left.

    Parameters
    ----------
    argument
        What the kernel is told of `rest`.
    """
    arguments = tiles.source, tiles.destination, tiling_argument(tiles), argument
    return tile_size(tiles, rest).plan(kernel, arguments)


def tile_size(tiles: TilePlan, rest: Region | None) -> LaunchSize:
    """Of a launch that moves tiles: one warp of each block; what is left is moved by another."""
    stage_bytes = -(-tiles.source.box_bytes // TILE_ALIGNMENT) * TILE_ALIGNMENT
    return LaunchSize(tiles.tiles, 0, WARP_THREADS * (1 + (rest is not None)), stage_bytes + TILE_ALIGNMENT)


def _ordinary_launch(region: Region, device: int) -> Plan:
    items = items_of(region)
    if items is None:
        return _word_launch(region, device)
    target = str(current_target())
    name = "granules" if items.in_granules else "words"
    kernel = _ordinary_module(target, name, items.word).kernel(f"copy_{name}_{len(region.outer) + 1}d")
    return plan_items(kernel, region, items)


def plan_items(kernel: Kernel, region: Region, items: Items, *more: Any) -> Plan:
    """A launch of a kernel that has a thread for each item of a region; `more` are its further arguments."""
    return item_size(items).plan(kernel, (places_argument(region, items), *more))


def item_size(items: Items) -> LaunchSize:
    """Of a launch that has a thread for each item."""
    return LaunchSize(-(-items.total // _ITEM_THREADS), 0, _ITEM_THREADS)


def _word_launch(region: Region, device: int) -> Plan:
    return plan_words(_copy_module(str(current_target())).kernel("word_copy"), region_argument(region), device)


def plan_words(kernel: Kernel, argument: Any, device: int, words: int | None = None) -> Plan:
    """A launch of a kernel that works on a region by ordinary loads and stores, on so many words or the region's."""
    return word_size(int(argument["words"]) if words is None else words).plan(kernel, (argument,), device)


def word_size(words: int) -> LaunchSize:
    """Of a launch that works on so many words by ordinary loads and stores."""
    most = -(-words // (_WORD_COPY_THREADS * _WORDS_PER_THREAD))
    return LaunchSize(most, _WORD_COPY_BLOCKS_PER_MULTIPROCESSOR, _WORD_COPY_THREADS)


def _transpose_launch(plan: TransposePlan, device: int) -> Plan:
    rows, columns = plan.counts
    tiling = np.zeros((), _TRANSPOSE_TILING)
    tiling["rows"], tiling["columns"], tiling["tiles"] = rows, columns, plan.tiles
    tiling["batches"] = plan.batches + (1,) * (MAX_BATCHES - len(plan.batches))
    tiling["band"] = min(BAND, rows)
    kernel = transpose_module(str(current_target()), plan.element_bytes, 2 + len(plan.batches)).kernel("transpose")
    return transpose_size(plan).plan(kernel, (plan.source, plan.destination, tiling[()]), device)


def transpose_size(plan: TransposePlan) -> LaunchSize:
    """Of a launch that transposes through tensor maps: one warp of each block loads."""
    shape = plan.shape
    return LaunchSize(
        plan.tiles, shape.blocks, shape.threads + WARP_THREADS,
        (shape.stages + shape.outputs) * plan.tile_bytes + SWIZZLE_PERIOD, shape.stages,
    )  # fmt: skip


def _turn_launch(plan: TurnPlan, device: int) -> Plan:
    kernel = turn_module(str(current_target())).kernel(f"turn_{plan.region.run}")
    return turn_size(plan).plan(kernel, (region_argument(plan.region, plan.region.run), plan.tiles), device)


def turn_size(plan: TurnPlan) -> LaunchSize:
    """Of a launch that transposes by ordinary loads and stores."""
    return LaunchSize(plan.tiles, TURN_BLOCKS_PER_MULTIPROCESSOR, TURN_THREADS)


_HEADERS = re.compile(r"#include <((?!cupytma\b)\w+\.cuh)>")


def compiled(name: str, target: str, **defines: int | str) -> Module:
    """One of the package's kernel sources, compiled with macros."""
    kernels = import_module("cupytma.kernels")  # in a source tree it is where type checkers do not look
    text, headers = kernels.source(name), {}
    waiting = _HEADERS.findall(text)
    while waiting:
        header = waiting.pop()
        headers[header] = kernels.source(header)
        waiting += _HEADERS.findall(headers[header])
    return compile(text, target, defines={"MAX_OUTER_RANK": MAX_OUTER_RANK, **defines}, headers=headers)


@cache
def _copy_module(target: str) -> Module:
    return compiled("copy.cu", target, STAGES=STAGES, CHUNK_BYTES=CHUNK_BYTES, CHUNKS_PER_BLOCK=CHUNKS_PER_BLOCK)


@cache
def _ordinary_module(target: str, name: str, word: int) -> Module:
    """The kernels in which a thread copies a few words of a run, or one granule."""
    return compiled(f"{name}.cu", target, WORD_BYTES=word, GROUP=GROUPS[word])


@cache
def turn_module(target: str) -> Module:
    """The kernels that turn tiles by ordinary loads and stores."""
    return compiled("turn.cu", target)


@cache
def transpose_module(target: str, element_bytes: int, rank: int) -> Module:
    """The kernel that transposes elements of a size through tensor maps of a rank."""
    shape = SHAPES[element_bytes]
    return compiled(
        "transpose.cu", target, ELEMENT_BYTES=element_bytes, RANK=rank, SQUARE_ROWS=shape.square_rows,
        SQUARE_COLUMNS=shape.square_columns, STAGES=shape.stages, OUTPUTS=shape.outputs, THREADS=shape.threads,
    )


def tiling_argument(tiles: TilePlan) -> Any:
    """What kernels are told of tiles."""
    return tiling_of(tiles.box_dim, tiles.counts, tiles.source.box_bytes)


def tiling_of(box: Sequence[int], counts: Sequence[int], tile_bytes: int) -> Any:
    """What kernels are told of tiles of a box, of which there are some along each dimension."""
    argument, padding = np.zeros((), TILING), (1,) * (MAX_RANK - len(box))
    argument["box"], argument["counts"] = (*box, *padding), (*counts, *padding)
    argument["tiles"], argument["tile_bytes"] = prod(counts), tile_bytes
    return argument[()]


def templates(launches: Sequence[Plan], bases: Sequence[int]) -> tuple[Template, ...]:
    """Launches that were planned at some addresses, for others."""
    return tuple(launch.template(addresses_in(pointers(launch), bases)) for launch in launches)


# What structs that are arguments call their addresses.
_POINTERS = ("source", "vector", "destination")


def pointers(launch: Plan) -> list[tuple[int, int]]:
    """Offset and value of every address in a launch's arguments."""
    places = []
    for parameter, argument in zip(launch.kernel.signature.parameters, launch.arguments, strict=True):
        if isinstance(argument, (TensorMap, Address)):
            places.append(parameter.offset)
        elif isinstance(argument, np.void):
            fields = dict(argument.dtype.fields or {})
            places += [parameter.offset + int(fields[name][1]) for name in _POINTERS if name in fields]
    data = launch.data
    return [(place, int.from_bytes(data[place : place + 8], "little")) for place in places]
