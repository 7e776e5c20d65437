"""From expressions to a Python function over numpy columns.

Columns have the width that they have in the rows, 32 or 64 bits, and so do the values reckoned from them: what lies
within 32 bits in rows that keep the rules, and what only its lowest 32 bits matter of, is reckoned in 32. Numbers that
wrap come from rows that another rule refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

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

HALF_BITS = 32
# Operations whose lowest bits are decided by the lowest bits of what they are made of.
_MODULAR = ("+", "-", "*", "&", "|", "<<")
_PRESENT = "present"

# A word, or its lower (0) or upper (1) half.
Place = tuple[int, int | None]


@dataclass(frozen=True)
class Program:
    """Checks and packs columns.

    Attributes
    ----------
    columns : tuple of (str, int)
        The operands it takes, in order, with how many entries of a sequence, or 0 for those that are none: columns of
        int64 or int32 as the rows have them, shape (n,) or (entries, n), or one int for all rows. Unsigned values too
        large for those wrap to negative ones, which break the same rule; products that wrap have a factor that breaks
        its own.
    words : int
        How many words it fills; those after them are zero.
    run : callable
        Takes the words, int64 of shape (`words`, n) that hold zero in the halves it does not fill, and the columns,
        which it may change.
        Fills in the words, which mean nothing for refused rows, and returns which rows are refused.
    """

    columns: tuple[tuple[str, int], ...]
    words: int
    run: Callable[..., npt.NDArray[np.bool_]]


def written(
    algebra: Algebra,
    cases: frozenset[int],
    partial: Mapping[str, frozenset[int]],
    truths: Sequence[Expression],
    bits: Mapping[Expression, Sequence[Expression]],
    words: Mapping[Place, Expression],
) -> Program:
    """The function that refuses rows where a truth is false or bits under a mask are not zero, and packs words.

    Parameters
    ----------
    algebra : Algebra
    cases : frozenset of int
        Those that the rows may have.
    partial : mapping
        Of columns that not every row has, the cases that have them.
    truths : sequence
    bits : mapping
        From masks to values.
    words : mapping
    """
    lowering = _Lowering(algebra, partial, cases)
    refusing = stacks([lowering.truth(truth) for truth in truths], "&")
    groups: dict[tuple[int, Expression], list[Expression]] = {}
    for mask, values in bits.items():
        for value in values:
            width = lowering.width(value)
            found = groups.setdefault((width, lowering.number(mask, width)), [])
            if (lowered := lowering.number(value, width)) not in found:
                found.append(lowered)
    looked_at = {key: stacks(values, "|") for key, values in groups.items()}
    filled = {
        place: stacks(
            [lowering.number(term, 64 if place[1] is None else HALF_BITS) for term in operands_of("|", expression)], "|"
        )
        for place, expression in words.items()
    }
    sequences = lowering.sequences()
    writer = _Writer(
        [*(mask for _, mask in sequences.values()), *refusing, *(part for (_, mask), values in looked_at.items() for part in (*values, mask)),
        *(term for terms in filled.values() for term in terms)]
    )  # fmt: skip
    if lowering.masks:
        writer.lines.append(f"{_PRESENT} = take(present_by_case, {CASE})")
        writer.columns.add(CASE)
    for name, (stand_in, mask) in sequences.items():
        writer.columns.add(name)
        writer.neutralise(name, stand_in, mask)
    writer.lines += ["kept = True", "wrong_32 = wrong_64 = 0"]
    for truth in refusing:
        writer.line("kept = kept & {}", truth)
    for (width, mask), values in looked_at.items():
        writer.chain("bits", values)
        writer.masked("bits", mask, width)
        writer.lines.append(f"wrong_{width} |= bits")
    for (word, half), terms in filled.items():
        writer.put(f"words[{word}]" if half is None else f"halves[{word}, {half}::2]", terms, whole=half is None)
    columns = tuple((name, lowering.entries.get(name, 0)) for name in sorted(writer.columns - {_PRESENT}))
    text = "\n    ".join(
        [
            f"def run(words, {', '.join(name for name, _ in columns)}):",
            "halves = words.view(int32)",
            *writer.lines,
            "return ~kept | (wrong_32 != 0) | (wrong_64 != 0)",
        ]
    )
    namespace: dict[str, Any] = {
        **writer.tables, "present_by_case": lowering.present_by_case(), "take": take, "number": number, "wide": wide,
        "narrow": narrow, "put": put, "put_both": np.bitwise_or, "int32": np.int32,
        "or_of": np.bitwise_or.reduce, "and_of": np.bitwise_and.reduce, "product_of": np.multiply.reduce,
    }  # fmt: skip
    exec(compile(text, "<tensor maps in columns>", "exec"), namespace)
    return Program(columns, 1 + max(word for word, _ in words), namespace["run"])


class _Lowering:
    """Gives every operation a width."""

    def __init__(self, algebra: Algebra, partial: Mapping[str, frozenset[int]], all_cases: frozenset[int]) -> None:
        self._bounds = algebra.bounds
        self._partial = partial
        self.all_cases = all_cases
        self.masks: dict[frozenset[int], int] = {}
        self.entries: dict[str, int] = {}
        self._stand_ins: dict[str, int] = {}

    def present_by_case(self) -> npt.NDArray[np.int32]:
        """Of every case, the bits of the masks that are set there."""
        bits = [sum(1 << bit for cases, bit in self.masks.items() if case in cases) for case in range(CASES)]
        return np.array(bits, np.int64).astype(np.int32)

    def width(self, node: Expression) -> int:
        """The bits that an expression is reckoned in."""
        if isinstance(node, tuple) and node[0] in ("+", "-", "*", "<<", ">>", "//", "%", "quotient", "take"):
            parts = operands(node) if node[0] != "take" else ()
            bounds = self._bounds(node)
            fits = bounds is not None and -(1 << 31) <= bounds[0] <= bounds[1] < 1 << 31
            return max([HALF_BITS if fits else 64, *(self.width(part) for part in parts)])
        if isinstance(node, str):
            return 64 if sequence_of(node)[0] in WIDE or node == CASE else HALF_BITS
        if isinstance(node, int):
            return HALF_BITS if -(1 << 31) <= node < 1 << 31 else 64
        if node[0] in ("base", "signed"):
            return self.width(node[1]) if node[0] == "base" else HALF_BITS
        return max([HALF_BITS, *(self.width(part) for part in operands(node) if not is_truth(node))])

    def truth(self, node: Expression) -> Expression:
        """An expression that is true or false."""
        if isinstance(node, bool):
            return node
        if node[0] == "take":
            return ("take", node[1], self.number(node[2], 64), 1)
        if node[0] in ("==", "!=") and node[2] == 0 and isinstance(node[1], tuple) and node[1][0] == "mask":
            return (node[0], ("&", _PRESENT, 1 << (HALF_BITS - 1 - self._shift(node[1][1]))), 0)
        if node[0] in COMPARISONS:
            width = max(self.width(part) for part in operands(node))
            return (node[0], *(self.number(part, width) for part in operands(node)))
        if node[0] == "select":
            mask, one, other = self._leaf(("mask", node[1])), *(self.truth(part) for part in operands(node))
            return ("|", ("&", one, ("!=", mask, 0)), ("&", other, ("==", mask, 0)))
        return (node[0], *(self.truth(part) for part in operands(node)))

    def _product(self, factors: Sequence[Expression]) -> Expression:
        """A product in 64 bits; the factors that are not worked out together are widened at the end."""
        wide = {self.number(factor, 64): factor for factor in factors}
        narrow = {low: ("wide", self.number(node, HALF_BITS)) for low, node in wide.items() if self.width(node) < 64}
        together = stacks([self.number(factor, 64) for factor in factors], "*")
        return reduce(lambda a, b: ("*", a, b), [narrow.get(factor, factor) for factor in together])

    def _either(self, node: Expression, width: int) -> Expression:
        """One of two numbers by the bits of a mask: numpy's own choice by truths guesses, and often wrong."""
        one, other = (self.number(part, width) for part in operands(node))
        return ("^", other, ("&", ("^", one, other), self.number(("mask", node[1]), width)))

    def number(self, node: Expression, width: int) -> Expression:
        """An expression in so many bits: of more, the lowest."""
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
            return (">>", ("<<", _PRESENT, self._shift(node[1])), 31)
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
        for name, count in sorted(self.entries.items(), key=lambda item: -item[1]):
            cases = [self._partial.get(f"{name}_{i}", self.all_cases) for i in range(count)]
            mask: Expression = -1
            if any(several != self.all_cases for several in cases):
                mask = self._masks(tuple(self._shift(several) for several in cases), name in WIDE, rows)
            found[name] = self._stand_ins[name], mask
        return found

    @staticmethod
    def _masks(shifts: tuple[int, ...], wide: bool, rows: list[tuple[int, ...]]) -> Expression:
        """The masks of several entries, or some of those that others have already."""
        for row in rows:
            for start in range(len(row) - len(shifts) + 1):
                if row[start : start + len(shifts)] == shifts:
                    return ("planes", _Lowering._masks_of(row, wide), start, start + len(shifts))
        rows.append(shifts)
        return _Lowering._masks_of(shifts, wide)

    @staticmethod
    def _masks_of(shifts: tuple[int, ...], wide: bool) -> Expression:
        mask = (">>", ("<<", _PRESENT, ("row", shifts, HALF_BITS)), 31)
        return ("wide", mask) if wide else mask


