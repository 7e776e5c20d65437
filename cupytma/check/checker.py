"""The checker: a kernel's PTX, or its CUDA C++, to findings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from cupytma.check.barriers import check_barriers
from cupytma.check.clusters import check_clusters
from cupytma.check.events import MARKS, Unit, functions_with_family
from cupytma.check.features import check_features
from cupytma.check.finding import Finding
from cupytma.check.given_maps import GivenMaps
from cupytma.check.maps import check_maps, parameters_used_as_maps
from cupytma.check.module import read_module
from cupytma.check.operands import check_operands
from cupytma.check.reporter import Reporter
from cupytma.check.rules import RULES
from cupytma.check.stores import check_stores
from cupytma.check.transactions import check_transactions
from cupytma.errors import CheckError, KernelWarning
from cupytma.ptx.checks import shown
from cupytma.targets import Target
from cupytma.tensormap import Im2col, Im2colWide, TensorMap, Tiled

# NVRTC's options with which PTX has lines.
_LINES = {"-lineinfo", "--generate-line-info", "-G", "--device-debug"}
GivenMap = TensorMap | Tiled | Im2col | Im2colWide | bytes


def check_ptx(
    text: str,
    tensor_maps: Mapping[int | str, GivenMap] = {},  # read, and never changed
    *,
    source: str = "",
    file: str = "",
    names: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Finding, ...]:
    """What is wrong with the way PTX uses the Tensor Memory Accelerator.

    Whoever wrote or compiled it. Instructions that are not known pass; text that is no PTX has no findings. A finding
    of severity ``"error"`` is certain as far as the code alone can say; where a fact is not known (an address from
    memory, a function that is not inlined), nothing is reported.

    Parameters
    ----------
    text : str
        A PTX module. With line information (``-lineinfo``) findings point at the source.
    tensor_maps : mapping, optional
        The tensor maps that kernels are given, by the position of the parameter, its name in PTX or its name in the
        source: a `TensorMap`, its 128 bytes, or its parameters. With them, byte counts are compared exactly.
    source : str, optional
        The CUDA C++ that it was compiled from, whose comments may take findings back.
    file : str, optional
        What the source is called in findings.
    names : mapping, optional
        For each kernel, the names of its parameters in the source.

    Returns
    -------
    tuple of Finding
        In the order of their lines. ``// cupytma: ignore[rule-id]`` on a line or the one before takes back what is
        found there; without brackets, everything.

    Raises
    ------
    CheckError
        If `text` or `source` is no text, a map is none, or no kernel has the parameter that one is given for.

    Examples
    --------
    >>> check_ptx(".version 8.8\\n.target sm_90a\\n")
    ()
    """
    for name, value in (("text", text), ("source", source), ("file", file)):
        if not isinstance(value, str):
            raise CheckError(f"{name} is a {type(value).__name__}; the text of a PTX module or its source is needed")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    maps = GivenMaps(_maps(tensor_maps), names)
    if not any(mark in text for mark in MARKS):
        return ()
    module = read_module(text)
    maps.check_are_taken(text, max((len(function.parameters) for function in module.functions), default=0))
    with_family = functions_with_family(module)
    report = Reporter(module, RULES, file)
    units = {f.name: Unit(module, f, with_family) for f in module.functions if f.name in with_family and f.statements}
    takes_map = parameters_used_as_maps(units)
    for unit in units.values():
        _check(unit, report, maps, takes_map)
    return report.findings(source)


def _check(unit: Unit, report: Reporter, maps: GivenMaps, takes_map: dict[str, set[int]]) -> None:
    check_features(unit, report)
    check_stores(unit, report)
    check_barriers(unit, report)
    check_transactions(unit, report, maps)
    check_maps(unit, report, takes_map)
    check_operands(unit, report, maps)
    check_clusters(unit, report)


def check_cuda(
    source: str,
    target: str | Target = "sm_90a",
    tensor_maps: Mapping[int | str, GivenMap] = {},  # read, and never changed
    *,
    file: str = "kernel.cu",
    options: Iterable[str] = (),
    defines: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    includes: Iterable[str | PathLike[str]] = (),
    name_expressions: Iterable[str] = (),
) -> tuple[Finding, ...]:
    """What is wrong with the way a kernel in CUDA C++ uses the Tensor Memory Accelerator.

    It is compiled by NVRTC with line information; no GPU is needed.

    Parameters
    ----------
    source : str
    target : str or Target
    tensor_maps : mapping, optional
        As for `check_ptx`.
    file : str, optional
        What the source is called in findings.
    options, defines, headers, includes, name_expressions
        As for `cupytma.compile`. Kernel templates are checked in the instances that `name_expressions` name.

    Returns
    -------
    tuple of Finding

    Warns
    -----
    KernelWarning
        For kernel templates of which no instance is named.

    Raises
    ------
    CompileError
        As `cupytma.compile` does.
    CheckError
        If a map is none.
    """
    from cupytma.runtime.compiler import compile
    from cupytma.runtime.source_text import parameter_texts, template_kernels

    _maps(tensor_maps)
    instances, chosen = _texts("name_expressions", name_expressions), _texts("options", options)
    if not _LINES.intersection(chosen):
        chosen = (*chosen, "-lineinfo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)  # the findings say it
        text = compile(source, target, chosen, defines, headers, includes, instances).ptx
    named = {re.split(r"\W", name.strip())[0] for name in instances}
    unnamed = sorted(template_kernels(source) - named)
    if unnamed:
        warnings.warn(
            f"templates are checked in the instances that are named, and there are none of {', '.join(unnamed)}: give "
            f"name_expressions, such as {unnamed[0]}<float>", KernelWarning, stacklevel=2,
        )  # fmt: skip
    kernels = [function.name for function in read_module(text).functions if function.is_entry]
    names = {kernel: [_name_of(parameter) for parameter in parameter_texts(source, kernel)] for kernel in kernels}
    return check_ptx(text, tensor_maps, source=source, file=file, names=names)


def _texts(name: str, given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, (list, tuple)) and all(isinstance(text, str) for text in given):
        return tuple(given)
    raise CheckError(f"{name}={shown(given)} is not supported; supported: a list or tuple of text")


def _name_of(parameter: str) -> str:
    """The name that a declaration such as ``const float* x`` declares."""
    words = parameter.partition("=")[0].replace("*", " ").replace("&", " ").split()
    return words[-1] if words else ""


def _maps(given: Mapping[int | str, GivenMap]) -> dict[int | str, TensorMap]:
    if not isinstance(given, Mapping):
        raise CheckError(f"tensor_maps is a {type(given).__name__}; a dictionary from parameter to map is needed")
    found: dict[int | str, TensorMap] = {}
    for key, value in given.items():
        if isinstance(value, (Tiled, Im2col, Im2colWide)):
            found[key] = value.encode()
        elif isinstance(value, (bytes, bytearray, memoryview)):
            found[key] = TensorMap.from_bytes(bytes(value))
        elif isinstance(value, TensorMap):
            found[key] = value
        else:
            raise CheckError(
                f"tensor_maps[{shown(key)}] is a {type(value).__name__}; a TensorMap or its parameters are needed"
            )
    return found
