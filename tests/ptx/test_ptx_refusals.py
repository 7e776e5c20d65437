"""Every class of illegal combination, with its message."""

from __future__ import annotations

from typing import Any

import pytest

from cupytma import ptx
from cupytma.errors import CupytmaError, EmissionError

MODES = "supported: 'tile', 'tile::gather4', 'im2col', 'im2col::w', 'im2col::w::128'"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("tensor_load", {"rank": 0}, "tensor_load: rank=0 is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": 6}, "tensor_load: rank=6 is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": "2d"}, "tensor_load: rank='2d' is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": 2.0}, "tensor_load: rank=2.0 is not supported; supported: 1, 2, 3, 4, 5"),
    ("tensor_load", {"rank": True}, "tensor_load: rank=True is not supported; supported: 1, 2, 3, 4, 5"),
    (
        "tensor_load",
        {"rank": 2, "mode": "tiled"},
        f"tensor_load: mode='tiled' is not supported; {MODES}",
    ),
    (
        "tensor_load",
        {"rank": 2, "mode": None},
        f"tensor_load: mode=None is not supported; {MODES}",
    ),
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
    ("tensor_load", {"rank": 2, "mode": "im2col"}, "rank=2 clashes with mode='im2col'"),
    ("tensor_load", {"rank": 1, "mode": "im2col::w"}, "legal ranks: 3, 4, 5"),
    ("tensor_load", {"rank": 3, "mode": "tile::gather4"}, "rank=3 clashes with mode='tile::gather4'"),
    ("tensor_load", {"rank": 2, "mode": "tile::scatter4"}, "mode='tile::scatter4' is not supported"),
    ("tensor_load", {"rank": 2, "cta_group": 3}, "cta_group=3 is not supported; supported: None, 1, 2"),
    ("tensor_store", {"rank": 2, "mode": "im2col_no_offs"}, "rank=2 clashes with mode='im2col_no_offs'"),
    ("tensor_store", {"rank": 3, "mode": "im2col"}, "supported: 'tile', 'tile::scatter4', 'im2col_no_offs'"),
    ("tensor_store", {"rank": 4, "mode": "tile::scatter4"}, "legal rank: 2"),
    (
        "tensor_reduce",
        {"rank": 2, "reduction": "add", "mode": "tile::scatter4"},
        "the assembler turns it into a plain scatter store that loses the reduction; "
        "legal modes: 'tile', 'im2col_no_offs'",
    ),
    (
        "tensor_reduce",
        {"rank": 2, "reduction": "mul"},
        "reduction='mul' is not supported; supported: 'add', 'min', 'max'",
    ),
    (
        "tensor_reduce",
        {"rank": 2, "reduction": "inc", "data_type": "INT32"},
        "reduction='inc' clashes with data_type='INT32': inc exists for u32; s32 has add, min, max, and, or, xor",
    ),
    ("tensor_reduce", {"rank": 2, "reduction": "and", "data_type": "INT64"}, "s64 has min, max"),
    ("tensor_prefetch", {"rank": 2, "mode": "im2col"}, "legal ranks: 3, 4, 5"),
    ("bulk_copy", {"destination": "global", "source": "global"}, "legal directions: global to shared::cluster"),
    ("bulk_copy", {"destination": "shared::cta", "source": "shared::cta"}, "legal directions"),
    ("bulk_copy", {"destination": "shared", "source": "global"}, "destination='shared' is not supported"),
    (
        "bulk_copy",
        {"destination": "shared::cta", "source": "global", "multicast": True},
        "multicast goes with destination='shared::cluster' and source='global'",
    ),
    (
        "bulk_copy",
        {"destination": "shared::cluster", "source": "shared::cta", "cache_hint": True},
        "does not pass the L2 cache",
    ),
    (
        "bulk_copy",
        {"destination": "shared::cluster", "source": "global", "ignore_oob": True},
        "it goes with destination='shared::cta'",
    ),
    ("bulk_copy", {"destination": "shared::cta", "source": "global", "byte_mask": True}, "destination='global'"),
    (
        "bulk_copy",
        {"destination": "shared::cta", "source": "global", "semantics": "relaxed"},
        "semantics='relaxed' clashes with scope=None",
    ),
    (
        "bulk_copy",
        {"destination": "shared::cta", "source": "global", "semantics": "weak", "scope": "gpu"},
        "scope='gpu' clashes with semantics='weak'",
    ),
    (
        "bulk_copy",
        {"destination": "shared::cluster", "source": "shared::cta", "semantics": "relaxed", "scope": "gpu"},
        "legal scopes: 'cta', 'cluster'",
    ),
    ("bulk_reduce", {"reduction": "xor", "data_type": "s32"}, "to global, xor exists for b32, b64"),
    ("bulk_reduce", {"reduction": "add", "data_type": "s64"}, "add exists for u32, s32, u64, f16, bf16, f32, f64"),
    (
        "bulk_reduce",
        {"reduction": "add", "data_type": "f32", "destination": "shared::cluster"},
        "to shared::cluster, add exists for u32, s32, u64",
    ),
    (
        "bulk_reduce",
        {"reduction": "add", "data_type": "u32", "destination": "shared::cluster", "cache_hint": True},
        "cache_hint=True clashes with destination='shared::cluster'",
    ),
    ("multimem_bulk_reduce", {"reduction": "dec", "data_type": "f32"}, "dec exists for u32"),
    ("tensormap_replace", {"field": "box_size"}, "field='box_size' is not supported; supported: 'global_address'"),
    ("tensormap_replace", {"field": "rank", "space": "shared"}, "space='shared' is not supported"),
    ("tensormap_replace", {"field": "global_stride", "ordinal": 4}, "ordinal=4 is out of range; legal: 0 to 3"),
    ("tensormap_replace", {"field": "global_dim", "ordinal": 5}, "ordinal=5 is out of range; legal: 0 to 4"),
    ("tensormap_replace", {"field": "rank", "ordinal": 0}, "has no immediate 'ordinal'; it has: none"),
    ("tensormap_replace", {"field": "fill_mode", "value": 2}, "value=2 is out of range; legal: 0 or 1"),
    ("tensormap_cp_fenceproxy", {"scope": "block"}, "supported: 'cta', 'cluster', 'gpu', 'sys'"),
    ("fence_proxy_tensormap", {"semantics": "acq_rel", "scope": "gpu"}, "supported: 'release', 'acquire'"),
    ("setmaxnreg", {"action": "inc", "count": 100}, "count=100 is out of range; legal: 24 to 256 in steps of 8"),
    ("setmaxnreg", {"action": "set"}, "supported: 'inc', 'dec'"),
    ("mbarrier_arrive", {"space": "shared::cluster"}, "state=True clashes with space='shared::cluster'"),
    ("mbarrier_test_wait", {"space": "shared::cluster"}, "supported: 'shared::cta', 'generic'"),
    ("createpolicy_fractional", {"primary": "evict_last", "secondary": "evict_last"}, "secondary='evict_last'"),
    ("wgmma_mma_async", {"n": 12, "a_type": "f16"}, "n=12 is not supported"),
    ("wgmma_mma_async", {"n": 40, "a_type": "s8"}, "n=40 is not supported"),
    ("wgmma_mma_async", {"n": 64, "a_type": "f64"}, "a_type='f64' is not supported; supported: 'f16', 'bf16'"),
    ("wgmma_mma_async", {"n": 64, "a_type": "bf16", "d_type": "f16"}, "d_type='f16' clashes with a_type='bf16'"),
    ("wgmma_mma_async", {"n": 64, "a_type": "f16", "b_type": "bf16"}, "b_type='bf16' clashes with a_type='f16'"),
    ("wgmma_mma_async", {"n": 64, "a_type": "f16", "satfinite": True}, "satfinite=True clashes with a_type='f16'"),
    ("ldmatrix", {"num": 4, "shape": "m16n16", "trans": True, "type": "b8"}, "num=4 clashes with shape='m16n16'"),
    ("ldmatrix", {"num": 1, "shape": "m16n16", "type": "b8"}, "always transposed"),
    ("ldmatrix", {"num": 1, "type": "b8"}, "type='b8' clashes with shape='m8n8'; legal: 'b16'"),
    ("stmatrix", {"num": 1, "shape": "m16n8", "trans": True}, "legal: 'b8'"),
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
