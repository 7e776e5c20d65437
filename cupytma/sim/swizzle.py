"""Where the swizzle puts a byte of shared memory.

The unit lays a tile out linearly and then exchanges 16-byte chunks within each 128-byte line. Which chunks change
places follows from the absolute shared address, not from the position in the tile: a tile that starts at 128 modulo
1024 starts in the middle of the 128B pattern. Measured on an H100 for tile bases at 0, 128, 256, 512 and 896 modulo
1024 with NONE, 32B, 64B and 128B. The 128B modes with larger atoms are those of the PTX ISA ("Swizzling Modes"), not
measured; it says that halves change places in every alternate line, and the odd ones are assumed.
"""

from __future__ import annotations

import operator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cupytma.errors import SimulationError
from cupytma.tensormap.enums import Swizzle

CHUNK = 16
"""Bytes that stay together in every swizzle but 128B_ATOM_32B_FLIP_8B, which keeps 8."""

LINE = 128
"""Bytes within which chunks change places."""

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pattern:
    """How a swizzle moves bytes within a line.

    Attributes
    ----------
    lines : int
        Lines after which it repeats, a power of two; line ``n`` moves its atoms by an exclusive or with ``n % lines``.
    atom : int
        Bytes that stay together.
    flips : bool
        Whether the 8-byte halves of every 16 bytes change places in odd lines.
    """

    lines: int
    atom: int = CHUNK
    flips: bool = False

    @property
    def unit(self) -> int:
        """Bytes that keep their order."""
        return CHUNK // 2 if self.flips else CHUNK


_PATTERNS = {
    Swizzle.NONE: Pattern(1),
    Swizzle.B32: Pattern(2),
    Swizzle.B64: Pattern(4),
    Swizzle.B128: Pattern(8),
    Swizzle.B128_ATOM_32B: Pattern(4, 32),
    Swizzle.B128_ATOM_32B_FLIP_8B: Pattern(4, 32, flips=True),
    Swizzle.B128_ATOM_64B: Pattern(2, 64),
}


def pattern_of(swizzle: Swizzle | str | int) -> Pattern:
    """The pattern of a swizzle, by member, name or number.

    Raises
    ------
    SimulationError
        If there is no such swizzle.
    """
    try:
        return _PATTERNS[Swizzle.of(swizzle)]
    except ValueError as error:
        raise SimulationError(str(error)) from None


def _whole(name: str, value: Any) -> int | Int64:
    """One integer or many, 0 or above: one as a Python int, the others as an array."""
    given: Any = None
    if not isinstance(value, bool):
        try:
            given = operator.index(value)
        except TypeError:
            with suppress(ValueError):  # rows of different lengths are no array
                given = np.asarray(value)
    if isinstance(given, np.ndarray):
        given = given.astype(np.int64) if given.dtype.kind in "iu" or not given.size else None
    if given is None:
        raise SimulationError(f"{name} is {value!r}; it must be an integer or an array of integers")
    if np.any(given < 0):
        raise SimulationError(f"{name} is {value!r}; it must be 0 or above")
    found: int | Int64 = given
    return found


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
        ``"NONE"``, ``"32B"``, ``"64B"``, ``"128B"``, or one of the 128B modes with a larger atom.

    Returns
    -------
    int or ndarray of int64
        Absolute shared memory addresses in bytes, of the same shape.

    Raises
    ------
    SimulationError
        If there is no such swizzle, or an address is no integer of 0 or above.
    """
    pattern = pattern_of(swizzle)
    linear: Any = _whole("address", address)
    line = linear // LINE
    moved: int | Int64 = linear ^ (line % pattern.lines * pattern.atom)
    return moved ^ (line % 2 * (CHUNK // 2)) if pattern.flips else moved


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
        As for `swizzle_address`. With NONE every chunk is in its own place. Of 128B_ATOM_32B_FLIP_8B this says where
        the chunk is, and not that its halves change places in odd lines.
    base : int
        Absolute shared address of the tile in bytes, a multiple of 128.

    Returns
    -------
    int or ndarray of int64
        Chunk within the same row.

    Raises
    ------
    SimulationError
        If there is no such swizzle, a number is no integer of 0 or above, a chunk lies outside its row, or the base is
        no multiple of 128.
    """
    pattern = pattern_of(swizzle)
    span = Swizzle.of(swizzle).span
    rows_per_line = LINE // (span or LINE)
    rows: Any = _whole("row", row)
    chunks: Any = _whole("chunk", chunk)
    place: Any = _whole("base", base)
    if span and np.any(chunks >= span // CHUNK):
        raise SimulationError(
            f"chunk {np.max(chunks)} of a row of swizzle {Swizzle.of(swizzle)}, which has {span // CHUNK} chunks of 16 "
            "bytes, counted from 0"
        )
    if np.any(place % LINE):
        raise SimulationError(f"base is {base}, no multiple of 128; a tile starts at 0 mod 128")
    line = rows // rows_per_line + place // LINE
    moved: int | Int64 = chunks ^ (line % pattern.lines * (pattern.atom // CHUNK))
    return moved
