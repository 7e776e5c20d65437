"""docs/programs.md: its Python prints what it shows, and its table of rules is the program's."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any

import cupytma.sim.examples
import cupytma.sim.program.program
from cupytma.sim.program import RULES

PAGE = Path(__file__).parents[2] / "docs" / "programs.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_python_prints_what_is_shown() -> None:
    names: dict[str, Any] = {}
    blocks = list(BLOCK.finditer(TEXT))
    assert [block[1] for block in blocks] == ["python", "text"] * (len(blocks) // 2)
    for code, shown in zip(blocks[::2], blocks[1::2], strict=True):
        first = TEXT[: code.start(2)].count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * first + code[2], PAGE.name, "exec"), names)
        assert printed.getvalue() == shown[2], f"line {first}"


def test_the_table_of_rules_is_complete_and_right() -> None:
    rows = [f"| `{rule.id}` | {rule.kind} | {rule.statement} | {rule.source} |" for rule in RULES.values()]
    table = TEXT.partition("## Rules")[2]
    assert [line for line in table.splitlines() if line.startswith("| `")] == rows


def test_examples_in_docstrings_are_right() -> None:
    for module in (cupytma.sim.examples, cupytma.sim.program.program):
        failed, tried = doctest.testmod(module, globs=vars(module) | {"Program": cupytma.sim.Program})
        assert tried
        assert not failed
