"""The pictures in docs/images are those that docs/draw_pictures.py draws, and the pages show them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from draw_pictures import FOLDER, PICTURES  # noqa: E402


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_drawn_today(name: str) -> None:
    stored = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert stored.strip() == PICTURES[name]().svg.strip(), "run python docs/draw_pictures.py"


def test_every_picture_is_drawn_and_shown_with_words() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PICTURES)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shown = re.findall(r"!\[(.*?)\]\(.*?(\w[\w-]*)\.svg\)", text)
    assert {name for _, name in shown} == set(PICTURES)
    assert all(words for words, _ in shown)
