"""A vector combined with every row or column of a GPU array, the vector multicast to clusters of blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.limits import TILE_ALIGNMENT, UNIT, WARP_THREADS
from cupytma.ops.array_copy import check_devices, empty
from cupytma.ops.broadcast_plan import (
    ELEMENTS,
    OPERATIONS,
    BroadcastPlan,
    ElementRegion,
    StripePlan,
    axis_of,
    check_operands,
    plan_broadcast,
)
from cupytma.ops.copy_launches import TILING, compiled, plan_words, templates, tiling_of
from cupytma.ops.launch_size import LaunchSize
from cupytma.ops.layout import check_addresses
from cupytma.ops.multicast import resident_clusters
from cupytma.ops.ordinary import MAX_OUTER_RANK
from cupytma.ops.prepared import BASES, Memory, span_bytes
from cupytma.ops.short_way import launch_the_long_way, short_ways
from cupytma.runtime.compiler import Module, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.kernel import current_device
from cupytma.runtime.plan import Plan, Template
from cupytma.tensormap.arrays import ArrayView, view_of

# Tiles in flight in one block, warps that combine them, and blocks on one multiprocessor.
BROADCAST_STAGES = 4
COMBINING_WARPS = 8
BROADCAST_BLOCKS_PER_MULTIPROCESSOR = 2
_HELPER_THREADS = 128
# Clusters on the device that may be without work in the last round, as a part of all.
_MOST_IDLE = 1 / 8
_MOST_PARTS = 64
# Where plans are made, far from one another: of source, vector and destination.
_BASES = BASES[0], 1 << 52, BASES[1]

_STRIPES = np.dtype(
    [
        ("tiling", TILING),
        *((name, "u4") for name in ("stripes", "blocks", "stripe_step", "block_step", "length", "vector_box")),
        *((name, "u4") for name in ("vector_boxes", "by_rows", "per_element", "is_flat")),
    ]
)
_ELEMENTS = np.dtype(
    [
        *((name, "u8") for name in ("source", "vector", "destination", "first", "elements")),
        ("extents", "u8", MAX_OUTER_RANK + 1),
        *((f"{name}_strides", "i8", MAX_OUTER_RANK + 1) for name in ("source", "vector", "destination")),
        ("rank", "i4"), ("unused", "i4"),
    ]
)

_DOCUMENTATION = """{summary}

    As ``{expression}`` of a matrix with a row of values (``axis=-1``) or, with ``axis=0``, a column of them; so along
    one axis of any array. Where the rules of tensor maps allow, tiles of ``x`` stream through shared memory, by tensor
    loads and stores, past the piece of the vector that belongs to them: that piece is loaded once for a cluster of
    blocks, by multicast tensor loads, and stays. Row ends within a 16-byte unit, and arrays that break those rules, are
    combined by ordinary loads and stores with the same arithmetic. Nothing outside the elements of ``out`` is written.

    The kernel has a second form for architectures with ``.cta_group::2``, in which the vector's loads for a pair of
    blocks complete on one mbarrier; it is compiled for sm_100a, and has not been run on hardware.

    Parameters
    ----------
    x : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of at least one dimension and any
        strides; int8 to int64, uint8 to uint64, float16, bfloat16, float32 or float64.
    vector : array
        Of shape ``(x.shape[axis],)``, the same dtype and device.
    out : array, optional
        Of the shape, dtype and device of ``x``. It may be ``x`` itself, and overlaps neither ``x`` in another way nor
        ``vector``. Default: a new C-contiguous array of the caller's kind.
    axis : int
        The axis of ``x`` that the vector lies along, in array order; negative ones count from the end.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``out``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If there is no such axis, the dtype has no arithmetic here, an array is in host memory, not aligned to its
        elements or read-only where it is written, or shapes, dtypes or devices differ, or memory overlaps.

    Notes
    -----
    {arithmetic}
    """
_ROUNDED = (
    "Integers wrap. float32 and float64 round to nearest even once; float16 and bfloat16 are computed in float32 and "
    "rounded to nearest even, as torch does. Denormals are kept. Which NaN comes out is not defined."
)
_PICKED = "A NaN in either place gives a NaN, as in numpy and torch."
# Summary, expression and notes of each.
_TEXTS = {
    "add": ("An array plus a vector along one axis.", "x + vector", _ROUNDED),
    "mul": ("An array times a vector along one axis.", "x * vector", _ROUNDED),
    "min": ("The minimum of an array and a vector along one axis.", "minimum(x, vector)", _PICKED),
    "max": ("The maximum of an array and a vector along one axis.", "maximum(x, vector)", _PICKED),
}


def _broadcaster(operation: str) -> Callable[..., Any]:
    def broadcast(x: Any, vector: Any, out: Any = None, *, axis: int = -1, stream: Any = None) -> Any:
        cupy()
        if out is None:
            out = empty(x, view_of(x).shape, stream)
        _move(operation, axis, x, vector, out, stream)
        return out

    summary, expression, arithmetic = _TEXTS[operation]
    broadcast.__doc__ = _DOCUMENTATION.format(summary=summary, expression=expression, arithmetic=arithmetic)
    broadcast.__name__ = broadcast.__qualname__ = f"broadcast_{operation}"
    return broadcast


broadcast_add = _broadcaster("add")
broadcast_mul = _broadcaster("mul")
broadcast_min = _broadcaster("min")
broadcast_max = _broadcaster("max")


@dataclass(frozen=True)
class PreparedBroadcast:
    """An operation between any arrays of the layouts that this was prepared for.

    Attributes
    ----------
    launches : tuple of Template
        Given the addresses of array, vector and result; none where there is nothing to do.
    views : tuple of ArrayView
        The three layouts; their addresses mean nothing.
    spans : tuple of tuple of int
        How far each reaches below and above its address, in bytes.
    """

    launches: tuple[Template, ...]
    views: tuple[ArrayView, ArrayView, ArrayView]
    spans: tuple[tuple[int, int], ...]

    def __call__(self, handle: int, source: int, vector: int, destination: int) -> None:
        """Carry it out at three addresses, in a stream.

        Raises
        ------
        ArrayError
            If the result overlaps what it is made of, or an array has elements and no memory.
        """
        if not (source and vector and destination):
            check_addresses(self.views, (source, vector, destination), ("x", "vector", "out"))
        low, high = destination + self.spans[2][0], destination + self.spans[2][1]
        for address, (below, above) in ((source, self.spans[0]), (vector, self.spans[1])):
            if address + below < high and low < address + above:
                placed = zip(self.views, (source, vector, destination), strict=True)
                check_operands(*(replace(view, address=address) for view, address in placed))
                break
        for launch in self.launches:
            launch(handle, source, vector, destination)


_prepared: Memory[PreparedBroadcast] = Memory()


def _move(operation: str, axis: Any, source: Any, vector: Any, destination: Any, stream: Any) -> None:
    """Arrays of CuPy and torch take the short way: their layouts are keys to what was prepared before."""
    kind = source.__class__
    way = short_ways.get(kind)
    if way is None or kind is not vector.__class__ or kind is not destination.__class__ or stream is not None:
        _move_any(operation, axis, source, vector, destination, stream)
        return
    try:
        described = way.read(source), way.read(vector), way.read(destination)
        key = operation, axis, axis.__class__, *((start % UNIT, *others) for start, *others in described)
        prepared = _prepared.get(key)
    except TypeError:  # host memory, or an axis that is none: the long way says so
        _move_any(operation, axis, source, vector, destination, stream)
        return
    place = described[0][1]
    if place != current_device():
        with cupy().cuda.Device(place):
            _move_any(operation, axis, source, vector, destination, stream)
        return
    if prepared is None:
        prepared = _prepare(operation, axis, view_of(source), view_of(vector), view_of(destination))
        _prepared.keep(key, prepared)
    prepared(way.handle(place), *(start for start, *_ in described))


def _move_any(operation: str, axis: Any, source: Any, vector: Any, destination: Any, stream: Any) -> None:
    arrays = source, vector, destination
    views = view_of(source), view_of(vector), view_of(destination)
    prepared = _prepare(operation, axis, *views)
    addresses = [view.address for view in views]
    launch_the_long_way(arrays, views, stream, lambda handle: prepared(handle, *addresses))


def _prepare(
    operation: str, axis: Any, source: ArrayView, vector: ArrayView, destination: ArrayView
) -> PreparedBroadcast:
    chosen = axis_of(axis, len(source.shape))
    check_devices(source, destination)
    if vector.device != source.device:
        where = "in host memory" if vector.device is None else f"on device {vector.device}"
        raise ArrayError(f"the vector is {where}, and the array is on device {source.device}: move it there")
    views = source, vector, destination
    key = operation, chosen, *(replace(view, address=view.address % UNIT) for view in views)
    found = _prepared.get(key)
    if found is None:
        bases = [base + view.address % UNIT for base, view in zip(_BASES, views, strict=True)]
        placed = [replace(view, address=base) for view, base in zip(views, bases, strict=True)]
        with cupy().cuda.Device(int(source.device or 0)):
            plan = plan_broadcast(*placed, chosen)
            launches = () if plan.is_empty else templates([_launch(operation, source, plan)], bases)
        found = PreparedBroadcast(launches, views, tuple(map(span_bytes, views)))
        _prepared.keep(key, found)
    return found


def _launch(operation: str, view: ArrayView, plan: BroadcastPlan) -> Plan:
    tiles, rest = plan.tiles, elements_argument(plan.rest)
    module = broadcast_module(
        str(current_target()), operation, view.dtype, tiles.cluster if tiles is not None else 1
    )
    if tiles is None:
        return plan_words(module.kernel("broadcast_elements"), rest, current_device(), int(rest["elements"]))
    kernel = module.kernel(f"broadcast_{tiles.rank}d")
    size = broadcast_size(plan, tiles)
    clusters = resident_clusters(kernel, size.threads, size.shared_bytes, tiles.cluster, size.blocks)
    return kernel.plan(
        tiles.stripes * parts_of(tiles, clusters) * tiles.cluster, size.threads,
        (tiles.source, tiles.destination, tiles.vector, stripes_argument(tiles), rest),
        shared_bytes=size.shared_bytes, cluster=tiles.cluster,
    )


def broadcast_size(plan: BroadcastPlan, tiles: StripePlan) -> LaunchSize:
    """Of a launch that combines tiles with a vector, in as many clusters as fit at once."""
    threads = WARP_THREADS * (1 + COMBINING_WARPS) + (_HELPER_THREADS if plan.rest is not None else 0)
    most = tiles.stripes * -(-tiles.blocks // tiles.cluster) * tiles.cluster
    blocks = BROADCAST_BLOCKS_PER_MULTIPROCESSOR
    return LaunchSize(most, blocks, threads, shared_bytes_of(tiles), BROADCAST_STAGES)


def shared_bytes_of(tiles: StripePlan) -> int:
    """Dynamic shared memory of a block, in bytes: the ring of tiles, and the piece of the vector."""
    parts = [tiles.vector_boxes * tiles.vector_box * tiles.itemsize] + [tiles.source.box_bytes] * BROADCAST_STAGES
    return sum(-(-part // TILE_ALIGNMENT) * TILE_ALIGNMENT for part in parts) + TILE_ALIGNMENT


def parts_of(tiles: StripePlan, resident: int) -> int:
    """How many clusters share a stripe, so that few of those that run at once are without work in the last round.

    Parameters
    ----------
    tiles : StripePlan
    resident : int
        Clusters that run at once.
    """
    most = max(1, min(-(-tiles.blocks // tiles.cluster), max(_MOST_PARTS, resident)))
    best = fewest = min(most, max(1, resident // tiles.stripes))
    least = 1.0
    for parts in range(fewest, min(most, fewest + _MOST_PARTS) + 1):
        clusters = tiles.stripes * parts
        idle = 1 - clusters / (-(-clusters // resident) * resident)
        if idle < least:
            best, least = parts, idle
        if idle <= _MOST_IDLE:
            break
    return best


def stripes_argument(tiles: StripePlan) -> Any:
    """What the kernel is told of stripes and their tiles."""
    argument = np.zeros((), _STRIPES)
    argument["tiling"] = tiling_of(tiles.box_dim, tiles.counts, tiles.source.box_bytes)
    argument["stripe_step"], argument["block_step"] = tiles.steps
    for name in ("stripes", "blocks", "length", "vector_box", "vector_boxes", "by_rows", "per_element", "is_flat"):
        argument[name] = getattr(tiles, name)
    return argument[()]


def elements_argument(region: ElementRegion | None) -> Any:
    """What kernels are told of elements that are combined by ordinary loads and stores."""
    argument = np.zeros((), _ELEMENTS)
    if region is not None:
        if len(region.steps) > MAX_OUTER_RANK + 1:
            raise ArrayError(
                f"{len(region.steps)} dimensions are left after merging; {MAX_OUTER_RANK + 1} is the most"
            )
        for name in ("source", "vector", "destination", "first", "elements"):
            argument[name] = getattr(region, name)
        argument["rank"] = len(region.steps)
        for i, step in enumerate(region.steps):
            argument["extents"][i] = step.extent
            for name in ("source", "vector", "destination"):
                argument[f"{name}_strides"][i] = getattr(step, name)
    return argument[()]


@cache
def broadcast_module(target: str, operation: str, dtype: str, cluster: int, cta_group: int = 1) -> Module:
    """The kernels of one operation on elements of a type, in clusters of a size.

    Parameters
    ----------
    target : str
    operation : str
        As in `cupytma.ops.broadcast_plan.OPERATIONS`.
    dtype : str
        As in `cupytma.ops.broadcast_plan.ELEMENTS`.
    cluster : int
        Blocks of a cluster.
    cta_group : int
        2: the vector's loads for a pair of blocks complete on one mbarrier.
    """
    assert dtype in ELEMENTS
    return compiled(
        "broadcast.cu", target, STAGES=BROADCAST_STAGES, CLUSTER=cluster, CTA_GROUP=cta_group, ELEMENT=dtype,
        OPERATION=OPERATIONS[operation], COMBINING_WARPS=COMBINING_WARPS,
        MAX_THREADS=WARP_THREADS * (1 + COMBINING_WARPS) + _HELPER_THREADS,
        BLOCKS_PER_MULTIPROCESSOR=BROADCAST_BLOCKS_PER_MULTIPROCESSOR,
    )
