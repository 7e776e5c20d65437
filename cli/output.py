"""What commands print: plain text for pipes, colours on a terminal, 80 columns in mind."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_NARROWEST, _USUAL, _WIDEST = 40, 80, 100


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


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> Table:
    """A table without lines, indented by two columns.

    Parameters
    ----------
    headings : sequence of str
        Empty strings for a table without headings.
    rows : iterable of sequences of str
    right : sequence of str
        The headings whose columns are aligned to the right.
    """
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, show_header=any(headings), header_style="bold", pad_edge=True, padding=(0, 0, 0, 2))
    for heading in headings:
        found.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        found.add_row(*(Text(cell) for cell in row))
    return found
