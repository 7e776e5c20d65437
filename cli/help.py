"""``cupytma help``: what an id in an error means, and what to do, without a network."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from .failures import Failure
from .output import shortened, show_json, text_width, wrapped

if TYPE_CHECKING:
    from cupytma.help import Topic

# A link of a how-to leads to another page of the documentation.
_LINK = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
_ITEM = re.compile(r"(\s*)((?:[-*]|\d+\.) )?")


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from cupytma.help import names

    return [CompletionItem(name) for name in names() if name.lower().startswith(incomplete.lower())]


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma help\n"
    "  cupytma help box-inner-span\n"
    "  cupytma help kernel-hangs | less\n"
    "  cupytma help 715\n"
    "  cupytma help encode"
)
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=_complete)
@click.option("--json", "as_json", is_flag=True, help="Print topics as JSON; without an ID, all of them.")
@click.pass_context
def help(context: click.Context, ids: tuple[str, ...], as_json: bool) -> None:
    """Explain an id from an error, or how to do something.

    ID is a rule, a finding, a how-to, an error of CUDA by name or number, a class of errors, a fence recipe, or a
    command. Without one, all are listed.
    """
    from cupytma.help import find, topics

    if as_json:
        found = [topic for name in ids for topic in _required(name)] if ids else topics()
        show_json([asdict(topic) for topic in dict.fromkeys(found)])
        return
    if not ids:
        _print("\n".join(_list(topics())))
        return
    texts: dict[str, None] = {}
    for name in ids:
        if not find(name) and (of_command := _help_of_command(context, name)):
            click.echo(of_command)
        else:
            texts.update((_page(topic), None) for topic in _required(name))
    if texts:
        _print("\n".join(texts))


def _required(name: str) -> Sequence[Topic]:
    from cupytma.help import find, similar

    found = find(name)
    if not found:
        near = similar(name)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise Failure(f"there is no help on {shortened(name)!r}; {hint}`cupytma help` lists what there is")
    return found


def _help_of_command(context: click.Context, name: str) -> str | None:
    """What ``cupytma NAME --help`` prints; None where there is no such command."""
    parent = context.parent
    if parent is None or not isinstance(parent.command, click.Group):
        return None
    command = parent.command.get_command(parent, name)
    return command.get_help(click.Context(command, parent, name)) if command else None


def _list(topics: Sequence[Topic]) -> Iterator[str]:
    """All ids by kind; how-tos with their titles."""
    from cupytma.help import KINDS

    for kind, heading in KINDS.items():
        of_kind = [topic for topic in topics if topic.kind == kind]
        yield f"## {heading}\n"
        if kind == "how-to":
            yield from (f"- `{topic.id}`: {topic.title}" for topic in of_kind)
            yield ""
        else:
            yield ", ".join(f"`{topic.id}`" for topic in of_kind) + "\n"
    yield "`cupytma help ID` explains one; `cupytma COMMAND --help` a command."


def _page(topic: Topic) -> str:
    text = _LINK.sub(r"\1 (docs/\2)", topic.text)
    return f"## {topic.id}: {topic.title}\n\n{text}"


def _print(markdown: str) -> None:
    """On a terminal with colours and without marks, else as Markdown in lines that are not too long."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown
        from rich.theme import Theme

        # Without a ground of its own: terminals may be light.
        theme = Theme({"markdown.code": "bold cyan", "markdown.h2": "bold underline"})
        Console(width=text_width(), theme=theme).print(Markdown(markdown, hyperlinks=False, code_theme="ansi_dark"))
    else:
        click.echo("\n".join(_wrapped(markdown.rstrip(), text_width())))


def _wrapped(markdown: str, width: int) -> Iterator[str]:
    """The lines of Markdown; those of running text that are too long are broken, code and tables are left alone."""
    in_code = False
    for line in markdown.splitlines():
        in_code ^= line.startswith("```")
        if in_code or len(line) <= width or line.startswith(("#", "|", "```")):
            yield line
            continue
        match = _ITEM.match(line)
        indent, mark = (match[1], match[2] or "") if match else ("", "")
        yield wrapped(line[len(indent) :], width, indent, indent + " " * len(mark), whole=True)
