"""Copies between GPU arrays of any layout."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.copy_plan import CHUNK_BYTES, CHUNKS_PER_BLOCK, LINE, MAX_RANK, BulkPlan, CopyPlan, TilePlan
from cupytma.ops.layout import Region, permuted_view
from cupytma.ops.ordinary import GROUPS, MAX_OUTER_RANK, Items, items_of, places_argument, region_argument
from cupytma.ops.prepared import Address, Memory, PreparedCopy, addresses_in
from cupytma.ops.prepared import prepare as prepare_copy
from cupytma.ops.transposition import BAND, MAX_BATCHES, SHAPES, TransposePlan, TurnPlan
from cupytma.runtime.compiler import Module, compile, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.kernel import Kernel, current_device
from cupytma.runtime.occupancy import multiprocessors
from cupytma.runtime.places import place_of
from cupytma.runtime.plan import AddressedLaunch, Plan, Template
from cupytma.runtime.streams import current_handle, current_stream, handle_of, wait_for
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.tensormap.tensor_map import TensorMap

# What the ring of a block holds where it has several tiles; a launch has a block for each tile where it may.
STAGES = 2
_WARP_THREADS = 32
_ITEM_THREADS = 256
_WORD_COPY_THREADS = 256
_WORDS_PER_THREAD = 4
_WORD_COPY_BLOCKS_PER_MULTIPROCESSOR = 16
_TILE_ALIGNMENT = 128
_SWIZZLE_ALIGNMENT = 1024
_TURN_THREADS = 256
_TURN_BLOCKS_PER_MULTIPROCESSOR = 8

TILING = np.dtype([("box", "i4", 5), ("counts", "u4", 5), ("tiles", "u4"), ("tile_bytes", "u4")])
_TRANSPOSE_TILING = np.dtype(
    [("rows", "u4"), ("columns", "u4"), ("batches", "u4", MAX_BATCHES), ("tiles", "u4"), ("band", "u4")]
)

def copy(source: Any, destination: Any = None, *, stream: Any = None) -> Any:
    """Copy one GPU array to another, bit for bit, through the Tensor Memory Accelerator.

    Tiles move through two tensor maps where their rules allow: at least 16 bytes that lie together in both arrays,
    addresses and strides that are multiples of 16 bytes. Row ends within a 16-byte unit, and arrays that break those
    rules, are copied by ordinary loads and stores. Nothing outside the destination's elements is written.

    Parameters
    ----------
    source : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides.
    destination : array, optional
        Of the same shape, dtype and device; its elements may overlap neither each other nor the source. Default: a new
        C-contiguous CuPy array (a torch tensor if the source is one).
    stream : cupy.cuda.Stream, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        The destination. The copy is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator; the message names the simulator as the alternative.
    ArrayError
        If an array is in host memory, or shapes, dtypes or devices differ, or memory overlaps.
    """
    if destination is None:
        cupy()
        destination = empty(source, view_of(source).shape, stream)
    move(source, None, destination, stream)
    return destination


def move(source: Any, axes: Any, destination: Any, stream: Any = None, prepare: Prepare | None = None) -> None:
    """Copy an array, its dimensions in another order where axes are given, to another. Errors as for `copy`.

    Arrays of CuPy and torch take the short way: their layouts are keys to copies that were prepared before, and those
    that come again at the same addresses find launches with everything filled in.

    Parameters
    ----------
    axes : tuple of int or None
        Or whatever else says what is done where `prepare` is given.
    prepare : callable, optional
        Prepares another operation on the views of the two arrays; it is told the source's, `axes`, the destination's.
    """
    kind = source.__class__
    read = _described.get(kind)
    if read is None or kind is not destination.__class__ or stream is not None:
        _move_any(source, axes, destination, stream, prepare)
        return
    try:
        exact = axes, read(source), read(destination)
        known = _addressed.get(exact)
    except TypeError:  # host memory, or axes that are none: the long way says so
        _move_any(source, axes, destination, stream, prepare)
        return
    if known is not None and known[0] == current_device():
        handle = current_handle(known[0])
        for launch in known[1]:
            launch(handle)
        return
    _move_described(source, exact, destination, prepare)


def _move_described(source: Any, exact: tuple[Any, Any, Any], destination: Any, prepare: Prepare | None) -> None:
    """Move between two arrays as they are described, on their device."""
    axes, (start, place, *layout), (target, other, *layout_there) = exact
    if place != current_device():
        with cupy().cuda.Device(place):
            _move_any(source, axes, destination, None, prepare)
        return
    key = axes, place, other, start % LINE, target % LINE, *layout, *layout_there
    prepared = _prepared.get(key)
    if prepared is None:
        prepared = (prepare or _prepare)(view_of(source), axes, view_of(destination))
        _prepared.keep(key, prepared)
    prepared.launch(start, target, current_handle(place))
    if (code := hash(exact)) in _seen:
        _addressed.keep(exact, (place, prepared.at(start, target)))
    else:
        _seen.keep(code, True)


def _move_any(source: Any, axes: Any, destination: Any, stream: Any, prepare: Prepare | None) -> None:
    cupy()
    if stream is None:
        stream = current_stream(source, destination)
    views = view_of(source), view_of(destination)
    prepared = (prepare or _prepare)(views[0], axes, views[1])
    for view in views:
        wait_for(view.stream, stream)
    prepared.launch(views[0].address, views[1].address, handle_of(stream))
    for array in (source, destination):
        if array.__class__ not in layouts:
            learn(array.__class__)
        if array.__class__ not in _described:
            _describe(array.__class__)


def _prepare(source: ArrayView, axes: tuple[int, ...] | None, destination: ArrayView) -> PreparedCopy:
    check_devices(source, destination)
    if axes is not None:
        source = permuted_view(source, axes)
    key = replace(source, address=source.address % LINE), replace(destination, address=destination.address % LINE)
    found = _prepared.get(key)
    if found is None:
        device = int(source.device or 0)
        with cupy().cuda.Device(device):
            found = prepare_copy(source, destination, lambda plan, bases: _launches(plan, bases, device))
        _prepared.keep(key, found)
    return found


_prepared: Memory[PreparedCopy] = Memory()
# Launches by the operation, the two arrays' layouts and their addresses, for what was seen with these before.
_addressed: Memory[tuple[int, tuple[AddressedLaunch, ...]]] = Memory()
_seen: Memory[bool] = Memory()
Prepare = Callable[[ArrayView, Any, ArrayView], PreparedCopy]
# How the arrays that can be trusted say their layout, by their type.
layouts: dict[type, Callable[[Any], Any]] = {}


def learn(kind: type) -> None:
    """Remember how arrays of a type say their layout, if they are CuPy's or torch's."""
    torch, module = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        layouts[kind] = lambda tensor: (tensor.shape, tensor.stride(), tensor.dtype)
    elif module is not None and kind is getattr(module, "ndarray", None):
        layouts[kind] = lambda array: (array.shape, array.strides, array.dtype)


# How the arrays that can be trusted say their address, their device and their layout, by their type.
_described: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _describe(kind: type) -> None:
    torch, module = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        _described[kind] = lambda tensor: (*place_of(tensor), tensor.shape, tensor.stride(), tensor.dtype)
    elif module is not None and kind is getattr(module, "ndarray", None):
        _described[kind] = attrgetter("data.ptr", "data.device_id", "shape", "strides", "dtype")


def _launches(plan: CopyPlan, bases: tuple[int, int], device: int) -> tuple[Template, ...]:
    """A plan's launches, for other addresses than those it was made at."""
    return templates(plan_launches(plan, device), bases)


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


