"""Python values as kernel arguments, checked against what the kernel declares."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

import numpy as np

from cupytma.errors import DescriptorError, LaunchError
from cupytma.runtime.places import TorchDevice, place_of, readers
from cupytma.runtime.signature import KernelParameter, KernelSignature
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import ALIGNMENT
from cupytma.tensormap.tensor_map import TensorMap

# What a map may have that another architecture lacks. Other rules are the encoder's; a kernel may be given a template.
_TARGET_RULES = ("data-type", "swizzle")
_SEQUENCES = frozenset((tuple, list))
_REAL = (int, float, np.integer, np.floating, np.bool_)
_POINTER_BYTES = 8
_ADDRESS_BYTES = 8
_MAPS_REMEMBERED = 1024

# Puts one argument in its place, and returns the device of the array that it is or describes, where that is known.
Writer = Callable[["memoryview", Any], "int | None"]
_pack_pointer, _pack_map = Struct("<Q").pack_into, Struct(f"{SIZE}s").pack_into


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
    """

    def __init__(self, signature: KernelSignature, target: Target = DEFAULT_TARGET) -> None:
        self.signature = signature
        self._target = target
        self._writers = [_writer(parameter, target) for parameter in signature.parameters]
        self._fill = _filler(self._writers)

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
        if arguments.__class__ in _SEQUENCES:
            try:
                return self._fill(data, arguments)
            except (ValueError, TypeError, OverflowError):
                pass
        else:
            return self.fill(data, self._sequence(arguments))
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
        if not isinstance(arguments, (Sequence, Iterator)) or isinstance(arguments, (str, bytes)):
            raise LaunchError(
                f"kernel {self.signature.name} takes a tuple or list of arguments and was given "
                f"{type(arguments).__name__}: write ({type(arguments).__name__.lower()},) for one alone"
            )
        return list(arguments)

    def _miscounted(self, arguments: Sequence[Any]) -> str:
        expected = self.signature.parameters
        declared = ", ".join(map(str, expected)) or "nothing"
        return (
            f"kernel {self.signature.name} takes {len(expected)} arguments and was given {len(arguments)}; it "
            f"declares: {declared}"
        )

    def _refusal(self, data: memoryview, arguments: Sequence[Any]) -> LaunchError:
        """The error that names everything."""
        problems: list[str] = []
        places: dict[int, list[int]] = {}
        for position, (write, argument) in enumerate(zip(self._writers, arguments, strict=True)):
            try:
                place = write(data, argument)
            except (ValueError, TypeError, OverflowError) as error:
                problems.append(f"argument {position} of kernel {self.signature.name}: {error}")
            else:
                if place is not None:
                    places.setdefault(int(place), []).append(position)
        if len(places) > 1:
            where = "; ".join(f"{_listed(positions)} on device {device}" for device, positions in places.items())
            problems.append(
                f"the arrays given to kernel {self.signature.name} are on different devices: {where}. Move them to one"
            )
        return LaunchError("\n".join(problems))


def _listed(positions: Sequence[int]) -> str:
    return f"argument{'s' if len(positions) > 1 else ''} {', '.join(map(str, positions))}"


def _filler(writers: Sequence[Writer]) -> Callable[[memoryview, Sequence[Any]], int | None]:
    """A function that writes all arguments, without a loop: it is on the way of every launch."""
    numbers = range(len(writers))
    arguments, places = ("".join(f"{letter}{i}, " for i in numbers) for letter in "ap")
    lines = [f"    [{arguments}] = arguments", *(f"    p{i} = write{i}(data, a{i})" for i in numbers)]
    alike = " and ".join(f"p{i} is p{i + 1}" for i in numbers[:-1]) or "True"
    lines.append(f"    return {'p0' if writers else None} if {alike} else common(({places}))")
    namespace: dict[str, Any] = {f"write{i}": write for i, write in enumerate(writers)}
    namespace["common"] = _common_place
    exec(compile("def fill(data, arguments):\n" + "\n".join(lines), "<arguments of a kernel>", "exec"), namespace)
    found: Callable[[memoryview, Sequence[Any]], int | None] = namespace["fill"]
    return found


