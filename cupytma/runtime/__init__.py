"""From CUDA C++ to a running kernel: compilation with NVRTC, loading and launching through CuPy."""

from cupytma.runtime.compiler import Module, compile, current_target, nvrtc_version
from cupytma.runtime.device import has_tma_device
from cupytma.runtime.kernel import Kernel
from cupytma.runtime.signature import KernelParameter, KernelSignature

__all__ = [
    "Kernel", "KernelParameter", "KernelSignature", "Module", "compile", "current_target", "has_tma_device",
    "nvrtc_version",
]
