"""Bytes from the host to the device, ordered on a stream, with the host's copy kept until it has been read."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.runtime.captures import allocate, allocating
from cupytma.runtime.conversion import check_tensor_map
from cupytma.runtime.device import cupy
from cupytma.runtime.streams import handle_of, is_capturing

__all__ = ["Staging", "check_tensor_map", "stream_handle"]

_HOST_TO_DEVICE = 1
_SPARES = 8


def stream_handle(stream: Any) -> int:
    """The handle of a stream; of CuPy's current one for None.

    Raises
    ------
    LaunchError
        If it is no stream.
    """
    return handle_of(cupy().cuda.get_current_stream() if stream is None else stream)


class Staging:
    """Pinned host memory of the uploads that are under way, and some that is free again."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Any, int, Any]] = deque()
        self._spare: list[tuple[int, Any]] = []
        self._captured: list[Any] = []
        self._lock = Lock()

    def upload(self, address: int, data: bytes, stream: Any = None) -> None:
        """Copy bytes to device memory of the current device. Returns at once; nothing tears.

        The copy is ordered on the stream: launches before it see the old bytes, launches after it the new ones. A CUDA
        graph that captures it copies the same bytes at every replay, and they are kept as long as this object.
        """
        module, handle = cupy(), stream_handle(stream)
        runtime, capturing = module.cuda.runtime, is_capturing(handle)
        if not capturing:  # asking an event could end the capture
            self.reclaim()
        with self._lock:
            size, memory = self._room(len(data), capturing)
            np.frombuffer(memory, np.uint8, len(data))[:] = np.frombuffer(data, np.uint8)
            runtime.memcpyAsync(address, memory.ptr, len(data), _HOST_TO_DEVICE, handle)
            if capturing:
                self._captured.append(memory)
                return
            event = module.cuda.Event(disable_timing=True)
            runtime.eventRecord(event.ptr, handle)
            self._pending.append((event, size, memory))

    def array(self, values: npt.NDArray[Any], stream: Any) -> Any:
        """Values in new device memory, there before the stream's next launch; of a graph's replays, before each.

        The memory of a graph is kept as long as this object.
        """
        handle = stream_handle(stream)
        found = cupy().ndarray(values.shape, values.dtype, memptr=allocate(values.nbytes, handle))
        self.upload(int(found.data.ptr), values.tobytes(), stream)
        if is_capturing(handle):
            self._captured.append(found)
        return found

    def reclaim(self) -> None:
        """Take back the memory of uploads that are done."""
        with self._lock:
            while self._pending and self._pending[0][0].done:
                _, size, memory = self._pending.popleft()
                if len(self._spare) < _SPARES:
                    self._spare.append((size, memory))

    def _room(self, size: int, capturing: bool) -> tuple[int, Any]:
        for position, (room, _) in enumerate(self._spare):
            if room >= size:
                return self._spare.pop(position)
        with allocating() if capturing else nullcontext():
            return size, cupy().cuda.alloc_pinned_memory(size)
