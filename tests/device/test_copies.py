"""Copies and reductions of arrays of any layout: every byte arrives, and none beside. The kernels run on the host."""

from __future__ import annotations

import numpy as np
import pytest
import remembered
from emulated_cuda import Array, EmulatedCuda, needs_compiler

import cupytma as tma
from cupytma.ops import array_copy, copy_launches, copy_plan, reduction

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
GUARD = 256


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered.forget(monkeypatch, array_copy, reduction)
    for module in ("_copy_module", "_ordinary_module", "transpose_module", "turn_module"):
        getattr(copy_launches, module).cache_clear()


class Placed:
    """An array of a random layout among random bytes."""

    def __init__(self, random: np.random.Generator, shape: tuple[int, ...], dtype: str, in_units: bool) -> None:
        item = np.dtype(dtype).itemsize
        unit = 16 if in_units else item
        order = random.permutation(len(shape)) if random.random() < 0.4 else np.arange(len(shape))
        strides, step = [0] * len(shape), item
        for axis in reversed(order):
            strides[axis] = step * (1 if random.random() < 0.92 else -1)
            step = -(-(step * shape[axis] + int(random.integers(0, 4)) * unit * (random.random() < 0.4)) // unit) * unit
        self.bytes = random.integers(0, 256, step + 4 * GUARD, dtype=np.uint8)
        first = GUARD + -self.bytes.ctypes.data % 128 + int(random.integers(0, 9)) * unit * (random.random() < 0.4)
        first += sum((n - 1) * -stride for n, stride in zip(shape, strides, strict=True) if stride < 0)
        self.layout = shape, dtype, first, strides

    def within(self, memory: np.ndarray) -> np.ndarray:
        """Where the array lies in its memory, or in a copy of it."""
        shape, dtype, first, strides = self.layout
        return np.ndarray(shape, dtype, memory, first, strides)

    @property
    def array(self) -> np.ndarray:
        return self.within(self.bytes)


def random_pair(random: np.random.Generator, dtypes: tuple[str, ...]) -> tuple[Placed, Placed]:
    dtype, rank = str(random.choice(dtypes)), int(random.integers(0, 6))
    inner = int(random.choice([1, 3, 16, 40, 200, 700, 2500])) // np.dtype(dtype).itemsize + int(random.integers(1, 5))
    shape = (*map(int, random.integers(1, 6, max(rank - 1, 0))), *((inner,) if rank else ()))
    in_units = random.random() < 0.5
    return Placed(random, shape, dtype, in_units), Placed(random, shape, dtype, in_units)


@needs_compiler
@pytest.mark.parametrize("seed", range(2))
def test_copies_bring_every_byte_and_touch_nothing_beside(
    cuda: EmulatedCuda, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr(copy_plan, "LEAST_BULK_BYTES", 1024)  # short runs both ways
    copy_plan.plan_copy.cache_clear()
    for _ in range(80):
        source, destination = random_pair(random, ("u1", "u2", "u4", "u8", "c16", "V3"))
        kept, wanted = source.bytes.copy(), destination.bytes.copy()
        destination.within(wanted)[...] = source.array
        tma.copy(Array.of(source.array), Array.of(destination.array))
        np.testing.assert_array_equal(destination.bytes, wanted)
        np.testing.assert_array_equal(source.bytes, kept)
    names = {name.rsplit("_", 1)[0] for name in cuda.launches}
    assert {"copy_words", "copy_granules", "tile_copy", "bulk"} <= names
    copy_plan.plan_copy.cache_clear()


@needs_compiler
@pytest.mark.parametrize("atomic", [False, True])
def test_reductions_reach_every_element_and_touch_nothing_beside(cuda: EmulatedCuda, atomic: bool) -> None:
    random = np.random.default_rng(7)
    for _ in range(60):
        source, destination = random_pair(random, ("u4",))
        lead = int(random.choice([1, 1, 2, 5, 9, 13]))
        parts = np.stack([source.array] * lead) + np.arange(lead, dtype="u4").reshape(-1, *[1] * source.array.ndim)
        given = source.array if lead == 1 else parts
        wanted = destination.bytes.copy()
        place = destination.within(wanted)
        for part in parts:
            place[...] = place + part
        tma.reduce_add(Array.of(destination.array), Array.of(given), atomic=atomic)
        np.testing.assert_array_equal(destination.bytes, wanted)
    names = {name.rsplit("_", 1)[0] for name in cuda.launches}
    assert {"tile_reduce", "element"} <= names
    assert ("vector_reduce" in names, "scalar_reduce" in names) == (not atomic, not atomic)
