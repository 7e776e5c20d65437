"""The names in LLVM and in the NVVM dialect: pinned ones, one intrinsic for what is equal, and LLVM's own answer."""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict

import pytest
from generator import generated

from cupytma import ptx
from cupytma.errors import EmissionError
from cupytma.ptx import Instruction

LLVMLITE = importlib.util.find_spec("llvmlite")
INLINE_CALL, INLINE_OP = "llvm.inline_asm", "nvvm.inline_ptx"
CTA, CLUSTER, GLOBAL = "shared::cta", "shared::cluster", "global"


def intrinsic(i: Instruction) -> str:
    return ptx.llvm_intrinsic(i, naming="upstream")


def scoped(form: str, **words: object) -> Instruction:
    return getattr(ptx, f"mbarrier_{form}")(scope="cluster", **words)


# As IntrinsicsNVVM.td and NVVMOps.td have them.
@pytest.mark.parametrize(
    ("i", "called", "op"),
    [
        (ptx.tensor_load(rank=2), "cp.async.bulk.tensor.g2s.tile.2d", "cp.async.bulk.tensor.shared.cluster.global"),
        (
            ptx.tensor_load(rank=3, mode="im2col::w::128", destination=CTA),
            "cp.async.bulk.tensor.g2s.cta.im2col.w.128.3d",
            "cp.async.bulk.tensor.shared.cluster.global",
        ),
        (
            ptx.tensor_load(rank=2, mode="tile::gather4", multicast=True),
            "cp.async.bulk.tensor.g2s.tile.gather4.2d",
            "cp.async.bulk.tensor.shared.cluster.global",
        ),
        (ptx.tensor_load(rank=1, destination=CTA, cta_group=2), None, None),
        (
            ptx.tensor_store(rank=2, mode="tile::scatter4"),
            "cp.async.bulk.tensor.s2g.tile.scatter4.2d",
            "cp.async.bulk.tensor.global.shared.cta",
        ),
        (
            ptx.tensor_store(rank=3, mode="im2col_no_offs", cache_hint=True),
            "cp.async.bulk.tensor.s2g.im2col.3d",
            "cp.async.bulk.tensor.global.shared.cta",
        ),
        (
            ptx.tensor_reduce(rank=5, mode="im2col_no_offs", reduction="xor"),
            "cp.async.bulk.tensor.reduce.xor.im2col.5d",
            "cp.async.bulk.tensor.reduce",
        ),
        (
            ptx.tensor_prefetch(rank=4, mode="im2col::w"),
            "cp.async.bulk.tensor.prefetch.im2col.w.4d",
            "cp.async.bulk.tensor.prefetch",
        ),
        (
            ptx.bulk_copy(destination=CLUSTER, source=GLOBAL),
            "cp.async.bulk.global.to.shared.cluster",
            "cp.async.bulk.shared.cluster.global",
        ),
        (
            ptx.bulk_copy(destination=CTA, source=GLOBAL),
            "cp.async.bulk.global.to.shared.cta",
            "cp.async.bulk.shared.cluster.global",
        ),
        (
            ptx.bulk_copy(destination=CLUSTER, source=CTA),
            "cp.async.bulk.shared.cta.to.cluster",
            "cp.async.bulk.shared.cluster.shared.cta",
        ),
        (
            ptx.bulk_copy(destination=GLOBAL, source=CTA, byte_mask=True),
            "cp.async.bulk.shared.cta.to.global.bytemask",
            "cp.async.bulk.global.shared.cta",
        ),
        (ptx.bulk_copy(destination=CTA, source=GLOBAL, ignore_oob=True), None, None),
        (ptx.bulk_reduce(destination=GLOBAL, reduction="add", data_type="f32"), None, None),
        (ptx.bulk_prefetch(), "cp.async.bulk.prefetch.L2", "cp.async.bulk.prefetch"),
        (ptx.bulk_commit_group(), "cp.async.bulk.commit.group", "cp.async.bulk.commit.group"),
        (ptx.bulk_wait_group(read=True), "cp.async.bulk.wait.group.read", "cp.async.bulk.wait_group"),
        (ptx.cp_async_wait_all(), "cp.async.wait.all", None),
        (
            ptx.cp_async_mbarrier_arrive(noinc=True),
            "cp.async.mbarrier.arrive.noinc.shared",
            "cp.async.mbarrier.arrive",
        ),
        (ptx.tensormap_cp_fenceproxy(scope="gpu"), None, "tensormap.cp_fenceproxy"),
        (ptx.tensormap_replace(field="box_dim"), "tensormap.replace.box.dim", "tensormap.replace"),
        (ptx.tensormap_replace(field="rank", space="generic"), None, None),
        (ptx.prefetch_tensormap(space="param"), "prefetch.tensormap", "prefetch"),
        (
            ptx.fence_proxy_tensormap_acquire(scope="sys"),
            "fence.proxy.tensormap_generic.acquire.sys",
            "fence.proxy.acquire",
        ),
        (ptx.fence_proxy_async(), "fence.proxy.async", "fence.proxy"),
        (ptx.fence_proxy_async(space=CLUSTER), "fence.proxy.async.shared_cluster", "fence.proxy"),
        (
            ptx.fence_proxy_async_generic(semantics="release"),
            "fence.proxy.async_generic.release.sync_restrict.space.cta.scope.cluster",
            "fence.proxy.sync_restrict",
        ),
        (ptx.fence_proxy_async_generic(semantics="release_read"), None, None),
        (
            ptx.fence_sync_restrict(semantics="acquire"),
            "fence.acquire.sync_restrict.space.cluster.scope.cluster",
            "fence.sync_restrict",
        ),
        (ptx.fence(semantics="sc", scope="cluster"), "fence.sc.cluster", "fence.sc.cluster"),
        (ptx.fence(semantics="sc", scope="gpu"), None, None),
        (ptx.fence_mbarrier_init(), "fence.mbarrier_init.release.cluster", "fence.mbarrier.init"),
        (ptx.mbarrier_init(), "mbarrier.init.shared", "mbarrier.init"),
        (ptx.mbarrier_arrive(space="generic"), "mbarrier.arrive", "mbarrier.arrive"),
        (ptx.mbarrier_arrive(), "mbarrier.arrive.shared", "mbarrier.arrive"),
        (ptx.mbarrier_arrive(count=True), "mbarrier.arrive.scope.cta.space.cta", "mbarrier.arrive"),
        (ptx.mbarrier_arrive(count=True, space="generic"), None, "mbarrier.arrive"),
        (
            ptx.mbarrier_arrive_no_complete(drop=True),
            "mbarrier.arrive.drop.noComplete.shared",
            "mbarrier.arrive_drop.nocomplete",
        ),
        (
            scoped("arrive_expect_tx", semantics="relaxed", space=CLUSTER, state=False),
            "mbarrier.arrive.expect.tx.relaxed.scope.cluster.space.cluster",
            "mbarrier.arrive.expect_tx",
        ),
        (
            scoped("complete_tx", semantics="relaxed"),
            "mbarrier.complete.tx.scope.cluster.space.cta",
            "mbarrier.complete_tx",
        ),
        (ptx.mbarrier_pending_count(), "mbarrier.pending.count", None),
        (ptx.mbarrier_test_wait(), "mbarrier.test.wait.shared", "mbarrier.test.wait"),
        (ptx.mbarrier_test_wait_parity(), "mbarrier.test.wait.parity.scope.cta.space.cta", "mbarrier.test.wait"),
        (
            scoped("try_wait_parity", semantics="relaxed", suspend_time_hint=True),
            "mbarrier.try.wait.parity.tl.relaxed.scope.cluster.space.cta",
            "mbarrier.try_wait",
        ),
        (ptx.mapa(space="generic", type="u64"), "mapa", "mapa"),
        (ptx.getctarank(), "getctarank.shared.cluster", None),
        (
            ptx.barrier_cluster_arrive(semantics="relaxed", aligned=True),
            "barrier.cluster.arrive.relaxed.aligned",
            "cluster.arrive.relaxed",
        ),
        (ptx.barrier_cluster_wait(semantics="acquire"), "barrier.cluster.wait", "cluster.wait"),
        (ptx.griddepcontrol(action="launch_dependents"), "griddepcontrol.launch.dependents", "griddepcontrol"),
        (ptx.setmaxnreg(action="dec"), "setmaxnreg.dec.sync.aligned.u32", "setmaxregister"),
        (ptx.elect_sync(), "elect.sync", "elect.sync"),
        (
            ptx.ldmatrix(num=1, shape="m16n16", trans=True, type="b8x16.b6x16_p32"),
            "ldmatrix.sync.aligned.m16n16.x1.trans.b8x16.b6x16_p32",
            "ldmatrix",
        ),
        (ptx.stmatrix(num=4, space="generic"), "stmatrix.sync.aligned.m8n8.x4.b16", None),
        (ptx.wgmma_commit_group(), "wgmma.commit_group.sync.aligned", "wgmma.commit.group.sync.aligned"),
        (ptx.wgmma_mma_async(n=8, a_type="f16"), None, "wgmma.mma_async"),
        (ptx.wgmma_mma_async(n=8, a_type="f16", a_source="registers"), None, None),
        (ptx.createpolicy_cvt(), None, None),
    ],
    ids=repr,
)
def test_names_upstream(i: Instruction, called: str | None, op: str | None) -> None:
    assert intrinsic(i) == (INLINE_CALL if called is None else f"llvm.nvvm.{called}")
    assert ptx.nvvm_name(i, naming="upstream") == (INLINE_OP if op is None else f"nvvm.{op}")


