"""The pages in docs that show Python: what they show is what comes out."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from readme_blocks import NEEDS_GPU, ROOT, blocks, snippets

PAGES = ["device-maps.md", "pipeline.md", "runtime.md", "simulator.md", "tma-model.md"]


@pytest.mark.parametrize("page", PAGES)
def test_python_prints_what_is_shown(page: str) -> None:
    path = ROOT / "docs" / page
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
    assert checked >= 5


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_code_and_output_fit_the_page(page: str) -> None:
    for block in blocks(ROOT / "docs" / page):
        assert max(map(len, block.text.splitlines())) <= 120, f"line {block.line}"
