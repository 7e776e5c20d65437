"""Rows of bytes in a window of global memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cupytma.sim.faults import OutOfWindow
from cupytma.sim.traversal import Traversal

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]


def row_starts(rows: Traversal, memory_bytes: int, base: int) -> Int64:
    """Where the bytes in bounds of each row inside begin, counted from the window's first byte.

    Parameters
    ----------
    rows : Traversal
    memory_bytes : int
        Size of the window in bytes.
    base : int
        Global address of its first byte.

    Returns
    -------
    ndarray of int64, shape (rows inside,)
        Empty if nothing of the tile is in bounds.

    Raises
    ------
    OutOfWindow
        If any byte that the copy touches lies outside the window.
    """
    offsets = rows.offsets if rows.inside is None else rows.offsets[rows.inside]
    if rows.last <= rows.first or not len(offsets):
        return np.empty(0, dtype=np.int64)
    # In Python's integers: the origin of a tile far outside the tensor need not fit 64 bits.
    first = rows.origin + rows.first - base
    lowest, highest = first + int(offsets.min()), first + int(offsets.max())
    length = rows.last - rows.first
    if lowest < 0 or highest + length > memory_bytes:
        spill = rows.last - rows.exact_last
        raise OutOfWindow(_message(lowest, highest + length, spill, memory_bytes, base))
    return offsets + first


def _message(lowest: int, end: int, spill: int, memory_bytes: int, base: int) -> str:
    window = f"memory holds {memory_bytes} bytes from {base:#x} to {base + memory_bytes:#x}"
    if lowest >= 0 and end - spill <= memory_bytes:
        return (
            f"the store writes up to {base + end:#x}: hardware writes the last 16-byte chunk of a row whole, here "
            f"{spill} bytes past the tensor's innermost extent; {window}; give {end - memory_bytes} bytes more, or "
            "make the innermost extent a multiple of 16 bytes"
        )
    return (
        f"the copy touches global bytes {base + lowest:#x} to {base + end:#x}; {window}; pass all of the tensor, and "
        "the address of its first byte as base"
    )


def windows(memory: Bytes, length: int) -> Bytes:
    """Every run of `length` bytes of `memory`, as a view of shape ``(memory.size - length + 1, length)``.

    Indexing it with starts copies whole rows, and assignment writes them in order.
    """
    runs: Bytes = np.ndarray((memory.size - length + 1, length), dtype=np.uint8, buffer=memory, strides=(1, 1))
    return runs


def read_rows(memory: Bytes, starts: Int64, length: int) -> Bytes:
    """The bytes of rows, shape ``(len(starts), length)``."""
    found: Bytes = windows(memory, length)[starts]
    return found


def write_rows(memory: Bytes, starts: Int64, values: Bytes) -> None:
    """Write rows; where rows overlap the later one stays."""
    windows(memory, values.shape[1])[starts] = values
