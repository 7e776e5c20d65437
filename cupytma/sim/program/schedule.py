"""Which thread or copy goes on next, and what it means when none can."""

from __future__ import annotations

from typing import Any

from cupytma.sim.program import mbarriers
from cupytma.sim.program.errors import ProgramError
from cupytma.sim.program.machine import Machine, Stop, Underway
from cupytma.sim.program.state import ThreadState

STYLES = ("even", "late copies", "early copies", "favourites")
"""How a schedule chooses: all alike; copies only where no thread can go on; copies first; some threads first."""

# How often every thread may poll in vain, with nothing else going on, before that is taken for a hang: a kernel may
# give up after some attempts.
VAIN_POLLS = 64
_CHANGE_OF_FAVOUR = 0.05


def run(machine: Machine, style: str, step_limit: int) -> bool:
    """Run all kernels of a program; returns whether they came to their end.

    Raises
    ------
    ProgramError
        If a role raises or yields something else than its thread's operations, or there is no end within `step_limit`
        steps.
    """
    try:
        for kernel in sorted({role.kernel for role in machine.program.roles}):
            machine.begin_kernel(kernel)
            if not _run_kernel(machine, style, step_limit):
                return False
            machine.end_kernel()
    except Stop:
        return False
    return True


def _run_kernel(machine: Machine, style: str, step_limit: int) -> bool:
    favour: dict[ThreadState, float] = {}
    vain = 0
    for _ in range(step_limit):
        alive = machine.alive()
        if not alive:
            return True
        ready = [thread for thread in alive if machine.ready(thread)]
        fruitful = [thread for thread in ready if not machine.polls_in_vain(thread)]
        if not fruitful and not machine.underway:
            vain += 1
            if not ready or vain > VAIN_POLLS * len(ready):
                report_hang(machine, alive)
                return False
            machine.execute(machine.random.choice(ready))
            continue
        if fruitful:
            vain = 0
        chosen = _choose(machine, style, fruitful, favour)
        if isinstance(chosen, Underway):
            machine.advance_copy(chosen)
        else:
            machine.execute(chosen)
    raise ProgramError(endless(machine, step_limit))


def _choose(
    machine: Machine, style: str, threads: list[ThreadState], favour: dict[ThreadState, float]
) -> ThreadState | Underway:
    random, copies = machine.random, machine.underway
    if not threads or (style == "early copies" and copies):
        return random.choice(copies)
    if style == "late copies" or not copies:
        candidates: list[Any] = [*threads]
    else:
        candidates = [*threads, *copies]
    if style != "favourites":
        return random.choice(candidates)  # type: ignore[no-any-return]
    if random.random() < _CHANGE_OF_FAVOUR:
        favour.pop(random.choice(threads), None)
    for thread in threads:
        favour.setdefault(thread, random.random())
    if copies and random.random() < len(copies) / len(candidates):
        return random.choice(copies)
    return max(threads, key=lambda thread: favour[thread])


def report_hang(machine: Machine, waiting: list[ThreadState]) -> None:
    """Report a hang as one finding for all who wait, named after the likeliest cause: others may follow from it."""
    blocked = []
    for thread in waiting:
        operation = thread.operation
        assert operation is not None
        if operation.behaviour.explain is not None:
            blocked.append((operation.behaviour.explain(machine, operation, *operation.operands), operation))
    blocked.sort(key=lambda pair: pair[0].rank)
    cause = blocked[0][0]
    waits: dict[str, list[str]] = {}
    for why, operation in blocked:
        waits.setdefault(why.text, []).append(operation.thread.name)
    notes = [f"{', '.join(names)} wait{'s' * (len(names) == 1)} for {text}" for text, names in waits.items()]
    machine.find(cause.rule, [operation for _, operation in blocked], notes, **cause.values)
    if cause.rule == "arrival-missing":
        waiter = blocked[0][1]
        mbarriers.report_not_announced(machine, waiter.thread.block.mbarriers[waiter.operands[0].name])


def endless(machine: Machine, step_limit: int) -> str:
    """What is said of a program without an end."""
    places = "; ".join(str(thread.operation.place) for thread in machine.alive() if thread.operation is not None)
    return (
        f"{machine.program.name}: no end after {step_limit} steps; next would be {places or 'copies alone'}; raise "
        "step_limit if no loop there is endless"
    )
