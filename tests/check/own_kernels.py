"""The package's own kernels as PTX, compiled as the operations compile them."""

from __future__ import annotations

from functools import cache

import numpy as np

import cupytma as tma
from cupytma import ptx
from cupytma.kernels import source
from cupytma.ops import (
    broadcast,
    convolution_columns,
    copy_launches,
    filling,
    grouped_copies,
    multicast,
    reduction,
    rows,
)
from cupytma.ops.paired import kernels
from cupytma.ops.transposition import SHAPES
from cupytma.record import forms
from cupytma.targets import target as target_of
from cupytma.tensormap import DataType

TARGETS = ("sm_90a", "sm_100a")
BOX = (32, 32)
TILE_BYTES = 4 * BOX[0] * BOX[1]


@cache
def own_ptx(target: str) -> dict[str, str]:
    """Each source of ours, in the variants that the operations use, by a name."""
    found = {"copy": copy_launches._copy_module(target).ptx, "turn": copy_launches.turn_module(target).ptx}
    for element_bytes, rank in (*((size, 2) for size in SHAPES), (4, 3), (1, 5)):
        module = copy_launches.transpose_module(target, element_bytes, rank)
        found[f"transpose_{element_bytes}_{rank}d"] = module.ptx
    for operation, data_type in (("add", DataType.FLOAT32), ("min", DataType.UINT32), ("add", DataType.BFLOAT16)):
        found[f"reduce_{operation}_{data_type.name}"] = reduction.reduction_module(target, operation, data_type).ptx
    found["rows"] = rows.rows_module(target, None).ptx
    found["rows_add"] = rows.rows_module(target, DataType.FLOAT32).ptx
    for name in ("im2col", "col2im"):
        found[name] = kernels(
            f"{name}.cu", target, STAGES=convolution_columns.STAGES, READING=convolution_columns.READING
        ).ptx
    found["fill"] = kernels("fill.cu", target, MAX_OUTER_RANK=filling.MAX_OUTER_RANK).ptx
    for name, words in (("words", (1, 2, 4, 8, 16)), ("granules", (1, 2, 4, 8))):
        for word in words:
            found[f"{name}_{word}"] = copy_launches._ordinary_module(target, name, word).ptx
    for cluster in (1, 2, 8):
        found[f"multicast_{cluster}"] = multicast.multicast_module(target, cluster).ptx
    for operation, dtype, cluster in (("add", "float32", 4), ("mul", "bfloat16", 1), ("max", "int8", 2)):
        found[f"broadcast_{operation}"] = broadcast.broadcast_module(target, operation, dtype, cluster).ptx
    found["grouped_copy"] = grouped_copies.module(target).ptx
    for name, (kernel, arrays) in pipelines().items():
        found[name] = kernel.compile(*arrays, target=target).ptx
    found["record"] = forms.kernels(target_of(target)).ptx
    found["transports"] = transports(target)
    return found


def pipelines() -> dict[str, tuple[tma.pipeline.PipelineKernel, tuple[np.ndarray, ...]]]:
    """An elementwise kernel, one that reduces rows and one that reduces everything, and arrays for each."""
    x = np.zeros((512, 512), np.float32)
    adding = tma.pipeline_kernel(
        "out = scale * a + b", "float32 a, float32 b", "float32 out", scalars="float32 scale"
    )
    rows = tma.pipeline_kernel("total += x", "float16 x", reduce={"float32 total": "add"})
    dot = tma.pipeline_kernel("total += x * y", "float32 x, float32 y", reduce={"float32 total": "add"}, over="all")
    return {
        "pipeline_elements": (adding, (x, x)), "pipeline_rows": (rows, (x.astype(np.float16),)),
        "pipeline_all": (dot, (x, x)),
    }


def transports(target: str) -> str:
    """The four ways in which a tensor map reaches a kernel."""
    return tma.compile(
        source("transports.cu"), target, defines={"TILE_BYTES": TILE_BYTES},
        headers={"rebind.cuh": f"namespace cupytma {{\n{ptx.rebind(rank=2).function()}\n}}"},
    ).ptx  # fmt: skip
