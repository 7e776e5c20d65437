"""``cupytma header``: the CUDA C++ header with a function for each instruction."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.words import counted

from .failures import Failure
from .options import TargetName, starting
from .output import paragraph
from .sources import STANDARD_INPUT


class FunctionNames(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """Functions of the header with commas between them, for completion; what there is, the header itself says."""

    name = "names"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from cupytma import ptx
        from cupytma.ptx.header import calling_functions

        chosen, comma, last = incomplete.rpartition(",")
        target = ctx.params.get("target") or DEFAULT_TARGET
        forms = (form.function_name for form in ptx.catalogue() if form.supported_on(target))
        return [
            CompletionItem(f"{chosen}{comma}{item.value}") for item in starting([*calling_functions(), *forms], last)
        ]


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma header --target sm_100a -o cupytma.cuh\n"
    "  cupytma header --only tensor_load_2d,mbarrier_wait_parity"
)
@click.option(
    "--target", "-t", type=TargetName(), default=str(DEFAULT_TARGET), show_default=True, help="What it is for."
)
@click.option(
    "--only", multiple=True, metavar="NAMES", type=FunctionNames(),
    help="The functions to leave in, with commas between them; what they call comes along.",
)
@click.option(
    "--wgmma/--no-wgmma", default=True, show_default=True,
    help="Whether to write the shapes of wgmma_mma_async, two thirds of the text.",
)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, allow_dash=True), default="-",
    help="The file to write; by default, and with -, it is printed.",
)
def header(target: Target, only: tuple[str, ...], wgmma: bool, output: str) -> None:
    """Write the header that kernels include: a function for each instruction that the target has.

    It needs no other header and compiles under nvcc and NVRTC as C++17. `cupytma compile` and cupytma.compile bring
    their own; a file is for other compilers. `cupytma catalogue` lists the names of functions.
    """
    from cupytma import ptx

    names = [name.strip() for given in only for name in given.split(",") if name.strip()]
    if only and not names:
        raise click.UsageError("--only names no function; give some, such as tensor_load_2d")
    text = ptx.header(target, names or None, wgmma)
    if output == STANDARD_INPUT:
        click.echo(text, nl=False)
        return
    try:
        with open(output, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot write {output!r:.100}: {reason}") from None
    count, size = text.count("__device__ __forceinline__"), len(text.encode())
    said = f"written to {output}: {counted(count, 'function', spec=',')} for {target}, {size:,} bytes"
    click.echo(paragraph(said))
