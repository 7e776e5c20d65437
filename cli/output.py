"""What commands print: plain text for pipes, colours on a terminal, 80 columns in mind."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_NARROWEST, _USUAL, _WIDEST = 40, 80, 100
# Before each column of a table.
_GAP = 2
# A column that may wrap is no narrower, unless what it holds is.
_NARROWEST_PROSE = 11


def text_width() -> int:
    """Columns for running text: the terminal's, 80 where there is none, never too many to read."""
    columns = shutil.get_terminal_size((_USUAL, 24)).columns or _USUAL  # a terminal may not know its size
    return max(_NARROWEST, min(_WIDEST, columns))


def show(*renderables: RenderableType, style: str | None = None) -> None:
    """Print on standard output, each on a line of its own; in pipes without colours and trailing blanks.

    Tables are as wide as running text; strings are not wrapped.
    """
    from rich.console import Console

    console = Console(file=sys.stdout, width=text_width(), highlight=False, markup=False)
    soft_wrap = all(isinstance(renderable, str) for renderable in renderables)
    if console.is_terminal:
        console.print(*renderables, style=style, sep="\n", soft_wrap=soft_wrap)
        return
    with console.capture() as captured:
        console.print(*renderables, style=style, sep="\n", soft_wrap=soft_wrap)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_rows(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (), prose: Sequence[str] = ()
) -> None:
    """Print a table; in a terminal too narrow for its columns, each row as lines of its own.

    Parameters
    ----------
    headings : sequence of str
        Empty strings for a table without headings.
    rows : iterable of sequences of str
    right : sequence of str
        The headings whose columns are aligned to the right.
    prose : sequence of str
        The headings whose columns may wrap.
    """
    listed = list(rows)
    if _least_width(headings, listed, prose) <= text_width():
        show(table(headings, listed, right, wrapped=prose))
        return
    for row in listed:
        show(*_lines(headings, row))


def paragraph(text: str, indent: int = 0, hang: int = 0) -> str:
    """Running text as lines of the terminal's width, the first indented, the others by ``hang`` more."""
    return textwrap.fill(
        text, text_width(), initial_indent=" " * indent, subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,
    )


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (),
    wrapped: Collection[str] | None = None,
) -> Table:
    """A table without lines, indented by two columns.

    Parameters
    ----------
    headings : sequence of str
        Empty strings for a table without headings.
    rows : iterable of sequences of str
    right : sequence of str
        The headings whose columns are aligned to the right.
    wrapped : collection of str, optional
        The headings whose columns may wrap. Default: all.
    """
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, show_header=any(headings), header_style="bold", pad_edge=True, padding=(0, 0, 0, _GAP))
    for heading in headings:
        found.add_column(
            heading, justify="right" if heading in right else "left", overflow="fold",
            no_wrap=wrapped is not None and heading not in wrapped,
        )
    for row in rows:
        found.add_row(*(Text(cell) for cell in row))
    return found


def _least_width(headings: Sequence[str], rows: Sequence[Sequence[str]], prose: Sequence[str]) -> int:
    """The columns that a table needs if every column that may wrap is as narrow as it gets."""
    from rich.cells import cell_len

    total = 0
    for i, heading in enumerate(headings):
        cells = [heading, *(row[i] for row in rows)]
        natural = max(map(cell_len, cells))
        if heading and heading in prose:
            words = (word for cell in cells for word in cell.split())
            natural = min(natural, max([_NARROWEST_PROSE, *map(cell_len, words)]))
        total += _GAP + natural
    return total


def _lines(headings: Sequence[str], row: Sequence[str]) -> list[str]:
    """One row below another: what it is about, and the rest with what it is."""
    first, *rest = row
    lines = [paragraph(first, _GAP, _GAP)] if first else []
    for heading, cell in zip(headings[1:], rest, strict=True):
        if cell:
            lines.append(paragraph(f"{heading}: {cell}" if heading else cell, 2 * _GAP, _GAP))
    return lines
