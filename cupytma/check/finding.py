"""What the checker says: rules, and findings that break them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How sure it is that something goes wrong."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Rule:
    """One thing that the checker looks for.

    Attributes
    ----------
    id : str
    severity : Severity
    title : str
        What must hold, in one line.
    explanation : str
        What goes wrong otherwise.
    fix : str
    source : str
        Where it is documented.
    bad, good : str
        A kernel that breaks the rule and no other, and the same one mended. CUDA C++; PTX where the compiler refuses
        the bad one.
    target : str
        What the examples are compiled for.
    """

    id: str
    severity: Severity
    title: str
    explanation: str
    fix: str
    source: str
    bad: str
    good: str
    target: str = "sm_90a"


@dataclass(frozen=True)
class Finding:
    """Something in a kernel that breaks a rule.

    Attributes
    ----------
    rule : str
        The rule's id.
    severity : str
        ``"error"``, ``"warning"`` or ``"note"``.
    message : str
        What is wrong, with the names and numbers of this place.
    fix : str
    function : str
        The kernel or function, by its name in PTX.
    file : str
        The user's source, where the PTX has line information; else empty.
    line : int
        In `file`, or in the PTX where there is none; from 1.
    column : int
        From 1; 0 where it is not known.
    ptx_line : int
        In the PTX, from 1.
    inlined : tuple of str
        Where the instruction itself is written, as ``file:line``, and where the functions around it are inlined, inside
        out; empty without line information.
    """

    rule: str
    severity: str
    message: str
    fix: str
    function: str
    file: str
    line: int
    column: int
    ptx_line: int
    inlined: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where it is, as compilers write it."""
        return f"{self.file or 'PTX'}:{self.line}"

    def _repr_html_(self) -> str:
        from cupytma.view.html import printed

        return printed(self)

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.message} [{self.rule}]\n    fix: {self.fix}"
