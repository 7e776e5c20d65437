"""Calls with many torch tensors are found again while the tensors lie as they did, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from cupytma.ops import recent
from cupytma.ops.groups import PreparedGroups
from cupytma.ops.recent import Recent

torch = pytest.importorskip("torch")

CHANGES = {
    "another shape": lambda t: t.resize_(8, 4),
    "fewer elements": lambda t: t.resize_(4, 4),
    "other strides": lambda t: t.t_(),
    "other memory": lambda t: t.set_(torch.zeros(4, 8)),
    "another type": lambda t: setattr(t, "data", t.data.view(torch.int32)),
}


@pytest.fixture(params=[True, False], ids=["guarded", "compared"])
def lists(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    if not request.param:
        monkeypatch.setattr(recent, "_guard", lambda tensors: None)
    return [[torch.zeros(4, 8) for _ in range(5)] for _ in range(2)]


@pytest.mark.parametrize("change", CHANGES)
def test_a_tensor_that_lies_otherwise_makes_another_call(lists: list[list[Any]], change: str) -> None:
    known, prepared = Recent(), PreparedGroups(0, (), again=False)
    assert known.get("copy", lists) is None
    known.keep("copy", prepared, lists, by_shape=True)
    assert known.get("copy", lists) is prepared
    assert known.get("transpose", lists) is None
    CHANGES[change](lists[1][2])
    assert known.get("copy", lists) is None


def test_tensors_that_lie_as_others_did_are_taken_for_them(lists: list[list[Any]]) -> None:
    known, prepared = Recent(), PreparedGroups(0, (), again=False)
    known.keep("copy", prepared, lists)
    again = [[tensor.view(4, 8) for tensor in several] for several in lists]
    assert known.get("copy", again) is prepared
    assert known.get("copy", [again[0], again[1][:4]]) is None
    assert known.get("copy", again[::-1]) is None
    assert known.get("copy", [[again[0][0], *again[0][2:4], again[0][1], again[0][4]], again[1]]) is None
    assert known.get("copy", [[], []]) is None
