"""A compiled module: its code, its kernels, and what they take."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from cupytma.errors import CompileError, LaunchError
from cupytma.runtime.compilation import Compiled, Request
from cupytma.runtime.given import shown
from cupytma.runtime.resources import KernelResources, read_resources
from cupytma.runtime.signature import KernelSignature, parse_signatures
from cupytma.runtime.source_text import cxx_name, template_kernels
from cupytma.targets import Target

if TYPE_CHECKING:
    from cupytma.runtime.kernel import Kernel

_Value = TypeVar("_Value")


class _ByName(dict[str, _Value]):
    """What a module has of each kernel, by its name in the machine code or by its name in C++."""

    def __init__(self, module: Module, values: Mapping[str, _Value]) -> None:
        super().__init__(values)
        self._module = module

    def __missing__(self, name: str) -> _Value:
        known = self._module.find(name)
        if known is None or known not in self:
            raise KeyError(name)
        return self[known]


class Module:
    """Compiled CUDA C++: machine code for one target, with the kernels in it.

    Attributes
    ----------
    source : str
        The CUDA C++ that was compiled.
    target : Target
        What it was compiled for.
    cubin : bytes
        The machine code, an ELF image.
    ptx : str
        The PTX it was assembled from.
    log : str
        What the compiler printed; empty when it had nothing to say.
    warnings : tuple of str
        What the kernels do that does not do what it looks like.
    """

    def __init__(self, request: Request, compiled: Compiled) -> None:
        self.source = request.source
        self.target: Target = request.target
        self.cubin = compiled.cubin
        self.ptx = compiled.ptx
        self.log = compiled.log
        self.warnings = compiled.warnings
        self._request = request
        self._compiled = compiled
        self._kernels: dict[str, Kernel] = {}

    @cached_property
    def signatures(self) -> Mapping[str, KernelSignature]:
        """The parameters of every kernel in the module, by kernel name, read from the PTX."""
        return _ByName(self, parse_signatures(self.ptx))

    @cached_property
    def resources(self) -> Mapping[str, KernelResources]:
        """What every kernel takes of a multiprocessor, by kernel name, read from the machine code."""
        return _ByName(self, read_resources(self.cubin, self._compiled.spills))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, as in the machine code: as written for ``extern "C"``, else mangled."""
        return tuple(self.signatures)

    @property
    def lowered_names(self) -> dict[str, str]:
        """The name in the machine code of each name expression that the module was compiled with."""
        return dict(self._compiled.lowered)

    def kernel(self, name: str) -> Kernel:
        """One kernel of the module, loaded on the GPU when it is first launched.

        Parameters
        ----------
        name : str
            As written for an ``extern "C"`` kernel; otherwise its name in C++, such as ``"ns::scale"``. An instance of
            a template, such as ``"scale<float, 4>"``, is compiled when it is first asked for if it was not among the
            name expressions; it then has ``__constant__`` and ``__device__`` variables of its own.

        Raises
        ------
        LaunchError
            If the module has no kernel of that name; the message lists those it has.
        CompileError
            If there is no such instance of a template.
        """
        from cupytma.runtime.kernel import Kernel

        found = self.find(name)
        if found is None:
            return self._instance(name)
        if found not in self._kernels:
            self._kernels[found] = Kernel(self, found)
        return self._kernels[found]

    def set_constant(self, name: str, value: Any, stream: Any = None) -> None:
        """Give a ``__constant__`` variable of the module a value; see `cupytma.runtime.set_constant`."""
        from cupytma.runtime.constants import set_constant

        set_constant(self, name, value, stream)

    def find(self, name: str) -> str | None:
        """The name in the machine code of a kernel, by that or by its name in C++; None if the module has none.

        Raises
        ------
        LaunchError
            If the name is no text, or several kernels have it.
        """
        if not isinstance(name, str):
            raise LaunchError(f"{shown(name)} is no kernel's name; names are text (str)")
        if dict.__contains__(self.signatures, name):
            return name
        squeezed = _squeezed(name)
        for expression, lowered in self._compiled.lowered.items():
            if _squeezed(expression) == squeezed:
                return lowered
        alike = [lowered for lowered in self.signatures if _squeezed(cxx_name(lowered)) == squeezed.removeprefix("::")]
        # An instance of a template has its arguments in its name, which are not read here.
        plain = [lowered for lowered in alike if not _is_instance(lowered)]
        if len(plain) > 1:
            raise LaunchError(
                f"several kernels of the module are named {name}: {', '.join(sorted(plain))}; ask for one of those "
                f'names, or by type: "(void (*)(float*)) {name}"'
            )
        return plain[0] if plain else None

    def _instance(self, name: str) -> Kernel:
        """A kernel that the module was compiled without: an instance of a template, or one named by an expression."""
        from cupytma.runtime.compiler import compile_request

        if "<" not in name and "(" not in name:
            raise LaunchError(self._unknown(name))
        try:
            compiled = compile_request(self._request_with(name))
        except CompileError as error:
            raise LaunchError(f"the module has no kernel {shown(name)}: {error}") from error
        lowered = compiled.lowered_names[name]
        if lowered not in compiled.kernels:
            raise LaunchError(f"{shown(name)} names {lowered}, which is no kernel: it lacks __global__")
        found = compiled.kernel(name)
        self._kernels[lowered] = found
        return found

    def _request_with(self, name: str) -> Request:
        from cupytma.runtime.compilation import with_names

        return with_names(self._request, name)

    def _unknown(self, name: str) -> str:
        known = [cxx_name(n) for n in self.kernels]
        message = f"the module has no kernel {shown(name)}; it has: {', '.join(sorted(known)) or 'none'}"
        if name in template_kernels(self.source):
            return f"{message}. {name} is a template: ask for an instance, such as {name}<float>"
        if near := difflib.get_close_matches(name, known, n=1):
            return f"{message}. Is {near[0]} meant?"
        if re.search(rf"\b{re.escape(name)}\s*\(", self.source) and not re.search(
            rf"__global__[^;{{}}]*\b{re.escape(name)}\s*\(", self.source
        ):
            return f"{message}. {name} is in the source, and is no kernel: it lacks __global__"
        return message

    def __repr__(self) -> str:
        return f"<Module {self.target}: {', '.join(self.signatures) or 'no kernels'}; {len(self.cubin)} B of code>"


def _squeezed(name: str) -> str:
    """A name without the blanks that mean nothing."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(name.split()))


def _is_instance(mangled: str) -> bool:
    """Whether a mangled name is that of an instance of a template: its name ends in ``I…E``."""
    if not mangled.startswith("_Z"):
        return False
    at = 3 if mangled.startswith("_ZN") else 2
    while digits := re.match(r"\d+", mangled[at:]):
        at += digits.end() + int(digits[0])
    return mangled[at : at + 1] == "I"
