"""Captures of streams into CUDA graphs: which one is under way, and memory that lives as long as what comes of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from cupytma.errors import LaunchError
from cupytma.runtime.device import cupy
from cupytma.runtime.streams import as_cupy, is_capturing
from cupytma.runtime.submission import driver_api

_SEMAPHORE_BYTES = 64  # more than any C library's sem_t has
# Semaphores that a graph's end posts, and what is kept until then.
_kept: list[tuple[int, Any]] = []
_lock = Lock()


def capture_of(handle: int) -> int | None:
    """What tells the capture that a stream is in from all others of the process; None outside of one.

    Raises
    ------
    LaunchError
        If the driver does not say, or cuda-python is missing.
    """
    return int(_capture(handle)[0]) if is_capturing(handle) else None


def allocate(size: int, handle: int) -> Any:
    """Device memory for work on a stream, in bytes.

    While the stream is captured, it lives as long as the graph at least, and comes from a pool for graphs alone: memory
    of CUDA's own pools would be a part of the graph, which allocates and frees it.

    Returns
    -------
    cupy.cuda.MemoryPointer
    """
    with as_cupy(handle):
        if not is_capturing(handle):
            return cupy().cuda.alloc(size)
        with allocating():
            memory = _graph_pool(cupy()).malloc(size)
        keep_for_graph(handle, memory)
        return memory


@contextmanager
def allocating() -> Iterator[None]:
    """Let this thread allocate while a stream is captured in a mode that forbids it, as torch's graphs are."""
    driver = driver_api()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def keep_for_graph(handle: int, kept: Any) -> None:
    """Keep something for as long as the graph that a stream is captured into, and all that is made of it, exist.

    The graph owns a user object whose end posts a semaphore (CUDA Programming Guide, "CUDA User Objects"): graphs made
    of it own it too, and one that is destroyed while it runs lets go when it has ended. No Python runs in CUDA's
    thread; what is no longer needed is dropped here at the next capture. What the driver refuses, and all where the C
    library has no semaphores, is kept for good.
    """
    driver, graph, library = driver_api(), _capture(handle)[1], _c_library()
    _drop()
    ended = 0
    if library is not None and (ended := library.malloc(_SEMAPHORE_BYTES) or 0):
        library.sem_init(ended, 0, 0)
    with _lock:
        _kept.append((ended, kept))
    if not ended:
        return
    post = driver.CUhostFn(ctypes.cast(library.sem_post, ctypes.c_void_p).value)
    unwaited = driver.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
    status, owned = driver.cuUserObjectCreate(ended, post, 1, unwaited.value)
    if not status:
        move = driver.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
        driver.cuGraphRetainUserObject(graph, owned, 1, move.value)


def _capture(handle: int) -> tuple[Any, Any]:
    """The number of the capture that a stream is in, and the graph that it makes."""
    driver = driver_api()
    status, _, number, graph, *_ = driver.cuStreamGetCaptureInfo(driver.CUstream(handle))
    if status:
        raise LaunchError(f"the driver does not tell the capture of stream {handle:#x}: {status.name}")
    return number, graph


def _drop() -> None:
    """Let go of what no graph needs any more."""
    library = _c_library()
    with _lock:
        ended = [entry for entry in _kept if entry[0] and library.sem_trywait(entry[0]) == 0]
        for entry in ended:
            _kept.remove(entry)
            library.free(entry[0])
    # What was kept goes with `ended`, outside of the lock.


@cache
def _graph_pool(module: Any) -> Any:
    return module.cuda.MemoryPool()


@cache
def _c_library() -> Any:
    """The process's C library, with its memory and semaphores; None where it has no POSIX semaphores."""
    try:
        library = ctypes.CDLL(None)
        library.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
        for function in (library.sem_post, library.sem_trywait, library.free):
            function.argtypes = [ctypes.c_void_p]
    except (AttributeError, OSError, TypeError):
        return None
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    return library
