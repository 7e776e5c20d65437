"""The GPU and CuPy, reached only when something needs them."""

from __future__ import annotations

from functools import cache
from typing import Any

from cupytma.errors import NoDeviceError
from cupytma.sticky import STICKY_ERRORS, code_of

_ALTERNATIVE = "without one, cupytma.sim does the same to numpy arrays (try `cupytma demo`)"


def cupy() -> Any:
    """The CuPy module, once it is known that there is a GPU it can use.

    Raises
    ------
    NoDeviceError
        If CuPy is not installed, or there is no usable GPU. The message names the simulator as the alternative.
    """
    try:
        import cupy as module
    except ImportError as error:
        raise NoDeviceError(
            f"this needs a GPU and CuPy, and CuPy is not usable here ({error}); install it with "
            f"`pip install 'cupytma[cuda12]'` or `pip install 'cupytma[cuda13]'`; {_ALTERNATIVE}"
        ) from error
    try:
        count = module.cuda.runtime.getDeviceCount()
    except Exception as error:  # a missing driver and a missing device are reported with different types
        if code_of(error) in STICKY_ERRORS:
            from cupytma.runtime.faults import launch_failure

            raise launch_failure(error, "CUDA cannot be used any more in this process") from error
        raise NoDeviceError(f"this needs a GPU, and CUDA finds none ({error}); {_ALTERNATIVE}") from error
    if count == 0:
        raise NoDeviceError(f"this needs a GPU, and CUDA finds none; {_ALTERNATIVE}")
    return module


def compute_capability(device: int | None = None) -> tuple[int, int]:
    """Major and minor compute capability of a device, by default the current one.

    Raises
    ------
    NoDeviceError
        If there is no usable GPU.
    """
    digits = str(cupy().cuda.Device(device).compute_capability)
    return int(digits[:-1]), int(digits[-1])


@cache
def device_name(device: int) -> str:
    """What the driver calls a device, such as ``"NVIDIA H100 80GB HBM3"``."""
    return str(cupy().cuda.runtime.getDeviceProperties(device)["name"].decode())


def has_tma_device() -> bool:
    """Whether the current device has a Tensor Memory Accelerator and CuPy can use it."""
    try:
        return compute_capability() >= (9, 0)
    except NoDeviceError:
        return False
