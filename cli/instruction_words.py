"""Instructions by name or spelling and words: all read from the rows of `cupytma.ptx` and its constructors."""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from cupytma import ptx
from cupytma.errors import EmissionError
from cupytma.ptx.catalogue import FAMILIES, catalogue
from cupytma.ptx.checks import shown
from cupytma.ptx.family import Family, Value
from cupytma.ptx.operands import Operand

_PARAMETER = re.compile(r"(\w+(?:, \w+)*)(?: : .*)?")
# Where a constructor's documentation sends the reader to that of another one.
_ELSEWHERE = re.compile(r"(?:As for `(\w+)`.*|`(\w+)` with .*)")
_FEW = 12


@dataclass(frozen=True)
class InstructionWord:
    """One keyword of a constructor.

    Attributes
    ----------
    name : str
    values : tuple
        What it may be, None left out.
    default : bool, int, str or None
        Its value where it is not given.
    is_required : bool
    description : str
        From the constructor's documentation; empty where that has none.
    """

    name: str
    values: tuple[Value, ...]
    default: Value
    is_required: bool
    description: str

    @property
    def is_flag(self) -> bool:
        """Whether it is True or False."""
        return isinstance(self.values[0], bool)

    @property
    def spoken_values(self) -> str:
        """The values as a help text or an error lists them."""
        if len(self.values) > _FEW and all(isinstance(value, int) for value in self.values):
            return f"{self.values[0]}, {self.values[1]}, … {self.values[-1]}"
        return ", ".join(map(str, self.values))

    @property
    def help(self) -> str:
        """What it means and what it may be."""
        if self.is_flag or (self.description and all(str(value) in self.description for value in self.values)):
            return self.description
        return f"{self.description} One of: {self.spoken_values}.".strip()


@dataclass(frozen=True)
class Constructor:
    """An instruction by the name of its constructor, such as ``tensor_load``, and what it may be given."""

    name: str

    @property
    def summary(self) -> str:
        """What it is, in one line."""
        text = (inspect.getdoc(getattr(ptx, self.name)) or self.name).partition("\n\n")[0]
        return _plain(text)

    @property
    def rows(self) -> tuple[Family, ...]:
        """The rows of the table that it builds from."""
        return tuple(family for family in FAMILIES if family.name == self.name)

    @cached_property
    def words(self) -> tuple[InstructionWord, ...]:
        """Its words, in the order of its parameters."""
        function = getattr(ptx, self.name)
        parameters = inspect.signature(function).parameters
        values: dict[str, dict[Value, None]] = {}
        for word in (word for row in self.rows for word in row.words):
            known = values.setdefault(word.name, {})
            known.update((choice.value, None) for choice in word.choices if choice.value is not None)
        hands_on = not parameters.keys() >= values.keys()  # its defaults are those of another constructor
        defaults: dict[str, Value] = dict(function().words) if hands_on else {}
        found = []
        for name in values if hands_on else (name for name in parameters if name in values):
            default = defaults.get(name) if hands_on else parameters[name].default
            required = default is inspect.Parameter.empty
            found.append(
                InstructionWord(
                    name, tuple(values[name]), None if required else default, required, self._description(name)
                )
            )
        return tuple(found)

    def _description(self, word: str) -> str:
        documentation = inspect.getdoc(getattr(ptx, self.name)) or ""
        text = _descriptions(documentation).get(word, "") or documentation
        elsewhere = _ELSEWHERE.fullmatch(text)
        if elsewhere is not None:
            other = constructors().get(elsewhere[1] or elsewhere[2])
            return other._description(word) if other is not None else ""
        return "" if text == documentation else _plain(text)

    @cached_property
    def immediates(self) -> tuple[Operand, ...]:
        """The operands that are constants in some form of it."""
        operands = (operand for row in self.rows for argument in row.arguments for operand in argument.operands)
        return tuple({operand.name: operand for operand in operands if operand.is_immediate}.values())

    @cached_property
    def forms(self) -> tuple[ptx.Instruction, ...]:
        """All of them."""
        return tuple(form for row in self.rows for form in row.forms())

    @cached_property
    def stem(self) -> tuple[str, ...]:
        """The words that all its mnemonics begin with."""
        columns = zip(*(form.mnemonic.split(".") for form in self.forms), strict=False)
        return tuple(column[0] for column in itertools.takewhile(lambda column: len(set(column)) == 1, columns))

    @cached_property
    def literals(self) -> frozenset[str]:
        """The words that all its mnemonics have."""
        return frozenset.intersection(*(frozenset(form.mnemonic.split(".")) for form in self.forms))

    def spoken_stem(self, room: int) -> str:
        """The beginning of its mnemonics, in so many columns, and long enough to tell what it is."""
        stem = ".".join(self.stem) if len(self.stem) > 1 else min((f.mnemonic for f in self.forms), key=len)
        return stem if len(stem) <= room else f"{stem[: room - 1]}…"

    @property
    def example(self) -> str:
        """How it is asked for, with the words that it needs."""
        needed = (f" {option_name(word.name)} {word.values[0]}" for word in self.words if word.is_required)
        return f"cupytma emit {self.name}{''.join(needed)}"

    def make(self, given: Mapping[str, Value]) -> ptx.Instruction:
        """The form that words and immediates select.

        Raises
        ------
        EmissionError
            If a word is missing, has no such value or clashes with another one.
        """
        missing = [word for word in self.words if word.is_required and word.name not in given]
        if missing:
            lacking = " and ".join(f"{option_name(word.name)} ({word.spoken_values})" for word in missing)
            raise EmissionError(f"{self.name} needs {lacking}")
        words = {word.name for word in self.words}
        form: ptx.Instruction = getattr(ptx, self.name)(**{n: value for n, value in given.items() if n in words})
        constants: dict[str, Any] = {name: value for name, value in given.items() if name not in words}
        return form.bind(**constants) if constants else form


