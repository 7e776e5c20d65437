"""Ragged batches: sequences of different lengths that lie one after another, to padded arrays and back.

The offsets may be in device memory: the device makes the tensor maps of each sequence itself, and nothing waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.limits import MAX_EXTENT, STRIDE_LIMIT, UNIT
from cupytma.ops.array_copy import empty
from cupytma.ops.copy_plan import obstacle_of
from cupytma.ops.grouped_copies import MAX_OUTER, NO_LIMIT, PAIR, module, moving_plan, seed
from cupytma.ops.groups import (
    SETUP_THREADS,
    Part,
    PreparedGroups,
    Workspace,
    common_device,
    handle_for,
    integers_argument,
    is_on_device,
    place_of_work,
    staging_for,
    views_of,
    whole_numbers,
)
from cupytma.ops.layout import Region, check_overlap, common_region, share_memory
from cupytma.ops.recent import Recent
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown, whole
from cupytma.runtime.streams import as_cupy, wait_for
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.words import counted

_MOST_ROWS = 2**40  # more than any memory holds


def ragged_gather(ragged: Any, offsets: Any, padded: Any = None, *, rows: Any = None, stream: Any = None) -> Any:
    """Copy the sequences of a ragged batch to a padded array, with zeros behind each.

    Sequence i is rows ``offsets[i]`` to ``offsets[i + 1] - 1`` of `ragged`; it becomes the first rows of ``padded[i]``,
    and the tensor unit fills the others with zeros.

    Parameters
    ----------
    ragged : array, shape (total, …)
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``.
    offsets : array of int, shape (sequences + 1,)
        In rows, not decreasing, from 0 up to at most ``total``. In device memory (int32, uint32, int64 or uint64)
        nothing waits for it.
    padded : array, shape (sequences, rows, …), optional
        Of the same dtype and trailing shape; no sequence has more than ``rows`` rows. Default: a new C-contiguous one.
    rows : int, optional
        Rows of each sequence in a new padded array; needed where `padded` is not given and `offsets` is in device
        memory. Default: the longest sequence's.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        The padded array. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If shapes, dtypes or devices differ, memory overlaps, or offsets on the host do not fit. Offsets in device
        memory that do not fit leave their sequence out, and are raised by `check_groups` or a later call.

    Notes
    -----
    What `grouped_copy` says of CUDA graphs holds here too. Offsets of the host are uploaded by every replay.
    """
    cupy()
    source = _on_device(ragged, "ragged")
    count = _sequences(offsets)
    if padded is None:
        padded = empty(ragged, (count, _rows(rows, offsets), *source.shape[1:]), stream)
    elif rows is not None:
        raise ArrayError("rows is for a new padded array; the one given has its own")
    _move("ragged_gather", ragged, padded, offsets, True, handle_for(stream, (ragged, padded)))
    return padded


def ragged_scatter(padded: Any, offsets: Any, ragged: Any, *, stream: Any = None) -> Any:
    """Copy the sequences of a padded array to a ragged batch: the way back of `ragged_gather`.

    The first ``offsets[i + 1] - offsets[i]`` rows of ``padded[i]`` become rows ``offsets[i]`` and up of `ragged`. Rows
    of `ragged` that belong to no sequence stay as they are.

    Parameters
    ----------
    padded : array, shape (sequences, rows, …)
    offsets : array of int, shape (sequences + 1,)
        As for `ragged_gather`.
    ragged : array, shape (total, …)
        Of the same dtype and trailing shape.
    stream : stream or int, optional
        As for `ragged_gather`, and so are the errors.

    Returns
    -------
    array
        The ragged array.

    Notes
    -----
    As for `ragged_gather`.
    """
    cupy()
    _move("ragged_scatter", ragged, padded, offsets, False, handle_for(stream, (padded, ragged)))
    return ragged


def _on_device(array: Any, name: str) -> ArrayView:
    try:
        return views_of([array], name)[0]
    except ArrayError as error:
        raise ArrayError(str(error).replace(f"{name}[0]", name)) from None


def _sequences(offsets: Any) -> int:
    """How many sequences the offsets are of."""
    given = is_on_device(offsets)
    shape = view_of(offsets).shape if given else whole_numbers(offsets, "offsets", (None,)).shape
    if len(shape) != 1 or shape[0] < 1:
        raise ArrayError(f"offsets has shape {shape}; (sequences + 1,) is needed, (1,) for none")
    return shape[0] - 1


def _rows(rows: Any, offsets: Any) -> int:
    """Rows of a new padded array for each sequence."""
    if rows is None:
        if is_on_device(offsets):
            raise ArrayError(
                "how long the longest sequence is, only the device knows: give rows, the most that a sequence may "
                "have, or a padded array"
            )
        return int(max(0, np.diff(whole_numbers(offsets, "offsets", (None,))).max(initial=0)))
    try:
        found = whole(rows)
    except TypeError as error:
        raise ArrayError(f"rows: {error}") from None
    if not 0 <= found <= _MOST_ROWS:
        raise ArrayError(f"rows = {shown(rows)} is outside 0 … {_MOST_ROWS}")
    return found


_recent = Recent()


def _move(name: str, ragged: Any, padded: Any, offsets: Any, gathers: bool, handle: int) -> None:
    on_device, arrays = is_on_device(offsets), (ragged, padded, offsets)
    key = name, place_of_work(handle)
    prepared = _recent.get(key, (arrays,)) if on_device else None
    if prepared is None:
        prepared = _prepare(name, _on_device(ragged, "ragged"), _on_device(padded, "padded"), offsets, gathers, handle)
        if on_device:
            _recent.keep(key, prepared, (arrays,), by_shape=True)
    prepared.launch(handle)


def _prepare(
    name: str, ragged: ArrayView, padded: ArrayView, offsets: Any, gathers: bool, handle: int
) -> PreparedGroups:
    device = common_device((ragged, padded))
    _check_arrays(ragged, padded, offsets, gathers)
    if not is_on_device(offsets):
        offsets = _checked(offsets, ragged.shape[0], padded.shape[1])
    # Where a padded row has room for nothing, only the device can tell whether a sequence has any rows.
    if not padded.size and (isinstance(offsets, np.ndarray) or 0 in (padded.shape[0], *padded.shape[2:])):
        return PreparedGroups(device, (), again=True)
    with cupy().cuda.Device(device):
        stream = as_cupy(handle)
        for view in (ragged, padded):
            if view.stream is not None:
                wait_for(view.stream, stream)
        if isinstance(offsets, np.ndarray):
            offsets = staging_for(handle).array(offsets, stream)
        return _prepared(name, ragged, padded, offsets, gathers, handle, device)


def _check_arrays(ragged: ArrayView, padded: ArrayView, offsets: Any, gathers: bool) -> None:
    if not ragged.shape or len(padded.shape) != len(ragged.shape) + 1 or padded.shape[2:] != ragged.shape[1:]:
        raise ArrayError(
            f"ragged has shape {ragged.shape} and padded {padded.shape}; (total, …) and (sequences, rows, …) with the "
            "same trailing extents are needed"
        )
    if _sequences(offsets) != padded.shape[0]:
        raise ArrayError(f"offsets are of {counted(_sequences(offsets), 'sequence')}, and padded has {padded.shape[0]}")
    source, destination = (ragged, padded) if gathers else (padded, ragged)
    if destination.read_only and destination.size:
        raise ArrayError("the destination is read-only; write to an array that may be written")
    if destination.size:
        check_overlap(destination, destination)  # of its own elements
    if ragged.size and padded.size and share_memory(source, destination):
        raise ArrayError("ragged and padded overlap in memory: one of them has to be copied first")


def _checked(offsets: Any, total: int, rows: int) -> Any:
    """Offsets on the host."""
    found = whole_numbers(offsets, "offsets", (None,))
    for i, (first, end) in enumerate(zip(found[:-1].tolist(), found[1:].tolist(), strict=True)):
        if not 0 <= first <= end <= total:
            raise ArrayError(
                f"offsets[{i}] = {first} and offsets[{i + 1}] = {end} are not in order within 0 and {total}, the rows "
                "of ragged"
            )
        if end - first > rows:
            raise ArrayError(f"sequence {i} has {counted(end - first, 'row')}, and padded has {rows} for each")
    return found


def _prepared(
    name: str, ragged: ArrayView, padded: ArrayView, offsets: Any, gathers: bool, handle: int, device: int
) -> PreparedGroups:
    count = padded.shape[0]
    pair = np.array([_pair(ragged, padded, gathers)], PAIR)
    workspace = Workspace(name, count, handle)
    integers = integers_argument(offsets, "offsets", (count + 1,), device, as_cupy(handle))
    settling = module(str(current_target())).kernel("settle_ragged").plan(
        workspace.setup_blocks, SETUP_THREADS,
        (workspace.work[()], pair[0], integers, ragged.shape[0], padded.strides[0], int(gathers), seed()),
        stream=handle,
    )  # fmt: skip
    moving = moving_plan(workspace, np.repeat(pair, count))
    prepared = PreparedGroups(device, [Part(workspace, settling, (moving,))], again=True)
    prepared.kept = offsets  # an upload is nobody else's
    return prepared


def _pair(ragged: ArrayView, padded: ArrayView, gathers: bool) -> Any:
    """How one sequence of the padded array's length would be copied from, or to, the ragged array's start."""
    sides = [
        ArrayView(v.address, v.shape[skip:], v.strides[skip:], v.dtype, v.itemsize, v.device)
        for v, skip in ((ragged, 1), (padded, 2))
    ]
    source, destination = sides if gathers else sides[::-1]
    region = common_region(source, destination)
    pitches = (ragged.strides[0], padded.strides[1])[:: 1 if gathers else -1]
    if len(region.outer) >= MAX_OUTER:
        raise ArrayError(
            f"{len(region.outer) + 1} dimensions of a row are left after merging; {MAX_OUTER} are the most: copy one "
            "of the arrays to a contiguous one first"
        )
    strides = [[*(d.source_stride for d in region.outer), pitches[0]],
               [*(d.destination_stride for d in region.outer), pitches[1]]]  # fmt: skip
    extents = [*(d.extent for d in region.outer), padded.shape[1]]
    missing = [0] * (MAX_OUTER - len(extents))
    return (
        region.source, region.destination, region.run, (*extents, *(1 for _ in missing)),
        *((*s, *missing) for s in strides), NO_LIMIT, len(extents),
        int(_is_mapped(region, (*pitches, padded.strides[0]), padded.shape[1])),
    )  # fmt: skip


def _is_mapped(region: Region, pitches: tuple[int, ...], rows: int) -> bool:
    """Whether the tensor unit may move a sequence, wherever it begins."""
    are_strides = all(pitch % UNIT == 0 and 0 <= pitch < STRIDE_LIMIT for pitch in pitches)
    return are_strides and rows < MAX_EXTENT and not obstacle_of(region)
