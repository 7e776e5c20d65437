"""Errors as a user sees them: one block on stderr that says what is wrong and what to do, and exit code 2."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import IO, Any

import click

from cupytma.errors import CupytmaError, DescriptorError, more_line
from cupytma.tensormap import Violation
from cupytma.words import counted

from .output import paragraph, styled, text_width

# What the compiler's function and the commands that call it call the same things.
_ARGUMENTS = {"options: ": "--option ", "name_expressions: ": "--name: ", "target='sm_90a'": "--target sm_90a"}
_FIX = "fix: "
_SHOWN = 60
_NO_WORD = re.compile(r"[^\s'\"]{400,}")  # what was pasted by mistake; paths are shorter
_OF_SOURCE = re.compile(r" +\d* \| ")  # as diagnostics show where something is


class Failure(click.ClickException):
    """An error that ends the command with exit code 2.

    Parameters
    ----------
    message : str
        It may have several lines.
    topics : iterable of str
        Ids that `cupytma help` explains; the block ends with a line that says so.
    """

    exit_code = 2

    def __init__(self, message: str, topics: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.topics = tuple(topics)

    def show(self, file: IO[Any] | None = None) -> None:
        head, *rest = f"Error: {wrapped_message(self.message)}".splitlines()
        head = styled("Error:", "red", bold=True) + head.removeprefix("Error:")
        more = [more_line(self.topics)] if self.topics else []
        click.echo("\n".join((head, *rest, *more)), file=file, err=file is None)


def in_file(message: str, name: str) -> str:
    """What the compiler says of a source, with the name of the file that it was read from."""
    from cupytma.runtime.compilation import SOURCE_NAME

    return re.sub(rf"^{re.escape(SOURCE_NAME)}(?=\()", lambda _: name, message, flags=re.MULTILINE)


def in_options(message: str) -> str:
    """A message about the arguments of a function, in the words of a command."""
    for argument, option in _ARGUMENTS.items():
        message = message.replace(argument, option)
    return message


def failure_of(error: CupytmaError) -> Failure:
    """One of the library's errors as a command-line error."""
    if isinstance(error, DescriptorError) and error.violations:
        return Failure(violations_text("the driver would refuse this tensor map", error.violations))
    return Failure(str(error), error.topics)


def violations_text(
    headline: str, violations: Iterable[Violation], place: Callable[[Violation], str] = lambda _: ""
) -> str:
    """Every broken rule with its way out, as lines; the last one says where the rules are explained.

    Parameters
    ----------
    headline : str
    violations : iterable of Violation
    place : callable, optional
        Where the offending value is, such as ``"w6[63:56]"``.
    """
    broken = tuple(violations)
    lines = [f"{headline}: {counted(len(broken), 'broken rule')}"]
    for violation in broken:
        where = place(violation)
        lines += [
            f"  {violation.rule}" + (f" ({where})" if where else ""),
            f"    {violation.message}",
            f"    fix: {violation.fix}",
        ]
    if broken:
        lines.append(more_line(violation.rule for violation in broken))
    return "\n".join(lines)


def wrapped_message(message: str) -> str:
    """An error message with lines longer than the terminal broken at spaces, for printing behind ``Error: ``.

    Lines of a source stay whole, as the next one points into them.
    """
    return "\n".join(_wrapped_line(line) for line in f"Error: {message}".splitlines()).removeprefix("Error: ")


def _wrapped_line(line: str) -> str:
    if len(line) <= text_width() or _OF_SOURCE.match(line):
        return line
    line = _NO_WORD.sub(lambda found: f"{found[0][:_SHOWN]}…", line)
    return paragraph(line, hang=len(_FIX) * line.lstrip().startswith(_FIX))
