"""Operations on GPU arrays, built on tensor maps and the kernels of this package."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from cupytma.ops.arrangement import flip, pad, roll
    from cupytma.ops.array_copy import copy
    from cupytma.ops.convolution_columns import col2im, im2col
    from cupytma.ops.copy_plan import plan_copy
    from cupytma.ops.copy_program import copy_program
    from cupytma.ops.filling import fill
    from cupytma.ops.permutation import permute, transpose
    from cupytma.ops.simulated_columns import simulate_col2im, simulate_im2col
    from cupytma.ops.simulated_copy import simulate_copy

_LAZY = {
    "col2im": "cupytma.ops.convolution_columns",
    "copy": "cupytma.ops.array_copy",
    "copy_program": "cupytma.ops.copy_program",
    "fill": "cupytma.ops.filling",
    "flip": "cupytma.ops.arrangement",
    "im2col": "cupytma.ops.convolution_columns",
    "pad": "cupytma.ops.arrangement",
    "permute": "cupytma.ops.permutation",
    "plan_copy": "cupytma.ops.copy_plan",
    "roll": "cupytma.ops.arrangement",
    "simulate_col2im": "cupytma.ops.simulated_columns",
    "simulate_copy": "cupytma.ops.simulated_copy",
    "simulate_im2col": "cupytma.ops.simulated_columns",
    "transpose": "cupytma.ops.permutation",
}
__all__ = [
    "col2im", "copy", "copy_program", "fill", "flip", "im2col", "pad", "permute", "plan_copy", "roll",
    "simulate_col2im", "simulate_copy", "simulate_im2col", "transpose",
]


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma.ops' has no attribute {name!r}")
    value = getattr(_import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
