"""A GPU for tests on machines without one: CuPy's module as far as it is used, with kernels that run on the host.

Device memory is the host's. A kernel's own source, with the header's namespace of tensor maps, is compiled by g++ with
`emulation.h` in the place of the instructions; work is done when it is asked for.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from cupytma.ops import group_errors, groups
from cupytma.ptx import device_maps
from cupytma.runtime import kernel as kernel_module
from cupytma.runtime import places, streams, submission
from cupytma.runtime.module import Module
from cupytma.runtime.transfer import Staging
from cupytma.targets import target

HERE = Path(__file__).parent
MULTIPROCESSORS = 3
_STATIC_SHARED = 1024

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation of kernels needs g++")


class Pointer:
    """Memory with an address."""

    def __init__(self, memory: np.ndarray, ptr: int | None = None) -> None:
        self.memory, self.ptr = memory, memory.ctypes.data if ptr is None else ptr
        self.device_id = 0

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.memory, self.ptr + offset)


class Array:
    """A device array over the host's memory."""

    def __init__(self, shape: Any, dtype: Any = np.float64, memptr: Pointer | None = None) -> None:
        self.host, self.memory = np.zeros(shape, dtype), memptr  # which lives as long as this
        if memptr is not None:
            size = self.host.nbytes
            raw = (ctypes.c_uint8 * size).from_address(memptr.ptr)
            self.host = np.frombuffer(raw, np.uint8).view(dtype).reshape(shape)

    @classmethod
    def of(cls, host: np.ndarray) -> Array:
        made = cls.__new__(cls)
        made.host = host
        return made

    def __getitem__(self, index: Any) -> Array:
        return Array.of(self.host[index])

    @property
    def T(self) -> Array:  # noqa: N802  # numpy's name
        return Array.of(self.host.T)

    def get(self) -> np.ndarray:
        return self.host.copy()

    data = property(lambda self: SimpleNamespace(ptr=self.host.ctypes.data, device_id=0))
    device = property(lambda self: SimpleNamespace(id=0))
    shape = property(lambda self: self.host.shape)
    strides = property(lambda self: self.host.strides)
    dtype = property(lambda self: self.host.dtype)
    nbytes = property(lambda self: self.host.nbytes)
    ndim = property(lambda self: self.host.ndim)
    size = property(lambda self: self.host.size)
    flags = property(lambda self: self.host.flags)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3, "typestr": self.host.dtype.str, "data": (self.host.ctypes.data, False),
            "shape": self.host.shape, "strides": self.host.strides,
        }  # fmt: skip


Array.__module__ = "cupy"


class Stream:
    """A stream whose work is always done."""

    def __init__(self, ptr: int = 0) -> None:
        self.ptr = ptr

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *details: object) -> None: ...

    def synchronize(self) -> None: ...

    def wait_event(self, event: object) -> None: ...


class DriverError(RuntimeError):
    """As CuPy's."""

    status = 700


class Loaded:
    """In the place of what kernels remember of the functions that a real GPU has loaded for them."""

    def __init__(self) -> None:
        self.functions: WeakKeyDictionary[Any, dict[int, Any]] = WeakKeyDictionary()

    def __get__(self, kernel: Any, owner: type) -> dict[int, Any]:
        return self.functions.setdefault(kernel, {})

    def __set__(self, kernel: Any, value: dict[int, Any]) -> None:
        kernel.__dict__["_functions"] = value  # which is there when the emulation has gone


