"""What commands print: plain text for pipes, colours on a terminal, 80 columns in mind."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_NARROWEST, _USUAL, _WIDEST = 40, 80, 100
# Before each column of a table.
_GAP = 2
# A column that may wrap is no narrower, unless what it holds is.
_NARROWEST_PROSE = 11
_UNBROKEN = "\xa0"


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


def styled(text: str, colour: str | None = None, *, bold: bool = False) -> str:
    """A text with codes for a terminal, which `click.echo` takes out elsewhere; none where the reader wants none."""
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    return text if unwanted else click.style(text, fg=colour, bold=bold or None)


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
        The headings whose columns may wrap; the last column may in any case, unless it is aligned to the right.
    """
    listed = list(rows)
    widths = _widths(headings, listed, (*prose, *(heading for heading in headings[-1:] if heading not in right)))
    if widths is None:
        for row in listed:
            show(*_lines(headings, row))
        return
    show(_table([wrapped(heading, width) for heading, width in zip(headings, widths, strict=True)], (
        [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)] for row in listed
    ), right))  # fmt: skip


def paragraph(text: str, indent: int = 0, hang: int = 0, mark: str = "") -> str:
    """Running text as lines that fit the terminal. Line breaks in it are kept.

    Parameters
    ----------
    text : str
    indent : int
        Columns before every line.
    hang : int
        Columns more before those that a line is continued on.
    mark : str
        What all lines begin with, such as ``"// "``.
    """
    first = mark + " " * indent
    return wrapped(text, text_width(), first, first + " " * hang)


def shortened(text: str, most: int = 40) -> str:
    """A text that a user gave, cut where it is too long to be repeated in a message."""
    return text if len(text) <= most else f"{text[:most]}…"


def show_json(value: Any, indent: int | None = 2) -> None:
    """Print plain values as JSON that people can read too; in ASCII where the output takes no more."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    click.echo(json.dumps(value, indent=indent, ensure_ascii=encoding != "utf8"))


def remark(text: str, kind: str = "Note") -> None:
    """Say something beside the output, on standard error."""
    click.echo(paragraph(f"{kind}: {text}"), err=True)


def warn(text: str) -> None:
    """Warn, on standard error."""
    remark(text, "Warning")


def kept_together(text: str) -> str:
    """The text with spaces at which no line is broken by `paragraph` and `show_rows`."""
    return text.replace(" ", _UNBROKEN)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]) -> Table:
    """A table without lines, indented by two columns."""
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, show_header=any(headings), header_style="bold", pad_edge=True, padding=(0, 0, 0, _GAP))
    for heading in headings:
        found.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        found.add_row(*(Text(cell) for cell in row))
    return found


def _widths(headings: Sequence[str], rows: Sequence[Sequence[str]], prose: Sequence[str]) -> list[int] | None:
    """The columns' widths, those of prose as narrow as the terminal makes them; None if they do not fit."""
    from rich.cells import cell_len

    widths, least = [], []
    for i, heading in enumerate(headings):
        lines = [line for cell in (heading, *(row[i] for row in rows)) for line in cell.splitlines() or [""]]
        widths.append(max(map(cell_len, lines)))
        is_prose = heading in prose if heading else i == len(headings) - 1
        words = (cell_len(word) for line in lines for word in line.split(" ")) if is_prose else ()
        least.append(min(widths[i], max([_NARROWEST_PROSE, *words])) if is_prose else widths[i])
    excess = sum(widths) + _GAP * len(widths) - text_width()
    for _ in range(excess):
        wide = [i for i, width in enumerate(widths) if width > least[i]]
        if not wide:
            return None
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def wrapped(text: str, width: int, first: str = "", others: str = "", whole: bool = False) -> str:
    """Lines broken at spaces; what stands before a line is before those that it is continued on too.

    Parameters
    ----------
    text : str
        Line breaks in it are kept.
    width : int
        Columns.
    first, others : str
        What lines begin with, and those that they are continued on.
    whole : bool
        Whether a word that is longer than the width stays whole, as commands and paths have to.
    """
    found = []
    for line in text.splitlines():
        own = line[: len(line) - len(line.lstrip(" "))]
        found.append(textwrap.fill(
            line.lstrip(" "), width, initial_indent=first + own, subsequent_indent=others + own,
            break_on_hyphens=False, break_long_words=not whole,
        ) if line.strip() and width else line)  # fmt: skip
    return "\n".join(found).replace(_UNBROKEN, " ")


def _lines(headings: Sequence[str], row: Sequence[str]) -> list[str]:
    """One row below another: what it is about, and the rest with what it is."""
    first, *rest = row
    lines = [paragraph(first, _GAP, _GAP)] if first else []
    for heading, cell in zip(headings[1:], rest, strict=True):
        if cell:
            lines.append(paragraph(f"{heading}: {cell}" if heading else cell, 2 * _GAP, _GAP))
    return lines
