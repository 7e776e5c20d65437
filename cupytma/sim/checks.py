"""What must hold of the operands of a copy before anything is touched."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError, SimulationError
from cupytma.sim.faults import IllegalInstruction, LaunchFailure, SharedOverrun, fault_of
from cupytma.sim.geometry import Geometry
from cupytma.sim.modes import WIDE, WIDE_128
from cupytma.tensormap import checking
from cupytma.words import counted


def check_integer(name: str, value: Any) -> int:
    """A whole number as a Python int; True and False are none.

    Raises
    ------
    SimulationError
        If it is none.
    """
    if isinstance(value, bool):
        raise SimulationError(f"{name} is {value!r}; it must be an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise SimulationError(f"{name} is {value!r}; it must be an integer") from None


def check_entries(name: str, values: Any, expected: str) -> tuple[Any, ...]:
    """The entries of a sequence or an iterator, in its order.

    Raises
    ------
    SimulationError
        If it is none, or one without an order or with characters for entries.
    """
    try:
        if not isinstance(values, (str, bytes, bytearray, Mapping, Set)):
            return tuple(values)
    except TypeError:
        pass
    raise SimulationError(f"{name} is {values!r}; it must be {expected}")


def check_operands(
    plan: Geometry,
    coords: Sequence[int],
    offsets: Sequence[int] = (),
    shared_offset: int = 0,
    *,
    store: bool = False,
) -> tuple[Geometry, tuple[int, ...], tuple[int, ...], int]:
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
        The rows with those of the halo, if any, and the coordinates, the im2col offsets and the tile's place in shared
        memory in Python's integers.

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
    first = (start[0], min(start[1:])) if plan.is_gathered else start
    use = {"coordinates": first, "pixel_start": plan.split(start)[1], "shared_address": place, "store": store}
    broken = checking.violations(plan.operands | use, "fault")
    if broken:
        raise fault_of(broken)
    if plan.walk is not None and plan.walk.is_wide:
        _check_wide_start(start[1], plan.walk.upper[0])
        plan = plan.with_halo(shift[0] if shift else 0)
    check_tile_size(plan)
    return plan, start, shift, place


def _check_wide_start(start: int, upper: int) -> None:
    """The first pixel may lie to the left of its box, not to the right (PTX ISA, "im2col::w"; not measured)."""
    if start > upper:
        raise IllegalInstruction(
            f"illegal instruction: the start pixel {start} in W lies to the right of the bounding box, which ends at "
            f"{upper}; start at {upper} or before"
        )


def check_coordinates(plan: Geometry, coords: Sequence[int]) -> tuple[int, ...]:
    """The coordinates as Python ints, checked against what the instruction can carry.

    Parameters
    ----------
    plan : Geometry
    coords : sequence of int
        Driver order, in elements; with interleave dimension 0 counts positions and dimension ``rank - 2`` slices. For
        a gather or scatter the column and four rows.

    Raises
    ------
    SimulationError
        For a wrong number of coordinates, or one that is not a 32-bit signed integer.
    """
    given = check_entries("coords", coords, "a sequence with one integer per dimension")
    if len(given) != plan.coordinates:
        raise SimulationError(
            f"{counted(len(given), 'coordinate')} for {plan.mode}; give 5: the column and the four rows"
            if plan.is_gathered
            else f"{counted(len(given), 'coordinate')} for a tensor map of rank {plan.coordinates}; give one per "
            "dimension, dimension 0 first"
        )
    start = tuple(check_integer(f"the coordinate of dimension {i}", c) for i, c in enumerate(given))
    for i, c in enumerate(start):
        if not -(2**31) <= c < 2**31:
            raise SimulationError(f"coordinate {c} of dimension {i} does not fit the instruction's 32-bit signed field")
    return start


def check_offsets(plan: Geometry, offsets: Sequence[int]) -> tuple[int, ...]:
    """The im2col offsets, or the halo and offset of im2col::w, as Python ints; none given means zeros.

    Raises
    ------
    SimulationError
        If there is not one per spatial dimension, or one is no 16-bit unsigned integer, or the copy is tiled; for
        im2col::w, if there are not two within the ranges of the PTX ISA.
    """
    given = check_entries("offsets", offsets, "a sequence of integers, or empty")
    values = tuple(check_integer("an im2col offset", offset) for offset in given)
    if plan.walk is None:
        if values:
            raise SimulationError(f"offsets {values} for a tiled tensor map; only im2col loads take offsets")
        return ()
    if plan.walk.is_wide:
        return _check_wide_offsets(plan, values)
    if values and len(values) != plan.walk.spatial:
        raise SimulationError(
            f"{len(values)} im2col offsets for {counted(plan.walk.spatial, 'spatial dimension')}; give one for each, "
            "the fastest first, or none"
        )
    for value in values:
        if not 0 <= value < 2**16:
            raise SimulationError(f"im2col offset {value} does not fit the instruction's 16-bit unsigned field")
    return values


# PTX ISA, "cp.async.bulk.tensor": the halo and the offset of the wide modes lie below these.
_HALO_LIMITS = {WIDE: 512, WIDE_128: 32}
_WIDE_OFFSET_LIMIT = 32
# CUDA programming guide, "Thread Block Clusters": the largest cluster, with a non-portable size; the mask's bits too.
_CLUSTER_LIMIT = 16


def _check_wide_offsets(plan: Geometry, values: tuple[int, ...]) -> tuple[int, ...]:
    if values and len(values) != 2:
        raise SimulationError(
            f"{counted(len(values), 'offset')} for {plan.mode}; give two, the halo and the offset in W, or none"
        )
    for name, value, limit in zip(
        ("halo", "offset in W"), values, (_HALO_LIMITS[plan.mode], _WIDE_OFFSET_LIMIT), strict=False
    ):
        if not 0 <= value < limit:
            raise SimulationError(f"the {name} of {plan.mode} is {value} pixels; it must be 0 to {limit - 1}")
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
            f"{name} has dtype {array.dtype} and {counted(array.ndim, 'dimension')}; it must be one-dimensional uint8, "
            f"for example `{name}.reshape(-1).view(numpy.uint8)` of a contiguous array"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise ArrayError(f"{name} is a masked array, and the unit copies masked bytes too; pass `{name}.data`")
    if not array.flags.c_contiguous:
        raise ArrayError(f"{name} is not contiguous: its bytes are {array.strides[0]} apart; pass the whole array")
    if written and not array.flags.writeable:
        raise ArrayError(f"{name} is read-only and the operation changes it; pass a writable array, or a copy")
    return array


def check_apart(**arrays: npt.NDArray[np.uint8]) -> None:
    """Refuse arrays that have bytes in common: global memory and the shared memory of each block are memories apart.

    Raises
    ------
    ArrayError
    """
    for one, other in combinations(arrays, 2):
        if np.may_share_memory(arrays[one], arrays[other]):  # exact for contiguous arrays
            raise ArrayError(f"{one} and {other} have bytes in common, but are memories apart; pass a copy of one")


def check_base(base: int) -> int:
    """The global address of the window's first byte as a Python int.

    Raises
    ------
    SimulationError
        If it is no 64-bit address.
    """
    address = check_integer("base", base)
    if not 0 <= address < 2**64:
        raise SimulationError(f"base is {address:#x}; a global address is 0 to 2^64 - 1 (bytes)")
    return address


def check_cta_mask(cta_mask: int | None, blocks: int) -> tuple[int, ...]:
    """The ranks of the blocks that a multicast goes to.

    Raises
    ------
    SimulationError
        If there is no block, or more than a cluster has, or the mask is no 16-bit unsigned integer.
    LaunchFailure
        If it names a block that is not there.
    """
    if not 1 <= blocks <= _CLUSTER_LIMIT:
        raise SimulationError(
            f"shared holds {counted(blocks, 'array')}; give one for each block of the cluster, 1 to 16"
        )
    mask = (1 << blocks) - 1 if cta_mask is None else check_integer("cta_mask", cta_mask)
    if not 0 <= mask < 1 << _CLUSTER_LIMIT:
        raise SimulationError(f"cta_mask {mask:#x} does not fit the instruction's 16-bit unsigned field")
    ranks = tuple(rank for rank in range(_CLUSTER_LIMIT) if mask >> rank & 1)
    outside = [rank for rank in ranks if rank >= blocks]
    if outside:
        raise LaunchFailure(
            f"unspecified launch failure: cta_mask {mask:#x} names block {outside[0]} of a cluster of {blocks}; clear "
            f"the bits above {blocks - 1}"
        )
    return ranks


def check_shared_place(shared_offset: int) -> int:
    """The tile's place in shared memory as a Python int.

    Raises
    ------
    SimulationError
        If it is negative, or no 32-bit address.
    """
    place = check_integer("shared_offset", shared_offset)
    if place < 0:
        raise SimulationError(f"shared_offset is {place} bytes; it must be 0 or above")
    if place >= 2**32:
        raise SimulationError(f"shared_offset is {place} bytes; a shared address has 32 bits")
    return place


def check_tile_size(plan: Geometry) -> None:
    """Refuse a tile that no shared memory holds.

    Raises
    ------
    SharedOverrun
    """
    most, size = plan.operands["shared_bytes"], plan.rows * plan.width
    if size > most:
        raise SharedOverrun(
            f"the tile has {size} bytes, more than the {most} bytes of any block's shared memory; make the box smaller"
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
