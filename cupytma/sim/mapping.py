"""The map of one tile: for pictures, for counting bank conflicts, and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from cupytma.sim.checks import check_operands
from cupytma.sim.geometry import GROUP, Geometry, geometry
from cupytma.sim.modes import verified
from cupytma.sim.swizzle import swizzle_address
from cupytma.sim.traversal import row_steps, traverse

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TileMap:
    """Where each element of a tile comes from and where it goes.

    All arrays have one entry per element (with interleave, per slice) in the tile's order: dimension 0 fastest.

    Attributes
    ----------
    unit_bytes : int
        Bytes of one entry, as they are copied.
    unit_elements : int
        Elements of one entry: 1, or 16 of a packed type; 0 with interleave, where an entry is a slice.
    coordinates : ndarray of int64, shape (n, rank)
        Tensor coordinates, driver order; of a packed entry its first element's.
    inside : ndarray of bool, shape (n,)
        Whether a load reads the element; the others get the fill.
    global_address : ndarray of int64, shape (n,)
        Address in bytes of the entry's first byte; -1 outside the tensor.
    shared_byte : ndarray of int64, shape (n,)
        Place in shared memory in bytes, counted like `shared_offset`, swizzle included. Entries longer than 8 bytes are
        in two pieces there under 128B_ATOM_32B_FLIP_8B: where the first one is says `swizzle_address` for every byte.
    shape : tuple of int
        The entries as an array, numpy's order: rows as the box has them, outermost first, then entries within a row.
    verified : bool
        Whether hardware was measured to do this, or documents say so alone; see `cupytma.sim.verified`.
    """

    unit_bytes: int
    unit_elements: int
    coordinates: Int64
    inside: Bool
    global_address: Int64
    shared_byte: Int64
    shape: tuple[int, ...]
    verified: bool


def tile_map(
    tensor_map: TensorMap,
    coords: Sequence[int],
    *,
    shared_offset: int = 0,
    offsets: Sequence[int] = (),
    mode: str | None = None,
) -> TileMap:
    """Which global element a load puts at which shared byte.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        Start of the tile in elements, driver order; may be negative. For ``"tile::gather4"`` the column and four rows.
    shared_offset : int
        Shared address of the tile in bytes, a multiple of 128; it decides where the swizzle pattern begins.
    offsets : sequence of int
        The im2col offsets, first spatial dimension first; for ``"im2col::w"`` the halo and the offset in W, in pixels.
    mode : str, optional
        As for `load`.

    Returns
    -------
    TileMap

    Raises
    ------
    Fault, SimulationError
        As `load` does, apart from faults about memory windows.
    """
    plan = geometry(tensor_map, mode)
    plan, start, shift, place = check_operands(plan, coords, offsets, shared_offset)
    inner, along = plan.split(start)
    rows = traverse(plan, start, shift, store=False)
    unit = _unit(plan)
    per_row = plan.width // unit.shared_bytes
    entries = np.arange(per_row, dtype=np.int64)
    coordinates = np.repeat((row_steps(plan, start, shift) + np.array(along, np.int64)[:, None]).T, per_row, axis=0)
    if plan.inner_bytes is not None:
        coordinates = np.column_stack([np.tile(inner + entries * unit.elements, plan.rows), coordinates])
    within = entries * unit.global_bytes
    inside = np.ones(plan.rows, dtype=np.bool_) if rows.inside is None else rows.inside
    inside = (inside[:, None] & (within >= rows.first) & (within < rows.last)).ravel()
    address = np.full(len(inside), -1, dtype=np.int64)
    if inside.any():
        address[inside] = np.add.outer(rows.offsets, within).ravel()[inside] + rows.origin
    linear = np.add.outer(np.arange(plan.rows, dtype=np.int64) * plan.pitch, entries * unit.shared_bytes).ravel()
    return TileMap(
        unit.global_bytes, unit.elements, coordinates, inside, address, swizzle_address(linear + place, plan.swizzle),
        (*plan.counts[::-1], per_row), verified(tensor_map, mode),
    )  # fmt: skip


class _Unit(NamedTuple):
    """What one entry is."""

    elements: int
    global_bytes: int
    shared_bytes: int


def _unit(plan: Geometry) -> _Unit:
    if plan.inner_bytes is None:
        return _Unit(0, plan.width, plan.width)
    if plan.element_bits % 8:
        return _Unit(GROUP, *plan.group_bytes())
    return _Unit(1, plan.element_bits // 8, plan.element_bits // 8)
