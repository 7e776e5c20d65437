"""What is raised about a program that cannot be run; what is wrong with one that can is reported instead."""

from __future__ import annotations

from typing import Any

from cupytma.errors import SimulationError
from cupytma.sim.checks import check_integer


class ProgramError(SimulationError):
    """A program that cannot be run: operands that no instruction takes, a role that raises, or no end in sight."""


def check_whole(name: str, value: Any) -> int:
    """A whole number, which True and False are not.

    Raises
    ------
    ProgramError
    """
    try:
        return check_integer(name, value)
    except SimulationError as error:
        raise ProgramError(str(error)) from None


def check_range(name: str, value: Any, low: int, high: int) -> int:
    """A whole number within limits, both inclusive.

    Raises
    ------
    ProgramError
    """
    number = check_whole(name, value)
    if not low <= number <= high:
        raise ProgramError(f"{name} is {number}; it must be {low} to {high}")
    return number


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """One of a few values.

    Raises
    ------
    ProgramError
    """
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise ProgramError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}")
    return value
