"""Expressions with the width of every operation settled, and the columns and masks that they need.

Columns have the width that they have in the rows, 32 or 64 bits, and so do the values reckoned from them: what lies
within 32 bits in rows that keep the rules, and what only its lowest 32 bits matter of, is reckoned in 32. Numbers that
wrap come from rows that another rule refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cupytma.tensormap.columns import WIDE
from cupytma.tensormap.expressions import (
    CASE,
    CASES,
    COMPARISONS,
    Algebra,
    Expression,
    is_truth,
    operands,
    operands_of,
)
from cupytma.tensormap.resolving import sequence_of
from cupytma.tensormap.stacking import HALF_BITS, stacks

# The variable that holds, for every row, the bits that `Lowering.masks` numbers.
PRESENT = "present"
# Operations whose lowest bits are decided by the lowest bits of what they are made of.
_MODULAR = ("+", "-", "*", "&", "|", "<<")


class Lowering:
    """Gives every operation a width.

    Parameters
    ----------
    algebra : Algebra
        Knows what expressions lie between.
    partial : mapping
        Of columns that not every row has, the cases that have them.
    all_cases : frozenset of int
        Those that the rows may have.

    Attributes
    ----------
    masks : dict
        Which bit of a row's `PRESENT` tells whether its case is one of several.
    entries : dict
        How many entries of a sequence are named.
    """

    def __init__(self, algebra: Algebra, partial: Mapping[str, frozenset[int]], all_cases: frozenset[int]) -> None:
        self._bounds = algebra.bounds
        self._partial = partial
        self._all_cases = all_cases
        self.masks: dict[frozenset[int], int] = {}
        self.entries: dict[str, int] = {}
        self._stand_ins: dict[str, int] = {}

    def present_by_case(self) -> npt.NDArray[np.int32]:
        """Of every case, the bits of the masks that are set there."""
        bits = [sum(1 << bit for cases, bit in self.masks.items() if case in cases) for case in range(CASES)]
        return np.array(bits, np.int64).astype(np.int32)

    def width(self, node: Expression) -> int:
        """The bits that an expression is reckoned in."""
        if isinstance(node, str):
            return 64 if sequence_of(node)[0] in WIDE or node == CASE else HALF_BITS
        if is_truth(node) or (isinstance(node, tuple) and node[0] == "signed"):
            return HALF_BITS
        if isinstance(node, tuple) and node[0] == "base":
            return self.width(node[1])
        widths = [self.width(part) for part in operands(node) if node[0] != "take"]
        if isinstance(node, tuple) and node[0] in ("&", "|", "select", "mask"):
            return max(widths, default=HALF_BITS)
        bounds = self._bounds(node)
        fits = bounds is not None and -(1 << 31) <= bounds[0] <= bounds[1] < 1 << 31
        return max(widths, default=HALF_BITS) if fits else 64

    def truth(self, node: Expression) -> Expression:
        """An expression that is true or false."""
        if isinstance(node, bool):
            return node
        if node[0] == "take":
            return ("take", node[1], self.number(node[2], 64), 1)
        if node[0] in ("==", "!=") and node[2] == 0 and isinstance(node[1], tuple) and node[1][0] == "mask":
            return (node[0], ("&", PRESENT, 1 << (HALF_BITS - 1 - self._shift(node[1][1]))), 0)
        if node[0] in COMPARISONS:
            width = max(self.width(part) for part in operands(node))
            return (node[0], *(self.number(part, width) for part in operands(node)))
        if node[0] == "select":
            mask, one, other = self._leaf(("mask", node[1])), *(self.truth(part) for part in operands(node))
            return ("|", ("&", one, ("!=", mask, 0)), ("&", other, ("==", mask, 0)))
        return (node[0], *(self.truth(part) for part in operands(node)))

    def _product(self, factors: Sequence[Expression]) -> Expression:
        """A product in 64 bits; factors that are not worked out together are widened last, as others want them too."""
        settled = [self.number(factor, 64) for factor in factors]
        widened = {
            wide: ("wide", self.number(factor, HALF_BITS))
            for wide, factor in zip(settled, factors, strict=True)
            if self.width(factor) == HALF_BITS
        }
        first, *others = (widened.get(factor, factor) for factor in stacks(settled, "*"))
        product: Expression = first
        for factor in others:
            product = ("*", product, factor)
        return product

    def _either(self, node: Expression, width: int) -> Expression:
        """One of two numbers by the bits of a mask: numpy's own choice by truths guesses, and often wrong."""
        one, other = (self.number(part, width) for part in operands(node))
        return ("^", other, ("&", ("^", one, other), self.number(("mask", node[1]), width)))

    def number(self, node: Expression, width: int) -> Expression:
        """An expression in so many bits: of more, the lowest."""
        found: Expression
        if is_truth(node):
            found, own = ("number", self.truth(node)), HALF_BITS
        elif isinstance(node, int):
            return node if width == 64 else (node + (1 << 31)) % (1 << 32) - (1 << 31)
        elif isinstance(node, str) or node[0] in ("mask", "base"):
            found, own = self._leaf(node), self.width(node)
        elif node[0] == "take":
            found, own = ("take", node[1], self.number(node[2], 64), width), width
        elif node[0] == "signed":
            found, own = self.number(node[1], HALF_BITS), HALF_BITS
        elif node[0] == "select":
            found, own = self._either(node, width), width
        elif node[0] == "*" and self.width(node) == width == 64:
            return self._product(list(operands_of("*", node)))
        else:
            own = width if node[0] in _MODULAR and width < 64 else self.width(node)
            if node[0] == "&" and own == HALF_BITS and node[2] == (1 << 32) - 1:
                return self.number(node[1], own)
            found = (node[0], *(self.number(part, own) for part in operands(node)))
        return found if own == width else ("wide" if width == 64 else "narrow", found)

    def _leaf(self, node: Expression) -> Expression:
        if isinstance(node, tuple) and node[0] == "mask":
            return (">>", ("<<", PRESENT, self._shift(node[1])), 31)
        _, name, stand_in = node if isinstance(node, tuple) else ("base", node, 0)
        sequence, entry = sequence_of(name)
        if entry is not None:
            self._stand_ins[sequence] = stand_in
            self.entries[sequence] = max(self.entries.get(sequence, 0), entry + 1)
            return ("entry", sequence, entry)
        less = ("-", name, stand_in) if stand_in else name
        cases = self._partial.get(name)
        return less if cases is None else ("&", less, self.number(("mask", cases), self.width(name)))

    def _shift(self, cases: frozenset[int]) -> int:
        """By how much the bits of a row are moved up for the sign to be that of a mask."""
        bit = self.masks.setdefault(cases, len(self.masks))
        assert bit < HALF_BITS - 1, "more sets of cases than a mask has bits"
        return HALF_BITS - 1 - bit

    def sequences(self) -> dict[str, tuple[int, Expression]]:
        """What stands in for the entries of sequences that a row does not have, and the masks of those it has."""
        rows: list[tuple[int, ...]] = []
        found = {}
        # The longest first: others may share its masks.
        for name, count in sorted(self.entries.items(), key=lambda item: -item[1]):
            cases = [self._partial.get(f"{name}_{i}", self._all_cases) for i in range(count)]
            mask: Expression = -1
            if any(several != self._all_cases for several in cases):
                mask = self._masks(tuple(self._shift(several) for several in cases), name in WIDE, rows)
            found[name] = self._stand_ins[name], mask
        return found

    @staticmethod
    def _masks(shifts: tuple[int, ...], wide: bool, rows: list[tuple[int, ...]]) -> Expression:
        """The masks of several entries, or some of those that others have already."""
        for row in rows:
            for start in range(len(row) - len(shifts) + 1):
                if row[start : start + len(shifts)] == shifts:
                    return ("planes", Lowering._masks_of(row, wide), start, start + len(shifts))
        rows.append(shifts)
        return Lowering._masks_of(shifts, wide)

    @staticmethod
    def _masks_of(shifts: tuple[int, ...], wide: bool) -> Expression:
        mask = (">>", ("<<", PRESENT, ("row", shifts, HALF_BITS)), 31)
        return ("wide", mask) if wide else mask
