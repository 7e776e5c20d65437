"""What stands in an SVG: shapes with their classes and tips, and texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    classes: frozenset[str]
    tip: str


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    text: str
    classes: frozenset[str]

    @property
    def reach(self) -> tuple[float, float]:
        """Where it begins and ends, at least: letters of usual fonts are not narrower than this on average."""
        width = 0.45 * 10.5 * len(self.text)
        start = self.x - width * (1 if "end" in self.classes else 0.5 if "middle" in self.classes else 0)
        return start, start + width


class Drawing:
    """A picture, read back."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        assert self.root.tag == f"{SVG}svg"
        self.rects = [
            Rect(*(float(r.get(k)) for k in ("x", "y", "width", "height")), frozenset(r.get("class").split()), _tip(r))
            for r in self.root.iter(f"{SVG}rect")
        ]
        self.texts = [
            Text(float(t.get("x")), float(t.get("y")), _own_text(t), frozenset((t.get("class") or "").split()))
            for t in self.root.iter(f"{SVG}text")
        ]

    def tipped(self, pattern: str) -> list[tuple[Rect, re.Match[str]]]:
        """The rectangles whose tip matches, with the match."""
        return [(r, m) for r in self.rects if (m := re.fullmatch(pattern, r.tip))]

    def label_of(self, rect: Rect) -> str:
        """The text that stands in a rectangle."""
        inside = [
            t.text for t in self.texts
            if rect.x <= t.x <= rect.x + rect.width and rect.y <= t.y <= rect.y + rect.height
        ]  # fmt: skip
        assert len(inside) <= 1, inside
        return inside[0] if inside else ""

    @property
    def words(self) -> str:
        """All texts in their order."""
        return " ".join(t.text for t in self.texts)


def _tip(element: ElementTree.Element) -> str:
    title = element.find(f"{SVG}title")
    return "" if title is None else title.text or ""


def _own_text(element: ElementTree.Element) -> str:
    title = element.find(f"{SVG}title")
    return (element.text or "") + ("" if title is None else title.tail or "")


def span(text: str) -> range:
    """The positions of ``"3"`` or ``"3 to 7"``."""
    first, _, last = text.partition(" to ")
    return range(int(first), int(last or first) + 1)
