"""The planner says how and why."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import explain, explanation

BASE = np.zeros((256, 512), np.float32)
MISPLACED = np.zeros(BASE.size + 8, np.float32)
START = -MISPLACED.ctypes.data // 4 % 4 + 1


@pytest.mark.parametrize(
    ("operation", "source", "arguments", "path", "reason"),
    [
        (tma.copy, BASE, (), "rows as they are", ""),
        (tma.copy, BASE[:, :501], (np.zeros((256, 504), np.float32)[:, :501],), "rows as they are", "rounds the end"),
        (tma.copy, MISPLACED[START : START + 1000], (), "word by word", "source address is"),
        (tma.copy, BASE[:, ::2], (), "word by word", "only 4 B lie together"),
        (tma.transpose, BASE, (), "swizzled tiles", ""),
        (tma.transpose, np.zeros((256, 511), np.float32), (), "tiles of shared memory", "no multiple of 16"),
        (tma.permute, np.zeros((8, 64, 64), np.float16), ((1, 0, 2),), "rows as they are", ""),
        (tma.permute, np.zeros((64, 3, 64), np.float16), ((2, 1, 0),), "swizzled tiles", ""),
        (tma.copy, BASE[:0], (), "nothing to move", "empty"),
    ],
)
def test_the_way_and_the_rule_that_forced_it_are_named(operation, source, arguments, path: str, reason: str) -> None:
    found = explain(operation, source, *arguments)
    assert path in found.path
    assert reason in found.reason
    assert bool(reason) == bool(found.reason)
    if found.plan.turned is not None and found.box_dim:
        assert found.box_dim == found.plan.turned.source.decode().box_dim
    assert found.bytes_through_maps + found.bytes_otherwise == source.nbytes
    assert (found.bytes_through_maps > 0) == bool(found.box_dim)
    assert all(text in str(found) for text in (path, reason, str(found.bytes_otherwise)))


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (sum, ()), (tma.permute, ()), (tma.permute, ((0, 0),)), (tma.copy, (BASE.T,)), (tma.copy, (BASE, BASE)),
        (None, ()),
    ],
)
def test_what_cannot_be_explained_is_refused(operation, arguments) -> None:
    with pytest.raises(ArrayError):
        explain(operation, BASE, *arguments)


def test_the_example_of_the_documentation_is_what_comes_out() -> None:
    assert doctest.testmod(explanation).failed == 0
