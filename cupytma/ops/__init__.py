"""Operations on GPU arrays, built on tensor maps and the kernels of this package."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from cupytma.ops.array_copy import copy

_LAZY = {
    "broadcast_add": "cupytma.ops.broadcast",
    "broadcast_max": "cupytma.ops.broadcast",
    "broadcast_min": "cupytma.ops.broadcast",
    "broadcast_mul": "cupytma.ops.broadcast",
    "broadcast_program": "cupytma.ops.broadcast_schedule",
    "check_groups": "cupytma.ops.group_errors",
    "check_indices": "cupytma.ops.index_errors",
    "col2im": "cupytma.ops.convolution_columns",
    "copy": "cupytma.ops.array_copy",
    "copy_program": "cupytma.ops.copy_schedule",
    "explain": "cupytma.ops.explanation",
    "fill": "cupytma.ops.filling",
    "flip": "cupytma.ops.arrangement",
    "gather_rows": "cupytma.ops.rows",
    "grouped_copy": "cupytma.ops.grouped_copies",
    "grouped_transpose": "cupytma.ops.grouped_transposition",
    "im2col": "cupytma.ops.convolution_columns",
    "matmul": "cupytma.ops.matrix_product",
    "multicast_copy": "cupytma.ops.multicast",
    "matmul_program": "cupytma.ops.matmul_schedule",
    "multicast_program": "cupytma.ops.multicast_schedule",
    "pad": "cupytma.ops.arrangement",
    "permute": "cupytma.ops.permutation",
    "plan_broadcast": "cupytma.ops.broadcast_plan",
    "plan_copy": "cupytma.ops.copy_plan",
    "plan_multicast": "cupytma.ops.multicast_plan",
    "plan_reduction": "cupytma.ops.reduction_plan",
    "plan_rows": "cupytma.ops.rows_plan",
    "ragged_gather": "cupytma.ops.ragged",
    "ragged_scatter": "cupytma.ops.ragged",
    "reduce_add": "cupytma.ops.reduction",
    "reduce_and": "cupytma.ops.reduction",
    "reduce_dec": "cupytma.ops.reduction",
    "reduce_inc": "cupytma.ops.reduction",
    "reduce_max": "cupytma.ops.reduction",
    "reduce_min": "cupytma.ops.reduction",
    "reduce_or": "cupytma.ops.reduction",
    "reduce_xor": "cupytma.ops.reduction",
    "roll": "cupytma.ops.arrangement",
    "rows_program": "cupytma.ops.rows_schedule",
    "scatter_add_rows": "cupytma.ops.rows",
    "scatter_rows": "cupytma.ops.rows",
    "simulate_col2im": "cupytma.ops.simulated_columns",
    "simulate_copy": "cupytma.ops.simulated_copy",
    "simulate_gather_rows": "cupytma.ops.simulated_rows",
    "simulate_im2col": "cupytma.ops.simulated_columns",
    "simulate_multicast_copy": "cupytma.ops.simulated_multicast",
    "simulate_reduction": "cupytma.ops.simulated_reduction",
    "simulate_scatter_add_rows": "cupytma.ops.simulated_rows",
    "simulate_scatter_rows": "cupytma.ops.simulated_rows",
    "transpose": "cupytma.ops.permutation",
}
__all__ = [
    "broadcast_add", "broadcast_max", "broadcast_min", "broadcast_mul", "broadcast_program", "check_groups",
    "check_indices", "col2im", "copy", "copy_program", "explain", "fill", "flip", "gather_rows", "grouped_copy",
    "grouped_transpose", "im2col", "matmul", "matmul_program", "multicast_copy", "multicast_program", "pad", "permute",
    "plan_broadcast", "plan_copy", "plan_multicast", "plan_reduction", "plan_rows", "ragged_gather", "ragged_scatter",
    "reduce_add", "reduce_and", "reduce_dec", "reduce_inc", "reduce_max", "reduce_min", "reduce_or", "reduce_xor",
    "roll", "rows_program", "scatter_add_rows", "scatter_rows", "simulate_col2im", "simulate_copy",
    "simulate_gather_rows", "simulate_im2col", "simulate_multicast_copy", "simulate_reduction",
    "simulate_scatter_add_rows", "simulate_scatter_rows", "transpose",
]


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma.ops' has no attribute {name!r}")
    value = getattr(_import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
