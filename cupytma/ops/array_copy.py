"""Copies between GPU arrays of any layout."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.copy_plan import MAX_RANK, CopyPlan, TilePlan, plan_copy
from cupytma.ops.layout import Region
from cupytma.runtime.compiler import Module, compile, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.plan import Plan
from cupytma.runtime.streams import current_stream, wait_for
from cupytma.tensormap.arrays import ArrayView, view_of

# Boxes in flight in one block, and blocks on one multiprocessor: their product times the box is what hides the latency.
STAGES = 3
BLOCKS_PER_MULTIPROCESSOR = 2
_HELPER_THREADS = 128
_WARP_THREADS = 32
_WORD_COPY_THREADS = 256
_WORDS_PER_THREAD = 4
_WORD_COPY_BLOCKS_PER_MULTIPROCESSOR = 16
_TILE_ALIGNMENT = 128
_MAX_OUTER_RANK = 31

_TILING = np.dtype([("box", "i4", 5), ("counts", "u4", 5), ("tiles", "u4"), ("tile_bytes", "u4")])
_REGION = np.dtype(
    [
        ("source", "u8"), ("destination", "u8"), ("words", "u8"), ("run", "u8"),
        ("extents", "u8", _MAX_OUTER_RANK), ("source_strides", "i8", _MAX_OUTER_RANK),
        ("destination_strides", "i8", _MAX_OUTER_RANK), ("outer_rank", "i4"), ("word_bytes", "i4"),
    ]
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
    module = cupy()
    if stream is None:
        stream = current_stream(source, destination)
    if destination is None:
        destination = _empty_like(source, stream)
    views = view_of(source), view_of(destination)
    _check_devices(*views)
    plan = plan_copy(*views)
    if plan.tiles is None and plan.rest is None:
        return destination
    device = int(views[0].device or 0)
    with module.cuda.Device(device):
        for view in views:
            wait_for(view.stream, stream)
        _prepared(plan, device)(stream)
    return destination


def _empty_like(source: Any, stream: Any) -> Any:
    """A new array, allocated on the stream that will write it, so that its memory is not in use on another."""
    view = view_of(source)
    if view.device is None:
        raise ArrayError(_HOST.format(name="source"))
    if type(source).__module__.partition(".")[0] == "torch":
        import torch

        with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, source.device)):
            return torch.empty(source.shape, dtype=source.dtype, device=source.device)
    module = cupy()
    with module.cuda.Device(view.device), stream:
        return module.empty(view.shape, dtype=view.dtype)


_HOST = (
    "the {name} is in host memory; the Tensor Memory Accelerator reaches device memory only: move it with "
    "cupy.asarray, or use cupytma.sim, which works on numpy arrays"
)


def _check_devices(source: ArrayView, destination: ArrayView) -> None:
    for name, view in (("source", source), ("destination", destination)):
        if view.device is None:
            raise ArrayError(_HOST.format(name=name))
    if source.device != destination.device:
        raise ArrayError(
            f"the source is on device {source.device} and the destination on device {destination.device}; copy within "
            "one device, or move one of them first"
        )


@lru_cache(maxsize=256)
def _prepared(plan: CopyPlan, device: int) -> Plan:
    """The launch of a plan that has something to copy."""
    code = _module(str(current_target()))
    if plan.tiles is not None:
        return _tile_launch(code, plan.tiles, plan.rest, device)
    region = _region_argument(plan.rest)
    blocks = -(-int(region["words"]) // (_WORD_COPY_THREADS * _WORDS_PER_THREAD))
    grid = min(blocks, _WORD_COPY_BLOCKS_PER_MULTIPROCESSOR * _multiprocessors(device))
    return code.kernel("word_copy").plan(grid, _WORD_COPY_THREADS, (region,))


def _tile_launch(code: Module, tiles: TilePlan, rest: Region | None, device: int) -> Plan:
    tile_bytes = tiles.source.box_bytes
    return code.kernel(f"tile_copy_{tiles.rank}d").plan(
        min(tiles.tiles, BLOCKS_PER_MULTIPROCESSOR * _multiprocessors(device)),
        _WARP_THREADS + (_HELPER_THREADS if rest is not None else 0),
        (tiles.source, tiles.destination, _tiling_argument(tiles), _region_argument(rest)),
        shared_bytes=STAGES * -(-tile_bytes // _TILE_ALIGNMENT) * _TILE_ALIGNMENT + _TILE_ALIGNMENT,
    )


@cache
def _module(target: str) -> Module:
    kernels = import_module("cupytma.kernels")  # in a source tree it is where type checkers do not look
    return compile(
        kernels.source("copy.cu"), target, defines={"STAGES": STAGES, "MAX_OUTER_RANK": _MAX_OUTER_RANK}
    )


@cache
def _multiprocessors(device: int) -> int:
    return int(cupy().cuda.Device(device).attributes["MultiProcessorCount"])


def _tiling_argument(tiles: TilePlan) -> Any:
    argument = np.zeros((), _TILING)
    argument["box"] = tiles.box_dim + (1,) * (MAX_RANK - tiles.rank)
    argument["counts"] = tiles.counts + (1,) * (MAX_RANK - tiles.rank)
    argument["tiles"], argument["tile_bytes"] = tiles.tiles, tiles.source.box_bytes
    return argument[()]


def _region_argument(region: Region | None) -> Any:
    argument = np.zeros((), _REGION)
    if region is not None:
        if len(region.outer) > _MAX_OUTER_RANK:
            raise ArrayError(
                f"{len(region.outer) + 1} dimensions are left after merging; {_MAX_OUTER_RANK + 1} is the most"
            )
        word = _word_bytes(region)
        argument["source"], argument["destination"] = region.source, region.destination
        argument["words"], argument["run"] = region.bytes // word, region.run // word
        argument["outer_rank"], argument["word_bytes"] = len(region.outer), word
        for i, dimension in enumerate(region.outer):
            argument["extents"][i] = dimension.extent
            argument["source_strides"][i] = dimension.source_stride
            argument["destination_strides"][i] = dimension.destination_stride
    return argument[()]


def _word_bytes(region: Region) -> int:
    """The longest word that every address of a region is a multiple of."""
    numbers = [region.source, region.destination, region.run]
    numbers += [s for dim in region.outer for s in (dim.source_stride, dim.destination_stride)]
    return next(word for word in (16, 8, 4, 2, 1) if all(number % word == 0 for number in numbers))
