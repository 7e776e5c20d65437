"""``cupytma explain``: what instructions do, one of them or all in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from cupytma.errors import EmissionError
from cupytma.targets import TARGETS, Target
from cupytma.words import counted

from .failures import Failure
from .options import TargetName
from .output import paragraph, remark, show_json, styled, text_width
from .sources import STANDARD_INPUT, as_text, is_path, name_of, read_file

if TYPE_CHECKING:
    from cupytma.ptx import Instruction

    from .instruction_sources import Found

_LARGEST = 1 << 27  # bytes; a module of PTX may be long
_FILE_ENDINGS = (".ptx", ".cu", ".cuh", ".cpp", ".h", ".hpp", ".txt", ".cubin")
_INDENT = "  "


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma explain 'cp.async.bulk.commit_group;'\n"
    "  cupytma explain kernel.ptx --target sm_90a\n"
    "  cupytma compile kernel.cu -o - | cupytma explain -"
)
@click.argument("source", nargs=-1, type=click.Path(allow_dash=True))
@click.option("--target", "-t", type=TargetName(), help="Say what it lacks; the exit code is then 1.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(source: tuple[str, ...], target: Target | None, as_json: bool) -> None:
    """Say what instructions do, with their operands, what completes them, and which targets and PTX they need.

    SOURCE is the text of one or several instructions, or a file, or - for standard input: PTX, or CUDA C++, of which
    inline assembly and calls of the functions in cupytma.cuh are explained, not what it includes. In files other
    instructions are passed over. Exit code 0: all is explained; 1: a file has some that no assembler takes, or that
    the target lacks.
    """
    label, found = _found(source)
    lacking = [one for one in found if target and one.instruction and not one.instruction.supported_on(target)]
    if as_json:
        show_json(_facts(label, found, target))
    else:
        width = text_width()
        for block in _blocks(label, found, target, width):
            click.echo("\n".join(block))
    if lacking or any(one.problem for one in found):
        raise click.exceptions.Exit(1)


def _found(source: tuple[str, ...]) -> tuple[str, list[Found]]:
    """What the source is called in messages, empty for a text; and its instructions."""
    from cupytma.ptx.parse import read, statements

    from .instruction_sources import Found, find, is_cuda

    if not source:
        if sys.stdin is None or sys.stdin.isatty():  # closed, it is None
            raise click.UsageError("nothing to explain; give an instruction, a file, or - for standard input")
        source = (STANDARD_INPUT,)
    if len(source) == 1 and (source[0] == STANDARD_INPUT or is_path(source[0])):
        path = source[0]
        text = as_text(read_file(path, _LARGEST))
        if text is None:
            raise Failure(
                f"{name_of(path)} holds no text; explain reads PTX and CUDA C++. Of machine code, take the PTX: "
                "`cupytma compile kernel.cu -o -`, or `cuobjdump -ptx`"
            )
        if not text.strip():
            raise Failure(f"{name_of(path)} is empty; it should hold PTX or CUDA C++")
        instructions = find(text)
        if not (instructions or is_cuda(text) or ".version" in text):
            remark("this is neither PTX nor CUDA C++; instructions are what `cupytma catalogue multicast`, say, prints")
        return "stdin" if path == STANDARD_INPUT else path, instructions
    if len(source) == 1 and source[0].endswith(_FILE_ENDINGS) and " " not in source[0]:
        raise Failure(f"there is no file {source[0]!r:.100}")
    lines = [_with_operands(line) for line in statements(" ".join(source))]
    if not lines:
        raise Failure("there is no instruction in it; give one, such as 'fence.proxy.async;'")
    try:
        explained = [(line, read(line)) for line in lines]
    except EmissionError as error:
        if len(source) == 1 and ("/" in source[0] or not set(" .") & set(source[0])):
            raise Failure(f"there is no file {source[0]!r:.100}, and {error}", error.topics) from None
        raise
    return "", [Found(1, line, "", f.instruction, f.given, f.guard) for line, f in explained]


def _with_operands(line: str) -> str:
    """A mnemonic alone, or the beginning of one, stands for the one form that it names."""
    from .instruction_words import named

    if " " in line:
        return line
    found = named(line)
    return found.make({}).text if found is not None else line


def _facts(label: str, found: Sequence[Found], target: Target | None) -> dict[str, Any]:
    from .instruction_text import facts, spoken_version

    explained = [one for one in found if one.instruction]
    versions = [one.instruction.ptx_version for one in explained if one.instruction]
    return {
        "source": label or None,
        "target": target and str(target),
        "ptx_version": spoken_version(max(versions)) if versions else None,
        "targets": list(map(str, _common_targets(found))),
        "instructions": [
            {
                "line": one.line, "function": one.function or None, "text": one.text, "guard": one.guard or None,
                "given": one.given, "is_call": one.is_call,
                "target_has_it": None if target is None else one.instruction.supported_on(target),
                **facts(one.instruction),
            }
            for one in explained if one.instruction
        ],
        "not_understood": [
            {"line": one.line, "function": one.function or None, "text": one.text, "problem": one.problem}
            for one in found if one.problem
        ],
    }  # fmt: skip


def _common_targets(found: Sequence[Found]) -> list[Target]:
    """The targets that have every instruction."""
    forms = [one.instruction for one in found if one.instruction]
    return [target for target in TARGETS.values() if all(form.supported_on(target) for form in forms)]


def _blocks(label: str, found: Sequence[Found], target: Target | None, width: int) -> Iterator[list[str]]:
    """For each instruction what it does, once for each form; then what all of them need."""
    explained: dict[str, int] = {}
    for one in found:
        if not label:
            yield list(_explained(one, target, width, ""))
            continue
        place = f"{label}:{one.line}" + (f", in {one.function}" if one.function else "")
        yield [styled(place, bold=True), *_located(one, target, width, explained)]
    if label:
        yield [_summary(found, width)]


def _located(one: Found, target: Target | None, width: int, explained: dict[str, int]) -> Iterator[str]:
    """An instruction of a file; the second time a form is met, where it was explained."""
    from .instruction_text import broken

    form = one.instruction
    if form is None:
        yield from broken(one.text, width, _INDENT)
        yield styled(paragraph(f"not understood: {one.problem}", len(_INDENT), 2), "red")
        return
    if repr(form) in explained:
        yield from _head(one, form, width, _INDENT)
        yield f"{_INDENT}as at line {explained[repr(form)]}"
        yield from _missing(one, target, width, _INDENT)
        return
    explained[repr(form)] = one.line
    yield from _explained(one, target, width, _INDENT)


def _explained(one: Found, target: Target | None, width: int, indent: str) -> Iterator[str]:
    from .instruction_text import explanation

    form = one.instruction
    assert form is not None
    yield from _head(one, form, width, indent)
    yield from explanation(form, width, one.given or None, indent)
    yield from _missing(one, target, width, indent)


def _head(one: Found, form: Instruction, width: int, indent: str) -> Iterator[str]:
    """An instruction as it stands in the text, and the PTX of one that is called as a function."""
    from .instruction_text import broken

    texts = [f"{one.guard} {one.text}".strip()]
    if one.is_call:
        by = "" if one.text == form.function_name else f", by {form.function_name}"
        texts = [f"{one.text}(){by}", form.text]
    for text in texts:
        yield from (styled(line, "cyan") for line in broken(text, width, indent))


def _missing(one: Found, target: Target | None, width: int, indent: str) -> Iterator[str]:
    """What the target lacks for an instruction."""
    if target is not None and one.instruction is not None and not one.instruction.supported_on(target):
        lacking = ", ".join(sorted(f.value for f in one.instruction.features - target.features))
        text = f"{target} does not have it, for want of {lacking}."
        yield styled(paragraph(text, len(indent), 2), "red")


def _summary(found: Sequence[Found], width: int) -> str:
    from .instruction_text import needed_compiler, spoken_targets

    forms = [one.instruction for one in found if one.instruction]
    wrong = sum(bool(one.problem) for one in found)
    if not found:
        return "no instruction of the family in it"
    kinds = len({repr(form) for form in forms})
    text = f"{counted(len(forms), 'instruction')} of the family, {counted(kinds, 'kind')}"
    if forms:
        needed = needed_compiler(max(form.ptx_version for form in forms))
        text += f"; together they need {needed} and exist on {spoken_targets(_common_targets(found))}"
    if wrong:
        text += f"; {wrong} not understood"
    return paragraph(text)
