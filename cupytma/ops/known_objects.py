"""Many objects, known again at little cost."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Lists = Sequence[Sequence[Any]]


def identity_of(lists: Lists) -> tuple[bytes, ...]:
    """What tells the objects in some lists, and their order, from others that live at the same time.

    It is the references to them, as an array of numpy holds them: a fifth of what asking for the `id` of each costs.
    """
    found = []
    for several in map(tuple, lists):  # another thread may change a list meanwhile
        held = np.fromiter(several, object, len(several))
        found.append(ctypes.string_at(held.ctypes.data, held.nbytes))
    return tuple(found)


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
