"""What callers give, read with care: their classes may raise anything, and a text of them may be endless."""

from __future__ import annotations

import operator
from typing import Any

_SHOWN = 60


def shown(value: object) -> str:
    """A value as an error shows it: in one line, cut where it is long."""
    try:
        text = repr(value[: 2 * _SHOWN] if isinstance(value, (str, bytes)) else value)
    except Exception:  # also of an int of more digits than Python writes
        return f"<{type(value).__name__}>"
    text = text.replace("\n", " ")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def whole(value: Any) -> int:
    """A whole number.

    Raises
    ------
    TypeError
        Whatever else it is.
    """
    try:
        return operator.index(value)
    except Exception as error:
        raise TypeError(f"{shown(value)} is no whole number") from error


def wholes(value: Any) -> tuple[int, ...]:
    """One whole number, or as many as there are in a sequence, as a tuple.

    Raises
    ------
    TypeError
        If an entry is no whole number.
    """
    if not hasattr(value, "__iter__"):
        return (whole(value),)
    try:
        entries = tuple(value)
    except Exception as error:
        raise TypeError(f"{shown(value)} holds no whole numbers") from error
    return tuple(map(whole, entries))


def truth(value: Any) -> bool:
    """Whether something is true.

    Raises
    ------
    TypeError
        If it does not say, as an array of several numbers.
    """
    try:
        return bool(value)
    except Exception as error:
        raise TypeError(f"{shown(value)} is neither true nor false") from error
