"""One function per kind, rank and target that checks and packs columns of parameters, made from the two tables.

It is the tables' expressions again, rearranged for numpy: what occurs twice is worked out once; ranges that are powers
of two become bits that must be zero, gathered and looked at once; masks that a rule makes needless go; and expressions
of a few small operands become look-ups.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.targets import TARGETS
from cupytma.tensormap import checking, codec
from cupytma.tensormap.fields import RANKS, WORDS
from cupytma.tensormap.resolving import Resolver
from cupytma.tensormap.rule import DERIVED

# An expression: a number, the name of a column, or a symbol with its operands. ``("take", values, index)`` looks up.
Expression = Any
Bounds = tuple[int, int]

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_,
    "<<": operator.lshift, ">>": operator.rshift, "//": operator.floordiv, "%": operator.mod,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "quotient": lambda dividend, divisor: dividend // np.maximum(divisor, 1),
    "take": lambda values, index: np.take(values, index, mode="clip"),
}  # fmt: skip
_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.LShift: "<<", ast.RShift: ">>",
    ast.FloorDiv: "//", ast.Mod: "%", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=",
}  # fmt: skip
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_LOOKUPS = {**checking.LOOKUPS, **codec.LOOKUPS}
# Tables of more bits than this would not stay in the nearest cache.
_TABLE_BITS = 12


@dataclass(frozen=True)
class Program:
    """Checks and packs columns.

    Attributes
    ----------
    columns : tuple of str
        The operands it takes, in order, each entry of a sequence by itself as ``global_dim_0``: columns of int64, or
        one int for all rows. Unsigned values of 2^63 and above wrap to negative ones, which break the same rule;
        products that wrap have a factor that breaks its own.
    words : tuple of int
        The words it fills; the others are zero.
    run : callable
        Takes the columns; returns which rows are refused and the values of the words, which mean nothing for those.
    """

    columns: tuple[str, ...]
    words: tuple[int, ...]
    run: Callable[..., tuple[Any, tuple[Any, ...]]]


@cache
def program(kind: str, rank: int, target: str) -> Program | None:
    """The function for maps of a kind and rank; None where every one of them is refused."""
    layout = checking.layout_of(kind, TARGETS[target])
    if rank not in RANKS[layout]:
        return None
    table = _Table(kind, rank, target)
    clauses = [
        clause
        for rule in checking.rules_for(kind, target, "error")
        for text in checking.clauses(rule, rank)
        if (clause := table.expression(text)) is not True
    ]
    if False in clauses:
        return None
    for clause in clauses:
        if (span := _span(clause)) and isinstance(span[0], str):
            table.ranges[span[0]] = span[1]
    bits: dict[Expression, list[Expression]] = {}
    truths = []
    for clause in clauses:
        found = _zero_bits(clause)
        if found is None:  # a range is what the simplifications rest on, and stays as it is
            truths.append(clause if _span(clause) else table.simplified(clause))
        else:
            value, mask = (table.simplified(part) for part in found)
            if value not in bits.setdefault(mask, []):
                bits[mask].append(value)
    words = {
        word: table.packed(text) for word in range(WORDS) if (text := codec.word_text(layout, rank, word))
    }
    return _compiled([t for t in truths if t is not True], bits, words)


class _Table:
    """Expressions of the tables for one kind, rank and target."""

    def __init__(self, kind: str, rank: int, target: str) -> None:
        self.ranges: dict[str, Bounds] = {}  # of columns, in rows that keep the rules
        self._resolver = Resolver(kind, rank, target)
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
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._derived.get(name, name)
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._made(_SYMBOLS[type(op)], self._read(left), self._read(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._made("-", 0, self._read(operand))
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._made("take", _LOOKUPS[name], self._read(index))
            case ast.Call(func=ast.Name(id="quotient"), args=[dividend, divisor]):
                return self._made("quotient", self._read(dividend), self._read(divisor))
        raise AssertionError(f"the tables have no {ast.unparse(node)}")

    def simplified(self, node: Expression) -> Expression:
        """The same by what the rules say of the columns, with look-ups where they are cheaper."""
        return self._with_tables(self._reduced(node))

    def _reduced(self, node: Expression) -> Expression:
        if not isinstance(node, tuple):
            return node
        symbol, left, right = node
        return self._made(symbol, left if symbol == "take" else self._reduced(left), self._reduced(right))

    def _with_tables(self, node: Expression) -> Expression:
        if not isinstance(node, tuple):
            return node
        if (found := self._tabulated(node)) is not None:
            return found
        symbol, left, right = node
        return self._made(symbol, left if symbol == "take" else self._with_tables(left), self._with_tables(right))

    def packed(self, text: str) -> Expression:
        """A word: fields that the same operand decides are looked up together."""
        parts: dict[Any, list[Expression]] = {}
        for term in _operands_of("|", self.expression(text)):
            names = frozenset(_names(term))
            parts.setdefault(names if _is_dear(term) else term, []).append(term)
        joined = [reduce(lambda a, b: self._made("|", a, b), terms) for terms in parts.values()]
        return reduce(lambda a, b: self._made("|", a, b), [self.simplified(term) for term in joined])

    def _made(self, symbol: str, left: Expression, right: Expression) -> Expression:
        """An operation, or what it comes to."""
        if symbol == "quotient" and right in (0, 1) and not isinstance(right, bool):
            return left
        if symbol == "take":
            return (symbol, left, right)
        if not isinstance(left, (str, tuple)) and not isinstance(right, (str, tuple)):
            found = _OPERATORS[symbol](left, right)
            return found if isinstance(found, bool) else int(found)
        if symbol in ("&", "|"):
            for side, other in ((left, right), (right, left)):
                if isinstance(side, bool):
                    return other if side == (symbol == "&") else side
                if side == 0 and symbol == "|":
                    return other
        if right == {"+": 0, "-": 0, "<<": 0, ">>": 0, "*": 1}.get(symbol):
            return left
        if symbol == "//" and isinstance(right, int) and right & (right - 1) == 0:
            return self._made(">>", left, right.bit_length() - 1)
        bounds, limits = self._bounds(left), self._bounds(right)
        if symbol in _COMPARISONS and bounds and limits:
            return _settled(symbol, bounds, limits, (symbol, left, right))
        if symbol == "&" and bounds and isinstance(right, int) and not right & (right + 1) and bounds[0] >= 0:
            return left if bounds[1] <= right else (symbol, left, right)
        return (symbol, left, right)

    def _bounds(self, node: Expression) -> Bounds | None:
        """Between what an expression lies in rows that keep the rules."""
        if isinstance(node, int):
            return int(node), int(node)
        if isinstance(node, str):
            return self.ranges.get(node)
        symbol, left, right = node
        if symbol == "take":
            reached = self._bounds(right) or (0, len(left) - 1)
            values = left[max(0, reached[0]) : reached[1] + 1]
            return (min(values), max(values)) if values else None
        bounds = self._bounds(left)
        if bounds and isinstance(right, int) and symbol in ("+", "-", ">>", "<<"):
            return _OPERATORS[symbol](bounds[0], right), _OPERATORS[symbol](bounds[1], right)
        return None

    def _tabulated(self, node: Expression) -> Expression | None:
        """A dear expression of few bits as a look-up."""
        names = sorted(_names(node))
        if not names or any(name not in self.ranges for name in names) or _is_truth(node):
            return None
        if not (_is_dear(node) if len(names) == 1 else _is_dear(node, looking_up=False)):
            return None
        widths = [(high - low).bit_length() for low, high in (self.ranges[name] for name in names)]
        if sum(widths) > _TABLE_BITS:
            return None
        index: Expression = 0
        entries = np.arange(1 << sum(widths))
        values: dict[str, Any] = {}
        for name, width in zip(names, widths, strict=True):
            low = self.ranges[name][0]
            index = self._made("|", self._made("<<", index, width), self._made("-", name, low))
        for name, width in zip(reversed(names), reversed(widths), strict=True):
            values[name] = (entries & ((1 << width) - 1)) + self.ranges[name][0]
            entries = entries >> width
        highest = self.ranges[names[0]][1] - self.ranges[names[0]][0] + 1 if len(names) == 1 else None
        return ("take", tuple(_value(node, values).tolist())[:highest], index)


def _value(node: Expression, values: dict[str, Any]) -> Any:
    """What an expression comes to."""
    if isinstance(node, str):
        return values[node]
    if not isinstance(node, tuple):
        return node
    symbol, left, right = node
    return _OPERATORS[symbol](left if symbol == "take" else _value(left, values), _value(right, values))


def _names(node: Expression) -> set[str]:
    """The columns of an expression."""
    if isinstance(node, str):
        return {node}
    if not isinstance(node, tuple):
        return set()
    return _names(node[2]) if node[0] == "take" else _names(node[1]) | _names(node[2])


def _is_truth(node: Expression) -> bool:
    if isinstance(node, tuple) and node[0] in ("&", "|"):
        return _is_truth(node[1]) and _is_truth(node[2])
    return isinstance(node, bool) or (isinstance(node, tuple) and node[0] in _COMPARISONS)


def _is_dear(node: Expression, looking_up: bool = True) -> bool:
    """Whether an expression has a quotient, reckons with a truth, or looks something up."""
    if not isinstance(node, tuple):
        return False
    symbol, left, right = node
    if symbol == "take":
        return looking_up or _is_dear(right, looking_up)
    mixed = symbol not in _COMPARISONS and _is_truth(left) != _is_truth(right)
    return symbol == "quotient" or mixed or _is_dear(left, looking_up) or _is_dear(right, looking_up)


def _settled(symbol: str, bounds: Bounds, limits: Bounds, otherwise: Expression) -> Expression:
    """A comparison that comes out alike at all corners of two ranges, or as it was."""
    if symbol in ("==", "!="):
        return symbol == "!=" if bounds[1] < limits[0] or limits[1] < bounds[0] else otherwise
    found = {_OPERATORS[symbol](a, b) for a in bounds for b in limits}
    return found.pop() if len(found) == 1 else otherwise


def _operands_of(symbol: str, node: Expression) -> Iterator[Expression]:
    if isinstance(node, tuple) and node[0] == symbol:
        yield from _operands_of(symbol, node[1])
        yield from _operands_of(symbol, node[2])
    else:
        yield node


def _span(clause: Expression) -> tuple[Expression, Bounds] | None:
    """Of a clause that only keeps a value between two numbers, the value and its least and greatest."""
    match clause:
        case ("&", ("<=", int(low), value), (("<=" | "<") as symbol, other, int(high))) if value == other:
            return value, (low, high - (symbol == "<"))
    return None


def _zero_bits(clause: Expression) -> tuple[Expression, Expression] | None:
    """Of a clause that is kept where some bits of a value are zero, the value and the mask of those bits."""
    if span := _span(clause):
        value, (low, high) = span
        size = high - low + 1
        return None if size & (size - 1) else (("-", value, low) if low else value, -size)
    match clause:
        case ("==", ("&", value, mask), 0):
            return value, mask
    return None


# --- from expressions to Python ---------------------------------------------------------------------------------------


def _compiled(
    truths: Sequence[Expression], bits: dict[Expression, list[Expression]], words: dict[int, Expression]
) -> Program:
    terms = {word: list(_operands_of("|", expression)) for word, expression in words.items()}
    looked_at = [part for mask, values in bits.items() for part in (mask, *values)]
    writer = _Writer([*truths, *looked_at, *(term for several in terms.values() for term in several)])
    columns = tuple(sorted(writer.columns))
    writer.lines += ["kept = True", "wrong = 0"]
    for truth in truths:
        writer.line("kept &= {}", truth)
    for mask, values in bits.items():
        first, *others = values
        if not others:
            writer.line("wrong |= {} & {}", first, mask)
            continue
        writer.line("bits = {} | {}", first, others[0])
        for value in others[1:]:
            writer.line("bits |= {}", value)
        writer.line("bits &= {}", mask)
        writer.lines.append("wrong |= bits")
    for word, (first, *others) in terms.items():
        if not others:
            writer.line(f"word_{word} = {{}}", first)
            continue
        writer.line(f"word_{word} = {{}} | {{}}", first, others[0])
        for value in others[1:]:
            writer.line(f"word_{word} |= {{}}", value)
    results = "".join(f"word_{word}, " for word in words)
    text = "\n    ".join(
        [f"def run({', '.join(columns)}):", *writer.lines, f"return (kept ^ True) | (wrong != 0), ({results})"]
    )
    namespace: dict[str, Any] = {**writer.tables, "take": take, "number": number}
    exec(compile(text, "<tensor maps in columns>", "exec"), namespace)
    return Program(columns, tuple(words), namespace["run"])


class _Writer:
    """Lines of Python in which nothing is worked out twice, and every column is let go after its last use."""

    def __init__(self, roots: Sequence[Expression]) -> None:
        self.lines: list[str] = []
        self.tables: dict[str, npt.NDArray[np.int64]] = {}
        self.columns: set[str] = set()
        self._uses: Counter[Expression] = Counter()
        self._names: dict[Expression, str] = {}
        self._table_names: dict[tuple[int, ...], str] = {}
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
            if node[0] != "take":
                self._count(node[1])
            self._count(node[2])

    def line(self, form: str, *values: Expression) -> None:
        """A statement of some expressions, after those that name what they share."""
        self.lines.append(form.format(*(self._text(value) for value in values)))
        if self._spent:
            self.lines.append(f"del {', '.join(self._spent)}")
            self._spent.clear()

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
        symbol, left, right = node
        if symbol == "take":
            name = self._table_names.setdefault(left, f"table_{len(self._table_names)}")
            self.tables[name] = np.array(left, np.int64)
            return f"take({name}, {self._text(right)})"
        if symbol == "quotient":
            return f"({self._text(left)} // {self._text(right)})"
        reckons = symbol not in _COMPARISONS and not (_is_truth(left) and _is_truth(right))
        texts = [
            f"number({self._text(side)})" if reckons and _is_truth(side) else self._text(side) for side in (left, right)
        ]
        return f"({texts[0]} {symbol} {texts[1]})"


def take(table: npt.NDArray[np.int64], index: Any) -> Any:
    """Entries of a table; numbers outside it take the nearest, as another rule refuses them."""
    if isinstance(index, int):
        return int(table[min(max(index, 0), len(table) - 1)])
    return table.take(index, mode="clip")


def number(truth: Any) -> Any:
    """1 for true, 0 for false."""
    return truth.astype(np.int64) if isinstance(truth, np.ndarray) else int(truth)
