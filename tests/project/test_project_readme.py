"""README.md: its two commands are there, and everything it shows is what comes out."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
from readme_blocks import NEEDS_GPU, README, ROOT, VARIES, Block, blocks, command_under, snippets

from cupytma.errors import CompileError
from cupytma.runtime import compiler


def test_one_command_ends_in_the_demo_and_one_in_pytest():
    demo, tests = command_under("Try it"), command_under("Run the tests")
    assert re.search(r"cupytma demo\s*$", demo)
    assert re.search(r"-m pytest( -n \d+)?\s*$", tests)
    for command in (demo, tests):
        assert command.startswith("python3 -m venv .venv")
        assert re.search(r"pip install --editable '\.\[cuda12.*\]'", command)


@pytest.mark.skipif(shutil.which("awk") is None, reason="needs awk")
def test_ci_runs_the_command_that_readme_gives():
    printed = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run"), "--print"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == command_under("Run the tests")


def _run(block: Block, names: dict[str, Any]) -> str:
    output = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, str(README), "exec")
    with contextlib.redirect_stdout(output):
        exec(code, names)
    return output.getvalue()


def _compiler_is_missing() -> bool:
    try:
        compiler.nvrtc_version()
    except CompileError:
        return True
    return False


def test_python_prints_what_is_shown():
    names: dict[str, Any] = {}
    checked = 0
    for block, shown in snippets():
        if block.remark == NEEDS_GPU or ("compile" in block.text and _compiler_is_missing()):
            continue
        printed = _run(block, names)
        if shown is not None:
            assert printed == shown, f"line {block.line}"
            checked += 1
    assert checked >= 5


@pytest.mark.gpu
def test_python_for_the_gpu_prints_what_is_shown():
    names: dict[str, Any] = {}
    for block, shown in snippets():
        printed = _run(block, names)
        if shown is not None:
            assert printed == shown, f"line {block.line}"


def _commands(block: Block) -> list[tuple[str, str]]:
    """Each command of a console block with what it prints."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        lines = part.splitlines(keepends=True)
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\\n")) + 1
        found.append(("".join(lines[:end]), "".join(lines[end:])))
    return found


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_console_prints_what_is_shown(tmp_path):
    prelude = f'cupytma() {{ "{sys.executable}" -m cupytma "$@"; }}\n'
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": path}
    checked = 0
    for block in blocks():
        if block.language == "console" and block.remark != VARIES:
            for command, shown in _commands(block):
                result = subprocess.run(
                    ["bash", "-c", prelude + command], cwd=tmp_path, env=environment, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                )
                assert result.stdout == shown, f"line {block.line}: {command}"
                checked += 1
    assert checked >= 2


def test_lines_of_output_fit_the_page():
    for block in blocks():
        assert max(map(len, block.text.splitlines())) <= 120, f"line {block.line}"
