"""A swizzle in characters: where the 16-byte chunks of rows are in shared memory, and the formulas for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupytma.words import counted

if TYPE_CHECKING:
    from rich.text import Text

    from cupytma.tensormap import Swizzle

ROWS = 8
"""Rows of a picture: after as many every pattern has repeated, but for the address where the tile starts."""

_LABEL = 6
_WIDEST_CELL = 9
# Styles of the eight chunks of a line, by the place they would have without a swizzle.
_STYLES = ("cyan", "magenta", "yellow", "green", "blue", "red", "bold", "underline")  # seen on light and dark


def address_formula(swizzle: Swizzle) -> str:
    """The place in shared memory of the byte at linear address ``a``, as a C expression (an exclusive or of bits)."""
    from cupytma.sim.swizzle import CHUNK, LINE, pattern_of

    pattern = pattern_of(swizzle)
    line, terms = LINE.bit_length() - 1, ["a"]
    if pattern.lines > 1:
        terms.append(f"((a >> {line} & {pattern.lines - 1}) << {pattern.atom.bit_length() - 1})")
    if pattern.flips:
        terms.append(f"((a >> {line} & 1) << {(CHUNK // 2).bit_length() - 1})")
    return " ^ ".join(terms)


def chunk_formula(swizzle: Swizzle) -> str:
    """Where chunk ``chunk`` of row ``row`` is in its row, of a tile whose address is a multiple of 1024; in C."""
    from cupytma.sim.swizzle import CHUNK, LINE, pattern_of

    pattern, rows_per_line = pattern_of(swizzle), LINE // (swizzle.span or LINE)
    if pattern.lines == 1:
        return "chunk"
    line = f"row / {rows_per_line}" if rows_per_line > 1 else "row"
    factor = pattern.atom // CHUNK
    moved = f"{line} % {pattern.lines}"
    return f"chunk ^ ({moved})" if factor == 1 else f"chunk ^ ({moved} * {factor})"


def places(swizzle: Swizzle, rows: int, shared_offset: int) -> list[list[tuple[int, int]]]:
    """Which row and chunk each 16 bytes of shared memory hold, by lines of 128 bytes.

    Parameters
    ----------
    swizzle : Swizzle
    rows : int
        Rows of the span of the swizzle, or of 128 bytes without one, one after another.
    shared_offset : int
        Address of the first in bytes, a multiple of 128.
    """
    from cupytma.sim import swizzle_address
    from cupytma.sim.swizzle import CHUNK, LINE

    span = swizzle.span or LINE
    chunks = span // CHUNK
    lines = -(-rows * span // LINE)
    found = [[(-1, -1)] * (LINE // CHUNK) for _ in range(lines)]
    for row in range(rows):
        for chunk in range(chunks):
            place = swizzle_address(shared_offset + row * span + chunk * CHUNK, swizzle) - shared_offset
            found[place // LINE][place % LINE // CHUNK] = row, chunk
    return found


def swizzle_picture(swizzle: Swizzle, rows: int, shared_offset: int, width: int) -> list[Text]:
    """Lines of a picture: 128 bytes of shared memory each, which row and chunk is in each 16 bytes.

    Parameters
    ----------
    swizzle, rows, shared_offset
        As for `places`.
    width : int
        Characters that a line may have.
    """
    from rich.text import Text

    from cupytma.sim.swizzle import CHUNK, LINE, pattern_of

    found, flips = places(swizzle, rows, shared_offset), pattern_of(swizzle).flips
    chunks = LINE // CHUNK
    label = max(_LABEL, len(str(shared_offset + LINE * len(found))) + 1)
    room = (width - label) // chunks
    shown = next((n for n in range(rows, 1, -1) if len(f" {n - 1}:0") <= room), 1)
    cell = min(_WIDEST_CELL, room)
    banks = [f"{4 * i}" if cell < _WIDEST_CELL else f"{4 * i}-{4 * i + 3}" for i in range(chunks)]
    lines = [Text(f"{'bank ':>{label}}" + "".join(f"{bank:>{cell}}" for bank in banks), style="bold")]
    for number, line in enumerate(found):
        if all(row >= shown for row, _ in line):
            continue
        address = shared_offset + number * LINE
        text = Text(f"{address}{chr(39) if flips and address // LINE % 2 else ' '}".rjust(label))
        for row, chunk in line:
            # The colour is that of the place without the swizzle.
            column = (row * swizzle.span // CHUNK + chunk) % chunks if swizzle.span else chunk
            held = f"{row}:{chunk}" if 0 <= row < shown else "-"
            text.append(f"{held:>{cell}}", style=_STYLES[column] if 0 <= row < shown else "dim")
        lines.append(text)
    if shown < rows:
        lines.append(Text(f"… and {counted(rows - shown, 'row')} more; a wider terminal shows them", style="dim"))
    return lines
