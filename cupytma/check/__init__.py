"""A static checker for the way kernels use the Tensor Memory Accelerator; it needs no GPU."""

from __future__ import annotations

from cupytma.check.checker import check_cuda, check_ptx
from cupytma.check.finding import Finding, Rule, Severity
from cupytma.check.rules import RULES

__all__ = ["RULES", "Finding", "Rule", "Severity", "check_cuda", "check_ptx"]
