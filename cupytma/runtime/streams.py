"""The stream that work on given arrays belongs to."""

from __future__ import annotations

import sys
from typing import Any

from cupytma.runtime.device import cupy


def _borrowed(module: Any, stream: Any) -> Any:
    """Torch's stream as CuPy's."""
    if hasattr(module.cuda.Stream, "from_external"):  # CuPy 14 and newer
        return module.cuda.Stream.from_external(stream)
    return module.cuda.ExternalStream(stream.cuda_stream)


def current_stream(*arrays: Any) -> Any:
    """The stream to launch on: torch's current one if any array is a torch tensor, else CuPy's.

    Returns
    -------
    cupy.cuda.Stream
    """
    module = cupy()
    torch = sys.modules.get("torch")  # an array can be a torch tensor only if torch is loaded
    if torch is not None:
        for array in arrays:
            if isinstance(array, torch.Tensor):
                return _borrowed(module, torch.cuda.current_stream(array.device))
    return module.cuda.get_current_stream()
