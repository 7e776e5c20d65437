"""Tensor maps as memory: replacing fields, copying with a fence, fences of the tensormap proxy, and the prefetch.

Source of every row: PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy", "membar, fence" and "prefetch, prefetchu".
"""

from __future__ import annotations

from dataclasses import replace

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Choice, Family, Note, Requirement, Word, given, spelled
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.operands import Operand
from cupytma.targets import Feature

SCOPES = ("cta", "cluster", "gpu", "sys")
_SCOPE = Word("scope", tuple(Choice(scope, scope, f"_{scope}") for scope in SCOPES))
_SYNCHRONISATION = "Parallel Synchronization and Communication Instructions: "
_DATA_MOVEMENT = "Data Movement and Conversion Instructions: "

_DIMENSION = operands.immediate("ordinal", "which dimension's value, 0 to 4; 0 is the innermost", 0, 4)
_STRIDE_ORDINAL = operands.immediate(
    "ordinal", "which stride, 0 to 3: number i is the stride of dimension i + 1; dimension 0 has none", 0, 3
)

_PACKED = operands.ValueNeed(range(13, 16), frozenset({Feature.PACKED_TYPES}), (8, 7))
_SWIZZLE_96B = operands.ValueNeed(range(4, 5), frozenset({Feature.SWIZZLE_96B}), (8, 8))

# One row per field: the width of its value, the ordinal where each dimension has one, and the value's operand.
_COUNT = "the new value, in elements; the instruction encodes it minus 1"
_FIELDS: dict[str, tuple[str, Operand | None, Operand]] = {
    "global_address": (
        "b64",
        None,
        replace(operands.value("value", "b64", "the tensor's new address, aligned to 16 bytes"), multiple=16),
    ),
    "rank": ("b32", None, operands.value("value", "b32", "the new rank minus 1, 0 to 4")),
    "box_dim": ("b32", _DIMENSION, operands.value("value", "b32", _COUNT)),
    "global_dim": ("b32", _DIMENSION, operands.value("value", "b32", _COUNT)),
    "global_stride": (
        "b64",
        _STRIDE_ORDINAL,
        # What is none loses its low bits without a word (measured).
        replace(operands.value("value", "b64", "the new stride in bytes, a multiple of 16"), multiple=16),
    ),
    "element_stride": ("b32", _DIMENSION, operands.value("value", "b32", _COUNT)),
    "elemtype": (
        "b32",
        None,
        operands.immediate("value", "the element type in PTX numbering; 13 to 15 are packed", 0, 15, needs=(_PACKED,)),
    ),
    "interleave_layout": ("b32", None, operands.immediate("value", "0 none, 1 for 16 bytes, 2 for 32 bytes", 0, 2)),
    "swizzle_mode": (
        "b32",
        None,
        operands.immediate("value", "0 none, 1 32B, 2 64B, 3 128B, 4 96B on sm_103a", 0, 4, needs=(_SWIZZLE_96B,)),
    ),
    "swizzle_atomicity": (
        "b32",
        None,
        operands.immediate("value", "0 for 16 bytes, 1 for 32, 2 for 32 with halves of 8 flipped, 3 for 64", 0, 3),
    ),
    "fill_mode": ("b32", None, operands.immediate("value", "0 for zeros, 1 for NaN", 0, 1)),
}
REPLACE_FIELDS = tuple(_FIELDS)
_SPACES = ("global", "shared::cta", "generic")

