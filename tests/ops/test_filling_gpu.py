"""`fill` on a GPU: every element, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from test_columns_gpu import check_written, placed

import cupytma as tma
from cupytma.errors import ArrayError

pytestmark = pytest.mark.gpu
VALUES = {
    "u1": 200, "i2": -3, "f2": 1.5, "f4": np.nan, "i8": -(2**40), "f8": -0.25, "c8": 1 + 2j, "c16": 3 - 1j, "?": True,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(500))
def test_random_arrays_are_filled_and_nothing_else(seed: int) -> None:
    generator = np.random.default_rng(seed)
    dtype = list(VALUES)[seed % len(VALUES)]
    size = np.dtype(dtype).itemsize
    shape = tuple(int(n) for n in generator.choice([1, 2, 3, 7, 16, 33], int(generator.integers(1, 6))))
    pads = tuple(int(p) for p in generator.choice([0, 0, 16, size], len(shape)))
    out, buffer = placed(np.zeros(shape, dtype), pads, int(generator.choice([0, 0, 16, size])), seed)
    before = buffer.get()
    assert tma.fill(out, VALUES[dtype]) is out
    check_written(out, buffer, np.full(shape, VALUES[dtype], dtype), before)


def test_views_are_filled() -> None:
    import cupy

    for cut in (np.s_[::-1], np.s_[:, ::3], np.s_[1:5, 2], np.s_[:0]):
        x = cupy.zeros((40, 50), cupy.float32)
        expected = np.zeros((40, 50), np.float32)
        expected[cut] = 2
        tma.fill(x[cut], 2)
        np.testing.assert_array_equal(x.get(), expected)


def test_torch_tensors_are_filled() -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(1000, 33, device="cuda", dtype=torch.bfloat16)
    assert bool((tma.fill(x.t(), 1.5) == 1.5).all())


def test_what_a_type_cannot_hold_is_refused() -> None:
    import cupy

    x = cupy.zeros(4, cupy.uint8)
    for value in (256, -1, 1.5, "1", None, np.nan, 1j, [1, 2]):
        with pytest.raises(ArrayError, match="value = "):
            tma.fill(x, value)
