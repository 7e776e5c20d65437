"""The text of every form, written out from the PTX ISA's syntax sections and not from the tables under test."""

from __future__ import annotations

import pytest

from cupytma import ptx

# One line per form: the constructor call, then the text.
FORMS = """
tensor_load(rank=1) => cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];
tensor_load(rank=2) => cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];
tensor_load(rank=3) => cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];
tensor_load(rank=4) => cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];
tensor_load(rank=5) => cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];
tensor_load(rank=1, cache_hint=True) => cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2}], [%3], %4;
tensor_load(rank=2, cache_hint=True) => cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;
tensor_load(rank=3, cache_hint=True) => cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;
tensor_load(rank=4, cache_hint=True) => cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;
tensor_load(rank=5, cache_hint=True) => cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;
tensor_load(rank=1, multicast=True) => cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2}], [%3], %4;
tensor_load(rank=2, multicast=True) => cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;
tensor_load(rank=3, multicast=True) => cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;
tensor_load(rank=4, multicast=True) => cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;
tensor_load(rank=5, multicast=True) => cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;
tensor_load(rank=1, multicast=True, cache_hint=True) => cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%2}], [%3], %4, %5;
tensor_load(rank=2, multicast=True, cache_hint=True) => cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;
tensor_load(rank=3, multicast=True, cache_hint=True) => cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;
tensor_load(rank=4, multicast=True, cache_hint=True) => cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;
tensor_load(rank=5, multicast=True, cache_hint=True) => cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8, %9;
tensor_load(rank=1, destination='shared::cta') => cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];
tensor_load(rank=2, destination='shared::cta') => cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];
tensor_load(rank=3, destination='shared::cta') => cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];
tensor_load(rank=4, destination='shared::cta') => cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];
tensor_load(rank=5, destination='shared::cta') => cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];
tensor_load(rank=1, destination='shared::cta', cache_hint=True) => cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2}], [%3], %4;
tensor_load(rank=2, destination='shared::cta', cache_hint=True) => cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;
tensor_load(rank=3, destination='shared::cta', cache_hint=True) => cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;
tensor_load(rank=4, destination='shared::cta', cache_hint=True) => cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;
tensor_load(rank=5, destination='shared::cta', cache_hint=True) => cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;
tensor_store(rank=1) => cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%1}], [%2];
tensor_store(rank=2) => cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];
tensor_store(rank=3) => cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];
tensor_store(rank=4) => cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];
tensor_store(rank=5) => cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];
tensor_store(rank=1, cache_hint=True) => cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1}], [%2], %3;
tensor_store(rank=2, cache_hint=True) => cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;
tensor_store(rank=3, cache_hint=True) => cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2, %3}], [%4], %5;
tensor_store(rank=4, cache_hint=True) => cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2, %3, %4}], [%5], %6;
tensor_store(rank=5, cache_hint=True) => cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1, %2, %3, %4, %5}], [%6], %7;
prefetch_tensormap() => prefetch.tensormap [%0];
prefetch_tensormap(space='param') => prefetch.param.tensormap [%0];
prefetch_tensormap(space='const') => prefetch.const.tensormap [%0];
bulk_commit_group() => cp.async.bulk.commit_group;
bulk_wait_group() => cp.async.bulk.wait_group %0;
bulk_wait_group(read=True) => cp.async.bulk.wait_group.read %0;
mbarrier_init() => mbarrier.init.shared::cta.b64 [%0], %1;
mbarrier_inval() => mbarrier.inval.shared::cta.b64 [%0];
mbarrier_arrive() => mbarrier.arrive.shared::cta.b64 %0, [%1];
mbarrier_arrive(count=True) => mbarrier.arrive.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive(state=False) => mbarrier.arrive.shared::cta.b64 _, [%0];
mbarrier_arrive(state=False, count=True) => mbarrier.arrive.shared::cta.b64 _, [%0], %1;
mbarrier_arrive(semantics='release', scope='cta') => mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1];
mbarrier_arrive(semantics='release', scope='cta', count=True) => mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive(semantics='release', scope='cta', state=False) => mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];
mbarrier_arrive(semantics='release', scope='cta', state=False, count=True) => mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;
mbarrier_arrive(semantics='release', scope='cluster') => mbarrier.arrive.release.cluster.shared::cta.b64 %0, [%1];
mbarrier_arrive(semantics='release', scope='cluster', count=True) => mbarrier.arrive.release.cluster.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive(semantics='release', scope='cluster', state=False) => mbarrier.arrive.release.cluster.shared::cta.b64 _, [%0];
mbarrier_arrive(semantics='release', scope='cluster', state=False, count=True) => mbarrier.arrive.release.cluster.shared::cta.b64 _, [%0], %1;
mbarrier_arrive(semantics='relaxed', scope='cta') => mbarrier.arrive.relaxed.cta.shared::cta.b64 %0, [%1];
mbarrier_arrive(semantics='relaxed', scope='cta', count=True) => mbarrier.arrive.relaxed.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive(semantics='relaxed', scope='cta', state=False) => mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];
mbarrier_arrive(semantics='relaxed', scope='cta', state=False, count=True) => mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0], %1;
mbarrier_arrive(semantics='relaxed', scope='cluster') => mbarrier.arrive.relaxed.cluster.shared::cta.b64 %0, [%1];
mbarrier_arrive(semantics='relaxed', scope='cluster', count=True) => mbarrier.arrive.relaxed.cluster.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive(semantics='relaxed', scope='cluster', state=False) => mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%0];
mbarrier_arrive(semantics='relaxed', scope='cluster', state=False, count=True) => mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%0], %1;
mbarrier_arrive_expect_tx() => mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive_expect_tx(state=False) => mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;
mbarrier_arrive_expect_tx(semantics='release', scope='cta') => mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive_expect_tx(semantics='release', scope='cta', state=False) => mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;
mbarrier_arrive_expect_tx(semantics='release', scope='cluster') => mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive_expect_tx(semantics='release', scope='cluster', state=False) => mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 _, [%0], %1;
mbarrier_arrive_expect_tx(semantics='relaxed', scope='cta') => mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive_expect_tx(semantics='relaxed', scope='cta', state=False) => mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], %1;
mbarrier_arrive_expect_tx(semantics='relaxed', scope='cluster') => mbarrier.arrive.expect_tx.relaxed.cluster.shared::cta.b64 %0, [%1], %2;
mbarrier_arrive_expect_tx(semantics='relaxed', scope='cluster', state=False) => mbarrier.arrive.expect_tx.relaxed.cluster.shared::cta.b64 _, [%0], %1;
mbarrier_expect_tx() => mbarrier.expect_tx.shared::cta.b64 [%0], %1;
mbarrier_expect_tx(semantics='relaxed', scope='cta') => mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;
mbarrier_expect_tx(semantics='relaxed', scope='cluster') => mbarrier.expect_tx.relaxed.cluster.shared::cta.b64 [%0], %1;
mbarrier_try_wait_parity() => mbarrier.try_wait.parity.shared::cta.b64 %0, [%1], %2;
mbarrier_try_wait_parity(suspend_time_hint=True) => mbarrier.try_wait.parity.shared::cta.b64 %0, [%1], %2, %3;
mbarrier_try_wait_parity(semantics='acquire', scope='cta') => mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_try_wait_parity(semantics='acquire', scope='cta', suspend_time_hint=True) => mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %0, [%1], %2, %3;
mbarrier_try_wait_parity(semantics='acquire', scope='cluster') => mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %0, [%1], %2;
mbarrier_try_wait_parity(semantics='acquire', scope='cluster', suspend_time_hint=True) => mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %0, [%1], %2, %3;
mbarrier_try_wait_parity(semantics='relaxed', scope='cta') => mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_try_wait_parity(semantics='relaxed', scope='cta', suspend_time_hint=True) => mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %0, [%1], %2, %3;
mbarrier_try_wait_parity(semantics='relaxed', scope='cluster') => mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %0, [%1], %2;
mbarrier_try_wait_parity(semantics='relaxed', scope='cluster', suspend_time_hint=True) => mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %0, [%1], %2, %3;
mbarrier_test_wait_parity() => mbarrier.test_wait.parity.shared::cta.b64 %0, [%1], %2;
mbarrier_test_wait_parity(semantics='acquire', scope='cta') => mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_test_wait_parity(semantics='acquire', scope='cluster') => mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %0, [%1], %2;
mbarrier_test_wait_parity(semantics='relaxed', scope='cta') => mbarrier.test_wait.parity.relaxed.cta.shared::cta.b64 %0, [%1], %2;
mbarrier_test_wait_parity(semantics='relaxed', scope='cluster') => mbarrier.test_wait.parity.relaxed.cluster.shared::cta.b64 %0, [%1], %2;
fence_proxy_async() => fence.proxy.async;
fence_proxy_async(space='global') => fence.proxy.async.global;
fence_proxy_async(space='shared::cta') => fence.proxy.async.shared::cta;
fence_proxy_async(space='shared::cluster') => fence.proxy.async.shared::cluster;
fence_mbarrier_init() => fence.mbarrier_init.release.cluster;
elect_sync() => elect.sync _|%0, %1;
elect_sync(lane=True) => elect.sync %0|%1, %2;
"""  # noqa: E501

PAIRS = [tuple(line.split(" => ")) for line in FORMS.strip().splitlines()]


def made(call: str) -> ptx.Instruction:
    """The instruction that a constructor call, as text, makes."""
    instruction = eval(call, vars(ptx))
    assert isinstance(instruction, ptx.Instruction)
    return instruction


@pytest.mark.parametrize(("call", "text"), PAIRS, ids=[call for call, _ in PAIRS])
def test_text_is_the_documented_spelling(call: str, text: str) -> None:
    assert made(call).text == text


def test_text_of_the_design_example() -> None:
    i = ptx.tensor_load(rank=2, mode="tile", destination="shared::cluster", multicast=True, cache_hint=True)
    assert i.text == (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;"
    )
    assert i.constraints == ("r", "l", "r", "r", "r", "h", "l")


def test_the_catalogue_holds_these_forms_and_no_other() -> None:
    assert sorted(i.text for i in ptx.catalogue()) == sorted(text for _, text in PAIRS)


def test_mnemonic_is_the_text_without_operands() -> None:
    for i in ptx.catalogue():
        assert i.mnemonic == i.text.rstrip(";").split(" ")[0]


def test_str_is_the_text() -> None:
    assert str(ptx.fence_proxy_async()) == "fence.proxy.async;"
