"""Copies out of shared memory: fences before them, groups around them, and when their source may be used again."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod

from cupytma.check.events import ARRIVALS, Event, Unit
from cupytma.check.finding import Severity
from cupytma.check.levels import Level
from cupytma.check.paths import Condition
from cupytma.check.ranges import bounds
from cupytma.check.regions import Region
from cupytma.check.reporter import Reporter
from cupytma.check.values import Value

_WRITES = ("shared_write", "shared_async_write", "stmatrix")
_GATHERING = ("thread_barrier", "warp_barrier", "barrier_cluster_wait")
_WAITED, _STORED_AGAIN, _TOLD, _MOST_COMMITS = -1, -2, -3, 8
_MOST_EVENTS = 400
_WARP = 32


def check_stores(unit: Unit, report: Reporter) -> None:
    """All that is said of copies out of shared memory."""
    stores = [event for event in unit.events if event.is_in_group or event.reads_shared]
    if stores:
        _check_fences(unit, report, stores)
        _check_handed_over(unit, report, [store for store in stores if store.reads_shared])
        _check_barriers(unit, report, stores)
        _check_commits(unit, report)
        _check_reuse(unit, report)
        _check_exit(unit, report)
    _check_kinds(unit, report)


def written_at(unit: Unit, event: Event) -> Region | None:
    """Where in this block's shared memory an event writes."""
    if event.kind in _WRITES or (event.is_bulk and not event.reads_shared):
        region = unit.region(event, "row" if event.kind == "stmatrix" else "destination")
        return None if region is None or region.is_peer else region
    return None


def _overlap(unit: Unit, first: Region, second: Region) -> bool:
    """Whether two addresses are in the same part of shared memory, as the named places divide it."""
    return unit.anchors.part_of(first) == unit.anchors.part_of(second)


def _fences_async(event: Event) -> bool:
    if event.kind == "fence_proxy_async":
        return event.words.get("space") != "global"
    return event.kind in ("fence_proxy_async_generic", "call")


def _pairs(unit: Unit, stores: list[Event], ends: set[int]) -> Iterator[tuple[int, int]]:
    """The numbers of writes and of copies that read the same part, with nothing on some path that ends the write."""
    writes = [event for event in unit.of_kind(*_WRITES) if written_at(unit, event) is not None]
    if not writes or len(writes) > _MOST_EVENTS:
        return
    bits = {event.number: 1 << place for place, event in enumerate(writes)}
    facts = {
        block: [(e.number, -1 if e.number in ends else 0, bits.get(e.number, 0)) for e in events]
        for block, events in unit.by_block.items()
    }
    arriving = unit.paths.arriving(facts)
    for store in stores:
        source = unit.region(store, "source")
        if source is None:
            continue
        pending = 0
        for held in arriving.get(store.number, ()):
            pending |= held
        for write in writes:
            place = written_at(unit, write)
            if pending & bits[write.number] and place is not None and _overlap(unit, place, source):
                yield write.number, store.number


def _check_fences(unit: Unit, report: Reporter, stores: list[Event]) -> None:
    fences = {event.number for event in unit.events if _fences_async(event)}
    reading = [store for store in stores if store.reads_shared]
    for write_number, store_number in _pairs(unit, reading, fences):
        write, store = unit.events[write_number], unit.events[store_number]
        report(
            "proxy-fence-missing", unit, store,
            f"{_name(store)} reads shared memory that was written by {write.statement.opcode} at "
            f"{report.spoken(unit, write)}, and no fence.proxy.async stands between",
        )  # fmt: skip


def _check_handed_over(unit: Unit, report: Reporter, stores: list[Event]) -> None:
    """Writes of threads in one role, made known to those in another who start the copy."""
    writes = [event for event in unit.of_kind(*_WRITES) if written_at(unit, event) is not None][:_MOST_EVENTS]
    fences = [event for event in unit.events if _fences_async(event)]
    ended = {event.number for event in fences}
    bits = {event.number: 1 << place for place, event in enumerate(writes)}
    facts = {
        block: [(e.number, -1 if e.number in ended else 0, bits.get(e.number, 0)) for e in events]
        for block, events in unit.by_block.items()
    }
    arriving = unit.paths.arriving(facts) if writes else {}
    told = 0
    for event in unit.of_kind(*_GATHERING, *ARRIVALS, "thread_barrier_arrive"):
        for held in arriving.get(event.number, ()):
            told |= held
    for store in stores:
        source = unit.region(store, "source")
        if source is None or any(unit.may_follow(store, fence) for fence in fences):
            continue
        for write in writes:
            place = written_at(unit, write)
            if told & bits[write.number] and place is not None and _overlap(unit, place, source):
                if unit.may_follow(store, write):
                    continue  # the same threads: said by the paths
                report(
                    "proxy-fence-missing", unit, store,
                    f"{_name(store)} reads shared memory that other threads have written by {write.statement.opcode} "
                    f"at {report.spoken(unit, write)}, and those execute no fence.proxy.async before they say so",
                )  # fmt: skip
                break


