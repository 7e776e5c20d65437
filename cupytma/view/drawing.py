"""What every picture is made of: shapes and texts of an SVG that suits light and dark pages.

Inside a page the picture has no ground and takes the page's text colour. On its own, or as an image (which JupyterLab
and GitHub make of it), it cannot know the page, so it has a ground of its own and follows the colour scheme: the
page's, where the page and the browser say it, else the reader's. There are no ids, so that any number of pictures can
stand in one page.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

from cupytma import words
from cupytma.errors import PictureError

WIDTH = 800
"""Pixels that a picture is wide at most: the width of a notebook's output."""

# The palette of Okabe and Ito, told apart by the colour-blind too, without its black; the eighth is the text's colour.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
HUES = tuple(f"c{i}" for i in range(len(COLOURS) + 1))
"""Classes of shapes, one for each colour."""

_SIZES = {"": 12, "small": 10.5, "heading": 13}
# How wide letters are, of their size, in the wider ones of the fonts that interfaces use; so that texts fit.
_WIDE, _NARROW = 0.66, 0.55

counted = partial(words.counted, spec=",")
"""A number with its noun, its digits in groups of three; see `cupytma.words.counted`."""

_MARGIN = 6  # on the left; the others are in the picture's size

# White, and the ground of GitHub's dark pages, which JupyterLab's is close to: there the picture has no edge.
GROUND = """
svg:root{background:#fff;color:#1f2328}
@media (prefers-color-scheme:dark){svg:root{background:#0d1117;color:#e6e6e6}}
"""
"""Style of a picture that is a document of its own; within a page it has no effect."""

_STYLE = (
    "".join(
        f".cupytma-picture .{hue}{{fill:{colour};stroke:{colour}}}\n"
        for hue, colour in zip(HUES, (*COLOURS, "currentColor"), strict=True)
    )
    + """
.cupytma-picture{max-width:100%;height:auto;font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums}
.cupytma-picture text{fill:currentColor}
.cupytma-picture .small{font-size:10.5px}
.cupytma-picture .heading{font-size:13px;font-weight:600}
.cupytma-picture .middle{text-anchor:middle}
.cupytma-picture .end{text-anchor:end}
.cupytma-picture .faint{opacity:.75}
.cupytma-picture .strong{font-weight:700}
.cupytma-picture .tint{fill-opacity:.36;stroke-opacity:.9}
.cupytma-picture .c7.tint{fill-opacity:.26;stroke-opacity:.5}
.cupytma-picture .pale{fill-opacity:.14;stroke-opacity:.6}
.cupytma-picture .plain{stroke:none}
.cupytma-picture .outline{fill:none;stroke-width:2}
.cupytma-picture .line{fill:none;stroke:currentColor;stroke-opacity:.35}
.cupytma-picture .edge{fill:none;stroke:currentColor;stroke-width:1.6}
.cupytma-picture .dashed{stroke-dasharray:5 3}
.cupytma-picture .hatch{fill:none;stroke-width:1}
"""
    + GROUND
)


