"""Python values as kernel arguments, checked against what the kernel declares."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from cupytma.errors import ArrayError, DescriptorError, LaunchError
from cupytma.runtime.signature import KernelParameter, KernelSignature
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap.arrays import view_of
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.tensor_map import TensorMap

_TENSOR_MAP_ALIGNMENT = 64
# What a map may have that another architecture lacks. Other rules are the encoder's; a kernel may be given a template.
_TARGET_RULES = ("data-type", "swizzle")
_REAL = (int, float, np.integer, np.floating, np.bool_)


def marshal(
    signature: KernelSignature, arguments: Sequence[Any], target: Target = DEFAULT_TARGET
) -> list[Any]:
    """The arguments of one launch as numpy scalars, each of exactly the size the kernel declares.

    Parameters
    ----------
    signature : KernelSignature
    target : Target
        What the kernel was compiled for.
    arguments : sequence
        A `TensorMap` goes by value to a ``const __grid_constant__ CUtensorMap`` parameter; a device array or None as
        a pointer; integers, floats and numpy scalars by the parameter's own type; ``numpy.void`` or bytes to a struct.

    Raises
    ------
    LaunchError
        Naming every argument that does not fit.
    """
    expected = signature.parameters
    if len(arguments) != len(expected):
        declared = ", ".join(map(str, expected)) or "nothing"
        raise LaunchError(
            f"kernel {signature.name} takes {len(expected)} arguments and was given {len(arguments)}; it declares: "
            f"{declared}"
        )
    values: list[Any] = []
    problems: list[str] = []
    for position, (argument, parameter) in enumerate(zip(arguments, expected, strict=True)):
        try:
            values.append(_marshal_one(argument, parameter, target))
        except (ValueError, TypeError, OverflowError) as error:
            problems.append(f"argument {position} of kernel {signature.name}: {error}")
    if problems:
        raise LaunchError("\n".join(problems))
    return values


def _marshal_one(argument: Any, parameter: KernelParameter, target: Target) -> Any:
    if isinstance(argument, TensorMap):
        _check_tensor_map(argument, target)
        return _tensor_map(argument, parameter)
    if isinstance(argument, np.void):
        return _struct(argument.tobytes(), parameter)
    if isinstance(argument, (bytes, bytearray)):
        return _struct(bytes(argument), parameter)
    if isinstance(argument, (bool, int, float, np.generic)):
        return _scalar(argument, parameter)
    return _pointer(argument, parameter)


def _check_tensor_map(argument: TensorMap, target: Target) -> None:
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


def _tensor_map(argument: TensorMap, parameter: KernelParameter) -> Any:
    if not parameter.is_struct or parameter.size != SIZE or parameter.alignment < _TENSOR_MAP_ALIGNMENT:
        raise TypeError(
            f"a TensorMap goes to a parameter declared `const __grid_constant__ CUtensorMap`; this one is {parameter}"
        )
    return _struct(bytes(argument), parameter)


def _struct(data: bytes, parameter: KernelParameter) -> Any:
    if not parameter.is_struct or len(data) != parameter.size:
        raise TypeError(f"{len(data)} bytes were given; the kernel declares {parameter}")
    return np.frombuffer(data, dtype=f"V{len(data)}")[0]


def _scalar(argument: Any, parameter: KernelParameter) -> Any:
    if parameter.is_struct:
        if isinstance(argument, np.generic) and argument.dtype.itemsize == parameter.size:
            return argument  # a half, a complex number or another numpy scalar that the kernel takes as a struct
        raise TypeError(f"{argument!r} is a number; the kernel declares {parameter}")
    if parameter.type.startswith("f"):
        return _real(argument, parameter)
    try:
        number = operator.index(argument) if not isinstance(argument, np.bool_) else int(argument)
    except TypeError:
        raise TypeError(f"{argument!r} is no integer; the kernel declares {parameter}") from None
    bits = 8 * parameter.size
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise OverflowError(f"{number} does not fit the {bits} bits that the kernel declares")
    return np.dtype(f"u{parameter.size}").type(number & ((1 << bits) - 1))


def _real(argument: Any, parameter: KernelParameter) -> Any:
    if not isinstance(argument, _REAL):
        raise TypeError(f"{argument!r} is no real number; the kernel declares {parameter}")
    with np.errstate(over="ignore"):
        value = np.dtype(f"f{parameter.size}").type(argument)
    if np.isinf(value) and not np.isinf(float(argument)):
        raise OverflowError(f"{argument!r} is too large for the {parameter} that the kernel declares")
    return value


def _pointer(argument: Any, parameter: KernelParameter) -> Any:
    if parameter.is_struct or parameter.size != 8 or parameter.type.startswith("f"):
        raise TypeError(f"{type(argument).__name__} would be passed as a pointer; the kernel declares {parameter}")
    if argument is None:
        return np.uint64(0)
    if not hasattr(argument, "__cuda_array_interface__") and isinstance(getattr(argument, "ptr", None), int):
        return np.uint64(argument.ptr)  # CuPy's MemoryPointer and its kin
    try:
        view = view_of(argument)
    except ArrayError as error:
        raise TypeError(str(error)) from None
    if view.device is None:
        raise TypeError("this array is in host memory, which the kernel must not touch; move it with cupy.asarray")
    return np.uint64(view.address)
