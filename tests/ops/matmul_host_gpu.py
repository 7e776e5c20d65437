"""What tuning asks of CuPy, on host memory: products are made by numpy, and graphs of them move a clock."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cupytma.ops.matmul_configuration import Configuration


class _Memory(np.ndarray):
    """Bytes that say where they are as CuPy's arrays do, from an address that 512 divides."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data, mem=SimpleNamespace(ptr=self.ctypes.data))

    def copy(self, order: str = "C") -> _Memory:  # type: ignore[override]
        found = _empty(self.size, "u1")
        found[:] = self
        return found


def _empty(count: int, dtype: str) -> _Memory:
    assert dtype == "u1"
    whole = np.zeros(count + 512, np.uint8).view(_Memory)
    start = -whole.ctypes.data % 512
    return whole[start : start + count]


def _at(address: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> np.ndarray:
    """An array over memory that exists."""
    reach = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    memory = (ctypes.c_uint8 * (reach + np.dtype(dtype).itemsize)).from_address(address)
    return np.ndarray(shape, dtype, memory, 0, strides)


class HostGpu(contextlib.AbstractContextManager[Any]):
    """The module, its one stream, and the launches.

    Attributes
    ----------
    seconds : dict
        Of one product in each configuration; a hundredth where none are said.
    wrong : set of Configuration
        Whose products have a number too many.
    launched : list of tuple of int
        The addresses of each launch that was made, captured or not.
    """

    cache_bytes = 1 << 18

    def __init__(self) -> None:
        self.seconds: dict[Configuration, float] = {}
        self.wrong: set[Configuration] = set()
        self.launched: list[tuple[int, ...]] = []
        self.built: list[str] = []
        self.waits: list[int | None] = []
        self.clock, self.copies, self.ptr = 0.0, 0, 77
        self._captured: list[float] | None = None
        runtime = SimpleNamespace(memGetInfo=lambda: (1 << 30, 1 << 31), memcpyAsync=self._copy)
        device = SimpleNamespace(attributes={"L2CacheSize": self.cache_bytes})
        self.cuda = SimpleNamespace(
            runtime=runtime, Device=lambda *_: _Entered(device), Stream=lambda **_: self, Event=_Event,
            get_elapsed_time=lambda begin, end: 1e3 * (end.time - begin.time),
            MemoryPointer=lambda memory, offset: memory.ptr + offset,
            MemoryPool=lambda: SimpleNamespace(malloc=None), using_allocator=contextlib.nullcontext,
        )  # fmt: skip
        self.empty = _empty

    def ndarray(self, shape: tuple[int, ...], dtype: Any, address: int, strides: tuple[int, ...]) -> np.ndarray:
        return _at(address, shape, dtype, strides)

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        assert self._captured is None

    def begin_capture(self) -> None:
        self._captured = []

    def end_capture(self) -> Any:
        assert self._captured
        whole, self._captured = sum(self._captured), None

        def launch(stream: HostGpu) -> None:
            stream.clock += whole

        return SimpleNamespace(launch=launch)

    def _copy(self, to: int, source: int, count: int, kind: int, stream: int) -> None:
        assert (kind, stream) == (3, self.ptr)
        ctypes.memmove(to, source, count)
        self.copies += 1

    def prepared_for(self, options: tuple[Any, ...], views: tuple[Any, ...], device: int) -> Callable[..., None]:
        configuration, (a, b, out) = options[-1], views[:3]

        def launch(handle: int, addresses: tuple[int, ...]) -> None:
            assert handle == self.ptr
            self.launched.append(addresses)
            if self._captured is not None:
                self._captured.append(self.seconds.get(configuration, 1e-2))
                return
            left, right = (
                _at(address, view.shape, view.dtype, view.strides).astype(np.float32)
                for address, view in zip(addresses, (a, b), strict=False)
            )
            found = _at(addresses[2], out.shape, out.dtype, out.strides)
            found[...] = left @ right
            found[-1, -1] += 1000 * (configuration in self.wrong)

        return launch


class _Event:
    time = 0.0

    def record(self, stream: HostGpu) -> None:
        self.time = stream.clock

    def synchronize(self) -> None:
        pass


class _Entered(contextlib.AbstractContextManager[Any]):
    """A device, also inside ``with``."""

    def __init__(self, device: SimpleNamespace) -> None:
        self.attributes = device.attributes

    def __exit__(self, *_: object) -> None:
        pass
