"""Where the elements of anything array-like lie. No array library is imported, and no data is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

from cupytma.errors import ArrayError


@dataclass(frozen=True)
class ArrayView:
    """Where an array's elements lie. It does not keep the array alive.

    Attributes
    ----------
    address : int
        Of element (0, …, 0), in bytes.
    shape : tuple of int
        In elements, array order (last dimension fastest in a C-contiguous array).
    strides : tuple of int
        In bytes, array order; may be zero or negative.
    dtype : str
        Name of the element type, such as ``"float16"``.
    itemsize : int
        Bytes of one element.
    device : int or None
        Number of the CUDA device, None for host memory.
    read_only : bool
        Whether the owner forbids writing.
    stream : int or None
        Handle of the CUDA stream that the array is being made on, where its interface says so; None for no such work.
        Views that differ in it alone are equal.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: int | None
    read_only: bool = False
    stream: int | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def packed_elements(dtype: str) -> str:
    """What to say of elements that are smaller than a byte or packed into one."""
    return (
        f"elements of type {dtype} share or pad their bytes, and a tensor map counts elements of whole bytes: view the "
        "array as uint8 and count bytes (two 4-bit elements each where they are packed); for the packed types of "
        "sm_100a build Tiled from the address and the extents"
    )


_MASKED = "a masked array has no form that a tensor map could hold: fill it, and pass its data"


class _Unreadable(Exception):
    """An interface that is there and does not say where the array lies."""


def view_of(array: Any) -> ArrayView:
    """The memory layout of an array. No data is touched.

    Tried in this order: the methods of a torch tensor, ``__cuda_array_interface__`` (CuPy, Numba, JAX on a GPU),
    ``__array_interface__`` (numpy), DLPack (everything else, and what the interfaces cannot express, such as JAX's
    bfloat16). Read-only arrays are as good as others.

    Parameters
    ----------
    array : array
        Any of the above, or an `ArrayView`, which is returned as it is.

    Returns
    -------
    ArrayView
        Valid as long as the array keeps its memory; the view does not keep the array alive.

    Raises
    ------
    ArrayError
        If the object is no such array, or has no memory of its own (a lazy conjugate, a sparse or abstract tensor).
    """
    if isinstance(array, ArrayView):
        return array
    reasons = []
    # A class has its instances' properties, and is no array itself.
    for read in () if isinstance(array, type) else _READERS:
        try:
            found = read(array)
        except _Unreadable as error:
            reasons.append(str(error))
        else:
            if found is not None:
                return found
    name = f"{type(array).__module__}.{type(array).__name__}"
    if reasons:
        raise ArrayError(f"the memory of this {name} cannot be described: {'; '.join(reasons)}")
    raise ArrayError(
        f"{name} is no array: it has neither __cuda_array_interface__ nor __array_interface__ nor __dlpack__; "
        "numpy.asarray or cupy.asarray makes one of numbers and lists"
    )


# Of which one byte holds several, though torch says that each has one.
PACKED_IN_TORCH = frozenset({"quint4x2", "quint2x4"})
_TORCH_METHODS = ("element_size", "stride", "is_conj", "is_neg")


def _torch_view(array: Any) -> ArrayView | None:
    kind = type(array)
    if not hasattr(kind, "data_ptr") or not all(hasattr(kind, name) for name in _TORCH_METHODS):
        return None
    if array.is_conj() or array.is_neg():
        lazy = "conj" if array.is_conj() else "neg"
        raise ArrayError(
            f"this tensor is a lazy {lazy} view, whose memory holds other values: pass tensor.resolve_{lazy}()"
        )
    dtype = str(array.dtype).removeprefix("torch.")
    if dtype in PACKED_IN_TORCH:
        raise ArrayError(packed_elements(dtype))
    place = array.device.type
    if place not in ("cuda", "cpu"):
        raise ArrayError(f"this tensor is on device {array.device}; a tensor map describes CUDA or host memory")
    try:
        size = array.element_size()
        strides = tuple(stride * size for stride in array.stride())
        address = array.data_ptr()
    except (RuntimeError, NotImplementedError) as error:  # sparse, abstract and functional tensors
        raise ArrayError(f"this tensor of layout {array.layout} has no strided memory: {error}") from None
    return ArrayView(
        address, tuple(array.shape), strides, dtype, size,
        array.device.index if place == "cuda" else None,
    )


def _cuda_interface_view(array: Any) -> ArrayView | None:
    interface = _interface(array, "__cuda_array_interface__")
    return None if interface is None else _view_of_interface(array, interface, _device_number(array))


def _host_interface_view(array: Any) -> ArrayView | None:
    if hasattr(array, "mask") and hasattr(array, "fill_value"):  # numpy's, whose interface leaves the mask out
        raise ArrayError(_MASKED)
    interface = _interface(array, "__array_interface__")
    return None if interface is None else _view_of_interface(array, interface, None)


def _dlpack_view(array: Any) -> ArrayView | None:
    if not (hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")):
        return None
    from cupytma.tensormap import dlpack  # with ctypes, which most arrays need not wait for

    try:
        return dlpack.read(array)
    except ArrayError:
        raise
    except Exception as error:  # exporters raise what they like
        raise _Unreadable(f"__dlpack__ refuses ({error})") from None


_READERS: tuple[Callable[[Any], ArrayView | None], ...] = (
    _torch_view, _cuda_interface_view, _host_interface_view, _dlpack_view,
)


def _interface(array: Any, name: str) -> dict[str, Any] | None:
    """An array interface; None where there is none."""
    try:
        interface: dict[str, Any] | None = getattr(array, name, None)
    except Exception as error:  # a property that cannot express the array raises what it likes
        raise _Unreadable(f"{name} refuses ({error})") from None
    return interface


def _view_of_interface(array: Any, interface: dict[str, Any], device: int | None) -> ArrayView:
    if interface.get("mask") is not None:
        raise ArrayError(_MASKED)
    try:
        shape = tuple(map(int, interface["shape"]))
        address = int(interface["data"][0])
        dtype, itemsize = _dtype_of(array, interface["typestr"])
    except (KeyError, TypeError, ValueError) as error:
        raise _Unreadable(f"its array interface is incomplete ({type(error).__name__}: {error})") from None
    strides = interface.get("strides")
    if strides is None:
        strides, step = [], itemsize
        for extent in reversed(shape):
            strides.insert(0, step)
            step *= extent
    return ArrayView(
        address, shape, tuple(map(int, strides)), dtype, itemsize, device, bool(interface["data"][1]),
        interface.get("stream"),
    )


def _dtype_of(array: Any, typestr: str) -> tuple[str, int]:
    """Name and bytes of the element type. The array's own dtype tells apart what a typestr cannot (bfloat16: V2)."""
    own = getattr(array, "dtype", None)
    if own is not None:
        try:
            return _described(own)
        except TypeError:  # a dtype of a library of its own
            pass
    return _described(typestr)


@lru_cache(maxsize=256)
def _described(dtype: Any) -> tuple[str, int]:
    import numpy as np

    found = np.dtype(dtype)
    return (found.name if found.isnative else found.str), found.itemsize


def _device_number(array: Any) -> int:
    """The device of an array with a CUDA array interface, which does not say it."""
    if hasattr(array, "__dlpack_device__"):
        from cupytma.tensormap import dlpack

        return dlpack.cuda_device(array) or 0
    return int(getattr(getattr(array, "device", None), "id", 0))
