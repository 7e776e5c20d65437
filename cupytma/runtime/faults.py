"""Faults of kernels: what an error that stays means, and which of the last launches probably caused it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupytma.errors import DriverError, LaunchError, more_line
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.runtime.history import LaunchRecord, recent
from cupytma.sticky import STICKY_ERRORS, StickyError, code_of, earlier_fault
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.runtime.launch_rules import Suspect

__all__ = ["FaultReport", "earlier_fault", "explain_fault", "explained_faults", "launch_failure", "synchronize"]

_NOT_READY, _ILLEGAL_INSTRUCTION, _TIMEOUT = 600, 715, 702
_SHOWN = 5
_NEXT = (
    "the context is lost: start a new process. There, cupytma.checks(True) judges every launch before it is made, "
    "cupytma.declare_coordinates tells it where copies start, and CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer find the "
    "kernel"
)


@dataclass(frozen=True, eq=False)
class FaultReport:
    """What `explain_fault` found; ``str`` gives it in full.

    Attributes
    ----------
    code : int or None
        The device's answer, a ``CUresult`` or ``cudaError_t``; None where there was none to be had.
    error : StickyError or None
        What it means: the row of `cupytma.sticky.STICKY_ERRORS`; None for an answer that is no fault of a kernel.
    suspects : tuple of Suspect
        The rules that the last launches break and that give this answer, the likeliest first. Of launches of a kernel
        that break a rule alike, the newest.
    launches : tuple of LaunchRecord
        The last launches, newest first.
    is_running : bool
        Whether nothing has failed, and work is still under way.
    """

    code: int | None
    error: StickyError | None
    suspects: tuple[Suspect, ...]
    launches: tuple[LaunchRecord, ...]
    is_running: bool = False

    def _repr_html_(self) -> str:
        from cupytma.view.html import printed

        return printed(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        what = "still running" if self.is_running else self.error.name if self.error else f"code {self.code}"
        named = f"{self.suspects[0].record.name}: {self.suspects[0].rule}" if self.suspects else "none"
        return f"<FaultReport {what}; {counted(len(self.launches), 'launch')} known; likeliest cause: {named}>"

    def _lines(self) -> Iterator[str]:
        yield self._headline()
        certain = [suspect for suspect in self.suspects if suspect.is_certain]
        if self.suspects:
            yield "likely cause:" if certain else "possible causes:"
            shown: LaunchRecord | None = None
            for suspect in self.suspects[:_SHOWN]:
                if suspect.record is not shown:
                    shown = suspect.record
                    yield f"  {shown.summary}"
                yield f"    {suspect}"
            if len(self.suspects) > _SHOWN:
                yield f"  and {len(self.suspects) - _SHOWN} more in `suspects`"
        elif self.launches and self.error and not self.is_running:
            yield "no launch that is known breaks a rule that could be judged without its coordinates and addresses"
        if self.error and not certain:
            yield from self._general(self.error)
        if self.launches:
            yield "last launches, newest first:"
            yield from (f"  {record.summary}" for record in self.launches[:_SHOWN])
        else:
            yield "no launch through cupytma is known"
        if self.error and not self.is_running:
            yield _NEXT
        if self.error:
            yield more_line((self.error.topic,))

    def _headline(self) -> str:
        if self.is_running:
            return "no fault: work is still under way. If it never ends, a kernel hangs"
        if self.error:
            return str(self.error)
        if self.code:
            return f"{self.code} is no fault of a kernel: it is about the call that was answered"
        return "no fault is known" if self.code == 0 or not self.suspects else "no code of CUDA is known"

    def _general(self, error: StickyError) -> Iterator[str]:
        if error.causes:
            yield "what causes it:"
            yield from (f"  {cause}" for cause in error.causes)
        if error.code == _ILLEGAL_INSTRUCTION:
            from cupytma.runtime.launch_rules import start_multiples

            for record in self.launches[:_SHOWN]:
                yield from (f"  {record.name}: {text}" for text in start_multiples(record))


def _records(launches: Any) -> tuple[LaunchRecord, ...]:
    try:
        known = tuple(launches)
    except Exception:  # a caller's class may raise anything
        known = (launches,)
    for entry in known:
        if not isinstance(entry, LaunchRecord):
            raise LaunchError(f"launches: {shown(entry)} is no LaunchRecord; a list of them is needed, newest first")
    return known


def explain_fault(error: Any = None, *, launches: Sequence[LaunchRecord] | None = None) -> FaultReport:
    """Which of the last launches probably caused a fault, and why.

    The arguments of the last launches that went through `cupytma` are held against what is known to kill a kernel:
    coordinates that were declared (`declare_coordinates`), tensor maps and their memory, shared memory, reductions and
    multicasts in the kernel's code.

    Parameters
    ----------
    error : optional
        What was raised or answered: an exception of any library, a code, or its text. Default: CUDA is asked, and not
        waited for.
    launches : sequence of LaunchRecord, optional
        Newest first. Default: the last launches of the process.

    Returns
    -------
    FaultReport
        Print it. It has no suspects where nothing that is known is wrong.

    Raises
    ------
    LaunchError
        If ``launches`` holds anything but records of launches.
    """
    known = recent() if launches is None else _records(launches)
    code = _asked() if error is None else code_of(error)
    if code == _NOT_READY:
        return FaultReport(code, STICKY_ERRORS[_TIMEOUT], (), known, is_running=True)
    row = None if code is None else STICKY_ERRORS.get(code)
    nothing_asked = error is None and launches is None
    if row is None and (code is not None or nothing_asked):
        return FaultReport(code, None, (), known)
    from cupytma.runtime.launch_rules import judge  # with the simulator, which launches do not need

    found = [suspect for record in known for suspect in judge(record) if code is None or suspect.code in (code, None)]
    # Of launches with the same fault, as in a loop, the newest stands for all.
    once: dict[tuple[int, str, str], Suspect] = {}
    for suspect in found:
        once.setdefault((id(suspect.record.kernel), suspect.rule, suspect.message), suspect)
    ranked = sorted(once.values(), key=lambda suspect: (not suspect.is_certain, suspect.code != code))
    return FaultReport(code, row, tuple(ranked), known)


def _asked() -> int | None:
    """CUDA's own answer; None where there is no fault, or no CUDA."""
    module = sys.modules.get("cupy")
    if module is None:
        return None
    try:
        return code_of(module.cuda.runtime.streamQuery(0)) or None
    except Exception as error:  # CuPy's errors derive from no common public type
        return code_of(error)


