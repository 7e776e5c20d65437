"""Copies of one GPU array to many places, by loads that all blocks of a cluster share."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.limits import MAX_RANK, TILE_ALIGNMENT, WARP_THREADS
from cupytma.ops.array_copy import empty
from cupytma.ops.copy_launches import TILING, compiled, plan_launches, tiling_of
from cupytma.ops.launch_size import LaunchSize
from cupytma.ops.multicast_plan import MulticastPlan, MulticastTiles, plan_multicast
from cupytma.ops.ordinary import region_argument
from cupytma.ops.paired import carry_out
from cupytma.runtime.compiler import Module, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.runtime.kernel import Kernel, current_device
from cupytma.runtime.occupancy import multiprocessors
from cupytma.runtime.plan import Plan
from cupytma.tensormap.arrays import ArrayView, view_of

# Tiles in flight in one block, and blocks on one multiprocessor.
MULTICAST_STAGES = 4
MULTICAST_BLOCKS_PER_MULTIPROCESSOR = 16
_HELPER_THREADS = 128
_MOST_COPIES = 2**48
_MOST_DIMENSIONS = 64  # of arrays of numpy and torch

_COPIES = np.dtype(
    [("tiling", TILING), ("extents", "u4", MAX_RANK), ("copies", "u4"), ("groups", "u4"), ("items", "u4")]
)


def multicast_copy(src: Any, dst: Any = None, *, copies: Any = None, stream: Any = None) -> Any:
    """Copy one GPU array to many places, bit for bit: ``dst[i] = src`` for every i.

    A cluster of up to 8 blocks loads each tile once, by a multicast tensor load to the shared memory of all of them,
    and each block stores it to a copy of its own. A source that no tensor map describes is first copied to one place,
    as `cupytma.copy` does it, which the other places are made from; places that none describes are written by the ways
    of `cupytma.copy` alone. Nothing outside the elements of ``dst`` is written.

    The kernel has a second form for architectures with ``.cta_group::2``, in which the loads of a pair of blocks
    complete on one mbarrier; it is compiled for sm_100a, and has not been run on hardware.

    Parameters
    ----------
    src : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides and dtype.
    dst : array, optional
        Of shape ``(copies, *src.shape)``, or with several dimensions before those of ``src``; of the same dtype and
        device, and any strides. Its elements overlap neither each other nor ``src``. Default: a new C-contiguous array
        of the caller's kind.
    copies : int or sequence of int, optional
        How many copies, or the extents of the dimensions before those of ``src``, in array order. Needed if ``dst`` is
        not given.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``dst``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If ``copies`` is no number of copies or differs from those of ``dst``, neither is given, an array is in host
        memory, shapes, dtypes or devices do not fit, or memory overlaps.

    Notes
    -----
    Multicast: PTX ISA, "cp.async.bulk.tensor", ``.multicast::cluster``.
    """
    cupy()
    shape = shape_of_copies(src, dst, copies)
    if dst is None:
        dst = empty(src, shape, stream)
    carry_out("multicast", multicast_launches, src, dst, stream)
    return dst


def shape_of_copies(src: Any, dst: Any, copies: Any) -> tuple[int, ...]:
    """The shape that the copies have.

    Raises
    ------
    ArrayError
        If it is not given, or the destination has another.
    """
    shape = view_of(src).shape
    given = None if copies is None else copies_of(copies)
    if dst is None:
        if given is None:
            raise ArrayError("multicast_copy needs an array to write, or how many copies are to be made: copies=8")
        return (*given, *shape)
    if given is not None and view_of(dst).shape != (*given, *shape):
        raise ArrayError(
            f"copies = {shown(copies)} of an array of shape {shape} are of shape {(*given, *shape)}, and the "
            f"destination has {view_of(dst).shape}: leave copies out, or give one that fits"
        )
    return view_of(dst).shape


def copies_of(copies: Any) -> tuple[int, ...]:
    """Extents of the dimensions of the copies.

    Raises
    ------
    ArrayError
        If these are none.
    """
    try:
        found = tuple(operator.index(n) for n in (copies if isinstance(copies, (tuple, list)) else (copies,)))
    except TypeError:
        found = (-1,)
    if not all(0 <= n <= _MOST_COPIES for n in found) or not 0 < len(found) <= _MOST_DIMENSIONS:
        raise ArrayError(
            f"copies = {shown(copies)}: a number of copies from 0 to 2^48 is needed, or a tuple of up to "
            f"{_MOST_DIMENSIONS} of them"
        )
    return found


def multicast_launches(source: ArrayView, destination: ArrayView) -> list[Plan]:
    plan = plan_multicast(source, destination)
    before = [] if plan.before is None else list(plan_launches(plan.before, current_device()))
    return before if plan.tiles is None else [*before, _tile_launch(plan, plan.tiles)]


def _tile_launch(plan: MulticastPlan, tiles: MulticastTiles) -> Plan:
    kernel = multicast_module(str(current_target()), tiles.cluster).kernel(f"multicast_copy_{tiles.rank}d")
    size = multicast_size(plan, tiles)
    clusters = resident_clusters(kernel, size.threads, size.shared_bytes, tiles.cluster, size.blocks)
    return kernel.plan(
        min(tiles.items, clusters) * tiles.cluster, size.threads,
        (tiles.source, tiles.destination, copies_argument(tiles), region_argument(plan.rest)),
        shared_bytes=size.shared_bytes, cluster=tiles.cluster,
    )


def multicast_size(plan: MulticastPlan, tiles: MulticastTiles) -> LaunchSize:
    """Of a launch that copies to many places, in as many clusters as fit at once."""
    threads = WARP_THREADS + (_HELPER_THREADS if plan.rest is not None else 0)
    shared_bytes = MULTICAST_STAGES * -(-tiles.source.box_bytes // TILE_ALIGNMENT) * TILE_ALIGNMENT + TILE_ALIGNMENT
    most = tiles.items * tiles.cluster
    return LaunchSize(most, MULTICAST_BLOCKS_PER_MULTIPROCESSOR, threads, shared_bytes, MULTICAST_STAGES)


def resident_clusters(kernel: Kernel, threads: int, shared_bytes: int, cluster: int, blocks: int) -> int:
    """Clusters that run at once, with so many blocks on each multiprocessor or as many as fit.

    Parameters
    ----------
    kernel : Kernel
    threads, shared_bytes, cluster
        As for a launch.
    blocks : int
        The most that are wanted on one multiprocessor.
    """
    resident = kernel.persistent_grid(threads, shared_bytes, cluster=cluster if cluster > 1 else None) // cluster
    return max(1, min(resident, blocks * multiprocessors() // cluster))


def copies_argument(tiles: MulticastTiles) -> Any:
    """What the kernel is told of the tiles and their copies."""
    argument = np.zeros((), _COPIES)
    padding = (1,) * (MAX_RANK - tiles.rank)
    ones = (1,) * len(tiles.copies)
    argument["tiling"] = tiling_of((*tiles.box_dim, *ones), (*tiles.counts, *ones), tiles.source.box_bytes)
    argument["extents"] = (*((1,) * len(tiles.box_dim)), *tiles.copies, *padding)
    argument["copies"] = int(np.prod(tiles.copies, dtype=np.int64))
    argument["groups"], argument["items"] = tiles.groups, tiles.items
    return argument[()]


@cache
def multicast_module(target: str, cluster: int, cta_group: int = 1) -> Module:
    """The kernels that copy to many places in clusters of a size.

    Parameters
    ----------
    target : str
    cluster : int
        Blocks of a cluster.
    cta_group : int
        2: loads of a pair of blocks complete on one mbarrier.
    """
    return compiled("multicast.cu", target, STAGES=MULTICAST_STAGES, CLUSTER=cluster, CTA_GROUP=cta_group)
