"""``cupytma emit recipe``: the fences that a data path needs, and what stands between them."""

from __future__ import annotations

import difflib
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from cupytma import ptx
from cupytma.targets import Target

from .emit import emission_options
from .instruction_text import facts, spelt_for
from .options import starting
from .output import paragraph, show_json, show_rows


class RecipeName(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """The name of a data path."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ptx.Recipe:
        found = ptx.RECIPES.get(str(value))
        if found is None:
            near = difflib.get_close_matches(str(value)[:100], ptx.RECIPES, n=3, cutoff=0.4)
            hint = f"near it: {', '.join(near)}; " if near else ""
            self.fail(f"there is no recipe {value!r:.100}; {hint}`cupytma emit recipe` lists them", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return starting(ptx.RECIPES, incomplete)


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma emit recipe\n"
    "  cupytma emit recipe map-changed-other-block --as asm"
)
@click.argument("path", type=RecipeName(), required=False)
@emission_options
def recipe(
    path: ptx.Recipe | None, form: str, target: Target | None, toolkit: str | None, as_json: bool
) -> None:
    """Write what a data path needs: the fences and the rest, in order, with who executes each and at which scope.

    Without a PATH, list the data paths. With --as function the steps are calls of functions in cupytma.cuh.
    """
    if path is None:
        if as_json:
            listed = [{"path": r.path, "summary": r.summary} for r in ptx.RECIPES.values()]
            show_json(listed)
        else:
            show_rows(("path", "what it is"), [(r.path, r.summary) for r in ptx.RECIPES.values()])
        return
    spelt = {id(step): spelt_for(step.instruction, target, toolkit)[0] for step in path.steps if step.instruction}
    if as_json:
        steps = [
            {
                "who": step.who, "what": step.what, "scope": step.scope, "reads": step.reads, "writes": step.writes,
                "instruction": facts(spelt[id(step)]) if step.instruction else None,
            }
            for step in path.steps
        ]  # fmt: skip
        about = {"path": path.path, "summary": path.summary, "source": path.source, "steps": steps}
        show_json(about)
        return
    write = partial(paragraph, hang=3, mark="// ")
    click.echo(write(f"{path.path}: {path.summary}"))
    for number, step in enumerate(path.steps, 1):
        scope = f" [{step.scope}]" if step.scope else ""
        click.echo(write(f"{number}. {step.who}{scope}: {step.what}"))
        if step.instruction:
            click.echo(_step(spelt[id(step)], form, target))
    click.echo(write(f"Source: {path.source}"))


def _step(instruction: ptx.Instruction, form: str, target: Target | None) -> str:
    if form == "ptx":
        return instruction.text
    if form == "function":
        constants = ", ".join(o.name for o in instruction.immediates)
        arguments = dict.fromkeys(o.vector if o.packed and o.vector else o.name for o in instruction.parameters)
        template = f"<{constants}>" if constants else ""
        return f"cupytma::{instruction.function_name}{template}({', '.join(arguments)});"
    # Each step has a scope of its own for the variables that it declares.
    lines = instruction.inline_asm(target).splitlines()
    return "\n".join(("{", *(line if line.startswith("#") else f"    {line}" for line in lines), "}"))
