"""Reductions of one GPU array into another, element by element, by the Tensor Memory Accelerator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from cupytma.ops.array_copy import check_devices, compiled, move, plan_tiles, plan_words, region_argument, templates
from cupytma.ops.copy_plan import CopyPlan
from cupytma.ops.prepared import Memory, Prepared, PreparedCopy, prepare
from cupytma.ops.reduction_plan import check_reduced, element_type, plan_reduction
from cupytma.runtime.compiler import Module, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.plan import Plan
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType

# Boxes in flight in one block, and blocks on one multiprocessor.
REDUCTION_STAGES = 4
REDUCTION_BLOCKS_PER_MULTIPROCESSOR = 3
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

    Boxes of ``src`` are reduced into ``dst`` by tensor reductions, in the L2 cache, where the rules of tensor maps
    allow: at least 16 bytes that lie together in both arrays, addresses and strides that are multiples of 16 bytes. Row
    ends within a 16-byte unit, and arrays that break those rules, are reduced by ordinary instructions with the same
    arithmetic. Nothing outside the elements of ``dst`` is read or written.

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
    stream : cupy.cuda.Stream, optional
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
    def reduce(dst: Any, src: Any, *, stream: Any = None) -> Any:
        cupy()
        move(src, operation, dst, stream, _prepare)
        return dst

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

_prepared = Memory()


def _prepare(source: ArrayView, operation: str, destination: ArrayView) -> Prepared:
    check_devices(source, destination)

    def build() -> PreparedCopy:
        device, data_type = int(source.device or 0), element_type(operation, source.dtype)
        return prepare(
            source, destination,
            lambda plan, bases: templates([_launch(operation, data_type, plan, source.itemsize, device)], bases),
            partial(plan_reduction, operation), check_reduced,
        )  # fmt: skip

    return _prepared.once(operation, (source, destination), build)


def _launch(operation: str, data_type: DataType, plan: CopyPlan, itemsize: int, device: int) -> Plan:
    module = reduction_module(str(current_target()), operation, data_type)
    argument = region_argument(plan.rest, itemsize)
    if plan.tiles is None:
        return plan_words(module.kernel("element_reduce"), argument, device)
    return plan_tiles(
        module.kernel(f"tile_reduce_{plan.tiles.rank}d"), plan.tiles, plan.rest, argument, device,
        REDUCTION_STAGES, REDUCTION_BLOCKS_PER_MULTIPROCESSOR,
    )


@cache
def reduction_module(target: str, operation: str, data_type: DataType) -> Module:
    """The kernels of one reduction of elements of one type."""
    return compiled(
        "reduce.cu", target, STAGES=REDUCTION_STAGES, ELEMENT=data_type.name, ARITHMETIC=ARITHMETIC[operation],
        TENSOR_REDUCE=f"tensor_reduce_{operation}",
    )
