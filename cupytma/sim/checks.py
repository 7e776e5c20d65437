"""What must hold of the operands of a copy before anything is touched."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError, SimulationError
from cupytma.sim.faults import SharedOverrun, fault_of
from cupytma.sim.geometry import Geometry
from cupytma.tensormap import checking


def check_integer(name: str, value: Any) -> int:
    """A whole number as a Python int.

    Raises
    ------
    SimulationError
        If it is none.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise SimulationError(f"{name} is {value!r}; it must be an integer") from None


def check_operands(
    plan: Geometry,
    coords: Sequence[int],
    offsets: Sequence[int] = (),
    shared_offset: int = 0,
    *,
    store: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """What one instruction says, checked against what it can carry and what the unit accepts.

    Parameters
    ----------
    plan : Geometry
    coords, offsets, shared_offset
        As `cupytma.sim.load` takes them.
    store : bool
        Whether shared memory is the source.

    Returns
    -------
    tuple
        The coordinates, the im2col offsets and the tile's place in shared memory, in Python's integers.

    Raises
    ------
    SimulationError
        If the instruction cannot carry them.
    IllegalInstruction, MisalignedAddress
        Where they break fault rows of the rule table; the message names all of these.
    SharedOverrun
        If no shared memory holds the tile.
    """
    shift = check_offsets(plan, offsets)
    start = check_coordinates(plan, coords)
    place = check_shared_place(shared_offset)
    use = {"coordinates": start, "pixel_start": plan.split(start)[1], "shared_address": place, "store": store}
    broken = checking.violations(plan.operands | use, "fault")
    if broken:
        raise fault_of(broken)
    check_tile_size(plan)
    return start, shift, place


def check_coordinates(plan: Geometry, coords: Sequence[int]) -> tuple[int, ...]:
    """The coordinates as Python ints, checked against what the instruction can carry.

    Parameters
    ----------
    plan : Geometry
    coords : sequence of int
        Driver order, in elements; with interleave dimension 0 counts positions and dimension ``rank - 2`` slices.

    Raises
    ------
    SimulationError
        For a wrong number of coordinates, or one that is not a 32-bit signed integer.
    """
    rank = plan.operands["rank"]
    try:
        given = tuple(coords)
    except TypeError:
        raise SimulationError(f"coords is {coords!r}; it must be a sequence with one integer per dimension") from None
    if len(given) != rank:
        raise SimulationError(
            f"{len(given)} coordinates for a tensor map of rank {rank}; give one per dimension, dimension 0 first"
        )
    start = tuple(check_integer(f"the coordinate of dimension {i}", c) for i, c in enumerate(given))
    for i, c in enumerate(start):
        if not -(2**31) <= c < 2**31:
            raise SimulationError(f"coordinate {c} of dimension {i} does not fit the instruction's 32-bit signed field")
    return start


def check_offsets(plan: Geometry, offsets: Sequence[int]) -> tuple[int, ...]:
    """The im2col offsets as Python ints; none given means zeros.

    Raises
    ------
    SimulationError
        If there is not one per spatial dimension, or one is no 16-bit unsigned integer, or the copy is tiled.
    """
    values = tuple(check_integer("an im2col offset", offset) for offset in offsets)
    if plan.walk is None:
        if values:
            raise SimulationError(f"offsets {values} for a tiled tensor map; only im2col loads take offsets")
        return ()
    if values and len(values) != plan.walk.spatial:
        raise SimulationError(
            f"{len(values)} im2col offsets for {plan.walk.spatial} spatial dimensions; give one for each, the fastest "
            "first, or none"
        )
    for value in values:
        if not 0 <= value < 2**16:
            raise SimulationError(f"im2col offset {value} does not fit the instruction's 16-bit unsigned field")
    return values


def check_array(name: str, array: Any, *, written: bool) -> npt.NDArray[np.uint8]:
    """An array of bytes that the copy can use in place.

    Raises
    ------
    ArrayError
        If it is not a contiguous one-dimensional uint8 numpy array, or must be written and cannot.
    """
    if not isinstance(array, np.ndarray):
        raise ArrayError(f"{name} is a {type(array).__name__}; it must be a numpy array of uint8, one-dimensional")
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ArrayError(
            f"{name} has dtype {array.dtype} and {array.ndim} dimensions; it must be one-dimensional uint8, for "
            f"example `{name}.reshape(-1).view(numpy.uint8)` of a contiguous array"
        )
    if not array.flags.c_contiguous:
        raise ArrayError(f"{name} is not contiguous: its bytes are {array.strides[0]} apart; pass the whole array")
    if written and not array.flags.writeable:
        raise ArrayError(f"{name} is read-only and the operation changes it; pass a writable array, or a copy")
    return array


def check_shared_place(shared_offset: int) -> int:
    """The tile's place in shared memory as a Python int.

    Raises
    ------
    SimulationError
        If it is negative.
    """
    place = check_integer("shared_offset", shared_offset)
    if place < 0:
        raise SimulationError(f"shared_offset is {place} bytes; it must be 0 or above")
    return place


def check_tile_size(plan: Geometry) -> None:
    """Refuse a tile that no shared memory holds.

    Raises
    ------
    SharedOverrun
    """
    most = plan.operands["shared_bytes"]
    if plan.transaction_bytes > most:
        raise SharedOverrun(
            f"the tile has {plan.transaction_bytes} bytes, more than the {most} bytes of any block's shared memory; "
            "make the box smaller"
        )


def check_shared_room(plan: Geometry, end: int, shared_bytes: int) -> None:
    """Refuse a tile whose last byte, at ``end - 1``, lies outside ``shared``.

    Raises
    ------
    SharedOverrun
    """
    if end > shared_bytes:
        raise SharedOverrun(
            f"the tile of {plan.rows} rows of {plan.width} bytes ends at byte {end} of shared memory, which has "
            f"{shared_bytes}; use a smaller box, a smaller shared_offset or a larger shared array"
        )
