"""The short way to an array that a library is trusted with, read at the least cost by its type; and the long way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from cupytma.ops.known_objects import Watch
from cupytma.ops.prepared import Guard
from cupytma.runtime.device import cupy
from cupytma.runtime.places import describe_cupy_array, describe_tensor, library_of
from cupytma.runtime.streams import current_handle_of_cupy, current_stream, handle_of, torch_handles, wait_for
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
        The handle of the library's current stream on a device, which is the current one.
    guard : callable or None
        Makes a test for arrays of the types and layouts of some; see `guard_of`.
    same : callable or None
        Makes a test for two arrays of the identities of some; see `same_arrays`.
    """

    read: Callable[[Any], tuple[Any, ...]]
    layout: Callable[[Any], tuple[Any, ...]]
    handle: Callable[[int], int]
    guard: Guard | None = None
    same: Same | None = None


Same = Callable[[Any, Any], Callable[[Any, Any], bool]]


def same_arrays(source: Any, destination: Any) -> Callable[[Any, Any], bool]:
    """A test for CuPy's arrays of the identities of two: whether these live, so that they are the same, and lie alike.

    Of what says how an array lies, CuPy's public interface lets the shape alone be changed, which keeps the order of
    the elements: with the same shape it lies as before (strides along dimensions of one element aside). That takes
    half of the time that reading the arrays does.
    """
    watch, first, second = Watch((source, destination)), source.shape, destination.shape
    return lambda one, other: watch.is_alive and one.shape == first and other.shape == second


OF_CUPY = ShortWay(
    describe_cupy_array, attrgetter("shape", "strides", "dtype"), current_handle_of_cupy, same=same_arrays
)
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
