"""The DLPack protocol, as far as it says where an array's elements lie.

A capsule is looked into and given back untouched: it is never renamed, so its own destructor frees what the exporter
allocated for it, and the array itself owns its memory as before. No data is read, and no stream is waited for, but by
exporters that know no word for that.

Source: the DLPack specification, ``dlpack.h`` of versions 0.8 (``dltensor``) and 1.1 (``dltensor_versioned``).
"""

from __future__ import annotations

import ctypes
from typing import Any

from cupytma.errors import ArrayError
from cupytma.tensormap.views import ArrayView, packed_elements

_VERSION = (1, 1)
_IS_COPIED = 1 << 1
_READ_ONLY = 1
# On a CUDA device the exporter must not wait for, or order, any stream: nothing is going to be read.
_NO_SYNCHRONISATION = -1


class _DLDevice(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_ON_HOST, _ON_GPU = (_CPU, _CUDA_HOST), (_CUDA, _CUDA_MANAGED)
_OTHER_DEVICES = {
    4: "OpenCL", 7: "Vulkan", 8: "Metal", 9: "VPI", 10: "ROCm", 11: "ROCm host", 12: "an extension device",
    14: "oneAPI", 15: "WebGPU", 16: "Hexagon", 17: "MAIA", 18: "Trainium",
}
# Names of element types: by code, formatted with the bits of one element.
_DTYPES = {
    0: "int{bits}", 1: "uint{bits}", 2: "float{bits}", 4: "bfloat{bits}", 5: "complex{bits}", 6: "bool",
    7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 10: "float8_e4m3fn", 11: "float8_e4m3fnuz",
    12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu", 15: "float6_e2m3fn", 16: "float6_e3m2fn",
    17: "float4_e2m1fn",
}


def cuda_device(array: Any) -> int | None:
    """The CUDA device of an array that speaks DLPack, None for host memory.

    Raises
    ------
    ArrayError
        If the array is on another kind of device.
    """
    device_type, number = (int(value) for value in array.__dlpack_device__())
    if device_type in _ON_HOST:
        return None
    if device_type not in _ON_GPU:
        name = _OTHER_DEVICES.get(device_type, f"device type {device_type}")
        raise ArrayError(f"the array is on {name}; a tensor map describes CUDA or host memory: move the array there")
    return number


def read(array: Any) -> ArrayView:
    """Where an array's elements lie, from its ``__dlpack__``. No data is touched.

    Raises
    ------
    ArrayError
        If the array is on a device that is neither CUDA nor the host, its elements do not fill whole bytes, or the
        exporter would have had to copy them.
    Exception
        Whatever the exporter raises.
    """
    device = cuda_device(array)
    capsule = _capsule(array, device)
    tensor, read_only = _look_into(capsule)
    kind = tensor.dtype
    name = _DTYPES.get(kind.code, f"type {kind.code}").format(bits=kind.bits)
    if kind.bits % 8:
        raise ArrayError(packed_elements(name))
    if kind.lanes != 1:
        raise ArrayError(f"elements are vectors of {kind.lanes} {name}: view the array with one more dimension")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    steps = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else _contiguous(shape)
    address, itemsize = (tensor.data or 0) + tensor.byte_offset, kind.bits // 8
    found = ArrayView(address, shape, tuple(step * itemsize for step in steps), name, itemsize, device, read_only)
    del capsule  # only now: its destructor frees the shape and the strides
    return found


def _capsule(array: Any, device: int | None) -> Any:
    """The array's capsule, of the newest protocol that its exporter speaks."""
    if device is None:
        return _exported(array)
    try:
        return _exported(array, stream=_NO_SYNCHRONISATION)
    except RuntimeError:  # JAX takes it for a stream's address, which CUDA refuses (measured with JAX 0.11)
        return _exported(array, stream=None)


def _exported(array: Any, **stream: int | None) -> Any:
    try:
        return array.__dlpack__(max_version=_VERSION, copy=False, **stream)
    except TypeError:
        return array.__dlpack__(**stream)


def _look_into(capsule: Any) -> tuple[_DLTensor, bool]:
    """The tensor in a capsule, and whether it is read-only, which the old protocol does not say."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _DLManagedTensorVersioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != _VERSION[0]:
            raise ArrayError(f"the array exports DLPack {versioned.major}.{versioned.minor}; versions 0 and 1 are read")
        if versioned.flags & _IS_COPIED:
            raise ArrayError("the array's exporter copies its elements, so that it has no address of its own")
        return versioned.tensor, bool(versioned.flags & _READ_ONLY)
    if _is_valid(capsule, b"dltensor"):
        return _DLTensor.from_address(_pointer(capsule, b"dltensor")), False
    raise ArrayError("the array's __dlpack__ returned no DLPack capsule, or one that has been consumed")


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
