"""What a compiler's complaint means for a kernel that uses the Tensor Memory Accelerator, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cupytma import ptx
from cupytma.errors import CompileError, EmissionError
from cupytma.ptx.header import why_missing
from cupytma.ptx.parse import read as statement_of
from cupytma.runtime.compilation import Request
from cupytma.runtime.diagnostics import NAME_MAP, Diagnostic, cut, errors_of
from cupytma.runtime.headers import HEADER_NAME, package_of, requirement_of
from cupytma.runtime.nvrtc import CompilerRefusal, ptx_version
from cupytma.targets import TARGETS, Feature, Target
from cupytma.words import counted

_MOST_ERRORS = 6
_NEAR = 0.75
# Instructions of the tensor cores' newer generation, which the toolkit has no table of.
_TENSOR_CORE = ("tcgen05",)


@dataclass(frozen=True)
class Case:
    """One error, with what was compiled."""

    request: Request
    error: Diagnostic
    version: tuple[int, int]

    @property
    def target(self) -> Target:
        return self.request.target

    @property
    def cuda(self) -> int:
        return self.version[0]


def compile_error(request: Request, refusal: CompilerRefusal, version: tuple[int, int]) -> CompileError:
    """The error that a refusal of the compiler is raised as: each error with its place, and what is known of it."""
    spoken = ".".join(map(str, version))
    found = errors_of(refusal.diagnostics)
    if "invalid value for --gpu-architecture" in refusal.log:
        message = f"NVRTC {spoken} refused its options for {request.target}: {_too_new(request.target, version)}"
        return CompileError(message, refusal.log, request.source, refusal.diagnostics)
    if refusal.status == "NVRTC_ERROR_INVALID_OPTION":
        message = f"NVRTC {spoken} refused its options for {request.target}: {cut(refusal.log)}"
        return CompileError(message, refusal.log, request.source, refusal.diagnostics)
    count = counted(len(found), "error") if found else cut(refusal.log) or refusal.status
    lines = [f"compiling for {request.target} with NVRTC {spoken} failed: {count}"]
    said: set[str] = set()
    for error in found[:_MOST_ERRORS]:
        lines.append(str(_named(request, error)))
        advice = advice_for(Case(request, error, version))
        lines += [f"  → {text}" for text in advice if text not in said]
        said.update(advice)
    if len(found) > _MOST_ERRORS:
        lines.append(f"and {len(found) - _MOST_ERRORS} more; the log has them all")
    return CompileError("\n".join(lines), refusal.log, request.source, refusal.diagnostics)


def _named(request: Request, error: Diagnostic) -> Diagnostic | str:
    """An error in a name expression is shown with that, not with the compiler's own line for it."""
    if error.file != NAME_MAP or error.line is None or not 0 <= error.line - 2 < len(request.names):
        return error
    return f"name expression {cut(repr(request.names[error.line - 2]))}: {cut(error.message)}"


def advice_for(case: Case) -> list[str]:
    """Explanations of one error, the most telling first; empty where there is none."""
    found = list(dict.fromkeys(_from_statement(case))) if case.error.statement else []
    for pattern, explain in _TABLE:
        if match := pattern.search(case.error.message):
            text = explain(case, match)
            if text and text not in found:
                found.append(text)
    return found


# What PTX says.


def _from_statement(case: Case) -> Iterator[str]:
    """What our tables know of a PTX instruction that the assembler refuses."""
    statement = case.error.statement
    if statement.startswith(_TENSOR_CORE):
        having = [t for t in TARGETS.values() if t.has(Feature.CTA_GROUP)]
        yield _elsewhere(statement.partition(".")[0], having, case.target)
        return
    try:
        read = statement_of(statement)
        form = read.instruction
    except EmissionError as error:
        if _is_of_family(statement):
            yield str(error)
        return
    if not form.supported_on(case.target):
        what = _wanting(form, case.target)
        yield _elsewhere(what, list(form.targets), case.target)
    yield from _too_old(form, case)
    for operand in form.operands:
        if operand.is_immediate and read.given.get(operand.name, "").startswith("%"):
            yield f'{operand.name} is a constant: write the number into the text, or give it with the constraint "n"'
    if form.mnemonic != statement.split()[0]:
        yield from (f"{note}; it is spelt {form.mnemonic}" for note in form.notes)


def _is_of_family(statement: str) -> bool:
    """Whether a statement begins as an instruction of the family does, so that a near one is what was meant."""
    words = re.sub(r"^@!?%?\w+\s+", "", statement).partition(" ")[0].split(".")
    first = {form.mnemonic.split(".")[0] for form in ptx.catalogue()}
    if words[0] not in first:
        return False
    # fence, cp and mbarrier are families with members of other kinds; what is not near any is no mistake of ours.
    return words[0] not in ("fence", "cp", "prefetch") or len(words) > 1


