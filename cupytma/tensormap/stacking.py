"""Expressions that differ by the entries of sequences alone, as one expression over arrays of several entries.

These are expressions whose widths are settled (`cupytma.tensormap.lowering`). Besides the operators they have
``("take", values, index, width)``; ``("takes", tables, index, width)``, entries of several tables; ``("entry", name,
i)`` and ``("entries", name, i, j)`` of a sequence, ``("planes", a, i, j)`` of an expression; ``("row", numbers,
width)``, a number for each entry; ``("reduce", symbol, a)``, all entries of an expression put together; and ``wide``,
``narrow`` and ``number``, which change the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cupytma.tensormap.columns import WIDE
from cupytma.tensormap.expressions import CASE, Expression

HALF_BITS = 32


def stacks(nodes: Sequence[Expression], symbol: str) -> list[Expression]:
    """Operands of one operator, with those that differ by the entries of sequences worked out together.

    One call of numpy for several columns costs less than one for each.
    """
    alike: dict[Any, list[Expression]] = {}
    for node in nodes:
        alike.setdefault(_outline(node), []).append(node)
    found: list[Expression] = []
    for group in alike.values():
        together = _stacked(sorted(group, key=_first_entry)) if len(set(group)) > 1 else None
        found += group if together is None else [("reduce", symbol, together)]
    return found


def _outline(node: Expression) -> Any:
    """What is left of an expression without its numbers and entries."""
    if not isinstance(node, tuple):
        return node if isinstance(node, (str, bool)) else 0
    if node[0] == "take":
        return ("take", node[1] if node[2] != CASE else None, _outline(node[2]), node[3])
    return node[:2] if node[0] == "entry" else (node[0], *map(_outline, node[1:]))


def _first_entry(node: Expression) -> int:
    """The least entry in an expression."""
    if not isinstance(node, tuple):
        return 1 << HALF_BITS
    return int(node[2]) if node[0] == "entry" else min(map(_first_entry, parts(node)))


def _stacked(nodes: Sequence[Expression]) -> Expression | None:
    """Expressions of the same outline as one over several entries; None where those do not follow each other."""
    first = nodes[0]
    if all(node == first for node in nodes):
        return first
    if not isinstance(first, tuple):
        return None  # numbers, which become a row beside what they belong to
    if first[0] == "entry":
        span = range(first[2], first[2] + len(nodes))
        return ("entries", first[1], span.start, span.stop) if [node[2] for node in nodes] == [*span] else None
    if first[0] == "take":
        if first[2] == CASE:
            return ("takes", tuple(node[1] for node in nodes), CASE, first[3])
        index = _stacked([node[2] for node in nodes])
        return None if index is None else ("take", first[1], index, first[3])
    found: list[Expression] = []
    for several in zip(*(node[1:] for node in nodes), strict=True):
        if all(isinstance(part, int) for part in several) and len(set(several)) > 1:
            width = next((w for part in first[1:] if (w := settled_width(part))), 64)
            found.append(("row", several, width))
        else:
            found.append(_stacked(several))
    return None if None in found else (first[0], *found)


def settled_width(node: Expression) -> int:
    """The bits of an expression that has them settled; 0 for a number, which adapts."""
    if isinstance(node, str):
        return 64 if node in WIDE or node == CASE else HALF_BITS
    if not isinstance(node, tuple):
        return 0
    if node[0] == "entry":
        return 64 if node[1] in WIDE else HALF_BITS
    if node[0] in ("wide", "narrow", "number"):
        return 64 if node[0] == "wide" else HALF_BITS
    return int(node[3]) if node[0] == "take" else max(map(settled_width, node[1:]))


def parts(node: Expression) -> tuple[Expression, ...]:
    """The expressions that one with settled widths is made of."""
    match node[0]:
        case "take" | "takes" | "reduce":
            return (node[2],)
        case "planes":
            return (node[1],)
        case "entry" | "entries" | "row":
            return ()
    return tuple(node[1:])