def _common_place(places: Sequence[int | None]) -> int | None:
    """The one device of several arguments, torch's if any is.

    Raises
    ------
    ValueError
        If they are on several.
    """
    found = None
    for place in places:
        if place is not None and place is not found:
            if found is not None and place != found:
                known = sorted({int(place) for place in places if place is not None})
                raise ValueError(f"these are on different devices: {known}. Move them to one")
            if found is None or type(place) is TorchDevice:
                found = place
    return found


def _writer(parameter: KernelParameter, target: Target) -> Writer:
    """What writes a parameter."""
    general = _general_writer(parameter, target)
    if parameter.is_struct:
        if parameter.alignment < ALIGNMENT or parameter.size % SIZE:
            return general
        several = _tensor_maps_writer(parameter, target, general)
        return _tensor_map_writer(parameter, target, several) if parameter.size == SIZE else several
    if parameter.type.startswith("f"):
        return _real_writer(parameter, general) if parameter.size in _REAL_FORMATS else general
    integer = _integer_writer(parameter, general)
    return _pointer_writer(parameter, integer) if parameter.size == _POINTER_BYTES else integer


def _general_writer(parameter: KernelParameter, target: Target) -> Writer:
    place = slice(parameter.offset, parameter.offset + parameter.size)

    def write(data: memoryview, argument: Any) -> int | None:
        data[place] = _converted(argument, parameter, target)
        return None

    return write


def _tensor_maps_writer(parameter: KernelParameter, target: Target, general: Writer) -> Writer:
    """For a struct that may be as many tensor maps as fit it."""
    starts = range(parameter.offset, parameter.offset + parameter.size, SIZE)
    entries = [replace(parameter, size=SIZE, offset=offset) for offset in starts]
    writers = [_tensor_map_writer(entry, target, general) for entry in entries]

    def write(data: memoryview, argument: Any) -> int | None:
        if not isinstance(argument, (list, tuple)):
            return general(data, argument)
        _check_tensor_maps(argument, parameter)
        return _common_place([write_one(data, entry) for write_one, entry in zip(writers, argument, strict=True)])

    return write


def _tensor_map_writer(parameter: KernelParameter, target: Target, other: Writer) -> Writer:
    offset = parameter.offset
    known: set[bytes] = set()  # all but the address of maps that the kernel may be given

    def write(data: memoryview, argument: Any) -> int | None:
        if argument.__class__ is not TensorMap:
            return other(data, argument)
        remembered = argument.__dict__
        content = argument._joined or argument._data
        ready = remembered.get("_launched")
        if ready is not None and ready[0] is target:
            _pack_map(data, offset, content)
            return ready[1]  # type: ignore[no-any-return]
        rest = content[_ADDRESS_BYTES:]
        if rest not in known or content[7] > 1 or "_on_host" in remembered:
            _check_tensor_map(argument, target)
            if len(known) >= _MAPS_REMEMBERED:
                known.clear()
            known.add(rest)
        _pack_map(data, offset, content)
        source = remembered.get("_source")
        if source is None:
            return None
        device = place_of(source)[1]
        remembered["_launched"] = target, device
        return device

    return write


def _pointer_writer(parameter: KernelParameter, other: Writer) -> Writer:
    offset = parameter.offset

    def write(data: memoryview, argument: Any) -> int | None:
        read = readers.get(argument.__class__)
        if read is None:
            if argument is None or isinstance(argument, _NO_ARRAYS):
                return other(data, argument)
            read = place_of
        address, device = read(argument)
        _pack_pointer(data, offset, address)
        return device

    return write


def _integer_writer(parameter: KernelParameter, general: Writer) -> Writer:
    offset, bits = parameter.offset, 8 * parameter.size
    pack = Struct(_INTEGER_FORMATS[parameter.size]).pack_into
    lowest, end, mask = -1 << (bits - 1), 1 << bits, ~(-1 << bits)

    def write(data: memoryview, argument: Any) -> int | None:
        if argument.__class__ is int and lowest <= argument < end:
            pack(data, offset, argument & mask)
            return None
        return general(data, argument)

    return write


