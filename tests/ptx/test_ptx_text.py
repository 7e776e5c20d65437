"""The text of every form, written out from the PTX ISA's syntax sections and not from the tables under test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

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


def listed() -> Iterator[str]:
    """The mnemonics of the copies, reductions, tensor maps and fences: the PTX ISA's syntax lines, multiplied out."""
    hints, tx = ("", ".L2::cache_hint"), "mbarrier::complete_tx::bytes"
    loads = [
        ("tile", range(1, 6)),
        ("tile::gather4", (2,)),
        *((m, (3, 4, 5)) for m in ("im2col", "im2col::w", "im2col::w::128")),
    ]
    stores = [("tile", range(1, 6)), ("im2col_no_offs", (3, 4, 5))]
    for (mode, ranks), group, hint in product(loads, ("", ".cta_group::1", ".cta_group::2"), hints):
        for rank in ranks:
            yield f"cp.async.bulk.tensor.{rank}d.shared::cta.global.{mode}.{tx}{group}{hint}"
            for cast in ("", ".multicast::cluster"):
                yield f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.{tx}{cast}{group}{hint}"
            if not group:
                yield f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.{mode}{hint}"
    for (mode, ranks), hint in product([*stores, ("tile::scatter4", (2,))], hints):
        yield from (f"cp.async.bulk.tensor.{rank}d.global.shared::cta.{mode}.bulk_group{hint}" for rank in ranks)
    for (mode, ranks), hint, op in product(stores, hints, ("add", "min", "max", "inc", "dec", "and", "or", "xor")):
        yield from (
            f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}.{mode}.bulk_group{hint}" for rank in ranks
        )
    everywhere = [("", ""), (".weak", ""), *((f".relaxed.{s}", ".b128") for s in ("cta", "cluster", "gpu", "sys"))]
    for (order, type_), hint in product(everywhere, hints):
        for oob in ("", ".ignore_oob"):
            yield f"cp.async.bulk{order}.shared::cta.global.{tx}{hint}{oob}{type_}"
        for cast in ("", ".multicast::cluster"):
            yield f"cp.async.bulk{order}.shared::cluster.global.{tx}{cast}{hint}{type_}"
        for mask in ("", ".cp_mask"):
            yield f"cp.async.bulk{order}.global.shared::cta.bulk_group{hint}{mask}{type_}"
            if not hint:
                yield f"multimem.cp.async.bulk{order}.global.shared::cta.bulk_group{mask}{type_}"
    for order, type_ in everywhere[:4]:
        yield f"cp.async.bulk{order}.shared::cluster.shared::cta.{tx}{type_}"
    yield from (f"cp.async.bulk.prefetch.L2.global{hint}" for hint in hints)
    integers = ["add.u32", "add.s32", "add.u64", "inc.u32", "dec.u32"]
    integers += [f"{op}.{t}" for op in ("min", "max") for t in ("u32", "s32")]
    bits = [f"{op}.{t}" for op in ("and", "or", "xor") for t in ("b32", "b64")]
    wide = ["add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16"]
    wide += [f"{op}.{t}" for op in ("min", "max") for t in ("u64", "s64", "f16", "bf16")]
    relaxed = ["", *(order for order, _ in everywhere[2:])]
    for order, what in product(relaxed, [*integers, *bits, *wide]):
        yield from (f"cp.reduce.async.bulk{order}.global.shared::cta.bulk_group{hint}.{what}" for hint in hints)
        yield f"multimem.cp.reduce.async.bulk{order}.global.shared::cta.bulk_group.{what}"
    for order, what in product(relaxed[:3], [*integers, *(b for b in bits if b.endswith("32"))]):
        yield f"cp.reduce.async.bulk{order}.shared::cluster.shared::cta.{tx}.{what}"
    fields = ["global_address.b64", "global_stride.b64"]
    fields += [f"{f}.b32" for f in ("rank", "box_dim", "global_dim", "element_stride", "elemtype", "interleave_layout")]
    fields += [f"{f}.b32" for f in ("swizzle_mode", "swizzle_atomicity", "fill_mode")]
    for (name, width), space in product((f.split(".") for f in fields), ("", ".global", ".shared::cta")):
        yield f"tensormap.replace.tile.{name}{space}.b1024.{width}"
    for scope in ("cta", "cluster", "gpu", "sys"):
        yield f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned"
        yield f"fence.proxy.tensormap::generic.acquire.{scope}"
        yield f"fence.proxy.tensormap::generic.release.{scope}"


def test_the_catalogue_has_the_documented_spellings_and_no_others() -> None:
    prefixes = ("cp.async.bulk", "cp.reduce", "multimem", "tensormap", "fence.proxy.tensormap")
    found = {i.mnemonic for i in ptx.catalogue() if i.mnemonic.startswith(prefixes) and "_group" not in i.family}
    documented = set(listed())
    assert len(documented) > 900
    assert found - documented == set()
    assert documented - found == set()


@pytest.mark.parametrize(
    "text",
    [
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4, %5;",
        "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask [%0], [%1], %2, %3, %4;",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%0], [%1], %2, %3, %4, [%5];",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.inc.u32 [%0], [%1], %2, [%3];",
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster"
        ".cta_group::2.L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10}, %11, %12;",
        "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w::128.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%2, %3, %4}], [%5], {%6, %7};",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];",
        "tensormap.replace.tile.global_stride.global.b1024.b64 [%0], %1, %2;",
        "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], %1;",
        "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;",
        "mbarrier.arrive_drop.noComplete.release.cta.shared::cta.b64 %0, [%1], %2;",
        "mbarrier.arrive_drop.relaxed.cluster.shared::cluster.b64 _, [%0], %1;",
        "mbarrier.arrive_drop.expect_tx.shared::cluster.relaxed.cluster.b64 _, [%0], %1;",
        "mbarrier.complete_tx.relaxed.cta.shared::cluster.b64 [%0], %1;",
        "mbarrier.try_wait.acquire.cluster.shared::cta.b64 %0, [%1], %2, %3;",
        "mapa.shared::cluster.u32 %0, %1, %2;",
        "barrier.cluster.arrive.release.aligned;",
        "createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %0, [%1], %2, %3;",
        "createpolicy.fractional.L2::evict_first.b64 %0, %1;",
        "griddepcontrol.launch_dependents;",
        "setmaxnreg.inc.sync.aligned.u32 %0;",
        "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;",
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];",
        "stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared::cta.b8x16.b6x16_p32 {%0, %1}, [%2];",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, %6, %7, %8, %9, %10;",
        "wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e5m2 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, %9, %10, %11;",
        "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.u8.s8 {%0, %1, %2, %3}, %4, %5, %6;",
    ],
)
def test_documented_operand_orders_are_in_the_catalogue(text: str) -> None:
    assert text in {i.text for i in ptx.catalogue()}


def test_mnemonic_is_the_text_without_operands() -> None:
    for i in ptx.catalogue():
        assert i.mnemonic == i.text.rstrip(";").split(" ")[0]


def test_str_is_the_text() -> None:
    assert str(ptx.fence_proxy_async()) == "fence.proxy.async;"
