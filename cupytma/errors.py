"""Every error the toolkit raises.

All derive from `CupytmaError` and from the builtin that a Python user would catch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cupytma.runtime.diagnostics import Diagnostic
    from cupytma.tensormap.rule import Violation


class CupytmaError(Exception):
    """Base of every error raised by this package."""


class TargetError(CupytmaError, ValueError):
    """A target that does not exist, or that lacks what was asked of it."""


class DescriptorError(CupytmaError, ValueError):
    """A tensor map that the driver would refuse, or bytes that hold none.

    Attributes
    ----------
    violations : tuple of Violation
        Every broken rule, not only the first. Empty when the error is not about a rule.
    """

    def __init__(self, message: str, violations: Sequence[Violation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)


class EmissionError(CupytmaError, ValueError):
    """An instruction that PTX does not have, or that the target does not have."""


class PictureError(CupytmaError, ValueError):
    """What a picture cannot be made of."""


class MissingLibraryError(CupytmaError, ImportError):
    """A library that is not among the ones this package needs, and that what was asked for does need."""


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

    def __init__(self, message: str, log: str = "", source: str = "", diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.log = log
        self.source = source
        self.diagnostics = tuple(diagnostics)

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


class NoDeviceError(LaunchError):
    """There is no usable GPU, or no CuPy, on this machine."""


class SlotError(CupytmaError, IndexError):
    """A slot that a buffer of descriptors does not have."""


class SimulationError(CupytmaError, ValueError):
    """A question the simulator cannot answer: operands no instruction takes, or a descriptor it does not cover."""


class Fault(CupytmaError, RuntimeError):
    """An operation that kills the kernel on hardware, or that leaves the memory given to the simulator.

    Nothing has been read into or written to any array when one is raised.
    """


class CupytmaWarning(UserWarning):
    """Base of every warning that this package gives."""


class KernelWarning(CupytmaWarning):
    """A kernel compiles, and does something that does not do what it looks like."""


class CacheWarning(CupytmaWarning):
    """The cache of compiled kernels cannot be used as asked; everything works without it."""
