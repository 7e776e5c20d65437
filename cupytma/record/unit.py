"""A GPU's TMA unit behind a process of its own: what kills a kernel kills that process's context and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import LaunchError

if TYPE_CHECKING:
    from cupytma.runtime.compiler import Module

Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 1024
"""Bytes that every buffer is aligned to."""

_DRIVER_VERSION = Path("/proc/driver/nvidia/version")


class KernelDied(LaunchError):
    """A kernel that the driver reports a fault of, or that never came back."""


@dataclass(frozen=True)
class Buffer:
    """A place in one of the unit's buffers, as a kernel's argument: a name, and an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class _Request:
    kernel: str
    arguments: tuple[Any, ...]
    grid: Any
    block: Any
    shared_bytes: int
    writes: Mapping[str, Bytes]
    reads: tuple[str, ...]


@dataclass(frozen=True)
class _Answer:
    """What a request gave; the first answer, to none, says where the buffers are and what device it is."""

    read: dict[str, Bytes] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    error: str = ""


class Unit:
    """Runs kernels of one module, one at a time, in a child process that is replaced when a kernel dies.

    Parameters
    ----------
    module : Module
        The kernels.
    buffers : mapping of str to ndarray of uint8
        Device memory that the kernels use, by name, with what it holds before each of them.
    patience : float
        Seconds after which a kernel is taken to hang; the first one has to load CuPy, too.
    """

    def __init__(self, module: Module, buffers: Mapping[str, Bytes], patience: float = 30.0) -> None:
        self._module, self._buffers, self._patience = module, dict(buffers), patience
        self._process: Any = None
        self._connection: Any = None
        self._hello = _Answer()
        self._folder: Any = None

    def __enter__(self) -> Unit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def addresses(self) -> dict[str, int]:
        """The buffers' device addresses; new ones after a kernel died."""
        self._start()
        return self._hello.addresses

    @property
    def about(self) -> dict[str, str]:
        """The device, its driver and the CUDA versions in use."""
        self._start()
        return self._hello.about

    def run(
        self,
        kernel: str,
        arguments: Sequence[Any],
        *,
        grid: int | Sequence[int] = 1,
        block: int | Sequence[int] = 128,
        shared_bytes: int = 0,
        writes: Mapping[str, Bytes] | None = None,
        reads: Sequence[str] = (),
    ) -> dict[str, Bytes]:
        """Launch a kernel, wait for it, and bring back what buffers hold then.

        Parameters
        ----------
        kernel : str
        arguments : sequence
            As for `Kernel`; a `Buffer` for a pointer.
        grid, block, shared_bytes
            As for `Kernel`.
        writes : mapping of str to ndarray of uint8, optional
            What buffers hold from their start on, other than at the beginning.
        reads : sequence of str
            The buffers to bring back.

        Raises
        ------
        KernelDied
            With what the driver said.
        """
        self._start()
        self._connection.send(
            _Request(kernel, tuple(arguments), grid, block, shared_bytes, dict(writes or {}), tuple(reads))
        )
        return self._receive().read

    def close(self) -> None:
        """End the child process."""
        if self._process is not None:
            self._connection.close()
            self._process.join(1)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._folder.cleanup()
        self._process = None

    def _start(self) -> None:
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")  # a CUDA context does not survive a fork
        self._folder = tempfile.TemporaryDirectory(prefix="cupytma-record-")
        self._connection, theirs = context.Pipe()
        arguments = theirs, self._module, self._buffers, self._folder.name
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._hello = self._receive()

    def _receive(self) -> _Answer:
        try:
            answer = _Answer(error=f"no answer in {self._patience:.0f} s: the kernel hangs")
            if self._connection.poll(self._patience):
                answer = self._connection.recv()
        except (EOFError, OSError):
            answer = _Answer(error="the process that ran it ended without a word")
        if answer.error:
            self._process.kill()
            self.close()
            raise KernelDied(answer.error)
        return answer


class _Pointer:
    """A device address, as `cupytma.runtime` takes it."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


def _serve(connection: Connection, module: Module, contents: Mapping[str, Bytes], folder: str) -> None:
    """The child: launches what it is asked to until a kernel dies or nobody asks."""
    tempfile.tempdir = folder  # it ends without cleaning up
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        try:
            device = _Device(module, contents)
            connection.send(_Answer(addresses=device.addresses, about=_about()))
            while True:
                connection.send(_Answer(read=device.launch(connection.recv())))
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:  # CuPy's errors derive from no common public type
            connection.send(_Answer(error=str(error) or type(error).__name__))
    connection.close()
    os._exit(0)  # what CuPy would free at the end belongs to a context that may be broken


class _Device:
    """The child's buffers and kernels."""

    def __init__(self, module: Module, contents: Mapping[str, Bytes]) -> None:
        from cupytma.runtime.device import cupy

        self._module, self._as_device_array = module, cupy().asarray
        self._contents = {name: cupy().asarray(values) for name, values in contents.items()}
        self._buffers = {name: _aligned(len(values)) for name, values in contents.items()}
        self.addresses: dict[str, int] = {name: buffer.data.ptr for name, buffer in self._buffers.items()}

    def launch(self, request: _Request) -> dict[str, Bytes]:
        from cupytma.runtime.device import cupy

        for name, buffer in self._buffers.items():
            buffer[:] = self._contents[name]
        for name, values in request.writes.items():
            self._buffers[name][: len(values)] = self._as_device_array(values)
        arguments = [
            _Pointer(self.addresses[a.name] + a.offset) if isinstance(a, Buffer) else a for a in request.arguments
        ]
        kernel = self._module.kernel(request.kernel)
        kernel(request.grid, request.block, arguments, shared_bytes=request.shared_bytes)
        cupy().cuda.runtime.deviceSynchronize()
        return {name: self._buffers[name].get() for name in request.reads}


def _aligned(size: int) -> Any:
    from cupytma.runtime.device import cupy

    room = cupy().zeros(size + ALIGNMENT, cupy().uint8)
    start = -room.data.ptr % ALIGNMENT
    return room[start : start + size]


def _about() -> dict[str, str]:
    from cupytma.runtime.device import compute_capability, cupy

    runtime = cupy().cuda.runtime
    name = runtime.getDeviceProperties(runtime.getDevice())["name"]
    about = {
        "device": name.decode() if isinstance(name, bytes) else str(name),
        "compute capability": ".".join(map(str, compute_capability())),
        "driver CUDA": _version(runtime.driverGetVersion()),
        "runtime CUDA": _version(runtime.runtimeGetVersion()),
        "CuPy": str(cupy().__version__),
    }
    with suppress(OSError):
        found = re.search(r"\d+\.\d+(\.\d+)*", _DRIVER_VERSION.read_text())
        if found:
            about["driver"] = found[0]
    return about


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
