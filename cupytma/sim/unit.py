"""The copies themselves: load, multicast, store, reduce, prefetch.

Each checks everything first and then moves bytes, so an operation that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cupytma.errors import SimulationError
from cupytma.sim.checks import (
    check_apart,
    check_array,
    check_base,
    check_coordinates,
    check_cta_mask,
    check_offsets,
    check_operands,
    check_shared_room,
)
from cupytma.sim.geometry import Geometry, geometry
from cupytma.sim.reductions import combine, reduction
from cupytma.sim.swizzle import pattern_of
from cupytma.sim.traversal import Traversal, chunks_of, shared_extent, traverse
from cupytma.sim.values import convert_loaded, filled, packed_groups, spread_groups
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
    mode: str | None = None,
) -> int:
    """Load one tile from global to shared memory.

    Elements outside the tensor get the descriptor's fill. Bytes between rows (where the swizzle's span is longer than
    a row, and those that packed types leave) keep what they held. Exact on every recorded load of an H100 and an H200;
    `cupytma.sim.verified` says of which tensor maps and modes there are recordings.

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
        Offsets of an im2col load in pixels, one per spatial dimension, the fastest first; 16-bit unsigned, of which 16,
        8 or 5 bits are kept for rank 3, 4 or 5 (for rank 5 the others are carried into the next offset). For
        ``"im2col::w"`` and ``"im2col::w::128"`` the halo and the offset in W, in pixels. None given: zeros.
    mode : str, optional
        The instruction's mode: ``"tile"``, ``"tile::gather4"``, ``"im2col"``, ``"im2col::w"`` or ``"im2col::w::128"``.
        Default: what the tensor map says. For ``"tile::gather4"`` `coords` are the first column and the four rows.

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
        If an operand is none the instruction takes, an array is unsuited, `memory` and `shared` have bytes in common,
        or the descriptor is not simulated.

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
    check_apart(memory=memory, shared=shared)
    copy = _checked(geometry(tensor_map, mode), coords, memory, base, shared, shared_offset, offsets=offsets)
    _put_tile(copy, _loaded_tile(copy))
    return copy.plan.transaction_bytes


def multicast(
    tensor_map: TensorMap,
    coords: Sequence[int],
    *,
    memory: Bytes,
    base: int,
    shared: Sequence[Bytes],
    cta_mask: int | None = None,
    shared_offset: int = 0,
    offsets: Sequence[int] = (),
    mode: str | None = None,
) -> tuple[int, ...]:
    """Load one tile to several blocks of a cluster: the same bytes at the same offset of each one's shared memory.

    The barrier of each of those blocks, at the same offset too, gets the bytes of the whole tile. Measured on an H200
    for a cluster of two.

    Parameters
    ----------
    tensor_map, coords, memory, base, shared_offset, offsets, mode
        As for `load`.
    shared : sequence of ndarray of uint8
        Shared memory of each block of the cluster, by rank; changed in place.
    cta_mask : int, optional
        16 bits: bit ``n`` is set for the block of rank ``n``. Default: every block.

    Returns
    -------
    tuple of int
        The bytes added to the transaction count of each block's barrier; 0 where the mask has no bit.

    Raises
    ------
    LaunchFailure
        If the mask names a block that is not in the cluster.
    IllegalInstruction, MisalignedAddress, OutOfWindow, SharedOverrun, SimulationError, ArrayError
        As for `load`.
    """
    if isinstance(shared, np.ndarray) or not isinstance(shared, Sequence):
        given = f"an array of shape {shared.shape}" if isinstance(shared, np.ndarray) else repr(shared)
        raise SimulationError(f"shared is {given}; it must be a sequence of arrays, one for each block of the cluster")
    arrays = [check_array(f"shared[{rank}]", array, written=True) for rank, array in enumerate(shared)]
    chosen = check_cta_mask(cta_mask, len(arrays))
    memory = check_array("memory", memory, written=False)
    check_apart(memory=memory, **{f"shared[{rank}]": array for rank, array in enumerate(arrays)})
    plan = geometry(tensor_map, mode)
    coords, offsets = check_coordinates(plan, coords), check_offsets(plan, offsets)  # once: they may be iterators
    copies = {
        rank: _checked(plan, coords, memory, base, arrays[rank], shared_offset, offsets=offsets) for rank in chosen
    }
    for copy in copies.values():
        _put_tile(copy, _loaded_tile(copy))
    return tuple(copies[rank].plan.transaction_bytes if rank in copies else 0 for rank in range(len(arrays)))