def _wanting(form: ptx.Instruction, target: Target) -> str:
    """What a target lacks: the instruction, by its short name where that says it."""
    lacking = sorted(feature.value for feature in form.features - target.features)
    # A feature that is more than one instruction says less than the instruction does.
    return lacking[0] if len(lacking) == 1 and " " not in lacking[0] else form.mnemonic


def _elsewhere(what: str, having: list[Target], target: Target) -> str:
    """`tensormap.replace needs sm_90a: you compiled for sm_90`, with all that would do."""
    if not having:
        return f"{what} exists on no target"
    same = [t for t in having if t.compute_capability == target.compute_capability]
    needed = (same or having)[0]
    others = ", ".join(map(str, having))
    major, minor = target.compute_capability
    hint = f"compile with target={str(needed)!r}" if same else f"no target of compute capability {major}.{minor} has it"
    return f"{what} needs {needed}: you compiled for {target}; {hint} (targets that have it: {others})"


def _too_old(form: ptx.Instruction, case: Case) -> Iterator[str]:
    has = ptx_version(case.version)
    if has is not None and form.ptx_version > has:
        yield f"{form.mnemonic} {_newer_needed(form.ptx_version, has, case.version)}"


def _newer_needed(needed: tuple[int, int], has: tuple[int, int], version: tuple[int, int]) -> str:
    toolkit = next((name for name, writes in ptx.TOOLKITS.items() if writes >= needed), "a newer one")
    wanted, had, spoken = (".".join(map(str, v)) for v in (needed, has, version))
    return (
        f"needs PTX {wanted}, which NVRTC of CUDA {toolkit} writes; NVRTC {spoken} writes PTX {had}. "
        f"{_install(toolkit)}"
    )


def _install(toolkit: str) -> str:
    if toolkit.startswith("12"):
        return f"Install it: pip install 'nvidia-cuda-nvrtc-cu12>={toolkit}'"
    return f"Install it: pip install 'cupytma[cuda13]' 'nvidia-cuda-nvrtc>={toolkit}'"


def _too_new(target: Target, version: tuple[int, int]) -> str:
    has = ptx_version(version)
    if has is None or target.ptx_version <= has:
        return "it does not know this target"
    return f"{target} {_newer_needed(target.ptx_version, has, version)}"


# What C++ says.


def _no_member(case: Case, match: re.Match[str]) -> str:
    name = match[1]
    form = next((f for f in ptx.catalogue() if f.function_name == name), None)
    if form is not None and not form.supported_on(case.target):
        return _elsewhere(_wanting(form, case.target), list(form.targets), case.target)
    if form is not None and (old := next(_too_old(form, case), "")):
        return old
    return why_missing(name, case.target)


_FIXED_WIDTH = re.compile(r"u?int(?:8|16|32|64|ptr)_t|size_t|ptrdiff_t")
# Names that are declared in a header of the toolkit, or that belong to the host.
_DECLARED_IN: tuple[tuple[str, str], ...] = (
    (r"__half2?|half2?|__float2half\w*|__half2float|__hadd\w*|__hmul\w*|__hfma\w*", "cuda_fp16.h"),
    (r"__nv_bfloat16\w*|nv_bfloat16\w*|__float2bfloat16\w*|__bfloat162float\w*", "cuda_bf16.h"),
    (r"__nv_fp8\w*", "cuda_fp8.h"),
    (r"__nv_fp6\w*", "cuda_fp6.h"),
    (r"__nv_fp4\w*", "cuda_fp4.h"),
    (r"cooperative_groups|cg|this_cluster|this_grid|this_thread_block", "cooperative_groups.h"),
    (r"INFINITY|NAN|CUDART_INF\w*|CUDART_NAN\w*", "math_constants.h"),
)
_ON_HOST = re.compile(r"cuTensorMap(?:Encode\w+|ReplaceAddress)|cuda(?:Malloc|Memcpy|DeviceSynchronize)\w*")


def _undefined(case: Case, match: re.Match[str]) -> str:
    """What an undefined identifier may be meant as."""
    name = match[1]
    if name == "CUtensorMap":
        return f"CUtensorMap comes with #include <{HEADER_NAME}>"
    if _FIXED_WIDTH.fullmatch(name):
        return (
            f"NVRTC has no standard headers: write the builtin type (unsigned int, unsigned long long), or #include "
            f"<cuda/std/cstdint> of {package_of('cuda/', case.cuda)} and write cuda::std::{name}"
        )
    if _ON_HOST.fullmatch(name):
        return f"{name} is called on the host; in Python, tma.Tiled(…).encode() makes a tensor map"
    for pattern, header in _DECLARED_IN:
        if re.fullmatch(pattern, name):
            return f"{name} needs #include <{header}>; {_wheel(header, case.cuda)}"
    return _near_function(case, name)


