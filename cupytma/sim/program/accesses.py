"""Accesses to memory, and which of them the memory model leaves unordered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from cupytma.sim.program.extents import Extent
from cupytma.sim.program.memory import Allocation, ProgramArray
from cupytma.sim.program.operation import Behaviour, Operation
from cupytma.sim.program.ordering import Known
from cupytma.sim.program.state import Store, Wait

if TYPE_CHECKING:
    from cupytma.sim.program.copies import Copy, Transfer
    from cupytma.sim.program.machine import Machine

READ, WRITE, REDUCE = "read", "write", "reduce"
GENERIC, ASYNC, TENSORMAP = "generic", "async", "tensormap"


@dataclass(slots=True, eq=False)
class Access:
    """One access to memory.

    Attributes
    ----------
    event : int
        Its bit in sets of events. Of a copy, the bit of its completion, which others know once they have waited for
        it.
    operation : Operation or None
        The instruction; None for what the host wrote before the launch.
    does : str
        ``"read"``, ``"write"`` or ``"reduce"``. Reductions are atomic and do not conflict with one another.
    proxy : str
        ``"generic"``, ``"async"`` or ``"tensormap"``.
    extent : Extent
    array : Allocation
        What the program calls it.
    copy : Copy or None
        The copy that makes it.
    transfer : Transfer or None
        The part of it, if the copy is a load.
    strong : bool
        Whether it is a release or an acquire; those do not race with one another.
    waits : mapping
        The thread's newest waits at that time.
    """

    event: int
    operation: Operation | None
    does: str
    proxy: str
    extent: Extent
    array: Allocation
    copy: Copy | None = None
    transfer: Transfer | None = None
    strong: bool = False
    waits: Mapping[tuple[int, str], Wait] = field(default_factory=dict)


def conflict(one: Access, other: Access) -> bool:
    """Whether the order of two accesses to the same bytes matters."""
    if one.does == other.does and one.does != WRITE:
        return False
    return not (one.strong and other.strong)


def needed(earlier: Access, later: Access, known: Known, space: str) -> int:
    """The set that must hold the earlier access for the two to be ordered."""
    if later.proxy == TENSORMAP:
        return known.acquired
    # A missing proxy fence between reads and an asynchronous write is not reported, though the PTX ISA's text asks for
    # one: kernels in the field leave it out, and reads that come before an arrival are done. What the async proxy
    # itself did needs none, since its completion includes one.
    if earlier.proxy == GENERIC and later.proxy == ASYNC and earlier.does != READ:
        return known.async_shared if space == "shared" else known.async_global
    return known.events


def record(machine: Machine, store: Store, access: Access, known: Known) -> None:
    """Report what the access races with, and remember it.

    Parameters
    ----------
    machine : Machine
    store : Store
        The memory.
    access : Access
        Of the thread or copy that makes it now.
    known : Known
        What comes before it.
    """
    kept = []
    for earlier in store.history:
        if conflict(earlier, access):
            if earlier.event & needed(earlier, access, known, store.space):
                if access.does == WRITE and access.extent.covers(earlier.extent):
                    continue  # whatever races with the earlier one races with this one too
            else:
                common = earlier.extent.common(access.extent)
                if common is not None:
                    machine.race(earlier, access, known, common)
        elif _repeats(earlier, access):
            continue
        kept.append(earlier)
    kept.append(access)
    store.history = kept


def _repeats(earlier: Access, later: Access) -> bool:
    """Whether a later access of the same thread stands for an earlier one."""
    return (
        earlier.copy is None
        and later.copy is None
        and earlier.operation is not None
        and later.operation is not None
        and earlier.operation.thread is later.operation.thread
        and (earlier.does, earlier.proxy, earlier.strong) == (later.does, later.proxy, later.strong)
        and earlier.extent == later.extent
    )


def touch(
    machine: Machine,
    operation: Operation,
    array: ProgramArray,
    does: str,
    *,
    strong: bool = False,
    event: int | None = None,
) -> Store:
    """A generic access of a thread to an array; returns the memory it is in.

    Parameters
    ----------
    machine : Machine
    operation : Operation
    array : ProgramArray
    does : str
    strong : bool
        Whether it is a release or an acquire.
    event : int, optional
        For an access that several threads make together; by default a new one.
    """
    thread = operation.thread
    store, block = machine.store_of(array, thread)
    if array.extent is None:
        return store
    event = event or machine.event()
    access = Access(event, operation, does, GENERIC, array.extent, array.allocation, strong=strong, waits=thread.waits)
    record(machine, store, access, thread.known)
    thread.known.events |= event
    if block is not None:
        if does == WRITE:
            machine.check_barriers_under(block, access)
        if block is not thread.block:
            block.visits.append(access)
    return store


def _read(machine: Machine, operation: Operation, array: ProgramArray) -> npt.NDArray[Any]:
    return array.read(touch(machine, operation, array, READ).bytes_of(array))


def _write(machine: Machine, operation: Operation, array: ProgramArray, values: Any) -> None:
    array.write(touch(machine, operation, array, WRITE).bytes_of(array), values)


READ_ARRAY = Behaviour(_read)
WRITE_ARRAY = Behaviour(_write)
