"""The table that every form is derived from: a family is a row, a form is one choice of each of its words.

A row holds the mnemonic with a place for each word, the operands with the words they depend on, the combinations that
PTX does not have, and what each combination needs. Text, operand list, constraints, minimum PTX version, targets, the
C++ name and the comment of a form all come from the row.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cupytma.errors import EmissionError
from cupytma.ptx.checks import integer, shown
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.operands import Operand
from cupytma.targets import Feature

Value = bool | int | str | None
Words = Mapping[str, Value]
Condition = Callable[[Words], bool]


@dataclass(frozen=True)
class Given:
    """A condition on words: each of them has one of the listed values."""

    words: tuple[tuple[str, tuple[Value, ...]], ...]

    def __call__(self, words: Words) -> bool:
        return all(words[name] in values for name, values in self.words)


def given(**words: Value | tuple[Value, ...]) -> Given:
    """A condition that holds when each word has the value given, or one of those in a tuple."""
    return Given(tuple((name, v if isinstance(v, tuple) else (v,)) for name, v in words.items()))


@dataclass(frozen=True)
class Choice:
    """One value that a word may have.

    Attributes
    ----------
    value : bool, int, str or None
        As a caller gives it.
    spelling : str
        What it puts into the mnemonic.
    suffix : str
        What it adds to the C++ function's name.
    """

    value: Value
    spelling: str = ""
    suffix: str = ""


@dataclass(frozen=True)
class Word:
    """One keyword of a family's constructor, with its choices."""

    name: str
    choices: tuple[Choice, ...]

    def choose(self, family: str, value: object) -> Choice:
        """The choice that a caller's value names.

        Raises
        ------
        EmissionError
            If there is none; the message lists those there are.
        """
        for choice in self.choices:
            if _same(value, choice.value):
                return choice
        legal = ", ".join(repr(choice.value) for choice in self.choices)
        raise EmissionError(f"{family}: {self.name}={shown(value)} is not supported; supported: {legal}")


def _same(value: object, legal: Value) -> bool:
    """Whether a caller's value is a legal one. True equals 1, yet ``rank=True`` is a slip and not a rank."""
    if isinstance(value, bool) or isinstance(legal, bool):
        return value is legal
    if isinstance(legal, int):
        return integer(value) == legal
    return value == legal if isinstance(value, str) else value is legal


def spelled(word: str, texts: Mapping[Value, str]) -> Callable[[Words], str]:
    """A spelling that follows from one word; nothing for a value that is not listed."""
    return lambda words: texts.get(words[word], "")


def flag(name: str, spelling: str = "") -> Word:
    """A word that is True or False, written into the mnemonic when it is True."""
    return Word(name, (Choice(False), Choice(True, spelling, f"_{name}")))


def optional(name: str, *values: str) -> Word:
    """A word that is None or one of the values, written into the mnemonic with a dot before it."""
    return Word(name, (Choice(None), *(Choice(v, f".{v}", "_" + v.replace("::", "_")) for v in values)))


@dataclass(frozen=True)
class Argument:
    """One of the comma-separated arguments of an instruction.

    Attributes
    ----------
    pattern : str
        As PTX writes it: ``%`` stands for one register, ``%*`` for the elements of a vector, as in ``[%, {%*}]``.
    operands : tuple of Operand
        What the registers are, in the pattern's order.
    when : callable, optional
        The condition under which the form has it.
    length : callable, optional
        How many elements the vector has.
    """

    pattern: str
    operands: tuple[Operand, ...] = ()
    when: Condition | None = None
    length: Callable[[Words], int] | None = None

    def expand(self, words: Words, first: int) -> tuple[str, tuple[Operand, ...]]:
        """The argument's text, its placeholders numbered from `first`, and the operands they stand for."""
        expanded: list[Operand] = []
        rows = iter(self.operands)

        def fill(place: re.Match[str]) -> str:
            row = next(rows)
            count = self.length(words) if place[0] == "%*" and self.length else 0
            elements = [row.element(i) for i in range(count)] if count else [row]
            start = first + len(expanded)
            expanded.extend(elements)
            return ", ".join(f"%{start + i}" for i in range(len(elements)))

        text = re.sub(r"%\*?", fill, self.pattern)
        return text, tuple(expanded)


