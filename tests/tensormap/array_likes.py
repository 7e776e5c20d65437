"""Objects that look like arrays of other libraries, none of which need be installed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from cupytma.tensormap import dlpack

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


class CudaArray:
    """An array on a GPU by its interface alone."""

    def __init__(self, shape: Sequence[int], typestr: str, strides: Any = None, address: int = 1 << 40, **more: Any):
        self.__cuda_array_interface__ = {
            "shape": tuple(shape), "typestr": typestr, "strides": strides, "data": (address, True), "version": 3,
            **more,
        }


class TorchTensor:
    """What is used of a torch tensor. Strides are in elements."""

    layout = "torch.sparse_csr"

    def __init__(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        dtype: str,
        itemsize: int,
        device: str = "cuda",
        **flags: Any,
    ):
        self.shape, self._strides, self.dtype, self._itemsize = tuple(shape), tuple(strides), f"torch.{dtype}", itemsize
        self.device = SimpleNamespace(type=device, index=1)
        self._flags = flags

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise TypeError("bfloat16 has no typestr")

    def data_ptr(self) -> int:
        return 1 << 40

    def element_size(self) -> int:
        return self._itemsize

    def stride(self) -> tuple[int, ...]:
        if self._flags.get("sparse"):
            raise RuntimeError("sparse tensors do not have strides")
        return self._strides

    def is_conj(self) -> bool:
        return bool(self._flags.get("conj"))

    def is_neg(self) -> bool:
        return bool(self._flags.get("neg"))


class DLPackArray:
    """An array by DLPack alone, of any type, on any device. Counts the capsules that are alive."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: tuple[int, int, int],
        strides: Sequence[int] | None = None,
        device: tuple[int, int] = (2, 0),
        *,
        versioned: bool = True,
        major: int = 1,
        flags: int = 0,
        byte_offset: int = 0,
    ):
        self.alive, self.calls = 0, []
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        self._device, self._versioned = device, versioned
        tensor = dlpack._DLTensor(
            1 << 40, dlpack._DLDevice(*device), len(shape), dlpack._DLDataType(*dtype), self._shape, self._strides,
            byte_offset,
        )
        self._managed = dlpack._DLManagedTensorVersioned(major, 0, None, None, flags, tensor) if versioned else tensor
        self._destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._destroyed)

    def _destroyed(self, capsule: int) -> None:
        self.alive -= 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        self.calls.append(options)
        if options.get("max_version") and not self._versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.alive += 1
        name = b"dltensor_versioned" if self._versioned else b"dltensor"
        self.name = ctypes.create_string_buffer(name)
        return _new_capsule(ctypes.addressof(self._managed), self.name, self._destructor)
