"""A stand-in for CuPy whose device is numpy and whose kernels are the simulator: the recorder's kernels, in Python.

With it the recorder's processes, launches, faults and files are tested on machines without a GPU. Only what the
recorder uses is here.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np

from cupytma import sim
from cupytma.ptx.reductions import REDUCTIONS
from cupytma.record.forms import COUNT_LIMIT, LOAD_MODES, STORE_MODES
from cupytma.record.hardware import COPY
from cupytma.record.recording import SHARED_BYTES, UNWRITTEN
from cupytma.tensormap import TensorMap

__version__ = "0"
CAPABILITY = os.environ.get("SIMULATED_GPU_CAPABILITY", "90")
# What this device does otherwise than the simulator: "byte", "count", "write", "death", "hang".
DEFECT = os.environ.get("SIMULATED_GPU_DEFECT", "")
uint8 = np.uint8
_arrays: list[np.ndarray] = []


class CUDARuntimeError(RuntimeError):
    pass


class Array(np.ndarray):
    """A numpy array with the address that CuPy's arrays have."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self):
        return np.array(self)


def asarray(values):
    return np.array(values).view(Array)


def zeros(size, dtype):
    _arrays.append(np.zeros(size, dtype))
    return _arrays[-1].view(Array)


def _array_from(address: int) -> np.ndarray:
    """The device memory from an address on."""
    for array in _arrays:
        start = address - array.ctypes.data
        if 0 <= start < len(array):
            return array[start:]
    raise CUDARuntimeError(f"cudaErrorIllegalAddress: {address:#x}")


class RawModule:
    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            assert file.read(4) == b"\x7fELF"

    def get_function(self, name: str):
        return _Function(name)


class _Function:
    """A loaded kernel; its handle is its number."""

    loaded: ClassVar[list[_Function]] = []

    def __init__(self, name: str) -> None:
        self.name, self.max_dynamic_shared_size_bytes, self.shared_size_bytes = name, 0, 0
        self.kernel = SimpleNamespace(ptr=len(self.loaded))
        self.loaded.append(self)

    def launch(self, pointers: int) -> None:
        """Run the kernel on the arguments that pointers lead to, as ``cuLaunchKernel`` takes them."""
        function = getattr(_Kernels, self.name)
        names = inspect.signature(function).parameters
        places = (ctypes.c_void_p * len(names)).from_address(pointers)
        if DEFECT == "hang":
            time.sleep(3600)
        try:
            function(*(_argument(name, place) for name, place in zip(names, places, strict=True)))
            if DEFECT == "death":
                raise CUDARuntimeError("cudaErrorLaunchFailure: unspecified launch failure")
        except sim.MisalignedAddress as fault:
            raise CUDARuntimeError("cudaErrorMisalignedAddress: misaligned address") from fault
        except sim.Fault as fault:
            raise CUDARuntimeError("cudaErrorIllegalInstruction: an illegal instruction was encountered") from fault


def _argument(name: str, place: int):
    """What a parameter of that name holds."""
    if name == "tensor_map":
        return TensorMap.from_bytes(ctypes.string_at(place, 128))
    if name == "copy":
        return np.frombuffer(ctypes.string_at(place, COPY.itemsize), COPY)[0]
    if name == "before":
        return ctypes.string_at(place, 64)
    return int.from_bytes(ctypes.string_at(place, 4 if name == "distance" else 8), "little")


