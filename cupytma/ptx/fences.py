"""Fences between the generic and the async proxy, the mbarrier initialisation fence, and the election of a thread.

Source of every row: PTX ISA, "membar, fence" and "elect.sync".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Family, Note, flag, given, optional
from cupytma.ptx.instruction import Instruction

FENCE_PROXY_ASYNC = Family(
    name="fence_proxy_async",
    mnemonic="fence.proxy.async{space}",
    words=(optional("space", "global", "shared::cta", "shared::cluster"),),
    arguments=(),
    summary=(
        "Orders the executing thread's memory accesses through the generic proxy with those through the async proxy, "
        "in both directions,"
    ),
    section="Parallel Synchronization and Communication Instructions: membar, fence",
    ptx_version=(8, 0),
    notes=(
        Note(given(space=None), "in every state space."),
        Note(given(space="global"), "in global memory."),
        Note(given(space="shared::cta"), "in the block's shared memory: after writing a tile, before its bulk store."),
        Note(given(space="shared::cluster"), "in the shared memory of the cluster's blocks."),
    ),
)

FENCE_MBARRIER_INIT = Family(
    name="fence_mbarrier_init",
    mnemonic="fence.mbarrier_init.release.cluster",
    words=(),
    arguments=(),
    summary=(
        "Releases the executing thread's earlier mbarrier.init operations to the threads of the cluster. They know the "
        "mbarrier once they have acquired it, by a barrier after this fence."
    ),
    section="Parallel Synchronization and Communication Instructions: membar, fence",
    ptx_version=(8, 0),
)

ELECT_SYNC = Family(
    name="elect_sync",
    mnemonic="elect.sync",
    words=(flag("lane"),),
    arguments=(
        Argument("_|%", (operands.IS_ELECTED,), given(lane=False)),
        Argument("%|%", (operands.LEADER_LANE, operands.IS_ELECTED), given(lane=True)),
        Argument("%", (operands.MEMBER_MASK,)),
    ),
    summary=(
        "Elects one of the lanes in membermask, always the same for the same mask, and returns whether it is the "
        "executing one. All those lanes must execute it; it waits for them."
    ),
    section="Parallel Synchronization and Communication Instructions: elect.sync",
    ptx_version=(8, 0),
    # It orders no memory accesses, so the compiler may move them across it.
    clobbers=(),
    notes=(Note(given(lane=True), "leader_lane becomes the number of the elected lane."),),
)


def fence_proxy_async(*, space: str | None = None) -> Instruction:
    """A fence between the generic and the async proxy.

    Parameters
    ----------
    space : str or None
        ``"global"``, ``"shared::cta"`` or ``"shared::cluster"`` limits it to that state space.

    Raises
    ------
    EmissionError
        For another space.

    Notes
    -----
    Source: PTX ISA, "membar, fence".
    """
    return FENCE_PROXY_ASYNC.build(space=space)


def fence_mbarrier_init() -> Instruction:
    """The fence that makes initialised mbarriers visible to the cluster, ``.release.cluster``.

    Notes
    -----
    Source: PTX ISA, "membar, fence".
    """
    return FENCE_MBARRIER_INIT.build()


def elect_sync(*, lane: bool = False) -> Instruction:
    """The election of one thread of a warp.

    Parameters
    ----------
    lane : bool
        Also give the number of the elected lane, instead of the sink symbol ``_``.

    Raises
    ------
    EmissionError
        If `lane` is not a bool.

    Notes
    -----
    Source: PTX ISA, "elect.sync".
    """
    return ELECT_SYNC.build(lane=lane)
