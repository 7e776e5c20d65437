"""Objects are known again by what they are, as long as all of them live."""

from __future__ import annotations

import numpy as np
import pytest

from cupytma.ops import known_objects
from cupytma.ops.known_objects import Watch, identity_of


class Thing:
    """Equal to everything, and as long as it says."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __len__(self) -> int:
        raise RuntimeError("no length")


def test_lists_of_the_same_objects_in_the_same_order_have_one_identity() -> None:
    things = [Thing() for _ in range(5)]
    found = identity_of([things, []])
    assert found == identity_of([tuple(things), ()])
    assert hash(found) == hash(identity_of([list(things), []]))
    others = [
        [things[::-1], []], [things[:4], []], [[], things], [things], [things, things[:1]],
        [[*things[:4], Thing()], []], [[*things[:4], things[0]], []],
    ]  # fmt: skip
    assert len({found, *map(identity_of, others)}) == len(others) + 1


@pytest.mark.parametrize("count", [0, 1, 2, 7, 4096])
def test_identities_are_those_that_python_tells(count: int) -> None:
    things = tuple(Thing() for _ in range(count))
    wanted = np.array([id(thing) for thing in things], np.uintp).tobytes()
    assert known_objects._identities(things) == wanted
    assert known_objects._references(things) == wanted


@pytest.mark.parametrize("thing", [np.zeros((2, 3)), [1, 2], "text", None, 5, {}])
def test_objects_of_any_kind_have_an_identity(thing: object) -> None:
    assert identity_of([[thing, thing]]) == identity_of([(thing, thing)])
    assert identity_of([[thing]]) != identity_of([[Thing()]])
    assert len(identity_of([[thing] * 3])[0]) == 3 * np.dtype(np.intp).itemsize


def test_a_watch_ends_with_the_first_object() -> None:
    things = [Thing() for _ in range(5)]
    watch = Watch(things)
    assert watch.is_alive
    del things[2]
    assert not watch.is_alive


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(TypeError):
        Watch([Thing(), 5])
