"""The pieces of cards in notebooks: self-contained HTML, at home in light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Colours are the page's own, thinned out, so that the card suits any theme; nothing is loaded and nothing runs.
# Cells name the class twice, to come before what JupyterLab says of tables.
_STYLE = """
.cupytma-card{display:inline-block;max-width:100%;font:13px/1.45 system-ui,sans-serif;color:inherit;
border:1px solid color-mix(in srgb,currentColor 25%,transparent);border-radius:6px;padding:.6em .9em}
.cupytma-card table{font:inherit;border-collapse:collapse;margin:.3em 0;color:inherit;background:none}
.cupytma-card.cupytma-card td,.cupytma-card.cupytma-card th{text-align:left;vertical-align:top;padding:.1em 1em .1em 0;
border:0;background:none;color:inherit}
.cupytma-card th{font-weight:600;opacity:.7}
.cupytma-card td{font-variant-numeric:tabular-nums}
.cupytma-card code,.cupytma-card pre{font-family:ui-monospace,monospace;background:none;color:inherit;margin:.2em 0}
.cupytma-card pre{white-space:pre-wrap;overflow-wrap:anywhere}
.cupytma-card summary{cursor:pointer;opacity:.8}
.cupytma-card .note{border-left:3px solid #b8860b;padding-left:.6em;margin:.3em 0}
.cupytma-card .bad{border-left-color:#c0392b}
"""


def framed(parts: Iterable[str]) -> str:
    """A card of parts that are HTML."""
    return f'<div class="cupytma-card"><style>{_STYLE}</style>{"".join(parts)}</div>'


def printed(*shown: object) -> str:
    """A card of what objects are printed as: of each the first line, and those after it as they are."""
    parts = []
    for one in shown:
        title, _, rest = str(one).partition("\n")
        parts += [f"<div><strong>{escape(title)}</strong></div>", code(rest) if rest else ""]
    return framed(parts)


def code(text: str) -> str:
    """A text as it stands, in lines that are broken where the page ends."""
    return f"<pre>{escape(text)}</pre>"


def folded(title: str, body: str) -> str:
    """What opens when its title is clicked; the body is HTML."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts; no headings for one without."""
    head = f"<tr>{''.join(f'<th>{escape(heading)}</th>' for heading in headings)}</tr>" if headings else ""
    return f"<table>{head}{''.join(map(_row, rows))}</table>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def note(text: str, bad: bool = False) -> str:
    """A text with a mark beside it."""
    return f'<div class="note{" bad" if bad else ""}">{escape(text)}</div>'
