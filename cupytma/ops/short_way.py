"""The short way to an array that a library is trusted with, read at the least cost by its type; and the long way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from cupytma.ops.prepared import Guard
from cupytma.runtime.device import cupy
from cupytma.runtime.places import describe_cupy_array, describe_tensor, library_of
from cupytma.runtime.streams import current_handle, current_stream, handle_of, torch_handles, wait_for
from cupytma.runtime.tensor_guards import guard_of
from cupytma.tensormap.arrays import ArrayView


class ShortWay(NamedTuple):
    """What a library's arrays say of themselves.

    Attributes
    ----------
    read : callable
        An array's address, device, shape, strides and dtype, as `describe_tensor` has them. It raises a `TypeError` for
        one that operations on bits must not take as it lies.
    layout : callable
        Its shape, strides and dtype.
    handle : callable
        The handle of the library's current stream on a device.
    guard : callable or None
        Makes a test for arrays of the types and layouts of some; see `guard_of`.
    """

    read: Callable[[Any], tuple[Any, ...]]
    layout: Callable[[Any], tuple[Any, ...]]
    handle: Callable[[int], int]
    guard: Guard | None = None


OF_CUPY = ShortWay(describe_cupy_array, attrgetter("shape", "strides", "dtype"), current_handle)
# By the type of array, for those that were met.
short_ways: dict[type, ShortWay] = {}


def learn(kind: type) -> None:
    """Remember the short way to arrays of a type, if they are CuPy's or torch's."""
    library = library_of(kind)
    if library == "torch":
        short_ways[kind] = ShortWay(
            describe_tensor, lambda tensor: (tensor.shape, tensor.stride(), tensor.dtype), torch_handles(), guard_of
        )
    elif library == "cupy":
        short_ways[kind] = OF_CUPY


def launch_the_long_way(
    arrays: Sequence[Any], views: Sequence[ArrayView], stream: Any, launch: Callable[[int], None]
) -> None:
    """Launch on the device of arrays of any libraries, after the work that they say is under way; learn their types.

    Parameters
    ----------
    arrays, views : sequence
        The arrays and what they say of themselves, all of one device.
    stream : stream, int or None
        None for the current one of their library.
    launch : callable
        Given the stream's handle.
    """
    with cupy().cuda.Device(int(views[0].device or 0)):
        if stream is None:
            stream = current_stream(*arrays)
        for view in views:
            wait_for(view.stream, stream)
        launch(handle_of(stream))
    for array in arrays:
        if array.__class__ not in short_ways:
            learn(array.__class__)
