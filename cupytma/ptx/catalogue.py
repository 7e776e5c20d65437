"""Every form of every family, enumerated from the rows."""

from __future__ import annotations

from functools import cache

from cupytma.ptx import barriers, bulk, fences, tensor
from cupytma.ptx.family import Family
from cupytma.ptx.instruction import Instruction

FAMILIES: tuple[Family, ...] = (
    tensor.LOAD,
    tensor.STORE,
    tensor.PREFETCH_TENSORMAP,
    bulk.COMMIT_GROUP,
    bulk.WAIT_GROUP,
    barriers.INIT,
    barriers.INVAL,
    barriers.ARRIVE,
    barriers.ARRIVE_EXPECT_TX,
    barriers.EXPECT_TX,
    barriers.TRY_WAIT_PARITY,
    barriers.TEST_WAIT_PARITY,
    fences.FENCE_PROXY_ASYNC,
    fences.FENCE_MBARRIER_INIT,
    fences.ELECT_SYNC,
)


@cache
def catalogue() -> tuple[Instruction, ...]:
    """Every legal instruction that the constructors can make, each once.

    Returns
    -------
    tuple of Instruction
    """
    return tuple(form for family in FAMILIES for form in family.forms())
