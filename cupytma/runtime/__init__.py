"""From CUDA C++ to a running kernel: compilation with NVRTC, loading and launching through CuPy."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from cupytma.runtime.arguments import ParameterBlock
    from cupytma.runtime.compiler import Module, compile, current_target, nvrtc_version
    from cupytma.runtime.constants import set_constant
    from cupytma.runtime.coordinates import declare_coordinates
    from cupytma.runtime.descriptors import DescriptorBuffer
    from cupytma.runtime.device import has_tma_device
    from cupytma.runtime.device_encoding import encode_on_device, rebind_on_device
    from cupytma.runtime.faults import FaultReport, explain_fault, explained_faults, synchronize
    from cupytma.runtime.graphs import CapturedLaunch
    from cupytma.runtime.history import LaunchRecord
    from cupytma.runtime.kernel import Kernel
    from cupytma.runtime.launch_shape import LaunchBounds, LaunchShape
    from cupytma.runtime.occupancy import grid_of, multiprocessors
    from cupytma.runtime.plan import Plan
    from cupytma.runtime.signature import KernelParameter, KernelSignature

# Loaded when first used: compiling alone needs neither numpy nor what launches.
_LAZY = {
    "CapturedLaunch": "cupytma.runtime.graphs",
    "DescriptorBuffer": "cupytma.runtime.descriptors",
    "FaultReport": "cupytma.runtime.faults",
    "Kernel": "cupytma.runtime.kernel",
    "KernelParameter": "cupytma.runtime.signature",
    "KernelSignature": "cupytma.runtime.signature",
    "LaunchBounds": "cupytma.runtime.launch_shape",
    "LaunchRecord": "cupytma.runtime.history",
    "LaunchShape": "cupytma.runtime.launch_shape",
    "Module": "cupytma.runtime.compiler",
    "ParameterBlock": "cupytma.runtime.arguments",
    "Plan": "cupytma.runtime.plan",
    "compile": "cupytma.runtime.compiler",
    "current_target": "cupytma.runtime.compiler",
    "declare_coordinates": "cupytma.runtime.coordinates",
    "encode_on_device": "cupytma.runtime.device_encoding",
    "explain_fault": "cupytma.runtime.faults",
    "explained_faults": "cupytma.runtime.faults",
    "grid_of": "cupytma.runtime.occupancy",
    "has_tma_device": "cupytma.runtime.device",
    "multiprocessors": "cupytma.runtime.occupancy",
    "nvrtc_version": "cupytma.runtime.compiler",
    "rebind_on_device": "cupytma.runtime.device_encoding",
    "set_constant": "cupytma.runtime.constants",
    "synchronize": "cupytma.runtime.faults",
}
__all__ = [
    "CapturedLaunch", "DescriptorBuffer", "FaultReport", "Kernel", "KernelParameter", "KernelSignature", "LaunchBounds",
    "LaunchRecord", "LaunchShape", "Module", "ParameterBlock", "Plan", "compile", "current_target",
    "declare_coordinates", "encode_on_device", "explain_fault", "explained_faults", "grid_of", "has_tma_device",
    "multiprocessors", "nvrtc_version", "rebind_on_device", "set_constant", "synchronize",
]


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma.runtime' has no attribute {name!r}")
    value = getattr(_import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
