"""NVRTC, NVIDIA's compiler of CUDA C++ as a library: finding it, knowing it, and calling it."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

from cupytma.errors import CompileError, TargetError
from cupytma.runtime import diagnostics as reports
from cupytma.runtime.compilation import SOURCE_NAME, Compiled, Request
from cupytma.targets import Target
from cupytma.targets import target as target_of

INSTALL_HINT = (
    "install it with `pip install 'cupytma[cuda12]'` or, for CUDA 13, `pip install 'cupytma[cuda13]'`; "
    "neither needs a GPU or a driver"
)
OLDEST = (12, 8)
# The assembler's report has the spilt bytes, which the machine code does not.
_REPORT = "--ptxas-options=-v"
# Where there is a driver, NVRTC finds its earlier work again, without what the assembler said of it. (NVRTC
# documentation, "Caching"; measured: the report is missing then.)
_CACHED_SINCE, _WITHOUT_CACHE = (12, 9), "--no-cache"
# Folders below a folder of packages in which NVRTC and its bindings lie, and variables that decide which is found.
_PLACES = ("nvidia/cuda_nvrtc/lib", "nvidia/cuda_nvrtc/bin", "nvidia/cu13/lib", "nvidia/cu13/bin", "cuda/bindings")
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "PATH" if sys.platform == "win32" else "LD_LIBRARY_PATH")


class Nvrtc:
    """The NVRTC library, through cuda-python's bindings of CUDA 12 or 13."""

    _loaded: Nvrtc | None = None

    def __init__(self, api: Any) -> None:
        self.api = api
        self.version: tuple[int, int] = tuple(self._checked(api.nvrtcVersion()))

    @classmethod
    def load(cls) -> Nvrtc:
        """The library, loaded once.

        Raises
        ------
        CompileError
            If it is missing or too old; the message says what to install.
        """
        if cls._loaded is None:
            try:
                from cuda.bindings import nvrtc

                loaded = cls(nvrtc)
            except Exception as error:  # a missing package and a missing library raise unrelated types
                raise CompileError(f"NVRTC is not usable here ({_first_line(error)}); {INSTALL_HINT}") from error
            if loaded.version < OLDEST:
                found, needed = (".".join(map(str, v)) for v in (loaded.version, OLDEST))
                raise CompileError(f"NVRTC {found} is too old: {needed} or newer is needed; {INSTALL_HINT}")
            cls._loaded = loaded
        return cls._loaded

    @property
    def path(self) -> str:
        """The file of the library; empty where that is not known."""
        try:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            return load_nvidia_dynamic_lib("nvrtc").abs_path or _mapped(self.version[0])
        except Exception:  # bindings older than cuda-pathfinder find the library by themselves
            return _mapped(self.version[0])

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets with a Tensor Memory Accelerator that it can compile for."""
        found = []
        for number in self._checked(self.api.nvrtcGetSupportedArchs()):
            for suffix in ("", "a", "f"):
                try:
                    found.append(target_of(f"sm_{number}{suffix}"))
                except TargetError:
                    continue
        version = ptx_version(self.version)
        return tuple(t for t in found if version is None or t.ptx_version <= version)

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

    def compile(self, request: Request, folders: Iterable[str] = ()) -> Compiled:
        """Compile; `folders` hold the toolkit's headers.

        Raises
        ------
        CompilerRefusal
            If the compiler or the assembler has an error.
        CompileError
            If it does not answer as it should.
        """
        folders = tuple(folders)
        own = (_REPORT, _WITHOUT_CACHE) if self.version >= _CACHED_SINCE else (_REPORT,)
        status, log, cubin, ptx, lowered = self._run(request, [*request.arguments(folders), *own])
        if status != "NVRTC_SUCCESS":
            raise CompilerRefusal(status, _readable(request, log), self._explained(request, folders, log, ptx))
        return Compiled(cubin, ptx, _readable(request, log), lowered, reports.spills(log))

    def _run(self, request: Request, arguments: list[str]) -> tuple[str, str, bytes, str, dict[str, str]]:
        """Status, log, machine code, PTX and lowered names of one compilation."""
        api = self.api
        program = self._checked(
            api.nvrtcCreateProgram(
                request.source.encode(),
                SOURCE_NAME.encode(),
                len(request.headers),
                [text.encode() for _, text in request.headers],
                [name.encode() for name, _ in request.headers],
            )
        )
        try:
            for name in request.names:
                self._checked(api.nvrtcAddNameExpression(program, name.encode()))
            (status,) = api.nvrtcCompileProgram(program, len(arguments), [a.encode() for a in arguments])
            log = self._text(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program)
            succeeded = status == api.nvrtcResult.NVRTC_SUCCESS
            cubin = self._text(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program) if succeeded else b""
            # What the assembler refuses is there as PTX.
            ptx = self._ptx(program, succeeded)
            lowered = {
                name: self._checked(api.nvrtcGetLoweredName(program, name.encode())).decode()
                for name in request.names if succeeded
            }
            return status.name, _decoded(log).strip(), cubin, ptx, lowered
        finally:
            api.nvrtcDestroyProgram(program)

    def _ptx(self, program: Any, succeeded: bool) -> str:
        try:
            return _decoded(self._text(self.api.nvrtcGetPTXSize, self.api.nvrtcGetPTX, program))
        except CompileError:
            if succeeded:
                raise
            return ""

    def _explained(
        self, request: Request, folders: tuple[str, ...], log: str, ptx: str
    ) -> tuple[reports.Diagnostic, ...]:
        """The log's diagnostics, those of the assembler with the places in the source that they come from."""
        lines = _Lines(request)
        found = reports.parse_log(log, lines)
        if not any(d.from_assembler and d.line for d in found):
            return found
        virtual = str(request.target).replace("sm_", "compute_")
        arguments = [*request.arguments(folders, target=virtual), "-lineinfo"]
        annotated = self._run(request, arguments)[3]
        outer = {SOURCE_NAME, *(name for name, _ in request.headers if not name.startswith("cupytma"))}
        places = reports.places(annotated, lines.name_of, outer)
        # With line information the lines are the same but for those of the information itself.
        own = sum(1 for line in ptx.splitlines() if line.lstrip().startswith((".loc", ".file")))
        return tuple(
            dict.fromkeys(reports.in_statement(d, ptx, (lambda _: None) if own else places.get, lines) for d in found)
        )


