"""Indices out of range, which kernels find and note for the host: two words of its memory for each device.

A kernel writes there alone, and the host reads without asking the GPU, so that no call waits for the device.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from cupytma.errors import RowIndexError
from cupytma.runtime.device import cupy

# The first word: which call it was, and the place in the index, from 1; 0 for no failure. The second: the index there.
POSITION_BITS = 40
_MOST_CALLS = 2 ** (64 - POSITION_BITS)

# Launches keep these addresses and numbers, so that no two threads may make them at the same time.
_lock = threading.Lock()
# By device: the memory that is kept alive, and the two words.
_records: dict[int, tuple[Any, Any]] = {}
# What each number stands for, and the number of each.
_calls: list[tuple[str, int]] = []
_tags: dict[tuple[str, int], int] = {}


def record_address(device: int) -> int:
    """The address of a device's two words, valid on the device as on the host."""
    with _lock:
        if device not in _records:
            with cupy().cuda.Device(device):
                memory = cupy().cuda.alloc_pinned_memory(16)
            words = np.frombuffer(memory, np.uint64, 2)
            words[:] = 0
            _records[device] = memory, words
    return int(_records[device][0].ptr)


def tag_of(name: str, rows: int) -> int:
    """A number for a kind of call.

    Parameters
    ----------
    name : str
        Of the function.
    rows : int
        Of the table.
    """
    call = name, rows
    with _lock:
        if call not in _tags and len(_calls) < _MOST_CALLS:
            _tags[call] = len(_calls)
            _calls.append(call)
    return _tags.get(call, 0)


def raise_noted(device: int) -> None:
    """Raise the error of a call whose kernel has met an index out of range, once.

    Raises
    ------
    RowIndexError
        If one has; the next call succeeds.
    """
    found = _records.get(device)
    if found is None or not found[1][0]:
        return
    place, index = (int(word) for word in found[1])
    found[1][:] = 0
    raise out_of_range(*_calls[place >> POSITION_BITS], (place & (1 << POSITION_BITS) - 1) - 1, index)


def out_of_range(name: str, rows: int, position: int, index: int) -> RowIndexError:
    """The error of one index, given as the bits of a signed number."""
    value = index - 2**64 if index >= 2**63 else index
    return RowIndexError(
        f"{name}: index[{position}] = {value} is out of range: the table has {rows} rows, numbered from 0 (negative "
        "numbers count no rows from the end); its row was left out. Use mode=\"clip\" to take the nearest row instead"
    )


def check_indices() -> None:
    """Wait for the work on every GPU that rows were gathered or scattered on, and raise if an index was out of range.

    `gather_rows`, `scatter_rows` and `scatter_add_rows` return before their kernels have read the index. A kernel that
    meets an index out of range leaves that row out, touches no memory outside its arrays, and notes the place. The next
    call of one of the three on that device raises, without waiting, if the note is there by then, and launches nothing;
    this function waits first. Each note is raised once; of several failures before it is read, one is named. Launches
    of CUDA graphs are noted in the same way.

    Raises
    ------
    RowIndexError
        Naming the call, the place in the index, the index there and the number of rows.
    """
    for device in tuple(_records):
        with cupy().cuda.Device(device):
            cupy().cuda.runtime.deviceSynchronize()
        raise_noted(device)
