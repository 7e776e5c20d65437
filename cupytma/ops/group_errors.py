"""Shapes and offsets in device memory that do not fit their arrays, which kernels find and note for the host.

A kernel writes to two words of the host's memory, and the host reads without asking the GPU, so that no call waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.runtime.device import cupy

# The first word: which call it was, and the group, from 1; 0 for no failure. The second: what is wrong with it.
_POSITION_BITS = 40
_MESSAGES = (
    "shapes[{group}] is not within 0 and the shapes of both arrays: nothing of this pair was touched",
    "offsets[{group}] and offsets[{next}] are not in order, not within the ragged array, or further apart than the "
    "padded array has rows: nothing of this sequence was touched",
)
_records: dict[int, tuple[Any, Any]] = {}
_calls: list[str] = []


def record_address(device: int) -> int:
    """The address of a device's two words, valid on the device as on the host."""
    if device not in _records:
        with cupy().cuda.Device(device):
            memory = cupy().cuda.alloc_pinned_memory(16)
        words = np.frombuffer(memory, np.uint64, 2)
        words[:] = 0
        _records[device] = memory, words
    return int(_records[device][0].ptr)


def tag_of(name: str) -> int:
    """A number for a function."""
    if name not in _calls:
        _calls.append(name)
    return _calls.index(name)


def raise_noted(device: int) -> None:
    """Raise the error of a call whose kernel has met a shape or offset that does not fit, once.

    Raises
    ------
    ArrayError
        If one has; the next call succeeds.
    """
    found = _records.get(device)
    if found is None or not found[1][0]:
        return
    place, what = (int(word) for word in found[1])
    found[1][:] = 0
    group = (place & (1 << _POSITION_BITS) - 1) - 1
    raise ArrayError(f"{_calls[place >> _POSITION_BITS]}: {_MESSAGES[what].format(group=group, next=group + 1)}")


def check_groups() -> None:
    """Wait for grouped work on every GPU, and raise if shapes or offsets in device memory did not fit their arrays.

    `grouped_copy`, `grouped_transpose`, `ragged_gather` and `ragged_scatter` return before their kernels have read
    shapes or offsets that are in device memory. A kernel that meets one that does not fit leaves the whole group out
    and notes it. The next call of one of them on that device raises, without waiting, if the note is there by then, and
    launches nothing; this function waits first. Each note is raised once; of several failures, one is named.

    Raises
    ------
    ArrayError
        Naming the call and the group.
    """
    for device in tuple(_records):
        with cupy().cuda.Device(device):
            cupy().cuda.runtime.deviceSynchronize()
        raise_noted(device)
