"""A tile as loads, as a card for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from cupytma.view.drawing import counted
from cupytma.view.html import framed, note, table

if TYPE_CHECKING:
    from cupytma.tensormap.planning import BoxPlan

_MOST_LOADS = 32
_HEADINGS = ("Load", "Tensor map", "Box", "Coordinates", "Shared offset", "Bytes", "Block")


def plan_card(plan: BoxPlan) -> str:
    """HTML of the loads of a tile, 32 at most, and of what the barrier and shared memory need."""
    boxes = [" × ".join(map(str, box)) for box in plan.boxes]
    rows = [
        (str(i), str(load.tensor_map), boxes[load.tensor_map], ", ".join(map(str, load.coordinates)),
         str(load.shared_offset), str(load.bytes), str(load.cta))
        for i, load in enumerate(plan.loads[:_MOST_LOADS])
    ]  # fmt: skip
    title = f"Tile {' × '.join(map(str, plan.tile))}: {counted(len(plan.loads), 'load')}"
    more = [note(f"{_MOST_LOADS} of {len(plan.loads)} loads are shown")] * (len(plan.loads) > _MOST_LOADS)
    needs = table((), [
        ("barrier expects", f"{plan.transaction_bytes} bytes"), ("shared memory", f"{plan.shared_bytes} bytes"),
        ("shared alignment", f"{plan.shared_alignment} bytes"), ("view", ", ".join(map(str, plan.view))),
    ])  # fmt: skip
    return framed([f"<strong>{escape(title)}</strong>", needs, table(_HEADINGS, rows), *more])
