"""Two dimensions of a tensor drawn to scale, or a part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cupytma.view.drawing import Canvas, text_width

_GRID = 7  # pixels of a position from which on positions have lines between them
_LINE = 13


@dataclass(frozen=True)
class Scale:
    """Positions of one dimension in pixels.

    Attributes
    ----------
    first, end : int
        The first position that is drawn, and one past the last.
    origin : float
        Where the first one begins.
    pixels : float
        Of one position.
    """

    first: int
    end: int
    origin: float
    pixels: float

    def __call__(self, position: float) -> float:
        """Where a position begins; of one that is not drawn, the border next to it."""
        return self.origin + (min(max(position, self.first), self.end) - self.first) * self.pixels

    def middle(self, position: int) -> float:
        """The middle of a position."""
        return (self(position) + self(position + 1)) / 2


Spans = tuple[int, int, int, int]
"""The first position and one past the last across, and the same down."""


def draw_area(canvas: Canvas, x: Scale, y: Scale, spans: Spans, tip: str) -> None:
    """A tensor or an image: shaded, with lines between positions where there is room, and with its own edges."""
    first, end, top, bottom = spans
    left, right, upper, lower = x(first), x(end), y(top), y(bottom)
    if right <= left or lower <= upper:
        return
    canvas.rect(left, upper, right - left, lower - upper, "c7 pale plain", tip)
    columns = range(max(first, x.first) + 1, min(end, x.end)) if x.pixels >= _GRID else ()
    rows = range(max(top, y.first) + 1, min(bottom, y.end)) if y.pixels >= _GRID else ()
    lines = [[(x(column), upper), (x(column), lower)] for column in columns]
    canvas.lines([*lines, *([(left, y(row)), (right, y(row))] for row in rows)], "line")
    draw_edges(canvas, x, y, spans, "edge")


def draw_edges(canvas: Canvas, x: Scale, y: Scale, spans: Spans, kind: str) -> None:
    """The edges of an area, as far as they lie in what is drawn: where it goes on there is none."""
    first, end, top, bottom = spans
    if x(end) <= x(first) or y(bottom) <= y(top):
        return
    upright = [[(x(at), y(top)), (x(at), y(bottom))] for at in (first, end) if x.first <= at <= x.end]
    level = [[(x(first), y(at)), (x(end), y(at))] for at in (top, bottom) if y.first <= at <= y.end]
    canvas.lines([*upright, *level], kind)


def draw_rulers(canvas: Canvas, x: Scale, y: Scale, columns: Iterable[int], rows: Iterable[int]) -> None:
    """Numbers of positions, the important ones first: those that would come too close to others are left out."""
    for position in _spread(x, columns, lambda number: text_width(str(number), "small") + 4):
        canvas.text(x.middle(position), y.origin - 7, str(position), "small middle faint")
    for position in _spread(y, rows, lambda _: _LINE):
        canvas.text(x.origin - 7, y.middle(position) + 4, str(position), "small end faint")


def _spread(scale: Scale, positions: Iterable[int], size: Callable[[int], float]) -> list[int]:
    """Those of the positions whose numbers do not touch, the first ones first."""
    chosen: list[int] = []
    for position in dict.fromkeys(positions):
        apart = [abs(scale.middle(position) - scale.middle(other)) for other in chosen]
        needed = [(size(position) + size(other)) / 2 for other in chosen]
        if scale.first <= position < scale.end and all(a >= b for a, b in zip(apart, needed, strict=True)):
            chosen.append(position)
    return chosen
