"""Operands of instructions, checked to be some that the instruction takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupytma.limits import MAX_BLOCK_THREADS, MAX_CLUSTER
from cupytma.sim.program.errors import ProgramError, check_choice, check_range, check_whole
from cupytma.sim.program.memory import Mbarrier, ProgramArray
from cupytma.sim.program.operation import PhaseToken
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import SLOT_ALIGNMENT
from cupytma.tensormap.tensor_map import TensorMap

MBARRIER_SCOPES = ("cta", "cluster")
_NAMED_BARRIERS = 16
_BULK_UNIT = 16


def array_in(array: Any, name: str, space: str, *, place: bool = False) -> ProgramArray:
    """An array of the program in a memory; with `place`, one that is not empty."""
    if not isinstance(array, ProgramArray):
        raise ProgramError(f"{name} is a {type(array).__name__}; it must be an array of the program")
    if array.space != space:
        raise ProgramError(f"{name} is {array!r}; it must be in {space} memory")
    if place and not array.offsets.size:
        raise ProgramError(f"{name} is {array!r}, which is empty")
    return array


def own_shared(array: Any) -> ProgramArray:
    """A source in the executing block's shared memory."""
    array_in(array, "source", "shared", place=True)
    if array.rank is not None:
        raise ProgramError(f"source is {array!r}; a store reads the executing block's own shared memory")
    return array  # type: ignore[no-any-return]


def one_element(array: Any) -> ProgramArray:
    """One element of an array."""
    if not isinstance(array, ProgramArray) or array.offsets.size != 1:
        raise ProgramError(f"flag is {array!r}; it must be one element of an array of the program, such as flags[0]")
    return array


def some_mbarrier(mbarrier: Any) -> Mbarrier:
    """An mbarrier of any block."""
    if not isinstance(mbarrier, Mbarrier):
        raise ProgramError(f"mbarrier is a {type(mbarrier).__name__}; it must be an mbarrier of the program")
    return mbarrier


def own_mbarrier(mbarrier: Any) -> Mbarrier:
    """An mbarrier of the executing block."""
    if some_mbarrier(mbarrier).rank is not None:
        raise ProgramError(f"{mbarrier!r} is in another block; a thread initialises and waits for its own block's")
    return mbarrier  # type: ignore[no-any-return]


def phase_token(token: Any) -> PhaseToken:
    """What an arrival returned."""
    if not isinstance(token, PhaseToken):
        raise ProgramError(f"token is {token!r}; it must be what `yield t.mbarrier_arrive(…)` gives")
    return token


def wait_operands(
    mbarrier: Any, phase: int | PhaseToken, semantics: str, scope: str
) -> tuple[Mbarrier, int | PhaseToken, str, str]:
    """The operands of a wait for an mbarrier."""
    if not isinstance(phase, PhaseToken):
        phase = check_range("parity", phase, 0, 1)
    check_choice("semantics", semantics, ("acquire", "relaxed"))
    check_choice("scope", scope, MBARRIER_SCOPES)
    return own_mbarrier(mbarrier), phase, semantics, scope


def integers(name: str, values: Any) -> tuple[int, ...]:
    """A sequence of integers."""
    try:
        given = tuple(values)
    except TypeError:
        raise ProgramError(f"{name} is {values!r}; it must be a sequence of integers") from None
    return tuple(check_whole(f"{name}[{i}]", value) for i, value in enumerate(given))


def some_map(tensor_map: Any) -> TensorMap | ProgramArray:
    """A tensor map, as a parameter or in global memory."""
    return tensor_map if isinstance(tensor_map, TensorMap) else map_place(tensor_map, "tensor_map", "global")


def map_place(array: Any, name: str, space: str | None = None) -> ProgramArray:
    """128 bytes of memory that hold a tensor map."""
    if not isinstance(array, ProgramArray):
        raise ProgramError(f"{name} is a {type(array).__name__}; it must be a TensorMap or 128 bytes of the program")
    if space is not None and array.space != space:
        raise ProgramError(f"{name} is {array!r}; it must be in {space} memory")
    if array.dtype != np.uint8 or array.shape != (SIZE,) or not array.contiguous:
        raise ProgramError(f"{name} is {array!r}; a tensor map in memory is {SIZE} contiguous bytes of uint8")
    if array.address % SLOT_ALIGNMENT:
        raise ProgramError(
            f"{name} starts at {array.address % SLOT_ALIGNMENT} modulo {SLOT_ALIGNMENT} bytes; a tensor map in memory "
            f"is aligned to {SLOT_ALIGNMENT}"
        )
    return array


def named_barrier(number: int, count: int | None) -> tuple[int, int | None]:
    """A barrier of the block and how many threads come to it."""
    check_range("number", number, 0, _NAMED_BARRIERS - 1)
    return number, None if count is None else check_range("count", count, 1, MAX_BLOCK_THREADS)


def check_bulk(destination: Any, source: Any, mbarrier: Any, cta_mask: Any) -> None:
    """Refuse what no bulk copy moves."""
    for name, array in (("destination", destination), ("source", source)):
        if not isinstance(array, ProgramArray):
            raise ProgramError(f"{name} is a {type(array).__name__}; it must be an array of the program")
        if not array.contiguous or not array.size or array.size % _BULK_UNIT or array.address % _BULK_UNIT:
            raise ProgramError(
                f"{name} is {array!r} at {array.address % _BULK_UNIT} modulo {_BULK_UNIT}: a bulk copy moves "
                f"contiguous bytes, a multiple of {_BULK_UNIT} of them and aligned to {_BULK_UNIT}"
            )
    if destination.size != source.size:
        raise ProgramError(f"destination has {destination.size} B and source {source.size} B; they must be equal")
    if source.space == destination.space and (source.space == "global" or destination.rank is None):
        raise ProgramError(
            "no bulk copy goes from global to global memory, or within a block; from one block's shared memory to "
            "another's, the destination is `array.mapa(rank)`"
        )
    if source.rank is not None:
        raise ProgramError(f"source is {source!r}; a bulk copy reads the executing block's own shared memory")
    if destination.space == "global":
        if mbarrier is not None or cta_mask is not None:
            raise ProgramError("a bulk copy to global memory takes no mbarrier and no cta_mask; it belongs to a group")
        return
    some_mbarrier(mbarrier)
    check_mask(cta_mask, destination, mbarrier)
    if cta_mask is not None and source.space != "global":
        raise ProgramError("cta_mask goes with a source in global memory")


def check_mask(cta_mask: Any, destination: ProgramArray, mbarrier: Mbarrier) -> int | None:
    """Which blocks a multicast goes to; None for no multicast."""
    if cta_mask is None:
        return None
    for operand in (destination, mbarrier):
        if operand.rank is not None:
            raise ProgramError(f"{operand!r} with cta_mask, which says itself which blocks are meant; leave out mapa")
    return check_range("cta_mask", cta_mask, 1, (1 << MAX_CLUSTER) - 1)
