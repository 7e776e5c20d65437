"""Operand lists: order, constraint letters, types and spaces, and the founding documents' index rules."""

from __future__ import annotations

import re

import pytest

from cupytma import ptx
from cupytma.errors import EmissionError

RANKS = range(1, 6)
LOADS = [i for i in ptx.catalogue() if i.family == "tensor_load"]
STORES = [i for i in ptx.catalogue() if i.family == "tensor_store"]


def words(instruction: ptx.Instruction) -> dict[str, object]:
    return dict(instruction.words)


def test_placeholders_number_the_operands_in_order() -> None:
    for i in ptx.catalogue():
        assert [int(n) for n in re.findall(r"%(\d+)", i.text)] == list(range(len(i.operands)))
        assert i.operands == i.outputs + i.inputs  # inline assembly numbers outputs first


@pytest.mark.parametrize("i", LOADS, ids=repr)
def test_load_operand_positions_follow_the_index_rules(i: ptx.Instruction) -> None:
    rank, multicast = sum(o.vector == "coordinates" for o in i.operands), bool(words(i)["multicast"])
    offsets = sum(o.constraint == "h" and o.name != "cta_mask" for o in i.operands)
    assert i.index_of("destination") == 0
    assert i.index_of("tensor_map") == 1
    assert i.index_of("mbarrier") == rank + 2
    if multicast:
        assert i.index_of("cta_mask") == ptx.mcast_opnum(rank, offsets) == rank + 3 + offsets
    if words(i)["cache_hint"]:
        assert i.index_of("cache_policy") == ptx.ch_opnum(rank, offsets, multicast) == rank + 3 + offsets + multicast


@pytest.mark.parametrize("i", STORES, ids=repr)
def test_store_has_the_descriptor_first(i: ptx.Instruction) -> None:
    rank = sum(o.vector == "coordinates" for o in i.operands)
    assert i.index_of("tensor_map") == 0
    assert i.index_of("source") == rank + 1


@pytest.mark.parametrize(
    ("rank", "im2col_count", "multicast", "mask", "hint"),
    [(1, 0, False, 4, 4), (2, 0, True, 5, 6), (3, 1, False, 7, 7), (5, 3, True, 11, 12)],
)
def test_trailing_operand_indices(rank: int, im2col_count: int, multicast: bool, mask: int, hint: int) -> None:
    assert ptx.mcast_opnum(rank, im2col_count) == mask
    assert ptx.ch_opnum(rank, im2col_count, multicast) == hint


@pytest.mark.parametrize("rank", RANKS)
def test_tensor_constraints_are_l_for_pointers_and_hints_r_for_coordinates_h_for_masks(rank: int) -> None:
    coordinates = ("r",) * rank
    assert ptx.tensor_load(rank=rank).constraints == ("r", "l", *coordinates, "r")
    assert ptx.tensor_load(rank=rank, multicast=True).constraints == ("r", "l", *coordinates, "r", "h")
    assert ptx.tensor_load(rank=rank, destination="shared::cta", cache_hint=True).constraints == (
        *("r", "l", *coordinates, "r"),
        "l",
    )
    assert ptx.tensor_store(rank=rank).constraints == ("l", *coordinates, "r")
    assert ptx.tensor_store(rank=rank, cache_hint=True).constraints == ("l", *coordinates, "r", "l")


@pytest.mark.parametrize(
    ("i", "outputs", "inputs"),
    [
        (ptx.mbarrier_init(), (), ("r", "r")),
        (ptx.mbarrier_inval(), (), ("r",)),
        (ptx.mbarrier_arrive(), ("=l",), ("r",)),
        (ptx.mbarrier_arrive(state=False, count=True), (), ("r", "r")),
        (ptx.mbarrier_arrive_expect_tx(), ("=l",), ("r", "r")),
        (ptx.mbarrier_expect_tx(), (), ("r", "r")),
        (ptx.mbarrier_try_wait_parity(suspend_time_hint=True), ("=r",), ("r", "r", "r")),
        (ptx.mbarrier_test_wait_parity(), ("=r",), ("r", "r")),
        (ptx.bulk_commit_group(), (), ()),
        (ptx.bulk_wait_group(), (), ("n",)),
        (ptx.fence_proxy_async(), (), ()),
        (ptx.fence_mbarrier_init(), (), ()),
        (ptx.elect_sync(), ("=r",), ("r",)),
        (ptx.elect_sync(lane=True), ("=r", "=r"), ("r",)),
        (ptx.prefetch_tensormap(space="param"), (), ("l",)),
    ],
    ids=repr,
)
def test_constraints_of_outputs_and_inputs(
    i: ptx.Instruction, outputs: tuple[str, ...], inputs: tuple[str, ...]
) -> None:
    assert i.output_constraints == outputs
    assert i.constraints == inputs


def test_predicates_are_marked() -> None:
    wait = ptx.mbarrier_try_wait_parity().outputs[0]
    assert wait.is_predicate
    assert wait.type == "pred"
    assert [o.is_predicate for o in ptx.elect_sync(lane=True).outputs] == [False, True]


def test_shared_addresses_are_32_bits_and_others_64() -> None:
    # mapa and getctarank name the width of their address in the mnemonic.
    forms = [i for i in ptx.catalogue() if i.family not in ("mapa", "getctarank")]
    for operand in (operand for i in forms for operand in i.operands):
        if operand.space:
            assert operand.constraint == ("r" if operand.space.startswith("shared::") else "l")


def test_operand_spaces() -> None:
    load = ptx.tensor_load(rank=1, destination="shared::cta")
    assert [o.space for o in load.operands] == ["shared::cta", "generic", None, "shared::cta"]
    assert [o.space for o in ptx.tensor_load(rank=1).operands] == [
        "shared::cluster",
        "generic",
        None,
        "shared::cluster",
    ]
    assert [o.space for o in ptx.tensor_store(rank=1).operands] == ["generic", None, "shared::cta"]
    assert ptx.prefetch_tensormap(space="const").operands[0].space == "const"


def test_operand_descriptions_name_units_and_alignments() -> None:
    described = {o.name: o.description for i in ptx.catalogue() for o in i.operands}
    tensors = {o.name: o.description for i in (*LOADS, *STORES) for o in i.operands}
    assert "aligned to 128 bytes" in tensors["destination"]
    assert "aligned to 128 bytes" in tensors["source"]
    assert "aligned to 64 bytes" in tensors["tensor_map"]
    assert "aligned to 8 bytes" in described["mbarrier"]
    assert "elements" in described["coordinate_0"]
    assert "bytes" in described["bytes"]
    assert "nanoseconds" in described["suspend_time_hint"]


def test_memory_is_clobbered_by_all_that_touch_or_order_it() -> None:
    pure = {"elect_sync", "mapa", "getctarank", "mbarrier_pending_count"}
    pure |= {f"createpolicy_{kind}" for kind in ("fractional", "range", "cvt")}
    for i in ptx.catalogue():
        assert i.clobbers == (() if i.family in pure else ("memory",))


def test_an_absent_operand_is_refused_with_those_there_are() -> None:
    with pytest.raises(EmissionError, match=r"tensor_store\(rank=1.*no operand 'mbarrier'; it has: tensor_map, coord"):
        ptx.tensor_store(rank=1).index_of("mbarrier")
