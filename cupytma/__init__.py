"""NVIDIA's Tensor Memory Accelerator from Python.

Descriptors (`Tiled`, `TensorMap`, `tensor_map`), instructions (`cupytma.ptx`) and the simulator (`cupytma.sim`) need
no GPU; `compile` needs NVRTC alone; `copy` and launches need a GPU and CuPy. Importing this package loads none of
CuPy, the CUDA libraries and numpy: what needs them is loaded when it is first used.
"""

from __future__ import annotations

import os as _os
from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from cupytma.errors import (
    ArrayError,
    CompileError,
    CompileInputError,
    CupytmaError,
    CupytmaWarning,
    DescriptorError,
    EmissionError,
    KernelWarning,
    LaunchError,
    NoDeviceError,
    PipelineError,
    RowIndexError,
    TargetError,
)
from cupytma.targets import TARGETS, Target
from cupytma.tensormap import (
    DataType,
    Im2col,
    Im2colWide,
    Interleave,
    L2Promotion,
    OobFill,
    Swizzle,
    TensorMap,
    Tiled,
    Violation,
    WideMode,
    tensor_map,
)
from cupytma.version import __version__

if TYPE_CHECKING:
    from cupytma import check, ops, pipeline, ptx, runtime, sim, view
    from cupytma.ops.arrangement import flip, pad, roll
    from cupytma.ops.array_copy import copy
    from cupytma.ops.broadcast import broadcast_add, broadcast_max, broadcast_min, broadcast_mul
    from cupytma.ops.convolution_columns import col2im, im2col
    from cupytma.ops.filling import fill
    from cupytma.ops.group_errors import check_groups
    from cupytma.ops.grouped_copies import grouped_copy
    from cupytma.ops.grouped_transposition import grouped_transpose
    from cupytma.ops.index_errors import check_indices
    from cupytma.ops.multicast import multicast_copy
    from cupytma.ops.permutation import permute, transpose
    from cupytma.ops.ragged import ragged_gather, ragged_scatter
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
    from cupytma.ops.rows import gather_rows, scatter_add_rows, scatter_rows
    from cupytma.pipeline.kernel import pipeline_kernel
    from cupytma.runtime.checks import checks
    from cupytma.runtime.compiler import compile
    from cupytma.runtime.coordinates import declare_coordinates
    from cupytma.runtime.descriptors import DescriptorBuffer
    from cupytma.runtime.device_encoding import encode_on_device, rebind_on_device
    from cupytma.runtime.faults import explain_fault
    from cupytma.tensormap.driver import verify_against_driver
    from cupytma.tensormap.planning import plan_boxes
    from cupytma.tensormap.records import encode_records

# In a source tree the kernels and the command line stand beside this package; installed, they are inside it.
_source_tree = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
if all(_os.path.isfile(_os.path.join(_source_tree, name, "__init__.py")) for name in ("cli", "kernels")):
    __path__.append(_source_tree)
del _source_tree

# Loaded when first used: from which module, or the module itself.
_LAZY = {
    "DescriptorBuffer": "cupytma.runtime.descriptors",
    "broadcast_add": "cupytma.ops.broadcast",
    "broadcast_max": "cupytma.ops.broadcast",
    "broadcast_min": "cupytma.ops.broadcast",
    "broadcast_mul": "cupytma.ops.broadcast",
    "check": "",
    "checks": "cupytma.runtime.checks",
    "check_groups": "cupytma.ops.group_errors",
    "check_indices": "cupytma.ops.index_errors",
    "col2im": "cupytma.ops.convolution_columns",
    "compile": "cupytma.runtime.compiler",
    "copy": "cupytma.ops.array_copy",
    "declare_coordinates": "cupytma.runtime.coordinates",
    "encode_on_device": "cupytma.runtime.device_encoding",
    "encode_records": "cupytma.tensormap.records",
    "explain_fault": "cupytma.runtime.faults",
    "gather_rows": "cupytma.ops.rows",
    "fill": "cupytma.ops.filling",
    "flip": "cupytma.ops.arrangement",
    "grouped_copy": "cupytma.ops.grouped_copies",
    "grouped_transpose": "cupytma.ops.grouped_transposition",
    "im2col": "cupytma.ops.convolution_columns",
    "multicast_copy": "cupytma.ops.multicast",
    "ops": "",
    "pad": "cupytma.ops.arrangement",
    "permute": "cupytma.ops.permutation",
    "pipeline": "",
    "pipeline_kernel": "cupytma.pipeline.kernel",
    "plan_boxes": "cupytma.tensormap.planning",
    "ptx": "",
    "ragged_gather": "cupytma.ops.ragged",
    "ragged_scatter": "cupytma.ops.ragged",
    "rebind_on_device": "cupytma.runtime.device_encoding",
    "reduce_add": "cupytma.ops.reduction",
    "reduce_and": "cupytma.ops.reduction",
    "reduce_dec": "cupytma.ops.reduction",
    "reduce_inc": "cupytma.ops.reduction",
    "reduce_max": "cupytma.ops.reduction",
    "reduce_min": "cupytma.ops.reduction",
    "reduce_or": "cupytma.ops.reduction",
    "reduce_xor": "cupytma.ops.reduction",
    "roll": "cupytma.ops.arrangement",
    "runtime": "",
    "scatter_add_rows": "cupytma.ops.rows",
    "scatter_rows": "cupytma.ops.rows",
    "sim": "",
    "transpose": "cupytma.ops.permutation",
    "verify_against_driver": "cupytma.tensormap.driver",
    "view": "",
}

__all__ = [
    "TARGETS", "ArrayError", "CompileError", "CompileInputError", "CupytmaError", "CupytmaWarning", "DataType",
    "DescriptorBuffer", "DescriptorError", "EmissionError", "Im2col", "Im2colWide", "Interleave", "KernelWarning",
    "L2Promotion", "LaunchError", "NoDeviceError", "OobFill", "PipelineError", "RowIndexError", "Swizzle", "Target",
    "TargetError", "TensorMap", "Tiled", "Violation", "WideMode", "__version__", "broadcast_add", "broadcast_max",
    "broadcast_min", "broadcast_mul", "check", "check_groups", "check_indices", "checks", "col2im", "compile", "copy",
    "declare_coordinates", "encode_on_device", "encode_records", "explain_fault", "fill", "flip", "gather_rows",
    "grouped_copy", "grouped_transpose", "im2col", "multicast_copy", "ops", "pad", "permute", "pipeline",
    "pipeline_kernel", "plan_boxes", "ptx", "ragged_gather", "ragged_scatter", "rebind_on_device", "reduce_add",
    "reduce_and", "reduce_dec", "reduce_inc", "reduce_max", "reduce_min", "reduce_or", "reduce_xor", "roll", "runtime",
    "scatter_add_rows", "scatter_rows", "sim", "tensor_map", "transpose", "verify_against_driver", "view",
]


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma' has no attribute {name!r}")
    home = _LAZY[name]
    value = getattr(_import_module(home), name) if home else _import_module(f"cupytma.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
