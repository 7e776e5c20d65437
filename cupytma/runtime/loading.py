"""A module on the GPU: loaded once for each device, so that its kernels share its variables."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cupytma.errors import LaunchError
from cupytma.runtime.device import compute_capability, cupy

if TYPE_CHECKING:
    from cupytma.runtime.compiler import Module

_lock = RLock()
_loaded: WeakKeyDictionary[Module, Any] = WeakKeyDictionary()
_folder: Path | None = None


def raw_module(module: Module) -> Any:
    """A module as CuPy's ``RawModule``, the same one for all its kernels and variables.

    It loads on each device when it is first used there.

    Raises
    ------
    LaunchError
        If the code is for another architecture than the current device's.
    NoDeviceError
        If there is no GPU.
    """
    check_architecture(module)
    with _lock:
        found = _loaded.get(module)
        if found is None:
            found = _loaded[module] = cupy().RawModule(path=str(_cubin_file(module)))
    return found


def check_architecture(module: Module) -> None:
    """Machine code runs on the architecture it was made for alone; say so instead of "no kernel image"."""
    needed, found = module.target.compute_capability, compute_capability()
    if needed != found:
        raise LaunchError(
            f"{module!r} was compiled for {module.target}; the current device has compute capability "
            f"{found[0]}.{found[1]}: compile it without a target, or for that device"
        )


def _cubin_file(module: Module) -> Path:
    """The machine code in a file, which CuPy loads modules from; files go when the process ends."""
    global _folder
    if _folder is None:
        _folder = Path(tempfile.mkdtemp(prefix="cupytma-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    handle, name = tempfile.mkstemp(suffix=".cubin", dir=_folder)
    with open(handle, "wb") as file:
        file.write(module.cubin)
    return Path(name)
