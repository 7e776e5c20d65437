"""``cupytma check``: what is wrong with a kernel's use of the Tensor Memory Accelerator, or with a tensor map."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from cupytma.errors import CompileError, CompileInputError, CupytmaError, DescriptorError, KernelWarning, more_line
from cupytma.targets import Target
from cupytma.words import counted

from .descriptor_reading import described_in
from .dumps import MOST_PERMISSIVE
from .failures import Failure, failure_of, in_file, in_options, violations_text
from .options import Macro, TargetName
from .output import paragraph, show, show_json, show_rows, styled, warn
from .progress import PATIENCE, progress_bar
from .sources import STANDARD_INPUT, as_text, is_ptx, name_of, read_file

if TYPE_CHECKING:
    from cupytma.check import Finding
    from cupytma.tensormap import TensorMap, Violation

# A module of PTX may be long; what holds descriptors is short.
_LARGEST_CODE = 1 << 27
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


class MapOption(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A tensor map for a parameter: ``NAME=FILE``."""

    name = "name=file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int | str, str]:
        name, separator, file = str(value).partition("=")
        if not separator or not name or not file:
            self.fail(f"{value!r}: write the parameter, by position or name, and a file: 0=map.bin", param, ctx)
        return (int(name) if name.isdecimal() and len(name) < 6 else name), file


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma check kernel.cu\n"
    "  cupytma check src/*.cu --strict\n"
    "  cupytma check kernel.ptx --tensormap 0=map.bin --sarif > check.sarif\n"
    "  cupytma check map.bin\n"
    "  cupytma compile kernel.cu -o - | cupytma check -\n"
    "  cupytma check --rules"
)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--target", "-t", type=TargetName(), help="What CUDA C++ is compiled for, or a map used on.  [sm_90a]")
@click.option("--tensormap", "maps", multiple=True, type=MapOption(), help="The map in a parameter, by its place.")
@click.option("--define", "-D", "defines", multiple=True, type=Macro(), metavar="NAME[=VALUE]", help="A macro.")
@click.option(
    "--include", "-I", "includes", multiple=True, type=click.Path(exists=True, file_okay=False),
    help="A folder with headers.",
)
@click.option("--option", "options", multiple=True, metavar="OPTION", help="A further option for NVRTC.")
@click.option("--name", "names", multiple=True, metavar="EXPRESSION", help='A template\'s instance: "scale<float, 4>".')
@click.option("--json", "as_json", is_flag=True, help="Print findings, or rules, as JSON.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print findings as SARIF 2.1.0.")
@click.option("--strict", is_flag=True, help="Fail for warnings too.")
@click.option("--rules", is_flag=True, help="List what is looked for.")
def check(
    files: tuple[str, ...],
    target: Target | None,
    maps: tuple[tuple[int | str, str], ...],
    defines: tuple[tuple[str, str | None], ...],
    includes: tuple[str, ...],
    options: tuple[str, ...],
    names: tuple[str, ...],
    as_json: bool,
    as_sarif: bool,
    strict: bool,
    rules: bool,
) -> None:
    """Check a kernel, or a tensor map, without a GPU.

    FILE is PTX, CUDA C++ or a tensor map (as `cupytma decode` reads it); - is standard input. Exit code 0: no error;
    1: errors (with --strict, warnings too); 2: a file cannot be checked.
    """
    if rules:
        if as_sarif:
            raise click.UsageError("--sarif is for findings; the list of rules is text, or JSON with --json")
        _print_rules(as_json)
        return
    if not files:
        raise click.UsageError("nothing to check; give a file, or - for standard input")
    if files.count(STANDARD_INPUT) > 1:
        raise click.UsageError("standard input can be checked once")
    if as_json and as_sarif:
        raise click.UsageError("--json and --sarif are two formats; give one of them")
    how = _How(target, maps, dict(defines), includes, options, names, as_sarif)
    checked = [_check(files[0], how)] if len(files) == 1 else _check_all(files, how)
    for one in checked:
        for warning in one.warnings:
            warn(f"{one.label + ': ' if len(files) > 1 else ''}{warning}")
        if one.failure is not None:
            one.failure.show()
    _print(checked, target, as_json, as_sarif)
    failing = ("error", "warning") if strict else ("error",)
    if any(one.failure is not None for one in checked):
        raise click.exceptions.Exit(2)
    if any(one.broken or any(finding.severity in failing for finding in one.findings) for one in checked):
        raise click.exceptions.Exit(1)


@dataclass(frozen=True)
class _How:
    """What the options say of every file."""

    target: Target | None
    maps: tuple[tuple[int | str, str], ...]
    macros: dict[str, str | None]
    includes: tuple[str, ...]
    options: tuple[str, ...]
    names: tuple[str, ...]
    as_sarif: bool


@dataclass(frozen=True)
class _Checked:
    """What was found in one file: findings of a kernel, or broken rules of a tensor map, or why neither."""

    label: str
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    broken: tuple[Violation, ...] | None = None
    failure: Failure | None = None