def empty(like: Any, shape: Sequence[int], stream: Any = None) -> Any:
    """A new array of a shape, of the kind, dtype and device of another.

    It is allocated on the stream that will write it, so that its memory is not in use on another.
    """
    view = view_of(like)
    if view.device is None:
        raise ArrayError(_HOST.format(name="source"))
    module = cupy()
    if type(like).__module__.partition(".")[0] == "torch":
        import torch

        if stream is None:
            return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
        with torch.cuda.stream(torch.cuda.ExternalStream(handle_of(stream), like.device)):
            return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
    if stream is None and view.device == current_device():
        return module.empty(tuple(shape), dtype=view.dtype)
    with module.cuda.Device(view.device), stream or module.cuda.get_current_stream():
        return module.empty(tuple(shape), dtype=view.dtype)


_HOST = (
    "the {name} is in host memory; the Tensor Memory Accelerator reaches device memory only: move it with "
    "cupy.asarray, or use cupytma.sim, which works on numpy arrays"
)


def check_devices(source: ArrayView, destination: ArrayView) -> None:
    """Refuse host memory, and arrays on different devices."""
    for name, view in (("source", source), ("destination", destination)):
        if view.device is None:
            raise ArrayError(_HOST.format(name=name))
    if source.device != destination.device:
        raise ArrayError(
            f"the source is on device {source.device} and the destination on device {destination.device}; copy within "
            "one device, or move one of them first"
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
    arguments = Address(bulk.source), Address(bulk.destination), bulk.bytes
    return kernel.plan(bulk.blocks, _WARP_THREADS * CHUNKS_PER_BLOCK, arguments)


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
    tile_bytes = tiles.source.box_bytes
    return kernel.plan(
        tiles.tiles,
        _WARP_THREADS * (1 + (rest is not None)),
        (tiles.source, tiles.destination, tiling_argument(tiles), argument),
        shared_bytes=-(-tile_bytes // _TILE_ALIGNMENT) * _TILE_ALIGNMENT + _TILE_ALIGNMENT,
    )


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
    grid = -(-items.total // _ITEM_THREADS)
    return kernel.plan(grid, _ITEM_THREADS, (places_argument(region, items), *more))


def _word_launch(region: Region, device: int) -> Plan:
    return plan_words(_copy_module(str(current_target())).kernel("word_copy"), region_argument(region), device)


def plan_words(kernel: Kernel, argument: Any, device: int, words: int | None = None) -> Plan:
    """A launch of a kernel that works on a region by ordinary loads and stores, on so many words or the region's."""
    words = int(argument["words"]) if words is None else words
    blocks = -(-words // (_WORD_COPY_THREADS * _WORDS_PER_THREAD))
    grid = min(blocks, _WORD_COPY_BLOCKS_PER_MULTIPROCESSOR * multiprocessors(device))
    return kernel.plan(grid, _WORD_COPY_THREADS, (argument,))


def _transpose_launch(plan: TransposePlan, device: int) -> Plan:
    rows, columns = plan.counts
    tiling = np.zeros((), _TRANSPOSE_TILING)
    tiling["rows"], tiling["columns"], tiling["tiles"] = rows, columns, plan.tiles
    tiling["batches"] = plan.batches + (1,) * (MAX_BATCHES - len(plan.batches))
    tiling["band"] = min(BAND, rows)
    shape = plan.shape
    kernel = transpose_module(str(current_target()), plan.element_bytes, 2 + len(plan.batches)).kernel("transpose")
    return kernel.plan(
        min(plan.tiles, shape.blocks * multiprocessors(device)),
        shape.threads + _WARP_THREADS,
        (plan.source, plan.destination, tiling[()]),
        shared_bytes=(shape.stages + shape.outputs) * plan.tile_bytes + _SWIZZLE_ALIGNMENT,
    )


def _turn_launch(plan: TurnPlan, device: int) -> Plan:
    grid = min(plan.tiles, _TURN_BLOCKS_PER_MULTIPROCESSOR * multiprocessors(device))
    kernel = turn_module(str(current_target())).kernel(f"turn_{plan.region.run}")
    return kernel.plan(grid, _TURN_THREADS, (region_argument(plan.region, plan.region.run), plan.tiles))


_HEADERS = re.compile(r"#include <((?!cupytma\b)\w+\.cuh)>")


def compiled(name: str, target: str, **defines: int | str) -> Module:
    """One of the package's kernel sources, compiled with macros."""
    kernels = import_module("cupytma.kernels")  # in a source tree it is where type checkers do not look
    text = kernels.source(name)
    return compile(
        text, target, defines={"MAX_OUTER_RANK": MAX_OUTER_RANK, **defines},
        headers={header: kernels.source(header) for header in _HEADERS.findall(text)},
    )


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
