"""Kernels that are a pipeline: tiles are loaded ahead, a few lines say what is done with them, results are stored."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from cupytma.pipeline.kernel import PipelineKernel, pipeline_kernel
    from cupytma.pipeline.plan import PipelinePlan

_LAZY = {
    "PipelineKernel": "cupytma.pipeline.kernel",
    "PipelinePlan": "cupytma.pipeline.plan",
    "pipeline_kernel": "cupytma.pipeline.kernel",
}
__all__ = ["PipelineKernel", "PipelinePlan", "pipeline_kernel"]


def __getattr__(name: str) -> _Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma.pipeline' has no attribute {name!r}")
    value = getattr(_import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
