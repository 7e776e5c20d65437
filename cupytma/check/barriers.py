"""mbarriers: their initialisation, what is expected and completes on them, and the waits."""

from __future__ import annotations

import re

from cupytma.check.events import ARRIVALS, EXPECTS, WAITS, Event, Unit
from cupytma.check.finding import Severity
from cupytma.check.levels import Level
from cupytma.check.module import Variable
from cupytma.check.ranges import bounds
from cupytma.check.regions import Region, may_be_one
from cupytma.check.reporter import Reporter
from cupytma.check.values import Value, add

_SLOT, _MOST_SLOTS = 8, 64
_OF_CLUSTERS = ("barrier_cluster_arrive", "barrier_cluster_wait", "mapa")
_FOREIGN = ("remote_store", "foreign_completion")
_ORDERING = ("thread_barrier", "warp_barrier", "barrier_cluster_wait", "call")


class Barriers:
    """The events of a function that have an mbarrier, with where it lies."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.all = [event for event in unit.events if "mbarrier" in event.given]
        self.inits = self._of("mbarrier_init")
        self.waits = self._of(*WAITS)
        self.arrivals = self._of(*ARRIVALS)
        self.expects = self._of(*EXPECTS)
        self.loads = [event for event in self.all if event.completes_on_barrier or event.kind in _FOREIGN]
        self._same: dict[tuple[Region, Region], bool] = {}

    def _of(self, *kinds: str) -> list[Event]:
        return [event for event in self.all if event.kind in kinds]

    def region(self, event: Event) -> Region | None:
        """Where an event's mbarrier lies."""
        return self.unit.region(event, "mbarrier")

    def any_may_be(self, events: list[Event], region: Region) -> bool:
        """Whether one of some events may be on the mbarrier at a place; one whose place is not known may."""
        return any(self.may_be(event, region) for event in events)

    def may_be(self, event: Event, region: Region) -> bool:
        """Whether an event may be on the mbarrier at a place."""
        place = self.region(event)
        if place is None:
            return True
        known = self._same.get((place, region))
        if known is None:
            known = self._same[place, region] = may_be_one(self.unit.values, place, region)
        return known

    def name(self, event: Event) -> str:
        """An mbarrier in words."""
        region = self.region(event)
        for symbol, _ in self.unit.values.terms(region.address) if region else ():
            if symbol.kind == "address":
                return f"the mbarrier in {_plain_name(str(symbol.data[1]))}"
        return "the mbarrier"


def _plain_name(name: str) -> str:
    """A variable's own name, without what the mangling puts around it."""
    for digits in re.finditer(r"\d{1,4}", name):
        end = digits.end() + int(digits[0])
        if name[end:] in ("", "E") and digits.end() < end <= len(name):
            return name[digits.end() : end]
    return name


def check_barriers(unit: Unit, report: Reporter) -> None:
    """All that is said of mbarriers, but for transaction counts."""
    barriers = Barriers(unit)
    if not barriers.all:
        return
    _check_parity(barriers, report)
    _check_same_parity(barriers, report)
    _check_fence(barriers, report)
    _check_order(barriers, report)
    if unit.function.is_entry and not unit.calls_family:
        _check_partners(barriers, report)
        _check_slots(barriers, report)
        _check_expected(barriers, report)


def _check_partners(barriers: Barriers, report: Reporter) -> None:
    """Barriers that lack an initialisation, a wait or an arrival."""
    unit = barriers.unit
    for event in barriers.all:
        region = barriers.region(event)
        if region is None or event.kind in ("mbarrier_init", "mbarrier_inval"):
            continue
        name = barriers.name(event)
        if not barriers.any_may_be(barriers.inits, region):
            report("mbarrier-not-initialised", unit, event, f"{name} is used, and the kernel never initialises it")
        elif event.completes_on_barrier and not barriers.any_may_be(barriers.waits, region):
            report(
                "load-never-waited", unit, event,
                f"the copy completes on {name}, and nobody waits for it: what reads the tile may come too early",
            )  # fmt: skip
        elif event in barriers.waits and not barriers.any_may_be(barriers.arrivals, region):
            report(
                "wait-never-completed", unit, event,
                f"the wait is for {name}, and nothing in the kernel arrives on it: its phase never completes"
                + (" (bytes that a copy brings are no arrival)" if barriers.any_may_be(barriers.loads, region) else ""),
            )  # fmt: skip
        elif event in barriers.arrivals and not any(
            barriers.any_may_be(events, region) for events in (barriers.waits, barriers.loads)
        ):
            report(
                "arrival-never-waited", unit, event,
                f"threads arrive on {name}, and nobody waits for it: it orders nothing",
            )  # fmt: skip