def launch_failure(error: Exception, what: str) -> LaunchError:
    """What to raise for an error that came up where a kernel was loaded, launched or waited for.

    Parameters
    ----------
    error : Exception
    what : str
        What could not be done, such as ``"kernel tile could not be loaded"``.

    Returns
    -------
    LaunchError
        A `DriverError` with the answer's code where there is one. A fault of an earlier kernel is named as such, with
        the last launches.
    """
    code = code_of(error)
    if code is None:
        return LaunchError(f"{what}: {error}")
    earlier = earlier_fault(code)
    if earlier is None:
        return DriverError(f"{what}: {error}", code)
    return DriverError(f"{what}: {STICKY_ERRORS[code].name} ({code}): {earlier}", code)


def synchronize(stream: Any = None) -> None:
    """Wait for work on the GPU, and explain the fault if a kernel has died.

    Parameters
    ----------
    stream : stream or int, optional
        CuPy's, torch's or Numba's, or a handle. Default: all work of the current device.

    Raises
    ------
    DriverError
        With what `explain_fault` says, if CUDA answers with an error.
    LaunchError
        If the stream is none.
    NoDeviceError
        If there is no GPU.
    """
    runtime = cupy().cuda.runtime
    wait = getattr(stream, "synchronize", None)
    if stream is not None and not callable(wait) and (isinstance(stream, bool) or not isinstance(stream, int)):
        raise LaunchError(f"stream = {shown(stream)}: a stream with a method synchronize, or a handle, is needed")
    with _explained():
        if stream is None:
            runtime.deviceSynchronize()
        elif callable(wait):
            wait()
        else:
            runtime.streamSynchronize(stream)


@contextmanager
def explained_faults(stream: Any = None) -> Iterator[None]:
    """Wait at the end of a block, and explain the fault if a kernel died in it.

    Parameters
    ----------
    stream
        As for `synchronize`.

    Raises
    ------
    DriverError
        As `synchronize` does; also for a fault that a call inside the block was answered with.

    Examples
    --------
    >>> with tma.runtime.explained_faults():
    ...     kernel(grid, block, arguments)
    """
    with _explained():
        yield
    synchronize(stream)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        code = code_of(error)
        if code not in STICKY_ERRORS or (isinstance(error, DriverError) and str(STICKY_ERRORS[code]) in str(error)):
            raise
        raise DriverError(str(explain_fault(error)), code) from error