def _near_function(case: Case, name: str) -> str:
    names = {f.function_name for f in ptx.catalogue() if f.supported_on(case.target)}
    if name in names:
        included = HEADER_NAME in case.request.source
        return f"write cupytma::{name}" + ("" if included else f", and #include <{HEADER_NAME}>")
    near = difflib.get_close_matches(name, sorted(names), n=2, cutoff=_NEAR)
    return f"did you mean {' or '.join(f'cupytma::{n}' for n in near)}?" if near else ""


def _namespace(case: Case, _: re.Match[str]) -> str:
    """A name before ``::`` that is none: which one, from the line."""
    at = case.error.column or 0
    name = re.match(r"\s*(\w+)\s*::\s*(\w*)", case.error.text[at:])
    if name is None:
        return ""
    if name[1] == "cupytma":
        return f"the namespace cupytma comes with #include <{HEADER_NAME}>"
    if name[1] == "std":
        return (
            f"NVRTC has no standard library: #include <cuda/std/…> of {package_of('cuda/', case.cuda)} and write "
            f"cuda::std::{name[2]}"
        )
    if name[1] == "cuda":
        header = {"ptx": "cuda/ptx", "barrier": "cuda/barrier", "std": "cuda/std/…"}.get(name[2], f"cuda/{name[2]}")
        return f"cuda::{name[2]} needs #include <{header}>; {_wheel('cuda/', case.cuda)}"
    if name[1] in ("cg", "cooperative_groups"):
        return f"{name[1]} needs #include <cooperative_groups.h>; {_wheel('cooperative_groups.h', case.cuda)}"
    return ""


def _no_library(case: Case, match: re.Match[str]) -> str:
    if match[1] == "std":
        return (
            f"NVRTC has no standard library: #include <cuda/std/…> of {package_of('cuda/', case.cuda)} and write "
            f"cuda::std::{match[2]}"
        )
    if match[1] == "cuda":
        return f"cuda::{match[2]} needs its own #include, such as <cuda/{match[2]}>; {_wheel('cuda/', case.cuda)}"
    return ""


_NO_CUDA_H = (
    f"a kernel needs no cuda.h: CUtensorMap comes with #include <{HEADER_NAME}>, and the rest of cuda.h is the host's"
)


def _missing_header(case: Case, match: re.Match[str]) -> str:
    name = match[1]
    if name == "cuda.h":
        return f"{_NO_CUDA_H}. Remove the line"
    if package := package_of(name, case.cuda):
        return f"{name} is in the package {package}: pip install {requirement_of(name, case.cuda)}"
    if re.fullmatch(r"c?(?:stdint|stddef|stdlib|stdio|string|math|float|limits|assert)(?:\.h)?|[a-z_]+", name):
        if case.error.file.endswith("/cuda.h"):
            return f"{_NO_CUDA_H}. Remove the line that includes cuda.h"
        if not case.error.in_source:
            return f"{case.error.file} is a header for a host's compiler too, and NVRTC has no <{name}>: do without it"
        plain = name.removesuffix(".h")
        standard = plain if plain.startswith("c") or not name.endswith(".h") else f"c{plain}"
        return (
            f"NVRTC has no standard library, so no <{name}>. printf and C++'s own types are there without; for the "
            f"rest: pip install {package_of('cuda/', case.cuda)} and #include <cuda/std/{standard}>"
        )
    if name.startswith(("cute/", "cutlass/")):
        return f"{name} is a header of CUTLASS: name its folder, includes=['…/cutlass/include']"
    if near := difflib.get_close_matches(name, [HEADER_NAME, *(n for n, _ in case.request.headers)], n=1):
        return f"did you mean <{near[0]}>?"
    return (
        f"{name} is found neither in headers={{…}} nor in includes=[…]: give its text as headers={{{name!r}: text}} or "
        "its folder as includes=['folder']"
    )


def _wheel(header: str, major: int) -> str:
    return f"it is in the package {package_of(header, major)}: pip install {requirement_of(header, major)}"


def _signature(case: Case, _: re.Match[str]) -> str:
    """How the function of our header that a line calls is declared."""
    called = re.findall(r"cupytma::(\w+)\s*(<)?", case.error.text)
    before = [name for name, _ in called if case.error.text.find(name) <= (case.error.column or 10**6)]
    for name in reversed(before or [name for name, _ in called]):
        form = next((f for f in ptx.catalogue() if f.function_name == name), None)
        if form is None:
            continue
        head = form.function(case.target).split("\n{", 1)[0]
        lines = [line.strip() for line in head.splitlines() if not line.startswith("//")]
        text = " ".join(lines).replace("__device__ __forceinline__ ", "").replace("( ", "(")
        hint = ""
        if form.immediates:
            constants = ", ".join(operand.name for operand in form.immediates)
            hint = f"; {constants} is a constant and stands between < and >, not between parentheses"
        return f"it is declared {text}{hint}"
    return ""


