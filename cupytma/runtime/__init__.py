"""From CUDA C++ to a running kernel: compilation with NVRTC, loading and launching through CuPy."""

from cupytma.runtime.compiler import Module, compile, current_target, nvrtc_version
from cupytma.runtime.constants import set_constant
from cupytma.runtime.coordinates import declare_coordinates
from cupytma.runtime.descriptors import DescriptorBuffer
from cupytma.runtime.device import has_tma_device
from cupytma.runtime.faults import FaultReport, explain_fault, explained_faults, synchronize
from cupytma.runtime.history import LaunchRecord
from cupytma.runtime.kernel import Kernel
from cupytma.runtime.signature import KernelParameter, KernelSignature

__all__ = [
    "DescriptorBuffer", "FaultReport", "Kernel", "KernelParameter", "KernelSignature", "LaunchRecord", "Module",
    "compile", "current_target", "declare_coordinates", "explain_fault", "explained_faults", "has_tma_device",
    "nvrtc_version", "set_constant", "synchronize",
]
