"""Findings as they are made: each place once, in the user's lines, without those that a comment takes back."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cupytma.check.events import Event, Unit
from cupytma.check.finding import Finding, Rule, Severity
from cupytma.check.lexer import MARK
from cupytma.check.module import Module, Statement
from cupytma.listed import Listed

_IGNORE = re.compile(re.escape(MARK) + r"\s*ignore(?:\[([\w\s,-]*)\])?")


class Reporter:
    """Collects the findings of one module."""

    def __init__(self, module: Module, rules: Mapping[str, Rule], file: str = "") -> None:
        self._module, self._rules, self._file = module, rules, file
        self._found: dict[tuple[str, str, str, int], Finding] = {}

    def __call__(
        self, rule: str, unit: Unit, at: Event | Statement, message: str, severity: Severity | None = None
    ) -> None:
        """Add a finding.

        Parameters
        ----------
        rule : str
        unit : Unit
        at : Event or Statement
        message : str
        severity : Severity, optional
            A lower one than the rule's, where less is sure.
        """
        statement = at.statement if isinstance(at, Event) else at
        file, line, column = self.place_of(unit, statement)
        row = self._rules[rule]
        finding = Finding(
            rule, (severity or row.severity).value, message, row.fix, unit.function.name, file, line, column,
            statement.line, self._inlined(statement),
        )  # fmt: skip
        self._found.setdefault((rule, unit.function.name, file, line), finding)

    def _inlined(self, statement: Statement) -> tuple[str, ...]:
        files = self._module.files
        return tuple(f"{files[place[0]]}:{place[1]}" for place in statement.places if place[0] in files)

    def spoken(self, unit: Unit, at: Event | Statement) -> str:
        """A place in words, for messages."""
        file, line, _ = self.place_of(unit, at.statement if isinstance(at, Event) else at)
        return f"line {line}" if file else f"PTX line {line}"

    def place_of(self, unit: Unit, statement: Statement) -> tuple[str, int, int]:
        """File, line and column of what the user wrote: out of inlined functions until the kernel's own file."""
        places = [place for place in statement.places if place[0] in self._module.files]
        if not places:
            return "", statement.line, 0
        home = unit.function.place[0] if unit.function.place else 1
        place = next((place for place in places if place[0] == home), places[-1])
        name = self._file if place[0] == home and self._file else self._module.files[place[0]]
        return name, place[1], place[2]

    def findings(self, source: str = "") -> tuple[Finding, ...]:
        """Everything found, in the order of lines.

        Parameters
        ----------
        source : str, optional
            The CUDA C++, whose comments may take findings back.
        """
        ignored = _ignored(self._module, source)
        kept = [f for f in self._found.values() if not _is_ignored(f, ignored)]
        return Listed(sorted(kept, key=lambda f: (f.file, f.line, f.rule, f.ptx_line)))


Ignored = dict[tuple[bool, int], "frozenset[str] | None"]


def _ignored(module: Module, source: str) -> Ignored:
    """For each line (of the PTX or not) with a comment, the rules that it takes back; None for all."""
    found: Ignored = {}
    lines = [(True, line, text) for line, text in module.comments]
    if MARK in source:
        lines += [(False, n, text) for n, text in enumerate(source.split("\n"), 1) if MARK in text]
    for is_ptx, line, text in lines:
        match = _IGNORE.search(text)
        if match:
            names = frozenset(name.strip() for name in match[1].split(",")) if match[1] is not None else None
            found[is_ptx, line] = names
    return found


def _is_ignored(finding: Finding, ignored: Ignored) -> bool:
    places = [(True, finding.ptx_line), (True, finding.ptx_line - 1)]
    if finding.file:
        places += [(False, finding.line), (False, finding.line - 1)]
    return any(place in ignored and ((names := ignored[place]) is None or finding.rule in names) for place in places)
