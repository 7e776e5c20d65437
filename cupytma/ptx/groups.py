"""Groups of asynchronous copies: the bulk async-groups, and the older cp.async groups that are no part of them.

`bulk_commit_group` and `bulk_wait_group` count bulk stores, reductions and their kin that the thread started.
`cp_async_commit_group` and `cp_async_wait_group` count ``cp.async`` copies of 4 to 16 bytes. Neither waits for the
other's operations, and neither waits for a copy that completes on an mbarrier.

Source of every row: PTX ISA, "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.commit_group",
"cp.async.wait_group, cp.async.wait_all" and "cp.async.mbarrier.arrive".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Choice, Family, Note, Requirement, Word, flag, given
from cupytma.ptx.instruction import Instruction
from cupytma.targets import Feature

COMMIT_GROUP = Family(
    name="bulk_commit_group",
    mnemonic="cp.async.bulk.commit_group",
    words=(),
    arguments=(),
    summary=(
        "Makes a bulk async-group of the bulk operations that the executing thread has started and not committed yet; "
        "bulk_wait_group waits for it."
    ),
    section="Data Movement and Conversion Instructions: cp.async.bulk.commit_group",
    ptx_version=(8, 0),
    features=frozenset({Feature.TENSOR_COPY}),
)

WAIT_GROUP = Family(
    name="bulk_wait_group",
    mnemonic="cp.async.bulk.wait_group{read}",
    words=(flag("read", ".read"),),
    arguments=(Argument("%", (operands.PENDING_GROUPS,)),),
    summary=(
        "Waits until at most count (0 to 63) of the bulk async-groups that the executing thread committed last are "
        "pending and all its earlier ones are done:"
    ),
    section="Data Movement and Conversion Instructions: cp.async.bulk.wait_group",
    ptx_version=(8, 0),
    features=frozenset({Feature.TENSOR_COPY}),
    notes=(
        Note(given(read=False), "sources and tensor maps read, destinations written and visible to this thread."),
        Note(given(read=True), "sources and tensor maps read, so that shared memory may be written again."),
    ),
)


_DIFFERENCE = "It has nothing to do with bulk async-groups."
_SECTION = "Data Movement and Conversion Instructions: "

CP_ASYNC_COMMIT_GROUP = Family(
    name="cp_async_commit_group",
    mnemonic="cp.async.commit_group",
    words=(),
    arguments=(),
    summary=f"Makes a group of the cp.async copies that the thread has started and not committed yet. {_DIFFERENCE}",
    section=_SECTION + "cp.async.commit_group",
    ptx_version=(7, 0),
)

CP_ASYNC_WAIT_GROUP = Family(
    name="cp_async_wait_group",
    mnemonic="cp.async.wait_group",
    words=(),
    arguments=(Argument("%", (operands.PENDING_COPIES,)),),
    summary=f"Waits until at most count of the thread's newest cp.async groups are pending. {_DIFFERENCE}",
    section=_SECTION + "cp.async.wait_group, cp.async.wait_all",
    ptx_version=(7, 0),
)

CP_ASYNC_WAIT_ALL = Family(
    name="cp_async_wait_all",
    mnemonic="cp.async.wait_all",
    words=(),
    arguments=(),
    summary=f"Waits for all cp.async copies of the thread, committed or not. {_DIFFERENCE}",
    section=_SECTION + "cp.async.wait_group, cp.async.wait_all",
    ptx_version=(7, 0),
)

_SPACES = ("shared::cta", "generic")
CP_ASYNC_MBARRIER_ARRIVE = Family(
    name="cp_async_mbarrier_arrive",
    mnemonic="cp.async.mbarrier.arrive{noinc}{space}.b64",
    words=(
        flag("noinc", ".noinc"),
        Word("space", (Choice("shared::cta", ".shared::cta"), Choice("generic", "", "_generic"))),
    ),
    arguments=tuple(Argument("[%]", (operands.mbarrier(s),), given(space=s)) for s in _SPACES),
    summary=(
        "Makes the mbarrier get an arrival when all cp.async copies that the thread has started so far are done. Bulk "
        "copies do not count; they complete transactions."
    ),
    section="Parallel Synchronization and Communication Instructions: cp.async.mbarrier.arrive",
    ptx_version=(7, 0),
    requirements=(Requirement(given(space="shared::cta"), (7, 8)),),
    notes=(
        Note(given(noinc=False), "The pending count is raised by 1 before, so that the arrival changes nothing net."),
        Note(given(noinc=True), "The arrival must have been counted when the mbarrier was initialised."),
    ),
)


def bulk_commit_group() -> Instruction:
    """The end of a bulk async-group: everything the thread started since the last one belongs to it.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.commit_group".
    """
    return COMMIT_GROUP.build()


def bulk_wait_group(*, read: bool = False) -> Instruction:
    """A wait for all but the newest bulk async-groups; how many may stay pending is an immediate, 0 to 63.

    Parameters
    ----------
    read : bool
        Wait only until the sources have been read, not until the destinations have been written.

    Raises
    ------
    EmissionError
        If `read` is not a bool.

    Notes
    -----
    Source: PTX ISA, "cp.async.bulk.wait_group". The range is the assembler's: it encodes 63 for anything outside.
    """
    return WAIT_GROUP.build(read=read)


def cp_async_commit_group() -> Instruction:
    """The end of a group of ``cp.async`` copies, which are not bulk copies.

    Notes
    -----
    Source: PTX ISA, "cp.async.commit_group".
    """
    return CP_ASYNC_COMMIT_GROUP.build()


def cp_async_wait_group() -> Instruction:
    """A wait for all but the newest groups of ``cp.async`` copies, which are not bulk copies.

    Notes
    -----
    Source: PTX ISA, "cp.async.wait_group, cp.async.wait_all".
    """
    return CP_ASYNC_WAIT_GROUP.build()


def cp_async_wait_all() -> Instruction:
    """A wait for all ``cp.async`` copies, which are not bulk copies.

    Notes
    -----
    Source: PTX ISA, "cp.async.wait_group, cp.async.wait_all".
    """
    return CP_ASYNC_WAIT_ALL.build()


def cp_async_mbarrier_arrive(*, noinc: bool = False, space: str = "shared::cta") -> Instruction:
    """An arrival at an mbarrier once the thread's ``cp.async`` copies are done, which are not bulk copies.

    Parameters
    ----------
    noinc : bool
        Do not raise the pending count first.
    space : str
        ``"shared::cta"`` or ``"generic"``.

    Notes
    -----
    Source: PTX ISA, "cp.async.mbarrier.arrive".
    """
    return CP_ASYNC_MBARRIER_ARRIVE.build(noinc=noinc, space=space)
