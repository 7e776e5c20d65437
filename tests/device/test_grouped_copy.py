"""Copies of many arrays in one launch: every byte arrives, and none beside. The kernels run on the host here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from emulated_cuda import Array, EmulatedCuda, needs_compiler

import cupytma as tma
from cupytma.errors import ArrayError, CupytmaError
from cupytma.ops import group_errors, grouped_copy as module
from cupytma.ops.group_errors import check_groups
from cupytma.ops.grouped_copy import grouped_copy

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    yield
    module._recent.clear()
    group_errors._records.clear()


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


def random_case(random: np.random.Generator, guarded: tuple[Guarded, Guarded]) -> tuple[np.ndarray, np.ndarray]:
    """A pair of arrays of one shape and of layouts of their own."""
    dtype = random.choice([np.uint8, np.float16, np.float32, np.float64])
    item = np.dtype(dtype).itemsize
    rank = int(random.integers(1, 6))
    shape = tuple(int(n) for n in random.integers(1, 7, rank - 1)) + (int(random.integers(1, 400)),)
    made = []
    for memory in guarded:
        aligned = random.random() < 0.6
        pitch = int(random.choice([0, 16, 48])) if aligned else int(random.choice([0, item, 3 * item]))
        if aligned and rank > 1:
            pitch += -(shape[-1] * item) % 16
        made.append(memory.array(shape, dtype, pitch, 0 if random.random() < 0.8 else item))
    return made[0], made[1]


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_random_arrays_arrive_and_nothing_beside_them_is_touched(cuda: EmulatedCuda, seed: int) -> None:
    random = np.random.default_rng(seed)
    guarded = Guarded(1 << 24, seed), Guarded(1 << 24, seed + 100)
    pairs = [random_case(random, guarded) for _ in range(60)]
    wanted = guarded[1].before.copy()
    offset = guarded[1].memory.ctypes.data
    for source, destination in pairs:
        place = np.ndarray(
            destination.shape, destination.dtype, wanted, destination.ctypes.data - offset, destination.strides
        )
        place[...] = source
    returned = grouped_copy([Array.of(s) for s, _ in pairs], [Array.of(d) for _, d in pairs])
    assert len(returned) == 60
    np.testing.assert_array_equal(guarded[1].memory, wanted)
    np.testing.assert_array_equal(guarded[0].memory, guarded[0].before)
    assert cuda.launches == ["settle_pairs", "move_groups"]
