"""CUDA C++ to machine code through NVRTC. Needs no GPU and no driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cupytma import targets
from cupytma.errors import CompileError, LaunchError, NoDeviceError, TargetError
from cupytma.runtime.addresses import misplaced_addresses
from cupytma.runtime.signature import KernelSignature, parse_signatures

if TYPE_CHECKING:
    from cupytma.runtime.kernel import Kernel

HEADER_NAME = "cupytma.cuh"
_INSTALL_HINT = (
    "install it with `pip install 'cupytma[cuda12]'` or, for CUDA 13, `pip install 'cupytma[cuda13]'`; "
    "neither needs a GPU or a driver"
)
_SPACES_HINT = (
    "Call the function for the space that it is in, as the end of a name says (such as _global or _shared_cta), or "
    "pass what lies in the space that it takes"
)
_NO_MEMBER = re.compile(r'namespace "cupytma" has no member "(\w+)"')
_OLDEST_NVRTC = (12, 8)


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
    """

    def __init__(self, source: str, target: targets.Target, cubin: bytes, ptx: str, log: str) -> None:
        self.source = source
        self.target = target
        self.cubin = cubin
        self.ptx = ptx
        self.log = log
        self._kernels: dict[str, Kernel] = {}

    @cached_property
    def signatures(self) -> dict[str, KernelSignature]:
        """The parameters of every kernel in the module, by kernel name, read from the PTX."""
        return parse_signatures(self.ptx)

    def kernel(self, name: str) -> Kernel:
        """One kernel of the module, loaded on the GPU when it is first launched.

        Raises
        ------
        LaunchError
            If the module has no kernel of that name; the message lists those it has.
        """
        from cupytma.runtime.kernel import Kernel

        if name not in self.signatures:
            known = ", ".join(sorted(self.signatures)) or "none"
            raise LaunchError(
                f'the module has no kernel {name!r}; it has: {known}. Declare kernels extern "C" so that their names '
                "stay as written"
            )
        if name not in self._kernels:
            self._kernels[name] = Kernel(self, name)
        return self._kernels[name]

    def set_constant(self, name: str, value: Any, stream: Any = None) -> None:
        """Give a ``__constant__`` variable of the module a value; see `cupytma.runtime.set_constant`."""
        from cupytma.runtime.constants import set_constant

        set_constant(self, name, value, stream)

    def __repr__(self) -> str:
        return f"<Module {self.target}: {', '.join(self.signatures) or 'no kernels'}; {len(self.cubin)} B of code>"


def compile(  # the name is the public one: tma.compile
    source: str,
    target: str | targets.Target | None = None,
    options: Iterable[str] = (),
    defines: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    includes: Iterable[str] = (),
) -> Module:
    """Compile CUDA C++ with NVRTC.

    Parameters
    ----------
    source : str
        CUDA C++. ``#include <cupytma.cuh>`` brings in the instruction wrappers of `cupytma.ptx.header` and the type
        ``CUtensorMap``. Kernels are declared ``extern "C" __global__``.
    target : str or Target, optional
        Such as ``"sm_90a"``. Default: the architecture-specific target of the current device.
    options : iterable of str, optional
        More NVRTC options, such as ``"-lineinfo"``.
    defines : mapping, optional
        Preprocessor macros; a value of None defines the name alone.
    headers : mapping of str to str, optional
        Further headers by the name they are included with.
    includes : iterable of str, optional
        Folders to search for headers.

    Returns
    -------
    Module

    Raises
    ------
    CompileError
        With the compiler's log and the source line it is about, or how to install NVRTC where it is missing.
    TargetError
        For a target with no Tensor Memory Accelerator.
    NoDeviceError
        If no target is named and there is no GPU to take it from.
    """
    if "\0" in source:
        raise CompileError("the source has a NUL character, which would end it", source=source)
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise CompileError(f"the source is no text that can be written as UTF-8: {error}", source=source) from None
    if isinstance(options, str):
        options = (options,)
    chosen = targets.target(target) if target is not None else current_target()
    headers = dict(headers or {})
    if HEADER_NAME not in headers and any(HEADER_NAME in text for text in (source, *headers.values())):
        from cupytma import ptx

        # The many shapes of wgmma are two thirds of the header, and most kernels have none of them.
        wgmma = any("wgmma" in text.lower() for text in (source, *headers.values()))
        headers[HEADER_NAME] = ptx.header(target=chosen, wgmma=wgmma)
    arguments = [
        f"--gpu-architecture={chosen}",
        "--std=c++17",
        *(f"--include-path={folder}" for folder in includes),
        *(f"-D{name}" if value is None else f"-D{name}={value}" for name, value in (defines or {}).items()),
        *options,
    ]
    return _Nvrtc.load().compile(source, chosen, arguments, headers)


