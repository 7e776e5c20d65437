"""One function per target that checks and packs columns of parameters of all kinds and ranks, made from the two tables.

It is the tables' expressions again, rearranged for numpy: columns that a row does not have are made what no rule
objects to; what occurs twice is worked out once; ranges that are powers of two become bits that must be zero, gathered
and looked at once; masks that a rule makes needless go; and expressions of a few small operands become look-ups.

Where all rows are of one kind and rank, the same is made for those alone, and is shorter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from typing import Any

from cupytma.targets import TARGETS
from cupytma.tensormap import checking, codec
from cupytma.tensormap.columns import WIDE
from cupytma.tensormap.expressions import (
    CASE,
    CASES,
    RANKS_APART,
    Algebra,
    Bounds,
    Expression,
    by_case,
    decided_by_case,
    in_case,
    is_dear,
    names,
)
from cupytma.tensormap.fields import RANKS, BitField, fields_of
from cupytma.tensormap.lowering import Lowering
from cupytma.tensormap.resolving import Resolver, sequence_of
from cupytma.tensormap.rule import DERIVED, FULL_RANK, MODES, SEQUENCES, entries
from cupytma.tensormap.stacking import HALF_BITS
from cupytma.tensormap.writing import Place, Program, written

_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.LShift: "<<", ast.RShift: ">>",
    ast.FloorDiv: "//", ast.Mod: "%", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=",
}  # fmt: skip
_LOOKUPS = {**checking.LOOKUPS, **codec.LOOKUPS}
_RANK_OF_CASE = ("take", tuple(case % RANKS_APART for case in range(CASES)), CASE)

# What tells the expressions of a program apart: the rule and its index, or the place in the word.
Key = tuple[Any, ...]
Cases = frozenset[int]


@cache
def program(target: str, case: int | None = None) -> Program | None:
    """The function for rows of one case, or of any; None where every row of the case is refused."""
    cases = [
        kind * RANKS_APART + rank
        for kind, mode in enumerate(MODES)
        for rank in RANKS[checking.layout_of(mode, TARGETS[target])]
        if case in (None, kind * RANKS_APART + rank)
    ]
    if not cases:
        return None
    return _Table(target, cases).program()


class _Kind:
    """Expressions of the tables for one kind, with the rank left open."""

    def __init__(self, kind: str, target: str, algebra: Algebra) -> None:
        self._algebra = algebra
        self._resolver = _AllRanks(kind, FULL_RANK, target)
        self._derived: dict[str, Expression] = {}
        for name, text, kinds in DERIVED:
            if kind in kinds:
                body = self._resolver(text)
                if isinstance(body, ast.Tuple):
                    self._derived.update({f"{name}_{i}": self._read(entry) for i, entry in enumerate(body.elts)})
                else:
                    self._derived[name] = self._read(body)

    def expression(self, text: str) -> Expression:
        """An expression of the tables, down to columns."""
        return self._read(self._resolver(text))

    def _read(self, node: ast.expr) -> Expression:
        made = self._algebra.made
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id="rank"):
                return _RANK_OF_CASE
            case ast.Name(id=name):
                return self._derived.get(name, name)
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return made(_SYMBOLS[type(op)], self._read(left), self._read(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return made("-", 0, self._read(operand))
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._algebra.taken(_LOOKUPS[name], self._read(index))
            case ast.Call(func=ast.Name(id="quotient"), args=[dividend, divisor]):
                return made("quotient", self._read(dividend), self._read(divisor))
        raise AssertionError(f"the tables have no {ast.unparse(node)}")


class _AllRanks(Resolver):
    """Leaves the rank open, and has every entry of a sequence."""

    def __init__(self, kind: str, rank: int, target: str) -> None:
        super().__init__(MODES[0], rank, target)
        self._constants = {**Resolver(kind, rank, target)._constants}
        del self._constants["rank"]


class _Table:
    """The rules and the words of rows of some cases."""

    def __init__(self, target: str, cases: Sequence[int]) -> None:
        self._cases = cases
        self._plain = Algebra()  # knows no ranges, and so does not do away with the rules that they come from
        self._algebra = Algebra()
        self._clauses: dict[Key, dict[Cases, Expression]] = {}  # of rules, for the cases of each kind
        self._applied: dict[Key, set[int]] = {}  # the cases that a clause can refuse
        self._terms: dict[Key, dict[Cases, Expression]] = {}  # of fields
        self._placed: dict[Key, dict[int, BitField]] = {}  # where a field lies, by case
        self._present: dict[str, set[int]] = {}  # the cases that have a column
        self._stand_ins: dict[int, dict[str, int]] = {}  # what the columns are that a case does not have
        self._refused = False
        for number, kind in enumerate(MODES):
            own = frozenset(case for case in cases if case // RANKS_APART == number)
            if own:
                self._read(_Kind(kind, target, self._plain), kind, target, own)
        self._ranges()
        for case, stand_ins in self._stand_ins.items():
            for name, having in self._present.items():
                if case not in having:
                    stand_ins[name] = self._stand_in(name)

    def _read(self, table: _Kind, kind: str, target: str, own: Cases) -> None:
        """The expressions of one kind, and which columns they name in which case."""
        layout = checking.layout_of(kind, TARGETS[target])
        for case in own:
            self._stand_ins[case] = {
                f"{name}_{i}": stand_in
                for name, (_, stand_in) in SEQUENCES.items()
                for i in range(entries(name, kind, case % RANKS_APART), FULL_RANK)
            }
        for rule in checking.rules_for(kind, target, "error"):
            for i, text in zip(rule.indices(FULL_RANK), checking.clauses(rule, FULL_RANK), strict=True):
                node, key = table.expression(text), (rule.id, i)
                for case in own:
                    if i in rule.indices(case % RANKS_APART) and self._settled(node, case) is not True:
                        self._applied.setdefault(key, set()).add(case)
                        self._note(self._settled(node, case), case)
                        self._clauses.setdefault(key, {})[own] = node
        for case in own:
            for field in fields_of(layout, case % RANKS_APART):
                if text := codec.value_text(field, layout):
                    place = (field.word, field.name, field.index, field.shift)
                    self._placed.setdefault(place, {})[case] = field
                    node = self._terms.setdefault(place, {}).setdefault(own, table.expression(text))
                    self._note(self._settled(node, case), case)

    def _note(self, node: Expression, case: int) -> None:
        for name in names(node):
            self._present.setdefault(name, set()).add(case)

    def _settled(self, node: Expression, case: int) -> Expression:
        return self._plain.settled(node, case, self._stand_ins[case])

    def _ranges(self) -> None:
        """What columns lie between, where that is known for every case that has them."""
        found: dict[str, dict[int, Bounds]] = {}
        for key, parts in self._clauses.items():
            for own, node in parts.items():
                for case in own & self._applied[key]:
                    settled = self._settled(node, case)
                    self._refused |= settled is False
                    if (span := _span(settled)) and isinstance(span[0], str):
                        found.setdefault(span[0], {})[case] = span[1:]
        for name, bounds in found.items():
            if bounds.keys() == self._present[name]:
                self._algebra.ranges[name] = min(b[0] for b in bounds.values()), max(b[1] for b in bounds.values())

    def _stand_in(self, name: str) -> int:
        """What columns hold that a row does not have."""
        sequence, entry = sequence_of(name)
        if entry is not None:
            return SEQUENCES[sequence][1]
        return self._algebra.ranges.get(name, (0, 0))[0]

    def program(self) -> Program | None:
        """The function; None where every row is refused."""
        if self._refused and len(self._cases) == 1:
            return None
        algebra = self._algebra
        bits: dict[Expression, list[Expression]] = {}
        truths: list[Expression] = []
        if len(self._cases) > 1:
            truths.append(("!=", ("mask", frozenset(self._cases)), 0))
        for key, parts in self._clauses.items():
            clause, applied = self._joined(parts), frozenset(self._applied[key])
            elsewhere = any(self._settled(clause, case) is not True for case in self._cases if case not in applied)
            found = _zero_bits(clause, self._plain)
            if found is None:  # a range is what the simplifications rest on, and stays as it is
                span = _span(clause)
                truth = self._shielded(clause if span else algebra.simplified(clause), self._plain if span else algebra)
                truths.append(algebra.made("|", truth, ("==", ("mask", applied), 0)) if elsewhere else truth)
            else:
                value, mask = (self._shielded(algebra.simplified(part), algebra) for part in found)
                bits.setdefault(("&", mask, ("mask", applied)) if elsewhere else mask, []).append(value)
        words = {place: self._shielded(self._packed(terms), algebra) for place, terms in self._words().items()}
        partial = {name: frozenset(cases) for name, cases in self._present.items() if len(cases) < len(self._cases)}
        lowering = Lowering(algebra, partial, frozenset(self._cases))
        return written(lowering, [truth for truth in truths if truth is not True], bits, words)

    def _joined(self, parts: dict[Cases, Expression]) -> Expression:
        """One expression for all the cases."""
        joined = self._plain.joined(parts)
        return joined if len(self._cases) > 1 else self._settled(joined, self._cases[0])

    def _words(self) -> dict[Place, list[Expression]]:
        """The fields in place: by word where all come from 64-bit operands or fill one, else by half."""
        found: dict[Place, list[Expression]] = {}
        made = self._algebra.made
        split = {key[0] for key, parts in self._terms.items() if not self._fills_words(key, parts.values())}
        for key, parts in self._terms.items():
            placed = self._placed[key]
            halves = {field.low // HALF_BITS for field in placed.values()}
            assert len(halves) == 1, f"{key} lies in either half of its word, by rank"
            whole = key[0] not in split
            unit = 64 if whole else HALF_BITS
            mask = by_case({case: (1 << field.width) - 1 for case, field in placed.items()})
            low = by_case({case: field.low % unit for case, field in placed.items()})
            value = self._joined(parts)
            value = value if mask == (1 << 64) - 1 else made("&", value, mask)
            term = made("<<", value, low)
            if len(self._cases) == 1:
                term = self._settled(term, self._cases[0])
            elif any(self._settled(term, case) != 0 for case in self._cases if case not in placed):
                term = made("&", term, ("mask", frozenset(placed)))
            found.setdefault((key[0], None if whole else halves.pop()), []).append(term)
        return found

    def _fills_words(self, key: Key, values: Iterable[Expression]) -> bool:
        """Whether a field is one of more than half a word, or one of 64-bit operands."""
        if any(field.width > HALF_BITS for field in self._placed[key].values()):
            return True
        found = {sequence_of(name)[0] for node in values for name in names(node)}
        return bool(found) and found <= WIDE

    def _packed(self, terms: Sequence[Expression]) -> Expression:
        """Fields put together: those that the same operand decides are looked up together."""
        parts: dict[Any, list[Expression]] = {}
        for term in terms:
            group = "case" if decided_by_case(term) else frozenset(names(term)) if is_dear(term) else term
            parts.setdefault(group, []).append(term)
        made = self._algebra.made
        joined = [reduce(lambda a, b: made("|", a, b), several) for several in parts.values()]
        return reduce(lambda a, b: made("|", a, b), [self._algebra.simplified(term) for term in joined])

    def _shielded(self, node: Expression, algebra: Algebra) -> Expression:
        """The same, with columns as what they hold more than their stand-in."""
        if isinstance(node, str):
            stand_in = self._stand_in(node)
            partial = len(self._present.get(node, self._cases)) < len(self._cases)
            return algebra.made("+", ("base", node, stand_in), stand_in) if partial or stand_in else node
        return algebra.remade(node, lambda part: self._shielded(part, algebra))


def _span(clause: Expression) -> tuple[Expression, Any, Any] | None:
    """Of a clause that only keeps a value between two numbers, the value and its least and greatest."""
    match clause:
        case ("&", ("<=", low, value), (("<=" | "<") as symbol, other, high)) if value == other:
            if isinstance(low, int) and isinstance(high, int):
                return value, low, high - (symbol == "<")
    return None


def _zero_bits(clause: Expression, algebra: Algebra) -> tuple[Expression, Expression] | None:
    """Of a clause that is kept where some bits of a value are zero, the value and the mask of those bits."""
    match clause:
        case ("&", ("<=", low, value), (("<=" | "<") as symbol, other, high)) if value == other:
            if decided_by_case(low) and decided_by_case(high):
                size = algebra.made("+", algebra.made("-", high, low), int(symbol == "<="))
                sizes = {in_case(size, case) for case in range(CASES)}
                if all(size > 0 and size & (size - 1) == 0 for size in sizes):
                    return algebra.made("-", value, low), algebra.made("-", 0, size)
        case ("==", ("&", value, mask), 0):
            return value, mask
    return None
