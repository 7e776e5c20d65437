"""The arithmetic of reductions: ``destination = destination op tile``, element by element.

Measured on an H100 and an H200 for every combination in the table, those of FLOAT64, TFLOAT32 and TFLOAT32_FTZ for
ordinary numbers alone; hardware refuses all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import SimulationError
from cupytma.sim.faults import IllegalInstruction, NotSimulatedError
from cupytma.tensormap.enums import DataType

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]
Combine = Callable[[Array, Array], Array]

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
"""Every reduction of the instruction."""


@dataclass(frozen=True)
class Reduction:
    """One operation on one element type.

    Attributes
    ----------
    name : str
    view : str
        The numpy dtype in which `apply` sees both operands.
    apply : callable
        Takes the old values and the tile's, returns the new ones in the same dtype.
    """

    name: str
    view: str
    apply: Combine


def reduction(data_type: DataType, op: str) -> Reduction:
    """The reduction of a name on an element type.

    Raises
    ------
    SimulationError
        For an operation that does not exist.
    IllegalInstruction
        For one the hardware refuses: whatever is not in the table (measured on an H200, every type and operation).
    NotSimulatedError
        For packed element types, which have not been measured.
    """
    name = str(op).lower().lstrip(".")
    if name not in OPERATIONS:
        raise SimulationError(f"there is no reduction {op!r}; there are {', '.join(OPERATIONS)}")
    known = "; ".join(f"{t}: {', '.join(ops)}" for t, ops in _TABLE.items())
    if data_type > DataType.TFLOAT32_FTZ:
        raise NotSimulatedError(f"reduction {name} on {data_type} has not been measured; simulated are {known}")
    found = _TABLE.get(data_type, {}).get(name)
    if found is None:
        way_out = _WAYS_OUT.get((data_type, name), f"there are {known}")
        raise IllegalInstruction(
            f"illegal instruction: reduction {name} on {data_type}, which hardware refuses; {way_out}"
        )
    return found


def measured_reductions(data_type: DataType) -> tuple[str, ...]:
    """The reductions of an element type that are simulated: those whose results have been measured."""
    return tuple(_TABLE.get(data_type, ()))


def combine(chosen: Reduction, old: Bytes, new: Bytes) -> Bytes:
    """The bytes that replace `old`; both C-contiguous, of one shape, rows of whole elements."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return chosen.apply(old.view(chosen.view), new.view(chosen.view)).view(np.uint8)


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + np.uint32(1)).astype(np.uint32)


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - np.uint32(1)).astype(np.uint32)


def _add_float32(old: Array, new: Array) -> Array:
    """Rounds once to nearest even and keeps denormals; every NaN is ``0x7FFFFFFF``."""
    total = (old.view(np.float32) + new.view(np.float32)).view(np.uint32)
    total[(total & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)] = 0x7FFFFFFF
    return total


def _add_float32_ftz(old: Array, new: Array) -> Array:
    """As `_add_float32`, with denormal operands and results made zeros of their sign."""
    return _flushed(_add_float32(_flushed(old), _flushed(new)))


def _flushed(bits: Array) -> Array:
    flushed: Array = np.where(bits & np.uint32(0x7F800000), bits, bits & np.uint32(0x80000000))
    return flushed


def _add_float64(old: Array, new: Array) -> Array:
    """Rounds once to nearest even. A NaN comes out as it went in, the new one before the old one."""
    total = (old.view(np.float64) + new.view(np.float64)).view(np.uint64)
    total[np.isnan(total.view(np.float64))] = 0xFFF8000000000000  # infinities of both signs
    for operand in (old, new):
        is_nan = np.isnan(operand.view(np.float64))
        total[is_nan] = operand[is_nan]
    return total


def _add_float16(old: Array, new: Array) -> Array:
    # Any sum of two float16 numbers is exact in float64, so the conversion back rounds the exact sum once.
    total = old.view(np.float16).astype(np.float64) + new.view(np.float16).astype(np.float64)
    bits = total.astype(np.float16).view(np.uint16)
    bits[np.isnan(total)] = 0x7FFF
    return bits


def _add_bfloat16(old: Array, new: Array) -> Array:
    # float32 has more than twice bfloat16's precision and the same exponents, so rounding to it first changes nothing.
    total = _widened(old) + _widened(new)
    bits: Array = total.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: Array = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    rounded[np.isnan(total)] = 0x7FFF
    return rounded


def _widened(bits: Array) -> npt.NDArray[np.float32]:
    single: npt.NDArray[np.float32] = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return single


def _pick(larger: bool, infinity: int) -> Combine:
    """Minimum or maximum of 16-bit floats given as bits, whose infinity has the pattern `infinity`."""

    def pick(old: Array, new: Array) -> Array:
        old_nan, new_nan = (old & 0x7FFF) > infinity, (new & 0x7FFF) > infinity
        first, second = _ordered(old), _ordered(new)
        take_new = (second > first) if larger else (second < first)
        chosen = np.where((take_new | old_nan) & ~new_nan, new, old)
        chosen[old_nan & new_nan] = 0x7FFF
        return chosen

    return pick


def _ordered(bits: Array) -> npt.NDArray[np.int32]:
    """Integers in the order of the 16-bit floats; −0 comes before +0."""
    magnitude = (bits & 0x7FFF).astype(np.int32)
    return np.where(bits & 0x8000, -1 - magnitude, magnitude).astype(np.int32)


def _rows(view: str, **operations: Combine) -> dict[str, Reduction]:
    return {name: Reduction(name, view, apply) for name, apply in operations.items()}


_ORDER: dict[str, Combine] = {"min": np.minimum, "max": np.maximum}
_BITWISE: dict[str, Combine] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_INTEGER: dict[str, Combine] = {"add": np.add, **_ORDER, **_BITWISE}

_TABLE: dict[DataType, dict[str, Reduction]] = {
    DataType.UINT32: _rows("<u4", **_INTEGER, inc=_increment, dec=_decrement),
    DataType.INT32: _rows("<i4", **_INTEGER),
    DataType.UINT64: _rows("<u8", **_INTEGER),
    DataType.INT64: _rows("<i8", **_ORDER),
    DataType.FLOAT16: _rows("<u2", add=_add_float16, min=_pick(False, 0x7C00), max=_pick(True, 0x7C00)),
    DataType.BFLOAT16: _rows("<u2", add=_add_bfloat16, min=_pick(False, 0x7F80), max=_pick(True, 0x7F80)),
    DataType.FLOAT32: _rows("<u4", add=_add_float32),
    DataType.FLOAT32_FTZ: _rows("<u4", add=_add_float32_ftz),
    DataType.FLOAT64: _rows("<u8", add=_add_float64),
    # No value is rounded to TF32 (measured); that the one flushes denormals and the other does not is taken over.
    DataType.TFLOAT32: _rows("<u4", add=_add_float32),
    DataType.TFLOAT32_FTZ: _rows("<u4", add=_add_float32_ftz),
}
# What to do instead of a reduction that hardware refuses, where another type does the same.
_WAYS_OUT = {
    **{
        (DataType.INT64, name): "describe the tensor as UINT64, which gives the same bits"
        for name in ("add", *_BITWISE)
    },
    **{
        (data_type, name): f"describe the tensor as {wide}, which gives the same bits"
        for data_type, wide in ((DataType.FLOAT32, "UINT32"), (DataType.FLOAT64, "UINT64"))
        for name in _BITWISE
    },
    **{(DataType.INT32, name): "describe the tensor as UINT32" for name in ("inc", "dec")},
}