def _check_all(files: tuple[str, ...], how: _How) -> list[_Checked]:
    """Check several files; one that cannot be checked keeps no other from it."""
    found = []
    with progress_bar(len(files), "checking", PATIENCE) as report:
        for done, file in enumerate(files):
            report(done, file)
            try:
                found.append(_check(file, how))
            except (CupytmaError, click.ClickException) as error:
                said = failure_of(error) if isinstance(error, CupytmaError) else error
                found.append(_Checked(_label(file), failure=Failure(f"{_label(file)}: {said.message}")))
    return found


def _label(file: str) -> str:
    return "stdin" if file == STANDARD_INPUT else file


def _check(file: str, how: _How) -> _Checked:
    data = read_file(file, _LARGEST_CODE)
    text, label = as_text(data), _label(file)
    kind = kind_of(text)
    if kind == "map":
        if how.as_sarif or how.maps:
            raise click.UsageError("--sarif and --tensormap are for kernels; this is no PTX and no CUDA C++")
        return _Checked(label, broken=_broken_rules(data, how.target))
    from cupytma.check import check_cuda, check_ptx

    given = {name: _read_map(path) for name, path in how.maps}
    if kind == "ptx":
        return _Checked(label, check_ptx(text or "", given))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", KernelWarning)
        try:
            found = check_cuda(
                text or "", how.target or "sm_90a", given, file=label, options=how.options, defines=how.macros,
                includes=how.includes, name_expressions=how.names,
            )  # fmt: skip
        except CompileInputError as error:
            raise Failure(in_options(str(error)), error.topics) from None
        except CompileError as error:
            raise Failure(in_file(str(error), label), error.topics) from None
    return _Checked(label, found, tuple(str(warning.message) for warning in said))


def kind_of(text: str | None) -> str:
    """What a file holds: ``"ptx"``, ``"cuda"`` or ``"map"``."""
    if text is None:
        return "map"
    if is_ptx(text):
        return "ptx"
    return "cuda" if any(word in text for word in ("__global__", "__device__", "#include", "#define")) else "map"


def _read_map(path: str) -> TensorMap:
    try:
        return described_in(read_file(path)).tensor_map
    except DescriptorError as error:
        raise Failure(f"{name_of(path)} is no tensor map: {error}") from None


def _broken_rules(data: bytes, target: Target | None) -> tuple[Violation, ...]:
    return described_in(data).tensor_map.decode().violations(target or MOST_PERMISSIVE)


def _print_rules(as_json: bool) -> None:
    from cupytma.check import RULES
    from cupytma.check.report import rules_as_json

    if as_json:
        show_json(rules_as_json())
        return
    rows = [(rule.id, rule.severity.value, rule.title) for rule in RULES.values()]
    show_rows(("rule", "severity", "what must hold"), rows)


def _print(checked: list[_Checked], target: Target | None, as_json: bool, as_sarif: bool) -> None:
    if as_json:
        documents = [_document(one) for one in checked]
        several = [{"file": one.label, **document} for one, document in zip(checked, documents, strict=True)]
        # Of one kernel the findings themselves, as before there were several.
        listed = several if len(checked) > 1 else documents[0].get("findings", documents[0])
        show_json(listed)
        return
    if as_sarif:
        from cupytma.check import report

        placed = [replace(found, file=found.file or one.label) for one in checked for found in one.findings]
        show_json(report.as_sarif(placed))
        return
    for one in checked:
        for finding in one.findings:
            _print_finding(finding, one.label)
        if one.broken:
            head = f"{one.label}: " if len(checked) > 1 else ""
            click.echo(violations_text(f"{head}no driver would make this tensor map", one.broken))
    if len(checked) > 1 or checked[0].broken is None:
        if found := [finding.rule for one in checked for finding in one.findings]:
            click.echo(more_line(found))
        click.echo(_summary(checked))
    elif not checked[0].broken:
        show(f"a legal tensor map{f' for {target}' if target else ''}")


def _document(one: _Checked) -> dict[str, Any]:
    from cupytma.check import report

    if one.failure is not None:
        return {"error": one.failure.message}
    if one.broken is not None:
        broken = [{"rule": v.rule, "message": v.message, "fix": v.fix, "index": v.index} for v in one.broken]
        return {"violations": broken}
    return {"findings": report.as_json(one.findings)}


def _print_finding(finding: Finding, label: str) -> None:
    place = finding.place if finding.file else f"{label}:{finding.line}"
    head = f"{place}: {finding.severity}: {finding.message} [{finding.rule}]"
    if sys.stdout.isatty():  # elsewhere one line, as editors read it
        head = paragraph(head, 0, 4)
    severity = f"{finding.severity}:"
    click.echo(head.replace(severity, styled(severity, _COLOURS.get(finding.severity), bold=True), 1))
    click.echo(paragraph(f"fix: {finding.fix}", 4, 5))


def _summary(checked: list[_Checked]) -> str:
    counts = Counter(finding.severity for one in checked for finding in one.findings)
    parts = [counted(counts[kind], kind) for kind in _COLOURS if counts[kind]]
    maps, failures = sum(bool(one.broken) for one in checked), sum(one.failure is not None for one in checked)
    parts += [counted(maps, "illegal tensor map")] * bool(maps)
    parts += [f"{failures} not checked"] * bool(failures)
    found = ", ".join(parts) or "nothing found"
    return f"{len(checked)} files: {found}" if len(checked) > 1 else found
