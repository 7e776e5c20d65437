"""A program: what it declares, its roles, and the exploration of its schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cupytma.limits import ADDRESS_LIMIT, MAX_BLOCK_THREADS, MAX_CLUSTER, MAX_GRID, TILE_ALIGNMENT
from cupytma.sim.program.errors import ProgramError, check_range
from cupytma.sim.program.machine import Machine
from cupytma.sim.program.memory import MBARRIER_BYTES, Allocation, Mbarrier, ProgramArray, whole_array
from cupytma.sim.program.operands import integers
from cupytma.sim.program.report import Finding, Report
from cupytma.sim.program.schedule import STYLES, run
from cupytma.sim.program.thread import Thread
from cupytma.sim.program.trace import Recorder, Trace
from cupytma.targets import DEFAULT_TARGET, target

# Where global arrays begin unless the program says otherwise: every run has the same addresses.
_FIRST_ADDRESS = 0x7F00_0000_0000
_GLOBAL_ALIGNMENT = 256
_MOST = 2**31 - 1
_STEP_LIMIT = 100_000
_NO_NUMBERS = "USMm"  # texts and times; of kind "V" are types of numbers that numpy lacks, and tensor maps

RoleBody = Callable[[Thread], Any]


@dataclass(frozen=True)
class Role:
    """What some threads of a kernel do.

    Attributes
    ----------
    name : str
    body : callable
        A generator function of a `Thread`.
    threads : int
        How many threads of each block have the role.
    blocks : tuple of int or None
        The blocks that have it; None for all.
    kernel : int
        The kernel it belongs to; kernels run one after the other.
    """

    name: str
    body: RoleBody
    threads: int
    blocks: tuple[int, ...] | None
    kernel: int


class Program:
    """A model of a kernel, or of several in stream order: memory, mbarriers, and roles in a few lines of Python.

    A role is a generator function that yields the operations of its thread, which are named as `cupytma.ptx` names the
    instructions. `run` executes the program under many schedules, moves the bytes, and reports what the PTX memory
    model, the mbarriers and the bulk groups find wrong with it. A model thread may stand for a thread or for a warp
    that acts as one.

    Parameters
    ----------
    name : str
    blocks : int
        Blocks of the grid.
    cluster : int
        Blocks of a cluster, 1 to 16; it divides `blocks`.

    Attributes
    ----------
    name, blocks, cluster
        As given.
    roles : tuple of Role
    arrays : dict of str to ProgramArray
        The arrays in global memory, by name.

    Raises
    ------
    ProgramError
        For numbers that no grid has.

    Notes
    -----
    Sources: PTX ISA, "Memory Consistency Model", "Asynchronous Operations", "mbarrier" and the sections named after
    the instructions; measurements on an H100 where the rows of `RULES` say so.

    Examples
    --------
    >>> import numpy as np
    >>> program = Program("fill")
    >>> data = program.global_array("data", np.zeros(4, np.int32))
    >>> tile = program.shared_array("tile", (4,), np.int32)
    >>> @program.role
    ... def worker(t):
    ...     yield t.write_shared(tile, [1, 2, 3, 4])
    ...     yield t.fence_proxy_async(space="shared::cta")
    ...     yield t.bulk_copy(data, tile)
    ...     yield t.bulk_commit_group()
    ...     yield t.bulk_wait_group(0, read=True)
    >>> report = program.run(schedules=20)
    >>> print(report, report.arrays["data"])
    fill: 20 schedules, clean [1 2 3 4]
    """

    def __init__(self, name: str, *, blocks: int = 1, cluster: int = 1) -> None:
        if not isinstance(name, str) or not name:
            raise ProgramError(f"name is {name!r}; it must be a text that is not empty")
        self.name = name
        self.blocks = check_range("blocks", blocks, 1, MAX_GRID[0])
        self.cluster = check_range("cluster", cluster, 1, MAX_CLUSTER)
        if self.blocks % self.cluster:
            raise ProgramError(f"{blocks} blocks are no multiple of the cluster's {cluster}")
        self.roles: tuple[Role, ...] = ()
        self.skipped: frozenset[str] = frozenset()
        self.global_allocations: tuple[Allocation, ...] = ()
        self.shared_bytes = 0
        self.initial: dict[str, npt.NDArray[np.uint8]] = {}
        self.arrays: dict[str, ProgramArray] = {}
        self._names: set[str] = set()
        self._steps: tuple[str, ...] | None = None

    # Declarations.

    def global_array(self, name: str, values: Any, *, address: int | None = None) -> ProgramArray:
        """An array in global memory, which the host fills before the launch.

        Parameters
        ----------
        name : str
        values : array_like
            What it holds at the start; copied.
        address : int, optional
            Of its first byte. Default: the next multiple of 256 bytes that is free.

        Raises
        ------
        ProgramError
            If the name is taken, the array is no array of numbers, or it would overlap another one.
        """
        self._take(name)
        try:
            found = np.ascontiguousarray(values)
        except ValueError as error:
            raise ProgramError(f"{name} is no array: {error}") from None
        if found.dtype.hasobject or found.dtype.kind in _NO_NUMBERS:
            raise ProgramError(f"{name} has dtype {found.dtype}; it must be an array of numbers")
        end = max((a.address + a.size for a in self.global_allocations), default=_FIRST_ADDRESS)
        if address is None:
            start = _aligned(end, _GLOBAL_ALIGNMENT)
        else:
            start = check_range("address", address, 0, ADDRESS_LIMIT - 1)
        allocation = Allocation(name, "global", start, found.nbytes)
        for other in self.global_allocations:
            if start < other.address + other.size and other.address < start + allocation.size:
                raise ProgramError(f"{name} at {start:#x} overlaps {other.name} at {other.address:#x}")
        self.global_allocations += (allocation,)
        self.initial[name] = found.reshape(-1).view(np.uint8).copy()
        self.arrays[name] = whole_array(allocation, found.dtype, np.shape(values))
        return self.arrays[name]

    def shared_array(
        self,
        name: str,
        shape: int | tuple[int, ...],
        dtype: Any = np.uint8,
        *,
        align: int = TILE_ALIGNMENT,
        offset: int | None = None,
    ) -> ProgramArray:
        """An array in the shared memory of every block, filled with nothing.

        Parameters
        ----------
        name : str
        shape : int or tuple of int
            In elements, array order.
        dtype : dtype
        align : int
            Alignment in bytes; a power of two.
        offset : int, optional
            Byte of shared memory where it begins, which may be that of another array. Default: after all others.

        Raises
        ------
        ProgramError
            If the name is taken, or the shared memory of a block does not hold it.
        """
        element = _dtype(name, dtype)
        extents = _shape(name, shape)
        size = int(np.prod(extents, dtype=np.int64)) * element.itemsize
        check_range("align", align, 1, 2**16)
        if align & (align - 1):
            raise ProgramError(f"align is {align}; it must be a power of two")
        return whole_array(self._shared(name, size, align, offset), element, extents)

    def mbarrier(self, name: str) -> Mbarrier:
        """An mbarrier object in the shared memory of every block; a role has to initialise it."""
        return Mbarrier(self._shared(name, MBARRIER_BYTES, MBARRIER_BYTES, None))

    def mbarriers(self, name: str, count: int) -> tuple[Mbarrier, ...]:
        """Several mbarriers, named with their number, such as the ones of the stages of a pipeline."""
        return tuple(self.mbarrier(f"{name}[{i}]") for i in range(check_range("count", count, 0, _MOST)))

    def _shared(self, name: str, size: int, align: int, offset: int | None) -> Allocation:
        self._take(name)
        most = target(DEFAULT_TARGET).shared_bytes
        start = _aligned(self.shared_bytes, align) if offset is None else check_range("offset", offset, 0, most)
        if start % align:
            raise ProgramError(f"{name} at byte {start} of shared memory is not aligned to {align}")
        if start + size > most:
            raise ProgramError(f"{name} of {size} B ends at byte {start + size} of shared memory; a block has {most}")
        self.shared_bytes = max(self.shared_bytes, start + size)
        return Allocation(name, "shared", start, size)

    def _take(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ProgramError(f"name is {name!r}; it must be a text that is not empty")
        if name in self._names:
            raise ProgramError(f"{name!r} is declared already; give every array and mbarrier a name of its own")
        self._names.add(name)

    # Roles.

    @overload
    def role(
        self,
        body: RoleBody,
        *,
        name: str | None = None,
        threads: int = 1,
        blocks: Iterable[int] | None = None,
        kernel: int = 0,
    ) -> RoleBody: ...
    @overload
    def role(
        self, *, name: str | None = None, threads: int = 1, blocks: Iterable[int] | None = None, kernel: int = 0
    ) -> Callable[[RoleBody], RoleBody]: ...
    def role(
        self,
        body: RoleBody | None = None,
        *,
        name: str | None = None,
        threads: int = 1,
        blocks: Iterable[int] | None = None,
        kernel: int = 0,
    ) -> RoleBody | Callable[[RoleBody], RoleBody]:
        """Add a role; also as a decorator, with or without arguments.

        Parameters
        ----------
        body : callable
            A generator function that takes a `Thread` and yields its operations.
        name : str, optional
            Default: the function's.
        threads : int
            Threads of each block that have the role.
        blocks : iterable of int, optional
            The blocks that have it. Default: all.
        kernel : int
            Number of the kernel, which begins when the one before has ended.

        Raises
        ------
        ProgramError
            For numbers that no grid has, a body that cannot be called, or a name that is taken in the kernel.
        """
        check_range("threads", threads, 1, MAX_BLOCK_THREADS)
        check_range("kernel", kernel, 0, _MOST)
        given = None if blocks is None else integers("blocks", blocks)
        chosen = None if given is None else tuple(check_range("blocks", b, 0, self.blocks - 1) for b in given)

        def add(function: RoleBody) -> RoleBody:
            if not callable(function):
                raise ProgramError(f"a role is a generator function, not {function!r}")
            known = str(name or getattr(function, "__name__", type(function).__name__))
            if any(role.name == known and role.kernel == kernel for role in self.roles):
                raise ProgramError(f"kernel {kernel} has a role {known!r} already; pass another name")
            self.roles += (Role(known, function, threads, chosen, kernel),)
            self._steps = None
            return function

        return add if body is None else add(body)

    # Running.

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of its synchronisation steps, in the order in which they are first met.

        Raises
        ------
        ProgramError
            As `run`.
        """
        if self._steps is None:
            machine = Machine(self._skipping(frozenset()), "steps")
            run(machine, STYLES[0], _STEP_LIMIT)
            self._steps = tuple(machine.labels)
        return self._steps

    def without(self, *steps: str) -> Program:
        """The same program without some of its synchronisation steps: those named so with ``Operation.named``.

        Raises
        ------
        ProgramError
            If it has no such step.
        """
        for step in steps:
            if step not in self.steps:
                raise ProgramError(f"{self.name} has no step {step!r}; it has {', '.join(map(repr, self.steps))}")
        return self._skipping(self.skipped | set(steps))

    def _skipping(self, skipped: frozenset[str]) -> Program:
        made = copy(self)
        made.skipped = skipped
        return made

    def run(self, *, schedules: int = 100, seed: int = 0, step_limit: int = _STEP_LIMIT) -> Report:
        """Execute the program under many schedules.

        Parameters
        ----------
        schedules : int
            How many. Races are found in every schedule that reaches both accesses; what hangs or depends on the order
            may need many.
        seed : int
            What the schedules are drawn from. The same seed gives the same report.
        step_limit : int
            Operations and steps of copies that one kernel may take.

        Returns
        -------
        Report

        Raises
        ------
        ProgramError
            If there is no role, a role raises, or yields what it should not, an operand is none that the instruction
            takes, or the program does not end within `step_limit`.
        """
        check_range("schedules", schedules, 1, _MOST)
        self._check_run(seed, step_limit)
        gathered = _Gathered(self)
        for number in range(schedules):
            machine = Machine(self, f"{seed}/{number}")
            ended = run(machine, STYLES[number % len(STYLES)], step_limit)
            gathered.add(number, machine, ended)
        return gathered.report(schedules, seed)

    def trace(self, *, latency: int = 4, seed: int = 0, step_limit: int = _STEP_LIMIT) -> Trace:
        """Execute the program once, in rounds, and record what happens when; `cupytma.view.timeline` draws it.

        In each round every thread that can go on executes one operation, and every copy goes on by one step. This is
        one of many schedules: what it finds is wrong, and what it does not find may be wrong too, see `run`.

        Parameters
        ----------
        latency : int
            Rounds after its start in which a copy does nothing yet: a model of the way to memory.
        seed : int
            Decides in how many pieces copies write.
        step_limit : int
            Rounds that one kernel may take.

        Returns
        -------
        Trace

        Raises
        ------
        ProgramError
            As `run`.
        """
        check_range("latency", latency, 0, _MOST)
        self._check_run(seed, step_limit)
        return Recorder(self, latency, seed).run(step_limit)

    def _check_run(self, seed: int, step_limit: int) -> None:
        check_range("seed", seed, -(2**63), 2**63 - 1)
        check_range("step_limit", step_limit, 1, _MOST)
        if not any(role.blocks != () for role in self.roles):
            raise ProgramError(f"{self.name} has no role that any block runs; add one with `@program.role`")