class CompilerRefusal(Exception):
    """What NVRTC said when it refused a source; `cupytma.runtime.advice` makes an error for people of it."""

    def __init__(self, status: str, log: str, diagnostics: tuple[reports.Diagnostic, ...]) -> None:
        super().__init__(status)
        self.status = status
        self.log = log
        self.diagnostics = diagnostics


class _Lines:
    """The lines of a request's source and headers, by the names that the compiler has for them."""

    def __init__(self, request: Request) -> None:
        self._texts = {**dict(request.headers), SOURCE_NAME: request.source}
        self._split: dict[str, list[str]] = {}

    def name_of(self, file: str) -> str:
        base = os.path.basename(file)
        return base if base == SOURCE_NAME else next((n for n in self._texts if file.endswith(n)), file)

    def __call__(self, file: str, line: int) -> str:
        if file not in self._split:
            text = self._texts.get(file)
            if text is None and os.path.isfile(file):
                with open(file, errors="replace") as opened:
                    text = opened.read()
            # NVRTC counts a form feed or a Unicode line separator as part of a line, unlike str.splitlines.
            self._split[file] = (text or "").split("\n")
        lines = self._split[file]
        return lines[line - 1].rstrip("\r") if 0 < line <= len(lines) else ""


def _mapped(major: int) -> str:
    """The file of the library of a major version that is loaded into this process; empty where that is not known."""
    name, found = re.compile(rf"libnvrtc(?:\.alt)?\.so\.{major}\b"), set()
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if name.match(os.path.basename(path)):
                found.add(f"/{path}")
    return found.pop() if len(found) == 1 else ""


def _readable(request: Request, log: str) -> str:
    """The log as a user asked for it."""
    asked = any("-v" in o or "verbose" in o for o in request.options if "ptxas" in o or o.startswith("-Xptxas"))
    return log if asked else reports.without_report(log)


def _decoded(text: bytes) -> str:
    return text.rstrip(b"\0").decode(errors="replace")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def ptx_version(version: tuple[int, int]) -> tuple[int, int] | None:
    """The PTX ISA that an NVRTC of a CUDA version writes; None for one newer than the table."""
    from cupytma.ptx import TOOLKITS

    return TOOLKITS.get(f"{version[0]}.{version[1]}")


def environment() -> list[object]:
    """What changes when another NVRTC would be found: cheap to ask, without loading or importing anything."""
    found: list[object] = [sys.prefix, *(os.environ.get(name, "") for name in _VARIABLES)]
    for base in dict.fromkeys(sys.path):
        for place in _PLACES:
            try:
                status = os.stat(os.path.join(base, place))
            except OSError:
                continue
            found += [os.path.join(base, place), status.st_mtime_ns]
    with contextlib.suppress(OSError):
        found.append(os.stat("/etc/ld.so.cache").st_mtime_ns)
    return found


def file_stamp(path: str) -> list[int]:
    """Size and time of change of a library's file; empty where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


@cache
def identity() -> str:
    """Which NVRTC this is, to the build: the wheel's version, or the file with its size and time of change.

    Raises
    ------
    CompileError
        If there is none.
    """
    library = Nvrtc.load()
    path = library.path
    version = ".".join(map(str, library.version))
    wheels = path.rpartition(f"{os.sep}nvidia{os.sep}")[0]
    package = "nvidia_cuda_nvrtc-*" if "cu13" in path else "nvidia_cuda_nvrtc_cu*"
    versions = glob.glob(os.path.join(glob.escape(wheels), f"{package}.dist-info")) if wheels else []
    if not file_stamp(path):
        return f"{version} of process {os.getpid()}, begun at {time.time_ns()}"  # nothing that another may trust
    size, changed = file_stamp(path)
    if len(versions) == 1:
        return f"{version} {os.path.basename(versions[0])} {size}"
    return f"{version} {path} {size} {changed}"
