"""What must hold of the operands of a copy before anything is touched."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError, SimulationError
from cupytma.sim.faults import IllegalInstruction, MisalignedAddress, SharedOverrun
from cupytma.sim.geometry import Geometry, Walk
from cupytma.sim.swizzle import LINE

MAX_TILE_BYTES = 228 * 1024
"""No block has more shared memory than this, so no tile can be larger."""


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


def check_coordinates(plan: Geometry, coords: Sequence[int], *, store: bool) -> tuple[int, ...]:
    """The coordinates as Python ints, checked against what the instruction can carry and what the unit accepts.

    Parameters
    ----------
    coords : sequence of int
        Driver order, in elements; with interleave dimension 0 counts positions and dimension ``rank - 2`` slices.
    store : bool
        Whether shared memory is the source, which forbids negative coordinates.

    Raises
    ------
    SimulationError
        For a wrong number of coordinates, or one that is not a 32-bit signed integer.
    IllegalInstruction
        For a start the hardware refuses.
    """
    rank = len(plan.axes) + (plan.inner_bytes is not None)
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
    _check_inner_start(plan, start)
    if store:
        _check_not_negative(start)
    if plan.walk is not None:
        _check_walk_start(plan, plan.walk, start, store=store)
    return start


def _check_inner_start(plan: Geometry, start: tuple[int, ...]) -> None:
    if plan.inner_bytes is None or start[0] * plan.element_bytes % 16 == 0:
        return
    step = 16 // plan.element_bytes
    below = start[0] // step * step
    raise IllegalInstruction(
        f"illegal instruction: coordinate {start[0]} of dimension 0 is byte {start[0] * plan.element_bytes}, "
        f"{start[0] * plan.element_bytes % 16} mod 16; the innermost start must be a multiple of 16 bytes, that is of "
        f"{step} {plan.data_type} elements; the nearest are {below} and {below + step}"
    )


def _check_not_negative(start: tuple[int, ...]) -> None:
    for i, c in enumerate(start):
        if c < 0:
            raise IllegalInstruction(
                f"illegal instruction: a store starts at coordinate {c} of dimension {i}; stores must start at 0 or "
                "above in every dimension (loads may start below); move the tile's origin inside the tensor"
            )


def _check_walk_start(plan: Geometry, walk: Walk, start: tuple[int, ...], *, store: bool) -> None:
    for axis, lower, upper in zip(plan.axes, walk.lower, walk.upper, strict=False):
        c = start[axis.dimension]
        if store and lower != 0:
            raise IllegalInstruction(
                f"illegal instruction: an im2col store with lower corner {lower} in dimension {axis.dimension}; "
                "stores need a lower corner of 0 in every spatial dimension; encode a second descriptor for the store"
            )
        if not lower <= c <= upper:
            raise IllegalInstruction(
                f"illegal instruction: the im2col start pixel {c} of dimension {axis.dimension} lies outside the "
                f"bounding box {lower} to {upper} (the lower corner, and size + upper corner - 1); start inside it"
            )


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


def check_shared_base(shared_offset: int) -> int:
    """The tile's place in shared memory as a Python int.

    Raises
    ------
    MisalignedAddress
        If it is not a multiple of 128 bytes.
    SimulationError
        If it is negative.
    """
    place = check_integer("shared_offset", shared_offset)
    if place < 0:
        raise SimulationError(f"shared_offset is {place} bytes; it must be 0 or above")
    if place % LINE:
        raise MisalignedAddress(
            f"misaligned address: the shared tile starts at byte {place}, {place % LINE} mod {LINE}; it must start at "
            f"a multiple of {LINE} bytes; the next is {place - place % LINE + LINE}"
        )
    return place


def check_tile_size(plan: Geometry) -> None:
    """Refuse a tile that no shared memory holds.

    Raises
    ------
    SharedOverrun
    """
    if plan.transaction_bytes > MAX_TILE_BYTES:
        raise SharedOverrun(
            f"the tile has {plan.transaction_bytes} bytes, more than the {MAX_TILE_BYTES} bytes of any block's shared "
            "memory; make the box smaller"
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
