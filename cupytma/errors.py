"""Every error the toolkit raises.

All derive from `CupytmaError` and from the builtin that a Python user would catch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cupytma.sticky import STICKY_ERRORS

if TYPE_CHECKING:
    from cupytma.runtime.diagnostics import Diagnostic
    from cupytma.tensormap.rule import Violation


_WIDEST = 80


def more_line(topics: Iterable[str]) -> str:
    """Where an error is explained: the line ``More: cupytma help ID …``, with as many of the ids as fit 80 columns."""
    first, *others = dict.fromkeys(topics)
    line = f"More: cupytma help {first}"
    for topic in others:
        if len(line) + 1 + len(topic) > _WIDEST:
            break
        line += f" {topic}"
    return line


class CupytmaError(Exception):
    """Base of every error raised by this package.

    Attributes
    ----------
    topics : tuple of str
        What `cupytma help` has to say about it, by id, the most telling first.
    """

    topics: tuple[str, ...] = ()


class TargetError(CupytmaError, ValueError):
    """A target that does not exist, or that lacks what was asked of it."""

    topics: tuple[str, ...] = ("which-target",)


class DescriptorError(CupytmaError, ValueError):
    """A tensor map that the driver would refuse, or bytes that hold none.

    Attributes
    ----------
    violations : tuple of Violation
        Every broken rule, not only the first. Empty when the error is not about a rule.
    """

    topics: tuple[str, ...] = ("encode-fails",)

    def __init__(self, message: str, violations: Sequence[Violation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)
        if self.violations:
            self.topics = tuple(dict.fromkeys(violation.rule for violation in self.violations))

    def __str__(self) -> str:
        return f"{super().__str__()}\n{more_line(self.topics)}" if self.violations else super().__str__()


class EmissionError(CupytmaError, ValueError):
    """An instruction that PTX does not have, or that the target does not have."""

    topics: tuple[str, ...] = ("instruction-refused",)


class PictureError(CupytmaError, ValueError):
    """What a picture cannot be made of."""


class MissingLibraryError(CupytmaError, ImportError):
    """A library that is not among the ones this package needs, and that what was asked for does need."""

    topics: tuple[str, ...] = ("no-gpu",)


class CheckError(CupytmaError, ValueError):
    """What the kernel checker cannot take: no text, a tensor map that is none, or one that no kernel takes."""


class ArrayError(CupytmaError, ValueError):
    """An array that an operation cannot take: where it lives, its type, its layout."""


class PipelineError(CupytmaError, ValueError):
    """A pipeline kernel that cannot be made as declared, or is called otherwise than it declares."""


class RowIndexError(CupytmaError, IndexError):
    """An index of a gather or scatter that names no row of the table."""


class CompileError(CupytmaError, RuntimeError):
    """NVRTC refused a source, or is not installed.

    Attributes
    ----------
    log : str
        What the compiler printed.
    source : str
        The source that was compiled.
    diagnostics : tuple of Diagnostic
        The log's errors and warnings, each with its place; empty when the error is not about a source.
    """

    topics: tuple[str, ...] = ("instruction-refused",)

    def __init__(self, message: str, log: str = "", source: str = "", diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.log = log
        self.source = source
        self.diagnostics = tuple(diagnostics)
        if not any(d.from_assembler or "cupytma" in d.message + d.text + d.file for d in self.diagnostics):
            self.topics = ()  # an error in C++ like any other, or none of a source

    @property
    def line(self) -> int | None:
        """The line of `source` that the first error is at, counted from 1; None where that is not known."""
        return next((d.line for d in self.diagnostics if d.is_error and d.in_source and d.line), None)


class CompileInputError(CompileError, ValueError):
    """What was given to the compiler cannot be a source, an option, a define, a header or a name."""


class LaunchError(CupytmaError, RuntimeError):
    """A kernel that cannot be loaded or launched as asked."""


class DriverError(LaunchError):
    """The driver answered something other than success or "these parameters are illegal".

    Attributes
    ----------
    code : int
        The driver's answer, a ``CUresult``.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        if code in STICKY_ERRORS:
            self.topics = (STICKY_ERRORS[code].topic, "every-call-fails")


class NoDeviceError(LaunchError):
    """There is no usable GPU, or no CuPy, on this machine."""

    topics: tuple[str, ...] = ("no-gpu",)


class SlotError(CupytmaError, IndexError):
    """A slot that a buffer of descriptors does not have."""


class SimulationError(CupytmaError, ValueError):
    """A question the simulator cannot answer: operands no instruction takes, or a descriptor it does not cover."""


class Fault(CupytmaError, RuntimeError):
    """An operation that kills the kernel on hardware, or that leaves the memory given to the simulator.

    Nothing has been read into or written to any array when one is raised.
    """

    topics: tuple[str, ...] = ("illegal-instruction", "misaligned-address", "illegal-address")


class CupytmaWarning(UserWarning):
    """Base of every warning that this package gives."""


class KernelWarning(CupytmaWarning):
    """A kernel compiles, and does something that does not do what it looks like."""


class CacheWarning(CupytmaWarning):
    """The cache of compiled kernels cannot be used as asked; everything works without it."""
