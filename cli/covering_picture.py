"""The boxes that cover a tensor, in characters: two dimensions, the first and last of many, what lies outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cupytma.sim.model import Dimension

TENSOR, OUTSIDE, LEFT_OUT = ".", "x", "…"
_CELL, _LEAST_CELL = 7, 3
_HEIGHT = 2
_MOST_ROWS = 5

# A part of an axis: the number of the box, the characters of it, and how many of these lie in the tensor. A box of None
# stands for those that are left out.
Part = tuple[int | None, int, int]


def covering_picture(dimensions: Sequence[Dimension], width: int) -> list[str]:
    """Lines of a picture of boxes side by side.

    Parameters
    ----------
    dimensions : sequence of Dimension
        Driver order; the first goes across, the second down.
    width : int
        Characters that a line may have.
    """
    across, down = dimensions[0], dimensions[1] if len(dimensions) > 1 else None
    label = 0 if down is None else len(str(down.boxes * down.box)) + 1
    end = len(str(across.boxes * across.box))
    room = width - label - end
    size = _CELL if across.boxes * (_CELL + 1) <= room else max(_LEAST_CELL, end)
    columns = _parts(across, room // (size + 1), size)
    rows = [(0, 1, 1)] if down is None else _parts(down, _MOST_ROWS, _HEIGHT)
    lines = [(" " * label + _ruler(across, columns, width - label)).rstrip()]
    rule = "".join(" " if box is None else f"+{'-' * size}" for box, size, _ in columns) + "+"
    for box, size, inside in rows:
        if box is None:
            cells = (LEFT_OUT if column is None else f"|{LEFT_OUT:^{width}}" for column, width, _ in columns)
            lines.append(f"{' ' * label}{''.join(cells)}|")
            continue
        lines.append(f"{'' if down is None else box * down.box:>{max(0, label - 1)}}{' ' * bool(label)}{rule}")
        lines += [" " * label + _line(columns, i < inside) for i in range(size)]
    last = "" if down is None else down.boxes * down.box
    return [*lines, f"{last:>{max(0, label - 1)}}{' ' * bool(label)}{rule}"]


def legend(lines: Sequence[str]) -> str:
    """What the characters of a picture mean."""
    drawn = "".join(lines)
    meanings = {TENSOR: "the tensor", OUTSIDE: "out of bounds", LEFT_OUT: "boxes left out"}
    return "   ".join(f"{mark} {meaning}" for mark, meaning in meanings.items() if mark in drawn)


def _parts(d: Dimension, most: int, size: int) -> list[Part]:
    """The boxes that are drawn of a dimension: all, or the first and the last ones."""
    numbers: list[int | None] = list(range(d.boxes)) if d.boxes <= most else []
    if not numbers:
        ending = min(2, max(1, (most - 1) // 2))
        numbers = [*range(max(1, most - 1 - ending)), None, *range(d.boxes - ending, d.boxes)]
    found: list[Part] = []
    for number in numbers:
        if number is None:
            found.append((None, 1, 0))
            continue
        inside = min(d.box, d.extent - number * d.box)
        whole = inside == d.box
        found.append((number, size, size if whole else min(size - 1, max(1, round(size * inside / d.box)))))
    return found


def _ruler(d: Dimension, columns: Sequence[Part], room: int) -> str:
    """Where boxes begin, and where the last one ends, as far as there is room for the numbers."""
    line, place = "", 0
    for box, size, _ in columns:
        start = "" if box is None else f"{box * d.box}"
        if start and place >= len(line) + bool(line) and place + len(start) <= room:
            line = f"{line:<{place}}{start}"
        place += size + 1 if box is not None else 1
    end = f"{d.boxes * d.box}"
    return f"{line:<{place}}{end}" if place > len(line) and place + len(end) <= room else line


def _line(columns: Sequence[Part], in_tensor: bool) -> str:
    parts = []
    for box, size, inside in columns:
        if box is None:
            parts.append(LEFT_OUT)
        else:
            tensor = inside if in_tensor else 0
            parts.append(f"|{TENSOR * tensor}{OUTSIDE * (size - tensor)}")
    return "".join(parts) + "|"
