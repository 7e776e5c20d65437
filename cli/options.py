"""Kinds of values that options take: integers, lists of them, enumerations and targets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from cupytma.errors import TargetError
from cupytma.targets import TARGETS, Target, target
from cupytma.tensormap.enums import DriverEnum

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_LONGEST = 72  # a 64-bit number in binary, with room for its prefix and sign
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_MACRO = re.compile(r"[A-Za-z_]\w*(?:\([^)]*\))?", re.ASCII)


def parse_integer(text: str) -> int:
    """An integer as people write it: decimal, or hexadecimal with ``0x``.

    Raises
    ------
    ValueError
        If it is none, or does not fit 64 bits.
    """
    digits = text.strip()
    is_decimal = digits.isascii() and digits.lstrip("+-").isdigit()
    shown = digits if len(digits) <= _LONGEST else f"{digits[:20]}…"
    try:
        if len(digits) > _LONGEST or not digits.isascii():
            raise ValueError
        number = int(digits, 10 if is_decimal else 0)
    except ValueError:
        if is_decimal:
            raise ValueError(f"{shown} does not fit 64 bits") from None
        raise ValueError(f"{shown!r} is no integer; write it in decimal, or as 0x…") from None
    return check_range(number)


def check_range(number: int) -> int:
    """The number, if it fits 64 bits, signed or unsigned.

    Raises
    ------
    ValueError
        If it does not.
    """
    if not _SMALLEST <= number <= _LARGEST:
        shown = str(number) if number.bit_length() <= _LONGEST else f"a number of {number.bit_length()} bits"
        raise ValueError(f"{shown} does not fit 64 bits")
    return number


class OutputForm(click.Choice):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A form of what is printed; who gives the name of a file is told how to write one.

    Parameters
    ----------
    forms : iterable of str
    for_file : str
        The one that files have.
    """

    def __init__(self, forms: Iterable[str], for_file: str) -> None:
        super().__init__(tuple(forms))
        self.for_file = for_file

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Also of click's own name; see `click.ParamType`."""
        if isinstance(value, str) and value not in self.choices and any(mark in value for mark in "./\\"):
            forms = ", ".join(self.choices)
            self.fail(
                f"{value!r:.100} is no form, which are {forms}; for a file, write --output {self.for_file} > FILE",
                param, ctx,
            )  # fmt: skip
        return super().convert(value, param, ctx)


class Integer(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """One integer, decimal or ``0x``."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_integer(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Within(click.IntRange):
    """One integer between two."""

    name = "integer"  # as messages have it: a word that is none is no range either


class Integers(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """Integers with commas between them: ``1024,512``."""

    name = "integers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        text = str(value).strip()
        try:
            return tuple(parse_integer(entry) for entry in text.split(",")) if text else ()
        except ValueError as error:
            self.fail(f"{error}; give numbers with commas between them, such as 1024,512", param, ctx)


class Macro(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A macro as compilers take it: ``NAME`` or ``NAME=VALUE``."""

    name = "name[=value]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        name, given, text = str(value).partition("=")
        if not _MACRO.fullmatch(name):
            self.fail(f"{value!r:.100} is no macro; write NAME or NAME=VALUE, such as TILE=64", param, ctx)
        return name, text if given else None


class Member(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A member of one of the driver's enumerations, by name, driver name or number."""

    name = "name"

    def __init__(self, enumeration: type[DriverEnum]) -> None:
        self.enumeration = enumeration

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> DriverEnum | int:
        text = str(value)
        try:
            # A number without a member is kept: the rules report it beside everything else.
            return parse_integer(text) if text.isascii() and text.isdigit() else self.enumeration.of(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return starting((member.short_name for member in self.enumeration), incomplete)


class TargetName(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """An architecture, such as ``sm_90a``."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        try:
            return target(value)
        except TargetError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return starting(TARGETS, incomplete)


class Source(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A file, ``-``, or text; completed as a file."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def suggested(find: Callable[[], Iterable[str]]) -> Completion:
    """What completes an option with words that are looked up only when a shell asks."""
    return lambda context, parameter, incomplete: starting(find(), incomplete)


def starting(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The words that complete a beginning, in either case."""
    return [CompletionItem(word) for word in words if word.lower().startswith(incomplete.lower())]
