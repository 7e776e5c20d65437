"""Every form of every family, enumerated from the rows."""

from __future__ import annotations

from functools import cache

from cupytma.ptx import barriers, bulk, cluster, fences, groups, matrix, policy, tensor, tensormap, waits, wgmma
from cupytma.ptx.family import Family
from cupytma.ptx.instruction import Instruction

FAMILIES: tuple[Family, ...] = (
    tensor.LOAD,
    tensor.STORE,
    tensor.REDUCE,
    tensor.PREFETCH,
    bulk.COPY,
    bulk.REDUCE,
    bulk.PREFETCH,
    bulk.MULTIMEM_COPY,
    bulk.MULTIMEM_REDUCE,
    groups.COMMIT_GROUP,
    groups.WAIT_GROUP,
    groups.CP_ASYNC_COMMIT_GROUP,
    groups.CP_ASYNC_WAIT_GROUP,
    groups.CP_ASYNC_WAIT_ALL,
    groups.CP_ASYNC_MBARRIER_ARRIVE,
    tensormap.PREFETCH_TENSORMAP,
    tensormap.REPLACE,
    tensormap.CP_FENCEPROXY,
    tensormap.FENCE_RELEASE,
    tensormap.FENCE_ACQUIRE,
    barriers.INIT,
    barriers.INVAL,
    barriers.ARRIVE,
    barriers.ARRIVE_EXPECT_TX,
    barriers.ARRIVE_NO_COMPLETE,
    barriers.ARRIVE_DROP,
    barriers.ARRIVE_DROP_EXPECT_TX,
    barriers.ARRIVE_DROP_NO_COMPLETE,
    barriers.EXPECT_TX,
    barriers.COMPLETE_TX,
    barriers.PENDING_COUNT,
    waits.TRY_WAIT_PARITY,
    waits.TEST_WAIT_PARITY,
    waits.TRY_WAIT,
    waits.TEST_WAIT,
    fences.FENCE_PROXY_ASYNC,
    fences.FENCE_PROXY_ASYNC_GENERIC,
    fences.FENCE_SYNC_RESTRICT,
    fences.FENCE,
    fences.FENCE_PROXY_ALIAS,
    fences.FENCE_MBARRIER_INIT,
    cluster.ELECT_SYNC,
    cluster.MAPA,
    cluster.GETCTARANK,
    cluster.CLUSTER_ARRIVE,
    cluster.CLUSTER_WAIT,
    cluster.GRIDDEPCONTROL,
    cluster.SETMAXNREG,
    policy.FRACTIONAL,
    policy.RANGE,
    policy.CONVERT,
    matrix.LOAD,
    matrix.STORE,
    wgmma.FENCE,
    wgmma.COMMIT_GROUP,
    wgmma.WAIT_GROUP,
    *wgmma.MMA_ASYNC,
)


@cache
def catalogue() -> tuple[Instruction, ...]:
    """Every legal instruction that the constructors can make, each once.

    Returns
    -------
    tuple of Instruction
    """
    return tuple(form for family in FAMILIES for form in family.forms())
