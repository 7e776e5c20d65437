"""How fast the operations are, beside torch, CuPy and CUDA's own calls, and as a part of what a plain copy reaches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cupytma.runtime.device import cupy

WARMUPS, REPEATS = 3, 15
# Bytes that are filled before each call: what is timed is the GPU's work, and the call is made while it is busy.
_QUEUED_BYTES = 1 << 29
_QUEUED_CALLS = 50
# Short calls are timed so many times more often.
_MORE_OFTEN = 6
# Extents are divided by one of these, so that the arrays fit the GPU.
SCALES = (1, 2, 4, 8, 16, 32)
# What the others are called.
TORCH, CUPY, CUDA = "torch", "CuPy", "CUDA"

Way = Callable[[], Any]
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Aim:
    """What an operation is to reach: one of three.

    Attributes
    ----------
    beside : str
        Another way, whose time is divided by ours: at least `times`.
    times : float
    of_copy : float
        Part of the bytes a second that a plain copy reaches.
    rate : float
        Bytes a second, on an H100 and at scale 1.
    """

    beside: str = ""
    times: float = 0
    of_copy: float = 0
    rate: float = 0

    def __str__(self) -> str:
        if self.beside:
            return f"{self.times:g} × {self.beside}"
        return f"{self.of_copy:g} of a copy" if self.of_copy else f"{self.rate / 1e9:,.0f} GB/s"


@dataclass(frozen=True)
class Work:
    """One operation on arrays that are there.

    Attributes
    ----------
    title : str
    bytes : int
        Read plus written; of im2col, which reads the same many times over, written; 0 where none count.
    ours : callable
    others : dict of str to callable
        The same by other libraries, by name.
    """

    title: str
    bytes: int
    ours: Way
    others: dict[str, Way]


@dataclass(frozen=True)
class Case:
    """One operation that can be measured. Knows nothing of the GPU.

    Attributes
    ----------
    name : str
        The operation, and after a hyphen what tells it from others of the same.
    description : str
    make : callable
        Makes the arrays, given the scale.
    arrays : int
        Bytes of all arrays at scale 1.
    power : int
        They shrink with the scale to this power.
    group : str
        ``"large"``, ``"small"`` or ``"launch"``.
    timing : str
        One of `TIMINGS`.
    aims : tuple of Aim
    """

    name: str
    description: str
    make: Callable[[int], Work]
    arrays: int = 0
    power: int = 0
    group: str = "large"
    timing: str = "device"
    aims: tuple[Aim, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Its own, its operation's and its group's."""
        return frozenset((self.name, self.name.partition("-")[0], self.group))

    def memory(self, scale: int) -> int:
        """Bytes of device memory that it takes, with what making random numbers needs beside them."""
        shrunk: int = scale**self.power
        return 2 * self.arrays // shrunk + _QUEUED_BYTES


class Unavailable(Exception):
    """Why a case cannot be measured here."""


@dataclass(frozen=True)
class Measurement:
    """A case's medians.

    Attributes
    ----------
    case : Case
    title : str
    bytes : int
        As of the `Work`.
    seconds : float
        Of one call.
    others : dict of str to float
        Seconds of the others.
    copy_rate : float
        Bytes a second, read plus written, of a plain copy in the same run.
    scale : int
    """

    case: Case
    title: str
    bytes: int
    seconds: float
    others: dict[str, float]
    copy_rate: float
    scale: int = 1

    @property
    def rate(self) -> float:
        """Bytes read plus written a second."""
        return self.bytes / self.seconds

    @property
    def of_copy(self) -> float:
        """That, as a part of what a plain copy reaches: the roofline of an operation that only moves bytes."""
        return self.rate / self.copy_rate

    def times(self, other: str) -> float | None:
        """Another way's time over ours; None where there is none."""
        return self.others[other] / self.seconds if other in self.others else None

    def reached(self, aim: Aim) -> str:
        """What is reached of an aim, in its own measure."""
        if aim.beside:
            times = self.times(aim.beside)
            return f"no {aim.beside} here" if times is None else f"{times:.2f} ×"
        return f"{self.of_copy:.3f}" if aim.of_copy else f"{self.rate / 1e9:,.0f} GB/s"

    def is_reached(self, aim: Aim) -> bool | None:
        """Whether an aim is reached; None where it cannot be told: the other is not installed, or sizes are smaller."""
        if aim.beside:
            times = self.times(aim.beside)
            return None if times is None else times >= aim.times
        if aim.of_copy:
            return self.of_copy >= aim.of_copy
        return None if self.scale != 1 else self.rate >= aim.rate


@dataclass(frozen=True)
class Skipped:
    """A case that was not measured, and why."""

    case: Case
    reason: str


