"""The recorder's kernels: every form of the tensor copies behind one number, generated from the instruction table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cupytma import ptx
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.operands import Operand
from cupytma.ptx.reductions import REDUCTIONS
from cupytma.record.recording import SHARED_BYTES, UNWRITTEN

if TYPE_CHECKING:
    from cupytma.runtime.compiler import Module
    from cupytma.targets import Target

LOAD_MODES = ("tile", "im2col", "tile::gather4", "im2col::w", "im2col::w::128")
STORE_MODES = ("tile", "im2col_no_offs", "tile::scatter4")
_RANKS = {"tile": range(1, 6), "tile::gather4": (2,), "tile::scatter4": (2,)}
_IM2COL_RANKS = range(3, 6)
_DESTINATIONS = ("shared::cluster", "shared::cta")
# Transaction bytes that the counting barrier expects: more than any tile of the recorder's, a multiple of 16.
COUNT_LIMIT = 2 * SHARED_BYTES
# Every function that starts a copy takes the same things, and each form uses those that it has.
_PARAMETERS = {
    "start_load": "void* destination, const CUtensorMap* map, const int* c, unsigned long long* mbarrier, "
    "const unsigned short* o",
    "start_multicast": "void* destination, const CUtensorMap* map, const int* c, unsigned long long* mbarrier, "
    "const unsigned short* o, unsigned short mask",
    "start_store": "const CUtensorMap* map, const int* c, const void* source",
    "start_reduce": "const CUtensorMap* map, const int* c, const void* source",
    "start_prefetch": "const CUtensorMap* map, const int* c, const unsigned short* o",
}
_NAMES = {"tensor_map": "map", "cta_mask": "mask", "w_halo": "o[0]", "w_offset": "o[1]"}


def load_form(rank: int, mode: str = "tile") -> int:
    """The number of a load's form, which is also that of the prefetch."""
    return 8 * LOAD_MODES.index(mode) + rank


def store_form(rank: int, mode: str = "tile") -> int:
    """The number of a store's form."""
    return 8 * STORE_MODES.index(mode) + rank


def reduce_form(rank: int, reduction: str, mode: str = "tile") -> int:
    """The number of a reduction's form."""
    return 64 * REDUCTIONS.index(reduction) + store_form(rank, mode)


def has_load(mode: str, target: Target) -> bool:
    """Whether a target has loads of a mode, to any shared memory."""
    rank = min(_RANKS.get(mode, _IM2COL_RANKS))
    return any(ptx.tensor_load(rank=rank, mode=mode, destination=d).supported_on(target) for d in _DESTINATIONS)


def has_store(mode: str, target: Target) -> bool:
    """Whether a target has stores of a mode."""
    return ptx.tensor_store(rank=min(_RANKS.get(mode, _IM2COL_RANKS)), mode=mode).supported_on(target)


def _loads(build: Callable[..., Instruction], target: Target, **words: Any) -> Iterable[tuple[int, Instruction]]:
    """The forms that a target has; to the block's own shared memory where only that is to be had."""
    for mode in LOAD_MODES:
        for rank in _RANKS.get(mode, _IM2COL_RANKS):
            forms = [build(rank=rank, mode=mode, **words)]
            if build is ptx.tensor_load and not words:
                forms.append(build(rank=rank, mode=mode, destination=_DESTINATIONS[1]))
            having = [form for form in forms if form.supported_on(target)]
            yield from ((load_form(rank, mode), form) for form in having[:1])


def _stores() -> Iterable[tuple[int, Instruction]]:
    return (
        (store_form(rank, mode), ptx.tensor_store(rank=rank, mode=mode))
        for mode in STORE_MODES
        for rank in _RANKS.get(mode, _IM2COL_RANKS)
    )


def _reductions() -> Iterable[tuple[int, Instruction]]:
    return (
        (reduce_form(rank, op, mode), ptx.tensor_reduce(rank=rank, reduction=op, mode=mode))
        for op, mode in itertools.product(REDUCTIONS, STORE_MODES[:2])
        for rank in _RANKS.get(mode, _IM2COL_RANKS)
    )


def _argument(operand: Operand) -> str:
    name, _, number = operand.name.rpartition("_")
    if name == "coordinate":
        return f"c[{number}]"
    return f"o[{number}]" if name == "im2col_offset" else _NAMES.get(operand.name, operand.name)


def _function(name: str, forms: Iterable[tuple[int, Instruction]], target: Target) -> str:
    cases = "\n".join(
        f"    case {number}: cupytma::{i.function_name}({', '.join(map(_argument, i.parameters))}); break;"
        for number, i in forms
        if i.supported_on(target)
    )
    return (
        f"__device__ __noinline__ void {name}(unsigned form, {_PARAMETERS[name]})\n"
        f"{{\n    switch (form) {{\n{cases}\n    default: __trap();\n    }}\n}}\n"
    )


def header(target: Target) -> str:
    """The functions that start a copy by the number of its form, as CUDA C++ for a target."""
    forms = {
        "start_load": _loads(ptx.tensor_load, target),
        "start_multicast": _loads(ptx.tensor_load, target, multicast=True),
        "start_store": _stores(),
        "start_reduce": _reductions(),
        "start_prefetch": _loads(ptx.tensor_prefetch, target),
    }
    return "#pragma once\n" + "\n".join(_function(name, rows, target) for name, rows in forms.items())


@cache
def kernels(target: Target) -> Module:
    """The recorder's kernels, compiled for a target. Needs NVRTC and no GPU.

    Raises
    ------
    CompileError
        If NVRTC is missing.
    """
    from cupytma.runtime.compiler import compile

    sources = import_module("cupytma.kernels")  # in a source tree it is where type checkers do not look
    return compile(
        sources.source("record.cu"),
        target,
        defines={"SHARED_ARRAY_BYTES": SHARED_BYTES, "UNWRITTEN": UNWRITTEN, "COUNT_LIMIT": COUNT_LIMIT},
        headers={"record_forms.cuh": header(target)},
    )
