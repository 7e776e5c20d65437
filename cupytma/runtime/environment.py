"""What this machine has for compiling and launching, looked up without starting any of it that is not needed."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from cupytma.runtime import cache, headers, nvrtc
from cupytma.words import counted

_OLDEST_DRIVER = 12
# CUDA driver API, cuDeviceGetAttribute: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_RELEASE = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")
_CUPY = ("cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy")
_BINDINGS = "cuda-bindings"
# One header of each of the toolkit's packages, and what else is in it.
_HEADERS = {"cuda_fp16.h": "cuda_fp16.h, cuda_bf16.h, …", "cuda/std/cstdint": "cuda/ptx, cuda/barrier, cuda/std"}


@dataclass(frozen=True)
class Device:
    """One GPU: its name, compute capability, and memory in bytes."""

    name: str
    compute_capability: tuple[int, int]
    memory: int

    @property
    def has_unit(self) -> bool:
        """Whether it has a Tensor Memory Accelerator."""
        return self.compute_capability >= (9, 0)


@dataclass(frozen=True)
class Ability:
    """Something the package does: whether it works here, and what to do if it does not."""

    name: str
    works: bool
    detail: str
    fix: str = ""


@dataclass
class Environment:
    """Everything that `look` found.

    Attributes
    ----------
    driver_cuda : tuple of int or None
        The CUDA version that the driver supports; None without a driver.
    driver_release : str
        The driver's own version, such as ``580.95``, where it says so.
    devices : tuple of Device
    packages : dict of str to str
        Versions of the installed packages that matter.
    nvrtc_version : tuple of int or None
    nvrtc_path, nvrtc_problem : str
    targets : tuple of str
        What NVRTC can compile for.
    header_folders : tuple of str
        The toolkit's headers for the NVRTC at hand.
    cache : CacheInfo
    abilities : list of Ability
    """

    driver_cuda: tuple[int, int] | None = None
    driver_release: str = ""
    driver_problem: str = ""
    devices: tuple[Device, ...] = ()
    packages: dict[str, str] = field(default_factory=dict)
    nvrtc_version: tuple[int, int] | None = None
    nvrtc_path: str = ""
    nvrtc_problem: str = ""
    targets: tuple[str, ...] = ()
    header_folders: tuple[str, ...] = ()
    cache: cache.CacheInfo = field(default_factory=lambda: cache.CacheInfo("", 0, 0, 0))
    abilities: list[Ability] = field(default_factory=list)

    @property
    def cuda(self) -> int | None:
        """The major version of CUDA to install packages for: the driver's, or that of what is installed."""
        if self.driver_cuda is not None and self.driver_cuda[0] >= _OLDEST_DRIVER:
            return min(self.driver_cuda[0], 13)
        if self.nvrtc_version is not None:
            return self.nvrtc_version[0]
        bindings = self.packages.get(_BINDINGS, "").partition(".")[0]
        return int(bindings) if bindings in ("12", "13") else None

    @property
    def install(self) -> str:
        """The command that installs everything for the major version of CUDA."""
        return f"pip install 'cupytma[cuda{self.cuda or 12}]'"


def look() -> Environment:
    """Look around. Nothing that is missing or broken raises."""
    found = Environment()
    for part in (_look_for_driver, _look_for_packages, _look_for_nvrtc, _look_for_headers, _look_for_cache):
        part(found)
    for name, check in _ABILITIES.items():
        try:
            works, detail, fix = check(found)
        except Exception as error:  # whatever is broken here is what the user wants to know
            works, detail, fix = False, f"{type(error).__name__}: {error}", found.install
        found.abilities.append(Ability(name, works, detail, "" if works else fix))
    return found


def _look_for_driver(found: Environment) -> None:
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        found.driver_problem = "no driver here"
        return
    try:
        version = ctypes.c_int()
        if driver.cuDriverGetVersion(ctypes.byref(version)) == 0:
            found.driver_cuda = version.value // 1000, version.value % 1000 // 10
        found.driver_release = _release()
        answer = driver.cuInit(0)
        if answer:
            found.driver_problem = f"the driver answers {answer} to cuInit" if answer != 100 else "no GPU"
            return
        count = ctypes.c_int()
        driver.cuDeviceGetCount(ctypes.byref(count))
        found.devices = tuple(_device(driver, number) for number in range(count.value))
    except AttributeError as error:  # a library of that name that is not NVIDIA's
        found.driver_problem = f"libcuda.so.1 is no CUDA driver ({error})"


def _device(driver: Any, number: int) -> Device:
    handle, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(handle), number)
    driver.cuDeviceGetName(name, len(name), handle)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, handle)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, handle)
    return Device(name.value.decode(errors="replace"), (major.value, minor.value), memory.value)


def _release() -> str:
    try:
        with open("/proc/driver/nvidia/version", errors="replace") as file:
            line = file.readline()
    except OSError:
        return ""
    release = _RELEASE.search(line)
    return release[1] if release else ""


def _look_for_packages(found: Environment) -> None:
    wanted = (
        *_CUPY, _BINDINGS, "cuda-python", "cuda-pathfinder", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc",
        "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime", "nvidia-cuda-cccl-cu12", "nvidia-cuda-cccl", "numpy",
        "torch",
    )
    for name in wanted:
        try:
            found.packages[name] = metadata.version(name)
        except Exception:  # missing, or metadata that cannot be read
            continue


