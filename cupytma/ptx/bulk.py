"""Bulk copies of bytes, bulk reductions, their prefetch, and the bulk async-groups that stores are waited for with.

Source of every row: PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk", "cp.async.bulk.prefetch",
"multimem.cp.async.bulk", "multimem.cp.reduce.async.bulk", "cp.async.bulk.commit_group" and "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import (
    Argument,
    Choice,
    Clash,
    Family,
    Note,
    Requirement,
    Word,
    Words,
    flag,
    given,
    optional,
    spelled,
)
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.reductions import REDUCTIONS, reduction_types
from cupytma.targets import Feature

_SECTION = "Data Movement and Conversion Instructions: "
_TENSOR_COPY = frozenset({Feature.TENSOR_COPY})
_CACHE_HINT = flag("cache_hint", ".L2::cache_hint")
_SCOPES = ("cta", "cluster", "gpu", "sys")
_SCOPE = optional("scope", *_SCOPES)
_CTA, _CLUSTER, _GLOBAL = "shared::cta", "shared::cluster", "global"
_TO = Word("destination", tuple(Choice(s, s, "_to_" + s.replace("::", "_")) for s in (_CLUSTER, _CTA, _GLOBAL)))
_FROM = Word("source", tuple(Choice(s, s, "_from_" + s.replace("::", "_")) for s in (_GLOBAL, _CTA)))
_SEMANTICS_CLASHES = (
    Clash(
        given(semantics="relaxed", scope=None),
        "semantics='relaxed' clashes with scope=None: it needs a scope; legal: 'cta', 'cluster', 'gpu', 'sys'",
    ),
    Clash(
        given(semantics=(None, "weak"), scope=_SCOPES),
        "scope={scope!r} clashes with semantics={semantics!r}, which has no scope; only 'relaxed' has one",
    ),
)
_WITHIN_CLUSTER = Clash(
    given(destination=_CLUSTER, source=_CTA, scope=("gpu", "sys")),
    "scope={scope!r} clashes with a copy from shared::cta to shared::cluster; legal scopes: 'cta', 'cluster'",
)
_NEWER = Requirement(given(semantics=("weak", "relaxed")), (9, 3))
_RELAXED_NOTE = Note(given(semantics="relaxed"), "The accesses are relaxed at {scope} scope.")
_COPY_POLICY = Argument("%", (operands.CACHE_POLICY,), given(cache_hint=True))
_BYTE_MASK = Argument("%", (operands.BYTE_MASK,), given(byte_mask=True))
_BYTE_MASK_NOTE = Note(given(byte_mask=True), "Bit i of byte_mask says whether byte i of every 16 is copied.")
_BYTE_MASK_NEED = Requirement(given(byte_mask=True), (8, 6), frozenset({Feature.BYTE_MASK}))
_TO_BARRIER = Note(
    given(destination=(_CTA, _CLUSTER)),
    "Completes by complete_tx on mbarrier with the bytes written; release, cluster.",
)
_TO_GROUP = Note(
    given(destination=_GLOBAL),
    "Completes through the executing thread's bulk async-group: bulk_commit_group, then bulk_wait_group.",
)
_COMPLETION = spelled(
    "destination", {_GLOBAL: "bulk_group", **dict.fromkeys((_CTA, _CLUSTER), "mbarrier::complete_tx::bytes")}
)

COPY = Family(
    name="bulk_copy",
    mnemonic=(
        "cp.async.bulk{semantics}{scope}.{destination}.{source}.{completion}"
        "{multicast}{cache_hint}{ignore_oob}{byte_mask}{type}"
    ),
    words=(
        _TO,
        _FROM,
        optional("semantics", "weak", "relaxed"),
        _SCOPE,
        flag("multicast", ".multicast::cluster"),
        _CACHE_HINT,
        flag("ignore_oob", ".ignore_oob"),
        flag("byte_mask", ".cp_mask"),
    ),
    arguments=(
        *(Argument("[%]", (operands.bulk_destination(s),), given(destination=s)) for s in (_CLUSTER, _CTA, _GLOBAL)),
        *(Argument("[%]", (operands.bulk_source(s),), given(source=s)) for s in (_GLOBAL, _CTA)),
        Argument("%", (operands.BYTES,)),
        Argument("%, %", (operands.IGNORED_LEFT, operands.IGNORED_RIGHT), given(ignore_oob=True)),
        *(Argument("[%]", (operands.mbarrier(s),), given(destination=s)) for s in (_CLUSTER, _CTA)),
        Argument("%", (operands.CTA_MASK,), given(multicast=True)),
        _COPY_POLICY,
        _BYTE_MASK,
    ),
    summary=(
        "Starts the copy of bytes from {source} to {destination}. Both addresses are aligned to 16 bytes, and their "
        "number is a multiple of 16."
    ),
    section=_SECTION + "cp.async.bulk",
    ptx_version=(8, 0),
    features=_TENSOR_COPY,
    clashes=(
        Clash(
            given(destination=(_CTA,), source=_CTA),
            "destination='shared::cta' clashes with source='shared::cta'; legal directions: global to shared::cluster "
            "or shared::cta, shared::cta to shared::cluster or global",
        ),
        Clash(
            given(destination=_GLOBAL, source=_GLOBAL),
            "destination='global' clashes with source='global'; legal directions: global to shared::cluster "
            "or shared::cta, shared::cta to shared::cluster or global",
        ),
        Clash(
            given(destination=(_CTA, _GLOBAL), multicast=True),
            "multicast=True clashes with destination={destination!r}; multicast goes with "
            "destination='shared::cluster' and source='global'",
        ),
        Clash(
            given(source=_CTA, multicast=True),
            "multicast=True clashes with source='shared::cta'; multicast goes with destination='shared::cluster' and "
            "source='global'",
        ),
        Clash(
            given(destination=_CLUSTER, source=_CTA, cache_hint=True),
            "cache_hint=True clashes with a copy between shared memories, which does not pass the L2 cache",
        ),
        Clash(
            given(destination=(_CLUSTER, _GLOBAL), ignore_oob=True),
            "ignore_oob=True clashes with destination={destination!r}; it goes with destination='shared::cta' and "
            "source='global'",
        ),
        Clash(
            given(destination=(_CLUSTER, _CTA), byte_mask=True),
            "byte_mask=True clashes with destination={destination!r}; it goes with destination='global'",
        ),
        *_SEMANTICS_CLASHES,
        _WITHIN_CLUSTER,
    ),
    requirements=(
        Requirement(given(destination=_CTA), (8, 6)),
        Requirement(given(ignore_oob=True), (9, 2)),
        _BYTE_MASK_NEED,
        _NEWER,
        Requirement(
            given(destination=_CLUSTER, source=_GLOBAL, semantics="relaxed"),
            features=frozenset({Feature.RELAXED_CLUSTER_COPY}),
        ),
    ),
    notes=(
        _TO_BARRIER,
        _TO_GROUP,
        Note(given(source=_CTA, destination=_CLUSTER), "The destination is in another block of the cluster."),
        Note(
            given(multicast=True),
            "Writes to the same offset in each block of the cluster that has its bit in cta_mask, and signals the "
            "mbarrier at the same offset there.",
        ),
        Note(
            given(ignore_oob=True),
            "The first ignored_left and the last ignored_right bytes may lie outside the allocation; what arrives for "
            "them is indeterminate.",
        ),
        _BYTE_MASK_NOTE,
        _RELAXED_NOTE,
    ),
    spellings={"completion": _COMPLETION, "type": spelled("semantics", {"relaxed": ".b128"})},
)


_TYPES = ("u32", "s32", "u64", "s64", "b32", "b64", "f16", "bf16", "f32", "f64")


def _no_reduction(destination: str, when: dict[str, str]) -> tuple[Clash, ...]:
    """The clashes of each reduction with the element types that it does not exist for."""
    clashes = []
    for op in REDUCTIONS:
        legal = reduction_types(op, destination)
        others = tuple(t for t in _TYPES if t not in legal)
        message = f"reduction={op!r} clashes with data_type={{data_type!r}}: to {destination}, {op} exists for "
        clashes.append(Clash(given(reduction=op, data_type=others, **when), message + ", ".join(legal)))
    return tuple(clashes)


def _noftz(words: Words) -> str:
    return ".noftz" if words["reduction"] == "add" and words["data_type"] in ("f16", "bf16") else ""


_REDUCTION = Word("reduction", tuple(Choice(op, op, f"_{op}") for op in REDUCTIONS))
_DATA_TYPE = Word("data_type", tuple(Choice(t, t, f"_{t}") for t in _TYPES))
_REDUCTION_SUMMARY = (
    "Starts the reduction ({reduction}) of an array of {data_type} in shared::cta into one {where}: each element "
    "becomes the result of it and the source's element, atomically. Both addresses are aligned to 16 bytes, and the "
    "number of bytes is a multiple of 16."
)
_ROUNDING = Note(given(reduction="add", data_type=("f16", "bf16")), "Denormals are kept (noftz).")

REDUCE = Family(
    name="bulk_reduce",
    mnemonic=(
        "cp.reduce.async.bulk{semantics}{scope}.{destination}.shared::cta.{completion}{cache_hint}"
        ".{reduction}{noftz}.{data_type}"
    ),
    words=(
        Word("destination", (Choice(_GLOBAL, _GLOBAL, "_to_global"), Choice(_CLUSTER, _CLUSTER, "_to_shared_cluster"))),
        _REDUCTION,
        _DATA_TYPE,
        optional("semantics", "relaxed"),
        _SCOPE,
        _CACHE_HINT,
    ),
    arguments=(
        *(Argument("[%]", (operands.bulk_destination(s),), given(destination=s)) for s in (_GLOBAL, _CLUSTER)),
        Argument("[%]", (operands.bulk_source(_CTA),)),
        Argument("%", (operands.BYTES,)),
        Argument("[%]", (operands.mbarrier(_CLUSTER),), given(destination=_CLUSTER)),
        _COPY_POLICY,
    ),
    summary=_REDUCTION_SUMMARY.replace("{where}", "in {destination}"),
    section=_SECTION + "cp.reduce.async.bulk",
    ptx_version=(8, 0),
    features=_TENSOR_COPY,
    clashes=(
        *_no_reduction(_GLOBAL, {"destination": _GLOBAL}),
        *_no_reduction(_CLUSTER, {"destination": _CLUSTER}),
        Clash(
            given(destination=_CLUSTER, cache_hint=True),
            "cache_hint=True clashes with destination='shared::cluster', which does not pass the L2 cache",
        ),
        *_SEMANTICS_CLASHES,
        Clash(
            given(destination=_CLUSTER, scope=("gpu", "sys")),
            "scope={scope!r} clashes with destination='shared::cluster'; legal scopes: 'cta', 'cluster'",
        ),
    ),
    requirements=(_NEWER,),
    notes=(_ROUNDING, _TO_BARRIER, _TO_GROUP, _RELAXED_NOTE),
    spellings={"completion": _COMPLETION, "noftz": _noftz},
)

PREFETCH = Family(
    name="bulk_prefetch",
    mnemonic="cp.async.bulk.prefetch.L2.global{cache_hint}",
    words=(_CACHE_HINT,),
    arguments=(Argument("[%]", (operands.bulk_source(_GLOBAL),)), Argument("%", (operands.BYTES,)), _COPY_POLICY),
    summary=(
        "Asks for bytes in global memory to be brought into the L2 cache. The address is aligned to 16 bytes, and the "
        "number of bytes is a multiple of 16. Nothing waits for it."
    ),
    section=_SECTION + "cp.async.bulk.prefetch",
    ptx_version=(8, 0),
    features=_TENSOR_COPY,
)

_MULTIMEM_TARGET = operands.address(
    "destination", _GLOBAL, "a multimem address, aligned to 16 bytes: one place in several GPUs' memories", "void*"
)

MULTIMEM_COPY = Family(
    name="multimem_bulk_copy",
    mnemonic="multimem.cp.async.bulk{semantics}{scope}.global.shared::cta.bulk_group{byte_mask}{type}",
    words=(optional("semantics", "weak", "relaxed"), _SCOPE, flag("byte_mask", ".cp_mask")),
    arguments=(
        Argument("[%]", (_MULTIMEM_TARGET,)),
        Argument("[%]", (operands.bulk_source(_CTA),)),
        Argument("%", (operands.BYTES,)),
        _BYTE_MASK,
    ),
    summary=(
        "Starts the copy of bytes from shared::cta to the memory of every GPU that a multimem address stands for. Both "
        "addresses are aligned to 16 bytes, and the number of bytes is a multiple of 16. Completes through the "
        "executing thread's bulk async-group: bulk_commit_group, then bulk_wait_group."
    ),
    section=_SECTION + "multimem.cp.async.bulk",
    ptx_version=(9, 1),
    features=_TENSOR_COPY,
    clashes=_SEMANTICS_CLASHES,
    requirements=(_BYTE_MASK_NEED, _NEWER),
    notes=(_BYTE_MASK_NOTE, _RELAXED_NOTE),
    spellings={"type": spelled("semantics", {"relaxed": ".b128"})},
)

MULTIMEM_REDUCE = Family(
    name="multimem_bulk_reduce",
    mnemonic=(
        "multimem.cp.reduce.async.bulk{semantics}{scope}.global.shared::cta.bulk_group.{reduction}{noftz}.{data_type}"
    ),
    words=(_REDUCTION, _DATA_TYPE, optional("semantics", "relaxed"), _SCOPE),
    arguments=(
        Argument("[%]", (_MULTIMEM_TARGET,)),
        Argument("[%]", (operands.bulk_source(_CTA),)),
        Argument("%", (operands.BYTES,)),
    ),
    summary=(
        _REDUCTION_SUMMARY.replace("{where}", "in every GPU that a multimem address stands for")
        + " Completes through the executing thread's bulk async-group: bulk_commit_group, then bulk_wait_group."
    ),
    section=_SECTION + "multimem.cp.reduce.async.bulk",
    ptx_version=(9, 1),
    features=_TENSOR_COPY,
    clashes=(*_no_reduction(_GLOBAL, {}), *_SEMANTICS_CLASHES),
    requirements=(_NEWER,),
    notes=(_ROUNDING, _RELAXED_NOTE),
    spellings={"noftz": _noftz},
)


def bulk_copy(
    *,
    destination: str,
    source: str,
    semantics: str | None = None,
    scope: str | None = None,
    multicast: bool = False,
    cache_hint: bool = False,
    ignore_oob: bool = False,
    byte_mask: bool = False,
) -> Instruction:
    """A copy of contiguous bytes.

    Parameters
    ----------
    destination, source : str
        ``"shared::cluster"`` or ``"shared::cta"`` from ``"global"``; ``"shared::cluster"`` or ``"global"`` from
        ``"shared::cta"``.
    semantics : str or None
        From PTX 9.3 ``"weak"``, which None means too, or ``"relaxed"`` with a scope.
    scope : str or None
        ``"cta"``, ``"cluster"``, ``"gpu"`` or ``"sys"``.
    multicast : bool
        Write to several blocks of the cluster; adds the 16-bit operand ``cta_mask``.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.
    ignore_oob : bool
        From PTX 9.2: bytes at either end may lie out of bounds; adds two 32-bit operands.
    byte_mask : bool
        Copy only some bytes of every 16 (``.cp_mask``); adds a 16-bit operand.

    Raises
    ------
    EmissionError
        For a word with another value, a direction that does not exist, or a word that the direction does not have.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk".
    """
    return COPY.build(
        destination=destination,
        source=source,
        semantics=semantics,
        scope=scope,
        multicast=multicast,
        cache_hint=cache_hint,
        ignore_oob=ignore_oob,
        byte_mask=byte_mask,
    )


def bulk_reduce(
    *,
    reduction: str,
    data_type: str,
    destination: str = "global",
    semantics: str | None = None,
    scope: str | None = None,
    cache_hint: bool = False,
) -> Instruction:
    """A reduction of a contiguous array in shared memory into one in global memory or another block's shared memory.

    Parameters
    ----------
    reduction : str
        ``"add"``, ``"min"``, ``"max"``, ``"inc"``, ``"dec"``, ``"and"``, ``"or"`` or ``"xor"``.
    data_type : str
        The element's PTX type, such as ``"f32"``; `reduction_table` says which exist. Additions of ``f16`` and
        ``bf16`` are spelt with ``.noftz``.
    destination : str
        ``"global"`` or ``"shared::cluster"``.
    semantics : str or None
        From PTX 9.3 ``"relaxed"`` with a scope.
    scope : str or None
        ``"cta"``, ``"cluster"``, ``"gpu"`` or ``"sys"``.
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``; to global memory only.

    Raises
    ------
    EmissionError
        For a word with another value, or a reduction that does not exist for the type and destination.

    Notes
    -----
    Source: PTX ISA, "cp.reduce.async.bulk".
    """
    return REDUCE.build(
        destination=destination,
        reduction=reduction,
        data_type=data_type,
        semantics=semantics,
        scope=scope,
        cache_hint=cache_hint,
    )


def bulk_prefetch(*, cache_hint: bool = False) -> Instruction:
    """A prefetch of contiguous bytes into the L2 cache.

    Parameters
    ----------
    cache_hint : bool
        Adds the 64-bit operand ``cache_policy``.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.prefetch".
    """
    return PREFETCH.build(cache_hint=cache_hint)


def multimem_bulk_copy(
    *, semantics: str | None = None, scope: str | None = None, byte_mask: bool = False
) -> Instruction:
    """A copy of contiguous bytes from shared memory to the memories of several GPUs; from PTX 9.1.

    Parameters
    ----------
    semantics, scope, byte_mask
        As for `bulk_copy`.

    Raises
    ------
    EmissionError
        For a word with another value, or only one of `scope` and relaxed semantics.

    Notes
    -----
    Source: PTX ISA, "multimem.cp.async.bulk".
    """
    return MULTIMEM_COPY.build(semantics=semantics, scope=scope, byte_mask=byte_mask)


def multimem_bulk_reduce(
    *, reduction: str, data_type: str, semantics: str | None = None, scope: str | None = None
) -> Instruction:
    """A reduction of a contiguous array in shared memory into one in the memory of several GPUs; from PTX 9.1.

    Parameters
    ----------
    reduction, data_type, semantics, scope
        As for `bulk_reduce` to global memory.

    Raises
    ------
    EmissionError
        For a word with another value, or a reduction that does not exist for the type.

    Notes
    -----
    Source: PTX ISA, "multimem.cp.reduce.async.bulk".
    """
    return MULTIMEM_REDUCE.build(reduction=reduction, data_type=data_type, semantics=semantics, scope=scope)
