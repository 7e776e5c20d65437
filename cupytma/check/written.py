"""Which registers an instruction writes and which it reads."""

from __future__ import annotations

import re

from cupytma.check.module import Statement

#: A register, or a special one such as ``%tid.x``.
REGISTER = re.compile(r"%[\w$.]+")
# Instructions whose first operand is not written.
_WRITE_NOTHING = frozenset(
    (
        "st", "red", "bra", "brx", "bar", "barrier", "membar", "fence", "ret", "exit", "trap", "prefetch", "prefetchu",
        "cp", "discard", "brkpt", "nanosleep", "pmevent", "stmatrix", "griddepcontrol", "setmaxnreg", "applypriority",
        "tensormap", "multimem", "stackrestore",
    )
)  # fmt: skip
# Those whose first operand is written, of families that mostly write nothing.
_WRITE = ("barrier.red", "bar.red", "barrier.cta.red", "multimem.ld_reduce", "tcgen05.ld")
_MBARRIER_WRITES = ("mbarrier.arrive", "mbarrier.test_wait", "mbarrier.try_wait", "mbarrier.pending_count")


def written(statement: Statement) -> list[str]:
    """The registers that a statement writes."""
    opcode = statement.opcode
    base = opcode.partition(".")[0]
    if base == "call":
        tail = statement.tail.lstrip()
        return REGISTER.findall(tail.partition(")")[0]) if tail.startswith("(") else []
    if base == "mbarrier" and not opcode.startswith(_MBARRIER_WRITES):
        return []
    if base in ("wgmma", "tcgen05") or base in _WRITE_NOTHING:
        accumulates = opcode.startswith("wgmma.mma_async")
        if not accumulates and not opcode.startswith(_WRITE):
            return []
    tail = statement.tail
    if tail[:1] == "%" and "{" not in tail and "|" not in tail:
        first = tail.partition(",")[0].rstrip()
        return [first]
    first = tail.partition("}" if tail[:1] == "{" else ",")[0]
    return [] if first[:1] == "[" else REGISTER.findall(first)


def read_registers(statement: Statement) -> list[str]:
    """The registers that a statement reads, its guard too."""
    outputs = written(statement)
    names = REGISTER.findall(statement.tail)
    for name in outputs:
        if name in names:
            names.remove(name)
    return [*names, statement.guard] if statement.guard else names
