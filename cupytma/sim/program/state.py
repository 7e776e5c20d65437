"""The state of one run: memories, blocks and threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cupytma.sim.program.memory import ProgramArray
from cupytma.sim.program.operation import Operation
from cupytma.sim.program.ordering import Known

if TYPE_CHECKING:
    from cupytma.sim.program.accesses import Access
    from cupytma.sim.program.copies import Copy
    from cupytma.sim.program.mbarriers import MbarrierState
    from cupytma.sim.program.thread_barriers import ThreadBarrier

Bytes = npt.NDArray[np.uint8]


@dataclass(eq=False)
class Store:
    """The bytes of one memory, and who has touched them.

    Attributes
    ----------
    space : str
        ``"shared"`` or ``"global"``.
    base : int
        Address of the first byte.
    bytes : ndarray of uint8
    history : list of Access
        Every access that a later one may still conflict with.
    """

    space: str
    base: int
    bytes: Bytes
    history: list[Access] = field(default_factory=list)

    def bytes_of(self, array: ProgramArray) -> Bytes:
        """The bytes of the allocation that an array belongs to."""
        start = array.allocation.address - self.base
        return self.bytes[start : start + array.allocation.size]


@dataclass(eq=False)
class Block:
    """A thread block.

    Attributes
    ----------
    index, cluster, rank : int
        In the grid; of its cluster in the grid; in that cluster.
    shared : Store
    mbarriers : dict
        By name, those that have been initialised.
    thread_barriers : dict
        By number.
    visits : list of Access
        What copies and other blocks do to its shared memory.
    acquires : dict
        The newest acquire of the tensor map at an address, by any of its threads.
    acquired : int
        The events that these have acquired.
    not_acquired : dict
        Why an event was not acquired although the block tried.
    """

    index: int
    cluster: int
    rank: int
    shared: Store
    mbarriers: dict[str, MbarrierState] = field(default_factory=dict)
    thread_barriers: dict[str, ThreadBarrier] = field(default_factory=dict)
    visits: list[Access] = field(default_factory=list)
    acquires: dict[int, Operation] = field(default_factory=dict)
    acquired: int = 0
    not_acquired: dict[int, str] = field(default_factory=dict)


class Wait(NamedTuple):
    """A thread's newest successful wait for an mbarrier: the phase, whether it was new to the thread, the operation."""

    phase: int
    fresh: bool
    operation: Operation


@dataclass(eq=False)
class ThreadState:
    """A thread.

    Attributes
    ----------
    role, name : str
        The role's name; the name with numbers, for reports.
    block : Block
    index, threads : int
        Among the threads of its role in its block; how many those are.
    known : Known
        What comes before its next instruction.
    fenced : Known
        What its fences have released, for relaxed arrivals.
    waits : mapping
        By block and barrier, its newest `Wait`. Replaced and never changed, so that accesses can keep it.
    uncommitted : list of Copy
        Bulk stores that belong to no group yet.
    groups : list of list of Copy
        Its bulk async-groups, the oldest first.
    commits : int
        How many groups it has ever committed.
    group_wait : Operation or None
        Its first wait for bulk groups.
    hints : list
        Sets of events that it failed to acquire, with the reason.
    operation : Operation or None
        What it executes next; None when it has ended.
    executed : int
        How many operations it has executed.
    polled : int
        The machine's version at its newest poll that failed; -1 if it is not polling.
    resume : callable or None
        Runs its role to the next operation, with what the last one returned.
    """

    role: str
    name: str
    block: Block
    index: int
    threads: int
    known: Known
    fenced: Known = field(default_factory=Known)
    waits: Mapping[tuple[int, str], Wait] = field(default_factory=dict)
    uncommitted: list[Copy] = field(default_factory=list)
    groups: list[list[Copy]] = field(default_factory=list)
    commits: int = 0
    group_wait: Operation | None = None
    hints: list[tuple[int, str]] = field(default_factory=list)
    operation: Operation | None = None
    executed: int = 0
    polled: int = -1
    resume: Callable[[Any], Operation | None] | None = None

    def joins(self, other: Known, block: Block) -> None:
        """Acquire what a thread of `block` released."""
        self.known.join(other, same_block=block is self.block)
