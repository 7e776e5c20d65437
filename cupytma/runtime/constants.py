"""``__constant__`` variables of a module, written from the host: the transport of tensor maps that all blocks share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from cupytma.errors import LaunchError
from cupytma.runtime.device import cupy
from cupytma.runtime.faults import launch_failure
from cupytma.runtime.given import shown
from cupytma.runtime.loading import raw_module
from cupytma.runtime.module import Module
from cupytma.runtime.transfer import Staging, check_tensor_map
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import ALIGNMENT
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

# PTX ISA, "Variable Declarations": `.const .align 64 .b8 maps[256];`, `.const .align 4 .f32 scale = 0f3F800000;`.
_VARIABLE = re.compile(
    r"^\s*(?:\.(?:visible|weak)\s+)?\.(?P<space>const|global)\s+(?:\.align\s+(?P<align>\d+)\s+)?\.[a-z]+(?P<bits>\d+)\s+"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?\s*[;=]",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Variable:
    """A variable of a module.

    Attributes
    ----------
    name : str
        As PTX has it.
    size, alignment : int
        In bytes.
    is_constant : bool
        Whether it is ``__constant__``; else ``__device__``.
    """

    name: str
    size: int
    alignment: int
    is_constant: bool


@lru_cache(maxsize=32)
def parse_variables(ptx: str) -> dict[str, Variable]:
    """The ``__constant__`` and ``__device__`` variables that a PTX text declares, by name."""
    found = {}
    for match in _VARIABLE.finditer(ptx):
        element = int(match["bits"]) // 8
        found[match["name"]] = Variable(
            match["name"], element * int(match["count"] or 1), int(match["align"] or element), match["space"] == "const"
        )
    return found


_staging: WeakKeyDictionary[Module, Staging] = WeakKeyDictionary()
# What a module's variables describe, so that it lives as long: by name and device.
_kept: WeakKeyDictionary[Module, dict[tuple[str, int], Any]] = WeakKeyDictionary()


def set_constant(module: Module, name: str, value: Any, stream: Any = None) -> None:
    """Write a ``__constant__`` variable of a module on the current device. Returns at once.

    The write is ordered on the stream: kernels launched on it before see the old value, kernels launched after it the
    new one, with no fence. A kernel of another stream that runs meanwhile may see either, or half of each: order the
    streams by an event first. Each device has its own variable. What tensor maps describe is kept alive until the
    variable is written again or the module goes.

    Parameters
    ----------
    module : Module
    name : str
        The variable's, with its namespace (``"a::b"``) if it has one.
    value : TensorMap, sequence of TensorMap, bytes, numpy array or numpy scalar
        Of exactly the variable's size. Arrays are taken as they lie in memory.
    stream : stream or int, optional
        Default: CuPy's current stream.

    Raises
    ------
    LaunchError
        If the module has no such variable, or the value has another size, is in device memory, or is a map that the
        device must not be given.
    NoDeviceError
        If there is no GPU.
    """
    if not isinstance(module, Module):
        raise LaunchError(f"{shown(module)} is no module: pass what `cupytma.compile` returns")
    variable = _variable(module, name)
    data = _bytes_of(module, variable, value)
    device = cupy().cuda.runtime.getDevice()
    try:
        address = int(raw_module(module).get_global(variable.name).ptr)
        _staging.setdefault(module, Staging()).upload(address, data, stream)
    except LaunchError:
        raise
    except Exception as error:  # CuPy's errors derive from no common public type
        raise launch_failure(error, f"the variable {name} of {module!r} could not be written") from error
    _kept.setdefault(module, {})[variable.name, device] = tuple(value) if isinstance(value, list) else value


def _variable(module: Module, name: Any) -> Variable:
    known = parse_variables(module.ptx)
    variable = known.get(_mangled(name)) if isinstance(name, str) else None
    if variable is None:
        constants = ", ".join(sorted(v.name for v in known.values() if v.is_constant)) or "none"
        raise LaunchError(f"the module has no __constant__ variable {shown(name)}; it has: {constants}")
    if not variable.is_constant:
        raise LaunchError(
            f"{name} is a __device__ variable, whose tensor maps a kernel must acquire: declare it __constant__, or "
            "pass the maps in a DescriptorBuffer"
        )
    return variable


def _mangled(name: str) -> str:
    """The name of a variable in namespaces as C++ compilers write it (Itanium C++ ABI)."""
    parts = name.strip().removeprefix("::").split("::")
    return parts[0] if len(parts) == 1 else "_ZN" + "".join(f"{len(part)}{part}" for part in parts) + "E"


def _bytes_of(module: Module, variable: Variable, value: Any) -> bytes:
    try:
        maps = [value] if isinstance(value, TensorMap) else list(value) if isinstance(value, (list, tuple)) else []
        if maps and all(isinstance(entry, TensorMap) for entry in maps):
            for entry in maps:
                check_tensor_map(entry, module.target)
            data = b"".join(map(bytes, maps))
            if variable.alignment % ALIGNMENT:
                raise TypeError(
                    f"a tensor map needs {ALIGNMENT} bytes of alignment, and the variable has {variable.alignment}: "
                    "declare it CUtensorMap, or alignas(64)"
                )
        else:
            data = _plain_bytes(value)
    except TypeError as error:
        raise LaunchError(f"the variable {variable.name}: {error}") from None
    if len(data) != variable.size:
        raise LaunchError(
            f"the variable {variable.name} has {variable.size} B and was given {len(data)} B"
            + (f", {counted(len(maps), 'tensor map')} of {SIZE} B" if maps else "")
        )
    return data


def _plain_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return value.tobytes()
    try:
        is_on_device = hasattr(value, "__cuda_array_interface__")
    except Exception:  # a caller's class may raise anything
        is_on_device = True
    if is_on_device:
        raise TypeError("the value is in device memory: give its contents, for example cupy.asnumpy(value)")
    raise TypeError(
        f"a {type(value).__name__} has no size of its own: give a TensorMap or a list of them, bytes, a numpy array, "
        "or a numpy scalar such as numpy.float32(2)"
    )
