"""mbarrier objects in shared memory: initialisation, arrival, transaction counts and waiting.

Source of every row: PTX ISA, the section of the instruction's name. Transaction counts are in bytes, for
``cp.async.bulk`` and its kin complete them so.
"""

from __future__ import annotations

from cupytma.ptx import operands
from cupytma.ptx.family import Argument, Choice, Clash, Family, Given, Note, Requirement, Word, flag, given, optional
from cupytma.ptx.instruction import Instruction

_SECTION = "Parallel Synchronization and Communication Instructions: "
_MBARRIER = Argument("[%]", (operands.mbarrier(),))
_SCOPE = optional("scope", "cta", "cluster")
_STATE = Word("state", (Choice(True), Choice(False, "", "_sink")))
_STATE_ARGUMENTS = (Argument("%", (operands.STATE,), given(state=True)), Argument("_", (), given(state=False)))

_SCOPES: tuple[str, ...] = ("cta", "cluster")
_TOGETHER = "semantics={semantics!r} clashes with scope={scope!r}: PTX writes both or neither; legal scopes with "
_LONELY_SEMANTICS = Clash(
    lambda words: words["semantics"] is not None and words["scope"] is None,
    _TOGETHER + "semantics={semantics!r}: 'cta', 'cluster'",
)


def _pair(*semantics: str) -> tuple[Clash, Clash]:
    """The two ways to give only one of semantics and scope."""
    legal = ", ".join(map(repr, semantics))
    return (
        Clash(
            lambda words: words["semantics"] is not None and words["scope"] is None,
            "semantics={semantics!r} without a scope: PTX writes both or neither; add scope='cta' or scope='cluster'",
        ),
        Clash(
            lambda words: words["semantics"] is None and words["scope"] is not None,
            f"scope={{scope!r}} without semantics: PTX writes both or neither; legal semantics: {legal}",
        ),
    )
