"""``cupytma emit``: any instruction of the family, by words or by its spelling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from cupytma import ptx
from cupytma.ptx.family import Value
from cupytma.targets import Target

from .failures import Failure
from .instruction_text import facts, needed_compiler, spelt_for, spoken_targets
from .instruction_words import (
    Constructor,
    InstructionWord,
    Named,
    constructors,
    named,
    option_name,
    unknown_instruction,
)
from .options import TargetName, parse_integer, starting
from .output import paragraph, remark, show_json
from .sources import STANDARD_INPUT, as_text, name_of, read_file

FORMS = ("ptx", "asm", "function")
_RECIPE = "recipe"
_LARGEST = 1 << 22  # bytes of instructions
_COLUMN = 36  # where the second column of a list in a help text is at most, with its margin
_EXAMPLES = (
    "\b\nExamples:\n"
    "  cupytma emit tensor_load --rank 2 --multicast --as function\n"
    "  cupytma emit cp.async.bulk.tensor --rank 2 --destination shared::cta\n"
    "  cupytma emit 'fence.proxy.async;' --as asm --target sm_90a\n"
    "  cupytma emit recipe shared-written-to-store"
)


class WordValue(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A value of a word: one of those that it may have, or ``none`` to leave it out."""

    name = "value"

    def __init__(self, words: Sequence[InstructionWord]) -> None:
        self.values = tuple(dict.fromkeys(value for word in words for value in word.values))
        self.may_be_left_out = any(word.default is None and not word.is_required for word in words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Value:
        text = str(value)
        if self.may_be_left_out and text.lower() == "none":
            return None
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        return text  # judged by the constructor, whose message lists the values

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return starting(map(str, self.values), incomplete)


class Constant(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """An immediate: an integer whose range the form decides."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_integer(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class InstructionGroup(click.Group):
    """A group with a command for each instruction, whose options are the instruction's words."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*constructors(), _RECIPE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == _RECIPE:
            from .recipe import recipe

            return recipe
        if cmd_name == STANDARD_INPUT:
            return _spelt_command(STANDARD_INPUT)
        if _is_spelling(cmd_name):
            return _spelt_command(cmd_name)
        found = named(cmd_name)
        return None if found is None else _command(found)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options may also stand before the instruction that they are for."""
        at = 0
        if args and args[0].startswith("-") and args[0] != STANDARD_INPUT:
            others = [i for i, arg in enumerate(args) if not arg.startswith("-") or arg == STANDARD_INPUT]
            at = next((i for i in others if self._names_something(args[i])), others[-1] if others else 0)
        return super().parse_args(ctx, [*args[at : at + 1], *args[:at], *args[at + 1 :]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise Failure(unknown_instruction(args[0]))
        return super().resolve_command(ctx, args)

    def _names_something(self, text: str) -> bool:
        return text in (_RECIPE, STANDARD_INPUT) or _is_spelling(text) or named(text) is not None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Instructions"):
            rows = [(name, c.spoken_stem(max(10, formatter.width - _COLUMN))) for name, c in constructors().items()]
            formatter.write_dl([*rows, (_RECIPE, "the fences that a data path needs, in order")])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        known = {name: constructor.summary for name, constructor in constructors().items()}
        known[_RECIPE] = "The fences that a data path needs, in order."
        if incomplete:
            known |= {".".join(constructor.stem): constructor.summary for constructor in constructors().values()}
        return [CompletionItem(name, help=text) for name, text in known.items() if name.startswith(incomplete)]


@click.group(cls=InstructionGroup, subcommand_metavar="INSTRUCTION [WORDS]...", epilog=_EXAMPLES)
def emit() -> None:
    """Write an instruction: as PTX, as inline assembly, or as a function in CUDA C++.

    INSTRUCTION is a name below with its words as options (`cupytma emit tensor_load --help` lists them), the beginning
    of a spelling with the rest as words, a whole spelling, or - for lines of PTX on standard input.
    """


def _is_spelling(text: str) -> bool:
    """Whether a text is a whole instruction, with operands or a semicolon, and not only a name."""
    return ";" in text or " " in text.strip()


def emission_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: how an instruction is written, and what must have it."""
    for decorate in reversed((
        click.option(
            "--as", "form", type=click.Choice(FORMS), default="ptx", show_default=True,
            help="PTX text, inline assembly with its operands, or a __device__ function.",
        ),
        click.option("--target", "-t", type=TargetName(), help="Must have it; a spelling that it takes is chosen."),
        click.option(
            "--toolkit", type=click.Choice(tuple(ptx.TOOLKITS)), metavar="VERSION", help="So must this CUDA version."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print all that is known of it as JSON."),
    )):
        command = decorate(command)
    return command


def _command(found: Named) -> click.Command:
    """The command for a name or the beginning of a spelling."""
    several = [constructor for constructor, _ in found.candidates]
    words: dict[str, list[InstructionWord]] = {}
    for word in (word for constructor in several for word in constructor.words):
        words.setdefault(word.name, []).append(word)
    immediates = {o.name: o for constructor in several for o in constructor.immediates if o.name not in words}

    def run(
        form: str, target: Target | None, toolkit: str | None, as_json: bool, operands: tuple[str, ...], **given: Any
    ) -> None:
        wanted = {name: value for name, value in given.items() if value is not None}
        wanted |= dict.fromkeys(_left_out())
        if operands:
            word, is_assigned, value = operands[0].partition("=")
            if is_assigned and word in (*words, *immediates):
                is_flag = word in words and words[word][0].is_flag
                option = option_name(word) + f" {value:.60}" * (not is_flag)
                raise click.UsageError(f"{operands[0]!r:.100} is no option; write {option}")
            if wanted:
                raise click.UsageError(
                    f"{operands[0]!r:.100} is no option; give either words, each with its option, or the operands of a "
                    "whole instruction"
                )
            _write([ptx.parse(" ".join((found.label, *operands)))], form, target, toolkit, as_json)
        else:
            _write([found.make(wanted)], form, target, toolkit, as_json)

    command: Any = click.argument("operands", nargs=-1, metavar="[OPERANDS]...")(emission_options(run))
    for name, operand in reversed(immediates.items()):
        command = click.option(option_name(name), name, type=Constant(), help=_sentence(operand.description))(command)
    for name, alike in reversed(words.items()):
        command = _word_option(name, alike, len(several) == 1)(command)
    summary, example = _described(found, several)
    return click.command(found.label, help=summary, epilog=f"Example:  {example}")(command)


def _left_out() -> list[str]:
    """The words that the command line says ``none`` for."""
    context = click.get_current_context()
    sources = click.core.ParameterSource
    return [
        str(param.name)
        for param in context.command.params
        if isinstance(param.type, WordValue)
        and context.params.get(str(param.name)) is None
        and context.get_parameter_source(str(param.name)) is sources.COMMANDLINE
    ]


def _word_option(name: str, words: Sequence[InstructionWord], is_only: bool) -> Callable[..., Any]:
    word, option = words[0], option_name(name)
    if word.is_flag:
        text = word.help + (" [default]" if is_only and word.default else "")
        return click.option(f"{option}/--no-{option[2:]}", name, default=None, help=text.strip() or None)
    marks = ""
    if is_only and word.is_required:
        marks = " [required]"
    elif is_only and word.default is not None:
        marks = f" [default: {word.default}]"
    metavar = "N" if isinstance(word.values[0], int) else "NAME"
    return click.option(option, name, type=WordValue(words), metavar=metavar, help=f"{word.help}{marks}")


def _described(found: Named, several: Sequence[Constructor]) -> tuple[str, str]:
    """The help and an example of a command."""
    if len(several) == 1:
        constructor, settled = found.candidates[0]
        forms = constructor.forms
        oldest = min(forms, key=lambda form: form.ptx_version)
        having = dict.fromkeys(target for form in forms for target in form.targets)
        needed = f"{needed_compiler(oldest.ptx_version)}; exists on {spoken_targets(having)}"
        text = f"{constructor.summary}\n\nNeeds at least {needed}. {oldest.source}."
        missing = [w for w in constructor.words if w.is_required and w.name not in settled]
        given = "".join(f" {option_name(word.name)} {word.values[0]}" for word in missing)
        return text, f"cupytma emit {found.label}{given}"
    names = ", ".join(constructor.name for constructor in several)
    return f"One of {names}: the words say which.", several[0].example


def _spelt_command(text: str) -> click.Command:
    """The command for a whole instruction, or for those on standard input."""

    def run(
        form: str, target: Target | None, toolkit: str | None, as_json: bool, operands: tuple[str, ...]
    ) -> None:
        _write(list(_read(text, operands)), form, target, toolkit, as_json)

    command = click.argument("operands", nargs=-1, metavar="[OPERANDS]...")(emission_options(run))
    return click.command(
        "-" if text == STANDARD_INPUT else "SPELLING", help="An instruction by its spelling.",
        epilog="Example:  cupytma emit 'cp.async.bulk.commit_group;' --as asm",
    )(command)


def _read(text: str, more: tuple[str, ...]) -> Iterator[ptx.Instruction]:
    from cupytma.ptx.parse import statements

    if text == STANDARD_INPUT:
        if more:
            raise click.UsageError("- reads the instruction from standard input; give nothing else")
        read = as_text(read_file(STANDARD_INPUT, _LARGEST))
        if read is None:
            raise Failure(f"{name_of(STANDARD_INPUT)} holds no text; give lines of PTX")
        text = read
    found = statements(" ".join((text, *more)))
    if not found:
        raise Failure("there is no instruction in it; give one, such as 'fence.proxy.async;'")
    yield from map(ptx.parse, found)


def _write(
    instructions: list[ptx.Instruction], form: str, target: Target | None, toolkit: str | None, as_json: bool
) -> None:
    spelt = []
    for instruction in instructions:
        found, other = spelt_for(instruction, target, toolkit)
        for note in (*instruction.notes, *((other,) if other else ())):
            remark(note)
        spelt.append(found)
    if as_json:
        data = [{**facts(i), "asm": i.inline_asm(target), "function": i.function(target)} for i in spelt]
        show_json(data[0] if len(data) == 1 else data)
        return
    texts = [_text(instruction, form, target) for instruction in spelt]
    click.echo("\n".join(dict.fromkeys(texts) if form == "function" else texts))


def _text(instruction: ptx.Instruction, form: str, target: Target | None) -> str:
    if form == "ptx":
        return instruction.text
    if form == "function":
        return instruction.function(target)
    return "\n".join((*_variables(instruction), instruction.inline_asm(target)))


def _variables(instruction: ptx.Instruction) -> Iterator[str]:
    """Comments with the variables that inline assembly takes."""
    lengths = Counter(operand.vector for operand in instruction.operands if operand.packed)
    variables: dict[str, str] = {}
    for operand in instruction.operands:
        name = f"{operand.vector}[{lengths[operand.vector]}]" if operand.packed else operand.name
        if operand is not instruction.result:
            kind = "constant " if operand.is_immediate else ""
            variables.setdefault(name, f"{kind}{operand.c_type} {name}: {operand.description}")
    for text in variables.values():
        yield paragraph(text, hang=2, mark="// ")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
