"""The names of a form in LLVM and in MLIR's NVVM dialect, and those that the founding document gives it.

Sources: IntrinsicsNVVM.td of LLVM 22, whose code generator turns a call of the named intrinsic into the form, and
NVVMOps.td. ``nvvm.tensormap.cp_fenceproxy`` is in the dialect that NVIDIA ships with the CUTLASS DSL, not in MLIR's.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.ptx.checks import checked_word
from cupytma.ptx.family import Condition, Value, Words, given
from cupytma.ptx.instruction import Instruction, form_of

_INLINE_OP, _INLINE_CALL = "nvvm.inline_ptx", "llvm.inline_asm"
_CTA, _CLUSTER, _GLOBAL, _GENERIC = "shared::cta", "shared::cluster", "global", "generic"


@dataclass(frozen=True)
class _Row:
    """A name, with places for words, of a family's forms; of those for which the conditions hold."""

    family: str
    name: str
    conditions: tuple[Condition, ...] = ()


def _row(family: str, name: str, *conditions: Condition) -> _Row:
    return _Row(family, name, conditions)


_TO_CTA, _TO_CLUSTER, _TO_GLOBAL = (given(destination=space) for space in (_CTA, _CLUSTER, _GLOBAL))
_FROM_CTA, _FROM_GLOBAL = given(source=_CTA), given(source=_GLOBAL)
_PLAIN_COPY = given(semantics=(None, "weak"), ignore_oob=False)
_ONE_BLOCK = given(cta_group=(None, 1))  # what may be left out, and is all there is for a shared::cta destination
_IN_CTA, _IN_CLUSTER, _IN_GLOBAL = (given(space=space) for space in (_CTA, _CLUSTER, _GLOBAL))
_SHARED, _NO_PEER = given(space=(_CTA, _CLUSTER)), given(space=(_CTA, _GENERIC))
_NOT_GENERIC = given(space=(_GLOBAL, _CTA))
_DEFAULT_ORDER = given(scope=(None, "cta"), semantics=(None, "release", "acquire"))
_CLUSTER_SC = given(semantics="sc", scope="cluster")
_ACQUIRE, _RELEASE = given(semantics="acquire"), given(semantics="release")

