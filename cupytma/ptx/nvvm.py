"""The tables of the compilers' documents: operand classes, enumerations, and the invariants that a verifier holds.

Sources: the founding documents "NVVM TMA Ops" and "TMA + Tensormap + cp.async.bulk Emission". Where they disagree with
the assembler the instruction is spelt as it assembles; `cupytma.ptx.names` has the names of ops and intrinsics.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

from cupytma.errors import EmissionError
from cupytma.ptx.checks import texts
from cupytma.ptx.instruction import Instruction, form_of
from cupytma.ptx.operands import Operand
from cupytma.ptx.parse import parse
from cupytma.ptx.reductions import REDUCTIONS
from cupytma.words import counted

OPERAND_CLASSES = {
    "tensor_map": "l",
    "cache_policy": "l",
    "coordinate": "r",
    "im2col_offset": "h",
    "cta_mask": "h",
}
"""The inline-assembly constraint of each operand class."""
DESCRIPTOR_POSITION = {"load": 1, "store": 0}
"""The placeholder number of the tensor map, by direction."""


class TmaLoadMode(IntEnum):
    """The load mode of the emission document, which decides about ``.multicast::cluster``."""

    NO_MULTICAST = 0
    TWO_CTA = 1
    W_MULTICAST = 2
    W128_MULTICAST = 3


class TmaStoreMode(IntEnum):
    """The store mode of the emission document."""

    TILED = 0
    IM2COL = 1
    IM2COL_W = 2
    IM2COL_W128 = 3


class ReductionKind(IntEnum):
    """The eight reductions, ``redKind``."""

    ADD = 0
    MIN = 1
    MAX = 2
    INC = 3
    DEC = 4
    AND = 5
    OR = 6
    XOR = 7


_LOAD_MODES = {"im2col::w": TmaLoadMode.W_MULTICAST, "im2col::w::128": TmaLoadMode.W128_MULTICAST}
_STORE_MODES = {
    "tile": TmaStoreMode.TILED,
    "tile::scatter4": TmaStoreMode.TILED,
    "im2col": TmaStoreMode.IM2COL,
    "im2col_no_offs": TmaStoreMode.IM2COL,
    "im2col::w": TmaStoreMode.IM2COL_W,
    "im2col::w::128": TmaStoreMode.IM2COL_W128,
}


def load_mode(instruction: Instruction) -> TmaLoadMode:
    """The load mode of a tensor load: by its im2col mode, else by whether it works for a pair of blocks.

    Raises
    ------
    EmissionError
        For another instruction.
    """
    if form_of("load_mode", instruction).family != "tensor_load":
        raise EmissionError(f"{instruction!r} is no tensor load and has no load mode")
    words = dict(instruction.words)
    default = TmaLoadMode.TWO_CTA if words["cta_group"] == 2 else TmaLoadMode.NO_MULTICAST
    return _LOAD_MODES.get(str(words["mode"]), default)


def store_mode(instruction: Instruction) -> TmaStoreMode:
    """The store mode of a tensor store or reduction.

    Raises
    ------
    EmissionError
        For another instruction.
    """
    if form_of("store_mode", instruction).family not in ("tensor_store", "tensor_reduce"):
        raise EmissionError(f"{instruction!r} is no tensor store and has no store mode")
    return _STORE_MODES[str(dict(instruction.words)["mode"])]


def reduction_kind(instruction: Instruction) -> ReductionKind:
    """The kind of a reduction.

    Raises
    ------
    EmissionError
        For an instruction that reduces nothing.
    """
    reduction = dict(form_of("reduction_kind", instruction).words).get("reduction")
    if reduction not in REDUCTIONS:
        raise EmissionError(f"{instruction!r} is no reduction")
    return ReductionKind[str(reduction).upper()]


_SHARED_POINTER, _GLOBAL_POINTER = "ptr addrspace(3)", "ptr addrspace(1)"
_CLUSTER_POINTER = "ptr addrspace(7)"


def operand_types(instruction: Instruction) -> tuple[str, ...]:
    """The LLVM types of an instruction's inputs: pointers by address space, and integers.

    Raises
    ------
    EmissionError
        For anything but an instruction.
    """
    return tuple(_llvm_type(operand) for operand in form_of("operand_types", instruction).inputs)


def _llvm_type(operand: Operand) -> str:
    if operand.space is None:
        return {"h": "i16", "r": "i32", "l": "i64", "f": "float", "n": "i32"}[operand.constraint[-1]]
    shared = operand.space.startswith("shared") and operand.constraint == "r"
    return _SHARED_POINTER if shared else "ptr"


_FIXED_ASSEMBLY_MODES = ("tile::gather4", "tile::scatter4")
_OPTIONAL = {"cta_mask": "multicastEnable", "cache_policy": "cacheHintEnable"}


def verify(instruction: Instruction | str, operands: Sequence[str] | None = None) -> tuple[str, ...]:
    """The NVVM document's verifier invariants that an op breaks.

    Parameters
    ----------
    instruction : Instruction or str
        The form, or PTX text of it.
    operands : sequence of str, optional
        The LLVM types of the operands given to it, such as ``"ptr addrspace(3)"``, ``"ptr"``, ``"i32"``, ``"i16"``,
        ``"i64"``. Default: those that the form has.

    Returns
    -------
    tuple of str
        One sentence per broken invariant; empty when all hold.

    Raises
    ------
    EmissionError
        For text that is no instruction of the family and breaks no invariant of rank, coordinates or reduction; for
        operands that are no sequence of text.
    """
    if isinstance(instruction, str):
        try:
            form = parse(instruction)
        except EmissionError:
            if broken := _text_problems(instruction):
                return tuple(broken)
            raise
    else:
        form = form_of("verify", instruction)
    wanted = list(form.inputs)
    given = list(operand_types(form) if operands is None else texts("verify", "operands", operands))
    problems = _rank_problems(form)
    given, miscounted = _aligned(form, given)
    problems += miscounted
    # A trailing optional operand that is missing or too much is named by the attribute it goes with.
    words = dict(form.words)
    trailing = [o.name for o in wanted if o.name in _OPTIONAL]
    if len(given) < len(wanted):
        missing = wanted[len(given) :]
        problems += [
            f"{_OPTIONAL[o.name]} is set, so the operand {o.name} must be supplied"
            if o.name in _OPTIONAL
            else f"the operand {o.name} is missing"
            for o in missing
        ]
    elif len(given) > len(wanted):
        absent = [f"{a} is not set" for name, a in _OPTIONAL.items() if name not in trailing]
        what = f" ({', '.join(absent)})" if absent and "cache_hint" in words else ""
        problems.append(f"{counted(len(given), 'operand')} given where the form has {len(wanted)}{what}")
    for operand, found in zip(wanted, given, strict=False):
        expected = _llvm_type(operand)
        if found != expected and not _also_taken(operand, found):
            role = "is in address space 3" if expected == _SHARED_POINTER else f"has type {expected}"
            problems.append(f"{operand.name} {role}, not {found}")
    return tuple(problems)


def _also_taken(operand: Operand, found: str) -> bool:
    """Whether a type is another of the operand: a map's global pointer, and LLVM's own pointer to the cluster."""
    if found == _GLOBAL_POINTER:
        return operand.name == "tensor_map" and _llvm_type(operand) == "ptr"
    return found == _CLUSTER_POINTER and operand.space == "shared::cluster"


def _rank_problems(form: Instruction) -> list[str]:
    words = dict(form.words)
    problems = []
    if words.get("rank") is not None:
        coordinates = sum(operand.vector == "coordinates" for operand in form.operands)
        problems += _shape_problems(int(words["rank"] or 0), str(words.get("mode", "tile")), coordinates)
    if "reduction" in words:
        problems += _reduction_problems(str(words["reduction"]))
    return problems


def _shape_problems(rank: int, mode: str, coordinates: int | None) -> list[str]:
    """What is wrong with a tensor copy's rank and its number of coordinates, where that is known."""
    fixed = mode in _FIXED_ASSEMBLY_MODES
    legal = (2,) if fixed else (3, 4, 5) if mode.startswith("im2col") else (1, 2, 3, 4, 5)
    problems = []
    if rank not in legal:
        what = f"a {mode} form" if fixed else "an im2col form" if mode.startswith("im2col") else "a tensor copy"
        spoken = {1: "2", 3: "3, 4 or 5", 5: "1 to 5"}[len(legal)]
        problems.append(f"{what} has rank {spoken}, not {rank}")
    if coordinates is not None and coordinates != (5 if fixed else rank):
        problems.append(_miscounted(coordinates, rank, mode))
    return problems


