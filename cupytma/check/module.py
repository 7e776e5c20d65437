"""PTX as modules, functions and statements: names resolved within their scopes, places in the user's source kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from cupytma.check.lexer import Piece, pieces

SourcePlace = tuple[int, int, int]  # file number, line, column
Chain = tuple[SourcePlace, ...]  # a place, and the places where the functions that it is in are inlined, inside out


@dataclass(frozen=True)
class Variable:
    """Something with an address: a variable of a state space, or a parameter.

    Attributes
    ----------
    name : str
    space : str
        Such as ``"shared"`` or ``"param"``.
    alignment : int
        In bytes.
    size : int or None
        In bytes; None where the declaration does not say.
    is_extern : bool
    type : str
        Of an element, such as ``"b8"``.
    is_array : bool
    """

    name: str
    space: str
    alignment: int
    size: int | None
    is_extern: bool
    type: str
    is_array: bool


class Statement:
    """One instruction of a function's body.

    Attributes
    ----------
    index : int
        Its place in the body.
    opcode : str
        The mnemonic with its modifiers.
    tail : str
        The operands' text.
    guard : str
        The predicate register; empty for none.
    negated : bool
        Whether the guard is negated.
    line : int
        In the PTX, from 1.
    places : tuple of tuple
        File number, line and column of the ``.loc`` before it, and those that it is inlined at; inside out.
    scope : int
        The innermost block that it stands in.
    """

    __slots__ = ("_arguments", "guard", "index", "line", "negated", "opcode", "places", "scope", "tail")

    def __init__(
        self, index: int, opcode: str, tail: str, guard: str, negated: bool, line: int, places: Chain,
        scope: int,
    ) -> None:  # fmt: skip
        self.index, self.opcode, self.tail = index, opcode, tail
        self.guard, self.negated = guard, negated
        self.line, self.places, self.scope = line, places, scope
        self._arguments: tuple[str, ...] | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The operands, split at the commas outside brackets."""
        if self._arguments is None:
            self._arguments = _arguments(self.tail)
        return self._arguments

    def replace_tail(self, tail: str) -> None:
        """Change the operands' text."""
        self.tail, self._arguments = tail, None

    @property
    def text(self) -> str:
        """The instruction without its guard."""
        return f"{self.opcode} {self.tail}" if self.tail else self.opcode


