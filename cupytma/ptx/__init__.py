"""The instructions of the Tensor Memory Accelerator, as data: PTX text, operands, and CUDA C++.

Constructors take the words of the PTX ISA as keywords and give an `Instruction`. `catalogue` gives all of them, and
`header` the CUDA C++ functions for a target. Coordinates are in driver order: dimension 0 moves fastest.
"""

from __future__ import annotations

from cupytma.ptx.barriers import (
    mbarrier_arrive,
    mbarrier_arrive_drop,
    mbarrier_arrive_drop_expect_tx,
    mbarrier_arrive_drop_no_complete,
    mbarrier_arrive_expect_tx,
    mbarrier_arrive_no_complete,
    mbarrier_complete_tx,
    mbarrier_expect_tx,
    mbarrier_init,
    mbarrier_inval,
    mbarrier_pending_count,
)
from cupytma.ptx.bulk import bulk_copy, bulk_prefetch, bulk_reduce, multimem_bulk_copy, multimem_bulk_reduce
from cupytma.ptx.catalogue import catalogue
from cupytma.ptx.cluster import (
    barrier_cluster_arrive,
    barrier_cluster_wait,
    elect_sync,
    getctarank,
    griddepcontrol,
    mapa,
    setmaxnreg,
)
from cupytma.ptx.explain import completion, explain
from cupytma.ptx.fences import (
    fence,
    fence_mbarrier_init,
    fence_proxy_alias,
    fence_proxy_async,
    fence_proxy_async_generic,
    fence_sync_restrict,
)
from cupytma.ptx.groups import (
    bulk_commit_group,
    bulk_wait_group,
    cp_async_commit_group,
    cp_async_mbarrier_arrive,
    cp_async_wait_all,
    cp_async_wait_group,
)
from cupytma.ptx.header import header
from cupytma.ptx.instruction import Instruction
from cupytma.ptx.matrix import MatrixDescriptor, ldmatrix, stmatrix
from cupytma.ptx.names import llvm_intrinsic, nvvm_name
from cupytma.ptx.nvvm import (
    DESCRIPTOR_POSITION,
    OPERAND_CLASSES,
    ReductionKind,
    TmaLoadMode,
    TmaStoreMode,
    load_mode,
    operand_types,
    reduction_kind,
    store_mode,
    verify,
)
from cupytma.ptx.operands import Operand
from cupytma.ptx.parameter_block import appended_maps
from cupytma.ptx.parse import parse
from cupytma.ptx.policy import createpolicy_cvt, createpolicy_fractional, createpolicy_range
from cupytma.ptx.rebind import Rebind, rebind
from cupytma.ptx.rebind_check import check_rebind
from cupytma.ptx.recipes import RECIPES, Recipe, Step, recipe
from cupytma.ptx.reductions import REDUCTIONS, check_reduction, reduction_table, reduction_types
from cupytma.ptx.spelling import TOOLKITS, spell
from cupytma.ptx.tensor import ch_opnum, mcast_opnum, tensor_load, tensor_prefetch, tensor_reduce, tensor_store
from cupytma.ptx.tensormap import (
    fence_proxy_tensormap,
    fence_proxy_tensormap_acquire,
    fence_proxy_tensormap_release,
    prefetch_tensormap,
    tensormap_cp_fenceproxy,
    tensormap_replace,
)
from cupytma.ptx.waits import (
    mbarrier_test_wait,
    mbarrier_test_wait_parity,
    mbarrier_try_wait,
    mbarrier_try_wait_parity,
)
from cupytma.ptx.wgmma import wgmma_commit_group, wgmma_fence, wgmma_mma_async, wgmma_wait_group

__all__ = [
    "DESCRIPTOR_POSITION",
    "OPERAND_CLASSES",
    "RECIPES",
    "REDUCTIONS",
    "TOOLKITS",
    "Instruction",
    "MatrixDescriptor",
    "Operand",
    "Rebind",
    "Recipe",
    "ReductionKind",
    "Step",
    "TmaLoadMode",
    "TmaStoreMode",
    "appended_maps",
    "barrier_cluster_arrive",
    "barrier_cluster_wait",
    "bulk_commit_group",
    "bulk_copy",
    "bulk_prefetch",
    "bulk_reduce",
    "bulk_wait_group",
    "catalogue",
    "ch_opnum",
    "check_rebind",
    "check_reduction",
    "completion",
    "cp_async_commit_group",
    "cp_async_mbarrier_arrive",
    "cp_async_wait_all",
    "cp_async_wait_group",
    "createpolicy_cvt",
    "createpolicy_fractional",
    "createpolicy_range",
    "elect_sync",
    "explain",
    "fence",
    "fence_mbarrier_init",
    "fence_proxy_alias",
    "fence_proxy_async",
    "fence_proxy_async_generic",
    "fence_proxy_tensormap",
    "fence_proxy_tensormap_acquire",
    "fence_proxy_tensormap_release",
    "fence_sync_restrict",
    "getctarank",
    "griddepcontrol",
    "header",
    "ldmatrix",
    "llvm_intrinsic",
    "load_mode",
    "mapa",
    "mbarrier_arrive",
    "mbarrier_arrive_drop",
    "mbarrier_arrive_drop_expect_tx",
    "mbarrier_arrive_drop_no_complete",
    "mbarrier_arrive_expect_tx",
    "mbarrier_arrive_no_complete",
    "mbarrier_complete_tx",
    "mbarrier_expect_tx",
    "mbarrier_init",
    "mbarrier_inval",
    "mbarrier_pending_count",
    "mbarrier_test_wait",
    "mbarrier_test_wait_parity",
    "mbarrier_try_wait",
    "mbarrier_try_wait_parity",
    "mcast_opnum",
    "multimem_bulk_copy",
    "multimem_bulk_reduce",
    "nvvm_name",
    "operand_types",
    "parse",
    "prefetch_tensormap",
    "rebind",
    "recipe",
    "reduction_kind",
    "reduction_table",
    "reduction_types",
    "setmaxnreg",
    "spell",
    "stmatrix",
    "store_mode",
    "tensor_load",
    "tensor_prefetch",
    "tensor_reduce",
    "tensor_store",
    "tensormap_cp_fenceproxy",
    "tensormap_replace",
    "verify",
    "wgmma_commit_group",
    "wgmma_fence",
    "wgmma_mma_async",
    "wgmma_wait_group",
]
