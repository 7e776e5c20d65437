"""A stand-in for CuPy's memory and streams: device memory is the host's, and copies wait until a stream is run."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np


class Pointer(np.ndarray):
    """Memory with an address, as CuPy's pointers have."""

    @property
    def ptr(self) -> int:
        return self.ctypes.data


def _memory(size: int) -> Pointer:
    return np.full(size, 0xAB, np.uint8).view(Pointer)


class FakeCuda:
    """CuPy's module, as far as transfers use it. ``run`` makes the copies that wait."""

    def __init__(self, *, shift: int = 0) -> None:
        self.shift = shift
        self.waiting: list[tuple[int, int, int]] = []
        self.events: list[SimpleNamespace] = []
        self.capturing: set[int] = set()
        self.streams: list[int] = []
        self.answer: Exception | None = None
        self.variables: dict[str, Pointer] = {}
        self.paths: list[str] = []
        runtime = SimpleNamespace(
            memcpyAsync=self._copy, streamIsCapturing=lambda handle: handle in self.capturing, eventRecord=self._record,
            getDevice=lambda: 0, getDeviceCount=lambda: 1, deviceSynchronize=self._synchronize,
            streamSynchronize=lambda handle: self._synchronize(), streamQuery=lambda handle: 0,
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=runtime, alloc=self._alloc, alloc_pinned_memory=_memory, Event=self._event,
            get_current_stream=lambda *_: SimpleNamespace(ptr=0), Device=self._device,
        )  # fmt: skip

    def RawModule(self, path: str) -> Any:  # noqa: N802  # CuPy's name
        self.paths.append(path)
        return SimpleNamespace(get_global=lambda name: self.variables[name])

    def run(self) -> None:
        """Make every copy that was asked for."""
        for to, source, size in self.waiting:
            ctypes.memmove(to, source, size)
        self.waiting.clear()
        for event in self.events:
            event.done = True

    def _synchronize(self) -> None:
        if self.answer is not None:
            raise self.answer
        self.run()

    def _alloc(self, size: int) -> Any:
        """A pool's block: 512-byte aligned, but for `shift`."""
        raw = _memory(size + 1024)
        start = -raw.ptr % 512 + self.shift
        return raw[start : start + size]

    def _copy(self, to: int, source: int, size: int, kind: int, handle: int) -> None:
        self.waiting.append((to, source, size))
        self.streams.append(handle)

    def _event(self, **options: Any) -> Any:
        self.events.append(SimpleNamespace(ptr=len(self.events), done=False))
        return self.events[-1]

    def _record(self, event: int, handle: int) -> None:
        assert not self.events[event].done

    def _device(self, number: int = 0) -> Any:
        class Device:
            id = number

            def __enter__(self) -> None: ...

            def __exit__(self, *details: object) -> None: ...

        return Device()
