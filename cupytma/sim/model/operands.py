"""What the functions of the model take: vectors with one integer per dimension."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from cupytma.errors import SimulationError
from cupytma.sim.checks import check_integer
from cupytma.tensormap.rule import FULL_RANK

OPERATIONS = ("load", "store")


def vector(name: str, value: int | Iterable[int], *, least: int | None = None) -> tuple[int, ...]:
    """One integer per dimension; a single integer stands for one dimension.

    Parameters
    ----------
    name : str
        For messages.
    value : int or sequence of int
        Driver order.
    least : int, optional
        None may be smaller.

    Raises
    ------
    SimulationError
        If it is no sequence of 1 to 5 integers, or one of them is too small.
    """
    given = _entries(value)
    if given is None:
        raise SimulationError(f"{name} is {value!r}; it must be a sequence with one integer per dimension")
    if not 1 <= len(given) <= FULL_RANK:
        count = f"more than {FULL_RANK}" if given else "0"
        raise SimulationError(f"{name} has {count} entries; a copy has 1 to {FULL_RANK} dimensions")
    found = tuple(check_integer(f"{name}[{i}]", entry) for i, entry in enumerate(given))
    for i, entry in enumerate(found):
        if least is not None and entry < least:
            raise SimulationError(f"{name}[{i}] is {entry}; it must be {least} or above")
    return found


def _entries(value: Any) -> tuple[Any, ...] | None:
    """The entries of a sequence, no more than one beyond the highest rank; None if it is none."""
    try:
        operator.index(value)
        return (value,)
    except TypeError:  # arrays of several entries raise it too
        pass
    if isinstance(value, (str, bytes, Mapping, Set)):
        return None
    try:
        return tuple(islice(value, FULL_RANK + 1))
    except TypeError:
        return None


def same_rank(**vectors: Sequence[int]) -> None:
    """Refuse vectors of different lengths.

    Raises
    ------
    SimulationError
    """
    if len({len(entries) for entries in vectors.values()}) > 1:
        counts = ", ".join(f"{name} {len(entries)}" for name, entries in vectors.items())
        raise SimulationError(f"entries: {counts}; give each one entry per dimension, dimension 0 first")


def operation(op: Any) -> str:
    """``"load"`` or ``"store"``.

    Raises
    ------
    SimulationError
        For anything else.
    """
    if not isinstance(op, str) or op not in OPERATIONS:
        raise SimulationError(f"op is {op!r}; it must be 'load' (global to shared) or 'store' (shared to global)")
    return op
