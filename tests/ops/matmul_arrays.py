"""Arrays for matrix products on the host: of any type, aligned, with small whole numbers; and products without any."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from cupytma.ops.matmul_operands import Operands, check_operands
from cupytma.tensormap.arrays import ArrayView

TYPES: dict[str, Any] = {
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2, "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16, "float32": np.float32,
}  # fmt: skip


def matrix(rows: int, columns: int, dtype: str, pad: int = 0) -> np.ndarray:
    """A row-major matrix from an address that 128 divides, its rows padded by so many elements."""
    kind = np.dtype(TYPES[dtype])
    size = rows * (columns + pad) * kind.itemsize
    buffer = np.zeros(size + 128, np.uint8)
    start = -buffer.ctypes.data % 128
    return buffer[start : start + size].view(kind).reshape(rows, columns + pad)[:, :columns]


def operands(
    m: int, n: int, k: int, dtype: str, is_row_major: bool = False, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices of whole numbers from -2 to 2; b is the transpose of a row-major one, or row-major itself."""
    rng = np.random.default_rng(seed)
    a, b = matrix(m, k, dtype), matrix(k, n, dtype, -n % 8) if is_row_major else matrix(n, k, dtype).T
    a[...], b[...] = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (k, n))
    return a, b


def expected(a: np.ndarray, b: np.ndarray, scale_a: Any = None, scale_b: Any = None, bias: Any = None) -> np.ndarray:
    """The product in float64."""
    found = a.astype(np.float64) @ b.astype(np.float64)
    if scale_a is not None:
        found = found * scale_a.reshape(-1, 1)
    if scale_b is not None:
        found = found * scale_b.reshape(1, -1)
    return found if bias is None else found + bias.astype(np.float64)


def judged_of(
    m: int, n: int, k: int, dtype: str, result: str = "bfloat16", is_row_major: bool = False
) -> Operands:
    """A product of arrays of these extents that do not exist; b is the transpose of a row-major one, or row-major."""

    def view(rows: int, columns: int, kind: str, place: int) -> ArrayView:
        size = np.dtype(TYPES[kind]).itemsize
        return ArrayView(1 << place, (rows, columns), (size * columns, size), kind, size, 0)

    b = view(k, n, dtype, 44) if is_row_major else view(n, k, dtype, 44)
    if not is_row_major:
        b = ArrayView(b.address, b.shape[::-1], b.strides[::-1], dtype, b.itemsize, b.device)
    return check_operands(view(m, k, dtype, 40), b, view(m, n, result, 48), tf32=True)
