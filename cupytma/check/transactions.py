"""Bytes that are expected on an mbarrier, beside those that copies bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cupytma.check.barriers import Barriers
from cupytma.check.events import Event, Unit
from cupytma.check.given_maps import GivenMaps
from cupytma.check.levels import Level
from cupytma.check.regions import may_be_one
from cupytma.check.reporter import Reporter
from cupytma.check.values import Value
from cupytma.limits import UNIT
from cupytma.words import counted

# PTX ISA, "Contents of the mbarrier object".
_MOST_BYTES = (1 << 20) - 1


@dataclass
class _Phase:
    """What happens to one mbarrier in a piece of straight code."""

    expects: list[Event] = field(default_factory=list)
    loads: list[Event] = field(default_factory=list)


def check_transactions(unit: Unit, report: Reporter, maps: GivenMaps) -> None:
    """Constant byte counts that cannot equal what is loaded."""
    barriers = Barriers(unit)
    if not barriers.expects:
        return
    for expect in barriers.expects:
        count = unit.operand(expect, "bytes")
        if count.is_constant and not 0 <= count.constant <= _MOST_BYTES:
            text = f"{count.constant} bytes are more than the {_MOST_BYTES} possible"
            report("expect-tx-mismatch", unit, expect, text)
    if unit.calls_family or not unit.function.is_entry:
        return
    phases = _phases(barriers)
    shapes: dict[tuple[tuple[int, int], ...], tuple[int, Event]] = {}
    for (_, address), phase in phases.items():
        if not phase.expects or not _is_whole(barriers, phase, phases, address):
            continue
        counts = [unit.operand(event, "bytes") for event in phase.expects]
        if not all(count.is_constant for count in counts):
            continue
        expected = sum(count.constant for count in counts)
        problem = _problem(unit, maps, phase, expected) or _differs(unit, report, maps, phase, expected, shapes)
        if problem:
            report("expect-tx-mismatch", unit, phase.expects[0], f"{barriers.name(phase.expects[0])}: {problem}")


def _phases(barriers: Barriers) -> dict[tuple[int, Value], _Phase]:
    """Expectations and loads by the straight code that they stand in and the mbarrier's address."""
    chains = _chains(barriers.unit)
    found: dict[tuple[int, Value], _Phase] = {}
    for event in barriers.all:
        if event in barriers.expects or event in barriers.loads:
            key = (chains[event.block], barriers.unit.operand(event, "mbarrier"))
            phase = found.setdefault(key, _Phase())
            (phase.expects if event in barriers.expects else phase.loads).append(event)
    return found


def _chains(unit: Unit) -> list[int]:
    """For each block, the first block of the straight code that it belongs to."""
    flow = unit.flow
    heads = list(range(len(flow.blocks)))
    for block in range(len(flow.blocks)):
        before = flow.predecessors[block]
        if len(before) == 1 and len(flow.successors[before[0]]) == 1 and before[0] < block:
            heads[block] = heads[before[0]]
    return heads


def _is_whole(
    barriers: Barriers, phase: _Phase, phases: Mapping[tuple[int, Value], _Phase], address: Value
) -> bool:
    """Whether all that comes to the barrier in a phase is seen: no loads elsewhere, by other threads, other blocks."""
    unit = barriers.unit
    region = barriers.region(phase.expects[0])
    if region is None or region.is_peer:
        return False
    events = (*phase.expects, *phase.loads)
    if unit.has_many_threads and any(unit.levels.of_block(event.block) is not Level.LANE for event in events):
        return False
    for other in phases.values():
        for load in other.loads:
            place = barriers.region(load)
            if place is None:
                return False
            if not may_be_one(unit.values, place, region):
                continue
            if not other.expects or place.is_peer or load.words.get("multicast") or not load.is_bulk:
                return False
        for expect in other.expects:
            place = barriers.region(expect)
            if other is not phase and not other.loads and (place is None or may_be_one(unit.values, place, region)):
                return False
    return not any(
        (place := barriers.region(event)) is None or may_be_one(unit.values, place, region)
        for event in unit.of_kind("mbarrier_complete_tx")
    )


def _problem(unit: Unit, maps: GivenMaps, phase: _Phase, expected: int) -> str:
    if not phase.loads:
        return f"{expected} bytes are expected, and no copy brings any" if expected else ""
    sizes = [maps.bytes_of(unit, load) for load in phase.loads]
    unknown = [load for load, size in zip(phase.loads, sizes, strict=True) if size is None]
    known = sum(size for size in sizes if size is not None)
    loads = counted(len(phase.loads), "copy brings", "copies bring")
    if not unknown:
        return "" if known == expected else f"{expected} bytes are expected, and {loads} {known}"
    rest = expected - known
    if rest < UNIT * len(unknown):
        return f"{expected} bytes are expected, and {loads} at least {known + UNIT * len(unknown)}"
    if rest % UNIT:
        return f"{expected} bytes are expected, and {loads} a multiple of {UNIT}"
    shapes = {_shape(unit, load) for load in unknown}
    if len(shapes) == 1 and rest % (UNIT * len(unknown)):
        return f"{expected} bytes are expected, and {loads} equal tiles, each a multiple of {UNIT} bytes"
    return ""


def _shape(unit: Unit, load: Event) -> tuple[int, int]:
    """What decides how many bytes a tensor load of an unknown map brings, as numbers."""
    mode = unit.values.symbol("mode", load.words.get("mode"))
    return unit.values.number(unit.operand(load, "tensor_map")), mode


def _differs(
    unit: Unit, report: Reporter, maps: GivenMaps, phase: _Phase, expected: int,
    shapes: dict[tuple[tuple[int, int], ...], tuple[int, Event]],
) -> str:  # fmt: skip
    """The same loads, with another number of bytes expected before."""
    sizes = [maps.bytes_of(unit, load) for load in phase.loads]
    if not phase.loads:
        return ""
    key = tuple(
        sorted(
            (-1, size) if size is not None else _shape(unit, load)
            for size, load in zip(sizes, phase.loads, strict=True)
        )
    )
    before, where = shapes.setdefault(key, (expected, phase.expects[0]))
    if before == expected:
        return ""
    return (
        f"{expected} bytes are expected here and {before} at {report.spoken(unit, where)}, and the copies are "
        "through the "
        "same maps: one of the two is wrong"
    )
