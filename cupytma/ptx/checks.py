"""What callers give, checked, and shown in messages; whatever it is, what goes wrong is an `EmissionError`."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from cupytma.errors import EmissionError

_LONGEST = 120


def shown(value: object) -> str:
    """A value as an error message shows it: its repr, cut where it is long.

    A text is cut before its repr is made, and a repr that fails leaves the type's name.
    """
    if isinstance(value, (str, bytes)) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]!r}… ({len(value):,} in all)"
    try:
        text = repr(value)
    except Exception:  # a caller's class may raise anything
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def integer(value: object) -> int | None:
    """The number that a value is, through ``__index__``; None for a bool and for all else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except Exception:  # a caller's class may raise anything
        return None


def checked_integer(function: str, name: str, value: object, legal: range) -> int:
    """A whole number within limits.

    Raises
    ------
    EmissionError
        For anything else; the message has the limits.
    """
    number = integer(value)
    if number is None or number not in legal:
        raise EmissionError(f"{function}: {name}={shown(value)} is not supported; supported: {legal[0]} to {legal[-1]}")
    return number


def checked_flag(function: str, name: str, value: object) -> bool:
    """True or False.

    Raises
    ------
    EmissionError
        For anything else.
    """
    if value is True or value is False:
        return value
    raise EmissionError(f"{function}: {name}={shown(value)} is not supported; supported: False, True")


def checked_word(function: str, name: str, value: object, legal: Iterable[str]) -> str:
    """One of some words.

    Raises
    ------
    EmissionError
        For anything else; the message lists them.
    """
    words = tuple(legal)
    if isinstance(value, str) and value in words:
        return str(value)
    supported = ", ".join(map(repr, words))
    raise EmissionError(f"{function}: {name}={shown(value)} is not supported; supported: {supported}")


def texts(function: str, name: str, value: Iterable[object]) -> tuple[str, ...]:
    """Several texts.

    Raises
    ------
    EmissionError
        For one text, for what cannot be gone through, and for what holds anything but text.
    """
    found: tuple[object, ...] | None = None
    if isinstance(value, (list, tuple)):
        found = tuple(value)
    if found is None or not all(isinstance(item, str) for item in found):
        raise EmissionError(f"{function}: {name}={shown(value)} is not supported; supported: a list or tuple of text")
    return tuple(str(item) for item in found)
