"""Python values as the bytes of a kernel's parameter, checked against what it declares."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from cupytma.errors import DescriptorError
from cupytma.runtime.given import shown
from cupytma.runtime.places import place_of
from cupytma.runtime.signature import KernelParameter
from cupytma.targets import Target
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import ALIGNMENT
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

# What a map may have that another architecture lacks. Other rules are the encoder's; a kernel may be given a template.
_TARGET_RULES = ("data-type", "swizzle")
_REAL = (int, float, np.integer, np.floating, np.bool_)
POINTER_BYTES = 8


def holds_map(parameter: KernelParameter) -> bool:
    return parameter.is_struct and parameter.size == SIZE and parameter.alignment >= ALIGNMENT


def holds_pointer(parameter: KernelParameter) -> bool:
    return not parameter.is_struct and parameter.size == POINTER_BYTES and not parameter.type.startswith("f")


def converted(argument: Any, parameter: KernelParameter, target: Target) -> bytes:
    """The bytes of an argument of any kind but an array."""
    if isinstance(argument, TensorMap):
        check_tensor_map(argument, target)
        return _tensor_map(argument, parameter)
    if isinstance(argument, (list, tuple)):
        check_tensor_maps(argument, parameter)  # it says no: a struct that holds them has a writer of its own
    if isinstance(argument, np.void):
        return _struct(argument.tobytes(), parameter)
    if isinstance(argument, (bytes, bytearray, ctypes.Structure, ctypes.Union, ctypes.Array)):
        return _struct(bytes(argument), parameter)
    if isinstance(argument, (bool, int, float, np.generic)):
        return _scalar(argument, parameter)
    return _pointer(argument, parameter)


def check_tensor_map(argument: TensorMap, target: Target) -> None:
    """Refuse a map that the GPU must not be given: one of host memory, or that its unit does not understand."""
    if argument.on_host:
        raise TypeError(
            "this tensor map was made from an array in host memory, which the GPU must not touch; make it from a "
            "device array, or give it a device address with `with_address`"
        )
    try:
        broken = [v for v in argument.decode().violations(target) if v.rule in _TARGET_RULES]
    except DescriptorError as error:
        raise TypeError(f"these 128 bytes are no tensor map: {error}") from None
    if broken:
        raise TypeError("; ".join(map(str, broken)))


def _tensor_map(argument: TensorMap, parameter: KernelParameter) -> bytes:
    if not parameter.is_struct or parameter.size != SIZE or parameter.alignment < ALIGNMENT:
        raise TypeError(
            f"a TensorMap goes to a parameter declared `const __grid_constant__ CUtensorMap`; this one is {parameter}"
        )
    return bytes(argument)


def check_tensor_maps(argument: Sequence[Any], parameter: KernelParameter) -> None:
    """Refuse what is not as many maps as a struct holds."""
    if not argument or not all(isinstance(entry, TensorMap) for entry in argument):
        raise TypeError(
            f"a {type(argument).__name__} may hold tensor maps alone, for a struct of as many; make other structs a "
            "numpy.void of the struct's layout, and arrays device arrays"
        )
    size = SIZE * len(argument)
    if not parameter.is_struct or parameter.size != size or parameter.alignment < ALIGNMENT:
        raise TypeError(
            f"{counted(len(argument), 'tensor map')}, {size} B, for a struct declared `const __grid_constant__` that "
            f"holds `CUtensorMap maps[{len(argument)}]`; the kernel declares {parameter}"
        )


def _struct(data: bytes, parameter: KernelParameter) -> bytes:
    if not parameter.is_struct or len(data) != parameter.size:
        raise TypeError(f"{len(data)} bytes were given; the kernel declares {parameter}")
    return data


def _scalar(argument: Any, parameter: KernelParameter) -> bytes:
    if parameter.is_struct:
        if isinstance(argument, np.generic) and argument.dtype.itemsize == parameter.size:
            return argument.tobytes()  # a half, a complex number or another scalar that the kernel takes as a struct
        raise TypeError(f"{shown(argument)} is a number; the kernel declares {parameter}")
    if parameter.type.startswith("f"):
        return _real(argument, parameter)
    try:
        number = operator.index(argument) if not isinstance(argument, np.bool_) else int(argument)
    except TypeError:
        raise TypeError(f"{shown(argument)} is no integer; the kernel declares {parameter}") from None
    bits = 8 * parameter.size
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise OverflowError(f"{shown(number)} does not fit the {bits} bits that the kernel declares")
    return (number & ((1 << bits) - 1)).to_bytes(parameter.size, "little")


def _real(argument: Any, parameter: KernelParameter) -> bytes:
    if not isinstance(argument, _REAL):
        raise TypeError(f"{shown(argument)} is no real number; the kernel declares {parameter}")
    with np.errstate(over="ignore"):
        value = np.dtype(f"f{parameter.size}").type(argument)
    if np.isinf(value) and not np.isinf(float(argument)):
        raise OverflowError(f"{shown(argument)} is too large for the {parameter} that the kernel declares")
    data: bytes = value.tobytes()
    return data


def _pointer(argument: Any, parameter: KernelParameter) -> bytes:
    if parameter.is_struct or parameter.size != POINTER_BYTES or parameter.type.startswith("f"):
        raise TypeError(f"{type(argument).__name__} would be passed as a pointer; the kernel declares {parameter}")
    address = 0 if argument is None else place_of(argument)[0]
    return address.to_bytes(POINTER_BYTES, "little")
