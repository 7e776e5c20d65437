"""The command itself: which commands there are, and where their errors end."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from gettext import gettext as _
from importlib import import_module
from typing import Any

import click

from cupytma.errors import CupytmaError, CupytmaWarning
from cupytma.version import __version__

from .failures import failure_of, wrapped_message
from .output import warn

# Name, the module that holds the command (under the command's own name), and what it does in one line.
COMMANDS: dict[str, tuple[str, str]] = {
    "bench": ("bench", "Measure the operations on this GPU, beside torch and CuPy."),
    "cache": ("cache", "Show or clear the compiled kernels kept on disk."),
    "catalogue": ("catalogue", "List the family's instructions, with filters."),
    "check": ("check", "Check a kernel, or a tensor map, without a GPU."),
    "compile": ("compile", "Compile CUDA C++ for one or several targets."),
    "completion": ("completion", "Print the completion script for a shell."),
    "decode": ("decode", "Read a tensor map: hex, C, JSON, a debugger's words, raw bytes."),
    "demo": ("demo", "Show the whole chain on one screen, and check a copy."),
    "diff": ("diff", "Name the fields in which two tensor maps differ."),
    "doctor": ("doctor", "Say what is installed here, what works, what is missing."),
    "emit": ("emit", "Write an instruction: PTX, inline assembly or a function."),
    "encode": ("encode", "Make the 128 bytes of a tensor map."),
    "explain": ("explain", "Say what instructions do: one, or all in a file."),
    "header": ("header", "Write the CUDA C++ header for a target."),
    "help": ("help", "Explain an id from an error, or how to do something."),
    "layout": ("layout", "Show which bits of a tensor map hold what."),
    "record": ("record", "Record what a GPU does, and compare the simulator."),
    "rules": ("rules", "Show what a tensor map must obey, and how to mend it."),
    "simulate": ("simulate", "Simulate a copy: the bytes that arrive, or the fault."),
    "slots": ("slots", "Show the slots of a tensor map, and what the device writes."),
    "swizzle": ("swizzle", "Draw a swizzle, count bank conflicts, recommend one."),
    "tile": ("tile", "Show how boxes cover a tensor, and what lies outside."),
}


# How newer click shows the help of a group that is called alone.
_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, summary = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f".{module}", __package__), cmd_name)
        command.short_help = summary
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0][:40], COMMANDS, n=3)
            ctx.fail(f"No such command {args[0][:60]!r}." + (f" Did you mean {' or '.join(near)}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(_("Commands")):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CupytmaError as error:
            raise failure_of(error) from error
        except click.UsageError as error:
            if isinstance(error, _HELP):
                raise
            raise click.UsageError(wrapped_message(error.format_message()), error.ctx) from error


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n"
    "  cupytma demo\n"
    "  cupytma encode tiled --from-array shape=512,1024,dtype=float16,box=32,64",
)
@click.version_option(__version__, prog_name="cupytma", message="%(prog)s %(version)s")
def cli() -> None:
    """NVIDIA's Tensor Memory Accelerator from the command line. Only recording and measuring need a GPU."""


def run() -> None:
    """Run the command on the process's arguments."""
    if sys.stdout is None:  # closed by whoever started the process
        sys.stdout = io.TextIOWrapper(io.BytesIO())
    for stream in (sys.stdout, sys.stderr):
        # Where the encoding lacks × or …, print a stand-in rather than fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning
    if "_CUPYTMA_COMPLETE" in os.environ:
        from .completion import register

        register()
    try:
        cli(prog_name="cupytma")
    except OSError as error:  # the output cannot be written: a full disk, say
        _give_up(f"cupytma: cannot write the output: {error.strerror or error}")


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning as errors are printed; those of other packages with the file that they are from."""
    ours = issubclass(category, CupytmaWarning)
    text = str(message) if ours else f"{category.__name__}: {message} ({filename}:{lineno})"
    warn(text)


def _give_up(message: str) -> None:
    """End with exit code 2 when stdout is of no more use, without the interpreter trying it again at its exit."""
    with contextlib.suppress(OSError):
        click.echo(message, err=True)
    os._exit(2)
