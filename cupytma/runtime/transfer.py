"""Bytes from the host to the device, ordered on a stream, with the host's copy kept until it has been read."""

from __future__ import annotations

import operator
from collections import deque
from threading import Lock
from typing import Any

import numpy as np

from cupytma.errors import LaunchError
from cupytma.runtime.device import cupy

_HOST_TO_DEVICE = 1
_DEFAULT_STREAMS = (0, 1)


def stream_handle(stream: Any) -> int:
    """The handle of a stream; of CuPy's current one for None.

    Raises
    ------
    LaunchError
        If it is no stream.
    """
    if stream is None:
        stream = cupy().cuda.get_current_stream()
    for name in ("ptr", "cuda_stream"):  # CuPy's and torch's
        found = getattr(stream, name, None)
        if isinstance(found, int):
            return found
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    try:
        if not isinstance(stream, bool):
            return operator.index(stream)
    except TypeError:
        pass
    raise LaunchError(
        f"stream = {stream!r}: a stream of CuPy or torch, anything with __cuda_stream__, or a handle is needed"
    )


class Staging:
    """Pinned host memory of the uploads that are under way."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Any, Any]] = deque()
        self._captured: list[Any] = []
        self._lock = Lock()

    def upload(self, address: int, data: bytes, stream: Any = None) -> None:
        """Copy bytes to device memory of the current device. Returns at once; nothing tears.

        The copy is ordered on the stream: launches before it see the old bytes, launches after it the new ones. A CUDA
        graph that captures it copies the same bytes at every replay, and they are kept as long as this object.
        """
        module, handle = cupy(), stream_handle(stream)
        memory = module.cuda.alloc_pinned_memory(len(data))
        np.frombuffer(memory, np.uint8, len(data))[:] = np.frombuffer(data, np.uint8)
        runtime = module.cuda.runtime
        with self._lock:
            while self._pending and self._pending[0][0].done:
                self._pending.popleft()
            runtime.memcpyAsync(address, memory.ptr, len(data), _HOST_TO_DEVICE, handle)
            if handle not in _DEFAULT_STREAMS and runtime.streamIsCapturing(handle):
                self._captured.append(memory)
                return
            event = module.cuda.Event(disable_timing=True)
            runtime.eventRecord(event.ptr, handle)
            self._pending.append((event, memory))
