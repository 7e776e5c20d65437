"""Reductions of one GPU array into another, element by element, by the Tensor Memory Accelerator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from cupytma.ops.array_copy import check_devices, move
from cupytma.ops.copy_launches import STAGES, compiled, plan_items, plan_tiles, plan_words, templates
from cupytma.ops.copy_plan import CopyPlan
from cupytma.ops.ordinary import GRANULE, region_argument
from cupytma.ops.prepared import Memory, Prepared, PreparedCopy, prepare
from cupytma.ops.reduction_plan import check_atomic, check_reduced, element_type, owned_parts, plan_reduction
from cupytma.runtime.compiler import Module, current_target
from cupytma.runtime.plan import Plan, Template
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType

# What a reduction is called in the kernels, where some of the names are the language's own.
ARITHMETIC = {
    "add": "add",
    "min": "minimum",
    "max": "maximum",
    "and": "bits_and",
    "or": "bits_or",
    "xor": "bits_xor",
    "inc": "increment",
    "dec": "decrement",
}

_DOCUMENTATION = """{summary}

    Where each element of ``dst`` has enough to do for a thread of its own, ordinary loads and stores are fastest. Where
    many parts of ``src`` go into few elements, and with ``atomic=True``, boxes of ``src`` are reduced into ``dst`` by
    tensor reductions, in the L2 cache, as far as the rules of tensor maps allow: at least 16 bytes that lie together in
    both arrays, addresses and strides that are multiples of 16 bytes; the rest by atomic instructions. The arithmetic
    is the same whichever way. Nothing outside the elements of ``dst`` is read or written.

    Parameters
    ----------
    dst : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides. Reduced in place.
    src : array
        Of the same dtype and device, and of the shape of ``dst`` or that shape with more dimensions before it: then
        every ``src[i]`` is reduced into ``dst``, as in the last step of a split-K multiplication. The same holds along
        dimensions of ``dst`` whose stride is 0. The order is not defined, which matters to sums of floating-point
        numbers, rounded after each addition, and to ``inc`` and ``dec``. It may be ``dst`` itself, and overlap it in no
        other way.
    atomic : bool
        Whether other reductions into the same elements of ``dst`` may run at the same time, in other streams. Without
        it they must come one after the other.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``dst``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If the unit has no such reduction of the dtype (`cupytma.ptx.reductions`), an array is in host memory or not
        aligned to its elements, or shapes, dtypes or devices differ, or memory overlaps.

    Notes
    -----
    {arithmetic}
    """
_EXACT = "Exact: integers of 32 and 64 bits{more}."
_PICKED = (
    " and, of floating-point numbers, float16 and bfloat16: -0 is less than +0, a NaN is dropped for a number, and two "
    "NaNs give 0x7FFF"
)
_ADDED = (
    "int32, uint32, int64 and uint64 wrap. float16, bfloat16, float32 and float64 round to nearest even once and keep "
    "denormals. A NaN is 0x7FFF in the two 16-bit types and 0x7FFFFFFF in float32; float64 keeps the bits of the new "
    "one, else of the old one. (Measured on an H100 and an H200.)"
)
_COUNTED = "uint32 alone. {rule} (PTX ISA, \"red\": .inc and .dec.)"
# Summary and notes of each.
_TEXTS = {
    "add": ("``dst += src``, element by element.", _ADDED),
    "min": ("``dst = minimum(dst, src)``, element by element.", _EXACT.format(more=_PICKED)),
    "max": ("``dst = maximum(dst, src)``, element by element.", _EXACT.format(more=_PICKED)),
    "and": ("``dst &= src``, element by element.", _EXACT.format(more="")),
    "or": ("``dst |= src``, element by element.", _EXACT.format(more="")),
    "xor": ("``dst ^= src``, element by element.", _EXACT.format(more="")),
    "inc": (
        "Count up: ``dst = where(dst >= src, 0, dst + 1)``, element by element.",
        _COUNTED.format(rule="``src`` holds the limits after which the count begins again at 0."),
    ),
    "dec": (
        "Count down: ``dst = where((dst == 0) | (dst > src), src, dst - 1)``, element by element.",
        _COUNTED.format(rule="``src`` holds the limits at which the count begins again after 0."),
    ),
}


def _reducer(operation: str) -> Callable[..., Any]:
    def reduce(dst: Any, src: Any, *, atomic: bool = False, stream: Any = None) -> Any:
        check_atomic(atomic)
        move(src, atomically if atomic else alone, dst, stream, _prepare)
        return dst

    alone, atomically = (operation, False), (operation, True)

    summary, arithmetic = _TEXTS[operation]
    reduce.__doc__ = _DOCUMENTATION.format(summary=summary, arithmetic=arithmetic)
    reduce.__name__ = reduce.__qualname__ = f"reduce_{operation}"
    return reduce


reduce_add = _reducer("add")
reduce_min = _reducer("min")
reduce_max = _reducer("max")
reduce_and = _reducer("and")
reduce_or = _reducer("or")
reduce_xor = _reducer("xor")
reduce_inc = _reducer("inc")
reduce_dec = _reducer("dec")

_prepared: Memory[Prepared] = Memory()


def _prepare(source: ArrayView, way: tuple[str, bool], destination: ArrayView) -> Prepared:
    check_devices(source, destination)
    (operation, atomic), device = way, int(source.device or 0)

    def launch(plan: CopyPlan, bases: tuple[int, int]) -> tuple[Template, ...]:
        module = reduction_module(str(current_target()), operation, element_type(operation, source.dtype), atomic)
        return templates([_launch(module, plan, source.itemsize, device)], bases)

    def build() -> PreparedCopy:
        element_type(operation, source.dtype)  # which says what cannot be reduced
        plan_for = partial(plan_reduction, operation, atomic=atomic)
        return prepare(source, destination, launch, plan_for, check_reduced)

    return _prepared.once(way, (source, destination), build)


def _launch(module: Module, plan: CopyPlan, itemsize: int, device: int) -> Plan:
    if plan.tiles is not None:
        kernel = module.kernel(f"tile_reduce_{plan.tiles.rank}d")
        return plan_tiles(kernel, plan.tiles, plan.rest, region_argument(plan.rest, itemsize))
    parts = owned_parts(plan, itemsize)
    if parts is None:
        return plan_words(module.kernel("element_reduce"), region_argument(plan.rest, itemsize), device)
    name = f"{'vector' if parts.items.word == GRANULE else 'scalar'}_reduce_{len(parts.region.outer) + 1}d"
    return plan_items(module.kernel(name), parts.region, parts.items, parts.count, parts.stride)


@cache
def reduction_module(target: str, operation: str, data_type: DataType, atomic: bool = False) -> Module:
    """The kernels of one reduction of elements of one type, which others may have at the same time or not."""
    return compiled(
        "reduce.cu", target, STAGES=STAGES, ELEMENT=data_type.name, ARITHMETIC=ARITHMETIC[operation],
        TENSOR_REDUCE=f"tensor_reduce_{operation}", ATOMIC=int(atomic),
    )
