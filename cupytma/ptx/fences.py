"""Fences: of threads, between the generic and the async proxy, and of mbarrier initialisation.

Source of every row: PTX ISA, "membar, fence".
"""

from __future__ import annotations

from cupytma.ptx.family import Choice, Family, Note, Requirement, Word, given, optional
from cupytma.ptx.instruction import Instruction

_SECTION = "Parallel Synchronization and Communication Instructions: membar, fence"

FENCE_PROXY_ASYNC = Family(
    name="fence_proxy_async",
    mnemonic="fence.proxy.async{space}",
    words=(optional("space", "global", "shared::cta", "shared::cluster"),),
    arguments=(),
    summary=(
        "Orders the executing thread's memory accesses through the generic proxy with those through the async proxy, "
        "in both directions,"
    ),
    section=_SECTION,
    ptx_version=(8, 0),
    notes=(
        Note(given(space=None), "in every state space."),
        Note(given(space="global"), "in global memory."),
        Note(given(space="shared::cta"), "in the block's shared memory: after writing a tile, before its bulk store."),
        Note(given(space="shared::cluster"), "in the shared memory of the cluster's blocks."),
    ),
)

_RESTRICTED = {
    "acquire": Choice("acquire", "acquire.sync_restrict::shared::cluster.cluster", "_acquire"),
    "release": Choice("release", "release.sync_restrict::shared::cta.cluster", "_release"),
    "release_read": Choice("release_read", "release.sync_restrict::shared::cluster::read.cluster", "_release_read"),
}
FENCE_PROXY_ASYNC_GENERIC = Family(
    name="fence_proxy_async_generic",
    mnemonic="fence.proxy.async::generic.{semantics}",
    words=(Word("semantics", tuple(_RESTRICTED.values())),),
    arguments=(),
    summary="One direction of the fence between the generic and the async proxy, at cluster scope, for mbarriers only:",
    section=_SECTION,
    ptx_version=(8, 6),
    requirements=(Requirement(given(semantics="release_read"), (9, 4)),),
    notes=(
        Note(given(semantics="acquire"), "acquires what was synchronised through objects in shared::cluster."),
        Note(given(semantics="release"), "releases to those that synchronise through objects in shared::cta."),
        Note(given(semantics="release_read"), "releases reads of shared::cluster."),
    ),
)

FENCE_SYNC_RESTRICT = Family(
    name="fence_sync_restrict",
    mnemonic="fence.{semantics}",
    words=(Word("semantics", tuple(_RESTRICTED[name] for name in ("acquire", "release"))),),
    arguments=(),
    summary="A thread fence of one direction at cluster scope, for mbarriers only:",
    section=_SECTION,
    ptx_version=(8, 6),
    notes=(
        Note(given(semantics="acquire"), "acquires what was synchronised through objects in shared::cluster."),
        Note(given(semantics="release"), "releases to those that synchronise through objects in shared::cta."),
    ),
)

_SCOPES = ("cta", "cluster", "gpu", "sys")
FENCE = Family(
    name="fence",
    mnemonic="fence{semantics}{scope}",
    words=(
        optional("semantics", "sc", "acq_rel", "acquire", "release"),
        Word("scope", tuple(Choice(s, f".{s}", f"_{s}") for s in _SCOPES)),
    ),
    arguments=(),
    summary="Orders the executing thread's accesses through the generic proxy for the threads of its {scope} scope.",
    section=_SECTION,
    ptx_version=(6, 0),
    requirements=(
        Requirement(given(scope="cluster"), (7, 8)),
        # The assemblers of PTX 8.5 and before refuse them; later ones take them in modules of any version.
        Requirement(given(semantics=("acquire", "release")), (8, 6)),
    ),
    notes=(Note(given(semantics=None), "Without semantics it is acq_rel."),),
)

FENCE_PROXY_ALIAS = Family(
    name="fence_proxy_alias",
    mnemonic="fence.proxy.alias",
    words=(),
    arguments=(),
    summary="Orders accesses to one place in memory through different virtual addresses.",
    section=_SECTION,
    ptx_version=(7, 5),
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
    section=_SECTION,
    ptx_version=(8, 0),
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


def fence_proxy_async_generic(*, semantics: str) -> Instruction:
    """One direction of the fence between the generic and the async proxy, at cluster scope.

    Parameters
    ----------
    semantics : str
        ``"acquire"``, ``"release"``, or from PTX 9.4 ``"release_read"``.

    Notes
    -----
    Source: PTX ISA, "membar, fence": ``.sync_restrict``.
    """
    return FENCE_PROXY_ASYNC_GENERIC.build(semantics=semantics)


def fence_sync_restrict(*, semantics: str) -> Instruction:
    """A thread fence of one direction at cluster scope, for what is synchronised through mbarriers.

    Parameters
    ----------
    semantics : str
        ``"acquire"`` or ``"release"``.

    Notes
    -----
    Source: PTX ISA, "membar, fence": ``.sync_restrict``.
    """
    return FENCE_SYNC_RESTRICT.build(semantics=semantics)


def fence(*, semantics: str | None = None, scope: str) -> Instruction:
    """A fence between threads, in the generic proxy.

    Parameters
    ----------
    semantics : str or None
        ``"sc"``, ``"acq_rel"``, or from PTX 8.6 ``"acquire"`` or ``"release"``; None means acq_rel.
    scope : str
        ``"cta"``, ``"cluster"``, ``"gpu"`` or ``"sys"``.

    Notes
    -----
    Source: PTX ISA, "membar, fence".
    """
    return FENCE.build(semantics=semantics, scope=scope)


def fence_proxy_alias() -> Instruction:
    """A fence between accesses through different virtual addresses of one place.

    Notes
    -----
    Source: PTX ISA, "membar, fence".
    """
    return FENCE_PROXY_ALIAS.build()


def fence_mbarrier_init() -> Instruction:
    """The fence that makes initialised mbarriers visible to the cluster, ``.release.cluster``.

    Notes
    -----
    Source: PTX ISA, "membar, fence".
    """
    return FENCE_MBARRIER_INIT.build()