# Without "llvm.nvvm.". The first row whose conditions hold counts; what has none is reached by inline assembly.
_INTRINSICS = (
    _row("tensor_load", "cp.async.bulk.tensor.g2s.{mode}.{rank}d", _TO_CLUSTER),
    _row("tensor_load", "cp.async.bulk.tensor.g2s.cta.{mode}.{rank}d", _ONE_BLOCK),
    _row("tensor_store", "cp.async.bulk.tensor.s2g.{mode}.{rank}d"),
    _row("tensor_reduce", "cp.async.bulk.tensor.reduce.{reduction}.{mode}.{rank}d"),
    _row("tensor_prefetch", "cp.async.bulk.tensor.prefetch.{mode}.{rank}d"),
    _row("bulk_copy", "cp.async.bulk.global.to.{destination}", _PLAIN_COPY, _FROM_GLOBAL),
    _row("bulk_copy", "cp.async.bulk.shared.cta.to.cluster", _PLAIN_COPY, _TO_CLUSTER),
    _row("bulk_copy", "cp.async.bulk.shared.cta.to.global{byte_mask}", _PLAIN_COPY, _TO_GLOBAL),
    _row("bulk_prefetch", "cp.async.bulk.prefetch.L2"),
    _row("bulk_commit_group", "cp.async.bulk.commit.group"),
    _row("bulk_wait_group", "cp.async.bulk.wait.group{read}"),
    _row("cp_async_commit_group", "cp.async.commit.group"),
    _row("cp_async_wait_group", "cp.async.wait.group"),
    _row("cp_async_wait_all", "cp.async.wait.all"),
    _row("cp_async_mbarrier_arrive", "cp.async.mbarrier.arrive{noinc}{shared}"),
    _row("prefetch_tensormap", "prefetch.tensormap"),
    _row("tensormap_replace", "tensormap.replace.{field}", _NOT_GENERIC),
    _row("fence_proxy_tensormap_release", "fence.proxy.tensormap_generic.release.{scope}"),
    _row("fence_proxy_tensormap_acquire", "fence.proxy.tensormap_generic.acquire.{scope}"),
    _row("fence_proxy_async", "fence.proxy.async.shared_cta", _IN_CTA),
    _row("fence_proxy_async", "fence.proxy.async.shared_cluster", _IN_CLUSTER),
    _row("fence_proxy_async", "fence.proxy.async.global", _IN_GLOBAL),
    _row("fence_proxy_async", "fence.proxy.async"),
    _row("fence_proxy_async_generic", "fence.proxy.async_generic.{restriction}", _ACQUIRE),
    _row("fence_proxy_async_generic", "fence.proxy.async_generic.{restriction}", _RELEASE),
    _row("fence_sync_restrict", "fence.{restriction}"),
    _row("fence_proxy_alias", "fence.proxy.alias"),
    _row("fence_mbarrier_init", "fence.mbarrier_init.release.cluster"),
    _row("fence", "fence.sc.cluster", _CLUSTER_SC),  # the others are LLVM's own instruction, fence
    _row("mbarrier_init", "mbarrier.init{shared}"),
    _row("mbarrier_inval", "mbarrier.inval{shared}"),
    _row("mbarrier_arrive", "mbarrier.arrive{shared}", _DEFAULT_ORDER, _NO_PEER, given(count=False)),
    _row("mbarrier_arrive", "mbarrier.arrive{relaxed}{where}", _SHARED),
    _row("mbarrier_arrive_expect_tx", "mbarrier.arrive.expect.tx{relaxed}{where}", _SHARED),
    _row("mbarrier_arrive_no_complete", "mbarrier.arrive.noComplete{shared}"),
    _row("mbarrier_arrive_drop", "mbarrier.arrive.drop{shared}", _DEFAULT_ORDER, _NO_PEER, given(count=False)),
    _row("mbarrier_arrive_drop", "mbarrier.arrive.drop{relaxed}{where}", _SHARED),
    _row("mbarrier_arrive_drop_expect_tx", "mbarrier.arrive.drop.expect.tx{relaxed}{where}", _SHARED),
    _row("mbarrier_arrive_drop_no_complete", "mbarrier.arrive.drop.noComplete{shared}"),
    _row("mbarrier_expect_tx", "mbarrier.expect.tx{where}", _SHARED),
    _row("mbarrier_complete_tx", "mbarrier.complete.tx{where}", _SHARED),
    _row("mbarrier_pending_count", "mbarrier.pending.count"),
    _row("mbarrier_test_wait", "mbarrier.test.wait{shared}", _DEFAULT_ORDER),
    _row("mbarrier_test_wait", "mbarrier.test.wait{relaxed}{where}", _IN_CTA),
    _row("mbarrier_test_wait_parity", "mbarrier.test.wait.parity{relaxed}{where}", _IN_CTA),
    _row("mbarrier_try_wait", "mbarrier.try.wait{suspend_time_hint}{relaxed}{where}", _IN_CTA),
    _row("mbarrier_try_wait_parity", "mbarrier.try.wait.parity{suspend_time_hint}{relaxed}{where}", _IN_CTA),
    _row("elect_sync", "elect.sync"),
    _row("mapa", "mapa{of_cluster}"),
    _row("getctarank", "getctarank{of_cluster}"),
    _row("barrier_cluster_arrive", "barrier.cluster.arrive{relaxed}{aligned}"),
    _row("barrier_cluster_wait", "barrier.cluster.wait{aligned}"),
    _row("griddepcontrol", "griddepcontrol.{action}"),
    _row("setmaxnreg", "setmaxnreg.{action}.sync.aligned.u32"),
    _row("ldmatrix", "ldmatrix.sync.aligned.{shape}.x{num}{trans}.{type}"),
    _row("stmatrix", "stmatrix.sync.aligned.{shape}.x{num}{trans}.{type}"),
    _row("wgmma_fence", "wgmma.fence.sync.aligned"),
    _row("wgmma_commit_group", "wgmma.commit_group.sync.aligned"),
    _row("wgmma_wait_group", "wgmma.wait_group.sync.aligned"),
)