def _miscounted(coordinates: int, rank: int, mode: str) -> str:
    wanted = f"{mode}, which takes 5" if mode in _FIXED_ASSEMBLY_MODES else f"rank {rank}"
    return f"{counted(coordinates, 'coordinate')} given for {wanted}"


def _reduction_problems(reduction: str) -> list[str]:
    return [] if reduction in REDUCTIONS else [f"redop {reduction!r} is none of {', '.join(REDUCTIONS)}"]


def _aligned(form: Instruction, given: list[str]) -> tuple[list[str], list[str]]:
    """The operands with the right number of coordinates, so that the others are compared with their own kind."""
    places = [i for i, operand in enumerate(form.inputs) if operand.vector == "coordinates"]
    if not places or len(given) == len(form.inputs):
        return given, []
    start, count = places[0], len(places)
    found = next((i for i, type_ in enumerate(given[start:]) if type_ != "i32"), len(given) - start)
    following = given[start + found : start + found + 1]
    if found == count or following != [_llvm_type(operand) for operand in form.inputs[start + count :][:1]]:
        return given, []
    words = dict(form.words)
    problem = _miscounted(found, int(words["rank"] or 0), str(words["mode"]))
    return [*given[:start], *["i32"] * count, *given[start + found :]], [problem]


_TENSOR_COPY = re.compile(r"cp\.(reduce\.)?async\.bulk\.(prefetch\.)?tensor\.(\S+)")
_RANK = re.compile(r"(-?\d+)d")
_COORDINATES = re.compile(r"\[[^\[\]{}]*\{([^{}]*)\}")
_NO_REDUCTIONS = ("global", "shared::cta", "shared::cluster", "bulk_group", "L2::cache_hint")


def _text_problems(text: str) -> list[str]:
    """The broken invariants of text that is no legal form."""
    found = _TENSOR_COPY.search(text)
    if found is None:
        return []
    words = found[3].rstrip(";").split(".")
    rank = next((int(match[1]) for word in words if (match := _RANK.fullmatch(word))), None)
    modes = [word for word in words if word.startswith(("im2col", "tile"))]
    listed = _COORDINATES.search(text)
    problems = []
    if rank is not None:
        coordinates = None if listed is None else sum(bool(part.strip()) for part in listed[1].split(","))
        problems += _shape_problems(rank, modes[0] if modes else "tile", coordinates)
    if found[1]:
        others = [word for word in words if word not in (*_NO_REDUCTIONS, *modes) and not _RANK.fullmatch(word)]
        problems += [problem for word in others for problem in _reduction_problems(word)]
        problems += [] if others else [f"the redop is missing: one of {', '.join(REDUCTIONS)}"]
    return problems
