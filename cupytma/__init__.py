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
    CupytmaError,
    DescriptorError,
    EmissionError,
    LaunchError,
    NoDeviceError,
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
    from cupytma import ops, ptx, runtime, sim
    from cupytma.ops.arrangement import flip, pad, roll
    from cupytma.ops.array_copy import copy
    from cupytma.ops.convolution_columns import col2im, im2col
    from cupytma.ops.filling import fill
    from cupytma.ops.permutation import permute, transpose
    from cupytma.runtime.compiler import compile
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
    "col2im": "cupytma.ops.convolution_columns",
    "compile": "cupytma.runtime.compiler",
    "copy": "cupytma.ops.array_copy",
    "encode_records": "cupytma.tensormap.records",
    "fill": "cupytma.ops.filling",
    "flip": "cupytma.ops.arrangement",
    "im2col": "cupytma.ops.convolution_columns",
    "ops": "",
    "pad": "cupytma.ops.arrangement",
    "permute": "cupytma.ops.permutation",
    "plan_boxes": "cupytma.tensormap.planning",
    "ptx": "",
    "roll": "cupytma.ops.arrangement",
    "runtime": "",
    "sim": "",
    "transpose": "cupytma.ops.permutation",
    "verify_against_driver": "cupytma.tensormap.driver",
}

__all__ = [
    "TARGETS", "ArrayError", "CompileError", "CupytmaError", "DataType", "DescriptorError", "EmissionError", "Im2col",
    "Im2colWide", "Interleave", "L2Promotion", "LaunchError", "NoDeviceError", "OobFill", "Swizzle", "Target",
    "TargetError", "TensorMap", "Tiled", "Violation", "WideMode", "__version__", "col2im", "compile", "copy",
    "encode_records", "fill", "flip", "im2col", "ops", "pad", "permute", "plan_boxes", "ptx", "roll", "runtime", "sim",
    "tensor_map", "transpose", "verify_against_driver",
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
