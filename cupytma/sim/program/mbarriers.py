"""mbarrier objects: phases, pending arrivals, transaction counts, and waits.

Sources: PTX ISA, "mbarrier": phase of the mbarrier object, expect-tx and complete-tx operations, and the sections named
after the instructions. That a count which is announced too low may complete early or never was measured on an H100.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cupytma.sim.program.accesses import GENERIC, READ, Access
from cupytma.sim.program.errors import ProgramError
from cupytma.sim.program.extents import Extent
from cupytma.sim.program.memory import Mbarrier
from cupytma.sim.program.operation import Behaviour, Blocked, Operation, PhaseToken
from cupytma.sim.program.ordering import Known
from cupytma.sim.program.state import Block, ThreadState, Wait

if TYPE_CHECKING:
    from cupytma.sim.program.copies import Transfer
    from cupytma.sim.program.machine import Machine

MAX_COUNT = 2**20 - 1
"""Most arrivals, and most bytes, that a phase can count (PTX ISA, "mbarrier": valid ranges of the counts)."""


@dataclass(eq=False)
class Phase:
    """One phase.

    Attributes
    ----------
    number : int
        Counted from 0; its lowest bit is the parity.
    pending : int
        Arrivals that are missing.
    tx : int
        Transaction count in bytes: announced and not arrived. Negative while bytes arrive that are not announced yet.
    announced, arrived : int
        Bytes.
    local, remote, narrow : Known
        What the arrivals release: those of the own block and the copies; those of other blocks at cluster scope; those
        of other blocks at a scope too narrow to reach this one.
    transfers : list of Transfer
        Copies that were started on it.
    """

    number: int
    pending: int
    tx: int = 0
    announced: int = 0
    arrived: int = 0
    local: Known = field(default_factory=Known)
    remote: Known = field(default_factory=Known)
    narrow: Known = field(default_factory=Known)
    transfers: list[Transfer] = field(default_factory=list)


@dataclass(eq=False)
class MbarrierState:
    """An initialised barrier.

    Attributes
    ----------
    barrier : Mbarrier
    block : Block
    count : int
        Arrivals that a phase expects.
    init : int
        Event of the initialisation.
    operation : Operation
        The initialisation.
    phase : Phase
        The current one.
    completed : Phase or None
        The one before.
    ended : Operation or None
        The ``mbarrier.inval``.
    uses : dict
        The newest use by each thread.
    miscounted : bool
        Whether wrong bytes were reported: later phases are wrong in consequence.
    """

    barrier: Mbarrier
    block: Block
    count: int
    init: int
    operation: Operation
    phase: Phase
    completed: Phase | None = None
    ended: Operation | None = None
    uses: dict[ThreadState, Access] = field(default_factory=dict)
    miscounted: bool = False

    @property
    def key(self) -> tuple[int, str]:
        """Block and name."""
        return self.block.index, self.barrier.name


def name_of(machine: Machine, state: MbarrierState) -> str:
    """The barrier in words."""
    return machine.in_block(repr(state.barrier.name), state.block)


def state_of(machine: Machine, operation: Operation, barrier: Mbarrier) -> MbarrierState:
    """The barrier that a thread uses, checked to be known to it."""
    thread = operation.thread
    state = initialised(machine, operation, barrier, machine.block_of(barrier.rank, thread))
    if not state.init & thread.known.events:
        _report_unordered(machine, operation, state)
    event = machine.event()
    thread.known.events |= event
    place = barrier.allocation
    extent = Extent(place.address, place.address + place.size)
    state.uses[thread] = Access(event, operation, READ, GENERIC, extent, place)
    if state.block is not thread.block:
        state.block.visits.append(state.uses[thread])  # so that the block does not end before
    return state


def _report_unordered(machine: Machine, operation: Operation, state: MbarrierState) -> None:
    machine.find(
        "init-unordered", (operation, state.operation), machine.hints(operation.thread, state.init),
        later=str(operation), barrier=name_of(machine, state),
        reason="nothing orders that after its initialisation",
    )  # fmt: skip


def initialised(machine: Machine, operation: Operation, barrier: Mbarrier, block: Block) -> MbarrierState:
    """The barrier in a block, checked to exist at this time."""
    state = block.mbarriers.get(barrier.name)
    if state is None:
        machine.find(
            "init-unordered", (operation,), later=str(operation),
            barrier=machine.in_block(repr(barrier.name), block), reason="no thread has initialised it",
        )  # fmt: skip
        raise machine.stop
    if state.ended is not None:
        _report_ended(machine, state, operation, state.ended)
        raise machine.stop
    return state


def _report_ended(machine: Machine, state: MbarrierState, user: Operation, ender: Operation) -> None:
    machine.find("use-after-inval", (user, ender), user=str(user), barrier=name_of(machine, state), ender=str(ender))


def check_for_copies(machine: Machine, operation: Operation, state: MbarrierState) -> None:
    """Report a barrier whose initialisation the async proxy may not see."""
    known = operation.thread.known
    if state.init & known.async_shared:
        return
    if not state.init & known.events:
        _report_unordered(machine, operation, state)
        return
    machine.find("init-not-fenced", (operation, state.operation), later=str(operation), barrier=name_of(machine, state))


def _init(machine: Machine, operation: Operation, barrier: Mbarrier, count: int) -> None:
    thread = operation.thread
    block = machine.block_of(barrier.rank, thread)
    old = block.mbarriers.get(barrier.name)
    if old is not None and old.ended is None:
        machine.find(
            "double-init", (operation, old.operation), later=str(operation), barrier=name_of(machine, old),
            earlier=str(old.operation),
        )  # fmt: skip
    event = machine.event()
    machine.inits |= event
    thread.known.events |= event
    block.mbarriers[barrier.name] = MbarrierState(barrier, block, count, event, operation, Phase(0, count))


def _inval(machine: Machine, operation: Operation, barrier: Mbarrier) -> None:
    state = state_of(machine, operation, barrier)
    for use in state.uses.values():
        if not use.event & operation.thread.known.events and use.operation is not None:
            _report_ended(machine, state, use.operation, operation)
    state.ended = operation


def _arrive(
    machine: Machine, operation: Operation, barrier: Mbarrier, count: int, announced: int, semantics: str, scope: str
) -> PhaseToken:
    state = state_of(machine, operation, barrier)
    if announced:
        _announce(machine, operation, state, announced)
    phase = state.phase
    token = PhaseToken(*state.key, phase.number)
    if count > phase.pending:
        machine.find(
            "arrival-surplus", (operation,), later=str(operation), arrivals=count, barrier=name_of(machine, state),
            phase=phase.number, pending=phase.pending, count=state.count,
        )  # fmt: skip
        count = phase.pending
    phase.pending -= count
    if semantics == "release":
        _released(state, operation.thread, scope).join(operation.thread.known)
    _complete(machine, state)
    return token


def _released(state: MbarrierState, thread: ThreadState, scope: str) -> Known:
    """Where a release goes: whom it reaches depends on its scope."""
    if state.block is thread.block:
        return state.phase.local
    return state.phase.narrow if scope == "cta" else state.phase.remote


def _expect(machine: Machine, operation: Operation, barrier: Mbarrier, count: int) -> None:
    state = state_of(machine, operation, barrier)
    _announce(machine, operation, state, count)
    _complete(machine, state)


def _announce(machine: Machine, operation: Operation, state: MbarrierState, count: int) -> None:
    phase = state.phase
    phase.tx += count
    phase.announced += count
    if phase.tx > MAX_COUNT:
        machine.find(
            "tx-count-range", (operation,), later=str(operation), barrier=name_of(machine, state), tx=phase.tx,
            most=MAX_COUNT,
        )  # fmt: skip


def complete_transaction(machine: Machine, state: MbarrierState, transfer: Transfer, count: int) -> None:
    """Bytes of a copy have arrived; the last ones release the copy to those who wait for the phase."""
    phase = state.phase
    phase.tx -= count
    phase.arrived += count
    if transfer.done:
        phase.local.events |= transfer.event
    _complete(machine, state)


def _complete(machine: Machine, state: MbarrierState) -> None:
    phase = state.phase
    if phase.pending or phase.tx:
        return
    state.completed, state.phase = phase, Phase(phase.number + 1, state.count)
    for transfer in phase.transfers:
        if not transfer.done:
            _report_early(machine, state, phase, transfer)


def _report_early(machine: Machine, state: MbarrierState, phase: Phase, transfer: Transfer) -> None:
    state.miscounted = True
    operation = transfer.copy.operation
    if not phase.announced and operation.thread.block is not state.block:
        _report_unexpected(machine, state, phase, transfer)
        return
    outcome = f"the phase completed while {operation} had {transfer.rest} B still to write"
    machine.find(
        "expect-tx-low", (operation,), barrier=name_of(machine, state), announced=phase.announced, phase=phase.number,
        outcome=outcome,
    )  # fmt: skip


def _report_unexpected(machine: Machine, state: MbarrierState, phase: Phase, transfer: Transfer) -> None:
    machine.find(
        "multicast-not-expected", (transfer.copy.operation,), later=str(transfer.copy.operation),
        arrived=transfer.total, barrier=name_of(machine, state), phase=phase.number,
    )  # fmt: skip


def report_not_announced(machine: Machine, state: MbarrierState) -> bool:
    """Report bytes that another block has brought to a phase that has none announced; returns whether there are."""
    phase = state.phase
    strangers = [t for t in phase.transfers if t.copy.operation.thread.block is not state.block]
    if phase.announced or not strangers or state.miscounted:
        return False
    _report_unexpected(machine, state, phase, strangers[0])
    return True


def report_leftover(machine: Machine, state: MbarrierState) -> None:
    """At the end of a kernel: report bytes that were announced and never came, and the other way round."""
    phase = state.phase
    if not phase.tx or state.ended is not None or state.miscounted or report_not_announced(machine, state):
        return
    places = tuple(t.copy.operation for t in phase.transfers[:1]) or (state.operation,)
    rule, values = _wrong_bytes(machine, state)
    machine.find(rule, places, **values)


def _wrong_bytes(machine: Machine, state: MbarrierState) -> tuple[str, dict[str, Any]]:
    """The rule that a transaction count breaks which nothing can bring to zero any more."""
    phase = state.phase
    values: dict[str, Any] = {
        "barrier": name_of(machine, state), "phase": phase.number, "announced": phase.announced,
        "arrived": phase.arrived, "rest": phase.tx,
    }  # fmt: skip
    if phase.tx > 0:
        return "expect-tx-high", values
    outcome = f"{phase.arrived} B have arrived, the count is {phase.tx} B and comes back to zero no more"
    return "expect-tx-low", values | {"outcome": outcome}


def _passed(state: MbarrierState, parity: int) -> int | None:
    """The phase that a wait for a parity finds complete (-1 for the one before phase 0); None if it has to wait."""
    number = state.phase.number
    return None if number % 2 == parity else number - 1


def _wanted(machine: Machine, operation: Operation, barrier: Mbarrier, phase: int | PhaseToken) -> int | None:
    """The completed phase that a wait finds; None if it has to wait."""
    state = state_of(machine, operation, barrier)
    if not isinstance(phase, PhaseToken):
        return _passed(state, phase)
    if (phase.block, phase.barrier) != state.key:
        raise ProgramError(f"the token is of {phase.barrier!r} of block {phase.block}, and the wait is for {barrier!r}")
    if phase.phase < state.phase.number - 1:
        machine.find(
            "stale-token", (operation,), later=str(operation), token=phase.phase, barrier=name_of(machine, state),
            phase=state.phase.number,
        )  # fmt: skip
    return phase.phase if phase.phase < state.phase.number else None


def _wait_ready(
    machine: Machine, operation: Operation, barrier: Mbarrier, phase: int | PhaseToken, semantics: str, scope: str
) -> bool:
    state = operation.thread.block.mbarriers.get(barrier.name)
    if state is None or state.ended is not None:
        return True  # executing it reports why that is wrong
    if isinstance(phase, PhaseToken):
        return phase.phase < state.phase.number
    return _passed(state, phase) is not None


def _wait(
    machine: Machine, operation: Operation, barrier: Mbarrier, phase: int | PhaseToken, semantics: str, scope: str
) -> bool:
    found = _wanted(machine, operation, barrier, phase)
    if found is None:
        return False
    thread = operation.thread
    state = thread.block.mbarriers[barrier.name]
    before = thread.waits.get(state.key)
    fresh = found > (before.phase if before else -1)
    thread.waits = {**thread.waits, state.key: Wait(found, fresh, operation)}
    done = state.completed
    if semantics == "acquire" and done is not None and done.number == found:
        thread.known.join(done.local)
        if scope == "cluster":
            thread.known.join(done.remote, same_block=False)
        else:
            reason = f"{operation} waits at scope 'cta', which does not reach the arrivals of other blocks"
            thread.hints.append((done.remote.events, reason))
        reason = f"the arrival on {name_of(machine, state)} from another block has scope 'cta', which does not reach it"
        thread.hints.append((done.narrow.events, reason))
    return True


def _explain(
    machine: Machine, operation: Operation, barrier: Mbarrier, phase: int | PhaseToken, semantics: str, scope: str
) -> Blocked:
    thread = operation.thread
    state = thread.block.mbarriers[barrier.name]
    now, name = state.phase, name_of(machine, state)
    arrivals = state.count - now.pending
    text = (
        f"phase {now.number} (parity {now.number % 2}) of {name}: {arrivals} of {state.count} arrivals have come, "
        f"{now.announced} B are announced and {now.arrived} B have come"
    )
    if not now.pending:
        rule, values = _wrong_bytes(machine, state)
        return Blocked((0, 0), rule, values, text)
    before = thread.waits.get(state.key)
    untouched = not (arrivals or now.announced or now.arrived)
    if untouched and now.number > (before.phase if before else -1) + 1:
        values = {
            "waiter": str(operation), "parity": now.number % 2, "barrier": name, "phase": now.number,
            "before": now.number - 1, "other": (now.number - 1) % 2,
        }  # fmt: skip
        return Blocked((1, now.number), "wait-phase", values, text)
    values = {
        "barrier": name, "phase": now.number, "arrivals": arrivals, "count": state.count, "announced": now.announced,
        "arrived": now.arrived,
    }  # fmt: skip
    # Bytes without any arrival: the one who should have announced them is missing, and others wait in consequence.
    forgotten = now.arrived and not (arrivals or now.announced)
    return Blocked((4 if untouched else 2, -1 if forgotten else now.number), "arrival-missing", values, text)


INIT = Behaviour(_init)
INVAL = Behaviour(_inval)
ARRIVE = Behaviour(_arrive)
EXPECT = Behaviour(_expect)
WAIT = Behaviour(_wait, _wait_ready, _explain)
TRY_WAIT = Behaviour(_wait, explain=_explain, poll=True)