REPLACE = Family(
    name="tensormap_replace",
    mnemonic="tensormap.replace.tile.{field}{space}.b1024{field_width}",
    words=(
        Word("field", tuple(Choice(name, name, f"_{name}") for name in _FIELDS)),
        Word("space", tuple(Choice(s, "" if s == "generic" else f".{s}", "_" + s.replace("::", "_")) for s in _SPACES)),
    ),
    arguments=(
        *(Argument("[%]", (operands.changed_map(s),), given(space=s)) for s in _SPACES),
        *(
            Argument("%", (ordinal,), given(field=name))
            for name, (_, ordinal, _) in _FIELDS.items()
            if ordinal is not None
        ),
        *(Argument("%", (operand,), given(field=name)) for name, (_, _, operand) in _FIELDS.items()),
    ),
    summary=(
        "Replaces the field {field} of a tiled tensor map at a {space} address, as a weak access of the generic proxy "
        "to its 128 bytes. tensor_map is aligned to 128 bytes. The tensormap proxy sees it after a release and an "
        "acquire: fence_proxy_tensormap_release or tensormap_cp_fenceproxy, then fence_proxy_tensormap_acquire."
    ),
    section=_DATA_MOVEMENT + "tensormap.replace",
    ptx_version=(8, 3),
    features=frozenset({Feature.TENSORMAP_REPLACE}),
    requirements=(Requirement(given(field="swizzle_atomicity"), (8, 6), frozenset({Feature.SWIZZLE_ATOMICITY})),),
    notes=(
        Note(given(field="elemtype"), "sm_90a has the types 0 to 12."),
        Note(given(field="swizzle_mode"), "Mode 4 exists on sm_103a alone."),
        Note(given(field="rank"), "The value is the rank minus 1, and nothing checks it."),
        Note(given(field="global_stride"), "Ordinal 4 assembles and overwrites other strides, so it is refused here."),
    ),
    spellings={"field_width": spelled("field", {name: f".{width}" for name, (width, _, _) in _FIELDS.items()})},
)

CP_FENCEPROXY = Family(
    name="tensormap_cp_fenceproxy",
    mnemonic="tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned",
    words=(_SCOPE,),
    arguments=(
        Argument("[%]", (operands.changed_map("global", "destination"),)),
        Argument(
            "[%]",
            (
                replace(
                    operands.address(
                        "source", "shared::cta", "the tensor map to copy, aligned to 128 bytes", "const void*"
                    ),
                    multiple=128,
                ),
            ),
        ),
        Argument("128"),
    ),
    summary=(
        "Copies the 128 bytes of a tensor map from shared to global memory and releases them to the tensormap proxy at "
        "{scope} scope. All 32 lanes of the warp execute it, with the same operands. Who uses the copy acquires it by "
        "fence_proxy_tensormap_acquire."
    ),
    section=_SYNCHRONISATION + "tensormap.cp_fenceproxy",
    ptx_version=(8, 3),
)

FENCE_RELEASE = Family(
    name="fence_proxy_tensormap_release",
    mnemonic="fence.proxy.tensormap::generic.release.{scope}",
    words=(_SCOPE,),
    arguments=(),
    summary=(
        "Releases the thread's earlier accesses through the generic proxy to later accesses through the tensormap "
        "proxy of threads that acquire them, at {scope} scope."
    ),
    section=_SYNCHRONISATION + "membar, fence",
    ptx_version=(8, 3),
)

FENCE_ACQUIRE = Family(
    name="fence_proxy_tensormap_acquire",
    mnemonic="fence.proxy.tensormap::generic.acquire.{scope}",
    words=(_SCOPE,),
    arguments=(Argument("[%]", (operands.tensor_map("generic"),)), Argument("128")),
    summary=(
        "Acquires the 128 bytes of a tensor map that were changed through the generic proxy, at {scope} scope: tensor "
        "copies of the executing thread, and of threads of its block after a barrier, then see the change."
    ),
    section=_SYNCHRONISATION + "membar, fence",
    ptx_version=(8, 3),
)

_MAP_SPACES = ("generic", "param", "const")
PREFETCH_TENSORMAP = Family(
    name="prefetch_tensormap",
    mnemonic="prefetch{space}.tensormap",
    words=(
        Word("space", (Choice("generic"), Choice("param", ".param", "_param"), Choice("const", ".const", "_const"))),
    ),
    arguments=tuple(Argument("[%]", (operands.tensor_map(s),), given(space=s)) for s in _MAP_SPACES),
    summary=(
        "Brings a tensor map at a {space} address into the cache that tensor copies read it from. tensor_map is "
        "aligned to 64 bytes. Nothing waits for it."
    ),
    section=_DATA_MOVEMENT + "prefetch, prefetchu",
    ptx_version=(8, 0),
    features=frozenset({Feature.TENSOR_COPY}),
    notes=(
        Note(given(space="param"), "The map must be a __grid_constant__ parameter of the kernel."),
        Note(given(space="const"), "The map must be a __constant__ variable."),
    ),
)


