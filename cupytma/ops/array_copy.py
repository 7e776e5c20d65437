"""Copies between GPU arrays of any layout."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.copy_plan import CHUNK_BYTES, CHUNKS_PER_BLOCK, LINE, MAX_RANK, BulkPlan, CopyPlan, TilePlan
from cupytma.ops.launch_size import LaunchSize
from cupytma.ops.layout import Region, permuted_view
from cupytma.ops.ordinary import GROUPS, MAX_OUTER_RANK, Items, items_of, places_argument, region_argument
from cupytma.ops.prepared import Address, Memory, Prepared, addresses_in
from cupytma.ops.prepared import prepare as prepare_copy
from cupytma.ops.transposition import BAND, MAX_BATCHES, SHAPES, TransposePlan, TurnPlan
from cupytma.runtime.compiler import Module, compile, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.kernel import Kernel, current_device
from cupytma.runtime.places import place_of
from cupytma.runtime.plan import Plan, Template
from cupytma.runtime.streams import current_handle, current_stream, handle_of, wait_for
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.tensormap.tensor_map import TensorMap

# What the ring of a block holds where it has several tiles; a launch has a block for each tile where it may.
STAGES = 2
WARP_THREADS = 32
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


def move(
    source: Any, axes: Any, destination: Any, stream: Any = None, prepare: Prepare | None = None, index: Any = None
) -> None:
    """Copy an array, its dimensions in another order where axes are given, to another. Errors as for `copy`.

    Arrays of CuPy and torch take the short way: their layouts are keys to copies that were prepared before, and those
    that come again at the same addresses find launches with everything filled in.

    Parameters
    ----------
    axes : tuple of int or None
        Or whatever else says what is done where `prepare` is given.
    prepare : callable, optional
        Prepares another operation on the views of the two arrays; it is told the source's, `axes`, the destination's,
        and the index's if there is one.
    index : array, optional
        Read beside the source.
    """
    kind = source.__class__
    read = _described.get(kind)
    if read is None or kind is not destination.__class__ or stream is not None:
        _move_any(source, axes, destination, stream, prepare, index)
        return
    try:
        exact: tuple[Any, ...] = axes, read(source), read(destination)
        if index is not None:
            if kind is not index.__class__:
                raise TypeError
            exact = *exact, read(index)
        known = _addressed.get(exact)
    except TypeError:  # host memory, an index of another kind, or axes that are none: the long way says so
        _move_any(source, axes, destination, stream, prepare, index)
        return
    if known is not None and known[0] == current_device():
        handle = current_handle(known[0])
        for launch in known[1]:
            launch(handle)
        return
    _move_described(exact, prepare, source, destination, index)


def _move_described(
    exact: tuple[Any, ...], prepare: Prepare | None, source: Any, destination: Any, index: Any
) -> None:
    """Move between arrays as they are described, on their device."""
    axes, *descriptions = exact
    place = descriptions[0][1]
    if place != current_device():
        _move_any(source, axes, destination, None, prepare, index)
        return
    key = axes, *((start % LINE, *others) for start, *others in descriptions)
    prepared = _prepared.get(key)
    if prepared is None:
        prepared = _prepare_views(axes, prepare, source, destination, index)
        _prepared.keep(key, prepared)
    addresses = [description[0] for description in descriptions]
    prepared.launch(current_handle(place), *addresses)
    if (code := hash(exact)) in _seen:
        _addressed.keep(exact, (place, prepared.at(*addresses)))
    else:
        _seen.keep(code, True)


def _move_any(source: Any, axes: Any, destination: Any, stream: Any, prepare: Prepare | None, index: Any) -> None:
    cupy()
    arrays = (source, destination) if index is None else (source, destination, index)
    views = tuple(map(view_of, arrays))
    prepared = _prepare_views(axes, prepare, *views)
    with cupy().cuda.Device(views[0].device):
        if stream is None:
            stream = current_stream(*arrays)
        for view in views:
            wait_for(view.stream, stream)
        prepared.launch(handle_of(stream), *(view.address for view in views))
    for array in arrays:
        if array.__class__ not in layouts:
            learn(array.__class__)
        if array.__class__ not in _described:
            _describe(array.__class__)


def _prepare_views(axes: Any, prepare: Prepare | None, source: Any, *others: Any) -> Prepared:
    views = (view_of(other) for other in others if other is not None)
    return (prepare or _prepare)(view_of(source), axes, *views)


def _prepare(source: ArrayView, axes: tuple[int, ...] | None, destination: ArrayView) -> Prepared:
    check_devices(source, destination)
    if axes is not None:
        source = permuted_view(source, axes)
    device = int(source.device or 0)
    return _prepared.once(
        None, (source, destination),
        lambda: prepare_copy(source, destination, lambda plan, bases: _launches(plan, bases, device)),
    )  # fmt: skip


_prepared: Memory[Prepared] = Memory()
# Launches by the operation, the arrays' layouts and their addresses, for what was seen with these before.
_addressed: Memory[tuple[int, tuple[Callable[[int], None], ...]]] = Memory()
_seen: Memory[bool] = Memory()
Prepare = Callable[..., Prepared]
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


def empty(like: Any, shape: Sequence[int], stream: Any = None, dtype: str | None = None) -> Any:
    """A new array of a shape, of the kind and device of another, and its dtype or the one that is named.

    It is allocated on the stream that will write it, so that its memory is not in use on another.
    """
    view = view_of(like)
    if view.device is None:
        raise ArrayError(_HOST.format(name="source"))
    module = cupy()
    if type(like).__module__.partition(".")[0] == "torch":
        import torch

        kind = like.dtype if dtype is None else getattr(torch, dtype)
        if stream is None:
            return torch.empty(tuple(shape), dtype=kind, device=like.device)
        with torch.cuda.stream(torch.cuda.ExternalStream(handle_of(stream), like.device)):
            return torch.empty(tuple(shape), dtype=kind, device=like.device)
    if stream is None and view.device == current_device():
        return module.empty(tuple(shape), dtype=dtype or view.dtype)
    with module.cuda.Device(view.device), stream or module.cuda.get_current_stream():
        return module.empty(tuple(shape), dtype=dtype or view.dtype)


_HOST = (
    "the {name} is in host memory; the Tensor Memory Accelerator reaches device memory only: move it with "
    "cupy.asarray, or use cupytma.sim, which works on numpy arrays"
)


def check_devices(source: ArrayView, destination: ArrayView) -> None:
    """Refuse host memory, and arrays on different devices."""
    for name, view in (("source", source), ("destination", destination)):
        if view.device is None:
            raise ArrayError(_HOST.format(name=name))
    check_one_device(source, destination)


def check_one_device(source: ArrayView, destination: ArrayView) -> None:
    """Refuse arrays on different devices."""
    if source.device != destination.device:
        raise ArrayError(
            f"the source is {place_in_words(source)} and the destination {place_in_words(destination)}; copy within "
            "one device, or move one of them first"
        )


def place_in_words(view: ArrayView) -> str:
    """Where an array is, in words."""
    return "in host memory" if view.device is None else f"on device {view.device}"


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
    stage_bytes = -(-tiles.source.box_bytes // _TILE_ALIGNMENT) * _TILE_ALIGNMENT
    return LaunchSize(tiles.tiles, 0, WARP_THREADS * (1 + (rest is not None)), stage_bytes + _TILE_ALIGNMENT)


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
        (shape.stages + shape.outputs) * plan.tile_bytes + _SWIZZLE_ALIGNMENT, shape.stages,
    )  # fmt: skip


def _turn_launch(plan: TurnPlan, device: int) -> Plan:
    kernel = turn_module(str(current_target())).kernel(f"turn_{plan.region.run}")
    return turn_size(plan).plan(kernel, (region_argument(plan.region, plan.region.run), plan.tiles), device)


def turn_size(plan: TurnPlan) -> LaunchSize:
    """Of a launch that transposes by ordinary loads and stores."""
    return LaunchSize(plan.tiles, _TURN_BLOCKS_PER_MULTIPROCESSOR, _TURN_THREADS)


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
