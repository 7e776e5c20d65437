"""Where device arrays lie, and how: read at the least cost for the libraries that are known and trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal

from cupytma.errors import ArrayError
from cupytma.runtime.given import shown
from cupytma.tensormap.arrays import view_of

_HOST = "this array is in host memory, which the kernel must not touch; move it with cupy.asarray"


class TorchDevice(int):
    """The number of the device of a torch tensor: work on it belongs to torch's current stream."""

    __slots__ = ()


_torch_devices: dict[int, TorchDevice] = {}
Place = tuple[int, "int | None"]


def _of_cupy(array: Any) -> Place:
    memory = array.data
    return memory.ptr, memory.device_id


def _of_torch(tensor: Any) -> Place:
    device = tensor.get_device()
    if device < 0 or tensor.is_conj() or tensor.is_neg():
        view = view_of(tensor)  # which says what is wrong with it, or that it is the host's
        if view.device is None:
            raise TypeError(_HOST.replace("cupy.asarray", "tensor.cuda()"))
    return tensor.data_ptr(), _torch_devices.get(device) or _torch_devices.setdefault(device, TorchDevice(device))


def describe_tensor(tensor: Any) -> tuple[Any, ...]:
    """A torch tensor's address, device, shape, strides (or True where they follow from the shape) and dtype.

    Raises
    ------
    TypeError
        If operations on bits must not take it as it lies.
    """
    device, dtype = tensor.get_device(), tensor.dtype
    if device < 0 or tensor.is_neg() or (dtype.is_complex and tensor.is_conj()):
        raise TypeError("a tensor on the host, or one whose elements are not those in memory")
    try:
        return tensor.data_ptr(), device, tensor.shape, tensor.is_contiguous() or tensor.stride(), dtype
    except RuntimeError as error:
        raise TypeError(f"a tensor without strided memory, such as a sparse one: {error}") from None


# The same of CuPy's arrays, whose strides are always given.
describe_cupy_array = attrgetter("data.ptr", "data.device_id", "shape", "strides", "dtype")


def _of_pointer(memory: Any) -> Place:
    """CuPy's MemoryPointer and its kin."""
    return _checked(memory.ptr), getattr(memory, "device_id", None)


def _of_interface(array: Any) -> Place:
    try:
        view = view_of(array)
    except ArrayError as error:
        raise TypeError(str(error)) from None
    except Exception as error:  # a caller's class may raise anything
        raise TypeError(f"{shown(array)} does not say where it lies: {type(error).__name__}: {error}") from None
    if view.device is None:
        raise TypeError(_HOST)
    return _checked(view.address), view.device


def _checked(address: int) -> int:
    if not 0 <= address < 1 << 64:
        raise TypeError(f"{shown(address)} is no address of 64 bits")
    return address


# By the type of array, for the types that can be trusted.
readers: dict[type, Callable[[Any], Place]] = {}
# CuPy's array type, once one was seen.
cupy_array: type | None = None


def place_of(array: Any) -> Place:
    """The address of an array's first element, and its device; None where it cannot be told.

    Parameters
    ----------
    array : array
        CuPy's, torch's (also parameters), anything with ``__cuda_array_interface__`` or DLPack, or a memory pointer
        with an integer ``ptr``.

    Raises
    ------
    TypeError
        If it is no array, or in host memory.
    """
    kind = array.__class__
    return (readers.get(kind) or _reader(kind, array))(array)


def library_of(kind: type) -> Literal["cupy", "torch"] | None:
    """The library whose arrays of a type are trusted to say where they lie; None for other types, also derived ones."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        return "torch"
    return "cupy" if cupy is not None and kind is getattr(cupy, "ndarray", None) else None


def _reader(kind: type, array: Any) -> Callable[[Any], Place]:
    """How arrays of a type are read; remembered for the types that can be trusted."""
    global cupy_array
    library = library_of(kind)
    if library == "torch":
        return readers.setdefault(kind, _of_torch)
    if library == "cupy":
        cupy_array = kind
        return readers.setdefault(kind, _of_cupy)
    try:
        is_pointer = not hasattr(array, "__cuda_array_interface__") and isinstance(getattr(array, "ptr", None), int)
    except Exception:  # a caller's class may raise anything
        is_pointer = False
    return _of_pointer if is_pointer else _of_interface
