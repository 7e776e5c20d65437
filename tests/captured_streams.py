"""A stand-in for what CUDA's driver knows of streams that are captured into graphs, and of what graphs own."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from cupytma.runtime import captures

_SUCCESS = 0


class CapturedStreams:
    """Streams of which some are captured, and the graphs that come of it.

    Attributes
    ----------
    mode : str
        The thread's capture mode.
    """

    CUstream = CUhostFn = staticmethod(int)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUuserObject_flags = SimpleNamespace(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC=SimpleNamespace(value=1))
    CUuserObjectRetain_flags = SimpleNamespace(CU_GRAPH_USER_OBJECT_MOVE=SimpleNamespace(value=1))

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cuda: Any) -> None:
        self.mode = "global"
        self._graphs: dict[int, int] = {}  # of the captures that are under way, by stream
        self._owned: dict[int, list[tuple[int, int]]] = {}  # what each graph calls at its end, and with what
        monkeypatch.setattr(cuda.runtime, "streamIsCapturing", self._graphs.__contains__)
        monkeypatch.setattr(captures, "driver_api", lambda: self)
        monkeypatch.setattr(captures, "_kept", [])
        monkeypatch.setattr(captures, "_graph_pool", lambda module: SimpleNamespace(malloc=self._malloc))
        self._alloc = cuda.alloc

    def begin(self, stream: int) -> None:
        assert stream not in self._graphs
        self._graphs[stream] = len(self._owned) + 1
        self._owned[self._graphs[stream]] = []

    def end(self, stream: int) -> int:
        return self._graphs.pop(stream)

    def destroy(self, graph: int) -> None:
        """Destroy a graph that does not run, and all that was made of it."""
        for function, argument in self._owned.pop(graph):
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(argument)
        self._owned[graph] = []

    def _malloc(self, size: int) -> Any:
        assert self.mode == "relaxed"
        return self._alloc(size)

    def cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:  # noqa: N802  # the driver's names
        return _SUCCESS, 1, self._graphs[stream] + 1000, self._graphs[stream], [], 0

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> tuple[int, str]:  # noqa: N802
        before, self.mode = self.mode, mode
        return _SUCCESS, before

    def cuUserObjectCreate(self, argument: int, function: int, references: int, flags: int) -> tuple[int, Any]:  # noqa: N802
        assert (references, flags) == (1, 1)
        return _SUCCESS, (function, argument)

    def cuGraphRetainUserObject(self, graph: int, owned: Any, references: int, flags: int) -> tuple[int]:  # noqa: N802
        assert (references, flags) == (1, 1)
        self._owned[graph].append(owned)
        return (_SUCCESS,)
