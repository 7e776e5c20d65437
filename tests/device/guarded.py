"""Memory with a pattern around the arrays in it, so that a byte written beside them shows."""

from __future__ import annotations

from typing import Any

import numpy as np


class Guarded:
    """Memory full of a pattern, in which arrays are made, and which is looked at afterwards."""

    def __init__(self, size: int, seed: int) -> None:
        raw = np.random.default_rng(seed).integers(0, 256, size + 4096, dtype=np.uint8)
        start = -raw.ctypes.data % 4096
        self.memory = raw[start : start + size]
        self.before = self.memory.copy()
        self._end = 0

    def array(self, shape: tuple[int, ...], dtype: Any, pitch: int = 0, shift: int = 0) -> np.ndarray:
        """An array with rows of ``pitch`` bytes more than they need, that begins ``shift`` bytes off 128."""
        item = np.dtype(dtype).itemsize
        strides, step = [], item
        for extent in reversed(shape):
            strides.insert(0, step)
            step = step * extent + (pitch if len(strides) == 1 else 0)
        start = -(-self._end // 128) * 128 + 128 + shift
        self._end = start + max(step, item)
        assert self._end <= len(self.memory)
        return np.ndarray(shape, dtype, self.memory, start, strides)

    def place(self, image: np.ndarray, array: np.ndarray) -> np.ndarray:
        """Where an array of this memory lies in a copy of it."""
        offset = array.ctypes.data - self.memory.ctypes.data
        return np.ndarray(array.shape, array.dtype, image, offset, array.strides)
