"""What a run of a program reports."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from cupytma.errors import more_line
from cupytma.sim.program.rules import KINDS, RULES
from cupytma.words import counted

_WIDTH = 100


@dataclass(frozen=True)
class Place:
    """Where in a program something is.

    Attributes
    ----------
    thread : str
        The role, with the thread's number if it has several, and the block if the grid has several.
    number : int
        How many operations the thread has executed before.
    operation : str
        Its name.
    label : str
        The name given with `named`; empty if none.
    source : str
        File and line of the role.
    """

    thread: str
    number: int
    operation: str
    label: str
    source: str

    def __str__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        return f"{self.thread} operation {self.number}, {self.operation}{label} ({self.source})"


@dataclass(frozen=True)
class Finding:
    """One fault of a program.

    Attributes
    ----------
    rule : str
        The id of a row of `RULES`.
    message : str
        What is wrong, with the numbers.
    places : tuple of Place
        The operation, and the one it conflicts with; or every thread that waits.
    notes : tuple of str
        What else is known of it.
    fix : str
    schedule : int
        The first schedule that showed it.
    schedules : int
        How many did.
    """

    rule: str
    message: str
    places: tuple[Place, ...]
    notes: tuple[str, ...]
    fix: str
    schedule: int
    schedules: int

    @property
    def kind(self) -> str:
        """``"hang"``, ``"race"``, ``"misuse"`` or ``"fault"``."""
        return RULES[self.rule].kind

    def _repr_html_(self) -> str:
        from cupytma.view.simulation_cards import finding_card

        return finding_card(self)

    def __str__(self) -> str:
        lines = (
            f"{self.kind} {self.rule}: {self.message}",
            *(f"  at {place}" for place in self.places),
            *(f"  note: {note}" for note in self.notes),
            f"  fix: {self.fix}",
            f"  in {counted(self.schedules, 'schedule')}, first in {self.schedule}",
        )
        return "\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="    ") for line in lines)


@dataclass(frozen=True, eq=False)
class Report:
    """What a program did in all schedules that were explored.

    Attributes
    ----------
    program : str
        The program's name.
    schedules : int
        How many were run.
    seed : int
        What they were drawn from; the same seed gives the same report.
    findings : tuple of Finding
        Each fault once, in the order of discovery.
    arrays : mapping of str to ndarray
        What global memory held at the end of the first schedule.
    order_dependent : tuple of str
        Arrays that ended up different in different schedules. A fault, or a reduction that rounds.
    """

    program: str
    schedules: int
    seed: int
    findings: tuple[Finding, ...]
    arrays: Mapping[str, npt.NDArray[Any]]
    order_dependent: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def rules(self) -> frozenset[str]:
        """The ids of the rules that are broken."""
        return frozenset(finding.rule for finding in self.findings)

    def _repr_html_(self) -> str:
        from cupytma.view.simulation_cards import report_card

        return report_card(self)

    def __str__(self) -> str:
        kinds = [f.kind for f in self.findings]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in KINDS if kind in kinds)
        head = f"{self.program}: {counted(self.schedules, 'schedule')}, {counts or 'clean'}"
        if self.order_dependent:
            head += f"; {', '.join(self.order_dependent)} differ from schedule to schedule"
        more = [more_line(finding.rule for finding in self.findings)] if self.findings else []
        return "\n".join((head, *map(str, self.findings), *more))
