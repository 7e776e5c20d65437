"""``cupytma compile``: a file of CUDA C++ to machine code, with what each kernel takes."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from cupytma.errors import CompileError, CompileInputError, KernelWarning, TargetError
from cupytma.targets import TARGETS, Target
from cupytma.targets import target as target_of

from .failures import Failure, in_file, in_options
from .options import Macro, starting
from .output import paragraph, show, show_json, show_rows, warn
from .progress import PATIENCE, progress_bar
from .sources import STANDARD_INPUT, is_ptx, name_of, read_file

if TYPE_CHECKING:
    from cupytma.runtime.compiler import Module
    from cupytma.runtime.resources import KernelResources

_LARGEST = 1 << 27  # bytes of a source
_ENDINGS = (".ptx", ".cubin")
_HEADINGS = ("target", "kernel", "registers", "shared B", "local B", "spill B", "code B")


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

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given, comma, last = incomplete.rpartition(",")
        others = (name for name in TARGETS if name not in given.split(","))
        return [CompletionItem(f"{given}{comma}{item.value}") for item in starting(others, last)]


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma compile kernel.cu\n"
    "  cupytma compile kernel.cu --target sm_90a,sm_100a -D TILE=64 -o build\n"
    "  cupytma compile kernel.cu -o kernel.cubin\n"
    "  cupytma compile kernel.cu -o - | cupytma explain -"
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--target", "-t", "targets", type=Targets(), default="sm_90a", show_default=True, help="With commas between them."
)
@click.option(
    "--output", "-o", type=click.Path(allow_dash=True), metavar="PATH",
    help="A folder for the cubin and the PTX of each target. Or, for one target, a file that ends in .cubin or .ptx; "
    "or - to print the PTX.",
)
@click.option("--define", "-D", "defines", multiple=True, type=Macro(), metavar="NAME[=VALUE]", help="A macro.")
@click.option(
    "--include", "-I", "includes", multiple=True, type=click.Path(exists=True, file_okay=False),
    help="A folder with headers.",
)
@click.option("--option", "options", multiple=True, metavar="OPTION", help="A further option for NVRTC.")
@click.option("--name", "names", multiple=True, metavar="EXPRESSION", help='A template\'s instance: "scale<float, 4>".')
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compile(
    file: str,
    targets: tuple[Target, ...],
    output: str | None,
    defines: tuple[tuple[str, str | None], ...],
    includes: tuple[str, ...],
    options: tuple[str, ...],
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile CUDA C++ for one or several targets, and say what each kernel takes.

    FILE may include cupytma.cuh; - reads from standard input. No GPU is needed. Registers are of 32 bits, per thread;
    "shared B" is static shared memory of a block, "local B" local memory of a thread, and "spill B" what moves there
    for want of registers. The exit code is 1 if it does not compile for every target.
    """
    if output is not None and len(targets) > 1 and _is_one_file(output):
        raise click.UsageError(f"--output {output} is for one target, and {len(targets)} are given; name a folder")
    if output == STANDARD_INPUT and as_json:
        raise click.UsageError("--output - prints PTX and --json prints JSON; give one of them")
    source = _read(file)
    # The file's own folder is where its quoted includes are, as with every compiler.
    folders = [*includes, *([os.path.dirname(os.path.abspath(file))] if file != STANDARD_INPUT else [])]
    modules: dict[str, Module] = {}
    failed: dict[str, CompileError] = {}
    with progress_bar(len(targets), "compiling", PATIENCE) as report:
        for done, target in enumerate(targets):
            report(done, f"compiling for {target}")
            try:
                modules[str(target)] = _compiled(source, target, options, dict(defines), folders, names)
            except CompileError as error:
                failed[str(target)] = error
    name_of_source = "stdin" if file == STANDARD_INPUT else file
    stem = "kernel" if file == STANDARD_INPUT else os.path.splitext(os.path.basename(file))[0]
    files = _write(output, stem, modules) if output is not None else {}
    if as_json:
        show_json(_facts(modules, failed, files))
    elif output != STANDARD_INPUT:
        _show(modules)
        if files:
            names_of_files = (os.path.basename(path) for paths in files.values() for path in paths)
            click.echo(paragraph(f"written: {', '.join(names_of_files)}", 0, 2))
    _say(modules, failed, name_of_source, as_json)
    sys.exit(1 if failed else 0)


def _is_one_file(output: str) -> bool:
    return output == STANDARD_INPUT or (output.endswith(_ENDINGS) and not os.path.isdir(output))


