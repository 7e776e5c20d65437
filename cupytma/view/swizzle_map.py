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

_PANEL = 340
_LABEL = 40
_CELL = 24
_HEAD = 98
_MOST_CELLS = 256
_GROUPS = BANKS * WORD // CHUNK
_SIZES = (1, 2, 4, 8, 16)
_ADDRESSES = 1 << 32


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
        Of the tile; of 128 bytes 32 are drawn at most, of shorter ones more.
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
    span = chosen.span or LINE
    drawn = min(rows, _MOST_CELLS * pattern.unit // span)
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
    if place >= _ADDRESSES:
        raise PictureError(f"base is {place}; shared memory addresses are below 2^32 bytes")
    return size, count, place


def _picture(chosen: Swizzle, found: _Map, element_size: int, rows: int) -> Picture:
    lines = int(found.places.max()) // LINE + 1
    canvas = Canvas(
        f"Swizzle {chosen}: {counted(found.rows, 'row')} of {found.span} bytes",
        f"Before and after, in pieces of {found.pattern.unit} bytes. {_column_reads(found)}",
    )
    canvas.text(0, 16, f"Swizzle {chosen}", "heading")
    # Pieces of 8 bytes are twice as many: the panels go below each other.
    below = found.pattern.unit < CHUNK
    panel = WIDTH - _LABEL - 8 if below else _PANEL
    width = panel / (LINE // found.pattern.unit)
    _draw_before(canvas, found, element_size, _HEAD, width)
    y = _HEAD + found.rows * _CELL - 10 if below else 0.0
    _draw_after(canvas, found, lines, _LABEL if below else WIDTH - _PANEL, y + _HEAD, width)
    y += _HEAD + (lines if below else max(found.rows, lines)) * _CELL + 26
    notes = [_column_reads(found)]
    if found.rows < rows:
        notes.append(f"{found.rows} of {rows:,} rows are drawn; the pattern repeats every {found.pattern.lines} lines.")
    canvas.paragraph(0, y, notes)
    return canvas.picture()


def _draw_before(canvas: Canvas, found: _Map, element_size: int, y: float, width: float) -> None:
    unit, piece = found.pattern.unit, _piece(found)
    canvas.text(0, y - 58, f"Tile: {counted(found.rows, 'row')} of {found.span} bytes", "strong")
    canvas.text(0, y - 41, f"in each {piece} the banks where it lands", "faint")
    canvas.text(_LABEL - 6, y - 20, piece, "end small faint", room=_LABEL)
    for i in range(found.units):
        x = _LABEL + (i + 0.5) * width
        canvas.text(x, y - 20, str(i), "small middle faint")
        canvas.text(x, y - 7, _elements(i * unit, unit, element_size), "small middle faint")
    for row in range(found.rows):
        canvas.text(_LABEL - 6, y + row * _CELL + 16, f"r{row}", "end small")
        for i, place in enumerate(found.places[row].tolist()):
            first, last = _banks(place, unit)
            tip = (
                f"row {row}, bytes {i * unit} to {(i + 1) * unit - 1}: shared byte {found.base + place}, "
                f"banks {first} to {last}"
            )
            _cell(canvas, _LABEL + i * width, y + row * _CELL, width, place, f"{first}–{last}", tip)


def _piece(found: _Map) -> str:
    """What a cell is called."""
    return "chunk" if found.pattern.unit == CHUNK else "half"


def _banks(place: int, unit: int) -> tuple[int, int]:
    """The first and the last bank of a piece."""
    return place % LINE // WORD, (place % LINE + unit) // WORD - 1


def _elements(start: int, unit: int, element_size: int) -> str:
    first, last = start // element_size, (start + unit - 1) // element_size
    return f"e{first}–{last}" if last > first else f"e{first}"


def _draw_after(canvas: Canvas, found: _Map, lines: int, left: float, y: float, width: float) -> None:
    unit = found.pattern.unit
    canvas.text(left - _LABEL, y - 58, f"Shared memory: {counted(lines, 'line')} of {LINE} bytes", "strong")
    canvas.text(left - _LABEL, y - 41, f"in each place row·{_piece(found)} of the tile", "faint")
    canvas.text(left - 6, y - 20, "byte", "end small faint")
    canvas.text(left - 6, y - 7, "bank", "end small faint")
    for i in range(LINE // unit):
        x = left + (i + 0.5) * width
        canvas.text(x, y - 20, str(i * unit), "small middle faint")
        canvas.text(x, y - 7, "{}–{}".format(*_banks(i * unit, unit)), "small middle faint")
    for line in range(lines):
        canvas.text(left - 6, y + line * _CELL + 16, str(found.base + line * LINE), "end small")
    for (row, i), place in np.ndenumerate(found.places):
        x, top = left + place % LINE // unit * width, y + place // LINE * _CELL
        tip = f"shared byte {found.base + place}: row {row}, bytes {i * unit} to {(i + 1) * unit - 1}"
        _cell(canvas, x, top, width, int(place), f"{row}·{i}", tip)


def _cell(canvas: Canvas, x: float, y: float, width: float, place: int, label: str, tip: str) -> None:
    hue = HUES[place % LINE // CHUNK]
    canvas.rect(x + 0.5, y + 0.5, width - 1, _CELL - 1, f"{hue} tint plain", tip)
    canvas.text(x + width / 2, y + 16, label, "small middle", room=width)


def _column_reads(found: _Map) -> str:
    """How many groups of four banks a column of eight rows touches, and what that means."""
    rows = min(found.rows, _GROUPS)
    column = found.places[:rows, 0] % LINE // CHUNK
    plain = np.arange(rows) * found.span % LINE // CHUNK
    after, before = (len(set(groups.tolist())) for groups in (column, plain))
    without = f"; without a swizzle in {before}" * (found.pattern.lines > 1)
    return (
        f"A column, one chunk of 16 bytes in each of {counted(rows, 'row')}, lies in {after} of the {_GROUPS} groups "
        f"of four banks{without}."
    )
