"""The family's instructions in a text: PTX, or CUDA C++ with inline assembly and calls of the header's functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from cupytma.check.lexer import pieces
from cupytma.errors import EmissionError
from cupytma.ptx import Instruction
from cupytma.ptx.catalogue import catalogue
from cupytma.ptx.header import calling_functions
from cupytma.ptx.parse import read

from .instruction_words import constructors

_CUDA = re.compile(
    r"\b(?:asm|__asm__|__asm)\b[^;{}\"]*\(|__global__|__device__|^[ \t]*#[ \t]*(?:include|define|pragma)\b",
    re.MULTILINE,
)
_HEAD = re.compile(r"\.(?:entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)")
_GUARD = re.compile(r"@!?%?[\w$]+\s+")
# What the text of CUDA C++ consists of, as far as it matters here; whatever else there is, is passed over.
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<raw>\bR\"(?P<mark>[^()\\\s]{0,16})\()"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<character>'(?:\\.|[^'\\\n])+')"
    r"|(?P<asm>\b(?:asm|__asm__|__asm)\b)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>[():;])",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:\r?\n|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f"}
_PTX_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+((?:\"(?:\\.|[^\"\\\n])*\"(?:[ \t]|\\\n)*)+)", re.MULTILINE)
_STRING = re.compile(r"\"(?:\\.|[^\"\\\n])*\"")
_NO_MACRO = "{} is no macro of this file with a text; explain the PTX that the compiler makes of it instead"
_USING = re.compile(r"\busing\s+namespace\s+cupytma\s*;")


@dataclass(frozen=True)
class Found:
    """One instruction of the family in a text.

    Attributes
    ----------
    line : int
        From 1.
    text : str
        As it stands there, without its guard.
    function : str
        The kernel or function of PTX that it is in; empty where that is not known.
    instruction : Instruction or None
        None where it cannot be understood.
    given : dict of str to str
        What stands for each operand.
    guard : str
        The predicate that it depends on.
    problem : str
        Why it cannot be understood.
    is_call : bool
        Whether it is a call of a function of cupytma.cuh.
    """

    line: int
    text: str
    function: str = ""
    instruction: Instruction | None = None
    given: dict[str, str] = field(default_factory=dict)
    guard: str = ""
    problem: str = ""
    is_call: bool = False


def is_cuda(text: str) -> bool:
    """Whether a text is CUDA C++ rather than PTX."""
    return not (".version" in text and ".target" in text) and _CUDA.search(text) is not None


def find(text: str) -> list[Found]:
    """The family's instructions in PTX or CUDA C++, in the order of their lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not is_cuda(text):
        return list(_in_ptx(text))
    assembly, others = _split_cuda(text)
    return sorted([*_in_ptx(assembly), *others], key=lambda found: found.line)


def _in_ptx(text: str) -> Iterator[Found]:
    function = ""
    for piece in pieces(f"{text}\n;"):
        if piece.kind == "head":
            head = _HEAD.search(piece.text)
            function = head[1] if head else ""
        if piece.kind != "statement":
            continue
        line = " ".join(piece.text.split())
        guard = _GUARD.match(line)
        statement = line[guard.end() :] if guard else line
        if not _may_be_of_family(statement):
            continue
        try:
            found = read(line)
        except EmissionError as error:
            if is_of_family(statement.partition(" ")[0]):
                yield Found(piece.line, statement, function, problem=str(error))
            continue
        yield Found(piece.line, statement, function, found.instruction, found.given, found.guard)


@cache
def _first_words() -> tuple[str, ...]:
    return tuple({constructor.stem[0] for constructor in constructors().values()})


def _may_be_of_family(statement: str) -> bool:
    return statement.startswith(_first_words())


def is_of_family(mnemonic: str) -> bool:
    """Whether a mnemonic begins as those of the family do, however it goes on."""
    words = mnemonic.split(".")
    for constructor in constructors().values():
        stem = constructor.stem
        if tuple(words[: len(stem)]) == stem and (len(stem) > 1 or constructor.literals.issubset(words)):
            return True
    return False


