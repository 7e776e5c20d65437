"""The copies themselves: load, store, reduce, prefetch.

Each checks everything first and then moves bytes, so an operation that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cupytma.sim.checks import check_array, check_integer, check_operands, check_shared_room
from cupytma.sim.geometry import Geometry, geometry
from cupytma.sim.reductions import combine, reduction
from cupytma.sim.swizzle import CHUNK
from cupytma.sim.traversal import Traversal, chunks_of, shared_extent, traverse
from cupytma.sim.values import convert_loaded, filled
from cupytma.sim.window import read_rows, row_starts, write_rows
from cupytma.tensormap.enums import Swizzle

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Copy:
    """One operation, checked: nothing can go wrong any more."""

    plan: Geometry
    rows: Traversal
    starts: Int64
    memory: Bytes
    shared: Bytes
    shared_offset: int

    @property
    def length(self) -> int:
        """Bytes of a row that are in bounds."""
        return self.rows.last - self.rows.first


def load(
    tensor_map: TensorMap,
    coords: Sequence[int],
    *,
    memory: Bytes,
    base: int,
    shared: Bytes,
    shared_offset: int = 0,
    offsets: Sequence[int] = (),
) -> int:
    """Load one tile from global to shared memory.

    Elements outside the tensor get the descriptor's fill. Bytes between rows (where the swizzle's span is longer than
    a row) keep what they held. Exact on every recorded load of an H100.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        Start of the tile in elements, driver order (dimension 0 first); 32-bit integers, negative or far outside
        allowed. With interleave, dimension 0 counts positions and dimension ``rank - 2`` slices.
    memory : ndarray of uint8, 1-D, contiguous
        A window of global memory that holds every byte the tile reads.
    base : int
        Global address of ``memory[0]`` in bytes.
    shared : ndarray of uint8, 1-D, contiguous
        Shared memory; changed in place. ``shared[0]`` is taken to stand at a shared address that is 0 modulo 1024:
        the absolute address decides where the swizzle pattern begins.
    shared_offset : int
        Byte of `shared` where the tile starts; a multiple of 128.
    offsets : sequence of int
        Offsets of an im2col load, one per spatial dimension, the fastest first; 16-bit unsigned. None given: zeros.

    Returns
    -------
    int
        The bytes added to the mbarrier's transaction count; fill counts, gaps between rows do not.

    Raises
    ------
    IllegalInstruction
        If the innermost start is not a multiple of 16 bytes, or an im2col start lies outside its bounding box.
    MisalignedAddress
        If `shared_offset` is not a multiple of 128.
    OutOfWindow, SharedOverrun
        If the tile reads outside `memory` or writes past the end of `shared`.
    SimulationError, ArrayError
        If an operand is none the instruction takes, an array is unsuited, or the descriptor is not simulated.

    Examples
    --------
    >>> import numpy as np, cupytma as tma
    >>> matrix = np.arange(64, dtype=np.float32).reshape(8, 8)
    >>> m = tma.Tiled(data_type="FLOAT32", global_address=0x1000, global_dim=(8, 8), box_dim=(4, 2)).encode()
    >>> tile = np.zeros((2, 4), np.float32)
    >>> load(m, (4, 1), memory=matrix.reshape(-1).view(np.uint8), base=0x1000, shared=tile.reshape(-1).view(np.uint8))
    32
    >>> tile
    array([[12., 13., 14., 15.],
           [20., 21., 22., 23.]], dtype=float32)
    """
    memory = check_array("memory", memory, written=False)
    shared = check_array("shared", shared, written=True)
    copy = _checked(tensor_map, coords, memory, base, shared, shared_offset, offsets=offsets)
    _put_tile(copy, _loaded_tile(copy))
    return copy.plan.transaction_bytes


def store(
    tensor_map: TensorMap,
    coords: Sequence[int],
    *,
    memory: Bytes,
    base: int,
    shared: Bytes,
    shared_offset: int = 0,
) -> None:
    """Store one tile from shared to global memory.

    Elements outside the tensor are skipped, but the bound of dimension 0 is coarser than the tensor: hardware writes a
    16-byte chunk whole if its first byte is in bounds. A tensor whose innermost extent is not a multiple of 16 bytes
    gets up to 15 bytes written past the end of every row, into whatever lies there. So does this function; where those
    bytes lie outside `memory` it raises `OutOfWindow`, because hardware would write them (measured on an H100) and a
    store that silently left them out would hide a corruption. No value is converted, for any type. Where rows of the
    tensor overlap in memory the last one stays; hardware promises no order.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        Start of the tile in elements, driver order; none negative.
    memory : ndarray of uint8, 1-D, contiguous
        A window of global memory that holds every byte the tile writes; changed in place.
    base : int
        Global address of ``memory[0]`` in bytes.
    shared : ndarray of uint8, 1-D, contiguous
        Shared memory. ``shared[0]`` is taken to stand at a shared address that is 0 modulo 1024.
    shared_offset : int
        Byte of `shared` where the tile starts; a multiple of 128.

    Raises
    ------
    IllegalInstruction
        If a coordinate is negative, the innermost start is not a multiple of 16 bytes, an im2col start lies outside
        its bounding box, or an im2col lower corner is negative.
    MisalignedAddress, OutOfWindow, SharedOverrun, SimulationError, ArrayError
        As for `load`.
    """
    memory = check_array("memory", memory, written=True)
    shared = check_array("shared", shared, written=False)
    copy = _checked(tensor_map, coords, memory, base, shared, shared_offset, store=True)
    if len(copy.starts):
        write_rows(memory, copy.starts, _rows_in_bounds(copy))


def reduce(
    tensor_map: TensorMap,
    op: str,
    coords: Sequence[int],
    *,
    memory: Bytes,
    base: int,
    shared: Bytes,
    shared_offset: int = 0,
) -> None:
    """Combine one tile of shared memory into global memory: ``destination = destination op tile``.

    Places as for `store`, the rounding of dimension 0 to 16 bytes included: elements past the end of a row within its
    last 16 bytes are reduced too. Where rows of the tensor overlap in memory every one is applied, in the tile's order.

    Parameters
    ----------
    tensor_map : TensorMap
    op : str
        ``add``, ``min``, ``max``, ``inc``, ``dec``, ``and``, ``or`` or ``xor``.
    coords, memory, base, shared, shared_offset
        As for `store`.

    Raises
    ------
    IllegalInstruction
        As for `store`; that a negative coordinate is refused is taken over from stores. Also for and, or and xor on
        INT64, which hardware refuses.
    NotSimulatedError
        For an operation whose result on the element type has not been measured; the message lists those that have.
    MisalignedAddress, OutOfWindow, SharedOverrun, SimulationError, ArrayError
        As for `load`.
    """
    memory = check_array("memory", memory, written=True)
    shared = check_array("shared", shared, written=False)
    chosen = reduction(geometry(tensor_map).data_type, op)
    copy = _checked(tensor_map, coords, memory, base, shared, shared_offset, store=True)
    if not len(copy.starts):
        return
    tile = _rows_in_bounds(copy)
    for part in _disjoint(copy.starts, copy.length):
        starts = copy.starts[part]
        write_rows(memory, starts, combine(chosen, read_rows(memory, starts, copy.length), tile[part]))


def prefetch(
    tensor_map: TensorMap, coords: Sequence[int], *, memory: Bytes, base: int, offsets: Sequence[int] = ()
) -> None:
    """Prefetch one tile to the L2 cache: changes nothing, and is checked as the load that it runs ahead of.

    Hardware may be milder: that a prefetch faults where the load would is taken over from loads.

    Parameters
    ----------
    tensor_map, coords, memory, base, offsets
        As for `load`.

    Raises
    ------
    IllegalInstruction, OutOfWindow, SharedOverrun, SimulationError, ArrayError
        As for `load`; SharedOverrun for a tile that no shared memory holds.
    """
    memory = check_array("memory", memory, written=False)
    plan = geometry(tensor_map)
    start, shift, _ = check_operands(plan, coords, offsets)
    row_starts(traverse(plan, start, shift, store=False), memory.size, check_integer("base", base))


def _checked(
    tensor_map: TensorMap,
    coords: Sequence[int],
    memory: Bytes,
    base: int,
    shared: Bytes,
    shared_offset: int,
    *,
    offsets: Sequence[int] = (),
    store: bool = False,
) -> _Copy:
    """Everything that can be wrong with an operation, checked before anything moves."""
    plan = geometry(tensor_map)
    start, shift, place = check_operands(plan, coords, offsets, shared_offset, store=store)
    check_shared_room(plan, place + shared_extent(plan, place), shared.size)
    rows = traverse(plan, start, shift, store=store)
    return _Copy(plan, rows, row_starts(rows, memory.size, check_integer("base", base)), memory, shared, place)


def _loaded_tile(copy: _Copy) -> Bytes:
    """The tile of a load before the swizzle, shape (rows, width)."""
    plan, rows = copy.plan, copy.rows
    if not len(copy.starts):
        return filled(plan.oob_fill, (plan.rows, plan.width))
    found = convert_loaded(plan.data_type, read_rows(copy.memory, copy.starts, copy.length))
    if found.shape == (plan.rows, plan.width):
        return found
    tile = filled(plan.oob_fill, (plan.rows, plan.width))
    inside = slice(None) if rows.inside is None else rows.inside
    tile[inside, rows.first : rows.last] = found
    return tile


def _put_tile(copy: _Copy, tile: Bytes) -> None:
    """Write a tile to shared memory."""
    plan, place = copy.plan, copy.shared_offset
    if plan.swizzle == Swizzle.NONE:
        copy.shared[place : place + tile.size] = tile.ravel()
    else:
        _chunks(copy.shared, place)[chunks_of(plan, place)] = tile.reshape(-1, CHUNK).view("V16")[:, 0]


def _rows_in_bounds(copy: _Copy) -> Bytes:
    """What a store writes: the bytes in bounds of the rows inside, read from shared memory."""
    plan, rows, place = copy.plan, copy.rows, copy.shared_offset
    if plan.swizzle == Swizzle.NONE:
        flat = copy.shared[place : place + plan.transaction_bytes]
    else:
        flat = _chunks(copy.shared, place)[chunks_of(plan, place)].view(np.uint8)
    tile = flat.reshape(plan.rows, plan.width)
    inside = slice(None) if rows.inside is None else rows.inside
    return np.ascontiguousarray(tile[inside, rows.first : rows.last])


def _chunks(shared: Bytes, place: int) -> npt.NDArray[np.void]:
    """Shared memory from the tile's base on as 16-byte chunks."""
    rest = shared[place:]
    return rest[: rest.size // CHUNK * CHUNK].view("V16")


def _disjoint(starts: Int64, length: int) -> Iterator[slice]:
    """The rows in parts within which none overlaps another, in the tile's order."""
    if len(starts) < 2 or np.diff(np.sort(starts)).min() >= length:
        yield slice(None)
    else:
        for i in range(len(starts)):
            yield slice(i, i + 1)