# Without "nvvm.". Modes, scopes, spaces, fields and what is optional are attributes and operands of the op.
_OPS = (
    _row("tensor_load", "cp.async.bulk.tensor.shared.cluster.global", _TO_CLUSTER),
    _row("tensor_load", "cp.async.bulk.tensor.shared.cluster.global", _ONE_BLOCK),
    _row("tensor_store", "cp.async.bulk.tensor.global.shared.cta"),
    _row("tensor_reduce", "cp.async.bulk.tensor.reduce"),
    _row("tensor_prefetch", "cp.async.bulk.tensor.prefetch"),
    _row("bulk_copy", "cp.async.bulk.shared.cluster.global", _PLAIN_COPY, _FROM_GLOBAL),
    _row("bulk_copy", "cp.async.bulk.{destination}.shared.cta", _PLAIN_COPY),
    _row("bulk_prefetch", "cp.async.bulk.prefetch"),
    _row("bulk_commit_group", "cp.async.bulk.commit.group"),
    _row("bulk_wait_group", "cp.async.bulk.wait_group"),
    _row("cp_async_commit_group", "cp.async.commit.group"),
    _row("cp_async_wait_group", "cp.async.wait.group"),
    _row("cp_async_mbarrier_arrive", "cp.async.mbarrier.arrive"),
    _row("prefetch_tensormap", "prefetch"),
    _row("tensormap_replace", "tensormap.replace", _NOT_GENERIC),
    _row("tensormap_cp_fenceproxy", "tensormap.cp_fenceproxy"),
    _row("fence_proxy_tensormap_release", "fence.proxy.release"),
    _row("fence_proxy_tensormap_acquire", "fence.proxy.acquire"),
    _row("fence_proxy_async", "fence.proxy"),
    _row("fence_proxy_async_generic", "fence.proxy.sync_restrict", _ACQUIRE),
    _row("fence_proxy_async_generic", "fence.proxy.sync_restrict", _RELEASE),
    _row("fence_sync_restrict", "fence.sync_restrict"),
    _row("fence_proxy_alias", "fence.proxy"),
    _row("fence_mbarrier_init", "fence.mbarrier.init"),
    _row("fence", "fence.sc.cluster", _CLUSTER_SC),
    _row("mbarrier_init", "mbarrier.init"),
    _row("mbarrier_inval", "mbarrier.inval"),
    _row("mbarrier_arrive", "mbarrier.arrive"),
    _row("mbarrier_arrive_expect_tx", "mbarrier.arrive.expect_tx"),
    _row("mbarrier_arrive_no_complete", "mbarrier.arrive.nocomplete"),
    _row("mbarrier_arrive_drop", "mbarrier.arrive_drop"),
    _row("mbarrier_arrive_drop_expect_tx", "mbarrier.arrive_drop.expect_tx"),
    _row("mbarrier_arrive_drop_no_complete", "mbarrier.arrive_drop.nocomplete"),
    _row("mbarrier_expect_tx", "mbarrier.expect_tx", _SHARED),
    _row("mbarrier_complete_tx", "mbarrier.complete_tx", _SHARED),
    # By token or by parity, as the type of the operand says. The op mbarrier.try_wait.parity is a loop around one.
    _row("mbarrier_test_wait", "mbarrier.test.wait"),
    _row("mbarrier_test_wait_parity", "mbarrier.test.wait"),
    _row("mbarrier_try_wait", "mbarrier.try_wait"),
    _row("mbarrier_try_wait_parity", "mbarrier.try_wait"),
    _row("elect_sync", "elect.sync"),
    _row("mapa", "mapa"),
    _row("barrier_cluster_arrive", "cluster.arrive{relaxed}"),
    _row("barrier_cluster_wait", "cluster.wait"),
    _row("griddepcontrol", "griddepcontrol"),
    _row("setmaxnreg", "setmaxregister"),
    _row("ldmatrix", "ldmatrix", _IN_CTA),
    _row("stmatrix", "stmatrix", _IN_CTA),
    _row("wgmma_fence", "wgmma.fence.aligned"),
    _row("wgmma_commit_group", "wgmma.commit.group.sync.aligned"),
    _row("wgmma_wait_group", "wgmma.wait.group.sync.aligned"),
    _row("wgmma_mma_async", "wgmma.mma_async", given(a_source="shared")),
)

# What the founding document names otherwise; it is silent about the rest.
_TILE = given(mode="tile")
_DOCUMENT_INTRINSICS = (
    _row("tensor_load", _INLINE_CALL, given(mode="tile::gather4")),
    _row("tensor_load", "cp.async.bulk.tensor.{rank}d.shared.cluster.global.{underscored}", _TO_CLUSTER),
    _row("tensor_load", "cp.async.bulk.tensor.{rank}d.shared.cta.global.tile", _TILE),
    _row("tensor_store", _INLINE_CALL, given(mode="tile::scatter4")),
    _row("tensor_store", _INLINE_CALL, given(mode="im2col_no_offs", cache_hint=True)),
    _row("tensor_store", "cp.async.bulk.tensor.{rank}d.global.shared.cta.tile", _TILE),
    _row("tensor_reduce", "cp.async.bulk.tensor.{rank}d.global.shared.cta.tile.reduce.{reduction}", _TILE),
    _row("tensor_prefetch", "cp.async.bulk.tensor.{rank}d.tile.prefetch", _TILE),
    _row("bulk_wait_group", "cp.async.bulk.wait_group"),
    # The first of two calls; fence.proxy.tensormap.generic.release.cta is the second.
    _row("tensormap_cp_fenceproxy", "cp.async.bulk.tensor.shared.cluster.tensormap.cta"),
)
_DOCUMENT_OPS = (
    _row("tensor_load", "cp.async.bulk.tensor.shared.cta.global", _TO_CTA),
    _row("tensormap_replace", "tensormap.replace.tile.elem_type", given(field="elemtype")),
    _row("tensormap_replace", "tensormap.replace.tile.swizzle", given(field="swizzle_mode")),
    _row("tensormap_replace", "tensormap.replace.tile.fill", given(field="fill_mode")),
    _row(
        "tensormap_replace",
        "tensormap.replace.tile.{document_field}",
        given(field=("global_address", "box_dim", "element_stride")),
    ),
)
_NAMINGS = {"upstream": ((), ()), "document": (_DOCUMENT_OPS, _DOCUMENT_INTRINSICS)}

