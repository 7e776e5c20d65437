"""Operands that the hardware refuses: alignments, sizes and coordinates that are known."""

from __future__ import annotations

from cupytma.check.events import BULK, LOADS, STORES, Event, Unit
from cupytma.check.finding import Severity
from cupytma.check.given_maps import GivenMaps
from cupytma.check.levels import Level
from cupytma.check.ranges import trailing_zeros
from cupytma.check.regions import Region
from cupytma.check.reporter import Reporter
from cupytma.check.values import Value
from cupytma.limits import TILE_ALIGNMENT, UNIT
from cupytma.ptx.operands import BYTES, COORDINATE
from cupytma.tensormap import Interleave

_LARGEST_ELEMENT = 8


def check_operands(unit: Unit, report: Reporter, maps: GivenMaps) -> None:
    """All that is said of single operands."""
    for event in unit.events:
        if event.is_bulk:
            _check_alignment(unit, report, maps, event)
            _check_size(unit, report, event)
            _check_coordinate(unit, report, maps, event)
    if unit.function.is_entry:
        _check_issue(unit, report)


def _check_alignment(unit: Unit, report: Reporter, maps: GivenMaps, event: Event) -> None:
    need = TILE_ALIGNMENT if event.kind in (*LOADS, *STORES) else UNIT
    for name in ("destination", "source"):
        region = unit.region(event, name)
        if region is None:
            continue
        address, zeros = region.address, need.bit_length() - 1
        has = 1 << trailing_zeros(unit.values, address)
        if has < need:
            base = 1 << trailing_zeros(unit.values, Value(region.base, 0))
            rest = 1 << trailing_zeros(unit.values, Value(address.terms - region.base, 0))
            if min(rest, base) > (address.constant & -address.constant) > 0:
                report(
                    "shared-misaligned", unit, event,
                    f"the {name} in shared memory is {address.constant} bytes from a multiple of {min(rest, base)}, "
                    f"and must be a multiple of {need}",
                )  # fmt: skip
            elif rest >= need and address.constant % need == 0 and not _is_at_start(unit, region):
                report(
                    "shared-weakly-aligned", unit, event,
                    f"the {name} in shared memory must be a multiple of {need}, and its variable is declared with an "
                    f"alignment of {base}",
                )  # fmt: skip
            continue
        given = maps.of(unit, event)
        wanted = given.shared_alignment if given is not None else None
        if wanted is not None and wanted > has and (1 << zeros) <= has:
            base = 1 << trailing_zeros(unit.values, Value(region.base, 0))
            if base < wanted and address.terms == region.base and not _is_at_start(unit, region):
                report(
                    "shared-weakly-aligned", unit, event,
                    f"the tile's swizzle repeats every {wanted} bytes, and the {name}'s variable is declared with an "
                    f"alignment of {base}: the tile may begin in the middle of the pattern",
                )  # fmt: skip


def _is_at_start(unit: Unit, region: Region) -> bool:
    """Whether a region is the dynamic shared memory of a kernel without other shared memory: it begins aligned."""
    variables = {**unit.module.variables, **unit.function.variables}.values()
    own = [variable for variable in variables if variable.space == "shared"]
    return not unit.function.is_entry or (len(own) == 1 and own[0].is_extern and bool(region.base))


def _check_size(unit: Unit, report: Reporter, event: Event) -> None:
    if event.kind not in BULK:
        return
    count = unit.operand(event, "bytes")
    legal = BYTES.literals or range(0)
    if count.is_constant and count.constant not in legal:
        report(
            "size-not-multiple", unit, event,
            f"{count.constant} bytes: a bulk copy takes a multiple of {legal.step}, at most {legal[-1]}",
        )  # fmt: skip


def _check_coordinate(unit: Unit, report: Reporter, maps: GivenMaps, event: Event) -> None:
    if f"{COORDINATE.name}_0" not in event.given:
        return
    start = unit.operand(event, f"{COORDINATE.name}_0")
    if not start.is_constant:
        return
    rank = event.words.get("rank")
    parameters = maps.parameters_of(unit, event)
    if parameters is not None:
        if parameters.interleave != Interleave.NONE:
            return
        size = parameters.element_bytes
    elif isinstance(rank, int) and rank < 3:  # with more dimensions the map may be interleaved
        size = _LARGEST_ELEMENT
    else:
        return
    if start.constant * size % UNIT:
        what = f"{size}-byte elements" if parameters is not None else "elements of any size"
        report(
            "coordinate-misaligned", unit, event,
            f"the innermost coordinate is {start.constant}: with {what} the copy does not start at a multiple of "
            f"{UNIT} bytes",
        )  # fmt: skip


def _check_issue(unit: Unit, report: Reporter) -> None:
    """Copies that every lane of a warp starts."""
    if not unit.has_many_threads:
        return
    for event in unit.events:
        if not event.is_bulk or unit.levels.of_block(event.block) is Level.LANE:
            continue
        operands = max(unit.levels.of_text(text) for text in event.given.values())
        if operands is Level.LANE:
            continue
        if max(operands, unit.levels.of_block(event.block)) is Level.BLOCK:
            report(
                "issued-by-every-thread", unit, event,
                "every thread of a block starts this copy, with the same operands: one thread is enough, and "
                "its barrier "
                "and its bytes are counted for one",
            )  # fmt: skip
        else:
            repeats = event.kind in ("tensor_store", "bulk_copy") and not event.completes_on_barrier
            severity = Severity.NOTE if repeats else Severity.WARNING
            if "reduce" in event.kind:
                severity = Severity.ERROR
            report(
                "issued-by-every-thread", unit, event,
                "every lane of a warp starts this copy, with the same operands, and each makes it", severity,
            )  # fmt: skip