def _check_slots(barriers: Barriers, report: Reporter) -> None:
    """Mbarriers of an array that are left out where its others are initialised one by one."""
    unit = barriers.unit
    arrays: dict[frozenset[tuple[int, int]], list[Event]] = {}
    for init in barriers.inits:
        region = barriers.region(init)
        if region is None or region.is_indexed:
            return
        arrays.setdefault(region.base, []).append(init)
    for base, inits in arrays.items():
        variable = _variable(unit, base)
        if variable is None or variable.size is None or _has_other_uses(barriers, base):
            continue
        places = {region.address.constant for init in inits if (region := barriers.region(init)) is not None}
        for place in range(0, min(variable.size, _MOST_SLOTS * _SLOT), _SLOT):
            slot = Region(base, Value(base, place), False)
            uses = [
                event
                for event in barriers.all
                if event.kind not in ("mbarrier_init", "mbarrier_inval")
                and (region := barriers.region(event)) is not None
                and (region.is_indexed or not region.is_peer)
                and may_be_one(unit.values, region, slot)
            ]
            if place not in places and uses and (place < max(places) or _is_bounded(unit, uses)):
                report(
                    "mbarrier-not-initialised", unit, uses[0],
                    f"{barriers.name(uses[0])} at byte {place} is used, and not initialised as the others are",
                )  # fmt: skip
                break


def _variable(unit: Unit, base: frozenset[tuple[int, int]]) -> Variable | None:
    """The variable that a base is, if it is one."""
    symbols = [unit.values.symbols[number] for number, _ in base]
    return unit.values.variable(symbols[0].data[1]) if len(symbols) == 1 else None


def _has_other_uses(barriers: Barriers, base: frozenset[tuple[int, int]]) -> bool:
    """Whether anything but mbarriers lies in a variable."""
    unit = barriers.unit
    for event in unit.events:
        for name in ("destination", "source"):
            region = unit.region(event, name)
            if region is not None and region.base == base:
                return True
    return False


def _is_bounded(unit: Unit, uses: list[Event]) -> bool:
    """Whether the places of some uses are known to lie within limits."""
    for event in uses:
        region = unit.region(event, "mbarrier")
        if region is not None:
            _, high = bounds(unit.values, add(region.address, Value(region.base, 0), -1))
            if high is not None:
                return True
    return False


def _check_fence(barriers: Barriers, report: Reporter) -> None:
    unit = barriers.unit
    bits = {event.number: 1 << place for place, event in enumerate(barriers.inits)}
    if not bits or not barriers.loads:
        return

    def ends(event: Event) -> int:
        fences = event.kind == "fence_proxy_async" and event.words.get("space") != "global"
        return -1 if fences or event.kind in ("fence_mbarrier_init", "fence_proxy_async_generic", "call") else 0

    facts = {
        block: [(e.number, ends(e), bits.get(e.number, 0)) for e in events] for block, events in unit.by_block.items()
    }
    arriving = unit.paths.arriving(facts)
    clustered = any(e.kind in _OF_CLUSTERS or e.words.get("multicast") for e in unit.events)
    # The thread that initialises fences, before a barrier tells other threads or it starts a copy itself.
    known = 0
    for event in unit.of_kind(*_ORDERING):
        for held in arriving.get(event.number, ()):
            known |= held
    for load in barriers.loads:
        region = barriers.region(load)
        pending = known
        for held in arriving.get(load.number, ()):
            pending |= held
        if region is None or not pending:
            continue
        for init in barriers.inits:
            place = barriers.region(init)
            if pending & bits[init.number] and place is not None and may_be_one(unit.values, place, region):
                report(
                    "mbarrier-init-not-fenced", unit, init,
                    f"{barriers.name(init)} is initialised, and the copy at {report.spoken(unit, load)} "
                    "completes on it "
                    "with no fence.mbarrier_init or fence.proxy.async between",
                    None if clustered else Severity.NOTE,
                )  # fmt: skip
                break