# Suffixes that are there or not.
_SUFFIXES: dict[str, tuple[str, Value]] = {
    "aligned": (".aligned", True),
    "byte_mask": (".bytemask", True),
    "noinc": (".noinc", True),
    "read": (".read", True),
    "suspend_time_hint": (".tl", True),
    "trans": (".trans", True),
    "relaxed": (".relaxed", "relaxed"),
    "shared": (".shared", _CTA),
    "of_cluster": (".shared.cluster", _CLUSTER),
}
_SUFFIX_WORDS = {"relaxed": "semantics", "shared": "space", "of_cluster": "space"}
_RESTRICTED_SPACES = {"acquire": "cluster", "release": "cta"}


def _places(words: Words) -> dict[str, str]:
    """What the places in names stand for, of the words that a form has."""
    given_words = {name: str(value).replace("::", ".") for name, value in words.items()}
    mode, semantics = given_words.get("mode", ""), given_words.get("semantics", "")
    where = f".scope.{words.get('scope') or 'cta'}.space.{given_words.get('space', '').removeprefix('shared.')}"
    restricted = f"{semantics}.sync_restrict.space.{_RESTRICTED_SPACES.get(semantics, '')}.scope.cluster"
    return {
        **given_words,
        **{
            place: text if words.get(_SUFFIX_WORDS.get(place, place)) == value else ""
            for place, (text, value) in _SUFFIXES.items()
        },
        **{name: given_words.get(name, "").replace("_", ".") for name in ("field", "action")},
        "document_field": given_words.get("field", ""),
        "mode": mode.replace("im2col_no_offs", "im2col"),
        "underscored": mode.replace(".", "_"),
        "where": where,
        "restriction": restricted,
    }


def _name(instruction: Instruction, tables: tuple[tuple[_Row, ...], ...], prefix: str, inline: str) -> str:
    words = dict(instruction.words)
    rows = (row for table in tables for row in table if row.family == instruction.family)
    found = next((row for row in rows if all(condition(words) for condition in row.conditions)), None)
    return inline if found is None or found.name == inline else prefix + found.name.format(**_places(words))


def _naming(function: str, naming: str) -> tuple[tuple[_Row, ...], tuple[_Row, ...]]:
    return _NAMINGS[checked_word(function, "naming", naming, _NAMINGS)]


def nvvm_name(instruction: Instruction, *, naming: str = "document") -> str:
    """The op of the NVVM dialect that stands for an instruction.

    Parameters
    ----------
    instruction : Instruction
    naming : str
        ``"document"`` (the default) for the name in NVIDIA's own dialect as the founding document has it, such as
        ``nvvm.cp.async.bulk.tensor.shared.cta.global`` and an op per field of a tensor map; ``"upstream"`` for the op
        as MLIR has it. They are the same where the document is silent.

    Returns
    -------
    str
        ``nvvm.inline_ptx`` where there is no op of its own.

    Raises
    ------
    EmissionError
        For another naming, and for anything but an instruction.

    Notes
    -----
    An op says less than the instruction: modes, spaces, scopes, fields and options are its attributes and operands.
    """
    form = form_of("nvvm_name", instruction)
    return _name(form, (_naming("nvvm_name", naming)[0], _OPS), "nvvm.", _INLINE_OP)


def llvm_intrinsic(instruction: Instruction, *, naming: str = "document") -> str:
    """The LLVM intrinsic whose call becomes an instruction.

    Parameters
    ----------
    instruction : Instruction
    naming : str
        ``"document"`` (the default) for the name as the founding document has it, such as
        ``llvm.nvvm.cp.async.bulk.tensor.2d.shared.cluster.global.tile``; ``"upstream"`` for the intrinsic as LLVM has
        it, ``llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d``: the one to call in LLVM IR, which does not know the other.
        They are the same where the document is silent.

    Returns
    -------
    str
        Without the suffix of an overloaded pointer type, as in ``llvm.nvvm.prefetch.tensormap.p0``.
        ``llvm.inline_asm`` where there is no intrinsic.

    Raises
    ------
    EmissionError
        For another naming, and for anything but an instruction.

    Notes
    -----
    A multicast mask, a cache policy and a cta_group are flags of the call. Equal instructions share an intrinsic: what
    writes its default semantics and scope, one arrival with and without a count, a token used or left (``_``).
    """
    form = form_of("llvm_intrinsic", instruction)
    return _name(form, (_naming("llvm_intrinsic", naming)[1], _INTRINSICS), "llvm.nvvm.", _INLINE_CALL)