def _check_barriers(unit: Unit, report: Reporter, stores: list[Event]) -> None:
    ends = {e.number for e in unit.events if e.kind in _GATHERING or "wait" in e.kind or e.kind == "call"}
    ends -= {e.number for e in unit.of_kind("bulk_wait_group", "cp_async_wait_group", "cp_async_wait_all")}
    of_warps = {event.number for event in unit.of_kind("warp_barrier")}
    alone = [s for s in stores if s.reads_shared and unit.levels.of_block(s.block) is Level.LANE]
    pairs = set(_pairs(unit, alone, ends))
    if of_warps and _has_several_warps(unit):
        pairs |= {
            (write, store)
            for write, store in _pairs(unit, alone, ends - of_warps)
            if not _is_one_warp(unit, unit.events[write].block)
        }
    for write_number, store_number in sorted(pairs):
        write, store = unit.events[write_number], unit.events[store_number]
        if _choices(unit, store.block) - _choices(unit, write.block):
            report(
                "tile-not-synchronised", unit, store,
                f"one thread executes {_name(store)}, and what other threads wrote by {write.statement.opcode} at "
                f"{report.spoken(unit, write)} is not there yet: no barrier stands between",
            )  # fmt: skip


def _has_several_warps(unit: Unit) -> bool:
    """Whether it is sure that blocks have more than one warp."""
    threads = unit.function.numbers_of("reqntid") or unit.function.numbers_of("maxntid")
    if threads is not None and prod(threads) <= _WARP:
        return False
    return bool(unit.of_kind("thread_barrier"))


def _is_one_warp(unit: Unit, block: int) -> bool:
    """Whether those that come to a block may be of one warp: some condition on the way picks warps."""
    for edge in unit.flow.conditions(block):
        if unit.levels.of(edge.predicate) is Level.BLOCK or any(
            block in loop and edge.target in loop for loop in unit.flow.loops
        ):
            continue
        for condition, holds in unit.paths.decides(edge):
            symbols = [unit.values.symbols[number] for number, _ in condition.terms]
            plain = len(symbols) == 1 and symbols[0] == ("special", ("tid.x",)) and condition.relation == "lt"
            if not plain or (holds and -condition.constant <= _WARP):
                return True
        if not unit.paths.decides(edge):
            return True
    return False


def _choices(unit: Unit, block: int) -> set[object]:
    """The conditions by which single threads come to a block."""
    found: set[object] = set()
    for edge in unit.flow.conditions(block):
        if unit.levels.of(edge.predicate) is Level.LANE:
            decided: tuple[tuple[Condition, bool], ...] = unit.paths.decides(edge)
            found |= set(decided) or {(edge.predicate, edge.negated)}
    return found


def _check_commits(unit: Unit, report: Reporter) -> None:
    if not unit.function.is_entry:
        return
    grouped = [event for event in unit.events if event.is_in_group]
    ends = {event.number for event in unit.of_kind("bulk_commit_group", "call")}
    commits = unit.of_kind("bulk_commit_group")
    for store in _pending_at_exit(unit, grouped, ends):
        sometimes = any(unit.may_follow(commit, store) for commit in commits)
        report(
            "commit-group-missing", unit, store,
            f"{_name(store)} is in no group where the kernel ends: no cp.async.bulk.commit_group follows it"
            + (" on some path" if sometimes else "") + ", and no wait covers it",
            Severity.WARNING if sometimes else None,  # what decides may be one thing, computed twice
        )  # fmt: skip


def _check_exit(unit: Unit, report: Reporter) -> None:
    if not unit.function.is_entry:
        return
    reading = [event for event in unit.events if event.is_in_group and event.reads_shared]
    ends = {event.number for event in unit.of_kind("call")}
    ends |= {
        event.number
        for event in unit.of_kind("bulk_wait_group")
        if (count := unit.operand(event, "count")).constant == 0 or not count.is_constant
    }
    for store in _pending_at_exit(unit, reading, ends):
        report(
            "exit-in-flight", unit, store,
            f"the kernel may end while {_name(store)} still reads its shared memory: no cp.async.bulk.wait_group 0 "
            "follows on some path",
        )  # fmt: skip


def _pending_at_exit(unit: Unit, stores: list[Event], ends: set[int]) -> list[Event]:
    """The copies after which the function can end without one of the events that end them."""
    bits = {event.number: 1 << place for place, event in enumerate(stores)}
    facts = {
        block: [(e.number, -1 if e.number in ends else 0, bits.get(e.number, 0)) for e in events]
        for block, events in unit.by_block.items()
    }
    arriving = unit.paths.arriving(facts)
    pending = 0
    for event in unit.of_kind("exit"):
        for held in arriving.get(event.number, ()):
            pending |= held
    return [event for event in stores if bits[event.number] & pending]


