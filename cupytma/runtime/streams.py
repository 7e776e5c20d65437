"""Streams of CUDA's Python libraries, and the one that work on given arrays belongs to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cupytma.errors import CupytmaError, LaunchError
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown, whole
from cupytma.runtime.places import TorchDevice

_HANDLES = 1 << 64  # a handle is an address
_NEVER_CAPTURED = (0, 1)  # the legacy default stream


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


def cupy_stream(stream: Any) -> Any:
    """A stream of any library, or a handle, as CuPy's, for its memory pool to allocate on. Errors as `handle_of`."""
    module = cupy()
    return stream if isinstance(stream, module.cuda.Stream) else _borrowed(module, handle_of(stream))


def handle_of(stream: Any) -> int:
    """The handle of a stream, a ``CUstream``.

    Parameters
    ----------
    stream : stream or int
        CuPy's, torch's, Numba's, anything with ``__cuda_stream__``, or the handle itself (0 and 1 are the legacy
        default stream, 2 that of the thread).

    Raises
    ------
    LaunchError
        If it is none of these.
    """
    if stream.__class__ is int and 0 <= stream < _HANDLES:
        handle: int = stream
        return handle
    try:
        for name in ("ptr", "cuda_stream"):  # CuPy's and torch's
            found = getattr(stream, name, None)
            if isinstance(found, int):
                return found
        given = stream.__cuda_stream__()[1] if hasattr(stream, "__cuda_stream__") else stream
        found = getattr(given, "handle", given)  # Numba's is a ctypes pointer
        found = getattr(found, "value", found)
        if not isinstance(given, bool) and 0 <= (number := whole(found)) < _HANDLES:
            return number
    except CupytmaError:
        raise
    except Exception:  # no number, or a caller's class that raises
        pass
    raise LaunchError(
        f"stream = {shown(stream)}: a stream of CuPy or torch, anything with __cuda_stream__, or a handle is needed"
    )


def is_capturing(handle: int) -> bool:
    """Whether work on a stream goes to a CUDA graph, whose replays use the memory of the capture again."""
    return handle not in _NEVER_CAPTURED and bool(cupy().cuda.runtime.streamIsCapturing(handle))


def current_handle(place: int | None) -> int:
    """The handle of the stream to launch on: torch's current one for arrays of torch, else CuPy's.

    Parameters
    ----------
    place : int or None
        The device of the arrays; a `TorchDevice` where they are torch's.
    """
    if type(place) is TorchDevice:
        return _torch_handle(place)
    handle: int = get_current_stream().ptr
    return handle


def current_handle_of_cupy(device: int) -> int:
    """The handle of CuPy's current stream on a device, which need not be asked for then."""
    handle: int = get_current_stream(device).ptr
    return handle


def _first_current_stream(*device: int) -> Any:
    global get_current_stream
    get_current_stream = cupy().cuda.get_current_stream
    return get_current_stream(*device)


# CuPy's function, once CuPy is known to be usable.
get_current_stream: Callable[..., Any] = _first_current_stream


def _torch_handle(device: TorchDevice) -> int:
    torch = sys.modules["torch"]
    try:  # what Triton and torch's own compiler use, at a tenth of the cost
        handle: int = torch._C._cuda_getCurrentRawStream(device)
    except AttributeError:
        handle = torch.cuda.current_stream(int(device)).cuda_stream
    return handle


def torch_handles() -> Callable[[int], int]:
    """What gives the handle of torch's current stream on a device, for callers that keep it."""
    quick: Callable[[int], int] | None = getattr(sys.modules["torch"]._C, "_cuda_getCurrentRawStream", None)
    return quick or (lambda device: _torch_handle(TorchDevice(device)))


def wait_for(producer: int | None, stream: Any) -> None:
    """Make a stream wait for the work that another has been given so far.

    Parameters
    ----------
    producer : int or None
        Handle of the other stream, as the CUDA array interface gives it (1 is the legacy default stream); None for no
        work to wait for.
    stream : stream or int
        As for `handle_of`.

    Raises
    ------
    LaunchError
        If `stream` is none.
    """
    handle = handle_of(stream)
    handle = _LEGACY_DEFAULT.get(handle, handle)
    if producer is None or _LEGACY_DEFAULT.get(producer, producer) == handle:
        return
    module = cupy()
    waiting, other = _borrowed(module, handle), _borrowed(module, _LEGACY_DEFAULT.get(producer, producer))
    waiting.wait_event(other.record(module.cuda.Event(disable_timing=True)))


# The array interface writes the legacy default stream as 1, since 0 was taken for "none"; CUDA takes both.
_LEGACY_DEFAULT = {1: 0}


def as_cupy(stream: Any) -> Any:
    """A stream as CuPy's, which makes it the current one inside ``with``."""
    module = cupy()
    return stream if isinstance(stream, module.cuda.Stream) else _borrowed(module, handle_of(stream))


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
