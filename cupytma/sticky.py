"""CUDA errors that stay: a kernel's fault is answered by every later call, whatever it asks, until the process ends.

The table says what each means, and what in programs for the Tensor Memory Accelerator causes it. Causes marked H100 and
H200 were measured there: the kernel died in every case of the kind, and in none of its neighbours.
"""

from __future__ import annotations

import operator
import re
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cause:
    """What a program did, and where it is known from that this is the answer."""

    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.what} ({self.source})"


@dataclass(frozen=True)
class StickyError:
    """One error of the table.

    Attributes
    ----------
    code : int
        A ``CUresult``, and the same number as a ``cudaError_t``.
    name, runtime_name : str
        As the driver and the runtime call it.
    phrase : str
        What the runtime says in words, as libraries print it.
    meaning : str
        What happened.
    causes : tuple of Cause
        What causes it in programs for the Tensor Memory Accelerator.
    """

    code: int
    name: str
    runtime_name: str
    phrase: str
    meaning: str
    causes: tuple[Cause, ...] = ()

    @property
    def topic(self) -> str:
        """What `cupytma help` calls it: the name in small letters, without its prefix."""
        return self.name.removeprefix("CUDA_ERROR_").lower().replace("_", "-")

    def __str__(self) -> str:
        return f"{self.code} ({self.name}): {self.meaning}"


_H100, _H200, _GENERAL = "H100", "H200", "driver API"

_ROWS = (
    StickyError(
        700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress", "an illegal memory access was encountered",
        "a kernel touched memory that is not mapped",
        (
            Cause("a tile that ends outside the block's shared memory, rounded up to 128 bytes", _H200),
            Cause("a tensor map whose address is null", _H100),
            Cause("a tensor map whose array has been freed, is shorter than the map says, or is no device memory",
                  _GENERAL),
            Cause("an ordinary load or store through a wrong pointer", _GENERAL),
        ),
    ),
    StickyError(
        702, "CUDA_ERROR_LAUNCH_TIMEOUT", "cudaErrorLaunchTimeout", "the launch timed out and was terminated",
        "a kernel ran longer than the device allows, as one that hangs does",
        (
            Cause("an mbarrier that was told to expect more bytes than its copies bring: its phase never ends", _H100),
            Cause("one that was told too few: its phase may end early (17 of 39), or never (22)", _H100),
            Cause("a multicast to fewer blocks than wait for it", _H200),
        ),
    ),
    StickyError(
        709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "cudaErrorContextIsDestroyed", "context is destroyed",
        "the context was destroyed, or lost to an earlier fault",
    ),
    StickyError(
        710, "CUDA_ERROR_ASSERT", "cudaErrorAssert", "device-side assert triggered",
        "an assertion in a kernel failed; its text was printed",
        (
            Cause(
                "a debug build's check of a value for tensormap.replace, such as a stride that is no multiple of 16",
                "cupytma.cuh",
            ),
        ),
    ),
    StickyError(
        714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "cudaErrorHardwareStackError", "hardware stack error",
        "a kernel's call stack was corrupted or overflowed",
    ),
    StickyError(
        715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "cudaErrorIllegalInstruction", "an illegal instruction was encountered",
        "a kernel executed an instruction that the device refuses; of a copy, because of its operands",
        (
            Cause(
                "a copy or prefetch, without interleave, that starts at no multiple of 16 bytes of the innermost "
                "dimension", _H100,
            ),
            Cause("a store or reduction that starts below 0 in some dimension", _H100),
            Cause("an im2col copy whose start pixel lies outside its bounding box", _H100),
            Cause("an im2col store with a negative lower corner", _H100),
            Cause("a reduction that the element type does not have", _H200),
            Cause("a multicast to another block, in a launch without clusters", _H100),
        ),
    ),
    StickyError(
        716, "CUDA_ERROR_MISALIGNED_ADDRESS", "cudaErrorMisalignedAddress", "misaligned address",
        "a kernel used an address that is not aligned as its use demands",
        (
            Cause("a shared tile that does not start at a multiple of 128 bytes", _H100),
            Cause("a tensor map in global memory that does not start at a multiple of 64 bytes", _H200),
            Cause("an ordinary load or store of a type at an address that is no multiple of its size", _GENERAL),
        ),
    ),
    StickyError(
        717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "cudaErrorInvalidAddressSpace",
        "operation not supported on global/shared address space",
        "an instruction was given an address of another state space than it takes",
    ),
    StickyError(
        718, "CUDA_ERROR_INVALID_PC", "cudaErrorInvalidPc", "invalid program counter",
        "a kernel jumped to an address that is no code",
    ),
    StickyError(
        719, "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorLaunchFailure", "unspecified launch failure",
        "a kernel failed for a reason that the device does not tell",
        (Cause("a multicast whose mask names a block that the cluster does not have", _H200),),
    ),
)  # fmt: skip
STICKY_ERRORS: dict[int, StickyError] = {row.code: row for row in _ROWS}
"""By code."""

_NUMBER = re.compile(r"\b(?:CUresult|cudaError(?:_t)?|error|answered)\D{0,3}(\d{3})\b", re.IGNORECASE)
_LONGEST_TEXT = 10_000


def code_of(error: Any) -> int | None:
    """The code that an error of any library carries; None where it has none.

    Parameters
    ----------
    error
        A number, cuda-python's enumerations, CuPy's errors (``status``), this package's (``code``), or any error or
        text that says the error's name or the runtime's words, as torch's and Numba's do. What an error was raised from
        is read too.
    """
    for found in _chain(error):
        code = _own_code(found)
        if code is not None:
            return code
    return None


def _chain(error: Any) -> list[Any]:
    chain: list[Any] = []
    while error is not None and len(chain) < 16 and not any(error is seen for seen in chain):
        chain.append(error)
        error = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
    return chain


_CODES = 1 << 31  # an answer is a C enum


def _own_code(error: Any) -> int | None:
    if isinstance(error, bool):
        return None
    candidates: tuple[Any, ...] = (error, getattr(error, "status", None), getattr(error, "code", None))
    for value in candidates:
        try:
            answer: int = operator.index(value)
        except Exception:  # an error of any library, whose attributes may be anything
            continue
        return answer if abs(answer) < _CODES else None
    try:
        text = str(error)[:_LONGEST_TEXT]
    except Exception:  # an error's own text may fail
        return None
    for row in _ROWS:
        if row.name in text or row.runtime_name in text or row.phrase in text:
            return row.code
    number = _NUMBER.search(text)
    return int(number[1]) if number and int(number[1]) in STICKY_ERRORS else None


_SUSPECTS = 3


def earlier_fault(code: int) -> str | None:
    """What to say where a call that started no kernel is answered by an error that belongs to earlier work.

    Parameters
    ----------
    code : int
        The answer, a ``CUresult`` or ``cudaError_t``.

    Returns
    -------
    str or None
        A sentence that names the last launches as suspects; None if the answer is about the call itself.
    """
    row = STICKY_ERRORS.get(code)
    if row is None:
        return None
    text = f"a kernel launched earlier in this process failed and its context is lost ({row.meaning})"
    # Looked up and not imported: what only encodes must not load what launches.
    history = sys.modules.get("cupytma.runtime.history")
    recent = history.recent() if history is not None else ()
    if recent:
        listed = "; ".join(record.summary for record in recent[:_SUSPECTS])
        more = f" and {len(recent) - _SUSPECTS} before" if len(recent) > _SUSPECTS else ""
        text += f"; the last launches, newest first: {listed}{more}; cupytma.explain_fault() judges them"
    return f"{text}; find it with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1 and start a new process"
