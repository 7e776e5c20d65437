"""The holes of a tiling: what lies in the slots of each tile, along each dimension, as text and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, TypeVar

from cupytma.errors import SimulationError
from cupytma.sim.checks import check_integer
from cupytma.view.drawing import GROUND
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.sim.model.tiling import Correctness, Dimension

T = TypeVar("T")

_SKIPPED = "skipped"
# What each kind of place is drawn as in text, and what it means, by operation.
_LEGEND = {
    "load": {
        "element": ("#", "element"),
        "unfilled hole": ("!", "hole that holds data"),
        "filled hole": ("0", "hole that holds the fill"),
        _SKIPPED: (".", "element of other tiles"),
    },
    "store": {
        "element": ("#", "element"),
        "unfilled hole": ("!", "hole that is written"),
        "filled hole": ("-", "hole that is not written"),
        _SKIPPED: (".", "element of other tiles"),
    },
}
_LEAST_WIDTH = 40
_MOST_TILES = 24  # lines of a picture, per dimension

# Colours are the page's own, but for two in the middle of the scale that show on light and on dark pages.
_STYLE = """
.cupytma-holes{font:12px system-ui,sans-serif}
.cupytma-holes text{fill:currentColor}
.cupytma-holes .number{font-size:10px;opacity:.75;text-anchor:middle}
.cupytma-holes .start{text-anchor:end}
.cupytma-holes .heading{font-weight:600}
.cupytma-holes line{stroke:currentColor;opacity:.45}
.cupytma-holes line.end{stroke-width:3;opacity:.9}
.cupytma-holes .element{fill:#4c86c6}
.cupytma-holes .unfilled{fill:#c0392b}
.cupytma-holes .filled{fill:none;stroke:currentColor;stroke-dasharray:3 2;opacity:.8}
.cupytma-holes .skipped{fill:currentColor;opacity:.4}
.cupytma-holes text.on{fill:#fff;font-weight:700;text-anchor:middle}
"""
_CELL = 18
_SVG_WIDTH = 48 * _CELL


@dataclass(frozen=True)
class _Lanes:
    """A dimension as a table: a column for each position, a line for each tile.

    Attributes
    ----------
    positions : sequence of int or None
        Of the columns; None where some are left out.
    tiles : sequence of (int, int) or None
        The box of each tile and the offset in it that the tile starts at; None where some are left out.
    end : int
        One past the last position that any tile holds.
    """

    dimension: Dimension
    positions: Sequence[int | None]
    tiles: Sequence[tuple[int, int] | None]
    end: int

    def kind(self, tile: tuple[int, int], position: int) -> str:
        """What a tile holds of a position; empty for nothing."""
        d, (box, phase) = self.dimension, tile
        offset = position - box * d.box
        if phase <= offset < d.reach and (offset - phase) % d.element_stride == 0:
            return d.slot(box, offset)
        return _SKIPPED if 0 <= offset < d.box and position < d.extent else ""

    def edge(self, position: int | None) -> str:
        """What begins before a position: ``"box"``, ``"end"`` (of the tensor), or nothing."""
        if position is None:
            return ""
        if position == self.dimension.extent:
            return "end"
        return "box" if position % self.dimension.box == 0 and position < self.dimension.extent else ""


def holes_text(tiling: Correctness, width: int = 100) -> str:
    """The holes of a tiling in lines of text.

    Parameters
    ----------
    tiling : Correctness
    width : int
        Characters that the lines of a dimension may have, 40 or more; what does not fit is left out in the middle.
        Positions next to the ends of boxes are always shown, and long numbers may make a line longer.

    Raises
    ------
    SimulationError
        If the width is none or less than 40.
    """
    width = check_integer("width", width)
    if width < _LEAST_WIDTH:
        raise SimulationError(f"width is {width} characters; it must be {_LEAST_WIDTH} or more")
    lines: list[str] = []
    for number, dimension in enumerate(tiling.dimensions):
        lines += [_heading(number, dimension), *_text(dimension, tiling.op, width), ""]
    legend = [f"{mark} {meaning}" for mark, meaning in _LEGEND[tiling.op].values()]
    return "\n".join([*lines, "   ".join(legend), "| start of a box   ‖ end of the tensor   … left out"])


def holes_svg(tiling: Correctness) -> str:
    """The holes of a tiling as one SVG element: self-contained, at home in light and dark pages."""
    parts, top, right = [], 16, 0
    for number, dimension in enumerate(tiling.dimensions):
        lanes = _lanes(dimension, _SVG_WIDTH // _column(dimension))
        parts.append(f'<text class="heading" x="0" y="{top}">{escape(_heading(number, dimension))}</text>')
        parts += _drawn(lanes, top + 24)
        right = max(right, _label(dimension) + len(lanes.positions) * _column(dimension))
        top += 24 + (len(lanes.tiles) + 1) * _CELL + 20
    parts += _drawn_legend(tiling.op, top)
    size = f'width="{max(right, 620) + 8}" height="{top + 4 * _CELL}"'
    title = f"<title>{escape(f'Holes of a tiling: {tiling.verdict} ({tiling.op})')}</title>"
    description = f"<desc>{escape(' '.join(tiling.reasons))}</desc>"
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="cupytma-holes" role="img" {size}>'
    return f"{opening}{title}{description}<style>{_STYLE}{GROUND}</style>{''.join(parts)}</svg>"


def _heading(number: int, d: Dimension) -> str:
    return (
        f"dimension {number}: extent {d.extent}, box {d.box}, element stride {d.element_stride}: "
        f"{counted(d.boxes, 'box')} of {counted(d.element_stride, 'tile')} of {counted(d.tile, 'slot')}"
    )


# As text.


def _text(d: Dimension, op: str, width: int) -> Iterator[str]:
    digits = len(str(_end(d) - 1))
    label = max(len("x = ") + digits, len("position"))
    marks = {kind: mark for kind, (mark, _) in _LEGEND[op].items()}
    cell = max(digits, 2) + 1
    lanes, header = _fitting(d, cell, width - label)
    yield ("position".ljust(label) + header).rstrip()
    for tile in lanes.tiles:
        if tile is None:
            yield "…"
            continue
        start = f"x = {tile[0] * d.box + tile[1]:>{digits}}".ljust(label)
        cells = ["" if p is None else marks.get(lanes.kind(tile, p), "") for p in lanes.positions]
        yield (start + _line(lanes, cells, cell)).rstrip()


def _fitting(d: Dimension, cell: int, width: int) -> tuple[_Lanes, str]:
    """The dimension with as many columns as fit, and the line of their positions."""
    for columns in range(max(width // cell, 1), 0, -1):
        lanes = _lanes(d, columns)
        header = _line(lanes, ["…" if p is None else str(p) for p in lanes.positions], cell)
        if len(header) <= width:
            break
    return lanes, header


def _line(lanes: _Lanes, cells: Sequence[str], width: int) -> str:
    edges = {"box": " |", "end": " ‖", "": ""}
    line = "".join(edges[lanes.edge(p)] + cell.rjust(width) for p, cell in zip(lanes.positions, cells, strict=True))
    return line + edges["end" if lanes.dimension.extent == lanes.end else ""]


# As SVG.


def _column(d: Dimension) -> int:
    """Width of a column in pixels: room for the longest number."""
    return max(_CELL, 6 * len(str(_end(d))) + 6)


def _label(d: Dimension) -> int:
    """Width of what stands before the columns, in pixels."""
    return 8 * len(f"x = {_end(d)}") + 24


def _drawn(lanes: _Lanes, top: int) -> Iterator[str]:
    d = lanes.dimension
    width, label = _column(d), _label(d)
    bottom = top + len(lanes.tiles) * _CELL + 6
    for column, position in enumerate(lanes.positions):
        left = label + column * width
        number = "…" if position is None else position
        yield f'<text class="number" x="{left + width // 2}" y="{top}">{number}</text>'
        yield from _drawn_edge(lanes.edge(position), left, top - 10, bottom)
    if d.extent == lanes.end:
        yield from _drawn_edge("end", label + len(lanes.positions) * width, top - 10, bottom)
    for line, tile in enumerate(lanes.tiles):
        y = top + 6 + line * _CELL
        if tile is None:
            yield f'<text class="start" x="{label - 8}" y="{y + 13}">…</text>'
            continue
        yield f'<text class="start" x="{label - 8}" y="{y + 13}">x = {tile[0] * d.box + tile[1]}</text>'
        for column, position in enumerate(lanes.positions):
            if position is not None:
                yield _drawn_mark(lanes.kind(tile, position), label + column * width, y, width)


def _drawn_edge(edge: str, x: int, top: int, bottom: int) -> Iterator[str]:
    if edge:
        yield f'<line class="{edge}" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'


def _drawn_mark(kind: str, left: int, top: int, width: int) -> str:
    if not kind:
        return ""
    middle = left + width // 2
    if kind == _SKIPPED:
        return f'<circle class="skipped" cx="{middle}" cy="{top + _CELL // 2}" r="2"/>'
    shape = f'x="{left + 2}" y="{top + 2}" width="{width - 4}" height="{_CELL - 4}" rx="2"'
    drawn = f'<rect class="{kind.split()[0]}" {shape}/>'
    if kind == "unfilled hole":
        drawn += f'<text class="on" x="{middle}" y="{top + 13}">!</text>'
    return drawn


def _drawn_legend(op: str, top: int) -> Iterator[str]:
    left = 0
    for kind, (_, meaning) in _LEGEND[op].items():
        yield _drawn_mark(kind, left, top, _CELL)
        yield f'<text x="{left + _CELL + 4}" y="{top + 13}">{escape(meaning)}</text>'
        left += _CELL + 14 + 7 * len(meaning)
    y = top + _CELL + 4
    yield from _drawn_edge("box", 9, y, y + 14)
    yield f'<text x="{_CELL + 4}" y="{y + 12}">start of a box</text>'
    yield from _drawn_edge("end", 139, y, y + 14)
    yield f'<text x="152" y="{y + 12}">end of the tensor</text>'


# What is shown.


def _lanes(d: Dimension, columns: int) -> _Lanes:
    """A dimension in so many columns: around the first and the last box, where the holes are."""
    last, end = (d.boxes - 1) * d.box, _end(d)
    if end <= columns:
        tiles = [(box, phase) for box in range(d.boxes) for phase in range(d.element_stride)]
        return _Lanes(d, range(end), _shortened(tiles, _MOST_TILES), end)
    positions = _near({0, d.box, d.reach, last, d.extent, end}, end, columns)
    boxes = sorted({0, d.boxes - 1})
    phases = _shortened(range(d.element_stride), _MOST_TILES // 2)
    shown: list[tuple[int, int] | None] = []
    for box in boxes:
        shown += [None] * (box > 1) + [None if phase is None else (box, phase) for phase in phases]
    return _Lanes(d, positions, shown, end)


def _end(d: Dimension) -> int:
    """One past the last position that any tile holds: a tile's last slot may lie past its box."""
    return (d.boxes - 1) * d.box + d.reach


def _shortened(items: Sequence[T], most: int) -> list[T | None]:
    """All items, or the first and the last ones with None between them."""
    if len(items) <= most:
        return list(items)
    half = (most - 1) // 2
    return [*items[:half], None, *items[len(items) - half :]]


def _near(edges: set[int], end: int, columns: int) -> list[int | None]:
    """Positions from 0 to `end` that lie near the edges, as many as fit, with None for those between."""
    found: list[int | None] = []
    for distance in range(1, columns + 2):
        near = sorted({p for edge in edges for p in range(max(0, edge - distance), min(end, edge + distance))})
        wider: list[int | None] = []
        for position in near:
            if wider and wider[-1] != position - 1:
                wider.append(None)
            wider.append(position)
        if found and len(wider) > columns:
            break
        found = wider
    return found
