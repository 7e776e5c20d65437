"""Every class of illegal combination, with its message."""

from __future__ import annotations

from typing import Any

import pytest

from cupytma import ptx
from cupytma.errors import CupytmaError, EmissionError

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("tensor_load", {"rank": 0}, "tensor_load: rank=0 is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": 6}, "tensor_load: rank=6 is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": "2d"}, "tensor_load: rank='2d' is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": 2.0}, "tensor_load: rank=2.0 is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": True}, "tensor_load: rank=True is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": 2, "mode": "tiled"}, "tensor_load: mode='tiled' is not supported; supported: 'tile'"),
    ("tensor_load", {"rank": 2, "mode": None}, "tensor_load: mode=None is not supported; supported: 'tile'"),
    (
        "tensor_load",
        {"rank": 2, "destination": "shared"},
        "tensor_load: destination='shared' is not supported; supported: 'shared::cluster', 'shared::cta'",
    ),
    (
        "tensor_load",
        {"rank": 2, "destination": "global"},
        "tensor_load: destination='global' is not supported; supported: 'shared::cluster', 'shared::cta'",
    ),
    (
        "tensor_load",
        {"rank": 2, "destination": "shared::cta", "multicast": True},
        "tensor_load: multicast=True clashes with destination='shared::cta', which only the executing block has; "
        "multicast goes with destination='shared::cluster'",
    ),
    ("tensor_load", {"rank": 2, "multicast": 3}, "tensor_load: multicast=3 is not supported; supported: False, True"),
    ("tensor_load", {"rank": 2, "multicast": 1}, "tensor_load: multicast=1 is not supported; supported: False, True"),
    (
        "tensor_load",
        {"rank": 2, "cache_hint": "evict_first"},
        "tensor_load: cache_hint='evict_first' is not supported; supported: False, True",
    ),
    ("tensor_store", {"rank": 9}, "tensor_store: rank=9 is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_store", {"rank": 2, "mode": "tiled"}, "tensor_store: mode='tiled' is not supported; supported: 'tile'"),
    ("tensor_store", {"rank": 2, "cache_hint": 0}, "tensor_store: cache_hint=0 is not supported"),
    (
        "prefetch_tensormap",
        {"space": "global"},
        "prefetch_tensormap: space='global' is not supported; supported: 'generic', 'param', 'const'",
    ),
    ("bulk_wait_group", {"read": 0}, "bulk_wait_group: read=0 is not supported; supported: False, True"),
    (
        "mbarrier_arrive",
        {"semantics": "acquire", "scope": "cta"},
        "mbarrier_arrive: semantics='acquire' is not supported; supported: None, 'release', 'relaxed'",
    ),
    (
        "mbarrier_arrive",
        {"semantics": "release", "scope": "gpu"},
        "mbarrier_arrive: scope='gpu' is not supported; supported: None, 'cta', 'cluster'",
    ),
    (
        "mbarrier_arrive",
        {"semantics": "release"},
        "mbarrier_arrive: semantics='release' clashes with scope=None: PTX writes both or neither; "
        "legal scopes: 'cta', 'cluster'",
    ),
    (
        "mbarrier_arrive",
        {"scope": "cluster"},
        "mbarrier_arrive: scope='cluster' clashes with semantics=None: PTX writes both or neither; "
        "legal semantics: 'release', 'relaxed'",
    ),
    ("mbarrier_arrive", {"count": 2}, "mbarrier_arrive: count=2 is not supported; supported: False, True"),
    ("mbarrier_arrive", {"state": None}, "mbarrier_arrive: state=None is not supported; supported: True, False"),
    ("mbarrier_arrive_expect_tx", {"scope": "cta"}, "legal semantics: 'release', 'relaxed'"),
    ("mbarrier_arrive_expect_tx", {"semantics": "relaxed"}, "legal scopes: 'cta', 'cluster'"),
    (
        "mbarrier_expect_tx",
        {"semantics": "release", "scope": "cta"},
        "mbarrier_expect_tx: semantics='release' is not supported; supported: None, 'relaxed'",
    ),
    ("mbarrier_expect_tx", {"scope": "cta"}, "legal semantics: 'relaxed'"),
    (
        "mbarrier_try_wait_parity",
        {"semantics": "release", "scope": "cta"},
        "mbarrier_try_wait_parity: semantics='release' is not supported; supported: None, 'acquire', 'relaxed'",
    ),
    ("mbarrier_try_wait_parity", {"semantics": "acquire"}, "legal scopes: 'cta', 'cluster'"),
    ("mbarrier_try_wait_parity", {"suspend_time_hint": 20}, "suspend_time_hint=20 is not supported"),
    ("mbarrier_test_wait_parity", {"scope": "cluster"}, "legal semantics: 'acquire', 'relaxed'"),
    (
        "fence_proxy_async",
        {"space": "shared"},
        "fence_proxy_async: space='shared' is not supported; supported: None, 'global', 'shared::cta', "
        "'shared::cluster'",
    ),
    ("elect_sync", {"lane": 1}, "elect_sync: lane=1 is not supported; supported: False, True"),
]


@pytest.mark.parametrize(("constructor", "words", "message"), REFUSED, ids=[f"{c}{w}" for c, w, _ in REFUSED])
def test_illegal_words_are_refused_with_what_is_legal(constructor: str, words: dict[str, Any], message: str) -> None:
    with pytest.raises(EmissionError) as refusal:
        getattr(ptx, constructor)(**words)
    assert message in str(refusal.value)
    assert isinstance(refusal.value, CupytmaError)
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize("words", [[2], {"rank": 2}, object(), b"2"], ids=["list", "dict", "object", "bytes"])
def test_a_rank_of_any_other_type_is_refused_and_does_not_crash(words: object) -> None:
    with pytest.raises(EmissionError, match="rank="):
        ptx.tensor_load(rank=words)  # type: ignore[arg-type]


def test_a_numpy_integer_is_a_rank() -> None:
    numpy = pytest.importorskip("numpy")
    assert ptx.tensor_load(rank=numpy.int64(2)) == ptx.tensor_load(rank=2)
    with pytest.raises(EmissionError, match="rank="):
        ptx.tensor_load(rank=numpy.arange(2))


def test_words_are_keywords_only() -> None:
    with pytest.raises(TypeError):
        ptx.tensor_load(2)  # type: ignore[call-arg]
