"""From CUDA C++ to a running kernel: compilation with NVRTC, loading and launching through CuPy."""

from cupytma.runtime.arguments import ParameterBlock
from cupytma.runtime.compiler import Module, compile, current_target, nvrtc_version
from cupytma.runtime.device import has_tma_device
from cupytma.runtime.graphs import CapturedLaunch
from cupytma.runtime.kernel import Kernel
from cupytma.runtime.launch_shape import LaunchBounds, LaunchShape
from cupytma.runtime.occupancy import grid_of, multiprocessors
from cupytma.runtime.plan import Plan
from cupytma.runtime.signature import KernelParameter, KernelSignature

__all__ = [
    "CapturedLaunch", "Kernel", "KernelParameter", "KernelSignature", "LaunchBounds", "LaunchShape", "Module",
    "ParameterBlock", "Plan", "compile", "current_target", "grid_of", "has_tma_device", "multiprocessors",
    "nvrtc_version",
]