@dataclass(frozen=True)
class Picture:
    """A picture that notebooks show.

    Attributes
    ----------
    svg : str
        One self-contained SVG element; text in it is text.
    title : str
        What it shows, in a line.
    """

    svg: str
    title: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG to a file.

        Raises
        ------
        PictureError
            If the path is none.
        OSError
            If the file cannot be written.
        """
        try:
            name = os.fspath(path)
        except TypeError:
            raise PictureError(f"path is {path!r}; it must be the name of a file, such as 'tile.svg'") from None
        with open(name, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture {self.title!r}>"


class Canvas:
    """Collects shapes; coordinates are pixels from the upper left corner.

    Parameters
    ----------
    title : str
        What the picture shows, in a line.
    description : str
        The same in sentences, for those who do not see it.
    """

    def __init__(self, title: str, description: str = "") -> None:
        self.title, self.description = title, description
        self._parts: list[str] = []
        self._right = self._bottom = 0.0

    def rect(self, x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> None:
        """A rectangle, of classes `kind`; `tip` is shown while the pointer is over it."""
        size = f'width="{number(width)}" height="{number(height)}"'
        shape = f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" {size}'
        self._add(f"{shape}><title>{escape(tip)}</title></rect>" if tip else f"{shape}/>", x + width, y + height)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        """A straight line."""
        self.path([(x1, y1), (x2, y2)], kind)

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A line through points."""
        self.lines([points], kind)

    def lines(self, lines: Iterable[Iterable[tuple[float, float]]], kind: str) -> None:
        """Several lines through points, as one shape."""
        drawn, right, bottom = [], 0.0, 0.0
        for line in lines:
            for i, (x, y) in enumerate(line):
                drawn.append(f"{'L' if i else 'M'}{number(x)} {number(y)}")
                right, bottom = max(right, x), max(bottom, y)
        if drawn:
            self._add(f'<path class="{kind}" d="{"".join(drawn)}"/>', right, bottom)

    def hatch(self, x: float, y: float, width: float, height: float, kind: str, gap: float = 7) -> None:
        """Slanting lines over a rectangle."""
        lines = []
        for i in range(1, int((width + height) / gap) + 1):
            far = i * gap
            start = (x + far, y) if far <= width else (x + width, y + far - width)
            end = (x, y + far) if far <= height else (x + far - height, y + height)
            lines.append((start, end))
        self.lines(lines, f"{kind} hatch")

    def text(self, x: float, y: float, text: str, kind: str = "", room: float | None = None, tip: str = "") -> None:
        """A line of text; `y` is its baseline. What does not fit in `room` pixels is cut, and is in its tip."""
        shown = text if room is None else fitted(text, room, kind)
        if shown != text:
            tip = tip or text
        classes = f' class="{kind}"' if kind else ""
        inner = f"<title>{escape(tip)}</title>" if tip else ""
        width = 0.0 if "end" in kind.split() else text_width(shown, kind) / (2 if "middle" in kind.split() else 1)
        self._add(f'<text{classes} x="{number(x)}" y="{number(y)}">{inner}{escape(shown)}</text>', x + width, y + 4)

    def paragraph(self, x: float, y: float, lines: Iterable[str], kind: str = "", width: float = WIDTH) -> float:
        """Lines of text, wrapped; returns the baseline of the line after them."""
        for line in lines:
            for piece in wrapped(line, width - x, kind):
                self.text(x, y, piece, kind)
                y += 17
        return y

    def legend(self, x: float, y: float, entries: Sequence[tuple[str, str]], width: float = WIDTH) -> float:
        """Swatches with what they mean: pairs of classes (several shapes joined by ``+``) and a text.

        Returns the baseline of the line after them.
        """
        left = x
        for kinds, meaning in entries:
            room = 22 + text_width(meaning) + 16
            if left > x and left + room > width:
                left, y = x, y + 20
            for kind in kinds.split("+"):
                if "hatch" in kind:
                    self.hatch(left, y - 10, 16, 12, kind.replace("hatch", "").strip(), 6)
                elif "dashed" in kind:
                    self.line(left, y - 4, left + 16, y - 4, kind)
                else:
                    self.rect(left, y - 10, 16, 12, kind)
            self.text(left + 22, y, meaning)
            left += room
        return y + 20

    def picture(self) -> Picture:
        """Everything that was drawn, in a frame around it."""
        width, height = min(round(self._right + 8), WIDTH + 100), round(self._bottom + 8)
        size = f'width="{width + _MARGIN}" height="{height}" viewBox="{-_MARGIN} 0 {width + _MARGIN} {height}"'
        opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="cupytma-picture" role="img" {size}>'
        words = f"<title>{escape(self.title)}</title>"
        words += f"<desc>{escape(self.description)}</desc>" * bool(self.description)
        return Picture(f"{opening}{words}<style>{_STYLE}</style>{''.join(self._parts)}</svg>", self.title)

    def _add(self, part: str, right: float, bottom: float) -> None:
        self._parts.append(part)
        self._right, self._bottom = max(self._right, right), max(self._bottom, bottom)


def number(value: float) -> str:
    """A coordinate in few characters."""
    return f"{value:.1f}".removesuffix(".0")


def text_width(text: str, kind: str = "") -> float:
    """About how many pixels a text takes; rather more than fewer."""
    size = next((_SIZES[name] for name in kind.split() if name in _SIZES), _SIZES[""])
    # Rounded once: sums of floats are other ones before Python 3.12 than from it on, and pictures are to be the same.
    return size * math.fsum(_WIDE if letter.isdigit() or letter.isupper() else _NARROW for letter in text)


def fitted(text: str, room: float, kind: str = "") -> str:
    """A text, cut to what fits in so many pixels; empty where not even a few letters do."""
    if text_width(text, kind) <= room:
        return text
    letters = len(text)
    while letters and text_width(f"{text[:letters]}…", kind) > room:
        letters -= 1
    return f"{text[:letters]}…" if letters >= 3 else ""


def wrapped(text: str, room: float, kind: str = "") -> list[str]:
    """A text in lines that fit in so many pixels."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", kind) <= room:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(word)
    return lines
