"""A swizzle as a map: the tile as the kernel thinks of it, and shared memory as the unit fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cupytma.errors import PictureError
from cupytma.sim.banks import BANKS, WORD
from cupytma.sim.checks import check_integer
from cupytma.sim.swizzle import CHUNK, LINE, Int64, Pattern, pattern_of, swizzle_address
from cupytma.tensormap.enums import Swizzle
from cupytma.view.drawing import HUES, WIDTH, Canvas, Picture, counted

_PANEL = 344
_LABEL = 36
_CELL = 24
_MOST_ROWS = 64
_SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class _Map:
    """Where each unit of a tile lies: row, unit within it, and its byte in shared memory from the tile's base on."""

    pattern: Pattern
    span: int
    rows: int
    base: int
    places: Int64

    @property
    def units(self) -> int:
        """Units of a row."""
        return self.span // self.pattern.unit


def swizzle(swizzle: Swizzle | str | int, element_size: int = 4, rows: int = 8, *, base: int = 0) -> Picture:
    """A swizzle as a map of 16-byte chunks and banks, before and after.

    On the left are rows of a tile that are as long as the swizzle's span (128 bytes without one), each chunk with the
    banks that it lands in; on the right are the lines of shared memory, each place with the chunk that lies there.
    Chunks in one colour lie in the same banks.

    Parameters
    ----------
    swizzle : Swizzle or its name
    element_size : int
        Bytes of an element: 1, 2, 4, 8 or 16; for the numbers of elements above the columns.
    rows : int
        Of the tile; 64 are drawn at most.
    base : int
        Absolute shared address of the tile in bytes, a multiple of 128.

    Returns
    -------
    Picture

    Raises
    ------
    SimulationError
        If there is no such swizzle, or the rows or the base are no integers.
    PictureError
        For an element size, a number of rows or a base that a tile does not have.
    """
    pattern, chosen = pattern_of(swizzle), Swizzle.of(swizzle)
    element_size, rows, base = _checked(element_size, rows, base)
    drawn = min(rows, _MOST_ROWS)
    span = chosen.span or LINE
    linear = np.arange(0, drawn * span, pattern.unit, dtype=np.int64)
    places = swizzle_address(linear + base, chosen) - base
    shape = drawn, span // pattern.unit
    return _picture(chosen, _Map(pattern, span, drawn, base, places.reshape(shape)), element_size, rows)


def _checked(element_size: Any, rows: Any, base: Any) -> tuple[int, int, int]:
    size, count, place = (
        check_integer(name, value)
        for name, value in (("element_size", element_size), ("rows", rows), ("base", base))
    )
    if size not in _SIZES:
        raise PictureError(f"element_size is {size}; it must be one of {', '.join(map(str, _SIZES))} bytes")
    if count < 1:
        raise PictureError(f"rows is {count}; it must be 1 or above")
    if place < 0 or place % LINE:
        raise PictureError(f"base is {place}; it must be a multiple of {LINE} of 0 or above, as every tile's is")
    return size, count, place


def _picture(chosen: Swizzle, found: _Map, element_size: int, rows: int) -> Picture:
    lines = int(found.places.max()) // LINE + 1
    canvas = Canvas(
        f"Swizzle {chosen}: {counted(found.rows, 'row')} of {found.span} bytes",
        f"Before and after, in pieces of {found.pattern.unit} bytes. {_column_reads(found)}",
    )
    canvas.text(0, 16, f"Swizzle {chosen}", "heading")
    canvas.text(0, 36, f"Tile before: row by row, {found.span} bytes each; in each piece the banks it lands in")
    left, right = _LABEL, WIDTH - _PANEL
    del left
    y = 78.0
    width = _PANEL / (LINE // found.pattern.unit)
    _draw_before(canvas, found, element_size, y, width)
    _draw_after(canvas, found, lines, right, y, width)
    y += max(found.rows, lines) * _CELL + 26
    notes = [_column_reads(found)]
    if found.rows < rows:
        notes.append(f"{found.rows} of {rows:,} rows are drawn; the pattern repeats every {found.pattern.lines} lines.")
    canvas.paragraph(0, y, notes)
    return canvas.picture()


def _draw_before(canvas: Canvas, found: _Map, element_size: int, y: float, width: float) -> None:
    unit = found.pattern.unit
    for i in range(found.units):
        x = _LABEL + (i + 0.5) * width
        canvas.text(x, y - 20, str(i), "small middle faint")
        canvas.text(x, y - 7, _elements(i * unit, unit, element_size), "small middle faint", room=width - 1)
    for row in range(found.rows):
        canvas.text(_LABEL - 6, y + row * _CELL + 16, f"r{row}", "end small")
        for i, place in enumerate(found.places[row].tolist()):
            banks = place % LINE // WORD, (place % LINE + unit) // WORD - 1
            tip = f"row {row}, bytes {i * unit} to {(i + 1) * unit - 1}: shared byte {place}, banks {banks[0]} to {banks[1]}"
            _cell(canvas, _LABEL + i * width, y + row * _CELL, width, place, f"{banks[0]}–{banks[1]}", tip)


def _elements(start: int, unit: int, element_size: int) -> str:
    first, last = start // element_size, (start + unit - 1) // element_size
    return f"e{first}–{last}" if last > first else f"e{first}"


def _draw_after(canvas: Canvas, found: _Map, lines: int, left: float, y: float, width: float) -> None:
    unit = found.pattern.unit
    canvas.text(left - _LABEL, 36, "Shared memory after: 128-byte lines of 32 banks")
    for i in range(LINE // unit):
        canvas.text(left + (i + 0.5) * width, y - 7, f"{i * unit // WORD}–{(i + 1) * unit // WORD - 1}", "small middle faint")
    canvas.text(left, y - 20, "bank", "small faint")
    for line in range(lines):
        canvas.text(left - 6, y + line * _CELL + 16, f"{found.base + line * LINE}", "end small")
    for (row, i), place in np.ndenumerate(found.places):
        x, top = left + place % LINE // unit * width, y + place // LINE * _CELL
        tip = f"shared byte {found.base + place}: row {row}, bytes {i * unit} to {(i + 1) * unit - 1}"
        _cell(canvas, x, top, width, int(place), f"{row}·{i}", tip)


def _cell(canvas: Canvas, x: float, y: float, width: float, place: int, label: str, tip: str) -> None:
    hue = HUES[place % LINE // CHUNK]
    canvas.rect(x + 0.5, y + 0.5, width - 1, _CELL - 1, f"{hue} tint", tip)
    canvas.text(x + width / 2, y + 16, label, "small middle", room=width)


def _column_reads(found: _Map) -> str:
    """How many groups of four banks a column of eight rows touches, and what that means."""
    rows = min(found.rows, LINE // CHUNK)
    column = found.places[:rows, 0] % LINE // CHUNK
    plain = np.arange(rows) * found.span % LINE // CHUNK
    after, before = (counted(len(set(groups.tolist())), "group") for groups in (column, plain))
    return (
        f"A column of {counted(rows, 'chunk')} of 16 bytes, one in each row, lies in {after} of four banks"
        f" ({before} without a swizzle); of {BANKS * WORD // CHUNK} there are."
    )