def _read(file: str) -> str:
    try:
        text = read_file(file, _LARGEST).decode()
    except UnicodeDecodeError as error:
        raise Failure(f"{name_of(file)} is no text in UTF-8: {error.reason} at byte {error.start}") from None
    if is_ptx(text):
        raise Failure(
            f"{name_of(file)} is PTX, which is compiled already; `cupytma check` and `cupytma explain` read it, and "
            "cuModuleLoadData takes it as it is"
        )
    return text


def _compiled(
    source: str, target: Target, options: tuple[str, ...], macros: dict[str, str | None], folders: list[str],
    names: tuple[str, ...],
) -> Module:  # fmt: skip
    """A module.

    Raises
    ------
    Failure
        If it is not the source that is wrong, but what stands around it: an option, a name, the compiler itself.
    CompileError
        If it is the source.
    """
    from cupytma.runtime.compiler import compile as compile_source

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)  # they are printed for each target in the end
        try:
            return compile_source(source, target, options, macros, None, folders, names)
        except CompileInputError as error:
            raise Failure(in_options(str(error))) from None
        except CompileError as error:
            # What has no place in the source is an option or a missing compiler; a target may be too new for it.
            has_place = any(diagnostic.file or diagnostic.from_assembler for diagnostic in error.diagnostics)
            if has_place or "--gpu-architecture" in error.log:
                raise
            raise Failure(str(error)) from None


def _write(output: str, stem: str, modules: dict[str, Module]) -> dict[str, list[str]]:
    """Write machine code and PTX; the paths of the files, for each target."""
    if output == STANDARD_INPUT:
        for module in modules.values():
            click.echo(module.ptx.rstrip("\0"), nl=False)
        return {}
    files: dict[str, list[str]] = {}
    try:
        if not _is_one_file(output):
            os.makedirs(output, exist_ok=True)
        for target, module in modules.items():
            base = os.path.join(output, f"{stem}.{target}")
            paths = [output] if _is_one_file(output) else [f"{base}.cubin", f"{base}.ptx"]
            for path in paths:
                with open(path, "wb") as written:
                    written.write(module.cubin if path.endswith(".cubin") else module.ptx.rstrip("\0").encode())
            files[target] = paths
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot write into {output!r:.100}: {reason}") from None
    return files


def _facts(
    modules: dict[str, Module], failed: dict[str, CompileError], files: dict[str, list[str]]
) -> dict[str, object]:
    return {
        **{
            target: {
                "kernels": {name: asdict(resources) for name, resources in module.resources.items()},
                "lowered_names": module.lowered_names,
                "warnings": module.warnings,
                "log": module.log,
                "files": files.get(target, []),
            }
            for target, module in modules.items()
        },
        **{
            target: {"error": str(error), "log": error.log, "diagnostics": [asdict(d) for d in error.diagnostics]}
            for target, error in failed.items()
        },
    }


def _show(modules: dict[str, Module]) -> None:
    rows = list(_rows(modules))
    if not rows:
        if modules:
            show("no kernels: declare them extern \"C\" __global__, or name a template's instance with --name")
    else:
        show_rows(_HEADINGS, rows, right=_HEADINGS[2:])


def _rows(modules: dict[str, Module]) -> Iterator[tuple[str, ...]]:
    for target, module in modules.items():
        spoken = {lowered: name for name, lowered in module.lowered_names.items()}
        for name, taken in module.resources.items():
            yield target, spoken.get(name, name), *_numbers(taken)


def _numbers(taken: KernelResources) -> tuple[str, ...]:
    local = "?" if taken.stack_bytes is None else f"{taken.stack_bytes:,}"
    spilt = taken.spill_store_bytes + taken.spill_load_bytes
    return str(taken.registers), f"{taken.shared_bytes:,}", local, f"{spilt:,}", f"{taken.code_bytes:,}"


def _say(modules: dict[str, Module], failed: dict[str, CompileError], file: str, as_json: bool) -> None:
    """What the compiler says, on standard error; JSON has the errors itself."""
    if as_json:
        return
    for target, module in modules.items():
        if module.log:
            lines = f"{target}: {in_file(module.log, file)}".splitlines()
            # What is indented is of the source, and the next line points into it.
            click.echo("\n".join(line if line.startswith(" ") else paragraph(line) for line in lines), err=True)
        for text in module.warnings:
            warn(f"{target}: {text}")
    for error in failed.values():
        Failure(in_file(str(error), file), error.topics).show()
