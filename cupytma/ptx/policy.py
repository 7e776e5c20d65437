"""L2 cache policies, for the operand ``cache_policy`` of what has a cache hint.

Source of every row: PTX ISA, "createpolicy".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Choice, Family, Note, Word, flag, given
from cupytma.ptx.instruction import Instruction

_SECTION = "Data Movement and Conversion Instructions: createpolicy"
_PRIMARY = Word(
    "primary",
    tuple(Choice(p, f".L2::{p}", f"_{p}") for p in ("evict_last", "evict_normal", "evict_first", "evict_unchanged")),
)
_SECONDARY = Word(
    "secondary",
    (Choice(None), *(Choice(p, f".L2::{p}", f"_else_{p}") for p in ("evict_first", "evict_unchanged"))),
)
_POLICY = operands.value("cache_policy", "b64", "the policy", direction="output")
_SECONDARY_NOTE = Note(given(secondary=None), "The others get evict_unchanged.")

FRACTIONAL = Family(
    name="createpolicy_fractional",
    mnemonic="createpolicy.fractional{primary}{secondary}.b64",
    words=(_PRIMARY, _SECONDARY, flag("fraction")),
    arguments=(
        Argument("%", (_POLICY,)),
        Argument(
            "%", (operands.value("fraction", "f32", "what part of the accesses, in (0, 1]"),), given(fraction=True)
        ),
    ),
    summary="Makes a cache policy that gives a fraction of the accesses, all by default, the priority {primary}.",
    section=_SECTION,
    ptx_version=(7, 4),
    clobbers=(),
    notes=(_SECONDARY_NOTE,),
)

RANGE = Family(
    name="createpolicy_range",
    mnemonic="createpolicy.range{global_space}{primary}{secondary}.b64",
    words=(flag("global_space", ".global"), _PRIMARY, _SECONDARY),
    arguments=(
        Argument("%", (_POLICY,)),
        *(
            Argument("[%]", (operands.address("base", space, "where the primary range begins", "const void*"),), when)
            for space, when in (("global", given(global_space=True)), ("generic", given(global_space=False)))
        ),
        Argument("%", (operands.value("primary_bytes", "u32", "the size of the primary range in bytes"),)),
        Argument("%", (operands.value("total_bytes", "u32", "the size of both ranges in bytes, at most 4 GiB"),)),
    ),
    summary="Makes a cache policy that gives accesses to the primary range the priority {primary}.",
    section=_SECTION,
    ptx_version=(7, 4),
    clobbers=(),
    notes=(_SECONDARY_NOTE,),
)

CONVERT = Family(
    name="createpolicy_cvt",
    mnemonic="createpolicy.cvt.L2.b64",
    words=(),
    arguments=(
        Argument("%", (_POLICY,)),
        Argument("%", (operands.value("access_property", "b64", "an access property of the CUDA API"),)),
    ),
    summary="Makes a cache policy of an access property of the CUDA API.",
    section=_SECTION,
    ptx_version=(7, 4),
    clobbers=(),
)


def createpolicy_fractional(*, primary: str, secondary: str | None = None, fraction: bool = False) -> Instruction:
    """A cache policy for a fraction of the accesses.

    Parameters
    ----------
    primary : str
        ``"evict_last"``, ``"evict_normal"``, ``"evict_first"`` or ``"evict_unchanged"``.
    secondary : str or None
        What the other accesses get: ``"evict_first"`` or ``"evict_unchanged"``.
    fraction : bool
        Adds a 32-bit floating-point operand in (0, 1]; without it all accesses get the primary priority.

    Notes
    -----
    Source: PTX ISA, "createpolicy".
    """
    return FRACTIONAL.build(primary=primary, secondary=secondary, fraction=fraction)


def createpolicy_range(*, primary: str, secondary: str | None = None, global_space: bool = False) -> Instruction:
    """A cache policy for a range of addresses.

    Parameters
    ----------
    primary, secondary
        As for `createpolicy_fractional`, for the primary range and for the bytes around it.
    global_space : bool
        The address is one of global memory; otherwise a generic one.

    Notes
    -----
    Source: PTX ISA, "createpolicy".
    """
    return RANGE.build(primary=primary, secondary=secondary, global_space=global_space)


def createpolicy_cvt() -> Instruction:
    """A cache policy made of an access property of the CUDA API.

    Notes
    -----
    Source: PTX ISA, "createpolicy".
    """
    return CONVERT.build()
