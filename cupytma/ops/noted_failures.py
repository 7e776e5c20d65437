"""Failures that kernels find and note for the host: two words of its memory for each device.

A kernel writes there alone, and the host reads without asking the GPU, so that no call waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from cupytma.runtime.device import cupy

# The first word: which call it was, and the place in its input, from 1; 0 for no failure. The second is the kernel's.
POSITION_BITS = 40
_MOST_CALLS = 2 ** (64 - POSITION_BITS)
Call = TypeVar("Call", bound=Hashable)


class NotedFailures(Generic[Call]):
    """The failures of one family of kernels.

    Parameters
    ----------
    error : callable
        Makes the error, given the call, the place in its input from 0, and the second word.
    """

    def __init__(self, error: Callable[[Call, int, int], Exception]) -> None:
        self._error = error
        # By device: the memory that is kept alive, and the two words.
        self._records: dict[int, tuple[Any, Any]] = {}
        # What each number stands for, and the number of each.
        self._calls: list[Call] = []
        self._tags: dict[Call, int] = {}
        # Launches keep addresses and numbers, so that no two threads may make them at the same time.
        self._lock = Lock()

    def record_address(self, device: int) -> int:
        """The address of a device's two words, valid on the device as on the host."""
        with self._lock:
            if device not in self._records:
                with cupy().cuda.Device(device):
                    memory = cupy().cuda.alloc_pinned_memory(16)
                words = np.frombuffer(memory, np.uint64, 2)
                words[:] = 0
                self._records[device] = memory, words
        return int(self._records[device][0].ptr)

    def tag_of(self, call: Call) -> int:
        """A number for a kind of call."""
        with self._lock:
            if call not in self._tags and len(self._calls) < _MOST_CALLS:
                self._tags[call] = len(self._calls)
                self._calls.append(call)
        return self._tags.get(call, 0)

    def raise_noted(self, device: int) -> None:
        """Raise the error that a kernel has noted, once; the next call succeeds."""
        found = self._records.get(device)
        if found is None or not found[1][0]:
            return
        place, word = (int(word) for word in found[1])
        found[1][:] = 0
        position = (place & (1 << POSITION_BITS) - 1) - 1
        raise self._error(self._calls[place >> POSITION_BITS], position, word)

    def check(self) -> None:
        """Wait for every GPU that has two words, and raise what was noted there."""
        for device in tuple(self._records):
            with cupy().cuda.Device(device):
                cupy().cuda.runtime.deviceSynchronize()
            self.raise_noted(device)
