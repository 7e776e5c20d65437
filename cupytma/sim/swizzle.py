"""Where the swizzle puts a byte of shared memory.

The unit lays a tile out linearly and then exchanges 16-byte chunks within each 128-byte line. Which chunks change
places follows from the absolute shared address, not from the position in the tile: a tile that starts at 128 modulo
1024 starts in the middle of the 128B pattern. Measured on an H100 for tile bases at 0, 128, 256, 512 and 896 modulo
1024 with every mode.
"""

from __future__ import annotations

from typing import overload

import numpy as np
import numpy.typing as npt

from cupytma.sim.faults import NotSimulatedError
from cupytma.tensormap.enums import Swizzle

CHUNK = 16
"""Bytes that stay together: the granularity of every swizzle of sm_90a."""

LINE = 128
"""Bytes within which chunks change places."""

PERIOD = 1024
"""Bytes after which every pattern has repeated (32B repeats after 256, 64B after 512)."""

Int64 = npt.NDArray[np.int64]

_MASKS = {Swizzle.NONE: 0, Swizzle.B32: 1, Swizzle.B64: 3, Swizzle.B128: 7}


@overload
def swizzle_address(address: int, swizzle: Swizzle | str | int) -> int: ...
@overload
def swizzle_address(address: npt.NDArray[np.integer], swizzle: Swizzle | str | int) -> Int64: ...
def swizzle_address(address: int | npt.NDArray[np.integer], swizzle: Swizzle | str | int) -> int | Int64:
    """Where the unit puts the byte whose linear place is `address`.

    The function is its own inverse: it also says which linear place a byte found at `address` belongs to.

    Parameters
    ----------
    address : int or array of int
        Absolute shared memory addresses in bytes, of any shape.
    swizzle : Swizzle or its name
        NONE, 32B, 64B or 128B.

    Returns
    -------
    int or ndarray of int64
        Absolute shared memory addresses in bytes, of the same shape.

    Raises
    ------
    NotSimulatedError
        For the 128B modes with larger atoms, which no sm_90a device has.
    """
    mask = _mask(swizzle)
    if isinstance(address, (int, np.integer)):
        return int(address) ^ ((int(address) // LINE & mask) * CHUNK)
    linear = np.asarray(address, dtype=np.int64)
    moved: Int64 = linear ^ ((linear // LINE & mask) * CHUNK)
    return moved


@overload
def swizzle_chunk(row: int, chunk: int, swizzle: Swizzle | str | int, base: int = 0) -> int: ...
@overload
def swizzle_chunk(
    row: npt.NDArray[np.integer], chunk: npt.NDArray[np.integer], swizzle: Swizzle | str | int, base: int = 0
) -> Int64: ...
def swizzle_chunk(
    row: int | npt.NDArray[np.integer],
    chunk: int | npt.NDArray[np.integer],
    swizzle: Swizzle | str | int,
    base: int = 0,
) -> int | Int64:
    """The index formula a kernel uses: at which 16-byte chunk of tile row `row` its chunk `chunk` is found.

    For the 128B mode this is ``((row + base // 128) % 8) ^ chunk``. Rows are as long as the mode's span, so a
    128-byte line holds two rows of the 64B mode and four of the 32B mode, and the pattern advances once a line.

    Parameters
    ----------
    row : int or array of int
        Row of the tile; rows are ``swizzle.span`` bytes apart.
    chunk : int or array of int
        Chunk within the row, counted from 0, below ``swizzle.span // 16``.
    swizzle : Swizzle or its name
        32B, 64B or 128B. With NONE every chunk is in its own place.
    base : int
        Absolute shared address of the tile in bytes, a multiple of 128.

    Returns
    -------
    int or ndarray of int64
        Chunk within the same row.
    """
    mask = _mask(swizzle)
    rows_per_line = LINE // (Swizzle.of(swizzle).span or LINE)
    if isinstance(row, (int, np.integer)) and isinstance(chunk, (int, np.integer)):
        return (int(row) // rows_per_line + base // LINE) & mask ^ int(chunk)
    rows = np.asarray(row, dtype=np.int64)
    moved: Int64 = ((rows // rows_per_line + base // LINE) & mask) ^ np.asarray(chunk, dtype=np.int64)
    return moved


def _mask(swizzle: Swizzle | str | int) -> int:
    mode = Swizzle.of(swizzle)
    if mode not in _MASKS:
        raise NotSimulatedError(
            f"swizzle {mode} is not simulated: it exists only on targets whose behaviour has not been measured; "
            "simulated are NONE, 32B, 64B and 128B"
        )
    return _MASKS[mode]
