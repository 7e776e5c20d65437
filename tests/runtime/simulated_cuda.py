"""A stand-in for CuPy's driver calls, which notes the launches and the bytes of their arguments."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

from cupytma.runtime import kernel, submission
from cupytma.runtime import places as places_module
from cupytma.runtime import streams as streams_module

STATIC_SHARED = 100


class DriverError(RuntimeError):
    """As CuPy's: its ``status`` is a ``CUresult``."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


class Device:
    """Makes a device current inside ``with``, as CuPy's."""

    def __init__(self, cuda: SimulatedCuda, number: int) -> None:
        self.cuda, self.number = cuda, number

    def __enter__(self) -> None:
        self.before, self.cuda.device = self.cuda.device, self.number

    def __exit__(self, *_: object) -> None:
        self.cuda.device = self.before


class Stream:
    """A stream of CuPy; notes in `waits` which stream waits for which."""

    def __init__(self, cuda: SimulatedCuda, handle: int) -> None:
        self.cuda, self.ptr = cuda, handle

    def record(self, event: SimpleNamespace) -> SimpleNamespace:
        event.stream = self.ptr
        return event

    def wait_event(self, event: SimpleNamespace) -> None:
        self.cuda.waits.append((self.ptr, event.stream))


class SimulatedCuda:
    """Every kernel given to `load` can be launched on any device; `launches` says what was.

    Attributes
    ----------
    cupy : object
        What stands in for CuPy's module.
    """

    def __init__(self, monkeypatch: Any) -> None:
        self.device, self.stream, self.answer = 0, 0, 0
        self.launches: list[SimpleNamespace] = []
        self.waits: list[tuple[int, int]] = []
        self._kernels: list[Any] = []
        self._monkeypatch = monkeypatch
        driver = SimpleNamespace(launchKernel=self._launch, CUDADriverError=DriverError)
        borrowed = staticmethod(lambda stream: Stream(self, stream.__cuda_stream__()[1]))
        streams = type("Stream", (Stream,), {"from_external": borrowed})
        cuda = SimpleNamespace(
            driver=driver, Device=lambda number: Device(self, number), Stream=streams,
            Event=lambda **_: SimpleNamespace(), get_current_stream=lambda *_: Stream(self, self.stream),
        )  # fmt: skip
        self.cupy = cupy = SimpleNamespace(cuda=cuda)
        for module in (submission, kernel, streams_module):
            monkeypatch.setattr(module, "cupy", lambda: cupy)
        from cupytma.runtime import plan

        monkeypatch.setattr(plan, "cupy", lambda: cupy)
        monkeypatch.setattr(kernel, "_get_device", lambda: self.device)
        monkeypatch.setattr(streams_module, "get_current_stream", cuda.get_current_stream)
        monkeypatch.setitem(places_module.readers, Array, places_module._of_cupy)

    def load(self, loaded: kernel.Kernel) -> kernel.Kernel:
        handle = len(self._kernels)
        self._kernels.append(loaded)
        for device in range(4):
            function = submission.Function(
                SimpleNamespace(shared_size_bytes=STATIC_SHARED), handle, device, loaded.module.target.shared_bytes
            )
            self._monkeypatch.setitem(loaded._functions, device, function)  # kernels outlive a test
        return loaded

    def _launch(self, handle: int, *rest: int) -> None:
        if self.answer:
            raise DriverError(self.answer)
        *shape, stream, pointers, _ = rest
        parameters = self._kernels[handle].signature.parameters
        places = (ctypes.c_void_p * len(parameters)).from_address(pointers)
        arguments = [ctypes.string_at(place, p.size) for place, p in zip(places, parameters, strict=True)]
        self.launches.append(
            SimpleNamespace(
                kernel=self._kernels[handle].name, module=self._kernels[handle].module, shape=tuple(shape),
                stream=stream, arguments=arguments, device=self.device,
            )
        )


class Array:
    """A device array of float64, read as CuPy's are."""

    def __init__(self, address: int, device: int = 0, shape: tuple[int, ...] = (64, 64)) -> None:
        self.data = SimpleNamespace(ptr=address, device_id=device)
        self.device = SimpleNamespace(id=device)
        self.shape = shape

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {"version": 3, "typestr": "<f8", "data": (self.data.ptr, False), "shape": self.shape, "strides": None}
