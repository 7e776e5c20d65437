"""docs/runtime.md: what it shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"


def test_the_packages_are_those_that_errors_name() -> None:
    from cupytma.runtime.headers import package_of

    row = r"^\| (`\w.*?) \| `(nvidia[\w-]+)` \| `(nvidia[\w-]+)` \|$"
    rows = re.findall(row, PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 2
    for names, old, new in rows:
        for name in re.findall(r"`([^`…]+)…?`", names):
            assert (package_of(name, 12), package_of(name, 13)) == (old, new)