class _Kernels:
    """The kernels of record.cu, by name."""

    @staticmethod
    def record_load(tensor_map, copy, image, answer):
        counted, shared = _loaded(tensor_map, copy)
        _array_from(image)[:SHARED_BYTES] = shared
        _array_from(answer).view("<u4")[:5] = counted == copy["expected_bytes"], counted, 0, 0, 0

    @staticmethod
    def record_load_behind(before, tensor_map, copy, image, answer):
        assert len(before) == 64
        _Kernels.record_load(tensor_map, copy, image, answer)

    @staticmethod
    def record_load_global(address, copy, image, answer):
        if address % 64:
            raise CUDARuntimeError("cudaErrorMisalignedAddress: misaligned address")
        _Kernels.record_load(TensorMap.from_bytes(_array_from(address)[:128].tobytes()), copy, image, answer)

    @staticmethod
    def record_multicast(tensor_map, copy, image, answer):
        counted, shared = _loaded(tensor_map, copy)
        for block in range(2):
            chosen = copy["cta_mask"] >> block & 1
            start = block * SHARED_BYTES
            _array_from(image)[start : start + SHARED_BYTES] = shared if chosen else UNWRITTEN
            _array_from(answer).view("<u4")[block] = counted if chosen else 0

    @staticmethod
    def record_prefetch(tensor_map, copy, answer):
        _loaded(tensor_map, copy)

    @staticmethod
    def record_store(tensor_map, copy, source, answer):
        mode = STORE_MODES[copy["form"] // 8]
        coords, place = _operands(tensor_map, copy, mode)
        _written(lambda shared: sim.store(tensor_map, coords, **place, shared=shared, mode=mode), place, source)

    @staticmethod
    def record_reduce(tensor_map, copy, source, answer):
        coords, place = _operands(tensor_map, copy)
        op = REDUCTIONS[copy["form"] // 64]
        _written(lambda shared: sim.reduce(tensor_map, op, coords, **place, shared=shared), place, source)

    @staticmethod
    def record_load_at_end(tensor_map, copy, distance, image, answer):
        distance = np.uint32(distance).astype(np.int32).item()
        counted, shared = _loaded(tensor_map, copy)
        end = np.full(1024, UNWRITTEN, np.uint8)
        if distance > 0:
            end[1024 - distance :] = shared[:distance]
        _array_from(image)[:1024] = end
        _array_from(answer).view("<u4")[:2] = counted, 0x400

    @staticmethod
    def record_store_at_end(tensor_map, copy, distance, answer):
        raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")


def _operands(tensor_map: TensorMap, copy, mode: str = "") -> tuple[list[int], dict]:
    p = tensor_map.decode()
    count = 5 if mode in ("tile::gather4", "tile::scatter4") else p.rank
    for memory in _arrays:
        if 0 <= p.global_address - memory.ctypes.data < len(memory):
            place = {"memory": memory, "base": memory.ctypes.data, "shared_offset": int(copy["shared_offset"])}
            return copy["coordinates"][:count].tolist(), place
    raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")


def _loaded(tensor_map: TensorMap, copy) -> tuple[int, np.ndarray]:
    mode = LOAD_MODES[copy["form"] // 8]
    coords, place = _operands(tensor_map, copy, mode)
    shared = np.full(SHARED_BYTES, UNWRITTEN, np.uint8)
    offsets = copy["offsets"][: {"im2col": len(coords) - 2}.get(mode, 2 * mode.startswith("im2col"))].tolist()
    counted = sim.load(tensor_map, coords, **place, shared=shared, offsets=offsets, mode=mode)
    assert counted < COUNT_LIMIT
    if DEFECT == "byte":
        shared[place["shared_offset"]] ^= 1
    return counted + 16 * (DEFECT == "count"), shared


def _written(operation, place, source) -> None:
    operation(_array_from(source)[:SHARED_BYTES].copy())
    if DEFECT == "write":
        place["memory"][1 << 16] ^= 1


class _Driver:
    class CUDADriverError(RuntimeError):
        pass

    @staticmethod
    def launchKernel(handle, *shape_and_stream):  # noqa: N802
        *_, pointers, _extra = shape_and_stream
        _Function.loaded[handle].launch(pointers)


cuda = SimpleNamespace(
    driver=_Driver,
    get_current_stream=lambda *_: SimpleNamespace(ptr=0),
    Device=lambda device: SimpleNamespace(compute_capability=CAPABILITY),
    runtime=SimpleNamespace(
        getDeviceCount=lambda: 1,
        getDevice=lambda: 0,
        getDeviceProperties=lambda device: {"name": b"Simulator"},
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        deviceSynchronize=lambda: None,
    ),
)