def _on_device(ways: dict[str, Way], repeats: int) -> Seconds:
    """Seconds on the GPU, all ways in alternation."""
    module = cupy()
    scratch = module.empty(_QUEUED_BYTES, module.uint8)
    seconds: Seconds = {name: [] for name in ways}
    for repeat in range(WARMUPS + repeats):
        for name, work in ways.items():
            start, end = module.cuda.Event(), module.cuda.Event()
            scratch.fill(repeat % 256)
            start.record()
            work()
            end.record()
            end.synchronize()
            if repeat >= WARMUPS:
                seconds[name].append(1e-3 * module.cuda.get_elapsed_time(start, end))
    return seconds


def _end_to_end(calls: int, waits: bool) -> Callable[[dict[str, Way], int], Seconds]:
    """Seconds of a call on the host, of so many in a row, until the GPU has done them or until they are made."""

    def measured(ways: dict[str, Way], repeats: int) -> Seconds:
        synchronize = cupy().cuda.Device().synchronize
        seconds: Seconds = {name: [] for name in ways}
        for repeat in range(WARMUPS + _MORE_OFTEN * repeats):
            for name, work in ways.items():
                synchronize()
                start = time.perf_counter()
                for _ in range(calls):
                    work()
                if waits:
                    synchronize()
                if repeat >= WARMUPS:
                    seconds[name].append((time.perf_counter() - start) / calls)
        synchronize()
        return seconds

    return measured


# How a case can be timed.
TIMINGS: dict[str, Callable[[dict[str, Way], int], Seconds]] = {
    "device": _on_device,
    "alone": _end_to_end(1, waits=True),
    "queued": _end_to_end(_QUEUED_CALLS, waits=True),
    "host": _end_to_end(_QUEUED_CALLS, waits=False),
}


def chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases of given names; all where none is given.

    Parameters
    ----------
    cases : sequence of Case
    names : sequence of str
        Of cases, of operations, or of groups.
    """
    return [case for case in cases if not names or case.names & set(names)]


def fitting_scale(cases: Iterable[Case], free: int) -> int:
    """The smallest scale at which every case fits into so many bytes of memory; the largest where none does."""
    found = list(cases)
    return next((scale for scale in SCALES if all(case.memory(scale) <= free for case in found)), SCALES[-1])


def free_memory() -> int:
    """Bytes of the current device that can be allocated, once what the libraries hold back is given up."""
    import sys

    module, torch = cupy(), sys.modules.get("torch")
    module.get_default_memory_pool().free_all_blocks()
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return int(module.cuda.runtime.memGetInfo()[0])


def measure(case: Case, scale: int, repeats: int, copy_rate: float) -> Measurement | Skipped:
    """Medians of one case, all ways in alternation; or why it cannot be measured."""
    needed, free = case.memory(scale), free_memory()
    if needed > free:
        return Skipped(
            case, f"it needs {needed / 2**30:.1f} GiB of device memory, and {free / 2**30:.1f} GiB are free"
        )
    try:
        work = case.make(scale)
        seconds = TIMINGS[case.timing]({"": work.ours, **work.others}, repeats)
    except Unavailable as error:
        return Skipped(case, str(error))
    except Exception as error:
        if "OutOfMemory" not in type(error).__name__:
            raise
        return Skipped(case, f"device memory is full: {error}")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return Measurement(case, work.title, work.bytes, medians.pop(""), medians, copy_rate, scale)


def copy_rate(scale: int, repeats: int) -> float:
    """Bytes a second, read plus written, of CUDA's own copy within the device: 2 GiB at scale 1."""
    module = cupy()
    count = 2**31 // scale**2
    source, destination = (module.zeros(count, module.uint8) for _ in range(2))

    def plain() -> None:
        module.cuda.runtime.memcpyAsync(
            destination.data.ptr, source.data.ptr, count, 3, module.cuda.get_current_stream().ptr
        )

    return 2 * count / statistics.median(TIMINGS["device"]({"": plain}, repeats)[""])


def run(
    cases: Iterable[Case], scale: int = 1, repeats: int = REPEATS, started: Callable[[Case], None] = lambda _: None
) -> Iterator[Measurement | Skipped]:
    """Measure cases, one after the other, and a plain copy before them.

    Parameters
    ----------
    cases : iterable of Case
    scale : int
        Extents of large arrays are divided by this; 1 for sizes far past the L2 cache.
    repeats : int
        Of each call; the median counts.
    started : callable
        Told of each case before it is measured.
    """
    copied = copy_rate(scale, repeats)
    for case in cases:
        started(case)
        yield measure(case, scale, repeats, copied)