# CUDA C++.


def _split_cuda(text: str) -> tuple[str, list[Found]]:
    """The inline assembly, each piece on the line where it stands and all else blank; and what else there is to say."""
    lines = [""] * (text.count("\n") + 2)
    others: list[Found] = []
    macros = {name: "".join(map(_unescaped, _STRING.findall(value))) for name, value in _MACRO.findall(text)}
    is_using = _USING.search(text) is not None
    functions = _functions() if is_using or "cupytma::" in text else {}
    statement: _Statement | None = None
    line, at = 1, 0
    for token in _tokens(text):
        line += text.count("\n", at, token.at)
        at = token.at
        if token.kind == "asm":
            statement = _Statement()
        elif statement is not None:
            statement.take(token, line, macros)
            if statement.is_over:
                unknown = statement.unknown()
                others += [Found(line, f"asm({name})", problem=_NO_MACRO.format(name)) for name in unknown]
                for number, part in [] if unknown else statement.parts:
                    lines[number - 1] += part
                statement = None
        elif token.text in functions and _is_called(text, token, "" if is_using else "cupytma::"):
            others.append(Found(line, token.text, instruction=functions[token.text], is_call=True))
    return "\n".join(lines), others


class _Token(NamedTuple):
    """A piece of CUDA C++: what it is, where it begins, and its text; of a raw string, what is in it."""

    kind: str
    at: int
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while token := _TOKEN.search(text, at):
        at = token.end()
        if token["raw"] is None:
            yield _Token(token.lastgroup or "", token.start(), token[0])
            continue
        end = text.find(f'){token["mark"]}"', at)
        end = len(text) if end < 0 else end
        yield _Token("raw", token.start(), text[at:end])
        at = end + len(token["mark"]) + 2


class _Statement:
    """An asm statement, token by token, up to the end of its template."""

    def __init__(self) -> None:
        self.is_over = False
        self.parts: list[tuple[int, str]] = []
        self._depth = 0
        self._names: list[str] = []

    def take(self, token: _Token, line: int, macros: dict[str, str]) -> None:
        """The next token, which begins on a line of the source."""
        if token.kind == "string":
            self.parts.append((line, _unescaped(token.text)))
        elif token.kind == "raw":
            self.parts += enumerate(_without_comments(token.text).replace("%%", "%").split("\n"), line)
        elif token.kind == "name" and token.text in macros:
            self.parts.append((line, macros[token.text]))
        elif token.kind == "name" and self._depth == 1:
            self._names.append(token.text)
        elif token.kind == "sign":
            self._depth += {"(": 1, ")": -1}.get(token.text, 0)
            self.is_over = token.text in ":;" or self._depth <= 0
            if self.is_over:
                self.parts.append((line, " ;"))

    def unknown(self) -> list[str]:
        """The names in the template whose text is not known, where it may be one of the family's."""
        said = "".join(part for _, part in self.parts).strip(" ;")
        return self._names if not said or any(word in said for word in _first_words()) else []


def _unescaped(literal: str) -> str:
    """What a string literal says, in one line and without PTX's comments."""
    text = _ESCAPE.sub(lambda found: _ESCAPED.get(found[0][1], found[0][1].strip()), literal[1:-1])
    return _PTX_COMMENT.sub(" ", text).replace("%%", "%").replace("\n", " ")


def _without_comments(text: str) -> str:
    return _PTX_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)


@cache
def _functions() -> dict[str, Instruction]:
    """The header's functions by name, each with its instruction; one that calls others with the first of theirs."""
    named = {form.function_name: form for form in catalogue()}
    return {**{name: named[calls[0]] for name, calls in calling_functions().items()}, **named}


def _is_called(text: str, token: _Token, prefix: str) -> bool:
    """Whether a name stands behind a prefix, is followed by arguments, and is no member of something."""
    end = token.at + len(token.text)
    rest, before = text[end : end + 80].lstrip(), text[max(0, token.at - 9) : token.at]
    return rest[:1] in ("(", "<") and before.endswith(prefix) and not before.endswith((".", "->"))