@cache
def constructors() -> dict[str, Constructor]:
    """Every instruction by the name of its constructor, in the catalogue's order."""
    return {family.name: Constructor(family.name) for family in FAMILIES}


@dataclass(frozen=True)
class Named:
    """What a name or a spelling may be: the constructors, and for each the words that the spelling has settled."""

    label: str
    candidates: tuple[tuple[Constructor, dict[str, Value]], ...]

    def make(self, given: Mapping[str, Value]) -> ptx.Instruction:
        """The one form that words select.

        Raises
        ------
        EmissionError
            If there is none, for the reason that the closest candidate has; or if there are several.
        """
        if len(self.candidates) == 1:
            return self._with_words(*self.candidates[0], given)
        made: list[ptx.Instruction] = []
        reasons: list[EmissionError] = []
        # Those that have all the words come before those whose spelling merely says the same.
        for taken_literally in (True, False):
            for constructor, settled in self.candidates:
                own = {n: value for n, value in given.items() if n in _names(constructor)}
                others = [value for name, value in given.items() if name not in own]
                if taken_literally == bool(others) or not constructor.literals.issuperset(map(str, others)):
                    continue
                try:
                    made.append(self._with_words(constructor, settled, own))
                except EmissionError as error:
                    reasons.append(error)
            if made:
                break
        if len(made) == 1:
            return made[0]
        names = ", ".join(dict.fromkeys(form.family for form in made) or [c.name for c, _ in self.candidates])
        if made:
            raise EmissionError(f"{self.label} may be {names}; name one of them instead, or give more words")
        if reasons:
            raise reasons[0]
        unknown = ", ".join(map(option_name, given))
        raise EmissionError(f"none of {names} takes {unknown} together; `cupytma emit NAME --help` lists theirs")

    def _with_words(
        self, constructor: Constructor, settled: Mapping[str, Value], given: Mapping[str, Value]
    ) -> ptx.Instruction:
        for name, value in given.items():
            if settled.get(name, value) != value:
                raise EmissionError(
                    f"{self.label} says {name}={settled[name]!r}, and {option_name(name)} is {value!r}; leave one out"
                )
        return constructor.make({**settled, **given})


def named(text: str) -> Named | None:
    """What a text names: a constructor, a function of the header, or the beginning of a spelling; None if nothing.

    Parameters
    ----------
    text : str
        Such as ``"tensor-load"``, ``"tensor_load_2d_multicast"`` or ``"cp.async.bulk.tensor.2d"``.
    """
    name = text.replace("-", "_")
    if name in constructors():
        return Named(text, ((constructors()[name], {}),))
    if len(text) > 400:
        return None
    if text.isidentifier():
        form = next((form for form in catalogue() if form.function_name == text), None)
        if form is not None:
            return Named(text, ((constructors()[form.family], dict(form.words)),))
    stem = text.rstrip("; .")
    forms = [form for form in catalogue() if stem and f"{form.mnemonic}.".startswith(f"{stem}.")]
    found = dict.fromkeys(form.family for form in forms)
    return Named(
        stem, tuple((constructors()[f], _settled([form for form in forms if form.family == f])) for f in found)
    ) if found else None  # fmt: skip


def near(text: str) -> list[str]:
    """Names and beginnings of spellings that a text may have been meant as."""
    known = [*constructors(), *(".".join(constructor.stem) for constructor in constructors().values())]
    return list(dict.fromkeys(difflib.get_close_matches(text[:100].replace("-", "_"), known, n=3, cutoff=0.5)))


def unknown_instruction(text: str) -> str:
    """The message for a text that names no instruction."""
    alike = near(text)
    hint = f"; near it: {', '.join(alike)}" if alike else ""
    return f"{shown(text)} is no instruction of the family{hint}. `cupytma catalogue` lists them"


def option_name(word: str) -> str:
    """The option for a word or an immediate."""
    return "--" + word.replace("_", "-")


def _names(constructor: Constructor) -> set[str]:
    return {word.name for word in constructor.words} | {operand.name for operand in constructor.immediates}


def _settled(forms: Iterable[ptx.Instruction]) -> dict[str, Value]:
    """The words that have one value in all forms."""
    values: dict[str, set[Value]] = {}
    for form in forms:
        for name, value in form.words:
            values.setdefault(name, set()).add(value)
    return {name: next(iter(several)) for name, several in values.items() if len(several) == 1}


def _descriptions(documentation: str) -> dict[str, str]:
    """What a docstring in numpydoc's form says of each parameter."""
    section = documentation.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        head = _PARAMETER.fullmatch(line)
        if head is not None:
            names = head[1].split(", ")
        else:
            found |= {name: f"{found.get(name, '')} {line.strip()}".strip() for name in names}
    return found


def _plain(text: str) -> str:
    """Prose without the marks of reStructuredText and the quotes of Python."""
    return " ".join(text.replace('``"', "").replace('"``', "").replace("`", "").split())
