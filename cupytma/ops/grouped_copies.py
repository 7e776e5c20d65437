"""Copies of many arrays of different shapes in one launch, with tensor maps that the device makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError
from cupytma.limits import TILE_ALIGNMENT, UNIT, WARP_THREADS
from cupytma.ops.array_copy import check_devices, move
from cupytma.ops.copy_launches import compiled
from cupytma.ops.copy_plan import WORD, obstacle_of
from cupytma.ops.dense_pairs import dense_pairs
from cupytma.ops.group_calls import PairOperation
from cupytma.ops.groups import (
    GROUP_BYTES,
    INTEGERS,
    SETUP_THREADS,
    Part,
    PreparedGroups,
    Workspace,
    check_pairs,
    check_spans,
    common_device,
    integers_argument,
)
from cupytma.ops.layout import Dimension, Region, common_region
from cupytma.ops.recent import Recent, TensorsLieAs
from cupytma.runtime.compiler import Module, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.plan import Plan
from cupytma.runtime.streams import as_cupy, wait_for
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

# Bytes of what one warp moves at a time, and warps of a block. Enough in flight to keep the memory busy, and no more:
# what is read and written at a time then lies close together.
STAGE_BYTES = 4 * 1024
MOVE_WARPS = 4
# Words of a rest that one warp moves.
_REST_WORDS = 256
_MOST_BLOCKS = 1 << 20
MAX_OUTER = 4
NO_LIMIT = 2**64 - 1
PAIR = np.dtype(
    [
        ("source", "u8"), ("destination", "u8"), ("run", "u8"), ("extents", "u8", MAX_OUTER),
        ("source_strides", "i8", MAX_OUTER), ("destination_strides", "i8", MAX_OUTER), ("limit", "u8"),
        ("outer_rank", "u4"), ("is_mapped", "u4"),
    ]
)
_recent = Recent()


def grouped_copy(sources: Any, destinations: Any = None, *, shapes: Any = None, stream: Any = None) -> list[Any]:
    """Copy many GPU arrays of different shapes, each to one of its own, in one launch, bit for bit.

    Runs of bytes that lie together move by bulk copies, strided arrays through tensor maps that the device makes
    itself; row ends within a 16-byte unit, and arrays that no tensor map may describe, by ordinary loads and stores.
    Nothing outside the destinations' elements is written.

    Parameters
    ----------
    sources : list of array
        CuPy arrays, torch tensors, or anything with ``__cuda_array_interface__``, of any shapes, strides and dtypes.
    destinations : list of array, optional
        As many, each of its source's shape and dtype, which overlap neither one another nor any source. Default: new
        C-contiguous arrays.
    shapes : array of int, shape (arrays, dimensions), optional
        The leading part of each pair to copy, in elements, array order: rows ``shapes[i, 0]`` and so on. In device
        memory (int32, uint32, int64 or uint64) nothing waits for it: what it holds when the copy runs counts. Then all
        arrays have as many dimensions, 1 to 5, and destinations may differ in shape from their sources.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    list of array
        The destinations. The copies are ordered on the stream; the call does not wait for them.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If an array is in host memory, shapes, dtypes or devices differ, or memory overlaps. A row of `shapes` in device
        memory that does not fit its arrays leaves that pair out, and is raised by `check_groups` or a later call.

    Notes
    -----
    The preparation is kept for the last calls and found again by the arrays themselves, so that a call with the same
    lists of the same CuPy arrays is one launch.

    A call may be captured in CUDA graphs. What the device works out for it then belongs to that capture alone, and
    lives as long as the graph and all that is made of it: graphs of the same call may run at the same time, and beside
    later calls. Replays must come after calls made before the capture, whose preparation it may use, and two
    executables of one graph must not run at the same time.
    """
    return _copy(sources, destinations, shapes, stream)


def _prepare_dense(sources: Sequence[Any], destinations: Sequence[Any], handle: int) -> PreparedGroups | None:
    """Copies between C-contiguous arrays of CuPy or torch, found with little work; None where that is not all."""
    found = dense_pairs(sources, destinations)
    if found is None:
        return None
    pairs = np.zeros(len(sources), PAIR)
    pairs["source"], pairs["destination"], pairs["run"] = found.sources, found.destinations, found.sizes
    if ((pairs["run"] != 0) & ((pairs["source"] == 0) | (pairs["destination"] == 0))).any():
        return None  # which is told of by name where views are read
    pairs["extents"], pairs["limit"] = 1, NO_LIMIT
    pairs["is_mapped"] = ((pairs["source"] | pairs["destination"]) % UNIT == 0) & (pairs["run"] >= UNIT)
    spans = [np.stack([pairs[i], pairs[i] + pairs["run"]], 1).astype(np.int64) for i in ("source", "destination")]
    check_spans(spans, (lambda i: view_of(sources[i]), lambda i: view_of(destinations[i])))
    with cupy().cuda.Device(found.device):
        prepared = _prepared(pairs, np.zeros((), INTEGERS)[()], 1, handle, found.device, ())
    if found.guards is not None:
        prepared.lies_as = TensorsLieAs((found.sources, found.destinations, []), (*found.guards, bool))
    return prepared


def prepare(
    sources: Sequence[ArrayView], destinations: Sequence[ArrayView], shapes: Any, handle: int
) -> PreparedGroups:
    """Copies between pairs of views, to be launched on a stream.

    Parameters
    ----------
    shapes : device array or None
        See `grouped_copy`.

    Raises
    ------
    ArrayError
        See `grouped_copy`.
    """
    device = common_device((*sources, *destinations))
    with cupy().cuda.Device(device):
        stream = as_cupy(handle)
        for view in (*sources, *destinations):
            if view.stream is not None:
                wait_for(view.stream, stream)
        if shapes is None:
            pairs, others = _pairs(sources, destinations)
            check_pairs(sources, destinations)
            integers, item = np.zeros((), INTEGERS)[()], 1
        else:
            pairs, item = _capacities(sources, destinations)
            others = []
            check_pairs(sources, destinations)
            integers = integers_argument(shapes, "shapes", (len(sources), len(sources[0].shape)), device, stream)
        return _prepared(pairs, integers, item, handle, device, others)


_copy = PairOperation(_recent, prepare, lambda *given: _prepare_dense(*given))


def _prepared(
    pairs: npt.NDArray[np.void], integers: Any, item: int, handle: int, device: int,
    others: Sequence[Callable[[int], None]],
) -> PreparedGroups:  # fmt: skip
    """Launches for pairs; `integers` are their shapes where the device has them."""
    again = bool(integers["data"])
    workspace = Workspace("grouped_copy", len(pairs), handle, pairs)
    settling = module(str(current_target())).kernel("settle_pairs").plan(
        workspace.setup_blocks, SETUP_THREADS,
        (workspace.work[()], workspace.descriptions, integers, item, seed()), stream=handle,
    )  # fmt: skip
    moving = moving_plan(workspace, pairs)
    return PreparedGroups(device, [Part(workspace, settling, (moving,))], again, others)


def moving_plan(workspace: Workspace, pairs: npt.NDArray[np.void]) -> Plan:
    """The launch that moves what was settled.

    It has about as many warps as there are pieces: more end at once, and fewer take pieces in turn.
    """
    total = pairs["run"].astype(float) * pairs["extents"].astype(float).prod(axis=1)
    mapped = pairs["is_mapped"] != 0
    # A rest is moved in words of at least a byte, mostly of 4, and row ends are few of them.
    pieces = total[mapped].sum() / STAGE_BYTES + len(pairs)
    rests = total[~mapped].sum() / (4 * _REST_WORDS)
    return module(str(current_target())).kernel("move_groups").plan(
        max(1, min(_MOST_BLOCKS, int(max(pieces, rests)) // MOVE_WARPS + 1)), MOVE_WARPS * WARP_THREADS,
        (workspace.work[()],), shared_bytes=MOVE_WARPS * STAGE_BYTES + TILE_ALIGNMENT, stream=workspace.handle,
    )  # fmt: skip


def _pairs(
    sources: Sequence[ArrayView], destinations: Sequence[ArrayView]
) -> tuple[npt.NDArray[np.void], list[Callable[[int], None]]]:
    """Pairs of known shapes, merged as far as they can be, and what is copied otherwise."""
    rows: list[Any] = []
    others: list[Callable[[int], None]] = []
    for position, (source, destination) in enumerate(zip(sources, destinations, strict=True)):
        try:
            region = common_region(source, destination)
        except ArrayError as error:
            raise ArrayError(f"sources[{position}] and destinations[{position}]: {error}") from None
        if not source.size:
            rows.append(_row(Region(0, 0, 0, ()), False))
        elif len(region.outer) > MAX_OUTER:
            others.append(partial(_move_alone, source, destination))
            rows.append(_row(Region(0, 0, 0, ()), False))
        else:
            rows.append(_row(region, not obstacle_of(region)))
    return np.array(rows, PAIR), others


def _move_alone(source: ArrayView, destination: ArrayView, handle: int) -> None:
    """A pair of more dimensions than a group can have."""
    check_devices(source, destination)
    move(source, None, destination, as_cupy(handle))


def _row(region: Region, is_mapped: bool) -> tuple[Any, ...]:
    outer = region.outer
    missing = MAX_OUTER - len(outer)
    return (
        region.source, region.destination, region.run, (*(d.extent for d in outer), *(1,) * missing),
        (*(d.source_stride for d in outer), *(0,) * missing),
        (*(d.destination_stride for d in outer), *(0,) * missing), NO_LIMIT, len(outer), int(is_mapped),
    )  # fmt: skip


def _capacities(
    sources: Sequence[ArrayView], destinations: Sequence[ArrayView]
) -> tuple[npt.NDArray[np.void], int]:
    """Pairs of which the device knows how much is copied, dimension for dimension, and the bytes of an element."""
    rank, item = len(sources[0].shape), sources[0].itemsize
    if not 1 <= rank <= MAX_OUTER + 1:
        raise ArrayError(
            f"the arrays have {counted(rank, 'dimension')}; with shapes on the device they have 1 to {MAX_OUTER + 1}"
        )
    rows = []
    for position, (source, destination) in enumerate(zip(sources, destinations, strict=True)):
        where = f"sources[{position}] and destinations[{position}]"
        if source.dtype != destination.dtype or source.itemsize != item:
            raise ArrayError(
                f"{where} are of {source.dtype} and {destination.dtype}; with shapes on the device all elements have "
                f"one size ({item} B here), and each pair one type"
            )
        if destination.read_only:
            raise ArrayError(f"destinations[{position}] is read-only; copy to an array that may be written")
        if len(source.shape) != rank or len(destination.shape) != rank:
            raise ArrayError(
                f"{where} have {len(source.shape)} and {counted(len(destination.shape), 'dimension')}, not {rank}"
            )
        shape = tuple(map(min, source.shape, destination.shape))
        if any(v.shape[-1] > 1 and v.strides[-1] != item for v in (source, destination)):
            raise ArrayError(
                f"{where}: the last dimension is not dense, and with shapes on the device it has to be; transpose with "
                "grouped_transpose, or copy one of them first"
            )
        outer = tuple(
            Dimension(extent, s, d)
            for extent, s, d in zip(shape[-2::-1], source.strides[-2::-1], destination.strides[-2::-1], strict=True)
        )
        region = Region(source.address, destination.address, shape[-1] * item, outer)
        rows.append(_row(region, not obstacle_of(replace(region, run=max(region.run, UNIT)))))
    return np.array(rows, PAIR), item


@cache
def seed() -> TensorMap:
    """What the maps of all groups are made from."""
    return Tiled(
        data_type=DataType.UINT64, global_address=0, global_dim=(1,) * 5, global_strides=(UNIT,) * 4,
        box_dim=(UNIT // WORD, 1, 1, 1, 1),
    ).encode()


@cache
def module(target: str) -> Module:
    """The kernels of grouped copies and of ragged batches."""
    return compiled(
        "grouped_copy.cu", target, MOVE_WARPS=MOVE_WARPS, STAGE_BYTES=STAGE_BYTES, GROUP_BYTES=GROUP_BYTES
    )
