"""Blocks of a cluster: masks, declarations, and memory of blocks that may have ended."""

from __future__ import annotations

from math import prod

from cupytma.check.events import WAITS, Event, Unit
from cupytma.check.flow import reached
from cupytma.check.regions import may_be_one
from cupytma.check.reporter import Reporter
from cupytma.limits import MAX_CLUSTER
from cupytma.ptx.operands import CTA_MASK
from cupytma.words import counted

_DECLARING = (".reqnctapercluster", ".explicitcluster", ".maxclusterrank")


def check_clusters(unit: Unit, report: Reporter) -> None:
    """All that is said of clusters."""
    if not unit.function.is_entry:
        return
    extents = unit.function.numbers_of("reqnctapercluster")
    _check_masks(unit, report, prod(extents) if extents else None)
    remote = [event for event in unit.events if _is_remote(unit, event)]
    if not any(word in unit.function.directives for word in _DECLARING):
        at = next((e for e in unit.events if e in remote or e.words.get("multicast")), None)
        if at is not None:
            report(
                "cluster-not-declared", unit, at,
                "other blocks of the cluster are written to, and the kernel does not say how many blocks a "
                "cluster has: "
                "a launch without the cluster attribute runs it with one",
            )  # fmt: skip
    _check_exit(unit, report, remote)


def _check_masks(unit: Unit, report: Reporter, size: int | None) -> None:
    for event in unit.events:
        if CTA_MASK.name not in event.given:
            continue
        mask = unit.operand(event, CTA_MASK.name)
        if not mask.is_constant:
            continue
        bits, blocks = mask.constant & 0xFFFF, size or MAX_CLUSTER
        if not bits:
            report("multicast-mask", unit, event, "the mask is 0: the multicast reaches no block")
        elif bits >> blocks:
            report(
                "multicast-mask", unit, event,
                f"the mask is {bits:#x}, and the cluster has {counted(blocks, 'block')}: at most "
                f"{(1 << blocks) - 1:#x}",
            )  # fmt: skip


def _is_remote(unit: Unit, event: Event) -> bool:
    """Whether an event reads or writes memory of another block of the cluster."""
    if event.kind == "remote_store":
        return True
    names = ("mbarrier", "destination", "source")
    return any((region := unit.region(event, name)) is not None and region.is_peer for name in names)


def _check_exit(unit: Unit, report: Reporter, remote: list[Event]) -> None:
    bits = {event.number: 1 << place for place, event in enumerate(remote[:256])}
    ends = {event.number for event in unit.of_kind("barrier_cluster_wait", "call", *WAITS)}
    facts = {
        block: [(e.number, -1 if e.number in ends else 0, bits.get(e.number, 0)) for e in events]
        for block, events in unit.by_block.items()
    }
    arriving = unit.paths.arriving(facts) if bits else {}
    pending = 0
    for event in unit.of_kind("exit"):
        for held in arriving.get(event.number, ()):
            pending |= held
    for event in remote:
        if bits.get(event.number, 0) & pending and not _is_drained(unit, event):
            report(
                "peer-may-have-ended", unit, event,
                f"{event.statement.opcode.partition('.shared')[0]} goes to another block's shared memory, and nothing "
                "after it, such as a cluster barrier, keeps that block from ending first",
            )  # fmt: skip


def _is_drained(unit: Unit, event: Event) -> bool:
    """Whether threads wait, before they end, on the barrier that an arrival at a peer goes to: the peer's do so too."""
    region = unit.region(event, "mbarrier")
    if region is None or event.is_bulk:
        return False
    loading = {other.block for other in unit.events if other.is_bulk}
    for wait in unit.of_kind(*WAITS):
        place = unit.region(wait, "mbarrier")
        if place is not None and may_be_one(unit.values, place, region._replace(is_peer=False)):
            after = set(reached(unit.flow.successors, wait.block))
            if not after & loading:
                return True
    return False
