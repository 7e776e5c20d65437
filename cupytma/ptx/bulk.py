"""Bulk async-groups: how a thread waits for the bulk stores and reductions that it started.

Source of every row: PTX ISA, "cp.async.bulk.commit_group" and "cp.async.bulk.wait_group".
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Family, Note, flag, given
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
