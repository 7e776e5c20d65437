"""Operations from one array to another that are prepared once for a pair of layouts, as copies are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import check_devices, compiled, layouts, learn
from cupytma.ops.layout import share_memory
from cupytma.ops.prepared import BASES, Memory, PreparedCopy, addresses_in, span_bytes
from cupytma.runtime.device import cupy
from cupytma.runtime.kernel import current_device
from cupytma.runtime.module import Module
from cupytma.runtime.places import place_of
from cupytma.runtime.plan import Plan
from cupytma.runtime.streams import current_handle, current_stream, handle_of, wait_for
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.tensormap.tensor_map import TensorMap

ALIGNMENT = 128  # bytes: of each tile of shared memory

# Makes the launches of an operation between two views, on the current device.
Build = Callable[[ArrayView, ArrayView], Sequence[Plan]]


class Address(int):
    """A launch's argument that is one of the two arrays' addresses, or a distance from it."""


def _check_apart(source: ArrayView, destination: ArrayView) -> None:
    if share_memory(source, destination):
        raise ArrayError("the result overlaps the array it is made of in memory; give it memory of its own")


def _check_nothing(source: ArrayView, destination: ArrayView) -> None:
    """The two arrays are one, and its elements are not read."""


def carry_out(
    operation: Hashable, build: Build, source: Any, destination: Any, stream: Any = None, *, in_place: bool = False
) -> None:
    """Carry out an operation from one array to another.

    Parameters
    ----------
    operation : hashable
        What is done beside the layouts: the same key, the same launches.
    build : callable
        Makes the launches; called once for each operation and pair of layouts.
    source, destination : array
        On one device.
    stream : stream, optional
        Default: torch's current stream if an array is torch's, else CuPy's.
    in_place : bool
        The source is the destination, and its elements are not read.

    Raises
    ------
    ArrayError
        If an array is in host memory, read-only where it is written, on another device than the other one, or the two
        share memory.
    """
    kind = source.__class__
    read = layouts.get(kind)
    if read is None or kind is not destination.__class__ or stream is not None:
        _carry_out_any(operation, build, source, destination, stream, in_place)
        return
    try:
        start, place = place_of(source)
        target, other = place_of(destination)
        key = operation, place, other, start % 16, target % 16, read(source), read(destination)
        prepared = _prepared.get(key)
    except TypeError:  # host memory, or a key that is none: the long way says so
        _carry_out_any(operation, build, source, destination, stream, in_place)
        return
    if place != current_device():
        with cupy().cuda.Device(place):
            _carry_out_any(operation, build, source, destination, stream, in_place)
        return
    if prepared is None:
        prepared = _prepare(operation, build, view_of(source), view_of(destination), in_place)
        _prepared.keep(key, prepared)
    prepared.launch(start, target, current_handle(place))


_prepared = Memory()


def _carry_out_any(
    operation: Hashable, build: Build, source: Any, destination: Any, stream: Any, in_place: bool
) -> None:
    if stream is None:
        stream = current_stream(source, destination)
    views = view_of(source), view_of(destination)
    prepared = _prepare(operation, build, *views, in_place)
    for view in views:
        wait_for(view.stream, stream)
    prepared.launch(views[0].address, views[1].address, handle_of(stream))
    for array in (source, destination):
        if array.__class__ not in layouts:
            learn(array.__class__)


def _prepare(
    operation: Hashable, build: Build, source: ArrayView, destination: ArrayView, in_place: bool
) -> PreparedCopy:
    check_devices(source, destination)
    if destination.read_only and destination.size:
        raise ArrayError("the result's array is read-only; give one that may be written")
    places = source.address % 16, destination.address % 16
    key = operation, replace(source, address=places[0]), replace(destination, address=places[1])
    found = _prepared.get(key)
    if found is None:
        bases = BASES[0] + places[0], BASES[1] + places[1]
        with cupy().cuda.Device(int(source.device or 0)):
            plans = build(replace(source, address=bases[0]), replace(destination, address=bases[1]))
            templates = tuple(plan.template(addresses_in(_pointers(plan), bases)) for plan in plans)
        spans = span_bytes(source), span_bytes(destination)
        found = PreparedCopy(templates, spans, (source, destination), _check_nothing if in_place else _check_apart)
        _prepared.keep(key, found)
    return found


def _pointers(launch: Plan) -> list[tuple[int, int]]:
    """Offset and value of every address in a launch's arguments."""
    places = []
    for parameter, argument in zip(launch.kernel.signature.parameters, launch.arguments, strict=True):
        if isinstance(argument, (TensorMap, Address)):
            places.append(parameter.offset)
        elif isinstance(argument, np.void):
            fields = dict(argument.dtype.fields or {})
            places += [parameter.offset + int(fields[name][1]) for name in ("source", "destination") if name in fields]
    data = launch.data
    return [(place, int.from_bytes(data[place : place + 8], "little")) for place in places]


@cache
def kernels(name: str, target: str, **defines: int) -> Module:
    """The kernels of one source file of this package, compiled for a target."""
    return compiled(name, target, **defines)


def spatial(values: Sequence[int], neutral: int) -> tuple[int, ...]:
    """Values of the spatial dimensions, given in array order, W first and filled up to three."""
    return (*reversed(values), *(neutral,) * (3 - len(values)))
