"""Tensor maps as the objects of other libraries: numpy, ctypes, cuda-python. Nothing is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from cupytma.errors import DescriptorError, NoDeviceError
from cupytma.tensormap.base import TensorMapBytes
from cupytma.tensormap.fields import SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

T = TypeVar("T", bound="Interop")

# What a `__grid_constant__` parameter and the driver's own type ask for.
ALIGNMENT = 64
# What tensormap.replace and tensormap.cp_fenceproxy work on: 1024-bit operands, aligned to their size.
SLOT_ALIGNMENT = SIZE


class Interop(TensorMapBytes):
    """A tensor map to and from other libraries' objects. Part of `TensorMap`."""

    __slots__ = ()

    def to_numpy(self) -> np.void:
        """A ``numpy.void`` of 128 bytes: what CuPy passes by value to a ``const __grid_constant__ CUtensorMap``."""
        import numpy as np

        scalar: np.void = np.frombuffer(bytes(self), dtype=f"V{SIZE}")[0]
        return scalar

    @classmethod
    def from_numpy(cls: type[T], value: Any) -> T:
        """A tensor map from a ``numpy.void``, or an array of any type and shape that holds 128 bytes.

        Raises
        ------
        DescriptorError
            If there are not 128 bytes.
        """
        import numpy as np

        return cls.from_bytes(np.asarray(value).tobytes())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """The 128 bytes as uint8, read-only unless copied."""
        import numpy as np

        found = np.frombuffer(bytes(self), dtype=np.uint8)
        if dtype is not None and np.dtype(dtype) != found.dtype:
            return found.astype(dtype)
        return found.copy() if copy else found

    def __buffer__(self, flags: int) -> memoryview:
        """The 128 bytes as a read-only buffer (Python 3.12 and newer)."""
        return memoryview(bytes(self))

    def to_ctypes(self) -> Any:
        """A ctypes structure of 16 words on a 64-byte boundary, as ``CUtensorMap`` in C.

        The structure owns its memory: it stays valid, and where it is, as long as the object lives. Pass
        ``ctypes.byref(structure)`` or ``ctypes.addressof(structure)``. Changing it does not change the tensor map.
        """
        from cupytma.tensormap.c_struct import aligned_structure

        return aligned_structure(bytes(self), ALIGNMENT)

    @classmethod
    def from_ctypes(cls: type[T], value: Any) -> T:
        """A tensor map from a ctypes structure or array of 128 bytes.

        Raises
        ------
        DescriptorError
            If it has another size.
        """
        return cls.from_bytes(memoryview(value).cast("B"))

    def to_driver(self) -> Any:
        """A ``cuda.bindings.driver.CUtensorMap`` (cuda-python 12 or 13); needs no driver and no GPU.

        Raises
        ------
        NoDeviceError
            If cuda-python is not installed.
        """
        import ctypes

        found = _driver().CUtensorMap()
        ctypes.memmove(int(found.getPtr()), bytes(self), SIZE)
        return found

    @classmethod
    def from_driver(cls: type[T], value: Any) -> T:
        """A tensor map from a ``cuda.bindings.driver.CUtensorMap``, such as the driver's encoders return.

        Raises
        ------
        DescriptorError
            If the object is none.
        """
        import ctypes

        if type(value).__name__ != "CUtensorMap" or not hasattr(value, "getPtr"):
            raise DescriptorError(f"{type(value).__module__}.{type(value).__name__} is no CUtensorMap of cuda-python")
        return cls.from_bytes(ctypes.string_at(int(value.getPtr()), SIZE))


def slot_array(tensor_maps: Iterable[Interop]) -> npt.NDArray[np.uint8]:
    """Tensor maps as rows of an array, for upload: 128 bytes apart, the first on a 128-byte boundary.

    ``tensormap.replace`` and ``tensormap.cp_fenceproxy`` need that spacing and alignment of every slot, though the
    hardware reads only the first 64 bytes of each. A device array of the same shape keeps the spacing, and CuPy's
    allocations the alignment.

    Parameters
    ----------
    tensor_maps : iterable of TensorMap

    Returns
    -------
    array of uint8, shape (n, 128)
        Own memory, writable.
    """
    import numpy as np

    rows = [bytes(tensor_map) for tensor_map in tensor_maps]
    raw = np.empty(len(rows) * SIZE + SLOT_ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % SLOT_ALIGNMENT
    slots = raw[start : start + len(rows) * SIZE].reshape(len(rows), SIZE)
    slots[:] = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), SIZE)
    return slots


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise NoDeviceError(
            "cuda-python is not installed: `pip install 'cupytma[cuda12]'` or, for CUDA 13, "
            "`pip install 'cupytma[cuda13]'`"
        ) from None
    return driver
