"""A compiled kernel on the GPU."""

from __future__ import annotations

import atexit
import operator
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupytma.errors import LaunchError
from cupytma.runtime.arguments import marshal
from cupytma.runtime.device import compute_capability, cupy
from cupytma.targets import MAX_GRID

if TYPE_CHECKING:
    from cupytma.runtime.compiler import Module
    from cupytma.runtime.signature import KernelSignature

# What a block may have without asking for more (CUDA programming guide, "Shared Memory", compute capability 9.0).
_DEFAULT_SHARED_BYTES = 48 * 1024
_MAX_THREADS = 1024
_MAX_BLOCK = (1024, 1024, 64)


class Kernel:
    """One kernel of a `Module`. Loaded through CuPy when first launched; made by `Module.kernel`."""

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name
        self._raw: Any = None
        self._shared_limit: dict[int, int] = {}
        self._checked: set[int] = set()

    @property
    def signature(self) -> KernelSignature:
        """The parameters the kernel declares."""
        return self.module.signatures[self.name]

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch the kernel; returns at once.

        Parameters
        ----------
        grid, block : int or sequence of int
            Blocks of the grid and threads of a block, x first, up to three.
        arguments : sequence
            One for each parameter: a `TensorMap` by value, device arrays and None as pointers, numbers by the type
            the kernel declares, ``numpy.void`` or bytes for other structs.
        shared_bytes : int
            Dynamic shared memory of a block, in bytes.
        stream : cupy.cuda.Stream, optional
            Default: CuPy's current stream.

        Raises
        ------
        LaunchError
            If an argument does not fit, the launch shape is impossible, or the code is for another architecture.
        NoDeviceError
            If there is no GPU.
        """
        self.prepare(grid, block, arguments, shared_bytes=shared_bytes)(stream)

    def prepare(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
    ) -> Launch:
        """A launch with everything checked and converted, to be made any number of times.

        The parameters are those of a call, and so are the errors. Device arrays are remembered by their addresses
        alone: keep them alive.
        """
        values = marshal(self.signature, arguments, self.module.target)
        grid, block = _extents("grid", grid, MAX_GRID), _extents("block", block, _MAX_BLOCK)
        if block[0] * block[1] * block[2] > _MAX_THREADS:
            raise LaunchError(f"block {block} has more than {_MAX_THREADS} threads")
        limit = self.module.target.shared_bytes
        if not 0 <= shared_bytes <= limit:
            raise LaunchError(f"shared_bytes = {shared_bytes} is outside 0…{limit}, the limit of {self.module.target}")
        return Launch(self, grid, block, tuple(values), shared_bytes)

    def _load(self) -> Any:
        self._check_device()
        if self._raw is None:
            module = cupy().RawModule(path=str(_cubin_file(self.module.cubin)))
            try:
                self._raw = module.get_function(self.name)
            except Exception as error:  # CuPy's driver errors derive from no common public type
                raise LaunchError(f"kernel {self.name} could not be loaded: {error}") from error
        return self._raw

    def _check_device(self) -> None:
        """Machine code runs on the architecture it was made for alone; say so instead of "no kernel image"."""
        device = cupy().cuda.runtime.getDevice()
        if device in self._checked:
            return
        needed, found = self.module.target.compute_capability, compute_capability()
        if needed != found:
            raise LaunchError(
                f"kernel {self.name} was compiled for {self.module.target}; the current device has compute capability "
                f"{found[0]}.{found[1]}: compile it without a target, or for that device"
            )
        self._checked.add(device)

    def launch(self, launch: Launch, stream: Any) -> None:
        """Make a prepared launch on the current device."""
        raw = self._load()
        if launch.shared_bytes > _DEFAULT_SHARED_BYTES:
            self._allow_shared(raw, launch.shared_bytes)
        try:
            raw(launch.grid, launch.block, launch.values, shared_mem=launch.shared_bytes, stream=stream)
        except cupy().cuda.driver.CUDADriverError as error:
            raise LaunchError(
                f"the driver refuses to launch {self.name} (grid {launch.grid}, block {launch.block}, "
                f"{launch.shared_bytes} B of dynamic shared memory): {error}"
            ) from error

    def _allow_shared(self, raw: Any, shared_bytes: int) -> None:
        device = cupy().cuda.runtime.getDevice()
        if shared_bytes > self._shared_limit.get(device, 0):
            raw.max_dynamic_shared_size_bytes = shared_bytes
            self._shared_limit[device] = shared_bytes

    def __repr__(self) -> str:
        parameters = ", ".join(map(str, self.signature.parameters))
        return f"<Kernel {self.name}({parameters}) for {self.module.target}>"


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, checked and converted; made by `Kernel.prepare`. Call it with a stream or None."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    values: tuple[Any, ...]
    shared_bytes: int

    def __call__(self, stream: Any = None) -> None:
        self.kernel.launch(self, stream)


def _extents(name: str, value: int | Sequence[int], limits: tuple[int, int, int]) -> tuple[int, int, int]:
    try:
        extents = tuple(map(operator.index, value if hasattr(value, "__iter__") else (value,)))
    except TypeError:
        extents = ()
    if not 1 <= len(extents) <= 3 or not all(1 <= n <= limit for n, limit in zip(extents, limits, strict=False)):
        raise LaunchError(f"{name} = {value!r}: one to three whole numbers are needed, from 1 to {limits}")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


_folder: Path | None = None


def _cubin_file(cubin: bytes) -> Path:
    """The machine code in a file, which CuPy loads modules from; files go when the process ends."""
    global _folder
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="cupytma-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    handle, name = tempfile.mkstemp(suffix=".cubin", dir=_folder)
    with open(handle, "wb") as file:
        file.write(cubin)
    return Path(name)
