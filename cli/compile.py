"""``cupytma compile``: a file of CUDA C++ to machine code, with what each kernel takes."""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cupytma.errors import CompileError, KernelWarning, TargetError
from cupytma.targets import Target
from cupytma.targets import target as target_of

from .failures import Failure
from .output import show, table

if TYPE_CHECKING:
    from cupytma.runtime.compiler import Module


class Targets(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """Targets with commas between them: ``sm_90a,sm_100a``."""

    name = "targets"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Target, ...]:
        try:
            return tuple(dict.fromkeys(target_of(name) for name in str(value).split(",")))
        except TargetError as error:
            self.fail(str(error), param, ctx)


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma compile kernel.cu\n"
    "  cupytma compile kernel.cu --target sm_90a,sm_100a -D TILE=64 -o build"
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--target", "-t", "targets", type=Targets(), default="sm_90a", show_default=True, help="With commas between them."
)
@click.option("--output", "-o", type=click.Path(file_okay=False), help="A folder for the cubin and the PTX.")
@click.option("--define", "-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="A macro.")
@click.option(
    "--include", "-I", "includes", multiple=True, type=click.Path(file_okay=False), help="A folder with headers."
)
@click.option("--option", "options", multiple=True, metavar="OPTION", help="A further option for NVRTC.")
@click.option("--name", "names", multiple=True, metavar="EXPRESSION", help='A template\'s instance: "scale<float, 4>".')
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compile(
    file: str,
    targets: tuple[Target, ...],
    output: str | None,
    defines: tuple[str, ...],
    includes: tuple[str, ...],
    options: tuple[str, ...],
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile CUDA C++ for one or several targets, and say what each kernel takes.

    FILE may include cupytma.cuh; - reads from standard input. No GPU is needed. The exit code is 1 if it does not
    compile for every target.
    """
    from cupytma.runtime.compiler import compile as compile_source

    source = _read(file)
    # The file's own folder is where its quoted includes are, as with every compiler.
    folders = [*includes, *([os.path.dirname(os.path.abspath(file))] if file != "-" else [])]
    macros = {name: value if given else None for name, given, value in (d.partition("=") for d in defines)}
    modules: dict[str, Module] = {}
    failed: dict[str, CompileError] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)  # they are printed below, for each target
        for target in targets:
            try:
                modules[str(target)] = compile_source(source, target, options, macros, None, folders, names)
            except CompileError as error:
                failed[str(target)] = error
    if output is not None:
        _write(output, "kernel" if file == "-" else os.path.splitext(os.path.basename(file))[0], modules)
    if as_json:
        click.echo(json.dumps(_facts(modules, failed)))
    else:
        _show(modules, failed, names)
    sys.exit(1 if failed else 0)


def _read(file: str) -> str:
    try:
        with click.open_file(file, encoding="utf-8") as opened:
            text: str = opened.read()
    except OSError as error:
        raise Failure(f"cannot read {file!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise Failure(f"{file!r} is no text in UTF-8: {error.reason} at byte {error.start}") from None
    return text


def _write(folder: str, stem: str, modules: dict[str, Module]) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        for target, module in modules.items():
            base = os.path.join(folder, f"{stem}.{target}")
            with open(f"{base}.cubin", "wb") as code:
                code.write(module.cubin)
            with open(f"{base}.ptx", "w", encoding="utf-8") as text:
                text.write(module.ptx)
    except OSError as error:
        raise Failure(f"cannot write into {folder!r}: {error.strerror or error}") from None


def _facts(modules: dict[str, Module], failed: dict[str, CompileError]) -> dict[str, object]:
    return {
        **{
            target: {
                "kernels": {name: asdict(resources) for name, resources in module.resources.items()},
                "lowered_names": module.lowered_names,
                "warnings": module.warnings,
                "log": module.log,
            }
            for target, module in modules.items()
        },
        **{
            target: {"error": str(error), "log": error.log, "diagnostics": [asdict(d) for d in error.diagnostics]}
            for target, error in failed.items()
        },
    }


def _show(modules: dict[str, Module], failed: dict[str, CompileError], names: tuple[str, ...]) -> None:
    headings = ("target", "kernel", "registers", "shared B", "stack B", "spill B", "code B")
    rows = []
    for target, module in modules.items():
        spoken = {lowered: name for name, lowered in module.lowered_names.items()}
        for name, taken in module.resources.items():
            spilt = taken.spill_store_bytes + taken.spill_load_bytes
            stack = "?" if taken.stack_bytes is None else str(taken.stack_bytes)
            numbers = (taken.registers, taken.shared_bytes, stack, spilt, taken.code_bytes)
            rows.append((target, spoken.get(name, name), *map(str, numbers)))
    if rows:
        show(table(headings, rows, right=headings[2:]))
    elif not failed:
        show("no kernels: declare them extern \"C\" __global__, or name a template's instance with --name")
    for target, module in modules.items():
        for text in (*((module.log,) if module.log else ()), *module.warnings):
            click.echo(f"{target}: {text}", err=True)
    for error in failed.values():
        click.echo(f"Error: {error}", err=True)