@dataclass(frozen=True)
class Clash:
    """A combination of words that PTX does not have, and the message for it."""

    when: Condition
    message: str


@dataclass(frozen=True)
class Requirement:
    """What a combination of words needs beyond what the family needs."""

    when: Condition
    ptx_version: tuple[int, int] = (0, 0)
    features: frozenset[Feature] = frozenset()


@dataclass(frozen=True)
class Note:
    """A sentence of documentation that holds for a combination of words."""

    when: Condition
    text: str


@dataclass(frozen=True)
class Family:
    """One row of the table: an instruction with all its forms.

    Attributes
    ----------
    name : str
        The constructor's name, and the beginning of the C++ functions' names.
    mnemonic : str
        The instruction; ``{word}`` stands where the PTX ISA's syntax has that modifier.
    words : tuple of Word
        In the order in which they appear in a function's name.
    arguments : tuple of Argument
    summary : str
        What it does, with ``{word}`` where a word's value belongs.
    section : str
        Title of the PTX ISA section.
    ptx_version : tuple of int
        The oldest PTX ISA version with any form of it.
    spellings : mapping
        Further places of the mnemonic, each with the spelling that follows from the words.
    """

    name: str
    mnemonic: str
    words: tuple[Word, ...]
    arguments: tuple[Argument, ...]
    summary: str
    section: str
    ptx_version: tuple[int, int]
    features: frozenset[Feature] = frozenset()
    clobbers: tuple[str, ...] = ("memory",)
    clashes: tuple[Clash, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    notes: tuple[Note, ...] = ()
    spellings: Mapping[str, Callable[[Words], str]] = field(default_factory=dict)

    def build(self, **given_words: object) -> Instruction:
        """The form that the words select.

        Raises
        ------
        EmissionError
            If a word has a value that is not supported, or two words clash; the message says what is legal.
        """
        choices = {word.name: word.choose(self.name, given_words[word.name]) for word in self.words}
        words = {name: choice.value for name, choice in choices.items()}
        clash = self._clash(words)
        if clash is not None:
            raise EmissionError(f"{self.name}: {clash}")
        return self._form(choices, words)

    def forms(self) -> tuple[Instruction, ...]:
        """Every legal form, each once."""
        return self._all

    @cached_property
    def _all(self) -> tuple[Instruction, ...]:
        forms = []
        for chosen in itertools.product(*(word.choices for word in self.words)):
            choices = {word.name: choice for word, choice in zip(self.words, chosen, strict=True)}
            words = {name: choice.value for name, choice in choices.items()}
            if self._clash(words) is None:
                forms.append(self._form(choices, words))
        return tuple(forms)

    @cached_property
    def _known(self) -> dict[tuple[Value, ...], Instruction]:
        return {}

    def _clash(self, words: Words) -> str | None:
        """The message of the first clash among the words; None when there is none."""
        return next((c.message.format(**words) for c in self.clashes if c.when(words)), None)

    def _form(self, choices: Mapping[str, Choice], words: Words) -> Instruction:
        key = tuple(words.values())
        if key not in self._known:
            self._known[key] = self._new_form(choices, words)
        return self._known[key]

    def _new_form(self, choices: Mapping[str, Choice], words: Words) -> Instruction:
        texts: list[str] = []
        operands: list[Operand] = []
        for argument in self.arguments:
            if argument.when is None or argument.when(words):
                text, more = argument.expand(words, len(operands))
                texts.append(text)
                operands += more
        places = {name: choice.spelling for name, choice in choices.items()}
        places |= {place: spelled(words) for place, spelled in self.spellings.items()}
        needs = [need for need in self.requirements if need.when(words)]
        sentences = [
            self.summary.format(**words),
            *(note.text.format(**words) for note in self.notes if note.when(words)),
        ]
        return Instruction(
            family=self.name,
            words=tuple(words.items()),
            mnemonic=self.mnemonic.format(**places),
            arguments=", ".join(texts),
            operands=tuple(operands),
            clobbers=self.clobbers,
            ptx_version=max([self.ptx_version, *(need.ptx_version for need in needs)]),
            features=self.features.union(*(need.features for need in needs)),
            function_name=self.name + "".join(choice.suffix for choice in choices.values()),
            documentation=" ".join(sentences),
            source=f"PTX ISA: {self.section}",
        )