def store(
    tensor_map: TensorMap,
    coords: Sequence[int],
    *,
    memory: Bytes,
    base: int,
    shared: Bytes,
    shared_offset: int = 0,
    mode: str | None = None,
) -> None:
    """Store one tile from shared to global memory.

    Elements outside the tensor are skipped, but the bound of dimension 0 is coarser than the tensor: hardware writes a
    16-byte chunk whole if its first byte is in bounds. A tensor whose innermost extent is not a multiple of 16 bytes
    gets up to 15 bytes written past the end of every row, into whatever lies there. So does this function; where those
    bytes lie outside `memory` it raises `OutOfWindow`, because hardware would write them (measured on an H100) and a
    store that silently left them out would hide a corruption. No value is converted, for any type. Where rows of the
    tensor overlap in memory the last one stays, as in every recording; no document promises that order. A store of
    16U6_ALIGN16B takes 6 bits of each byte (PTX ISA, ".b6p2x16"; not measured).

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
    mode : str, optional
        The instruction's mode: ``"tile"``, ``"tile::scatter4"`` or ``"im2col_no_offs"``. Default: what the tensor map
        says. For ``"tile::scatter4"`` `coords` are the first column and the four rows.

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
    check_apart(memory=memory, shared=shared)
    copy = _checked(geometry(tensor_map, mode, store=True), coords, memory, base, shared, shared_offset, store=True)
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
    last 16 bytes are reduced too. Where rows of the tensor overlap in memory every one is applied, in the tile's order,
    as in every recording; no document promises that order.

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
        As for `store`. Also for an operation that hardware does not have for the element type; the message lists those
        that it has.
    NotSimulatedError
        For packed element types.
    MisalignedAddress, OutOfWindow, SharedOverrun, SimulationError, ArrayError
        As for `load`.
    """
    memory = check_array("memory", memory, written=True)
    shared = check_array("shared", shared, written=False)
    check_apart(memory=memory, shared=shared)
    plan = geometry(tensor_map, store=True)
    chosen = reduction(plan.data_type, op)
    copy = _checked(plan, coords, memory, base, shared, shared_offset, store=True)
    if not len(copy.starts):
        return
    tile = _rows_in_bounds(copy)
    for part in _disjoint(copy.starts, copy.length):
        starts = copy.starts[part]
        write_rows(memory, starts, combine(chosen, read_rows(memory, starts, copy.length), tile[part]))


def prefetch(
    tensor_map: TensorMap,
    coords: Sequence[int],
    *,
    memory: Bytes,
    base: int,
    offsets: Sequence[int] = (),
    mode: str | None = None,
) -> None:
    """Prefetch one tile to the L2 cache: changes nothing, and faults as the load does that it runs ahead of.

    That it does was measured on an H200 for starts that are illegal and for some that are not.

    Parameters
    ----------
    tensor_map, coords, memory, base, offsets, mode
        As for `load`.

    Raises
    ------
    IllegalInstruction, OutOfWindow, SharedOverrun, SimulationError, ArrayError
        As for `load`; SharedOverrun for a tile that no shared memory holds.
    """
    memory = check_array("memory", memory, written=False)
    plan, start, shift, _ = check_operands(geometry(tensor_map, mode), coords, offsets)
    row_starts(traverse(plan, start, shift, store=False), memory.size, check_base(base))


def _checked(
    plan: Geometry,
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
    plan, start, shift, place = check_operands(plan, coords, offsets, shared_offset, store=store)
    check_shared_room(plan, place + shared_extent(plan, place), shared.size)
    rows = traverse(plan, start, shift, store=store)
    return _Copy(plan, rows, row_starts(rows, memory.size, check_base(base)), memory, shared, place)


def _loaded_tile(copy: _Copy) -> Bytes:
    """The tile of a load before the swizzle, shape (rows, bytes of a row in shared memory)."""
    plan, rows = copy.plan, copy.rows
    shape = plan.rows, plan.global_width
    if not len(copy.starts):
        tile = filled(plan.oob_fill, shape)
    else:
        tile = convert_loaded(plan.data_type, read_rows(copy.memory, copy.starts, copy.length))
        if tile.shape != shape:
            found, tile = tile, filled(plan.oob_fill, shape)
            inside = slice(None) if rows.inside is None else rows.inside
            tile[inside, rows.first : rows.last] = found
    return spread_groups(tile, _shared_tile(copy), *plan.group_bytes()) if plan.has_gaps else tile


def _put_tile(copy: _Copy, tile: Bytes) -> None:
    """Write a tile to shared memory."""
    plan, place = copy.plan, copy.shared_offset
    if plan.swizzle == Swizzle.NONE:
        copy.shared[place : place + tile.size] = tile.ravel()
        return
    unit = pattern_of(plan.swizzle).unit
    _chunks(copy.shared, place, unit)[chunks_of(plan, place)] = tile.reshape(-1, unit).view(f"V{unit}")[:, 0]


def _shared_tile(copy: _Copy) -> Bytes:
    """The tile as shared memory holds it, put in order, shape (rows, bytes of a row in shared memory)."""
    plan, place = copy.plan, copy.shared_offset
    if plan.swizzle == Swizzle.NONE:
        flat = copy.shared[place : place + plan.rows * plan.width]
    else:
        unit = pattern_of(plan.swizzle).unit
        flat = _chunks(copy.shared, place, unit)[chunks_of(plan, place)].view(np.uint8)
    return flat.reshape(plan.rows, plan.width)


def _rows_in_bounds(copy: _Copy) -> Bytes:
    """What a store writes: the bytes in bounds of the rows inside, read from shared memory."""
    plan, rows = copy.plan, copy.rows
    tile = _shared_tile(copy)
    if plan.has_gaps:
        tile = packed_groups(tile, *plan.group_bytes())
    inside = slice(None) if rows.inside is None else rows.inside
    return np.ascontiguousarray(tile[inside, rows.first : rows.last])


def _chunks(shared: Bytes, place: int, unit: int) -> npt.NDArray[np.void]:
    """Shared memory from the tile's base on as chunks of `unit` bytes."""
    rest = shared[place:]
    return rest[: rest.size // unit * unit].view(f"V{unit}")


def _disjoint(starts: Int64, length: int) -> Iterator[slice]:
    """The rows in parts within which none overlaps another, in the tile's order."""
    if len(starts) < 2 or np.diff(np.sort(starts)).min() >= length:
        yield slice(None)
    else:
        for i in range(len(starts)):
            yield slice(i, i + 1)
