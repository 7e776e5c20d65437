"""Expressions of the tables as trees that can be rearranged.

An expression is a number, the name of a column, or a tuple of a symbol and its operands. Besides the operators there
are ``("take", values, index)``, a look-up; ``("select", cases, a, b)``, which is ``a`` in rows of some cases and ``b``
in all others; ``("mask", cases)``, which is -1 in rows of some cases and 0 in all others; and
``("base", name, stand_in)``, a column less what stands in for it where a row has none, and so 0 there; and
``("signed", a)``, the lowest 32 bits as a signed number.

A case is a kind with a rank, as one number, and the column `CASE` holds those of the rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from cupytma.tensormap.rule import MODES

Expression = Any
Bounds = tuple[int, int]

CASE = "case"
# Ranks are told apart up to here; what lies above is as illegal.
RANKS_APART = 8
CASES = len(MODES) * RANKS_APART

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_,
    "<<": operator.lshift, ">>": operator.rshift, "//": operator.floordiv, "%": operator.mod,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "quotient": lambda dividend, divisor: dividend // np.maximum(divisor, 1),
}  # fmt: skip
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
# Tables of more bits than this would not stay in the nearest cache.
_TABLE_BITS = 12


def operands(node: Expression) -> tuple[Expression, ...]:
    """The expressions that an expression is made of."""
    if not isinstance(node, tuple) or node[0] in ("mask", "base"):
        return ()
    return node[2:] if node[0] in ("take", "select") else node[1:]


def names(node: Expression) -> set[str]:
    """The columns of an expression."""
    if isinstance(node, str):
        return {node}
    own = {CASE} if isinstance(node, tuple) and node[0] in ("select", "mask") else set()
    return own.union(*(names(part) for part in operands(node)))


def by_case(values: Mapping[int, Any]) -> Expression:
    """A number that the case decides, given for the cases that matter."""
    first = next(iter(values.values()))
    if all(value == first for value in values.values()):
        return first
    return ("take", tuple(values.get(case, first) for case in range(CASES)), CASE)


def decided_by_case(node: Expression) -> bool:
    """Whether an expression is a number, or one that the case decides."""
    return isinstance(node, int) or (isinstance(node, tuple) and node[0] == "take" and node[2] == CASE)


def in_case(node: Expression, case: int) -> Any:
    """What comes of an expression that the case decides."""
    return node if isinstance(node, int) else node[1][case]


def is_truth(node: Expression) -> bool:
    """Whether an expression is true or false, and no number."""
    if not isinstance(node, tuple):
        return isinstance(node, bool)
    if node[0] == "take":
        return isinstance(node[1][0], bool)
    if node[0] == "select":
        return is_truth(node[2])
    return node[0] in COMPARISONS or (node[0] in ("&", "|") and is_truth(node[1]) and is_truth(node[2]))


def is_dear(node: Expression, looking_up: bool = True) -> bool:
    """Whether an expression has a quotient, reckons with a truth, or looks something up."""
    if not isinstance(node, tuple):
        return False
    if node[0] == "take":
        return looking_up or is_dear(node[2], looking_up)
    parts = operands(node)
    mixed = node[0] in OPERATORS and node[0] not in COMPARISONS and is_truth(parts[0]) != is_truth(parts[1])
    return node[0] == "quotient" or mixed or any(is_dear(part, looking_up) for part in parts)


def operands_of(symbol: str, node: Expression) -> Iterator[Expression]:
    """The operands of a chain of one operator."""
    if isinstance(node, tuple) and node[0] == symbol:
        yield from operands_of(symbol, node[1])
        yield from operands_of(symbol, node[2])
    else:
        yield node


class Algebra:
    """Makes expressions as simple as they can be.

    Attributes
    ----------
    ranges : dict
        Between what a column lies in rows that keep the rules.
    """

    def __init__(self) -> None:
        self.ranges: dict[str, Bounds] = {}

    def made(self, symbol: str, left: Expression, right: Expression) -> Expression:
        """An operation, or what it comes to."""
        if symbol not in COMPARISONS and not (symbol in ("&", "|") and is_truth(left) and is_truth(right)):
            left, right = (int(side) if isinstance(side, bool) else side for side in (left, right))
        if decided_by_case(left) and decided_by_case(right):
            return self._decided(symbol, left, right)
        if symbol == "quotient" and right in (0, 1):
            return left
        for side, other in ((left, right), (right, left)):
            if symbol in ("&", "|") and isinstance(side, bool):
                return other if side == (symbol == "&") else side
            if symbol in ("&", "*") and isinstance(side, int) and side == 0:
                return 0
            if symbol == "|" and isinstance(side, int) and side == 0:
                return other
        if right == {"+": 0, "-": 0, "<<": 0, ">>": 0, "*": 1}.get(symbol):
            return left
        match symbol, left, right:  # x ± a ± b is x + c
            case ("+" | "-"), (("+" | "-") as inner, value, int(first)), int(second):
                added = (first if inner == "+" else -first) + (second if symbol == "+" else -second)
                return self.made("+", value, added) if added >= 0 else self.made("-", value, -added)
        if symbol == "//" and isinstance(right, int) and right & (right - 1) == 0:
            return self.made(">>", left, right.bit_length() - 1)
        if symbol == "-" and right == 1 << 31:
            match left:
                case ("&", ("+", value, 0x80000000), 0xFFFFFFFF):
                    return self.signed(value)
        bounds, limits = self.bounds(left), self.bounds(right)
        if symbol in COMPARISONS and bounds and limits:
            return _settled(symbol, bounds, limits, (symbol, left, right))
        if symbol == "&" and bounds and isinstance(right, int) and not right & (right + 1) and bounds[0] >= 0:
            return left if bounds[1] <= right else (symbol, left, right)
        return (symbol, left, right)

    def _decided(self, symbol: str, left: Expression, right: Expression) -> Expression:
        def value(case: int) -> Any:
            found = OPERATORS[symbol](in_case(left, case), in_case(right, case))
            return found if isinstance(found, bool) else int(found)

        return by_case({case: value(case) for case in range(CASES)})

    def taken(self, values: tuple[Any, ...], index: Expression) -> Expression:
        """A look-up, or what it comes to; numbers outside the table take the nearest."""
        if decided_by_case(index):
            last = len(values) - 1
            return by_case({case: values[min(max(in_case(index, case), 0), last)] for case in range(CASES)})
        return ("take", values, index)

    def signed(self, value: Expression) -> Expression:
        """The lowest 32 bits as a signed number."""
        return (value + (1 << 31)) % (1 << 32) - (1 << 31) if isinstance(value, int) else ("signed", value)

    def remade(self, node: Expression, change: Callable[[Expression], Expression]) -> Expression:
        """The same operation on operands that are changed."""
        parts = tuple(change(part) for part in operands(node))
        if not parts:
            return node
        if node[0] == "take":
            return self.taken(node[1], *parts)
        if node[0] == "select":
            return ("select", node[1], *parts)
        return self.signed(*parts) if node[0] == "signed" else self.made(node[0], *parts)

    def settled(self, node: Expression, case: int, stand_ins: Mapping[str, int]) -> Expression:
        """An expression in rows of one case, with numbers for the columns that those do not have."""
        if isinstance(node, str):
            return case if node == CASE else stand_ins.get(node, node)
        if isinstance(node, tuple) and node[0] == "select":
            return self.settled(node[2] if case in node[1] else node[3], case, stand_ins)
        return self.remade(node, lambda part: self.settled(part, case, stand_ins))

    def joined(self, parts: Mapping[frozenset[int], Expression]) -> Expression:
        """One expression that is each of several in rows of some cases."""
        (_, first), *others = parts.items()
        if all(node == first and type(node) is type(first) for _, node in others):
            return first
        if all(decided_by_case(node) for node in parts.values()):
            return by_case({case: in_case(node, case) for several, node in parts.items() for case in several})
        if all(isinstance(node, tuple) and _form(node) == _form(first) for node in parts.values()):
            groups = zip(*(operands(node) for node in parts.values()), strict=True)
            joined = [self.joined(dict(zip(parts, group, strict=True))) for group in groups]
            if len(set().union(*map(_selects, joined))) <= 1:
                remaining = iter(joined)
                return self.remade(first, lambda _: next(remaining))
        alike = frozenset().union(*(several for several, node in parts.items() if node == first))
        return ("select", alike, first, self.joined({c: node for c, node in others if node != first}))

    def bounds(self, node: Expression) -> Bounds | None:
        """Between what an expression lies in rows that keep the rules."""
        if isinstance(node, int):
            return int(node), int(node)
        if isinstance(node, str):
            return self.ranges.get(node)
        if is_truth(node):
            return 0, 1
        if node[0] == "take":
            reached = self.bounds(node[2]) or (0, len(node[1]) - 1)
            values = node[1][max(0, reached[0]) : reached[1] + 1]
            return (int(min(values)), int(max(values))) if values else None
        if node[0] == "mask":
            return -1, 0
        if node[0] == "base":
            found = self.ranges.get(node[1])
            return found and (min(found[0] - node[2], 0), max(found[1] - node[2], 0))
        if node[0] == "signed":
            return -(1 << 31), (1 << 31) - 1
        several = [self.bounds(part) for part in operands(node)]
        if None in several:
            return None
        left, right = (found for found in several if found)
        if node[0] == "select":
            return min(left[0], right[0]), max(left[1], right[1])
        if node[0] in ("+", "-", "*", "<<", ">>") and (node[0] not in ("<<", ">>") or 0 <= right[0] <= right[1] < 64):
            corners = [OPERATORS[node[0]](a, b) for a in left for b in right]
            return min(corners), max(corners)
        if node[0] in ("&", "|") and left[0] >= 0 and right[0] >= 0:
            return 0, min(left[1], right[1]) if node[0] == "&" else (1 << max(left[1], right[1]).bit_length()) - 1
        return None

    def simplified(self, node: Expression) -> Expression:
        """The same by what the rules say of the columns, with look-ups where they are cheaper."""
        return self._with_tables(self._reduced(node))

    def _reduced(self, node: Expression) -> Expression:
        return self.remade(node, self._reduced)

    def _with_tables(self, node: Expression) -> Expression:
        found = self._tabulated(node)
        return self.remade(node, self._with_tables) if found is None else found

    def _tabulated(self, node: Expression) -> Expression | None:
        """A dear expression of few bits as a look-up."""
        columns = sorted(names(node))
        if not columns or any(name not in self.ranges for name in columns) or is_truth(node):
            return None
        if not (is_dear(node) if len(columns) == 1 else is_dear(node, looking_up=False)):
            return None
        widths = [(high - low).bit_length() for low, high in (self.ranges[name] for name in columns)]
        if sum(widths) > _TABLE_BITS:
            return None
        index: Expression = 0
        entries = np.arange(1 << sum(widths))
        values: dict[str, Any] = {}
        for name, width in zip(columns, widths, strict=True):
            index = self.made("|", self.made("<<", index, width), self.made("-", name, self.ranges[name][0]))
        for name, width in zip(reversed(columns), reversed(widths), strict=True):
            values[name] = (entries & ((1 << width) - 1)) + self.ranges[name][0]
            entries = entries >> width
        highest = self.ranges[columns[0]][1] - self.ranges[columns[0]][0] + 1 if len(columns) == 1 else None
        return ("take", tuple(_value(node, values).tolist())[:highest], index)


def _selects(node: Expression) -> set[Expression]:
    """The choices between cases in an expression."""
    own = {node} if isinstance(node, tuple) and node[0] == "select" else set()
    return own.union(*(_selects(part) for part in operands(node)))


def _form(node: Expression) -> Any:
    """What two expressions have in common that differ in their operands alone."""
    return node[:2] if node[0] in ("take", "select") else (node[0] if operands(node) else node)


def _value(node: Expression, values: dict[str, Any]) -> Any:
    """What an expression without cases comes to."""
    if isinstance(node, str):
        return values[node]
    if not isinstance(node, tuple):
        return node
    if node[0] == "take":
        return np.take(node[1], _value(node[2], values), mode="clip")
    return OPERATORS[node[0]](*(_value(part, values) for part in operands(node)))


def _settled(symbol: str, bounds: Bounds, limits: Bounds, otherwise: Expression) -> Expression:
    """A comparison that comes out alike at all corners of two ranges, or as it was."""
    if symbol in ("==", "!="):
        return symbol == "!=" if bounds[1] < limits[0] or limits[1] < bounds[0] else otherwise
    found = {OPERATORS[symbol](a, b) for a in bounds for b in limits}
    return found.pop() if len(found) == 1 else otherwise
