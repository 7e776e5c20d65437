"""Barriers of threads: of a block, of a warp, of a cluster; and flags in memory that are released and acquired.

Sources: PTX ISA, "bar, barrier", "bar.warp.sync", "barrier.cluster", and "Release and Acquire Patterns".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cupytma.sim.program.accesses import READ, WRITE, touch
from cupytma.sim.program.memory import ProgramArray
from cupytma.sim.program.operation import Behaviour, Blocked, Operation
from cupytma.sim.program.ordering import Known, includes
from cupytma.sim.program.state import Block, ThreadState

if TYPE_CHECKING:
    from cupytma.sim.program.machine import Machine

WARP, ALIGNED, CLUSTER = "warp", "aligned", "cluster"

_WARP_NAMES: dict[int | str, str] = {WARP: "the warp barrier of {}", ALIGNED: "the collective instruction of {}"}
Which = int | str
"""A barrier of the block by its number; `WARP`; `ALIGNED`, where a warp meets and orders nothing; `CLUSTER`."""


@dataclass(eq=False)
class ThreadBarrier:
    """A barrier that threads come to.

    Attributes
    ----------
    name : str
        In words.
    arrived : int
        How many threads have come since it was last passed.
    released : list
        For each time it was or will be passed: what those who came released, with their blocks.
    tickets : dict
        For each thread that has come and not gone on: which of these times that is.
    """

    name: str
    arrived: int = 0
    released: list[list[tuple[Known, Block]]] = field(default_factory=lambda: [[]])
    tickets: dict[ThreadState, int] = field(default_factory=dict)

    def arrive(self, thread: ThreadState, known: Known) -> None:
        """A thread comes."""
        self.arrived += 1
        self.released[-1].append((known.copy(), thread.block))
        self.tickets[thread] = len(self.released) - 1

    def passes(self, thread: ThreadState, count: int) -> bool:
        """Whether a thread may go on, `count` being how many have to come."""
        if self.arrived and self.arrived >= count:
            self.arrived = 0
            self.released.append([])
        return self.tickets.get(thread, -1) < len(self.released) - 1

    def leave(self, thread: ThreadState) -> None:
        """A thread goes on, and acquires what the others released."""
        ticket = self.tickets.pop(thread, None)
        if ticket is None:
            return
        for known, block in self.released[ticket]:
            thread.joins(known, block)
        if ticket not in self.tickets.values():
            self.released[ticket] = []  # nobody is left to acquire it


def barrier_of(machine: Machine, thread: ThreadState, which: Which) -> ThreadBarrier:
    """A barrier that a thread can come to; made when first asked for."""
    block = thread.block
    if which == CLUSTER:
        barriers, key, name = machine.cluster_barriers, str(block.cluster), f"the barrier of cluster {block.cluster}"
    else:
        barriers = block.thread_barriers
        key = _WARP_NAMES[which].format(thread.role) if which in _WARP_NAMES else f"barrier {which}"
        name = machine.in_block(key, block)
    if key not in barriers:
        barriers[key] = ThreadBarrier(name)
    return barriers[key]


def expected(machine: Machine, thread: ThreadState, which: Which, count: int | None) -> int:
    """How many threads the barrier waits for; by default all of its kind that have not ended."""
    if count is not None:
        return count
    if which == CLUSTER:
        return sum(t.block.cluster == thread.block.cluster for t in machine.alive())
    mates = [t for t in machine.alive() if t.block is thread.block]
    return sum(t.role == thread.role for t in mates) if which in _WARP_NAMES else len(mates)


def _arrive(machine: Machine, operation: Operation, which: Which, count: int | None, relaxed: bool = False) -> None:
    thread = operation.thread
    barrier = barrier_of(machine, thread, which)
    if which == CLUSTER and thread in barrier.tickets:
        problem = "before the thread has waited for its last arrival"
        machine.find("cluster-barrier-order", (operation,), later=str(operation), problem=problem)
    barrier.arrive(thread, thread.fenced if relaxed else thread.known)


def _ready(machine: Machine, operation: Operation, which: Which, count: int | None) -> bool:
    thread = operation.thread
    return barrier_of(machine, thread, which).passes(thread, expected(machine, thread, which, count))


def _leave(machine: Machine, operation: Operation, which: Which, count: int | None) -> None:
    barrier_of(machine, operation.thread, which).leave(operation.thread)


def _leave_cluster(machine: Machine, operation: Operation, which: Which, count: int | None) -> None:
    if operation.thread not in barrier_of(machine, operation.thread, which).tickets:
        problem = "without an arrival of its thread, and waits for nothing"
        machine.find("cluster-barrier-order", (operation,), later=str(operation), problem=problem)
    _leave(machine, operation, which, count)


def explain(machine: Machine, operation: Operation, which: Which, count: int | None) -> Blocked:
    """Why a thread waits at a barrier."""
    thread = operation.thread
    barrier = barrier_of(machine, thread, which)
    values = {"barrier": barrier.name, "count": expected(machine, thread, which, count), "arrived": barrier.arrived}
    text = "{barrier}: {arrived} of {count} threads have come".format(**values)
    return Blocked((3, 0), "thread-barrier", values, text)


@dataclass(frozen=True, eq=False)
class Flag:
    """What the newest release to a place in memory handed over."""

    known: Known
    block: Block
    scope: str
    operation: Operation


def _store_release(machine: Machine, operation: Operation, array: ProgramArray, value: Any, scope: str) -> None:
    thread = operation.thread
    store = touch(machine, operation, array, WRITE, strong=True)
    array.write(store.bytes_of(array), value)
    machine.flags[store, array.address] = Flag(thread.known.copy(), thread.block, scope, operation)


def _load_acquire(machine: Machine, operation: Operation, array: ProgramArray, scope: str) -> Any:
    store = touch(machine, operation, array, READ, strong=True)
    thread = operation.thread
    flag = machine.flags.get((store, array.address))
    if flag is not None:
        wanted = machine.scope_between(flag.block, thread.block)
        if includes(flag.scope, wanted) and includes(scope, wanted):
            thread.joins(flag.known, flag.block)
        else:
            narrow = (flag.operation, flag.scope) if includes(scope, wanted) else (operation, scope)
            reason = f"{narrow[0]} has scope {narrow[1]!r}, and between the two threads {wanted!r} is needed"
            thread.hints.append((flag.known.events, reason))
    return array.read(store.bytes_of(array))


def _explain_poll(machine: Machine, operation: Operation, array: ProgramArray, scope: str) -> Blocked:
    store, _ = machine.store_of(array, operation.thread)
    place = f"{array.name!r}, which holds {array.read(store.bytes_of(array)).tolist()}"
    return Blocked((5, 0), "never-changes", {"waiter": str(operation), "place": place}, f"another value in {place}")


SYNC = Behaviour(_leave, _ready, explain, begin=_arrive)
ARRIVE = Behaviour(_arrive)
CLUSTER_WAIT = Behaviour(_leave_cluster, _ready, explain)
STORE_RELEASE = Behaviour(_store_release)
LOAD_ACQUIRE = Behaviour(_load_acquire, explain=_explain_poll, poll=True)