def test_the_founding_documents_names() -> None:
    def names(i: Instruction) -> tuple[str, str]:
        return ptx.nvvm_name(i), ptx.llvm_intrinsic(i)

    tensor = "nvvm.cp.async.bulk.tensor."
    assert names(ptx.tensor_load(rank=3, mode="im2col::w::128")) == (
        f"{tensor}shared.cluster.global",
        f"llvm.{tensor}3d.shared.cluster.global.im2col_w_128",
    )
    assert names(ptx.tensor_load(rank=5, destination=CTA)) == (
        f"{tensor}shared.cta.global",
        f"llvm.{tensor}5d.shared.cta.global.tile",
    )
    assert names(ptx.tensor_load(rank=2, mode="tile::gather4"))[1] == INLINE_CALL
    assert names(ptx.tensor_store(rank=1)) == (f"{tensor}global.shared.cta", f"llvm.{tensor}1d.global.shared.cta.tile")
    assert names(ptx.tensor_store(rank=2, mode="tile::scatter4"))[1] == INLINE_CALL
    hinted = {h: ptx.tensor_store(rank=3, mode="im2col_no_offs", cache_hint=h) for h in (False, True)}
    assert [names(i)[1] for i in hinted.values()] == [f"llvm.{tensor}s2g.im2col.3d", INLINE_CALL]
    for reduction in ptx.REDUCTIONS:
        form = ptx.tensor_reduce(rank=2, reduction=reduction)
        assert names(form) == (f"{tensor}reduce", f"llvm.{tensor}2d.global.shared.cta.tile.reduce.{reduction}")
    assert names(ptx.tensor_prefetch(rank=4)) == (f"{tensor}prefetch", f"llvm.{tensor}4d.tile.prefetch")
    assert names(ptx.bulk_wait_group()) == ("nvvm.cp.async.bulk.wait_group", "llvm.nvvm.cp.async.bulk.wait_group")
    assert names(ptx.tensormap_cp_fenceproxy(scope="cta")) == (
        "nvvm.tensormap.cp_fenceproxy",
        f"llvm.{tensor}shared.cluster.tensormap.cta",
    )
    fields = {"global_address": "global_address", "elemtype": "elem_type", "swizzle_mode": "swizzle"}
    for field, spelt in fields.items():
        assert names(ptx.tensormap_replace(field=field))[0] == f"nvvm.tensormap.replace.tile.{spelt}"


