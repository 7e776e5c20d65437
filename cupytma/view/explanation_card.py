"""How an operation is carried out, as a card for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from cupytma.view.html import framed, note, table

if TYPE_CHECKING:
    from cupytma.ops.explained_parts import Part
    from cupytma.ops.explanation import Explanation

_HEADINGS = ("Launch", "Part", "How", "Bytes", "Through", "Tiles", "Box", "In flight", "Grid")


def explanation_card(explanation: Explanation) -> str:
    """HTML of every part of an operation, and of the rules that keep parts from the unit."""
    if not explanation.parts:
        return framed([f"<strong>{escape(str(explanation))}</strong>"])
    notes = [note(reason) for reason in explanation.reasons]
    rows = table(_HEADINGS, map(_row, explanation.parts))
    return framed([f"<strong>{escape(explanation.headline)}</strong>", rows, *notes, note(explanation.summary)])


def _row(part: Part) -> tuple[str, ...]:
    box = f"{' × '.join(map(str, part.box_dim))} {part.data_type}" if part.box_dim else ""
    tiles, stages = (str(number or "") for number in (part.tiles, part.stages))
    return (
        str(part.launch), part.name, part.path, f"{part.bytes:,}", part.through, tiles, box, stages,
        f"{part.grid} × {part.threads}",
    )  # fmt: skip