class _Gathered:
    """What the schedules of one program have shown so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.findings: dict[Any, Finding] = {}
        self.bytes: dict[str, npt.NDArray[np.uint8]] | None = None
        self.differ: set[str] = set()

    def add(self, number: int, machine: Machine, ended: bool) -> None:
        """One more schedule."""
        for key, found in machine.found.items():
            if key in self.findings:
                known = self.findings[key]
                self.findings[key] = replace(known, schedules=known.schedules + 1)
            else:
                self.findings[key] = Finding(found.rule, found.message, found.places, found.notes, found.fix, number, 1)
        if not ended:
            return
        held = {name: store.bytes for name, store in machine.globals.items()}
        if self.bytes is None:
            self.bytes = held
        self.differ |= {name for name in held if not np.array_equal(held[name], self.bytes[name])}

    def report(self, schedules: int, seed: int) -> Report:
        """All of it."""
        arrays = self.program.arrays
        held = {name: arrays[name].read(found) for name, found in (self.bytes or {}).items()}
        differ = tuple(name for name in arrays if name in self.differ)
        program = self.program
        left_out = f" without {', '.join(map(repr, sorted(program.skipped)))}" if program.skipped else ""
        return Report(program.name + left_out, schedules, seed, tuple(self.findings.values()), held, differ)


def _aligned(number: int, align: int) -> int:
    return -(-number // align) * align


def _dtype(name: str, dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise ProgramError(f"{name}: {dtype!r} is no dtype: {error}") from None
    if found.hasobject or not found.itemsize or found.kind in _NO_NUMBERS:
        raise ProgramError(f"{name} has dtype {found}; it must be a type of numbers")
    return found


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    extents = shape if isinstance(shape, tuple) else (shape,)
    return tuple(check_range(f"{name}: an extent", extent, 0, _MOST) for extent in extents)