def _check_order(barriers: Barriers, report: Reporter) -> None:
    """Threads that use a barrier which another thread initialises, with nothing that orders the two."""
    unit = barriers.unit
    inits = [
        event
        for event in barriers.inits
        if unit.levels.of_block(event.block) is not Level.BLOCK and barriers.region(event) is not None
    ]
    if not inits:
        return
    bits = {event.number: 1 << place for place, event in enumerate(inits)}
    everything = (1 << len(inits)) - 1

    def ends(event: Event) -> int:
        if event.kind in _ORDERING:
            return everything
        own = unit.region(event, "mbarrier")
        found = 0
        for init in inits:
            place = barriers.region(init)
            same = own is None or place is None or may_be_one(unit.values, own, place)
            if (event.kind == "mbarrier_init" and same) or (event.kind in WAITS and not same):
                found |= bits[init.number]
        return found

    interesting = {e.number: ends(e) for e in unit.events if e.kind in (*_ORDERING, *WAITS, "mbarrier_init")}
    facts = {
        block: [(e.number, interesting.get(e.number, 0), 0) for e in events] for block, events in unit.by_block.items()
    }
    arriving = unit.paths.arriving(facts, everything)
    for event in barriers.all:
        region = barriers.region(event)
        if region is None or region.is_peer or event.kind in ("mbarrier_init", "mbarrier_inval"):
            continue
        pending = 0
        for held in arriving.get(event.number, ()):
            pending |= held
        for init in inits:
            place = barriers.region(init)
            if pending & bits[init.number] and place is not None and may_be_one(unit.values, place, region):
                report(
                    "mbarrier-init-unordered", unit, event,
                    f"{barriers.name(event)} is used by threads that did not initialise it: one thread does, at "
                    f"{report.spoken(unit, init)}, and no barrier of threads stands between",
                )  # fmt: skip
                break


def _check_expected(barriers: Barriers, report: Reporter) -> None:
    """Loads without their bytes expected, where the thread expects those of others on the same barriers."""
    unit = barriers.unit
    loads = [event for event in barriers.loads if event.is_bulk and not event.words.get("multicast")]
    for load in loads:
        region = barriers.region(load)
        if region is None or region.is_peer:
            continue
        expects = {event.number for event in barriers.expects if barriers.may_be(event, region)}
        waits = {event.number for event in barriers.waits if barriers.may_be(event, region)}
        if not expects or not waits:
            continue
        before = _meets(unit, expects, {load.number}, waits)
        after = _meets(unit, {load.number}, expects, waits)
        if before or after:
            continue
        if _meets(unit, expects, {load.number}, set()) or _meets(unit, {load.number}, expects, set()):
            report(
                "expect-tx-mismatch", unit, load,
                f"{barriers.name(load)}: the copy's bytes are not expected, as those of the other copies are",
            )  # fmt: skip


def _meets(unit: Unit, starts: set[int], goals: set[int], ends: set[int]) -> bool:
    """Whether a thread can come from one of some events to one of others without one that ends the way."""
    return not goals.isdisjoint(_met(unit, starts, ends))


def _met(unit: Unit, starts: set[int], ends: set[int]) -> set[int]:
    """The events that a thread can come to from one of some events without one that ends the way."""
    facts = {
        block: [(e.number, int(e.number in ends), int(e.number in starts)) for e in events]
        for block, events in unit.by_block.items()
    }
    return {number for number, held in unit.paths.arriving(facts).items() if any(held)}


def _check_parity(barriers: Barriers, report: Reporter) -> None:
    unit = barriers.unit
    advancing = [*barriers.arrivals, *barriers.loads]
    looped = frozenset().union(*(loop for loop in unit.flow.loops if _has_work(unit, loop)))
    for wait in barriers.waits:
        region = barriers.region(wait)
        if region is None or "parity" not in wait.given:
            continue
        parity = unit.operand(wait, "parity")
        if not _advances(barriers, looped, region, advancing):
            _check_first_phase(barriers, report, wait, region)
            continue
        for loop in unit.flow.loops:
            if wait.block not in loop or not _has_work(unit, loop):
                continue
            if not unit.flow.runs_each_time(wait.block, loop):
                break
            if varies(unit, parity, loop):
                break
            if any(e.block in loop for e in unit.of_kind("mbarrier_init", "mbarrier_inval", "call")):
                break
            if _has_other_parity(barriers, wait, loop) or not _comes_back(unit, region, loop):
                continue
            report(
                "parity-never-flips", unit, wait,
                f"the loop waits for {barriers.name(wait)} again with the same parity: from its second phase on the "
                "wait returns at once or never",
            )  # fmt: skip
            break


