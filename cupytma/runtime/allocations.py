"""What the driver knows of an address."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

_INVALID_VALUE = 1
_HOST_MEMORY = 1


class UnknownMemory(Exception):
    """The driver cannot be asked, as after a fault, or without cuda-python."""


@dataclass(frozen=True)
class Allocation:
    """Memory that CUDA knows.

    Attributes
    ----------
    device : int
        The device it belongs to.
    start, size : int
        In bytes.
    on_host : bool
        Whether it is pinned host memory.
    """

    device: int
    start: int
    size: int
    on_host: bool = False

    @property
    def end(self) -> int:
        """Address of the first byte after it."""
        return self.start + self.size


def allocation_at(address: int) -> Allocation | None:
    """The allocation that an address lies in; None where CUDA knows none.

    Memory pools give parts of one allocation to many arrays, and keep it when an array is freed: that an address lies
    in an allocation does not say that its array is alive.

    Raises
    ------
    UnknownMemory
        If the driver cannot be asked.
    """
    driver = _driver()
    names = ("MEMORY_TYPE", "DEVICE_ORDINAL", "RANGE_START_ADDR", "RANGE_SIZE")
    found = []
    for name in names:
        attribute = getattr(driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        code, value = driver.cuPointerGetAttribute(attribute, address)
        if int(code) == _INVALID_VALUE:
            return None
        if int(code):
            raise UnknownMemory(f"the driver answered {int(code)}")
        found.append(int(value))
    kind, device, start, size = found
    return Allocation(device, start, size, kind == _HOST_MEMORY) if kind else None


def reach_problem(address: int, reach: int, device: int | None = None) -> str | None:
    """Why memory that a tensor map describes cannot be copied; None where nothing is known against it.

    Parameters
    ----------
    address : int
        Of its first byte.
    reach : int
        Bytes from there to the end of its last.
    device : int, optional
        The one that is to copy it.
    """
    try:
        first = allocation_at(address)
        if first is None:
            return f"{address:#x} is no memory that CUDA knows: it has been freed, or is the host's"
        # What virtual memory is mapped from lies in several allocations; then the last byte tells.
        if address + reach > first.end:
            last = allocation_at(address + reach - 1)
            if last is None or last.device != first.device:
                return (
                    f"the map reaches {reach} B from {address:#x} on, and the allocation there ends after "
                    f"{first.end - address} B"
                )
        if device is not None and first.device != device and not first.on_host and not _peers(device, first.device):
            return f"{address:#x} belongs to device {first.device}, which device {device} cannot reach"
    except UnknownMemory:
        return None
    return None


def _driver() -> Any:
    if "cupy" not in sys.modules and "torch" not in sys.modules:
        raise UnknownMemory("nothing has used CUDA")
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise UnknownMemory(str(error)) from None
    try:
        code, context = driver.cuCtxGetCurrent()
    except Exception as error:  # the bindings have raised several types for a missing library
        raise UnknownMemory(str(error)) from None
    if int(code) or not int(context):
        raise UnknownMemory("no context is current")
    return driver


def _peers(device: int, other: int) -> bool:
    driver = _driver()
    code, possible = driver.cuDeviceCanAccessPeer(device, other)
    return bool(int(code)) or bool(possible)
