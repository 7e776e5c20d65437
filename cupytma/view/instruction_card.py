"""An instruction, and the steps of a fence recipe, as cards for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from cupytma.ptx.explain import completion, role
from cupytma.view.html import code, folded, framed, note, table

if TYPE_CHECKING:
    from cupytma.ptx.instruction import Instruction
    from cupytma.ptx.recipes import Recipe


def instruction_card(form: Instruction) -> str:
    """HTML of what an instruction is and does, its operands, what has it, and its C++ wrapper."""
    major, minor = form.ptx_version
    operands = [(f"%{i}", o.name, role(o), o.description) for i, o in enumerate(form.operands)]
    about = [
        ("completed by", completion(form)), ("needs", f"PTX {major}.{minor}"),
        ("exists on", ", ".join(map(str, form.targets)) or "no known target"), ("source", form.source),
    ]  # fmt: skip
    return framed([
        f"<strong>{escape(repr(form))}</strong>", code(form.text), f"<div>{escape(form.documentation)}</div>",
        table(("", "Operand", "What", "Meaning"), operands) if operands else "", table((), about),
        *map(note, form.notes), folded("In CUDA C++", code(form.function())),
    ])  # fmt: skip


def recipe_card(recipe: Recipe) -> str:
    """HTML of what a data path needs, step by step."""
    rows = [
        (str(n), step.who, step.instruction.text if step.instruction else "", step.scope or "", step.what)
        for n, step in enumerate(recipe.steps, 1)
    ]
    title = f"<strong>{escape(f'{recipe.path}: {recipe.summary}')}</strong>"
    headings = "", "Who", "Instruction", "Scope", "What"
    return framed([title, table(headings, rows), table((), [("source", recipe.source)])])
