"""The stream that work on given arrays belongs to."""

from __future__ import annotations

import sys
from typing import Any

from cupytma.runtime.device import cupy


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
                return module.cuda.ExternalStream(torch.cuda.current_stream(array.device).cuda_stream)
    return module.cuda.get_current_stream()
