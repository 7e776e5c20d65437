"""Words that texts for people are made of."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "", spec: str = "") -> str:
    """A number with its noun, ``"1 entry"`` or ``"2 entries"``.

    Parameters
    ----------
    count : int
    one : str
        The noun for one.
    many : str, optional
        For any other number; by default with an s, or ``ies`` in place of a y that follows a consonant.
    spec : str, optional
        How the number is formatted, such as ``","`` for groups of three digits.
    """
    return f"{count:{spec}} {one if count == 1 else many or _plural(one)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