def _real_writer(parameter: KernelParameter, general: Writer) -> Writer:
    pack, offset = Struct(_REAL_FORMATS[parameter.size]).pack_into, parameter.offset

    def write(data: memoryview, argument: Any) -> int | None:
        if argument.__class__ is float and -_SMALL_REAL < argument < _SMALL_REAL:
            pack(data, offset, argument)
            return None
        return general(data, argument)

    return write


_INTEGER_FORMATS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
_REAL_FORMATS = {4: "<f", 8: "<d"}
# What every format holds without becoming infinite.
_SMALL_REAL = 1e38
_NO_ARRAYS = (bool, int, float, np.generic, bytes, bytearray, TensorMap, list, tuple, ctypes.Structure)


def _converted(argument: Any, parameter: KernelParameter, target: Target) -> bytes:
    """The bytes of an argument of any kind but an array."""
    if isinstance(argument, TensorMap):
        _check_tensor_map(argument, target)
        return _tensor_map(argument, parameter)
    if isinstance(argument, (list, tuple)):
        _check_tensor_maps(argument, parameter)  # it says no: a struct that holds them has a writer of its own
    if isinstance(argument, np.void):
        return _struct(argument.tobytes(), parameter)
    if isinstance(argument, (bytes, bytearray, ctypes.Structure, ctypes.Union, ctypes.Array)):
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


def _tensor_map(argument: TensorMap, parameter: KernelParameter) -> bytes:
    if not parameter.is_struct or parameter.size != SIZE or parameter.alignment < ALIGNMENT:
        raise TypeError(
            f"a TensorMap goes to a parameter declared `const __grid_constant__ CUtensorMap`; this one is {parameter}"
        )
    return bytes(argument)


def _check_tensor_maps(argument: Sequence[Any], parameter: KernelParameter) -> None:
    """Refuse what is not as many maps as a struct holds."""
    if not argument or not all(isinstance(entry, TensorMap) for entry in argument):
        raise TypeError(
            f"a {type(argument).__name__} may hold tensor maps alone, for a struct of as many; make other structs a "
            "numpy.void of the struct's layout, and arrays device arrays"
        )
    size = SIZE * len(argument)
    if not parameter.is_struct or parameter.size != size or parameter.alignment < ALIGNMENT:
        raise TypeError(
            f"{len(argument)} tensor maps, {size} B, go to a struct declared `const __grid_constant__` that holds "
            f"`CUtensorMap maps[{len(argument)}]`; the kernel declares {parameter}"
        )


def _struct(data: bytes, parameter: KernelParameter) -> bytes:
    if not parameter.is_struct or len(data) != parameter.size:
        raise TypeError(f"{len(data)} bytes were given; the kernel declares {parameter}")
    return data


def _scalar(argument: Any, parameter: KernelParameter) -> bytes:
    if parameter.is_struct:
        if isinstance(argument, np.generic) and argument.dtype.itemsize == parameter.size:
            return argument.tobytes()  # a half, a complex number or another scalar that the kernel takes as a struct
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
    return (number & ((1 << bits) - 1)).to_bytes(parameter.size, "little")


def _real(argument: Any, parameter: KernelParameter) -> bytes:
    if not isinstance(argument, _REAL):
        raise TypeError(f"{argument!r} is no real number; the kernel declares {parameter}")
    with np.errstate(over="ignore"):
        value = np.dtype(f"f{parameter.size}").type(argument)
    if np.isinf(value) and not np.isinf(float(argument)):
        raise OverflowError(f"{argument!r} is too large for the {parameter} that the kernel declares")
    data: bytes = value.tobytes()
    return data


def _pointer(argument: Any, parameter: KernelParameter) -> bytes:
    if parameter.is_struct or parameter.size != _POINTER_BYTES or parameter.type.startswith("f"):
        raise TypeError(f"{type(argument).__name__} would be passed as a pointer; the kernel declares {parameter}")
    address = 0 if argument is None else place_of(argument)[0]
    return address.to_bytes(_POINTER_BYTES, "little")