def current_target() -> targets.Target:
    """The target of the current CUDA device, such as ``sm_90a`` on an H100.

    Raises
    ------
    NoDeviceError
        If there is no GPU, or it has no Tensor Memory Accelerator.
    """
    from cupytma.runtime.device import compute_capability

    capability = compute_capability()
    try:
        return targets.target_of_capability(*capability)
    except TargetError as error:
        raise NoDeviceError(
            f"the current device has compute capability {capability[0]}.{capability[1]}: {error}. "
            "On this machine, cupytma.sim shows what a tensor map does"
        ) from None


class _Nvrtc:
    """The NVRTC library, through cuda-python's bindings of CUDA 12 or 13."""

    _loaded: _Nvrtc | None = None

    def __init__(self, api: Any) -> None:
        self.api = api
        self.version: tuple[int, int] = tuple(self._checked(api.nvrtcVersion()))

    @classmethod
    def load(cls) -> _Nvrtc:
        if cls._loaded is None:
            try:
                from cuda.bindings import nvrtc

                loaded = cls(nvrtc)
            except Exception as error:  # a missing package and a missing library raise unrelated types
                raise CompileError(f"NVRTC is not usable here ({error}); {_INSTALL_HINT}") from error
            if loaded.version < _OLDEST_NVRTC:
                found, needed = (".".join(map(str, v)) for v in (loaded.version, _OLDEST_NVRTC))
                raise CompileError(f"NVRTC {found} is too old: {needed} or newer is needed; {_INSTALL_HINT}")
            cls._loaded = loaded
        return cls._loaded

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        status, *values = answer
        if status != self.api.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC answered {status.name}")
        return values[0] if len(values) == 1 else values

    def _text(self, size: Any, fetch: Any, program: Any) -> bytes:
        """Read one of NVRTC's buffers: ask for its size, then for its bytes."""
        buffer: bytes = b"\0" * self._checked(size(program))
        if buffer:
            self._checked(fetch(program, buffer))
        return buffer

    def compile(
        self, source: str, target: targets.Target, arguments: list[str], headers: Mapping[str, str]
    ) -> Module:
        api = self.api
        program = self._checked(
            api.nvrtcCreateProgram(
                source.encode(),
                b"kernel.cu",
                len(headers),
                [text.encode() for text in headers.values()],
                [name.encode() for name in headers],
            )
        )
        try:
            (status,) = api.nvrtcCompileProgram(program, len(arguments), [a.encode() for a in arguments])
            log = self._text(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program)
            log_text = log.rstrip(b"\0").decode(errors="replace").strip()
            if status != api.nvrtcResult.NVRTC_SUCCESS:
                raise CompileError(self._explain(status.name, log_text, source, target), log_text, source)
            cubin = self._text(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program)
            ptx = self._text(api.nvrtcGetPTXSize, api.nvrtcGetPTX, program).rstrip(b"\0").decode()
            if misplaced := misplaced_addresses(ptx):
                raise CompileError(f"{'; '.join(misplaced)}. {_SPACES_HINT}", log_text, source)
            return Module(source, target, cubin, ptx, log_text)
        finally:
            api.nvrtcDestroyProgram(program)

    def _explain(self, status: str, log: str, source: str, target: targets.Target) -> str:
        """The compiler's complaint with the source line it points at."""
        version = ".".join(map(str, self.version))
        if "invalid value for --gpu-architecture" in log or status == "NVRTC_ERROR_INVALID_OPTION":
            return f"NVRTC {version} refused its options for {target}: {log}"
        message = f"compiling for {target} with NVRTC {version} failed:\n{log or status}"
        for name in dict.fromkeys(_NO_MEMBER.findall(log)):
            from cupytma.ptx.header import why_missing

            message += f"\n{why_missing(name, target)}"
        place = re.search(r"^kernel\.cu\((\d+)\): ", log, re.MULTILINE)
        lines = source.splitlines()
        if place and 0 < int(place[1]) <= len(lines):
            message += f"\nline {place[1]} is:\n    {lines[int(place[1]) - 1].strip()}"
        return message


def nvrtc_version() -> tuple[int, int]:
    """Major and minor version of the NVRTC in use.

    Raises
    ------
    CompileError
        If NVRTC is missing or too old.
    """
    return _Nvrtc.load().version
