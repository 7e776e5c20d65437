"""Which rule two unordered accesses break, and how to say so.

That two accesses race is settled before; here they get the name under which a person looks for the mistake. Which of
the two came first in the schedule says little, so the name follows from what the threads had waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupytma.sim.program.accesses import READ, REDUCE, TENSORMAP, WRITE, Access
from cupytma.sim.program.extents import Extent
from cupytma.sim.program.mbarriers import name_of
from cupytma.sim.program.operation import Operation
from cupytma.sim.program.ordering import SCOPES, Known

if TYPE_CHECKING:
    from cupytma.sim.program.machine import Machine

_VERBS = {
    READ: ("reads", "read", "was started to read"),
    WRITE: ("writes", "wrote", "was started to write"),
    REDUCE: ("reduces into", "reduced into", "was started to reduce into"),
}


def report_race(machine: Machine, earlier: Access, later: Access, known: Known, common: Extent) -> None:
    """Report two conflicting accesses that nothing orders."""
    assert later.operation is not None
    rule, values = _rule(machine, earlier, later, known)
    operations = tuple(access.operation for access in (later, earlier) if access.operation is not None)
    machine.find(
        rule, operations, machine.hints(later.operation.thread, earlier.event), region=repr(later.array.name),
        **{"later": _later(later, common), "earlier": _earlier(earlier, later, common), **values},
    )  # fmt: skip


def _bytes(access: Access, common: Extent) -> str:
    return f"{common.shifted(-access.array.address)} of {access.array.name!r}"


def _later(access: Access, common: Extent) -> str:
    return f"{access.operation} {_VERBS[access.does][0]} {_bytes(access, common)}"


def _earlier(access: Access, later: Access, common: Extent) -> str:
    if access.operation is None:
        return "the host wrote them before the launch"
    # The bytes are the same; only where they have another name is it worth saying.
    same = access.array == later.array
    what = "them" if same else f"{_bytes(access, common)}, which are the same,"
    return f"{access.operation} {_VERBS[access.does][1 if access.copy is None else 2]} {what}"


def _rule(machine: Machine, earlier: Access, later: Access, known: Known) -> tuple[str, dict[str, str]]:
    if later.proxy == TENSORMAP:
        return _map_rule(machine, earlier, later, known)
    if earlier.proxy == TENSORMAP:
        return "map-in-use", {"later": f"{later.operation} changes", "earlier": f"{earlier.operation} reads it"}
    loads = [access for access in (earlier, later) if access.transfer is not None and access.does == WRITE]
    if len(loads) == 2:
        return ("refill-unordered" if earlier.array == later.array else "tiles-overlap"), {}
    if loads:
        return _tile_rule(machine, loads[0], later if loads[0] is earlier else earlier, loads[0] is earlier, known)
    if earlier.copy is not None:
        return _unfinished_rule(earlier, known)
    if earlier.event & known.events:
        return "proxy-fence", {}
    return "unordered", {}


def _unfinished_rule(earlier: Access, known: Known) -> tuple[str, dict[str, str]]:
    """Against a store, or what a load reads, that may not be finished."""
    assert earlier.copy is not None
    if not earlier.copy.issue & known.events:
        return "unordered", {}
    if earlier.does == READ:
        return "source-still-read", {}
    only_read = earlier.copy.read & known.events
    reason = ": its group was waited for with .read, which says that its source was read" if only_read else ""
    return "result-not-written", {"reason": reason}


def _tile_rule(
    machine: Machine, load: Access, other: Access, load_first: bool, known: Known
) -> tuple[str, dict[str, str]]:
    """Between a load and a user of its tile: was the user too early, or the load?"""
    assert load.transfer is not None
    assert other.operation is not None
    state, thread = load.transfer.state, other.operation.thread
    name = name_of(machine, state)
    wait = other.waits.get(state.key)
    if other.array != load.array:
        return "tiles-overlap", {}
    if not load_first and other.event & known.events:
        return "proxy-fence", {}
    if wait is None:
        return "tile-not-complete", {"reason": f"{thread.name} has not waited for {name}"}
    if wait.fresh and wait.phase >= load.transfer.phase:
        return "tile-not-complete", {"reason": f"phase {wait.phase} of {name} completed before its copies were done"}
    if wait.fresh and load_first and load.transfer.copy.issue & known.events:
        reason = f"the load completes in phase {load.transfer.phase} of {name}, and the wait was for phase {wait.phase}"
        return "tile-not-complete", {"reason": reason}
    if not wait.fresh:
        reason = (
            f"{wait.operation} ({wait.operation.source}) returned at once, for phase {wait.phase} of {name}, which it "
            "had waited for before"
            if wait.phase >= 0
            else f"{wait.operation} ({wait.operation.source}) asked for parity 1 of {name} in phase 0 and returned at "
            "once"
        )
        return "tile-not-complete", {"reason": reason}
    done = state.completed
    if wait.fresh and done is not None and done.number == wait.phase and not done.announced:
        reason = f"phase {wait.phase} of {name}, which was waited for, completed with no bytes announced"
        return "tile-not-complete", {"reason": reason}
    if other.copy is not None:
        return "source-still-read", {}
    return "refill-unordered", {}


def _map_rule(machine: Machine, earlier: Access, later: Access, known: Known) -> tuple[str, dict[str, str]]:
    """A tensor map that is used before the tensormap proxy can see what was written there."""
    assert later.operation is not None
    block = later.operation.thread.block
    values = {"later": str(later.operation), "earlier": "the host wrote it before the launch", "scope": "sys"}
    released = True
    if earlier.operation is not None:
        values["earlier"] = f"{earlier.operation} changed it"
        values["scope"] = machine.scope_between(earlier.operation.thread.block, block)
        released = bool(earlier.event & known.released(values["scope"]))
    if not earlier.event & known.events:
        return "unordered", values | {"later": f"{later.operation} reads the tensor map in {later.array.name!r}"}
    if not released:
        narrower = [scope for scope in SCOPES if earlier.event & known.released(scope)]
        if not narrower:
            return "map-not-released", values
        return "map-scope", values | {"reason": f"it was released at scope {narrower[-1]!r}"}
    if earlier.event in block.not_acquired:
        return "map-scope", values | {"reason": block.not_acquired[earlier.event]}
    acquire, reason = block.acquires.get(later.array.address), ""
    if acquire is not None:
        where = "before the copy" if earlier.event & block.acquired else "after the change"
        reason = f": nothing orders {acquire} {where}"
    return "map-not-acquired", values | {"reason": reason}


def describe_visit(access: Access, operation: Operation) -> str:
    """What a copy or another block does to shared memory, in words."""
    does = "using" if access.copy is None else "reading" if access.does == READ else "writing"
    return f"{operation} may still be {does} {access.array.name!r}"
