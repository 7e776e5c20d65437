"""The stream that work on given arrays belongs to."""

from __future__ import annotations

import sys
from typing import Any

from cupytma.runtime.device import cupy


class _Handle:
    """A stream's handle, as the CUDA stream protocol has it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _borrowed(module: Any, handle: int) -> Any:
    """Another library's stream as CuPy's."""
    if hasattr(module.cuda.Stream, "from_external"):  # CuPy 14 and newer
        return module.cuda.Stream.from_external(_Handle(handle))
    return module.cuda.ExternalStream(handle)


def wait_for(producer: int | None, stream: Any) -> None:
    """Make a stream wait for the work that another has been given so far.

    Parameters
    ----------
    producer : int or None
        Handle of the other stream, as the CUDA array interface gives it (1 is the legacy default stream); None for no
        work to wait for.
    stream : cupy.cuda.Stream
    """
    if producer is None or _LEGACY_DEFAULT.get(producer, producer) == _LEGACY_DEFAULT.get(stream.ptr, stream.ptr):
        return
    module = cupy()
    other = _borrowed(module, _LEGACY_DEFAULT.get(producer, producer))
    stream.wait_event(other.record(module.cuda.Event(disable_timing=True)))


# The array interface writes the legacy default stream as 1, since 0 was taken for "none"; CUDA takes both.
_LEGACY_DEFAULT = {1: 0}


def current_stream(*arrays: Any) -> Any:
    """The stream to launch on: torch's current one if any array is a torch tensor, else CuPy's.

    Returns
    -------
    cupy.cuda.Stream
    """
    module = cupy()
    torch = sys.modules.get("torch")  # an array can be a torch tensor only if torch is loaded
    if torch is not None:
        for array in arrays:
            if isinstance(array, torch.Tensor):
                return _borrowed(module, torch.cuda.current_stream(array.device).cuda_stream)
    return module.cuda.get_current_stream()
