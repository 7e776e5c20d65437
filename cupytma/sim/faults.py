"""What the simulator raises, and the rules behind it.

Faults of the hardware were measured on an H100: the kernel died in every case of the kind and in none of its
neighbours. Each message says which rule was broken, the value, the limit, and what to change.
"""

from __future__ import annotations

from cupytma.errors import Fault, SimulationError

__all__ = [
    "Fault",
    "IllegalInstruction",
    "MisalignedAddress",
    "NotSimulatedError",
    "OutOfWindow",
    "SharedOverrun",
    "SimulationError",
]


class IllegalInstruction(Fault):
    """Hardware reports an illegal instruction: the operands of the copy break a rule of the unit."""


class MisalignedAddress(Fault):
    """Hardware reports a misaligned address: the shared tile does not start at a multiple of 128 bytes."""


class OutOfWindow(Fault):
    """The copy touches global memory outside the ``memory`` array it was given.

    Hardware touches those bytes if they are mapped, whoever they belong to, and reports an illegal address if not.
    """


class SharedOverrun(Fault):
    """The tile runs past the end of the ``shared`` array."""


class NotSimulatedError(SimulationError):
    """A legal descriptor or operation whose behaviour the simulator does not know."""
