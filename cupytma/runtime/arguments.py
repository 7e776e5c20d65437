"""The arguments of a launch, laid out as the kernel declares them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cupytma.errors import LaunchError
from cupytma.runtime import places
from cupytma.runtime.conversion import holds_map, holds_pointer
from cupytma.runtime.signature import KernelParameter, KernelSignature
from cupytma.runtime.writers import Writer, common_place, pack_map, pack_pointer, writer_of
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

_SEQUENCES = frozenset((tuple, list))


class ParameterBlock:
    """Memory for the arguments of one launch, laid out as the kernel declares them.

    Attributes
    ----------
    data : memoryview
        The arguments, as bytes.
    pointers : int
        Address of one pointer for each argument, which ``cuLaunchKernel`` takes.
    """

    __slots__ = ("_memory", "_pointers", "data", "pointers")

    def __init__(self, signature: KernelSignature) -> None:
        self._memory = (ctypes.c_ubyte * (signature.size + SIZE))()
        start = -ctypes.addressof(self._memory) % SIZE
        self.data = memoryview(self._memory).cast("B")[start : start + signature.size]
        address = ctypes.addressof(self._memory) + start
        places = [address + parameter.offset for parameter in signature.parameters]
        self._pointers = (ctypes.c_void_p * max(len(places), 1))(*places)
        self.pointers = ctypes.addressof(self._pointers)


class Marshaller:
    """Turns the arguments of one kernel into bytes.

    Parameters
    ----------
    signature : KernelSignature
    target : Target
        What the kernel was compiled for.

    Attributes
    ----------
    fill_quickly : callable
        As `fill`, for a tuple or list; but what does not fit raises a bare ValueError, TypeError or OverflowError.
    """

    def __init__(self, signature: KernelSignature, target: Target = DEFAULT_TARGET) -> None:
        self.signature = signature
        self._target = target
        self._writers = [writer_of(parameter, target) for parameter in signature.parameters]
        self.fill_quickly = _filler(signature.parameters, self._writers, target)

    def fill(self, data: memoryview, arguments: Sequence[Any]) -> int | None:
        """Write the arguments of a launch into a parameter block's data.

        Parameters
        ----------
        data : memoryview
            Of `ParameterBlock`.
        arguments : sequence
            A `TensorMap` goes by value to a ``const __grid_constant__ CUtensorMap`` parameter, and a list or tuple of
            them to a struct of that many; a device array or None as a pointer; integers, floats and numpy scalars by
            the parameter's own type; ``numpy.void``, bytes and ctypes structures to other structs.

        Returns
        -------
        int or None
            The device of the arrays, a `TorchDevice` if any is torch's; None where there are none.

        Raises
        ------
        LaunchError
            Naming every argument that does not fit, or arrays of different devices.
        """
        if arguments.__class__ not in _SEQUENCES:
            arguments = self._sequence(arguments)
        try:
            return self.fill_quickly(data, arguments)
        except (ValueError, TypeError, OverflowError):
            pass
        if len(arguments) != len(self._writers):
            raise LaunchError(self._miscounted(arguments))
        raise self._refusal(data, arguments)

    def write(self, data: memoryview, position: int, argument: Any) -> int | None:
        """Write one argument; the rest as for `fill`."""
        try:
            return self._writers[position](data, argument)
        except (ValueError, TypeError, OverflowError) as error:
            raise LaunchError(f"argument {position} of kernel {self.signature.name}: {error}") from None

    def _sequence(self, arguments: Any) -> list[Any]:
        """The arguments as a list."""
        kind = type(arguments).__name__
        if isinstance(arguments, Iterator):  # it would be empty when the arguments are read again
            raise LaunchError(
                f"kernel {self.signature.name} takes a tuple or list of arguments and was given a {kind}, which can be "
                "read once: write list(arguments)"
            )
        if not isinstance(arguments, Sequence) or isinstance(arguments, (str, bytes, bytearray, memoryview)):
            raise LaunchError(
                f"kernel {self.signature.name} takes a tuple or list of arguments and was given {kind}: write "
                f"({kind.lower()},) for one alone"
            )
        return list(arguments)

    def _miscounted(self, arguments: Sequence[Any]) -> str:
        expected = self.signature.parameters
        declared = ", ".join(map(str, expected)) or "nothing"
        return (
            f"kernel {self.signature.name} takes {counted(len(expected), 'argument')} and was given {len(arguments)}; "
            f"it declares: {declared}"
        )

    def _refusal(self, data: memoryview, arguments: Sequence[Any]) -> LaunchError:
        """The error that names everything."""
        problems: list[str] = []
        devices: dict[int, list[int]] = {}
        for position, (write, argument) in enumerate(zip(self._writers, arguments, strict=True)):
            try:
                place = write(data, argument)
            except (ValueError, TypeError, OverflowError) as error:
                problems.append(f"argument {position} of kernel {self.signature.name}: {error}")
            else:
                if place is not None:
                    devices.setdefault(int(place), []).append(position)
        if len(devices) > 1:
            where = "; ".join(f"{_listed(positions)} on device {device}" for device, positions in devices.items())
            problems.append(
                f"the arrays given to kernel {self.signature.name} are on different devices: {where}. Move them to one"
            )
        return LaunchError("\n".join(problems))


def _listed(positions: Sequence[int]) -> str:
    return f"argument{'s' if len(positions) > 1 else ''} {', '.join(map(str, positions))}"


# Argument i, where it is of the kind that is most often given: what else there is, `write` sees to.
_INLINE_MAP = """\
    known = a{i}.__dict__.get("_launched") if a{i}.__class__ is TensorMap else None
    if known is not None and known[0] is target:
        pack_map(data, {offset}, a{i}._joined or a{i}._data)
        p{i} = known[1]
    else:
        p{i} = write{i}(data, a{i})"""
_INLINE_POINTER = """\
    if a{i}.__class__ is places.cupy_array:
        memory = a{i}.data
        pack_pointer(data, {offset}, memory.ptr)
        p{i} = memory.device_id
    else:
        p{i} = write{i}(data, a{i})"""
_INLINE_OTHER = "    p{i} = write{i}(data, a{i})"


def _filler(
    parameters: Sequence[KernelParameter], writers: Sequence[Writer], target: Target
) -> Callable[[memoryview, Sequence[Any]], int | None]:
    """A function that writes all arguments, without a loop and with few calls: it is on the way of every launch."""
    numbers = range(len(writers))
    names, found = ("".join(f"{letter}{i}, " for i in numbers) for letter in "ap")
    lines = ["def fill(data, arguments):"]
    lines += ["    if arguments.__class__ is not tuple and arguments.__class__ is not list:", "        raise TypeError"]
    lines.append(f"    [{names}] = arguments")
    for i, parameter in enumerate(parameters):
        inline = _INLINE_POINTER if holds_pointer(parameter) else _INLINE_OTHER
        lines.append((_INLINE_MAP if holds_map(parameter) else inline).format(i=i, offset=parameter.offset))
    alike = " and ".join(f"p{i} is p{i + 1}" for i in numbers[:-1]) or "True"
    lines.append(f"    return {'p0' if writers else None} if {alike} else common(({found}))")
    namespace: dict[str, Any] = {f"write{i}": write for i, write in enumerate(writers)}
    namespace |= {
        "TensorMap": TensorMap, "common": common_place, "pack_map": pack_map, "pack_pointer": pack_pointer,
        "places": places, "target": target,
    }  # fmt: skip
    exec(compile("\n".join(lines), "<arguments of a kernel>", "exec"), namespace)
    fill: Callable[[memoryview, Sequence[Any]], int | None] = namespace["fill"]
    return fill
