"""From expressions to a Python function over numpy columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.tensormap.columns import WIDE
from cupytma.tensormap.expressions import CASE, Expression, operands_of
from cupytma.tensormap.lowering import PRESENT, Lowering
from cupytma.tensormap.stacking import HALF_BITS, parts, settled_width, stacks

_REDUCTIONS = {"|": "or_of", "&": "and_of", "*": "product_of"}

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
    lowering: Lowering,
    truths: Sequence[Expression],
    bits: Mapping[Expression, Sequence[Expression]],
    words: Mapping[Place, Expression],
) -> Program:
    """The function that refuses rows where a truth is false or bits under a mask are not zero, and packs words.

    Parameters
    ----------
    lowering : Lowering
    truths : sequence of expressions
    bits : mapping
        From masks to the values that must have none of their bits.
    words : mapping
        From places to what is put there.
    """
    refusing = stacks([lowering.truth(truth) for truth in truths], "&")
    looked_at = {key: stacks(values, "|") for key, values in _by_mask_and_width(lowering, bits).items()}
    filled = {
        (word, half): stacks(
            [lowering.number(term, 64 if half is None else HALF_BITS) for term in operands_of("|", expression)], "|"
        )
        for (word, half), expression in words.items()
    }
    sequences = lowering.sequences()
    writer = _Writer(
        [
            *(mask for _, mask in sequences.values()),
            *refusing,
            *(part for (_, mask), values in looked_at.items() for part in (*values, mask)),
            *(term for terms in filled.values() for term in terms),
        ]
    )
    writer.begin(sequences, masks=bool(lowering.masks))
    for truth in refusing:
        writer.line("kept = kept & {}", truth)
    for (width, mask), values in looked_at.items():
        writer.chain("bits", values)
        writer.masked("bits", mask, width)
        writer.lines.append(f"wrong_{width} |= bits")
    for (word, half), terms in filled.items():
        writer.put(f"words[{word}]" if half is None else f"halves[{word}, {half}::2]", terms, whole=half is None)
    columns = tuple((name, lowering.entries.get(name, 0)) for name in sorted(writer.columns - {PRESENT}))
    run = writer.function([name for name, _ in columns], {"present_by_case": lowering.present_by_case()})
    return Program(columns, 1 + max(word for word, _ in words), run)


def _by_mask_and_width(
    lowering: Lowering, bits: Mapping[Expression, Sequence[Expression]]
) -> dict[tuple[int, Expression], list[Expression]]:
    """Values that are looked at together, settled."""
    found: dict[tuple[int, Expression], list[Expression]] = {}
    for mask, values in bits.items():
        for value in values:
            width = lowering.width(value)
            group = found.setdefault((width, lowering.number(mask, width)), [])
            if (settled := lowering.number(value, width)) not in group:
                group.append(settled)
    return found


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
            for part in parts(node):
                self._count(part)

    def begin(self, sequences: Mapping[str, tuple[int, Expression]], masks: bool) -> None:
        """Statements that prepare the columns."""
        if masks:
            self.lines.append(f"{PRESENT} = take(present_by_case, {CASE})")
            self.columns.add(CASE)
        for name, (stand_in, mask) in sequences.items():
            self.columns.add(name)
            self._neutralise(name, stand_in, mask)
        self.lines += ["halves = words.view(int32)", "kept = True", "wrong_32 = wrong_64 = 0"]

    def function(self, columns: Sequence[str], more: Mapping[str, Any]) -> Callable[..., npt.NDArray[np.bool_]]:
        """The function of all statements."""
        lines = [
            f"def run(words, {', '.join(columns)}):", *self.lines, "return ~kept | (wrong_32 != 0) | (wrong_64 != 0)"
        ]
        namespace: dict[str, Any] = {
            **self.tables, **more, "take": take, "number": number, "wide": wide, "narrow": narrow, "put": put,
            "put_both": np.bitwise_or, "or_of": np.bitwise_or.reduce, "and_of": np.bitwise_and.reduce,
            "product_of": np.multiply.reduce, "int32": np.int32,
        }  # fmt: skip
        exec(compile("\n    ".join(lines), "<tensor maps in columns>", "exec"), namespace)
        run: Callable[..., npt.NDArray[np.bool_]] = namespace["run"]
        return run

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

    def _neutralise(self, name: str, stand_in: int, mask: Expression) -> None:
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
        texts = [self._text(part) for part in parts(node)]
        match node:
            case ("take", values, _, width):
                return f"take({self._table(values, width)}, {texts[0]})"
            case ("takes", tables, _, width):
                return f"{self._table(tables, width)}.take({texts[0]}, axis=1)"
            case ("row", numbers, width):
                return self._table(tuple((number,) for number in numbers), width)
            case ("entry", name, i):
                return f"{name}[{i}]"
            case ("entries", name, i, j):
                return f"{name}[{i}:{j}]"
            case ("planes", _, i, j):
                return f"{texts[0]}[{i}:{j}]"
            case ("reduce", over, _):
                return f"{_REDUCTIONS[over]}({texts[0]})"
            case (("wide" | "narrow" | "number"), _):
                return f"{symbol}({texts[0]})"
        for i, (side, other) in enumerate(zip(node[1:], node[:0:-1], strict=True)):
            if type(side) is int and not isinstance(other, int):
                texts[i] = self._constant(side, settled_width(other))
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
