"""Pictures of characters on a terminal: each kind of place in its colour, in pipes in none."""

from __future__ import annotations

from .output import show

_STYLES = {"#": "green", "x": "bold red", ".": "dim"}


def show_cells(line: str) -> None:
    """Print a line of a picture; letters that stand for places are coloured."""
    from rich.text import Text

    text = Text(line)
    for place, character in enumerate(line):
        if character in _STYLES:
            text.stylize(_STYLES[character], place, place + 1)
    show(text)
