"""Sets of bytes: which ones an access touches, exactly, gaps between rows and swizzled chunks included."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from cupytma.sim.mapping import tile_map
from cupytma.sim.swizzle import CHUNK
from cupytma.tensormap.tensor_map import TensorMap

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extent:
    """A set of bytes of one memory.

    Attributes
    ----------
    start, stop : int
        The first byte, and one past the last.
    mask : int or None
        Bit i says whether byte ``start + i`` belongs to the set; None where all do.
    """

    start: int
    stop: int
    mask: int | None = None

    def shifted(self, distance: int) -> Extent:
        """The same bytes, `distance` further."""
        return Extent(self.start + distance, self.stop + distance, self.mask)

    def _bits(self, low: int, high: int) -> int:
        every = (1 << (high - low)) - 1
        return every if self.mask is None else (self.mask >> (low - self.start)) & every

    def common(self, other: Extent) -> Extent | None:
        """The bytes that both have; None where there are none."""
        low, high = max(self.start, other.start), min(self.stop, other.stop)
        if low >= high:
            return None
        if self.mask is None and other.mask is None:
            return Extent(low, high)
        return _of_bits(low, self._bits(low, high) & other._bits(low, high))

    def covers(self, other: Extent) -> bool:
        """Whether every byte of the other is one of this set."""
        if self.start > other.start or self.stop < other.stop:
            return False
        return self.mask is None or not other._bits(other.start, other.stop) & ~self._bits(other.start, other.stop)

    @property
    def count(self) -> int:
        """Number of bytes."""
        return self.stop - self.start if self.mask is None else self.mask.bit_count()

    def __str__(self) -> str:
        if self.mask is None:
            return f"bytes {self.start}…{self.stop - 1}"
        return f"{self.count} of the bytes {self.start}…{self.stop - 1}"


def _of_bits(start: int, bits: int) -> Extent | None:
    if not bits:
        return None
    skipped = (bits & -bits).bit_length() - 1
    bits >>= skipped
    length = bits.bit_length()
    whole = bits == (1 << length) - 1
    return Extent(start + skipped, start + skipped + length, None if whole else bits)


def extent_of(starts: Int64, unit: int) -> Extent | None:
    """The set of the runs of `unit` bytes that begin at `starts`; None where there are none."""
    if not starts.size:
        return None
    low, high = int(starts.min()), int(starts.max()) + unit
    if unit * starts.size == high - low and (np.diff(starts.ravel()) == unit).all():
        return Extent(low, high)
    present = np.zeros(high - low, dtype=np.bool_)
    present[np.add.outer(starts.ravel() - low, np.arange(unit))] = True
    return _of_bits(low, int.from_bytes(np.packbits(present, bitorder="little").tobytes(), "little"))


@dataclass(frozen=True, eq=False)
class Tile:
    """What one tensor copy touches.

    Attributes
    ----------
    shared : Extent
        Bytes of shared memory, counted from the tile's base.
    places : ndarray of int64
        The same bytes one by one, in the tile's order.
    read, written : Extent or None
        Global addresses that a load reads, and that a store or reduction writes: whole 16-byte chunks, as hardware
        does. None where all of the tile is out of bounds.
    """

    shared: Extent
    places: Int64
    read: Extent | None
    written: Extent | None

    @property
    def bytes(self) -> int:
        """What the copy adds to a transaction count."""
        return int(self.places.size)


@lru_cache(maxsize=4096)
def tile_of(tensor_map: TensorMap, coords: tuple[int, ...], phase: int, offsets: tuple[int, ...]) -> Tile:
    """What a copy at `coords` touches, with its tile's base at shared address `phase` modulo 1024.

    Raises
    ------
    Fault, SimulationError
        As `cupytma.sim.load`.
    """
    found = tile_map(tensor_map, coords, shared_offset=phase, offsets=offsets)
    starts = found.shared_byte - phase
    shared = extent_of(starts, found.unit_bytes)
    assert shared is not None
    addresses = found.global_address[found.inside]
    places = np.add.outer(starts, np.arange(found.unit_bytes, dtype=np.int64)).ravel()
    places.setflags(write=False)
    # A store writes a chunk whole if its first byte is in bounds (measured; see `cupytma.sim.store`).
    chunks = np.unique(addresses // CHUNK * CHUNK)
    return Tile(shared, places, extent_of(addresses, found.unit_bytes), extent_of(chunks, CHUNK))