def _check_reuse(unit: Unit, report: Reporter) -> None:
    for store in unit.events:
        if not (store.is_in_group and store.reads_shared):
            continue
        source = unit.region(store, "source")
        if source is None or source.is_peer:
            continue
        unwaited, waited, told = _reached_after(unit, store)
        for number in sorted(unwaited - waited - told):
            write = unit.events[number]
            place = written_at(unit, write)
            if place is not None and _overlap(unit, place, source):
                report(
                    "shared-reused-early", unit, write,
                    f"{_name(write)} writes shared memory that {_name(store)} at {report.spoken(unit, store)} "
                    "may still "
                    "be reading: no cp.async.bulk.wait_group.read stands between that waits for it",
                )  # fmt: skip
                break
        else:
            _check_told(unit, report, store, source, waited - unwaited - told)


def _check_told(unit: Unit, report: Reporter, store: Event, source: Region, waited: set[int]) -> None:
    """Writes of many threads, after one of them has waited for a copy and before the others are told."""
    if _changes(unit, source) or unit.levels.of_block(store.block) is not Level.LANE:
        return
    for number in sorted(waited):
        write = unit.events[number]
        place = written_at(unit, write)
        if place is None or not _overlap(unit, place, source):
            continue
        # Matrices are written by whole warps.
        by_many = write.kind == "stmatrix" or unit.levels.of_text(write.given["destination"]) is Level.LANE
        if by_many and _choices(unit, store.block) - _choices(unit, write.block):
            report(
                "shared-reused-early", unit, write,
                f"{_name(write)} writes shared memory that {_name(store)} at {report.spoken(unit, store)} may still be "
                "reading: one thread waits for it, and no barrier stands between that wait and the other threads' "
                "writes",
            )  # fmt: skip
            return


def _changes(unit: Unit, region: Region) -> bool:
    """Whether an address may be another one each time."""
    return any(unit.values.varies(number) for number, _ in region.address.terms)


def _reached_after(unit: Unit, store: Event) -> tuple[set[int], set[int], set[int]]:
    """The events that a thread can come to before it has waited for a copy, after it has, and after it has said so."""
    region = unit.region(store, "source")
    exact = region is None or not _changes(unit, region)
    buffers = _buffers(unit, region) if region is not None else None
    unwaited: set[int] = set()
    waited: set[int] = set()
    told: set[int] = set()
    waiting = [(node, 0, True) for node in unit.paths.of_block.get(store.block, ())]
    seen = set(waiting)
    while waiting:
        node, commits, is_start = waiting.pop()
        state = commits
        for event in unit.by_block.get(unit.paths.nodes[node][0], ()):
            if is_start:
                is_start = event.number != store.number
                continue
            if event.number == store.number:
                if exact:  # from here on it is that one's turn
                    state = _STORED_AGAIN
                    break
                continue
            tells = event.kind in (*_GATHERING, *ARRIVALS, "thread_barrier_arrive")
            if event.kind == "call" or (state == _WAITED and tells):
                state = _TOLD
            elif event.kind == "bulk_commit_group" and state >= 0:
                state = min(state + 1, _MOST_COMMITS)
            elif event.kind == "bulk_wait_group" and state >= 0:
                count = unit.operand(event, "count")
                # Which of several buffers the newest groups read is not known; of one buffer it is. As many groups as
                # there are buffers may not be left.
                most = state if exact else buffers
                if most is None or not count.is_constant or count.constant < most:
                    state = _WAITED
            else:
                (told if state == _TOLD else waited if state == _WAITED else unwaited).add(event.number)
        if state == _STORED_AGAIN:
            continue
        for following in unit.paths.successors[node]:
            key = (following, state, False)
            if key not in seen:
                seen.add(key)
                waiting.append(key)
    return unwaited, waited, told


def _buffers(unit: Unit, region: Region) -> int | None:
    """Among how many buffers a copy's source goes round; None where that is not known."""
    index = Value(region.address.terms - region.base, 0)
    low, high = bounds(unit.values, index)
    if not index.terms or low != 0 or high is None:
        return None
    return high // gcd(*(abs(factor) for _, factor in index.terms)) + 1


def _check_kinds(unit: Unit, report: Reporter) -> None:
    """Waits of one kind of group where only the other kind exists."""
    if unit.calls_family:
        return
    bulk = [event for event in unit.events if event.is_in_group]
    plain = unit.of_kind("shared_async_write", "cp_async_mbarrier_arrive")
    bulk_waits = unit.of_kind("bulk_wait_group", "bulk_commit_group")
    plain_waits = unit.of_kind("cp_async_wait_group", "cp_async_wait_all", "cp_async_commit_group")
    if bulk and not plain:
        for event in plain_waits:
            report(
                "wait-group-kind", unit, event,
                f"{event.statement.opcode} is of the groups of cp.async, and this kernel has none; its copies are in "
                "bulk groups",
            )  # fmt: skip
    if plain and not bulk:
        for event in bulk_waits:
            report(
                "wait-group-kind", unit, event,
                f"{event.statement.opcode} is of bulk groups, and this kernel has none; its copies are in the groups "
                "of cp.async",
            )  # fmt: skip


def _name(event: Event) -> str:
    words = event.statement.opcode.split(".")
    return ".".join(words[: 5 if "tensor" in words else 4])
