"""Calls with many torch tensors are found again while the tensors lie as they did, and only then."""

from __future__ import annotations

import random
import weakref
from typing import Any

import numpy as np
import pytest

from cupytma.ops import groups, recent
from cupytma.ops.groups import PreparedGroups
from cupytma.ops.recent import Recent

torch = pytest.importorskip("torch")

CHANGES = {
    "another shape": lambda t: t.resize_(8, 4),
    "fewer elements": lambda t: t.resize_(4, 4),
    "other strides": lambda t: t.t_(),
    "other memory": lambda t: t.set_(torch.zeros(4, 8, dtype=t.dtype)),
    "another type": lambda t: setattr(t, "data", t.data.view(torch.int32)),
}


@pytest.fixture(params=[True, False], ids=["guarded", "compared"])
def lists(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    if not request.param:
        monkeypatch.setattr(recent, "guard_of", lambda tensors: None)
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


OTHERS = {
    "no array": lambda: None,
    "a number": lambda: 3,
    "an array of another library": lambda: np.zeros((4, 8), np.float32),
    "a sparse tensor": lambda: torch.zeros(4, 8).to_sparse(),
    "a parameter": lambda: torch.nn.Parameter(torch.zeros(4, 8)),
    "a lazy view": lambda: torch._neg_view(torch.zeros(4, 8)),
    "a tensor elsewhere": lambda: torch.zeros(4, 8),
    "a tensor without memory": lambda: torch.zeros(4, 8, device="meta"),
}


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("other", OTHERS)
def test_whatever_else_is_in_a_list_makes_another_call(lists: list[list[Any]], other: str, place: int) -> None:
    known, prepared = Recent(), PreparedGroups(0, (), again=False)
    known.keep("copy", prepared, lists)
    for which in (0, 1):
        changed = [list(several) for several in lists]
        changed[which][place] = OTHERS[other]()
        assert known.get("copy", changed) is None
        known.keep("copy", prepared, lists)
        assert known.get("copy", lists) is prepared


@pytest.mark.parametrize("seed", range(10))
def test_whatever_becomes_of_tensors_in_place_is_seen(lists: list[list[Any]], seed: int) -> None:
    def layouts() -> Any:
        return [[(t.data_ptr(), t.shape, t.stride(), t.dtype, t.is_neg()) for t in several] for several in lists]

    chance, known, kept = random.Random(seed), Recent(), {}
    for _ in range(300):
        if chance.random() < 0.5:
            list(CHANGES.values())[chance.randrange(len(CHANGES))](lists[chance.randrange(2)][chance.randrange(5)])
        if (found := known.get("copy", lists)) is None:
            found = PreparedGroups(0, (), again=False)
            known.keep("copy", found, lists, by_shape=True)
            kept[found] = layouts()
        assert kept[found] == layouts()
        assert known.get("copy", lists) is found
    assert len(known._known) <= 16


def test_modes_of_torch_lead_to_more_preparation_at_most(lists: list[list[Any]]) -> None:
    known, prepared = Recent(), PreparedGroups(0, (), again=False)
    lists[0][2].requires_grad_()
    for before in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        for after in (torch.no_grad, torch.enable_grad, torch.inference_mode):
            with before():
                known.keep("copy", prepared, lists)
            with after():
                assert known.get("copy", lists) in (prepared, None)
                for several in lists:
                    other = [several[0], several[1], several[2].detach().t(), *several[3:]]
                    assert known.get("copy", [other, lists[1]]) is None
    assert known.get("copy", lists) in (prepared, None)


@pytest.mark.parametrize("was_found", [0, 1, 2])
def test_a_nested_tensor_in_the_place_of_its_own_values_makes_another_call(
    lists: list[list[Any]], was_found: int
) -> None:
    """torch's guards end the process when they meet one."""
    known, prepared = Recent(), PreparedGroups(0, (), again=False)
    nested = torch.nested.nested_tensor([torch.zeros(3), torch.zeros(5)])
    lists[0][2] = nested.values()
    assert lists[0][2].data_ptr() == nested.data_ptr()
    known.keep("copy", prepared, lists)
    for _ in range(was_found):
        assert known.get("copy", lists) is prepared
    others = [[*lists[0][:2], nested, *lists[0][3:]], lists[1]]
    assert known.get("copy", others) is None
    known.keep("copy", PreparedGroups(0, (), again=False), others)
    assert known.get("copy", lists) is None


def test_other_tensors_are_looked_at_when_those_that_were_seen_are_dead(lists: list[list[Any]]) -> None:
    known, prepared = Recent(), PreparedGroups(0, (), again=False)
    nested = torch.nested.nested_tensor([torch.zeros(3), torch.zeros(5)])
    lists[0][2] = nested.values()
    known.keep("copy", prepared, lists)
    assert known.get("copy", lists) is prepared
    held = [[tensor.view_as(tensor) for tensor in several] for several in lists]
    for several in lists:
        several.clear()
    for _ in range(2):
        assert known.get("copy", held) is prepared
    held[0][2] = nested
    assert known.get("copy", held) is None


def test_what_was_prepared_keeps_no_tensor_alive(lists: list[list[Any]]) -> None:
    known = Recent()
    known.keep("copy", PreparedGroups(0, (), again=False), lists)
    assert known.get("copy", lists) is not None
    dead = [weakref.ref(tensor) for several in lists for tensor in several]
    for several in lists:
        several.clear()
    assert not any(reference() is not None for reference in dead)


@pytest.mark.parametrize("now", [1, 2, None])  # the capture that the stream is in
def test_a_captured_call_with_nothing_to_launch_is_found_or_made_again(
    lists: list[list[Any]], monkeypatch: pytest.MonkeyPatch, now: int | None
) -> None:
    monkeypatch.setattr(groups, "capture_of", lambda handle: 1 if handle == 7 else None)
    monkeypatch.setattr(groups, "keep_for_graph", lambda handle, kept: None)
    monkeypatch.setattr(groups.group_errors, "raise_noted", lambda device: None)
    monkeypatch.setattr(recent, "capture_of", lambda handle: now if handle == 7 else None)
    known, prepared = Recent(), PreparedGroups(0, (), again=True)
    known.keep("ragged_gather", prepared, lists)
    prepared.launch(7)
    assert known.get("ragged_gather", lists) is (prepared if now == 1 else None)
