"""Many objects, known again at little cost."""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Lists = Sequence[Sequence[Any]]


def identity_of(lists: Lists) -> tuple[bytes, ...]:
    """What tells the objects in some lists, and their order, from others that live at the same time."""
    return tuple([_references(tuple(several)) for several in lists])


def _identities(objects: tuple[Any, ...]) -> bytes:
    return np.fromiter(map(id, objects), np.uintp, len(objects)).tobytes()


def _held(objects: tuple[Any, ...]) -> bytes:
    """The same, as CPython's tuples hold it: a tenth of what asking for each identity costs (measured)."""
    return ctypes.string_at(id(objects) + tuple.__basicsize__, len(objects) * tuple.__itemsize__)


def _chosen() -> Callable[[tuple[Any, ...]], bytes]:
    if sys.implementation.name != "cpython":
        return _identities
    probe = (None, object(), "", 5)
    return _held if _held(probe) == _identities(probe) else _identities


_references = _chosen()


class Watch:
    """Whether some objects all live, after which others may have their places.

    Raises
    ------
    TypeError
        Where that cannot be known of one.

    Attributes
    ----------
    is_alive : bool
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self.is_alive = True
        lost = weakref.WeakMethod(self._lose)

        def callback(_: Any) -> None:
            if (method := lost()) is not None:
                method()

        self._references = [weakref.ref(one, callback) for one in objects]

    def _lose(self) -> None:
        self.is_alive = False
