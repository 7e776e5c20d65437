"""What happens when in one run of a program, in rounds: for timelines.

Schedules that look for faults do one thing at a time, at random. Here every thread that can go on executes one
operation in each round, and every copy goes on by one step, so that what happens at once stands beside each other. It
is one of the schedules that the program may have; rounds are an order, and no time that hardware takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cupytma.sim.program.errors import ProgramError
from cupytma.sim.program.machine import Machine, Stop, Underway
from cupytma.sim.program.operation import Operation
from cupytma.sim.program.report import Finding, Place
from cupytma.sim.program.schedule import VAIN_POLLS, endless, report_hang
from cupytma.sim.program.state import ThreadState
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.sim.program.program import Program


@dataclass(frozen=True)
class Execution:
    """One operation of one thread.

    Attributes
    ----------
    place : Place
        The operation: thread, number, name, label, line.
    role : str
        The role of its thread.
    block : int
        The block of its thread.
    came, executed : int
        The round in which the thread came to it, and the one in which it was executed; the rounds between them it
        waited. Polls of one line that fail are part of the wait. `executed` is the round after the last one if it
        never was.
    can_wait : bool
        Whether it is an instruction that may have to wait.
    left_out : bool
        Whether the program goes without it.
    hangs : bool
        Whether it was never executed.
    """

    place: Place
    role: str
    block: int
    came: int
    executed: int
    can_wait: bool
    left_out: bool = False
    hangs: bool = False

    @property
    def waited(self) -> int:
        """Rounds."""
        return self.executed - self.came


@dataclass(frozen=True)
class Flight:
    """A copy on its way; a multicast has one for each block.

    Attributes
    ----------
    place : Place
        The operation that started it.
    block : int
        The block of the thread that did.
    started : int
        The first round in which it was on its way.
    steps : tuple of int
        The rounds in which it went on: it read, or wrote a piece.
    ended : int
        One past the last round.
    """

    place: Place
    block: int
    started: int
    steps: tuple[int, ...]
    ended: int


@dataclass(frozen=True)
class Trace:
    """What happened when in one run of a program.

    Attributes
    ----------
    program : str
        The program's name.
    latency : int
        Rounds after its start in which a copy does nothing yet.
    rounds : int
        How many there were.
    kernels : tuple of int
        The first round of each kernel.
    threads : tuple of str
        The names of all threads, in the order of the program's roles.
    executions : tuple of Execution
        In the order of their rounds.
    flights : tuple of Flight
        In the order in which they were started.
    findings : tuple of Finding
        What this run showed; of schedule 0.
    ended : bool
        Whether every thread came to its end.
    """

    program: str
    latency: int
    rounds: int
    kernels: tuple[int, ...]
    threads: tuple[str, ...]
    executions: tuple[Execution, ...]
    flights: tuple[Flight, ...]
    findings: tuple[Finding, ...]
    ended: bool

    def in_flight(self, round_number: int) -> int:
        """How many copies are on their way in a round."""
        return sum(flight.started <= round_number < flight.ended for flight in self.flights)

    @property
    def most_in_flight(self) -> int:
        """The most copies that were on their way at once."""
        return max((self.in_flight(flight.started) for flight in self.flights), default=0)

    def __str__(self) -> str:
        waited = sum(execution.waited for execution in self.executions)
        end = "" if self.ended else ", not to its end"
        return (
            f"{self.program}: {counted(self.rounds, 'round')}{end}; operations {len(self.executions)}, rounds of "
            f"waiting {waited}, copies {len(self.flights)}, at most {self.most_in_flight} at once"
        )

    def _repr_svg_(self) -> str:
        from cupytma.view.program_timeline import timeline

        return timeline(self).svg


@dataclass(eq=False)
class _Copy:
    """A copy that is being recorded."""

    underway: Underway
    started: int
    steps: list[int] = field(default_factory=list)
    ended: int = 0


class Recorder:
    """Runs a program in rounds and notes what happens.

    Parameters
    ----------
    program : Program
    latency : int
        Rounds after its start in which a copy does nothing yet.
    seed : int
        Decides in how many pieces copies write.
    """

    def __init__(self, program: Program, latency: int, seed: int) -> None:
        self.machine = Machine(program, f"{seed}/rounds")
        self.latency = latency
        self.round = 0
        self.kernels: list[int] = []
        self.executions: list[Execution] = []
        self.copies: dict[Underway, _Copy] = {}
        self.came: dict[ThreadState, int] = {}
        self.threads: dict[str, None] = {}

    def run(self, step_limit: int) -> Trace:
        """All kernels, and what was noted.

        Raises
        ------
        ProgramError
            As `Program.run` does; there is no end if `step_limit` rounds are not enough.
        """
        machine, ended = self.machine, True
        try:
            for kernel in sorted({role.kernel for role in machine.program.roles}):
                machine.begin_kernel(kernel)
                self.kernels.append(self.round)
                self.threads |= dict.fromkeys(thread.name for thread in machine.threads)
                self.came = dict.fromkeys(machine.threads, self.round)
                ended = self._run_kernel(step_limit)
                if not ended:
                    break
                machine.end_kernel()
        except Stop:
            ended = False
            self.round += 1
        return self._trace(ended)

    def _run_kernel(self, step_limit: int) -> bool:
        vain = 0
        for _ in range(step_limit):
            alive = self.machine.alive()
            if not alive and not self.machine.underway:
                return True
            ready = [thread for thread in alive if self.machine.ready(thread)]
            fruitful = [thread for thread in ready if not self.machine.polls_in_vain(thread)]
            vain = 0 if fruitful or self.machine.underway else vain + 1
            if vain and (not ready or vain > VAIN_POLLS):
                report_hang(self.machine, alive)
                self.round += 1  # so that the wait is seen
                return False
            self._one_round(ready if vain else fruitful)
            self.round += 1
        raise ProgramError(endless(self.machine, step_limit))

    def _one_round(self, threads: list[ThreadState]) -> None:
        due = [copy for copy in self.copies.values() if not copy.ended and self.round >= copy.started + self.latency]
        for thread in threads:
            if self.machine.ready(thread):  # another thread of this round may have changed that
                self._execute(thread)
        for copy in due:
            self.machine.advance_copy(copy.underway)
            copy.steps.append(self.round)
            if copy.underway not in self.machine.underway:
                copy.ended = self.round + 1

    def _execute(self, thread: ThreadState) -> None:
        operation = thread.operation
        assert operation is not None
        before = len(self.machine.underway)
        failed = False
        try:
            self.machine.execute(thread)
            failed = thread.polled >= 0
        finally:
            if not (failed and _is_same(thread.operation, operation)):
                self._note(thread, operation)
        for underway in self.machine.underway[before:]:
            self.copies[underway] = _Copy(underway, self.round + 1)

    def _note(self, thread: ThreadState, operation: Operation, *, hangs: bool = False) -> None:
        self.executions.append(
            Execution(
                operation.place, thread.role, thread.block.index, self.came[thread], self.round,
                operation.behaviour.ready is not None or operation.behaviour.poll, self.machine.skips(operation), hangs,
            )
        )  # fmt: skip
        self.came[thread] = self.round + 1

    def _trace(self, ended: bool) -> Trace:
        for thread in self.machine.alive():
            if thread.operation is not None and not ended and self.came[thread] < self.round:
                self._note(thread, thread.operation, hangs=True)
        flights = tuple(
            Flight(
                copy.underway.operation.place, copy.underway.operation.thread.block.index, copy.started,
                tuple(copy.steps), copy.ended or self.round,
            )
            for copy in self.copies.values()
        )  # fmt: skip
        findings = tuple(
            Finding(found.rule, found.message, found.places, found.notes, found.fix, 0, 1)
            for found in self.machine.found.values()
        )
        return Trace(
            self.machine.program.name, self.latency, self.round, tuple(self.kernels), tuple(self.threads),
            tuple(self.executions), flights, findings, ended,
        )  # fmt: skip


def _is_same(one: Operation | None, other: Operation) -> bool:
    """Whether two operations of a thread are the same line."""
    return one is not None and (one.name, one.file, one.line) == (other.name, other.file, other.line)
