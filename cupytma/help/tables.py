"""Topics written from the tables: rules, findings, errors of CUDA, fence recipes, exceptions."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

from cupytma import check, errors, sticky
from cupytma.help import how_tos
from cupytma.help.examples import EXAMPLES
from cupytma.help.topic import Topic
from cupytma.ptx import RECIPES, Recipe
from cupytma.sim.program import RULES as PROGRAM_RULES
from cupytma.sim.program import Rule as ProgramRule
from cupytma.tensormap import FOLKLORE, RULES, Folklore, Rule

_WHAT_BREAKS = {
    "error": "The driver refuses a map that breaks this rule, with CUDA_ERROR_INVALID_VALUE, and so does `encode`.",
    "warning": "The driver accepts it, and so does `encode`; `warnings()` says it.",
    "fault": "It encodes. A copy that breaks this rule kills the kernel; `faults()` and the simulator say so before.",
}
_KIND_OF = {"error": "rule", "warning": "warning", "fault": "fault"}
_PROGRAM_KINDS = {
    "hang": "A thread waits for what never comes.",
    "race": "Nothing orders two accesses to the same bytes.",
    "misuse": "The instruction has no meaning so used, or another one.",
    "fault": "The hardware kills the kernel.",
}


def topics() -> Iterator[Topic]:
    """Every topic that comes from a table."""
    yield from map(_tensor_map_rule, RULES)
    yield from map(_folklore, FOLKLORE)
    yield from map(_finding, check.RULES.values())
    yield from map(_program_rule, PROGRAM_RULES.values())
    yield from map(_cuda_error, sticky.STICKY_ERRORS.values())
    yield from map(_recipe, RECIPES.values())
    yield from (_exception(kind) for kind in vars(errors).values() if _is_own(kind))


def _text(id: str, *paragraphs: str) -> str:
    """Paragraphs, and the how-tos that have an id or speak of it."""
    speaking = dict.fromkeys(topic for topic in how_tos.topics() if topic.id == id)
    speaking.update(dict.fromkeys(how_tos.speaking_of(id)))
    more = [f"How-tos: {', '.join(f'`{topic.id}`' for topic in speaking)}."] if speaking else []
    return "\n\n".join((*filter(None, paragraphs), *more)) + "\n"


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _tensor_map_rule(rule: Rule) -> Topic:
    example = EXAMPLES[rule.id]
    said = example.violation(rule.id)
    modes = "" if len(rule.modes) == 3 else ", ".join(mode.replace("_", "-") for mode in rule.modes) + " maps"
    feature = f"targets with {rule.feature.value}" if rule.feature else ""
    kept = ", on ".join(filter(None, (modes, feature))) if modes else feature
    text = _text(
        rule.id, _WHAT_BREAKS[rule.severity],
        f"It holds for {kept}." if kept else "", "For example:", _code("python", example.code),
        f"{_sentence(said.message)} **Fix:** {said.fix}.", f"Known from: {rule.source}.",
    )  # fmt: skip
    return Topic(rule.id, _KIND_OF[rule.severity], rule.statement, text)


def _sentence(text: str) -> str:
    """A message as a sentence; names of operands keep their small letter."""
    first = text.split(" ")[0]
    head = text if "_" in first or "[" in first else text[0].upper() + text[1:]
    return f"{head}."


def _folklore(entry: Folklore) -> Topic:
    return Topic(entry.id, "folklore", entry.claim, _text(entry.id, "Often said, and not so.", entry.truth))


def _finding(rule: check.Rule) -> Topic:
    language = "text" if rule.bad.startswith(".version") else "cuda"
    text = _text(
        rule.id, f"*{rule.severity.value.capitalize()}.* {rule.explanation}", f"**Fix:** {rule.fix}.",
        f"Source: {rule.source}.", "Wrong:", _code(language, rule.bad), "Right:", _code(language, rule.good),
    )  # fmt: skip
    return Topic(rule.id, "finding", rule.title, text)


def _program_rule(rule: ProgramRule) -> Topic:
    text = _text(
        rule.id, f"*{rule.kind.capitalize()}.* {_PROGRAM_KINDS[rule.kind]}",
        f"What is said, with names and numbers in place of the braces: {rule.message}.", f"**Fix:** {rule.fix}.",
        f"Known from: {rule.source}.",
    )  # fmt: skip
    return Topic(rule.id, "program", rule.statement, text)


def _cuda_error(row: sticky.StickyError) -> Topic:
    causes = "\n".join(f"- {cause}" for cause in row.causes)
    text = _text(
        row.topic, f"{row.code}, `{row.name}`, `{row.runtime_name}`: “{row.phrase}”.",
        "The error stays: every later call of the process is answered by it, whatever it asks.",
        f"What causes it in programs for the Tensor Memory Accelerator, and where that is known from:\n\n{causes}"
        if causes else "No use of the Tensor Memory Accelerator is known to cause it.",
    )  # fmt: skip
    return Topic(row.topic, "cuda", row.meaning, text, (str(row.code), row.name, row.runtime_name))


def _recipe(recipe: Recipe) -> Topic:
    steps = []
    for number, step in enumerate(recipe.steps, 1):
        scope = f", at scope `{step.scope}`" if step.scope else ""
        steps.append(f"{number}. {step.who}{scope}: {step.what}")
        if step.instruction:
            steps.append(f"   `{step.instruction.text}`")
    text = _text(
        recipe.path, "What has to follow what, and who executes it:", "\n".join(steps),
        f"Source: {recipe.source}.",
    )  # fmt: skip
    return Topic(recipe.path, "recipe", recipe.summary, text)


def _is_own(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.CupytmaError | errors.CupytmaWarning)


def _exception(kind: type[errors.CupytmaError | errors.CupytmaWarning]) -> Topic:
    title, _, rest = inspect.cleandoc(kind.__doc__ or "").partition("\n")
    parents = ", ".join(f"`{parent.__name__}`" for parent in kind.__bases__)
    about = [] if issubclass(kind, Warning) else [f"`{topic}`" for topic in kind.topics]
    text = _text(
        kind.__name__, f"`cupytma.errors.{kind.__name__}` derives from {parents}.", _attributes(rest),
        f"How-tos: {', '.join(about)}." if about else "",
    )  # fmt: skip
    return Topic(kind.__name__, "error", title.rstrip("."), text)


def _attributes(rest: str) -> str:
    """The rest of a docstring as a block of text, for its list of attributes is laid out in lines."""
    body = textwrap.dedent(rest).strip()
    return _code("text", body) if "---" in body else body
