"""What an instruction does, in words."""

from __future__ import annotations

from cupytma.ptx.instruction import Instruction, form_of
from cupytma.ptx.operands import Operand
from cupytma.ptx.parse import parse

_BY_MBARRIER = (
    "the mbarrier: it completes that many bytes of the transaction count. The threads of the block "
    "whose shared memory holds the mbarrier may wait, by mbarrier_try_wait_parity"
)
_BY_GROUP = (
    "the bulk async-group of the thread that executes it. Only that thread may wait: bulk_commit_group, then "
    "bulk_wait_group, or bulk_wait_group(read=True) where only the source is used again"
)
_BY_WGMMA = "the wgmma-group of the warpgroup, which waits by wgmma_commit_group and wgmma_wait_group"
_BY_NOTHING = "nothing: it is a hint, and no thread can wait for it"
_AT_ONCE = "itself: it is done when the thread goes on"
_PREFETCHES = ("tensor_prefetch", "bulk_prefetch", "prefetch_tensormap")
_ASYNCHRONOUS = ("tensor_load", "tensor_store", "tensor_reduce", "bulk_copy", "bulk_reduce")
_MULTIMEM = ("multimem_bulk_copy", "multimem_bulk_reduce")


def completion(instruction: Instruction) -> str:
    """What completes an instruction, and which threads may wait for it.

    Raises
    ------
    EmissionError
        If it is no `Instruction`.
    """
    family = form_of("completion", instruction).family
    if family in _PREFETCHES:
        return _BY_NOTHING
    if family == "wgmma_mma_async":
        return _BY_WGMMA
    if family in (*_ASYNCHRONOUS, *_MULTIMEM):
        return _BY_MBARRIER if "mbarrier" in {o.name for o in instruction.operands} else _BY_GROUP
    return _AT_ONCE


def explain(text: str | Instruction) -> str:
    """An instruction in words: what it does, its operands with units and alignments, what completes it, who may wait.

    Parameters
    ----------
    text : str or Instruction
        PTX text in any spelling that `parse` reads, or an instruction.

    Returns
    -------
    str
        Several lines.

    Raises
    ------
    EmissionError
        If it is no instruction of the family.

    Examples
    --------
    >>> print(explain("cp.async.bulk.commit_group;").splitlines()[0])
    cp.async.bulk.commit_group;
    """
    form = text if isinstance(text, Instruction) else parse(text)
    operands = form.operands
    major, minor = form.ptx_version
    lines = [
        form.text,
        form.documentation,
        *(f"  {number} {_described(operand)}" for number, operand in enumerate(operands)),
        f"Completed by {completion(form)}.",
        f"Needs PTX {major}.{minor}; exists on {', '.join(map(str, form.targets)) or 'no known target'}.",
        f"Source: {form.source}.",
        *(f"Note: {note}." for note in form.notes),
    ]
    return "\n".join(lines)


def role(operand: Operand) -> str:
    """What an operand is: an address of a space, or a value and what the instruction does with it."""
    if operand.space:
        return "a generic address" if operand.space.startswith("generic") else f"an address in {operand.space}"
    verb = {"input": "reads", "output": "writes", "updated": "changes", "immediate": "constant"}[operand.direction]
    return f"{verb}, .{operand.type}"


def _described(operand: Operand) -> str:
    what = f": {role(operand)};" if operand.space else f" ({role(operand)}):"
    return f"{operand.name}{what} {operand.description}"
