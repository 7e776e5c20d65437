"""The package's example of maps that are born on the device, compiled; and what its launches are given."""

from __future__ import annotations

from typing import Any

import numpy as np

import cupytma as tma
from cupytma.kernels import source

BOX = (8, 32)
SEED = tma.Tiled(data_type="UINT8", global_address=0, global_dim=(16,), box_dim=(16,)).encode()
MATRIX = np.dtype([("address", "u8"), ("row_bytes", "u8"), ("rows", "u4"), ("columns", "u4")])


def compiled(target: str | None = None, **options: object) -> tma.runtime.Module:
    """For boxes of `BOX`, in array order."""
    return tma.compile(
        source("device_maps.cu"), target, defines={"BOX_ROWS": BOX[0], "BOX_COLUMNS": BOX[1], **options}
    )


def described(arrays: list[Any]) -> np.ndarray:
    """Matrices as the kernels are told of them, as bytes."""
    rows = [
        (a.__cuda_array_interface__["data"][0], a.strides[0], *a.shape) for a in arrays
    ]  # fmt: skip
    return np.array(rows, MATRIX).view(np.uint8)


def expected(matrix: np.ndarray, x: int, y: int) -> np.ndarray:
    """The box at (x, y), with zeros outside the matrix."""
    padded = np.zeros((matrix.shape[0] + 256, matrix.shape[1] + 256), matrix.dtype)
    padded[128:-128, 128:-128] = matrix
    return padded[128 + y : 128 + y + BOX[0], 128 + x : 128 + x + BOX[1]]
