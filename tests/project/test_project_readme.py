"""README.md: its two commands are there, and everything it shows is what comes out."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
from typing import Any

import pytest
from readme_blocks import (
    NEEDS_GPU,
    README,
    ROOT,
    Block,
    assert_console_prints_what_is_shown,
    blocks,
    command_under,
    consoles,
    snippets,
)

from cupytma.errors import CompileError
from cupytma.runtime import compiler
from cupytma.targets import TARGETS, Feature


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


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_console_prints_what_is_shown(tmp_path):
    assert len(consoles()) >= 1
    assert_console_prints_what_is_shown(README, tmp_path)


def test_what_works_where_is_what_the_table_of_targets_says():
    text = README.read_text(encoding="utf-8").partition("## What works where\n")[2]
    table = re.search(r"(^\|.*\n)+", text, flags=re.MULTILINE)[0]
    head, _, *rows = ([cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines())
    named = {row[0]: row[1:] for row in rows}
    for column, name in enumerate(cell.strip("`| ") for cell in head[1:]):
        target = TARGETS[name]
        for feature in Feature:
            assert named[feature.value][column].strip("| ") == ("yes" if target.has(feature) else ""), (name, feature)
        is_run = named["run on hardware"][column].strip("| ") != "no"
        assert is_run == (target.compute_capability == (9, 0))


def test_links_lead_to_files():
    for link in re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (ROOT / link).is_file(), link


def test_it_is_short_enough_to_read():
    assert len(README.read_text(encoding="utf-8").splitlines()) < 500


def test_lines_of_output_fit_the_page():
    for block in blocks():
        assert max(map(len, block.text.splitlines())) <= 120, f"line {block.line}"
