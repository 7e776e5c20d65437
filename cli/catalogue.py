"""``cupytma catalogue``: the family's instructions, all of them or those that fit."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from cupytma.targets import Target
from cupytma.words import counted

from .failures import Failure
from .options import TargetName, starting, suggested
from .output import paragraph, show_json, show_rows, text_width

if TYPE_CHECKING:
    from cupytma.ptx import Instruction

# Where the spelling's column is in the list of instructions, and how narrow it may be.
_COLUMN, _NARROW = 50, 20


class FamilyName(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """An instruction by the name of its constructor."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from .instruction_words import constructors, near

        name = str(value).replace("-", "_")
        if name not in constructors():
            alike = [one for one in near(name) if one in constructors()]
            hint = f"near it: {', '.join(alike)}; " if alike else ""
            self.fail(f"there is no family {value!r:.100}; {hint}`cupytma catalogue` lists them", param, ctx)
        return name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from .instruction_words import constructors

        return starting(constructors(), incomplete)


def _toolkits() -> Iterable[str]:
    from cupytma import ptx

    return ptx.TOOLKITS


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma catalogue\n"
    "  cupytma catalogue --family tensor_load --target sm_90a rank=2\n"
    "  cupytma catalogue multicast --json\n"
    "  cupytma catalogue mbarrier try_wait scope=cluster | cupytma explain -"
)
@click.argument("words", nargs=-1)
@click.option("--family", "-f", type=FamilyName(), help="Only forms of this instruction, such as tensor_load.")
@click.option("--target", "-t", type=TargetName(), help="Only forms that it has.")
@click.option(
    "--toolkit", metavar="VERSION", shell_complete=suggested(_toolkits),
    help="Only forms that this CUDA version writes, such as 12.6.",
)
@click.option("--names", is_flag=True, help="Print the names of the functions in cupytma.cuh instead of PTX.")
@click.option("--json", "as_json", is_flag=True, help="Print all that is known of each form as JSON.")
def catalogue(
    words: tuple[str, ...], family: str | None, target: Target | None, toolkit: str | None, names: bool, as_json: bool
) -> None:
    """List the instructions of the family: without WORDS and options a line for each, else the forms that fit all.

    A word is a part of the spelling or of the function's name, such as multicast, or a constructor's word with its
    value, such as rank=2, multicast=true or scope=none. The exit code is 1 if nothing fits.
    """
    from cupytma import ptx

    if toolkit is not None and toolkit not in ptx.TOOLKITS:
        raise click.UsageError(f"unknown toolkit {toolkit!r:.100}; known: {', '.join(ptx.TOOLKITS)}")
    filters = [_parsed(word) for word in words]
    found = [
        form for form in ptx.catalogue()
        if (family is None or form.family == family)
        and (target is None or form.supported_on(target))
        and (toolkit is None or form.ptx_version <= ptx.TOOLKITS[toolkit])
        and all(_fits(form, name, value) for name, value in filters)
    ]  # fmt: skip
    if as_json:
        from .instruction_text import facts

        show_json([facts(form) for form in found])
    elif words or family or names:
        _print_forms(found, names)
    else:
        _print_families(found)
    if not found:
        raise click.exceptions.Exit(1)


def _parsed(word: str) -> tuple[str, str]:
    """A word as a name, empty for a part of the spelling, and a value."""
    from .instruction_words import constructors

    name, equals, value = word.partition("=")
    if not equals:
        return "", word
    name = name.replace("-", "_")
    known = {known.name for constructor in constructors().values() for known in constructor.words}
    if name not in known:
        raise Failure(f"no instruction has the word {name!r:.100}; there are: {', '.join(sorted(known))}")
    return name, value.lower()


def _fits(form: Instruction, name: str, value: str) -> bool:
    if not name:
        return value in form.mnemonic or value in form.function_name
    words = dict(form.words)
    return name in words and str(words[name]).lower() == value


def _print_forms(found: list[Instruction], names: bool) -> None:
    from .instruction_text import broken

    for form in found:
        text = form.function_name if names else form.text
        # Pipes get an instruction on each line.
        click.echo("\n".join(broken(text, text_width())) if sys.stdout.isatty() else text)
    click.echo(counted(len(found), "form", spec=","), err=True)


def _print_families(found: list[Instruction]) -> None:
    from .instruction_text import spoken_version
    from .instruction_words import constructors

    room = text_width() - _COLUMN
    rows: list[tuple[str, ...]] = []
    for name, constructor in constructors().items():
        forms = [form for form in found if form.family == name]
        if forms:
            oldest = spoken_version(min(form.ptx_version for form in forms))
            rows.append((name, f"{len(forms):,}", oldest, constructor.spoken_stem(max(room, 1))))
    if room < _NARROW:
        rows = [row[:3] for row in rows]
    headings = ("instruction", "forms", "PTX", "spelling")
    show_rows(headings[: len(rows[0]) if rows else 4], rows, right=("forms", "PTX"))
    text = f"{counted(len(found), 'form', spec=',')}; `cupytma catalogue --family NAME` lists those of one instruction"
    click.echo(paragraph(text))
