"""One instruction that a thread executes, and what executing it means."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cupytma.sim.program.errors import ProgramError
from cupytma.sim.program.report import Place

if TYPE_CHECKING:
    from cupytma.sim.program.state import ThreadState


@dataclass(frozen=True)
class Blocked:
    """Why a thread waits, when nothing can happen any more.

    Attributes
    ----------
    rank : int
        How likely this is the cause and not a consequence; 0 for the likeliest.
    rule : str
        The row of `RULES`.
    values : mapping
        For the row's message.
    text : str
        What the thread waits for, in words that follow "waits for".
    """

    rank: tuple[int, int]
    rule: str
    values: Mapping[str, Any]
    text: str


@dataclass(frozen=True)
class Behaviour:
    """What an instruction does. Every function takes the machine, the operation and the operation's operands.

    Attributes
    ----------
    execute : callable
        Does it, and returns what ``yield`` gives to the role.
    ready : callable or None
        Whether the thread can go on; None for instructions that never block.
    explain : callable or None
        Why it waits, as a `Blocked`; None for what cannot wait for ever.
    begin : callable or None
        What happens when a thread comes to it, before it can wait.
    poll : bool
        Whether it changes nothing, and is repeated until something else does.
    """

    execute: Callable[..., Any]
    ready: Callable[..., bool] | None = None
    explain: Callable[..., Blocked] | None = None
    begin: Callable[..., None] | None = None
    poll: bool = False


@dataclass(slots=True, eq=False)
class Operation:
    """An instruction with its operands, as a role yields it.

    Attributes
    ----------
    thread : ThreadState
        Who executes it.
    name : str
        As the instruction is called.
    behaviour : Behaviour
    operands : tuple
    file, line
        Where the role made it.
    label : str
        The name of the synchronisation step it is; empty if it is none.
    number : int
        How many the thread has executed before.
    """

    thread: ThreadState
    name: str
    behaviour: Behaviour
    operands: tuple[Any, ...]
    file: str
    line: int
    label: str = ""
    number: int = field(default=0)

    def named(self, label: str) -> Operation:
        """Name the operation as a synchronisation step, so that ``Program.without(label)`` can leave it out.

        Parameters
        ----------
        label : str
            Several operations may share one; they are left out together.

        Raises
        ------
        ProgramError
            If it is no text, or empty.
        """
        if not isinstance(label, str) or not label:
            raise ProgramError(f"the name of a step is {label!r}; it must be a text that is not empty")
        self.label = label
        return self

    @property
    def source(self) -> str:
        """File and line."""
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def place(self) -> Place:
        """Where it is, for a report."""
        return Place(self.thread.name, self.number, self.name, self.label, self.source)

    def __str__(self) -> str:
        return f"{self.name} of {self.thread.name}"


@dataclass(frozen=True)
class PhaseToken:
    """What an arrival returns: the phase that it arrived in.

    Attributes
    ----------
    block : int
        Of the barrier.
    barrier : str
        Its name.
    phase : int
        Counted from 0.
    """

    block: int
    barrier: str
    phase: int
