"""CUDA C++ to machine code through NVRTC, with what was compiled before kept. Needs no GPU and no driver."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cupytma import targets
from cupytma.errors import CompileError, KernelWarning, NoDeviceError, TargetError
from cupytma.runtime import cache, headers
from cupytma.runtime import nvrtc as nvrtc
from cupytma.runtime.addresses import misplaced_addresses
from cupytma.runtime.compilation import Compiled, Request, checked_request
from cupytma.runtime.local_copies import local_copies
from cupytma.runtime.module import Module as Module

HEADER_NAME = headers.HEADER_NAME
_SPACES_HINT = (
    "Call the function for the space that it is in, as the end of a name says (such as _global or _shared_cta), or "
    "pass what lies in the space that it takes"
)
_MOST_MODULES = 256
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_modules: OrderedDict[str, Module] = OrderedDict()
_lock = threading.Lock()


def compile(  # the name is the public one: tma.compile
    source: str,
    target: str | targets.Target | None = None,
    options: Iterable[str] = (),
    defines: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    includes: Iterable[str | os.PathLike[str]] = (),
    name_expressions: Iterable[str] = (),
) -> Module:
    """Compile CUDA C++ with NVRTC, or take it from the cache.

    The same call gives the same `Module` for as long as the process lives and is among the last 256; other processes
    find the code in the cache on disk (``cupytma cache info``).

    Parameters
    ----------
    source : str
        CUDA C++. ``#include <cupytma.cuh>`` brings in the instruction wrappers of `cupytma.ptx.header` and the type
        ``CUtensorMap``, ``#include <cupytma/pipeline.cuh>`` also rings of stages for producers and consumers. The
        toolkit's headers, such as ``cuda_fp16.h``, are found where their wheel is installed.
    target : str or Target, optional
        Such as ``"sm_90a"``. Default: the architecture-specific target of the current device.
    options : iterable of str, optional
        More NVRTC options, such as ``"-lineinfo"``.
    defines : mapping, optional
        Preprocessor macros; a value of None defines the name alone.
    headers : mapping of str to str, optional
        Further headers by the name they are included with.
    includes : iterable of str or path, optional
        Folders to search for headers.
    name_expressions : iterable of str, optional
        Instances of kernel templates to compile, such as ``"scale<float, 4>"``. `Module.kernel` compiles those that
        are not given here when it is asked for them.

    Returns
    -------
    Module

    Warns
    -----
    KernelWarning
        For a kernel that gives the tensor unit a tensor map which the compiler copied to local memory.

    Raises
    ------
    CompileError
        With the compiler's log and the source line it is about, or how to install NVRTC where it is missing.
    CompileInputError
        If what is given is no source, option, define, header, folder or name.
    TargetError
        For a target with no Tensor Memory Accelerator.
    NoDeviceError
        If no target is named and there is no GPU to take it from.
    """
    try:
        chosen = targets.target(target) if target is not None else current_target()
    except NoDeviceError as error:
        raise NoDeviceError(
            f'without a GPU the target has to be named, as in target="sm_90a": {error}'
        ) from error.__cause__
    return compile_request(checked_request(source, chosen, options, defines, headers, includes, name_expressions))


def compile_request(request: Request) -> Module:
    """A module for a request: of this process, from the cache, or compiled now."""
    found = headers.inclusions(request)
    while (complete := headers.with_own_headers(request, found)) is not request:
        request, found = complete, headers.inclusions(complete)
    folders = _toolkit_folders(found)
    key = cache.request_key(request, found, folders)
    keep = cache.may_keep(request, found)
    with _lock:
        module = _modules.get(key) if keep else None
        if module is not None:
            _modules.move_to_end(key)
    if module is None:
        module = Module(request, _compiled(request, found, folders, key if keep and cache.is_on() else ""))
        if keep:
            with _lock:  # another thread may have been faster: all get the same variables
                module = _modules.setdefault(key, module)
                while len(_modules) > _MOST_MODULES:
                    _modules.popitem(last=False)
    for warning in module.warnings:
        warnings.warn(warning, KernelWarning, stacklevel=_depth_of_caller())
    return module


def forget_modules() -> None:
    """Forget the modules of this process; the cache on disk stays."""
    with _lock:
        _modules.clear()


def _toolkit_folders(found: headers.Inclusions) -> tuple[str, ...]:
    """Where the toolkit's headers are that a source includes, if it includes any."""
    if found.missing <= {HEADER_NAME}:
        return ()
    version = (cache.known_compiler() if cache.is_on() else "") or nvrtc.identity()
    return headers.needed_folders(found.missing, int(version.partition(".")[0]))


def _compiled(request: Request, found: headers.Inclusions, folders: tuple[str, ...], key: str) -> Compiled:
    """From the cache where a key is given and something is there, else by the compiler."""
    if key and (compiler := cache.known_compiler()):
        kept = cache.read(cache.entry_key(key, compiler))
        if kept is not None:
            return kept
    library = nvrtc.Nvrtc.load()
    name = cache.entry_key(key, nvrtc.identity()) if key else ""
    if name and (kept := cache.read(name)) is not None:
        cache.note_compiler()
        return kept
    full = request
    if HEADER_NAME in found.missing:
        from cupytma import ptx

        # The many shapes of wgmma are two thirds of the header, and most kernels have none of them.
        text = ptx.header(target=request.target, wgmma=found.wgmma)
        full = replace(request, headers=(*request.headers, (HEADER_NAME, text)))
    compiled = _judged(request, _by_compiler(library, full, folders))
    if name:
        cache.note_compiler()
        cache.write(name, compiled)
    return compiled


def _by_compiler(library: nvrtc.Nvrtc, request: Request, folders: tuple[str, ...]) -> Compiled:
    try:
        return library.compile(request, folders)
    except nvrtc.CompilerRefusal as refusal:
        from cupytma.runtime.advice import compile_error

        raise compile_error(request, refusal, library.version) from None


def _judged(request: Request, compiled: Compiled) -> Compiled:
    """What the compiler lets through: refused where it can only fail, with warnings where it is hardly meant so."""
    if not compiled.cubin:
        raise CompileError(
            f"the options {', '.join(request.options)} make no machine code (link-time optimisation makes an "
            "intermediate form); leave them out", compiled.log, request.source,
        )
    if misplaced := misplaced_addresses(compiled.ptx):
        raise CompileError(f"{'; '.join(misplaced)}. {_SPACES_HINT}", compiled.log, request.source)
    return replace(compiled, warnings=local_copies(compiled.ptx, request.source))


def _depth_of_caller() -> int:
    """How far up the first frame outside this package is, for a warning to point at."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame, depth = frame.f_back, depth + 1
    return depth


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


def nvrtc_version() -> tuple[int, int]:
    """Major and minor version of the NVRTC in use.

    Raises
    ------
    CompileError
        If NVRTC is missing or too old.
    """
    return nvrtc.Nvrtc.load().version