def stacks(nodes: Sequence[Expression], symbol: str) -> list[Expression]:
    """Operands of one operator, with those that differ by the entries of sequences worked out together.

    One call of numpy for several columns costs less than one for each.
    """
    alike: dict[Any, list[Expression]] = {}
    for node in nodes:
        alike.setdefault(_outline(node), []).append(node)
    found: list[Expression] = []
    for group in alike.values():
        together = _stacked(sorted(group, key=_first_entry)) if len(group) > 1 else None
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
    return int(node[2]) if node[0] == "entry" else min(map(_first_entry, _parts(node)))


def _stacked(nodes: Sequence[Expression]) -> Expression | None:
    """Expressions of the same outline as one over several entries; None where those do not follow each other."""
    first = nodes[0]
    if all(node == first for node in nodes):
        return first
    if not isinstance(first, tuple):
        return None  # numbers, which become a row beside what they belong to
    if first[0] == "entry":
        numbers = [node[2] for node in nodes]
        start = numbers[0]
        return ("entries", first[1], start, start + len(nodes)) if numbers == [*range(start, start + len(nodes))] else None
    if first[0] == "take":
        if first[2] == CASE:
            return ("takes", tuple(node[1] for node in nodes), CASE, first[3])
        index = _stacked([node[2] for node in nodes])
        return None if index is None else ("take", first[1], index, first[3])
    parts: list[Expression] = []
    for several in zip(*(node[1:] for node in nodes), strict=True):
        if all(isinstance(part, int) for part in several) and len(set(several)) > 1:
            width = next((w for part in first[1:] if (w := _lowered_width(part))), 64)
            parts.append(("row", several, width))
        else:
            parts.append(_stacked(several))
    return None if None in parts else (first[0], *parts)


