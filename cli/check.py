"""``cupytma check``: what is wrong with a kernel's use of the Tensor Memory Accelerator, or with a tensor map."""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from cupytma.errors import DescriptorError, KernelWarning
from cupytma.targets import Target

from .failures import Failure, violations_text
from .options import TargetName
from .output import show, table, text_width
from .sources import STANDARD_INPUT, as_text, name_of, read_file

if TYPE_CHECKING:
    from cupytma.check import Finding
    from cupytma.tensormap import TensorMap

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
    "  cupytma check kernel.ptx --tensormap 0=map.bin --sarif > check.sarif\n"
    "  cupytma check map.bin\n"
    "  cupytma check --rules"
)
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--target", "-t", type=TargetName(), help="What CUDA C++ is compiled for, or a map used on.  [sm_90a]")
@click.option("--tensormap", "maps", multiple=True, type=MapOption(), help="The map in a parameter, by its place.")
@click.option("--define", "-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="A macro.")
@click.option(
    "--include", "-I", "includes", multiple=True, type=click.Path(file_okay=False), help="A folder with headers."
)
@click.option("--option", "options", multiple=True, metavar="OPTION", help="A further option for NVRTC.")
@click.option("--name", "names", multiple=True, metavar="EXPRESSION", help='A template\'s instance: "scale<float, 4>".')
@click.option("--json", "as_json", is_flag=True, help="Print findings, or rules, as JSON.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print findings as SARIF 2.1.0.")
@click.option("--strict", is_flag=True, help="Fail for warnings too.")
@click.option("--rules", is_flag=True, help="List what is looked for.")
def check(
    file: str | None,
    target: Target | None,
    maps: tuple[tuple[int | str, str], ...],
    defines: tuple[str, ...],
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
    1: errors (with --strict, warnings too); 2: the file cannot be checked.
    """
    if rules:
        if as_sarif:
            raise click.UsageError("--sarif is for findings; the list of rules is text, or JSON with --json")
        _print_rules(as_json)
        return
    if file is None:
        raise click.UsageError("nothing to check; give a file, or - for standard input")
    if as_json and as_sarif:
        raise click.UsageError("--json and --sarif are two formats; give one of them")
    data = read_file(file, _LARGEST_CODE)
    text = as_text(data)
    kind = kind_of(text)
    if kind == "map":
        if as_sarif or maps:
            raise click.UsageError("--sarif and --tensormap are for kernels; this is no PTX and no CUDA C++")
        _check_map(data, target, as_json)
        return
    from cupytma.check import check_cuda, check_ptx

    given = {name: _read_map(path) for name, path in maps}
    label = "stdin" if file == STANDARD_INPUT else file
    if kind == "ptx":
        found = check_ptx(text or "", given)
    else:
        macros = {name: value if has else None for name, has, value in (d.partition("=") for d in defines)}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", KernelWarning)
            found = check_cuda(
                text or "", target or "sm_90a", given, file=label, options=options, defines=macros, includes=includes,
                name_expressions=names,
            )  # fmt: skip
        for warning in said:
            click.echo(f"Warning: {warning.message}", err=True)
    _print_findings(found, label, as_json, as_sarif)
    failing = ("error", "warning") if strict else ("error",)
    if any(finding.severity in failing for finding in found):
        raise click.exceptions.Exit(1)


def kind_of(text: str | None) -> str:
    """What a file holds: ``"ptx"``, ``"cuda"`` or ``"map"``."""
    if text is None:
        return "map"
    if ".version" in text and ".target" in text:
        return "ptx"
    return "cuda" if any(word in text for word in ("__global__", "__device__", "#include", "#define")) else "map"


def _read_map(path: str) -> TensorMap:
    from cupytma.tensormap import TensorMap

    try:
        return TensorMap.parse(read_file(path))
    except DescriptorError as error:
        raise Failure(f"{name_of(path)} is no tensor map: {error}") from None


def _check_map(data: bytes, target: Target | None, as_json: bool) -> None:
    from cupytma.targets import TARGETS
    from cupytma.tensormap import TensorMap

    from .descriptor_writing import print_violations_as_json

    broken = TensorMap.parse(data).decode().violations(target or TARGETS["sm_100a"])
    if as_json:
        print_violations_as_json(broken)
    elif broken:
        click.echo(violations_text("no driver would make this tensor map", broken))
    else:
        show(f"a legal tensor map{f' for {target}' if target else ''}")
    if broken:
        raise click.exceptions.Exit(1)


def _print_rules(as_json: bool) -> None:
    from cupytma.check import RULES
    from cupytma.check.report import rules_as_json

    if as_json:
        click.echo(json.dumps(rules_as_json(), indent=2, ensure_ascii=False))
        return
    rows = [(rule.id, rule.severity.value, rule.title) for rule in RULES.values()]
    show(table(("rule", "severity", "what must hold"), rows))


def _print_findings(found: tuple[Finding, ...], label: str, as_json: bool, as_sarif: bool) -> None:
    from cupytma.check import report

    if as_json:
        click.echo(json.dumps(report.as_json(found), indent=2, ensure_ascii=False))
        return
    if as_sarif:
        click.echo(json.dumps(report.as_sarif(found, label), indent=2, ensure_ascii=False))
        return
    for finding in found:
        place = finding.place if finding.file else f"{label}:{finding.line}"
        head = f"{place}: {finding.severity}: {finding.message} [{finding.rule}]"
        if sys.stdout.isatty():  # elsewhere one line, as editors read it
            head = click.wrap_text(head, text_width(), subsequent_indent="    ")
        styled = click.style(f"{finding.severity}:", fg=_COLOURS.get(finding.severity), bold=True)
        click.echo(head.replace(f"{finding.severity}:", styled, 1))
        click.echo(click.wrap_text(f"fix: {finding.fix}", text_width(), "    ", "         "))
    click.echo(_summary(found))


def _summary(found: tuple[Finding, ...]) -> str:
    counts = Counter(finding.severity for finding in found)
    parts = [f"{counts[kind]} {kind}{'s'[: counts[kind] != 1]}" for kind in _COLOURS if counts[kind]]
    return ", ".join(parts) or "nothing found"
