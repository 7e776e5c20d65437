"""Numbers with their nouns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cupytma.words import counted

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [(0, ("entry",), "0 entries"), (1, ("entry",), "1 entry"), (2, ("entry",), "2 entries"),
     (2, ("axis", "axes"), "2 axes"), (1, ("axis", "axes"), "1 axis"), (3, ("box",), "3 boxes"),
     (3, ("launch",), "3 launches"), (2, ("array",), "2 arrays"), (-1, ("byte",), "-1 bytes"),
     (1234, ("copy",), "1234 copies"), (1234, ("copy", "", ","), "1,234 copies")],
)  # fmt: skip
def test_a_noun_is_in_the_number_of_its_count(count: int, words: tuple[str, ...], text: str) -> None:
    assert counted(count, *words) == text


def test_no_other_place_makes_plurals_of_counts() -> None:
    """Neither ``{len(x)} entries``, which is wrong for one, nor a plural of one's own."""
    own = re.compile(r"\{'e?s' ?\*|\{'s'\[|\{len\(\w+\)\} (entries|arguments|operands|coordinates|arrays|slots)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for room in ("cupytma", "cli")
        for path in (ROOT / room).rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if own.search(line) and " wait{" not in line
    ]
    assert not found