def _lowered_width(node: Expression) -> int:
    """The bits of an expression that has them settled; 0 for a number, which adapts."""
    if isinstance(node, str):
        return 64 if node in WIDE or node == CASE else HALF_BITS
    if not isinstance(node, tuple):
        return 0
    if node[0] == "entry":
        return 64 if node[1] in WIDE else HALF_BITS
    if node[0] in ("wide", "narrow", "number"):
        return 64 if node[0] == "wide" else HALF_BITS
    return int(node[3]) if node[0] == "take" else max(map(_lowered_width, node[1:]))


def _parts(node: Expression) -> tuple[Expression, ...]:
    """The expressions that one with settled widths is made of."""
    match node[0]:
        case "take" | "takes" | "reduce":
            return (node[2],)
        case "planes":
            return (node[1],)
        case "entry" | "entries" | "row":
            return ()
    return tuple(node[1:])


class _Writer:
    """Lines of Python in which nothing is worked out twice, and every column is let go after its last use."""

    def __init__(self, roots: Sequence[Expression]) -> None:
        self.lines: list[str] = []
        self.tables: dict[str, npt.NDArray[Any]] = {}
        self.columns: set[str] = set()
        self._uses: Counter[Expression] = Counter()
        self._names: dict[Expression, str] = {}
        self._table_names: dict[Any, str] = {}
        self._spent: list[str] = []
        for root in roots:
            self._count(root)

    def _count(self, node: Expression) -> None:
        if isinstance(node, str):
            self.columns.add(node)
        if not isinstance(node, tuple):
            return
        self._uses[node] += 1
        if self._uses[node] == 1:
            for part in _parts(node):
                self._count(part)

    def line(self, form: str, *values: Expression) -> None:
        """A statement of some expressions, after those that name what they share."""
        self.lines.append(form.format(*(self._text(value) for value in values)))
        if self._spent:
            self.lines.append(f"del {', '.join(self._spent)}")
            self._spent.clear()

    def chain(self, name: str, values: Sequence[Expression]) -> None:
        """Statements that put the bits of several values together."""
        first, *others = values
        if not others:
            self.line(f"{name} = {{}}", first)
            return
        self.line(f"{name} = {{}} | {{}}", first, others[0])
        for value in others[1:]:
            self.line(f"{name} |= {{}}", value)

    def neutralise(self, name: str, stand_in: int, mask: Expression) -> None:
        """Statements that make a sequence what it holds more than its stand-in, where it is."""
        if stand_in:
            self.lines.append(f"{name} -= {self._constant(stand_in, 64 if name in WIDE else HALF_BITS)}")
        if not isinstance(mask, int):
            self.line(f"{name} &= {{}}", mask)

    def masked(self, name: str, mask: Expression, width: int) -> None:
        """A statement that leaves the bits of a mask."""
        if isinstance(mask, int):
            self.lines.append(f"{name} = {name} & {self._constant(mask, width)}")
        else:
            self.line(f"{name} = {name} & {{}}", mask)

    def put(self, place: str, terms: Sequence[Expression], whole: bool) -> None:
        """Statements that put terms together and into a word or a half of one."""
        if len(terms) == 1:
            term = terms[0][1] if isinstance(terms[0], tuple) and terms[0][0] in ("wide", "narrow") else terms[0]
            self.line(f"put({place}, {{}})", term)  # which widens and narrows on the way
        elif whole:
            self.line(f"word = put_both({{}}, {{}}, {place})", *terms[:2])
            for term in terms[2:]:
                self.line("word |= {}", term)
        else:
            self.chain("word", terms)
            self.lines.append(f"put({place}, word)")

    def _text(self, node: Expression) -> str:
        if not isinstance(node, tuple):
            return str(node)
        if node not in self._names:
            text = self._operation(node)
            if self._uses[node] == 1:
                return text
            self._names[node] = f"x{len(self._names)}"
            self.lines.append(f"{self._names[node]} = {text}")
        self._uses[node] -= 1
        if not self._uses[node]:
            self._spent.append(self._names[node])
        return self._names[node]

    def _operation(self, node: Expression) -> str:
        symbol = node[0]
        texts = [self._text(part) for part in _parts(node)]
        if symbol == "take":
            return f"take({self._table(node[1], node[3])}, {texts[0]})"
        if symbol == "takes":
            name = self._table(node[1], node[3])
            return f"{name}.take({texts[0]}, axis=1)"
        if symbol == "row":
            return self._table(tuple((number,) for number in node[1]), node[2])
        if symbol == "entry":
            return f"{node[1]}[{node[2]}]"
        if symbol == "planes":
            return f"{texts[0]}[{node[2]}:{node[3]}]"
        if symbol == "entries":
            return f"{node[1]}[{node[2]}:{node[3]}]"
        if symbol == "reduce":
            return f"{ {'|': 'or_of', '&': 'and_of', '*': 'product_of'}[node[1]]}({texts[0]})"
        if symbol in ("wide", "narrow", "number"):
            return f"{symbol}({', '.join(texts)})"
        for i, (side, other) in enumerate(zip(node[1:], node[:0:-1], strict=True)):
            if type(side) is int and not isinstance(other, int):
                texts[i] = self._constant(side, _lowered_width(other))
        return f"({texts[0]} {'//' if symbol == 'quotient' else symbol} {texts[1]})"

    def _constant(self, value: int, width: int) -> str:
        """A number as an array, which numpy takes twice as fast as an int."""
        return self._table(value, width) if width else str(value)


    def _table(self, values: Any, width: int) -> str:
        name = self._table_names.setdefault((values, width), f"table_{len(self._table_names)}")
        self.tables[name] = np.array(values, {1: np.bool_, 32: np.int32, 64: np.int64}[width])
        return name


def take(table: npt.NDArray[Any], index: Any) -> Any:
    """Entries of a table; numbers outside it take the nearest, as another rule refuses them."""
    if isinstance(index, int):
        return table[min(max(index, 0), len(table) - 1)].item()
    return table.take(index, mode="clip")


def number(truth: Any) -> Any:
    """1 for true, 0 for false."""
    return truth.astype(np.int32) if isinstance(truth, np.ndarray) else int(truth)


def wide(value: Any) -> Any:
    """The same in 64 bits."""
    return value.astype(np.int64) if isinstance(value, np.ndarray) else value


def narrow(value: Any) -> Any:
    """The lowest 32 bits."""
    return value.astype(np.int32) if isinstance(value, np.ndarray) else value


def put(into: npt.NDArray[Any], value: Any) -> None:
    """Fill in words or halves of words, which take the lowest bits."""
    np.copyto(into, value, casting="unsafe")
