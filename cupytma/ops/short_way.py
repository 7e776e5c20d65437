"""The short way to an array that a library is trusted with: what it is, read at the least cost, by its type."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from cupytma.runtime.places import TorchDevice
from cupytma.runtime.streams import current_handle


class ShortWay(NamedTuple):
    """What a library's arrays say of themselves.

    Attributes
    ----------
    read : callable
        An array's address, device, shape, strides (or True where they follow from the shape) and dtype. It raises a
        `TypeError` for one that operations on bits must not take as it lies.
    layout : callable
        Its shape, strides and dtype.
    handle : callable
        The handle of the library's current stream on a device.
    """

    read: Callable[[Any], tuple[Any, ...]]
    layout: Callable[[Any], tuple[Any, ...]]
    handle: Callable[[int], int]


OF_CUPY = ShortWay(
    attrgetter("data.ptr", "data.device_id", "shape", "strides", "dtype"), attrgetter("shape", "strides", "dtype"),
    current_handle,
)  # fmt: skip
# By the type of array, for those that were met.
short_ways: dict[type, ShortWay] = {}


def learn(kind: type) -> None:
    """Remember the short way to arrays of a type, if they are CuPy's or torch's."""
    torch, module = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        # What Triton and torch's own compiler ask for the stream, at a tenth of the public function's cost.
        handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        short_ways[kind] = ShortWay(
            _read_tensor, lambda tensor: (tensor.shape, tensor.stride(), tensor.dtype),
            handle or (lambda device: current_handle(TorchDevice(device))),
        )  # fmt: skip
    elif module is not None and kind is getattr(module, "ndarray", None):
        short_ways[kind] = OF_CUPY


def _read_tensor(tensor: Any) -> tuple[Any, ...]:
    device, dtype = tensor.get_device(), tensor.dtype
    if device < 0 or tensor.is_neg() or (dtype.is_complex and tensor.is_conj()):
        raise TypeError("a tensor on the host, or one whose elements are not those in memory")
    try:
        return tensor.data_ptr(), device, tensor.shape, tensor.is_contiguous() or tensor.stride(), dtype
    except RuntimeError as error:
        raise TypeError(f"a tensor without strided memory, such as a sparse one: {error}") from None