def test_where_the_document_is_silent_its_naming_is_upstreams() -> None:
    named = {"tensor_load", "tensor_store", "tensor_reduce", "tensor_prefetch"}
    named |= {"bulk_wait_group", "tensormap_cp_fenceproxy", "tensormap_replace"}
    for i in ptx.catalogue():
        for name in (ptx.nvvm_name, ptx.llvm_intrinsic):
            assert name(i, naming="upstream") == name(i, naming="document") == name(i) or i.family in named


@pytest.mark.parametrize("name", [ptx.nvvm_name, ptx.llvm_intrinsic])
def test_another_naming_is_refused(name: object) -> None:
    with pytest.raises(EmissionError, match="naming='cuda' is not supported; supported: 'upstream', 'document'"):
        name(ptx.bulk_commit_group(), naming="cuda")  # type: ignore[operator]


# What calls of one intrinsic may differ in: flags, unused outputs, and defaults that are written or not.
OPEN = {"cache_hint", "multicast", "cta_group", "state", "lane", "count", "release_cta", "type", "semantics", "scope"}
OVERLOADED = ("prefetch_tensormap", "tensormap_replace", "ldmatrix", "stmatrix")
UNORDERED = ("mbarrier_expect_tx", "mbarrier_complete_tx")


def defaults(family: str) -> set[str | None]:
    """The semantics that are the same as none."""
    return {None, "relaxed"} if family in UNORDERED else {None, "weak", "release", "acquire"}


