"""What writes one argument into a kernel's parameter block: quickly for what is usual, thoroughly for the rest."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

import numpy as np

from cupytma.runtime.conversion import (
    check_tensor_map,
    check_tensor_maps,
    converted,
    holds_map,
    holds_pointer,
)
from cupytma.runtime.places import TorchDevice, place_of, readers
from cupytma.runtime.signature import KernelParameter
from cupytma.targets import Target
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import ALIGNMENT
from cupytma.tensormap.tensor_map import TensorMap

_ADDRESS_BYTES = 8
_MAPS_REMEMBERED = 1024

# Puts one argument in its place, and returns the device of the array that it is or describes, where that is known.
Writer = Callable[["memoryview", Any], "int | None"]
pack_pointer, pack_map = Struct("<Q").pack_into, Struct(f"{SIZE}s").pack_into


def writer_of(parameter: KernelParameter, target: Target) -> Writer:
    """What writes a parameter."""
    general = _general_writer(parameter, target)
    if parameter.is_struct:
        if parameter.alignment < ALIGNMENT or parameter.size % SIZE:
            return general
        several = _tensor_maps_writer(parameter, target, general)
        return _tensor_map_writer(parameter, target, several) if holds_map(parameter) else several
    if parameter.type.startswith("f"):
        return _real_writer(parameter, general) if parameter.size in _REAL_FORMATS else general
    integer = _integer_writer(parameter, general)
    return _pointer_writer(parameter, integer) if holds_pointer(parameter) else integer


def _general_writer(parameter: KernelParameter, target: Target) -> Writer:
    place = slice(parameter.offset, parameter.offset + parameter.size)

    def write(data: memoryview, argument: Any) -> int | None:
        data[place] = converted(argument, parameter, target)
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
        check_tensor_maps(argument, parameter)
        return common_place([write_one(data, entry) for write_one, entry in zip(writers, argument, strict=True)])

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
            pack_map(data, offset, content)
            return ready[1]  # type: ignore[no-any-return]
        rest = content[_ADDRESS_BYTES:]
        if rest not in known or content[7] > 1 or "_on_host" in remembered:
            check_tensor_map(argument, target)
            if len(known) >= _MAPS_REMEMBERED:
                known.clear()
            known.add(rest)
        pack_map(data, offset, content)
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
        pack_pointer(data, offset, address)
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


def common_place(places: Sequence[int | None]) -> int | None:
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