def _check_same_parity(barriers: Barriers, report: Reporter) -> None:
    """A wait with the parity of the wait before, where the thread has arrived once between: a loop, unrolled."""
    unit = barriers.unit
    groups: dict[tuple[Region, int], set[int]] = {}
    for wait in barriers.waits:
        region, parity = barriers.region(wait), unit.operand(wait, "parity")
        if region is None or region.is_peer or "parity" not in wait.given or not parity.is_constant:
            continue
        if not any(unit.values.varies(number) for number, _ in region.address.terms):
            groups.setdefault((region, parity.constant), set()).add(wait.number)
    restarts = unit.of_kind("mbarrier_init", "mbarrier_inval", "call")
    for (region, _), waits in groups.items():
        arrivals = {event.number for event in barriers.arrivals if barriers.region(event) == region}
        if len(waits) < 2 or not arrivals:
            continue
        # Who waits for the other parity, or begins anew, may be chosen by other conditions than who arrives.
        others = [event for event in barriers.waits if event.number not in waits]
        after = [event for event in restarts if unit.may_follow(event, unit.events[min(waits)])]
        if barriers.any_may_be(others, region) or after:
            continue
        ends = {event.number for event in (*barriers.waits, *barriers.arrivals) if barriers.may_be(event, region)}
        first = arrivals & _met(unit, waits, ends)
        again = sorted(waits & _met(unit, first, ends)) if first else []
        for wait in (unit.events[number] for number in again[:1]):
            report(
                "parity-never-flips", unit, wait,
                f"the wait for {barriers.name(wait)} has the parity of the wait before, and its phase is the next: it "
                "returns at once",
            )  # fmt: skip


def _check_first_phase(barriers: Barriers, report: Reporter, wait: Event, region: Region) -> None:
    """A wait with parity 1 for a barrier that completes one phase alone, that of a load."""
    unit = barriers.unit
    parity = unit.operand(wait, "parity")
    if not parity.is_constant or parity.constant != 1 or region.is_indexed or unit.calls_family:
        return
    if sum(barriers.may_be(event, region) for event in barriers.arrivals) != 1:
        return
    if unit.function.is_entry and any(
        (place := barriers.region(load)) is not None and place.address == region.address for load in barriers.loads
    ):
        report(
            "parity-of-no-phase", unit, wait,
            f"the wait is for parity 1 of {barriers.name(wait)}, whose first and only phase has parity 0: it "
            "returns at "
            "once",
        )  # fmt: skip


def _advances(barriers: Barriers, loop: frozenset[int], region: Region, advancing: list[Event]) -> bool:
    """Whether something in loops completes phases of the mbarrier at a place."""
    return any(
        (place := barriers.region(event)) is not None and may_be_one(barriers.unit.values, place, region)
        for event in advancing
        if event.block in loop
    )


def _has_work(unit: Unit, loop: frozenset[int]) -> bool:
    """Whether a loop does more than ask again whether a phase has completed."""
    return any(event.kind not in WAITS for block in loop for event in unit.by_block.get(block, ()))


def _has_other_parity(barriers: Barriers, wait: Event, loop: frozenset[int]) -> bool:
    unit = barriers.unit
    own, address = unit.operand(wait, "parity"), unit.operand(wait, "mbarrier")
    return any(
        other.block in loop and unit.operand(other, "mbarrier") == address and unit.operand(other, "parity") != own
        for other in barriers.waits
    )


def _comes_back(unit: Unit, region: Region, loop: frozenset[int]) -> bool:
    """Whether a loop comes to the same mbarrier again: its place does not change, or goes round a ring."""
    index = add(region.address, Value(region.base, 0), -1)
    if not varies(unit, index, loop):
        return True
    if any(symbol.kind == "operation" for symbol, _ in unit.values.terms(index)):
        return True
    low, high = bounds(unit.values, index)
    return low is not None and high is not None


def varies(unit: Unit, value: Value, loop: frozenset[int], depth: int = 0) -> bool:
    """Whether a value can change while a loop runs."""
    if depth > 12:
        return True
    for symbol, _ in unit.values.terms(value):
        if symbol.kind in ("register", "induction"):
            places = unit.values.definitions.get(str(symbol.data[0]), ())
            if any(unit.flow.block_of(place.index) in loop for place in places):
                return True
        elif symbol.kind == "result":
            index = symbol.data[0]
            if isinstance(index, int) and unit.flow.block_of(index) in loop:
                return True
        elif symbol.kind in ("operation", "comparison", "peer"):
            numbers = symbol.data[2:] if symbol.kind == "comparison" else symbol.data
            inner = [unit.values.value(number) for number in numbers if isinstance(number, int)]
            if any(varies(unit, part, loop, depth + 1) for part in inner):
                return True
        elif symbol.kind == "unknown":
            return True
    return False