def _map_by_value(_: Case, __: re.Match[str]) -> str:
    return "a tensor map is given by its address: write &map for `const __grid_constant__ CUtensorMap map`"


def _wrong_pointer(case: Case, match: re.Match[str]) -> str:
    if "CUtensorMap" in match[1]:
        return f"a tensor map is given where something else is expected; {_signature(case, match)}"
    if match[2].startswith("unsigned long long *"):
        declared = "an mbarrier is an `unsigned long long` in shared memory: __shared__ unsigned long long barrier"
        return f"{declared}; {_signature(case, match)}"
    return _signature(case, match)


def _plain(text: str) -> Callable[[Case, re.Match[str]], str]:
    return lambda _, __: text


def _shared_too_large(case: Case, match: re.Match[str]) -> str:
    size = int(match[1], 16)
    return (
        f"static shared memory ends at 48 KB ({size} B are declared). Declare `extern __shared__ __align__(1024) char "
        f"shared[];` and give the launch shared_bytes={size}; {case.target} has up to {case.target.shared_bytes} B"
    )


def _unknown_symbol(case: Case, match: re.Match[str]) -> str:
    name = match[1]
    if name == "ret":
        return "the last instruction of an asm statement lacks its semicolon"
    if name.lstrip("%").startswith(("p", "P")):
        return f"a predicate is declared within the asm statement: \"{{ .reg .pred {name}; … }}\", braces around it"
    return f"{name} is neither a register that the asm statement declares nor an operand, which is written %0, %1, …"


def _wait_operand(case: Case, _: re.Match[str]) -> str:
    if ".parity" in case.error.statement:
        return ""
    return (
        "with a phase's parity, 0 or 1, it is spelt mbarrier.try_wait.parity; without, the operand is the 64-bit state "
        "that mbarrier.arrive gives"
    )


def _unplaced(case: Case, _: re.Match[str]) -> str:
    """The target lacks something, and it is not known what."""
    if case.error.statement:
        return ""
    return f"{case.target} lacks it; an architecture's own target ends in a, such as sm_90a"


_TABLE: tuple[tuple[re.Pattern[str], Callable[[Case, re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), explain)
    for pattern, explain in (
        (r'namespace "cupytma" has no member "(\w+)"', _no_member),
        (r'identifier "(\w+)" is undefined', _undefined),
        (r'namespace "(std|cuda|cooperative_groups)(?:::\w+)*" has no member "(\w+)"', _no_library),
        (r'name followed by "::" must be a class or namespace name', _namespace),
        (r'could not open source file "([^"]+)"', _missing_header),
        (r'cannot open source file "([^"]+)"', _missing_header),
        (r'no suitable (?:user-defined )?conversion.*from "(?:const )?CUtensorMap"', _map_by_value),
        (r'argument of type "([^"]+)" is incompatible with parameter of type "([^"]+)"', _wrong_pointer),
        (r"too (?:few|many) arguments in function call", _signature),
        (r"no instance of function template|no matching function|expression must have a constant value", _signature),
        (
            r"annotated with __grid_constant__ must (?:have const-qualified|not have reference) type",
            _plain("declare the parameter by value and const: `const __grid_constant__ CUtensorMap map`"),
        ),
        (
            r'extern "C" linkage|template.*"C" linkage|linkage specification is not allowed',
            _plain(
                'a template has no C name: leave out extern "C" and ask for an instance, such as '
                'module.kernel("scale<float, 4>")'
            ),
        ),
        (r"uses too much shared data \((0x[0-9a-f]+) bytes", _shared_too_large),
        (
            r"without (?:execution|memory) space annotations",
            _plain(
                "NVRTC compiles for the device alone: mark functions __device__, variables too or __constant__, or "
                "give options=['--device-as-default-execution-space']"
            ),
        ),
        (
            r"asm operand index requested is larger",
            _plain(
                "the text of an asm statement has a %n without an operand: they count from %0, outputs first; a "
                "register's own % is written %%"
            ),
        ),
        (r"Unknown symbol '([^']+)'", _unknown_symbol),
        (
            r"Arguments mismatch for instruction 'mbarrier\.(?:try|test)_wait'",
            _wait_operand,
        ),
        (
            r"cannot determine which instance of (?:overloaded function|function template)",
            _plain(
                'name one: a template with its arguments, "scale<float>"; an overload by its type, '
                '"(void (*)(float*)) scale"'
            ),
        ),
        (
            r"Instruction '[\w.:]+' (?:not supported|cannot be compiled)|Feature '[^']+' (?:not supported|requires)",
            _unplaced,
        ),
    )
)
