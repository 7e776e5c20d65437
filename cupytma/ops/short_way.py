"""The short way to an array that a library is trusted with: what it is, read at the least cost, by its type."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from cupytma.runtime.places import describe_cupy_array, describe_tensor, library_of
from cupytma.runtime.streams import current_handle, torch_handles


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
    """

    read: Callable[[Any], tuple[Any, ...]]
    layout: Callable[[Any], tuple[Any, ...]]
    handle: Callable[[int], int]


OF_CUPY = ShortWay(describe_cupy_array, attrgetter("shape", "strides", "dtype"), current_handle)
# By the type of array, for those that were met.
short_ways: dict[type, ShortWay] = {}


def learn(kind: type) -> None:
    """Remember the short way to arrays of a type, if they are CuPy's or torch's."""
    library = library_of(kind)
    if library == "torch":
        short_ways[kind] = ShortWay(
            describe_tensor, lambda tensor: (tensor.shape, tensor.stride(), tensor.dtype), torch_handles()
        )
    elif library == "cupy":
        short_ways[kind] = OF_CUPY
