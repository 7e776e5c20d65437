"""docs/runtime.md: what it shows is what comes out."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"


def test_python_prints_what_is_shown() -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    printed, checked = "", 0
    for language, text in blocks:
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, str(PAGE), "exec"), names)
            printed = output.getvalue()
        else:
            assert printed == text
            checked += 1
    assert checked == 2


def test_the_packages_are_those_that_errors_name() -> None:
    from cupytma.runtime.headers import package_of

    row = r"^\| (`\w.*?) \| `(nvidia[\w-]+)` \| `(nvidia[\w-]+)` \|$"
    rows = re.findall(row, PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 2
    for names, old, new in rows:
        for name in re.findall(r"`([^`…]+)…?`", names):
            assert (package_of(name, 12), package_of(name, 13)) == (old, new)
