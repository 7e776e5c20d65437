"""Pages of the documentation and how-tos: the Python and the commands that they show print what is shown."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from readme_blocks import NEEDS_GPU, ROOT, assert_console_prints_what_is_shown, blocks, consoles, snippets

# docs/programs.md is run by tests/sim, as its output has its own line numbers.
PAGES = sorted(
    path for folder in ("docs", "cupytma/help") for path in (ROOT / folder).glob("*.md") if path.name != "programs.md"
)
WITH_PYTHON = [path for path in PAGES if any(block.remark != NEEDS_GPU for block, _ in snippets(path))]


def _name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", WITH_PYTHON, ids=_name)
def test_python_prints_what_is_shown(path: Path) -> None:
    names: dict[str, Any] = {}
    checked = 0
    for block, shown in snippets(path):
        if block.remark == NEEDS_GPU:
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), names)
        assert output.getvalue() == (shown or ""), f"line {block.line}"
        checked += 1
    assert checked


@pytest.mark.gpu
@pytest.mark.parametrize(
    "path", [path for path in PAGES if any(block.remark == NEEDS_GPU for block, _ in snippets(path))], ids=_name
)
def test_python_for_the_gpu_prints_what_is_shown(path: Path) -> None:
    names: dict[str, Any] = {}
    for block, shown in snippets(path):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), names)
        if shown is not None:
            assert output.getvalue() == shown, f"line {block.line}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("path", [path for path in PAGES if consoles(path)], ids=_name)
def test_console_prints_what_is_shown(path: Path, tmp_path: Path) -> None:
    assert_console_prints_what_is_shown(path, tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_lines_of_code_and_output_fit_the_page(path: Path) -> None:
    for block in blocks(path):
        assert max(map(len, block.text.splitlines())) <= 120, f"line {block.line}"


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent.name == "help"], ids=_name)
def test_how_tos_fit_a_terminal(path: Path) -> None:
    in_output = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        in_output = line == "```text" or (in_output and line != "```")
        assert in_output or len(line) <= 80, f"line {number}"


def test_the_guide_shows_python() -> None:
    names = {path.stem for path in WITH_PYTHON}
    assert {"tensor-maps", "instructions", "simulator", "checker", "runtime", "operations", "encode-fails"} <= names
