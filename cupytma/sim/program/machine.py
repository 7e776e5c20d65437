"""One run of a program under one schedule."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cupytma.errors import CupytmaError, Fault
from cupytma.sim.faults import OutOfWindow
from cupytma.sim.program import mbarriers, races
from cupytma.sim.program.accesses import GENERIC, WRITE, Access
from cupytma.sim.program.errors import ProgramError
from cupytma.sim.program.extents import Extent
from cupytma.sim.program.memory import MBARRIER_BYTES, Allocation, ProgramArray
from cupytma.sim.program.operation import Operation
from cupytma.sim.program.ordering import Known
from cupytma.sim.program.report import Place
from cupytma.sim.program.rules import RULES
from cupytma.sim.program.state import Block, Store, ThreadState
from cupytma.sim.program.thread import begin_role
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.sim.program.program import Program, Role
    from cupytma.sim.program.thread_barriers import Flag, ThreadBarrier

# What shared memory holds before anything is written there, so that reading it too early shows.
_UNWRITTEN = 0xA5
_HERE = os.path.dirname(os.path.abspath(__file__))


class Stop(Exception):
    """The end of a schedule that cannot go on after what it reported."""


@dataclass(frozen=True)
class Found:
    """What one schedule reports: a `Finding` without the counts."""

    rule: str
    message: str
    places: tuple[Place, ...]
    notes: tuple[str, ...]
    fix: str


@dataclass(eq=False)
class Underway:
    """A copy that goes on in steps."""

    operation: Operation
    steps: Iterator[None]


class Machine:
    """The memory, blocks, threads and copies of one run.

    Parameters
    ----------
    program : Program
    seed : str
        Decides how copies are cut into pieces; the schedule draws from the same generator.
    """

    def __init__(self, program: Program, seed: str) -> None:
        self.program = program
        self.random = random.Random(seed)
        self.stop = Stop()
        self.found: dict[Any, Found] = {}
        self.labels: dict[str, None] = {}
        self.version = 0
        self.inits = 0
        self.underway: list[Underway] = []
        self.threads: list[ThreadState] = []
        self.blocks: list[Block] = []
        self.cluster_barriers: dict[str, ThreadBarrier] = {}
        self.flags: dict[tuple[Store, int], Flag] = {}
        self.copied: dict[tuple[str, int], int] = {}
        self._events = 0
        host = self.event()
        self.before = Known(host, host, host, host, host, host, host)
        self.globals = {a.name: self._global_store(a, host) for a in program.global_allocations}

    def _global_store(self, allocation: Allocation, host: int) -> Store:
        initial = self.program.initial[allocation.name]
        extent = Extent(allocation.address, allocation.address + allocation.size)
        written = Access(host, None, WRITE, GENERIC, extent, allocation)
        return Store("global", allocation.address, initial.copy(), [written] if allocation.size else [])

    def event(self) -> int:
        """A new event, as a set of one."""
        self._events += 1
        return 1 << self._events

    # Kernels.

    def begin_kernel(self, kernel: int) -> None:
        """New blocks with shared memory of their own, and the threads of every role of a kernel."""
        program = self.program
        self.cluster_barriers, self.copied = {}, {}
        self.blocks = [
            Block(i, i // program.cluster, i % program.cluster, Store("shared", 0, self._unwritten()))
            for i in range(program.blocks)
        ]
        self.threads = []
        for role in program.roles:
            if role.kernel != kernel:
                continue
            for block in self.blocks:
                if role.blocks is None or block.index in role.blocks:
                    self._begin_role(role, block)

    def _unwritten(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.full(self.program.shared_bytes, _UNWRITTEN, dtype=np.uint8)

    def _begin_role(self, role: Role, block: Block) -> None:
        for index in range(role.threads):
            name = f"{role.name}[{index}]" if role.threads > 1 else role.name
            thread = ThreadState(role.name, self.in_block(name, block), block, index, role.threads, self.before.copy())
            self.threads.append(thread)
            self._run_role(thread, partial(begin_role, role.body, thread, self.program))

    def _run_role(self, thread: ThreadState, action: Callable[[], Operation | None]) -> None:
        """Run a role's code up to its next operation, and say where if it raises."""
        try:
            operation = action()
        except ProgramError as error:
            raise ProgramError(f"{thread.name} ({_line_of_role(error)}): {error}") from None
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise ProgramError(f"{thread.name} raised at {_line_of_role(error)}: {what}") from error
        thread.operation = operation
        if operation is None:
            return
        operation.number = thread.executed
        if operation.label:
            self.labels[operation.label] = None
        if operation.behaviour.begin is not None and not self.skips(operation):
            operation.behaviour.begin(self, operation, *operation.operands)

    def end_kernel(self) -> None:
        """What has to hold when all threads of a kernel have ended."""
        while self.underway:
            self.advance_copy(self.underway[0])
        for block in self.blocks:
            members = [thread for thread in self.threads if thread.block is block]
            self._check_groups(members)
            self._check_visits(block, members)
            for state in block.mbarriers.values():
                mbarriers.report_leftover(self, state)
        # The end of a kernel orders everything for the next one, but for the tensormap proxy.
        for thread in self.threads:
            self.before.join(thread.known, same_block=False)
        every = (1 << (self._events + 1)) - 1
        self.before.events = self.before.async_shared = self.before.async_global = every

    def _check_groups(self, members: list[ThreadState]) -> None:
        committing = next((thread for thread in members if thread.commits), None)
        for thread in members:
            if thread.uncommitted:
                operation = thread.uncommitted[0].operation
                what = f"{operation.name} ({operation.source})"
                self.find("group-not-committed", (operation,), thread=thread.name, what=what)
            if thread.group_wait is not None and not thread.commits and committing is not None:
                self.find("group-other-thread", (thread.group_wait,), thread=thread.name, other=committing.name)

    def _check_visits(self, block: Block, members: list[ThreadState]) -> None:
        known = 0
        for thread in members:
            known |= thread.known.events
        for access in block.visits:
            operation = access.operation
            if access.event & known or operation is None:
                continue
            if access.copy is not None and access.copy in operation.thread.uncommitted:
                continue  # reported as such
            what = races.describe_visit(access, operation)
            self.find("exit-in-flight", (operation,), block=f"block {block.index}", what=what)

    # Threads and copies going on.

    def alive(self) -> list[ThreadState]:
        """The threads that have not ended."""
        return [thread for thread in self.threads if thread.operation is not None]

    def skips(self, operation: Operation) -> bool:
        """Whether the program goes without an operation."""
        return operation.label in self.program.skipped

    def ready(self, thread: ThreadState) -> bool:
        """Whether a thread's next operation can be executed."""
        operation = thread.operation
        assert operation is not None
        ready = operation.behaviour.ready
        return ready is None or self.skips(operation) or ready(self, operation, *operation.operands)

    def polls_in_vain(self, thread: ThreadState) -> bool:
        """Whether a thread would only ask again what has not changed."""
        operation = thread.operation
        return operation is not None and operation.behaviour.poll and thread.polled == self.version

    def execute(self, thread: ThreadState) -> None:
        """Execute a thread's next operation, and run the role to the one after it."""
        operation = thread.operation
        assert operation is not None
        behaviour = operation.behaviour
        value: Any = behaviour.poll  # a poll that is left out does not wait
        if not self.skips(operation):
            value = self._attempt(operation, lambda: behaviour.execute(self, operation, *operation.operands))
        thread.executed += 1
        if behaviour.poll and value is not True:
            thread.polled = self.version
        else:
            thread.polled = -1
            self.version += 1
        resume = thread.resume
        assert resume is not None
        self._run_role(thread, lambda: resume(value))

    def start(self, operation: Operation, steps: Iterator[None]) -> None:
        """Let a copy go on from now on."""
        self.underway.append(Underway(operation, steps))

    def advance_copy(self, copy: Underway) -> None:
        """One step of a copy."""
        self.version += 1

        def step() -> None:
            if next(copy.steps, copy) is copy:
                self.underway.remove(copy)

        self._attempt(copy.operation, step)

    def _attempt(self, operation: Operation, action: Callable[[], Any]) -> Any:
        """Do what an operation does; faults of the hardware are found, wrong operands raised."""
        try:
            return action()
        except Fault as error:
            self.find("hardware-fault", (operation,), later=str(operation), reason=str(error))
            raise self.stop from None
        except ProgramError as error:
            raise ProgramError(f"{operation.place}: {error}") from None
        except CupytmaError as error:
            raise ProgramError(f"{operation.place}: {error}") from error

    # Where things are.

    def in_block(self, name: str, block: Block) -> str:
        """A name, with its block where there are several."""
        return f"{name} of block {block.index}" if self.program.blocks > 1 else name

    def cluster_of(self, block: Block) -> list[Block]:
        """The blocks of its cluster, by rank."""
        return [other for other in self.blocks if other.cluster == block.cluster]

    def block_of(self, rank: int | None, thread: ThreadState) -> Block:
        """The block of the thread's cluster that is meant; its own for None."""
        if rank is None:
            return thread.block
        cluster = self.cluster_of(thread.block)
        if rank >= len(cluster):
            raise ProgramError(f"mapa to rank {rank}, and the cluster has {counted(len(cluster), 'block')}")
        return cluster[rank]

    def store_of(self, array: ProgramArray, thread: ThreadState) -> tuple[Store, Block | None]:
        """The memory that an array is in, and the block whose shared memory that is."""
        if array.space == "global":
            return self.globals[array.name], None
        block = self.block_of(array.rank, thread)
        return block.shared, block

    def global_at(self, address: int) -> tuple[Store, Allocation]:
        """The global memory that holds an address.

        Raises
        ------
        OutOfWindow
            If no array of the program does.
        """
        for allocation in self.program.global_allocations:
            if allocation.address <= address < allocation.address + max(1, allocation.size):
                return self.globals[allocation.name], allocation
        raise OutOfWindow(
            f"the tensor map describes memory at {address:#x}, where the program has no array; make it of a global "
            "array, for example `cupytma.tensor_map(array, box=…)`"
        )

    def scope_between(self, one: Block, other: Block) -> str:
        """The narrowest scope that includes threads of both blocks."""
        if one not in self.blocks or other not in self.blocks:  # of an earlier kernel
            return "gpu"
        if one is other:
            return "cta"
        return "cluster" if one.cluster == other.cluster else "gpu"

    # Findings.

    def check_barriers_under(self, block: Block, access: Access) -> None:
        """Report a write over an mbarrier."""
        for state in block.mbarriers.values():
            place = state.barrier.allocation.address
            if state.ended is None and access.extent.common(Extent(place, place + MBARRIER_BYTES)):
                operations = tuple(o for o in (access.operation, state.operation) if o is not None)
                self.find(
                    "barrier-overwritten", operations, later=str(access.operation),
                    barrier=mbarriers.name_of(self, state),
                )  # fmt: skip

    def hints(self, thread: ThreadState, event: int) -> list[str]:
        """Why a thread did not acquire an event, where that is known."""
        return list(dict.fromkeys(reason for events, reason in thread.hints if events & event))

    def race(self, earlier: Access, later: Access, known: Known, common: Extent) -> None:
        """Report two accesses that nothing orders."""
        races.report_race(self, earlier, later, known, common)

    def find(self, rule: str, operations: Iterable[Operation], notes: Iterable[str] = (), **values: object) -> None:
        """Report a broken rule, unless these lines of the program have broken it before."""
        operations = tuple(operations)
        # Of a hang, who else waits depends on the schedule; of a race, which access came first.
        telling = operations[:1] if RULES[rule].kind == "hang" else operations
        lines = sorted((operation.thread.role, operation.file, operation.line) for operation in telling)
        key = (rule, *dict.fromkeys(lines))
        if key not in self.found:
            row = RULES[rule]
            self.found[key] = Found(
                rule, row.message.format(**values), tuple(operation.place for operation in operations), tuple(notes),
                row.fix.format(**values),
            )  # fmt: skip


def _line_of_role(error: BaseException) -> str:
    """The line of a role's own code that an exception passed through last."""
    found, traceback = "", error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        inside = os.path.dirname(os.path.abspath(file)) == _HERE
        if inside and found:
            break
        if not inside:
            found = f"{os.path.basename(file)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found or "its first line"
