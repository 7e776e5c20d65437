"""From CUDA C++ to a running kernel: compilation with NVRTC, loading and launching through CuPy."""

from cupytma.runtime.arguments import ParameterBlock
from cupytma.runtime.compiler import Module, compile, current_target, nvrtc_version
from cupytma.runtime.constants import set_constant
from cupytma.runtime.coordinates import declare_coordinates
from cupytma.runtime.descriptors import DescriptorBuffer
from cupytma.runtime.device import has_tma_device
from cupytma.runtime.faults import FaultReport, explain_fault, explained_faults, synchronize
from cupytma.runtime.graphs import CapturedLaunch
from cupytma.runtime.history import LaunchRecord
from cupytma.runtime.kernel import Kernel
from cupytma.runtime.launch_shape import LaunchBounds, LaunchShape
from cupytma.runtime.occupancy import grid_of, multiprocessors
from cupytma.runtime.plan import Plan
from cupytma.runtime.signature import KernelParameter, KernelSignature

__all__ = [
    "CapturedLaunch", "DescriptorBuffer", "FaultReport", "Kernel", "KernelParameter", "KernelSignature", "LaunchBounds",
    "LaunchRecord", "LaunchShape", "Module", "ParameterBlock", "Plan", "compile", "current_target",
    "declare_coordinates", "explain_fault", "explained_faults", "grid_of", "has_tma_device", "multiprocessors",
    "nvrtc_version", "set_constant", "synchronize",
]