class EmulatedCuda:
    """CuPy's module. A real GPU in the same process finds no kernel and no memory of it, nor it of the GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder, self.launches = folder, []
        self.kernels: list[Any] = []
        self.stream = Stream()
        runtime = SimpleNamespace(
            memcpyAsync=lambda to, source, size, kind, handle: ctypes.memmove(to, source, size),
            memsetAsync=lambda to, value, size, handle: ctypes.memset(to, value, size),
            streamIsCapturing=lambda handle: False, eventRecord=lambda event, handle: None, getDevice=lambda: 0,
            getDeviceCount=lambda: 1, deviceSynchronize=lambda: None, streamSynchronize=lambda handle: None,
            streamQuery=lambda handle: 0,
        )  # fmt: skip
        driver = SimpleNamespace(launchKernel=self._launch, CUDADriverError=DriverError)
        module = ModuleType("cupy")
        module.cuda = SimpleNamespace(
            runtime=runtime, driver=driver, alloc=_memory, alloc_pinned_memory=lambda size: _pinned(size),
            Event=lambda **options: SimpleNamespace(ptr=0, done=True), get_current_stream=lambda *_: self.stream,
            Device=self._device, Stream=Stream, ExternalStream=Stream,
        )  # fmt: skip
        module.ndarray, module.asarray = Array, lambda host: Array.of(np.array(host))
        module.empty = lambda shape, dtype=np.float64: Array.of(np.full(shape, 0xAB, np.uint8).astype(dtype))
        module.zeros = lambda shape, dtype=np.float64: Array(shape, dtype)
        monkeypatch.setitem(sys.modules, "cupy", module)
        monkeypatch.setattr(kernel_module, "_get_device", lambda: 0)
        monkeypatch.setattr(streams, "get_current_stream", lambda *_: self.stream)
        monkeypatch.setattr(places, "readers", dict(places.readers))
        monkeypatch.setattr(kernel_module.Kernel, "_load", lambda kernel, device: self._loaded(kernel))
        monkeypatch.setattr(kernel_module.Kernel, "_functions", Loaded(), raising=False)
        monkeypatch.setattr(group_errors._failures, "_records", {})
        monkeypatch.setattr(groups, "_staging", Staging())
        self.module = module

    def _device(self, number: int | None = None) -> Any:
        class Device:
            id = number or 0
            compute_capability = "90"
            attributes = {"MultiProcessorCount": MULTIPROCESSORS}  # noqa: RUF012

            def __enter__(self) -> None: ...

            def __exit__(self, *details: object) -> None: ...

        return Device()

    def _loaded(self, loaded: Any) -> submission.Function:
        self.kernels.append(loaded)
        raw = SimpleNamespace(shared_size_bytes=_STATIC_SHARED)
        return submission.Function(raw, len(self.kernels) - 1, 0, loaded.module.target.shared_bytes)

    def _launch(self, handle: int, *rest: int) -> None:
        *shape, _, pointers, _ = rest
        kernel = self.kernels[handle]
        self.launches.append(kernel.name)
        run = getattr(compiled(kernel.module, self.folder), f"run_{kernel.name}")
        run.restype = ctypes.c_char_p
        why = run((ctypes.c_uint * 7)(*shape), ctypes.c_void_p(pointers))
        if why:
            raise AssertionError(f"{kernel.name}: {why.decode()}")


def _memory(size: int) -> Pointer:
    return Pointer(np.full(size + 512, 0xAB, np.uint8), None)


class Pinned(np.ndarray):
    """Pinned memory, as CuPy's."""

    @property
    def ptr(self) -> int:
        return self.ctypes.data


def _pinned(size: int) -> Pinned:
    return np.full(size, 0xAB, np.uint8).view(Pinned)


_libraries: dict[str, ctypes.CDLL] = {}
_ALIGNED = re.compile(r"__shared__ (alignas\(\w+\))")
_EXTERNAL = re.compile(r"extern __shared__ unsigned char dynamic_shared\[\];")
# Tensor reductions, which are told what to make of two elements.
_REDUCES = re.compile(r"cupytma::TENSOR_REDUCE\((.*?)\)")
# Inline assembly, and what does the same here.
_ASSEMBLY = (
    (re.compile(r'asm\("mov\.u32 %0, %%laneid;" : "=r"\(lane\)\);'), "lane = emulation::lane();"),
    (
        re.compile(r'asm volatile\("st\.volatile\.global\.v2\.u64.*?"memory"\);', re.DOTALL),
        "failure[0] = place; failure[1] = what;",
    ),
    (re.compile(r'asm volatile\("ld\.acquire.*?"memory"\);', re.DOTALL), "seen = *flag;"),
    (re.compile(r'asm volatile\("st\.release.*?"memory"\);', re.DOTALL), "*flag = value;"),
    (re.compile(r'asm volatile\("bar\.sync (\d+), %0;" :: "n"\((\w+)\) : "memory"\);'), r"named_barrier(\1, \2);"),
    (
        re.compile(r'asm volatile\("ld\.shared\.v4.*?: "r"\(address\)\);', re.DOTALL),
        "std::memcpy(&c, dynamic_shared + address, 16);",
    ),
    (
        re.compile(r'asm volatile\("st\.shared\.v4.*?: "memory"\);', re.DOTALL),
        "std::memcpy(dynamic_shared + address, &c, 16);",
    ),
)


def compiled(module: Module, folder: Path) -> ctypes.CDLL:
    """A module's kernels for the host."""
    text = _translated(module)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    if name not in _libraries:
        source, library = folder / f"{name}.cpp", folder / f"{name}.so"
        source.write_text(text)
        command = ["g++", "-std=c++17", "-O1", "-fwrapv", "-shared", "-fPIC", "-w", f"-I{HERE}", "-o", library, source]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
        _libraries[name] = ctypes.CDLL(str(library))
    return _libraries[name]


def _translated(module: Module) -> str:
    request: Any = module._request
    headers = dict(request.headers)
    defines = [f"#define {name} {value or ''}" for name, value in request.defines]
    maps = f"namespace cupytma {{\n{device_maps.functions(target(module.target.name))[0]}\n}}"
    seen: set[str] = set()

    def included(text: str) -> str:
        def replacement(match: re.Match[str]) -> str:
            name = match[1]
            if name == "cupytma.cuh" or name in seen:
                return ""
            seen.add(name)
            return included(headers[name])

        return re.sub(r"#include <([\w.]+)>", replacement, text)

    body = f"{maps}\n{included(request.source)}".replace("#pragma once", "").replace("#pragma unroll 1", "")
    body = _ALIGNED.sub(r"\1 __shared__", _EXTERNAL.sub("", body))
    body = _REDUCES.sub(r"cupytma::tensor_reduce(\1, combined)", body)
    for pattern, replacement in _ASSEMBLY:
        body = pattern.sub(replacement, body)
    runs = [f"EMULATED({name})" for name in module.kernels]
    return "\n".join([*defines, '#include "emulation.h"', body, *runs])
