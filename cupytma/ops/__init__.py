"""Operations on GPU arrays, built on tensor maps and the kernels of this package."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from cupytma.ops.array_copy import copy
    from cupytma.ops.copy_plan import plan_copy
    from cupytma.ops.copy_program import copy_program
    from cupytma.ops.index_errors import check_indices
    from cupytma.ops.permutation import permute, transpose
    from cupytma.ops.reduction import (
        reduce_add,
        reduce_and,
        reduce_dec,
        reduce_inc,
        reduce_max,
        reduce_min,
        reduce_or,
        reduce_xor,
    )
    from cupytma.ops.reduction_plan import plan_reduction
    from cupytma.ops.rows import gather_rows, scatter_add_rows, scatter_rows
    from cupytma.ops.rows_plan import plan_rows
    from cupytma.ops.rows_program import rows_program
    from cupytma.ops.simulated_copy import simulate_copy
    from cupytma.ops.simulated_reduction import simulate_reduction
    from cupytma.ops.simulated_rows import simulate_gather_rows, simulate_scatter_add_rows, simulate_scatter_rows

_LAZY = {
    "check_indices": "cupytma.ops.index_errors",
    "copy": "cupytma.ops.array_copy",
    "copy_program": "cupytma.ops.copy_program",
    "gather_rows": "cupytma.ops.rows",
    "permute": "cupytma.ops.permutation",
    "plan_copy": "cupytma.ops.copy_plan",
    "plan_reduction": "cupytma.ops.reduction_plan",
    "plan_rows": "cupytma.ops.rows_plan",
    "reduce_add": "cupytma.ops.reduction",
    "reduce_and": "cupytma.ops.reduction",
    "reduce_dec": "cupytma.ops.reduction",
    "reduce_inc": "cupytma.ops.reduction",
    "reduce_max": "cupytma.ops.reduction",
    "reduce_min": "cupytma.ops.reduction",
    "reduce_or": "cupytma.ops.reduction",
    "reduce_xor": "cupytma.ops.reduction",
    "rows_program": "cupytma.ops.rows_program",
    "scatter_add_rows": "cupytma.ops.rows",
    "scatter_rows": "cupytma.ops.rows",
    "simulate_copy": "cupytma.ops.simulated_copy",
    "simulate_gather_rows": "cupytma.ops.simulated_rows",
    "simulate_reduction": "cupytma.ops.simulated_reduction",
    "simulate_scatter_add_rows": "cupytma.ops.simulated_rows",
    "simulate_scatter_rows": "cupytma.ops.simulated_rows",
    "transpose": "cupytma.ops.permutation",
}
__all__ = [
    "check_indices", "copy", "copy_program", "gather_rows", "permute", "plan_copy", "plan_reduction", "plan_rows",
    "reduce_add", "reduce_and", "reduce_dec", "reduce_inc", "reduce_max", "reduce_min", "reduce_or", "reduce_xor",
    "rows_program", "scatter_add_rows", "scatter_rows", "simulate_copy", "simulate_gather_rows", "simulate_reduction",
    "simulate_scatter_add_rows", "simulate_scatter_rows", "transpose",
]


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma.ops' has no attribute {name!r}")
    value = getattr(_import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
