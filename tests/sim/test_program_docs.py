"""docs/programs.md: its Python prints what it shows."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any

import cupytma.sim.examples
import cupytma.sim.program.program

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


def test_examples_in_docstrings_are_right() -> None:
    for module in (cupytma.sim.examples, cupytma.sim.program.program):
        failed, tried = doctest.testmod(module, globs=vars(module) | {"Program": cupytma.sim.Program})
        assert tried
        assert not failed
