"""Pictures: of characters on a terminal, each kind of place in its colour, and as SVG in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .output import show
from .sources import STANDARD_INPUT

if TYPE_CHECKING:
    from cupytma.view import Picture

_STYLES = {"#": "green", "x": "bold red", ".": "dim"}


def show_cells(line: str) -> None:
    """Print a line of a picture; letters that stand for places are coloured."""
    from rich.text import Text

    text = Text(line)
    for place, character in enumerate(line):
        if character in _STYLES:
            text.stylize(_STYLES[character], place, place + 1)
    show(text)


def write_picture(path: str, picture: Picture) -> None:
    """Write a picture as SVG; ``-`` is standard output.

    Raises
    ------
    Failure
        If it cannot be written.
    """
    from .array_files import write_bytes

    if path == STANDARD_INPUT:
        click.echo(picture.svg)
    else:
        write_bytes(path, picture.svg.encode())
