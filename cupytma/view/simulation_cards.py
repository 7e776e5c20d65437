"""What the simulator found, as cards for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from cupytma.view.html import folded, framed, note, table
from cupytma.view.swizzle_map import swizzle

if TYPE_CHECKING:
    from cupytma.sim.banks import SwizzleAdvice
    from cupytma.sim.program.report import Finding, Report


def report_card(report: Report) -> str:
    """HTML of what a program did in all schedules: every finding with its places, and the fix."""
    title, *_ = str(report).splitlines()
    return framed([f"<strong>{escape(title)}</strong>", *(part for f in report.findings for part in _finding(f))])


def finding_card(finding: Finding) -> str:
    """HTML of one of them."""
    return framed(_finding(finding))


def _finding(finding: Finding) -> Iterable[str]:
    yield note(f"{finding.kind} {finding.rule}: {finding.message}", bad=True)
    rows = [("at", str(place)) for place in finding.places]
    rows += [("note", text) for text in finding.notes]
    schedules = f"{finding.schedules}, first in {finding.schedule}"
    yield table((), [*rows, ("fix", finding.fix), ("schedules", schedules)])


def advice_card(advice: SwizzleAdvice) -> str:
    """HTML of the conflicts with every swizzle, and of the recommended one as a map."""
    best = advice.best
    title = f"Use swizzle {advice.swizzle} for {best.access} reads of {best.access_bytes} bytes"
    rows = [
        (str(r.swizzle), str(r.conflicts), str(r.worst), str(r.wavefronts), "recommended" * (r is best))
        for r in advice.results
    ]
    rows += [(str(name), "", "", "", f"illegal: {broken[0].message}") for name, broken in advice.illegal.items()]
    headings = ("Swizzle", "Conflicts", "Worst phase", "Wavefronts", "")
    return framed([
        f"<strong>{escape(title)}</strong>", table(headings, rows), folded("Map", swizzle(advice.swizzle).svg),
    ])  # fmt: skip
