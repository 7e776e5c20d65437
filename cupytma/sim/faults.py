"""What the simulator raises, and the rules behind it.

Faults of the hardware were measured on an H100: the kernel died in every case of the kind and in none of its
neighbours. Each message says which rule was broken, the value, the limit, and what to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from cupytma.errors import Fault, SimulationError

if TYPE_CHECKING:
    from cupytma.tensormap.rule import Violation

__all__ = [
    "Fault",
    "IllegalInstruction",
    "LaunchFailure",
    "MisalignedAddress",
    "NotSimulatedError",
    "OutOfWindow",
    "SharedOverrun",
    "SimulationError",
]


class _UnitFault(Fault):
    """A fault that the unit reports."""

    report: ClassVar[str]

    def __init__(self, message: str, violations: Sequence[Violation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)
        self.topics = (*dict.fromkeys(violation.rule for violation in self.violations), *type(self).topics)


class IllegalInstruction(_UnitFault):
    """Hardware reports an illegal instruction: the operands of the copy break a rule of the unit.

    Attributes
    ----------
    violations : tuple of Violation
        Every broken fault row of the rule table; empty where the fault is about no row (a reduction that is refused).
    """

    report = "illegal instruction"
    topics: tuple[str, ...] = ("illegal-instruction",)


class MisalignedAddress(_UnitFault):
    """Hardware reports a misaligned address: the shared tile does not start where the unit can begin.

    Attributes
    ----------
    violations : tuple of Violation
        Every broken fault row of the rule table.
    """

    report = "misaligned address"
    topics: tuple[str, ...] = ("misaligned-address",)


class OutOfWindow(Fault):
    """The copy touches global memory outside the ``memory`` array it was given.

    Hardware touches those bytes if they are mapped, whoever they belong to, and reports an illegal address if not.
    """

    topics: tuple[str, ...] = ("illegal-address",)


class SharedOverrun(Fault):
    """The tile runs past the end of the ``shared`` array.

    Hardware reports an illegal address where a tile, of a load or a store, ends outside the block's shared memory
    (measured on an H200).
    """

    topics: tuple[str, ...] = ("illegal-address",)


class LaunchFailure(Fault):
    """Hardware reports an unspecified launch failure: a multicast to a block that is not in the cluster.

    Measured on an H200.
    """

    topics: tuple[str, ...] = ("launch-failed",)


class NotSimulatedError(SimulationError):
    """A descriptor or operation whose behaviour is neither measured nor documented."""


# What the hardware reports for each fault row of `cupytma.tensormap.cautions`; where several rows are broken, the first
# row here decides what is raised.
FAULT_OF_RULE: dict[str, type[_UnitFault]] = {
    "start-inner-multiple": IllegalInstruction,
    "store-start": IllegalInstruction,
    "store-lower-corner": IllegalInstruction,
    "pixel-start": IllegalInstruction,
    "tile-alignment": MisalignedAddress,
}


def fault_of(broken: Sequence[Violation]) -> Fault:
    """The fault of one or more broken fault rows; its message names all of them, one a line."""
    order = list(FAULT_OF_RULE)
    broken = sorted(broken, key=lambda violation: order.index(violation.rule))
    lines = (f"{FAULT_OF_RULE[v.rule].report}: {v.message}; {v.fix}" for v in broken)
    return FAULT_OF_RULE[broken[0].rule]("\n".join(lines), broken)