def tensormap_replace(
    *, field: str, space: str = "shared::cta", ordinal: int | None = None, value: int | None = None
) -> Instruction:
    """A change of one field of a tiled tensor map in memory.

    Parameters
    ----------
    field : str
        ``"global_address"``, ``"rank"``, ``"box_dim"``, ``"global_dim"``, ``"global_stride"``, ``"element_stride"``,
        ``"elemtype"``, ``"interleave_layout"``, ``"swizzle_mode"``, ``"swizzle_atomicity"`` or ``"fill_mode"``.
    space : str
        Where the map is: ``"shared::cta"``, ``"global"`` or ``"generic"``.
    ordinal : int, optional
        Which dimension or stride, for the fields that have several: 0 to 4, strides 0 to 3. Given, it is written into
        the instruction; not given, it stays an immediate operand.
    value : int, optional
        The new value, for the fields that take an immediate: ``elemtype`` and those after it. Likewise.

    Raises
    ------
    EmissionError
        For a word with another value, an ordinal for a field that has none, and an ordinal or value out of range.

    Notes
    -----
    Source: PTX ISA, "tensormap.replace". Needs an architecture-specific target, such as ``sm_90a``.
    """
    form = REPLACE.build(field=field, space=space)
    bound = {name: number for name, number in (("ordinal", ordinal), ("value", value)) if number is not None}
    return form.bind(**bound) if bound else form


def tensormap_cp_fenceproxy(*, scope: str) -> Instruction:
    """A copy of a tensor map from shared to global memory, fused with a release to the tensormap proxy.

    Parameters
    ----------
    scope : str
        ``"cta"``, ``"cluster"``, ``"gpu"`` or ``"sys"``.

    Raises
    ------
    EmissionError
        For another scope.

    Notes
    -----
    Source: PTX ISA, "tensormap.cp_fenceproxy". The size is the literal 128.
    """
    return CP_FENCEPROXY.build(scope=scope)


def fence_proxy_tensormap(*, semantics: str, scope: str) -> Instruction:
    """A fence between the generic and the tensormap proxy.

    Parameters
    ----------
    semantics : str
        ``"release"``, or ``"acquire"`` of the 128 bytes of one tensor map.
    scope : str
        ``"cta"``, ``"cluster"``, ``"gpu"`` or ``"sys"``.

    Raises
    ------
    EmissionError
        For a word with another value.

    Notes
    -----
    Source: PTX ISA, "membar, fence".
    """
    families = {"release": FENCE_RELEASE, "acquire": FENCE_ACQUIRE}
    Word("semantics", tuple(map(Choice, families))).choose("fence_proxy_tensormap", semantics)
    return families[semantics].build(scope=scope)


def fence_proxy_tensormap_release(*, scope: str) -> Instruction:
    """`fence_proxy_tensormap` with semantics ``"release"``."""
    return FENCE_RELEASE.build(scope=scope)


def fence_proxy_tensormap_acquire(*, scope: str) -> Instruction:
    """`fence_proxy_tensormap` with semantics ``"acquire"``."""
    return FENCE_ACQUIRE.build(scope=scope)


def prefetch_tensormap(*, space: str = "generic") -> Instruction:
    """A prefetch of the 128 bytes of a tensor map.

    Parameters
    ----------
    space : str
        The state space of the address: ``"generic"``, ``"param"`` or ``"const"``. A map in global memory has a generic
        address.

    Raises
    ------
    EmissionError
        For another space.

    Notes
    -----
    Source: PTX ISA, "prefetch, prefetchu".
    """
    return PREFETCH_TENSORMAP.build(space=space)
