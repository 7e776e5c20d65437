"""The map of one tile: for pictures, for counting bank conflicts, and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cupytma.sim.checks import check_operands
from cupytma.sim.geometry import geometry
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
        Bytes of one entry.
    coordinates : ndarray of int64, shape (n, rank)
        Tensor coordinates, driver order.
    inside : ndarray of bool, shape (n,)
        Whether a load reads the element; the others get the fill.
    global_address : ndarray of int64, shape (n,)
        Address in bytes of the entry's first byte; -1 outside the tensor.
    shared_byte : ndarray of int64, shape (n,)
        Place in shared memory in bytes, counted like `shared_offset`, swizzle included.
    """

    unit_bytes: int
    coordinates: Int64
    inside: Bool
    global_address: Int64
    shared_byte: Int64


def tile_map(
    tensor_map: TensorMap, coords: Sequence[int], *, shared_offset: int = 0, offsets: Sequence[int] = ()
) -> TileMap:
    """Which global element a load puts at which shared byte.

    Parameters
    ----------
    tensor_map : TensorMap
    coords : sequence of int
        Start of the tile in elements, driver order; may be negative.
    shared_offset : int
        Shared address of the tile in bytes, a multiple of 128; it decides where the swizzle pattern begins.
    offsets : sequence of int
        The im2col offsets, first spatial dimension first.

    Returns
    -------
    TileMap

    Raises
    ------
    Fault
        As `load` does, apart from faults about memory windows.
    """
    plan = geometry(tensor_map)
    start, shift, place = check_operands(plan, coords, offsets, shared_offset)
    inner, along = plan.split(start)
    rows = traverse(plan, start, shift, store=False)
    steps = row_steps(plan, along, shift)
    per_row = plan.width // plan.unit_bytes
    within = np.arange(per_row, dtype=np.int64) * plan.unit_bytes
    coordinates = np.repeat((steps + np.array(along, dtype=np.int64)[:, None]).T, per_row, axis=0)
    if plan.inner_bytes is not None:
        across = np.tile(inner + np.arange(per_row, dtype=np.int64), plan.rows)
        coordinates = np.column_stack([across, coordinates])
    inside = np.ones(plan.rows, dtype=np.bool_) if rows.inside is None else rows.inside
    inside = (inside[:, None] & (within >= rows.first) & (within < rows.last)).ravel()
    address = np.full(len(inside), -1, dtype=np.int64)
    if inside.any():
        address[inside] = np.add.outer(rows.offsets, within).ravel()[inside] + rows.origin
    linear = np.add.outer(np.arange(plan.rows, dtype=np.int64) * plan.pitch, within).ravel() + place
    return TileMap(plan.unit_bytes, coordinates, inside, address, swizzle_address(linear, plan.swizzle))