@dataclass
class Function:
    """A kernel or a function with its body."""

    name: str
    is_entry: bool
    line: int
    parameters: tuple[Variable, ...]
    directives: str
    statements: list[Statement] = field(default_factory=list)
    labels: dict[tuple[int, str], int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    scopes: list[int] = field(default_factory=lambda: [-1])
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    several: dict[str, tuple[int, ...]] = field(default_factory=dict)
    place: SourcePlace | None = None

    def target_of(self, label: str, scope: int) -> int | None:
        """The statement that a label stands before, looked up from a scope outwards."""
        while scope >= 0:
            found = self.labels.get((scope, label))
            if found is not None:
                return found
            scope = self.scopes[scope]
        return None

    def numbers_of(self, directive: str) -> tuple[int, ...] | None:
        """The numbers of a performance directive such as ``reqntid``; None where it is not given."""
        found = re.search(rf"\.{directive}\s+([\d\s,]+)", self.directives)
        return tuple(int(n) for n in found[1].split(",") if n.strip()) if found else None


@dataclass
class Module:
    """A PTX file."""

    version: tuple[int, int] | None = None
    target: str = ""
    functions: list[Function] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    comments: list[tuple[int, str]] = field(default_factory=list)

    @cached_property
    def by_name(self) -> dict[str, Function]:
        """Functions with a body, by name."""
        return {function.name: function for function in self.functions}


_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_VARIABLE = re.compile(
    r"(?P<extern>\.extern\s+)?(?:\.(?:visible|weak|common)\s+)*\.(?P<space>shared|local|global|const|param)(?:::\w+)?\s+"
    r"(?:\.(?:align\s+(?P<align>\d+)|attribute\([^)]*\)|ptr|v[24])\s+)*"
    r"\.(?P<type>[a-z]+(?P<bits>\d*))\s+(?P<name>[\w$]+)(?P<array>(?:\s*\[\s*\d*\s*\])*)"
)
_PARAMETER_POINTER = re.compile(r"\.ptr\b(?:\s+\.(?:global|shared|local|const))?(?:\s+\.align\s+\d+)?")
_HEAD = re.compile(
    r"\.(?P<kind>entry|func)\s+(?:\([^)]*\)\s*)?(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?"
)
_EXTENT = re.compile(r"\[\s*(\d*)\s*\]")
_DECLARED = re.compile(r"\.reg\s+(?:\.v[24]\s+)?\.\w+\s+(.*)", re.DOTALL)
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*|%\d+")
_OUTSIDE = re.compile(r"(?<![\w$.%:])%?[A-Za-z_$][\w$]*")
_MOST_SCOPES, _MOST_INLINED = 64, 64


def read_module(text: str) -> Module:
    """What a PTX file holds. Text that is no PTX gives an empty module."""
    return _Reader().read(text)


class _Reader:
    """Goes through the pieces of a file once."""

    def __init__(self) -> None:
        self.module = Module()
        self.function: Function | None = None
        self.expected: Function | None = None
        self.places: Chain = ()
        self.chains: dict[SourcePlace, Chain] = {}
        self.label = ""
        self.open: list[tuple[int, dict[str, str]]] = []  # scopes that are open, with their renamed registers

    def read(self, text: str) -> Module:
        for piece in pieces(text):
            _TAKERS[piece.kind](self, piece)
        return self.module

    def take_comment(self, piece: Piece) -> None:
        self.module.comments.append((piece.line, piece.text))

    def take_file(self, piece: Piece) -> None:
        if found := _FILE.match(piece.text):
            self.module.files[_number(found[1])] = found[2]

    def take_loc(self, piece: Piece) -> None:
        found = _LOC.match(piece.text)
        if found is None:
            return
        numbers = [_number(n) for n in found.groups() if n is not None]
        place = numbers[0], numbers[1], numbers[2]
        caller = (numbers[3], numbers[4], numbers[5]) if len(numbers) == 6 else None
        outer = self.chains.get(caller, (caller,)) if caller is not None else ()
        self.chains[place] = (place, *outer[:_MOST_INLINED])
        if place[1]:
            self.places = self.chains[place]
        if self.function is not None and self.function.place is None:
            self.function.place = place

    def take_head(self, piece: Piece) -> None:
        found = _HEAD.search(piece.text)
        self.function, self.expected, self.open = None, None, []
        if found is None:
            return
        parameters = tuple(filter(None, map(_parameter, (found["parameters"] or "").split(","))))
        self.expected = Function(
            found["name"], found["kind"] == "entry", piece.line, parameters, piece.text[found.end() :]
        )

    def take_open(self, piece: Piece) -> None:
        if self.expected is not None:
            self.function, self.expected, self.places = self.expected, None, ()
            self.open = [(0, {})]
            self.module.functions.append(self.function)
        elif self.function is not None:
            self.function.scopes.append(self.open[-1][0])
            self.open.append((len(self.function.scopes) - 1, {}))

    def take_close(self, piece: Piece) -> None:
        if self.open:
            self.open.pop()
        if not self.open:
            self.function = None

    def take_label(self, piece: Piece) -> None:
        self.label = piece.text
        if self.function is not None:
            self.function.labels.setdefault((self.open[-1][0], piece.text), len(self.function.statements))

    def take_statement(self, piece: Piece) -> None:
        text = piece.text
        if text[:1] == ".":
            self._take_directive(text)
        elif self.function is not None and text:
            self._take_instruction(self.function, text, piece.line)

    def _take_directive(self, text: str) -> None:
        if text.startswith(".reg"):
            if len(self.open) > 1:
                self._declare(text)
        elif text.startswith(".version"):
            major, _, minor = text.removeprefix(".version").strip().partition(".")
            self.module.version = (_number(major), _number(minor))
        elif text.startswith(".target"):
            self.module.target = text.removeprefix(".target").strip().partition(",")[0].strip()
        elif text.startswith(".branchtargets") and self.function is not None:
            targets = text.removeprefix(".branchtargets").split(",")
            self.function.tables[self.label] = tuple(target.strip() for target in targets)
        elif found := _VARIABLE.match(text):
            variable = _variable(found)
            holder = self.module.variables if self.function is None else self.function.variables
            holder[variable.name] = variable

    def _declare(self, text: str) -> None:
        """Registers of an inner scope get names of their own."""
        found = _DECLARED.match(text)
        if found is None or len(self.open) > _MOST_SCOPES:
            return
        scope, names = self.open[-1]
        for name in found[1].split(","):
            plain = name.strip()
            if _NAME.fullmatch(plain):
                names[plain] = f"%{plain.lstrip('%')}__s{scope}"

    def _take_instruction(self, function: Function, text: str, line: int) -> None:
        if len(self.open) > 1:
            renamed: dict[str, str] = {}
            for _, names in self.open[1:]:
                renamed.update(names)
            if renamed:
                text = _OUTSIDE.sub(lambda name: renamed.get(name[0], name[0]), text)
        guard, negated = "", False
        if text[0] == "@":
            found = re.match(r"@(!?)\s*(%?[\w$]+)\s*", text)
            if found is None:
                return
            guard, negated, text = found[2], bool(found[1]), text[found.end() :]
        parts = text.split(None, 1)
        if parts:
            function.statements.append(
                Statement(
                    len(function.statements), parts[0], parts[1] if len(parts) > 1 else "", guard, negated, line,
                    self.places, self.open[-1][0],
                )
            )  # fmt: skip


_TAKERS = {
    "comment": _Reader.take_comment,
    "file": _Reader.take_file,
    "loc": _Reader.take_loc,
    "head": _Reader.take_head,
    "{": _Reader.take_open,
    "}": _Reader.take_close,
    "label": _Reader.take_label,
    "statement": _Reader.take_statement,
}


def _number(text: str) -> int:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def _parameter(text: str) -> Variable | None:
    found = _VARIABLE.search(_PARAMETER_POINTER.sub("", text))
    return _variable(found) if found else None


def _variable(found: re.Match[str]) -> Variable:
    element = max(1, _number(found["bits"] or "8") // 8)
    extents = _EXTENT.findall(found["array"])
    size: int | None = element
    for extent in extents:
        size = None if size is None or not extent else size * _number(extent)
    return Variable(
        found["name"], found["space"], max(1, _number(found["align"] or "") or element), size,
        found["extern"] is not None, found["type"], bool(extents),
    )  # fmt: skip


def _arguments(text: str) -> tuple[str, ...]:
    if "[" not in text and "{" not in text and "(" not in text:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    found: list[str] = []
    depth, start = 0, 0
    for at, letter in enumerate(text):
        if letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(text[start:at].strip())
            start = at + 1
    found.append(text[start:].strip())
    return tuple(found)