def _look_for_nvrtc(found: Environment) -> None:
    try:
        library = nvrtc.Nvrtc.load()
        found.nvrtc_version = library.version
        found.nvrtc_path = library.path
        found.targets = tuple(map(str, library.targets))
    except Exception as error:  # a broken installation raises anything
        found.nvrtc_problem = str(error).partition(";")[0]


def _look_for_headers(found: Environment) -> None:
    if found.cuda is not None:
        major = found.nvrtc_version[0] if found.nvrtc_version else found.cuda
        folders = (folder for name in _HEADERS for folder in headers.needed_folders((name,), major))
        found.header_folders = tuple(dict.fromkeys(folders))


def _look_for_cache(found: Environment) -> None:
    found.cache = cache.info()


# What works.

_Answer = tuple[bool, str, str]


def _descriptors(_: Environment) -> _Answer:
    from cupytma.tensormap import DataType, Tiled

    encoded = Tiled(data_type=DataType.UINT8, global_address=0x10000, global_dim=(64,), box_dim=(64,)).encode()
    return len(bytes(encoded)) == 128, "encode, decode, replace", "pip install --force-reinstall cupytma"


def _simulator(found: Environment) -> _Answer:
    import numpy as np

    from cupytma import sim
    from cupytma.tensormap import DataType, Tiled

    tensor_map = Tiled(data_type=DataType.UINT8, global_address=0x10000, global_dim=(64,), box_dim=(64,)).encode()
    memory, shared = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    sim.load(tensor_map, (0,), memory=memory, base=0x10000, shared=shared)
    return bool((memory == shared).all()), f"numpy {found.packages.get('numpy', '')}", "pip install --upgrade numpy"


def _compiling(found: Environment) -> _Answer:
    if found.nvrtc_version is None:
        return False, found.nvrtc_problem, found.install
    from cupytma.runtime.compilation import Request
    from cupytma.targets import target

    request = Request('extern "C" __global__ void kernel() {}', target(found.targets[0]))
    compiled = nvrtc.Nvrtc.load().compile(request)
    spoken = ".".join(map(str, found.nvrtc_version))
    what = f"NVRTC {spoken} for {counted(len(found.targets), 'target')}"
    return compiled.cubin.startswith(b"\x7fELF"), what, found.install


def _launching(found: Environment) -> _Answer:
    if found.driver_cuda is None or not found.devices:
        lack = found.driver_problem or "no GPU"
        return False, lack, "nothing to install: this needs a GPU of compute capability 9.0 or newer"
    if found.driver_cuda[0] < _OLDEST_DRIVER:
        return False, f"the driver is for CUDA {found.driver_cuda[0]}", "install an NVIDIA driver of 525 or newer"
    if not any(device.has_unit for device in found.devices):
        return False, "no GPU here has a Tensor Memory Accelerator", "this needs compute capability 9.0 or newer"
    installed = [name for name in _CUPY if name in found.packages]
    if not installed:
        return False, "CuPy is not installed", found.install
    if len(installed) > 1:
        others = " ".join(name for name in installed if name != f"cupy-cuda{found.cuda}x")
        return False, f"several CuPy packages clash: {', '.join(installed)}", f"pip uninstall {others}"
    if found.nvrtc_version is not None and found.nvrtc_version[0] > found.driver_cuda[0]:
        detail = f"NVRTC {found.nvrtc_version[0]} makes code that a driver for CUDA {found.driver_cuda[0]} cannot load"
        return False, detail, found.install
    import cupy

    return bool(cupy.cuda.runtime.getDeviceCount()), f"CuPy {cupy.__version__}", found.install


_ABILITIES: dict[str, Callable[[Environment], _Answer]] = {
    "descriptors": _descriptors,
    "simulator": _simulator,
    "compile": _compiling,
    "launch": _launching,
}
#: What needs no GPU.
WITHOUT_GPU = ("descriptors", "simulator", "compile")


def missing_headers(found: Environment) -> list[tuple[str, str]]:
    """What of the toolkit's headers is not there, with the command that installs it."""
    major = found.nvrtc_version[0] if found.nvrtc_version else found.cuda
    if major is None:
        return []
    absent = [name for name in _HEADERS if not headers.needed_folders((name,), major)]
    return [(_HEADERS[name], f"pip install {headers.requirement_of(name, major)}") for name in absent]


def problems(found: Environment) -> list[str]:
    """What is there and does not fit together."""
    seen: list[str] = []
    bindings, version = found.packages.get(_BINDINGS, "").partition(".")[0], found.nvrtc_version
    cupy = next((name for name in _CUPY if name in found.packages), "")
    if bindings and (major := re.search(r"cuda(\d+)x", cupy)) and major[1] != bindings:
        seen.append(f"{cupy} and cuda-bindings {found.packages[_BINDINGS]} are for different versions of CUDA")
    if version is not None and found.driver_cuda is not None and version[0] > found.driver_cuda[0]:
        seen.append(f"NVRTC is of CUDA {version[0]}, the driver for CUDA {found.driver_cuda[0]}: {found.install}")
    return seen
