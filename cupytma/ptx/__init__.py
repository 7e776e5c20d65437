"""The instructions of the Tensor Memory Accelerator, as data: PTX text, operands, and CUDA C++.

Constructors take the words of the PTX ISA as keywords and give an `Instruction`. `catalogue` gives all of them, and
`header` the CUDA C++ functions for a target. Coordinates are in driver order: dimension 0 moves fastest.
"""

from __future__ import annotations

from cupytma.ptx.barriers import (
    mbarrier_arrive,
    mbarrier_arrive_expect_tx,
    mbarrier_expect_tx,
    mbarrier_init,
    mbarrier_inval,
    mbarrier_test_wait_parity,
    mbarrier_try_wait_parity,
)
from cupytma.ptx.bulk import bulk_commit_group, bulk_wait_group
from cupytma.ptx.catalogue import catalogue
from cupytma.ptx.fences import elect_sync, fence_mbarrier_init, fence_proxy_async
from cupytma.ptx.header import header
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.operands import Operand
from cupytma.ptx.tensor import ch_opnum, mcast_opnum, prefetch_tensormap, tensor_load, tensor_store

__all__ = [
    "Instruction",
    "Operand",
    "bulk_commit_group",
    "bulk_wait_group",
    "catalogue",
    "ch_opnum",
    "elect_sync",
    "fence_mbarrier_init",
    "fence_proxy_async",
    "header",
    "mbarrier_arrive",
    "mbarrier_arrive_expect_tx",
    "mbarrier_expect_tx",
    "mbarrier_init",
    "mbarrier_inval",
    "mbarrier_test_wait_parity",
    "mbarrier_try_wait_parity",
    "mcast_opnum",
    "prefetch_tensormap",
    "tensor_load",
    "tensor_store",
]