def test_an_intrinsic_stands_for_equal_forms_alone() -> None:
    forms = defaultdict(list)
    for i in ptx.catalogue():
        forms[intrinsic(i)].append(i)
    del forms[INLINE_CALL]
    assert len(forms) == 288
    for name, sharing in forms.items():
        assert re.fullmatch(r"llvm\.nvvm(\.[A-Za-z0-9_]+)+", name)
        (family,) = {i.family for i in sharing}
        words = {key: {dict(i.words)[key] for i in sharing} for key, _ in sharing[0].words}
        differing = {key for key, values in words.items() if len(values) > 1}
        assert differing <= OPEN | ({"space"} if family in OVERLOADED else set())
        assert "semantics" not in differing or words["semantics"] <= defaults(family)
        assert "scope" not in differing or words["scope"] == {None, "cta"}


WITHOUT_INTRINSIC = {
    *("bulk_reduce", "multimem_bulk_copy", "multimem_bulk_reduce", "tensormap_cp_fenceproxy", "wgmma_mma_async"),
    *("createpolicy_fractional", "createpolicy_range", "createpolicy_cvt"),
}


def test_families_without_an_intrinsic() -> None:
    reached = {i.family for i in ptx.catalogue() if intrinsic(i) != INLINE_CALL}
    assert {i.family for i in ptx.catalogue()} - reached == WITHOUT_INTRINSIC


# A word of the form, what LLVM writes in its place: what it means where it is left out, and the defaults the other way.
EQUAL = {
    ("cta_group", 1, None),
    ("semantics", "weak", None),
    ("semantics", "release", None),
    ("semantics", "acquire", None),
    ("scope", "cta", None),
    ("scope", None, "cta"),
    ("state", False, True),
    ("count", False, True),
    ("release_cta", True, False),
    ("lane", False, True),
    ("type", "u32", "u64"),
}


@pytest.mark.skipif(LLVMLITE is None, reason="needs llvmlite, which has LLVM's code generator for PTX")
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_llvm_generates_the_form_from_a_call_of_its_intrinsic(target: str) -> None:
    forms = [i for i in ptx.catalogue() if i.supported_on(target) and intrinsic(i) != INLINE_CALL]
    bodies = generated(forms, target)
    assert list(bodies) == forms
    for i, body in bodies.items():
        (written,) = (ptx.parse(line) for line in map(str.strip, body.splitlines()) if line.startswith(STARTS))
        assert written.family == i.family
        words = dict(written.words)
        allowed = EQUAL | ({("semantics", None, "relaxed")} if i.family in UNORDERED else set())
        assert {(key, value, words[key]) for key, value in i.words if words[key] != value} <= allowed


STARTS = tuple({i.mnemonic.split(".")[0] + "." for i in ptx.catalogue()})
