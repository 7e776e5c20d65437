"""An instruction as text for people and as data for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cupytma import ptx
from cupytma.errors import CupytmaError, EmissionError
from cupytma.targets import TARGETS, Target

from .failures import Failure
from .output import wrapped

_PLACE_TO_BREAK = re.compile(r"(?<=[ .])|(?=\.)")

_SHOWN = 3


def facts(instruction: ptx.Instruction) -> dict[str, Any]:
    """All that is known of an instruction, for JSON."""
    return {
        "instruction": repr(instruction),
        "family": instruction.family,
        "words": dict(instruction.words),
        "immediates": dict(instruction.bound),
        "ptx": instruction.text,
        "mnemonic": instruction.mnemonic,
        "operands": [
            {
                "name": operand.name, "direction": operand.direction, "type": operand.type, "space": operand.space,
                "constraint": operand.constraint, "c_type": operand.c_type, "limits": operand.limits,
                "description": operand.description,
            }
            for operand in instruction.operands
        ],
        "clobbers": instruction.clobbers,
        "function_name": instruction.function_name,
        "documentation": instruction.documentation,
        "completion": ptx.completion(instruction),
        "ptx_version": spoken_version(instruction.ptx_version),
        "toolkit": toolkit_for(instruction.ptx_version),
        "features": sorted(feature.value for feature in instruction.features),
        "targets": [str(target) for target in instruction.targets],
        "llvm_intrinsic": ptx.llvm_intrinsic(instruction, naming="upstream"),
        "recipes": recipes_with(instruction),
        "source": instruction.source,
        "notes": instruction.notes,
    }  # fmt: skip


def recipes_with(instruction: ptx.Instruction) -> list[str]:
    """The recipes that have an instruction of the same constructor."""
    return [r.path for r in ptx.RECIPES.values() if any(i.family == instruction.family for i in r.instructions)]


def spoken_version(version: tuple[int, int]) -> str:
    """A PTX version as people write it."""
    return f"{version[0]}.{version[1]}"


def toolkit_for(version: tuple[int, int]) -> str | None:
    """The oldest CUDA toolkit that writes a PTX version; None where none is known."""
    return next((name for name, has in ptx.TOOLKITS.items() if has >= version), None)


def needed_compiler(version: tuple[int, int]) -> str:
    """A PTX version, with the toolkit that came with it."""
    toolkit = toolkit_for(version) if version >= next(iter(ptx.TOOLKITS.values())) else None
    return f"PTX {spoken_version(version)}{f' (CUDA {toolkit})' if toolkit else ''}"


def spoken_targets(targets: Iterable[Target]) -> str:
    """Targets as a sentence lists them."""
    having = [str(target) for target in targets]
    return "every target" if len(having) == len(TARGETS) else ", ".join(having) or "no known target"


def explanation(
    instruction: ptx.Instruction, width: int, given: Mapping[str, str] | None = None, indent: str = ""
) -> Iterator[str]:
    """What `cupytma.ptx.explain` says of an instruction below its text, in lines that fit.

    Parameters
    ----------
    instruction : Instruction
    width : int
        In columns.
    given : mapping, optional
        What stands for each operand in the text at hand, by name.
    indent : str
        Before every line.
    """
    lines = ptx.explain(instruction).splitlines()[1:]
    numbers = [f"  {number} " for number in range(len(instruction.operands))]
    places = [f"%{number}" if given is None else given[o.name] for number, o in enumerate(instruction.operands)]
    room = max(map(len, places), default=0)
    for line in lines:
        if numbers and line.startswith(numbers[0]):
            line = f"  {places.pop(0):<{room}}  {line.removeprefix(numbers.pop(0))}"
            hanging = indent + " " * (room + 4)
        else:
            hanging = indent
        if line.startswith("Needs PTX "):
            needed, where = needed_compiler(instruction.ptx_version), spoken_targets(instruction.targets)
            line = f"Needs {needed}; exists on {where}."
        yield from wrapped(line, max(20, width), indent, hanging, whole=True).splitlines()
    recipes = recipes_with(instruction)
    if recipes:
        more = f" and {len(recipes) - _SHOWN} more" if len(recipes) > _SHOWN else ""
        line = f"Recipes (`cupytma emit recipe NAME`): {', '.join(recipes[:_SHOWN])}{more}."
        yield from wrapped(line, max(20, width), indent, f"{indent}  ").splitlines()


def broken(text: str, width: int, indent: str = "") -> list[str]:
    """A line of PTX in lines that fit, broken between its words; for reading, not for the assembler."""
    lines = [indent]
    for piece in filter(None, _PLACE_TO_BREAK.split(text)):
        if lines[-1].strip() and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append(f"{indent}    ")
        lines[-1] += piece if lines[-1].strip() else piece.lstrip()
    return [line.rstrip() for line in lines]


def spelt_for(
    instruction: ptx.Instruction, target: Target | None, toolkit: str | None
) -> tuple[ptx.Instruction, str]:
    """The spelling that a target and a toolkit accept, with a remark where it is not the one asked for.

    Raises
    ------
    Failure
        If there is none; the message names what the target lacks, and the targets that have it.
    """
    if target is None and toolkit is None:
        return instruction, ""
    try:
        found = ptx.spell(instruction, target=target, toolkit=toolkit)
    except EmissionError as error:
        raise Failure(_lacking(instruction, target) or str(error)) from None
    if found == instruction:
        return instruction, ""
    where = " and ".join([*([str(target)] if target else []), *([f"CUDA {toolkit}"] if toolkit else [])])
    changed = [f"{name}={value}" for name, value in instruction.words if dict(found.words).get(name) != value]
    return found, f"{where} does not take {', '.join(changed)}; this is spelt otherwise, and does the same"


def _lacking(instruction: ptx.Instruction, target: Target | None) -> str:
    """What a target lacks for an instruction; empty where that is not the reason."""
    reasons = []
    for feature in sorted(instruction.features, key=lambda feature: feature.value):
        try:
            if target is not None:
                target.require(feature)
        except CupytmaError as error:
            reasons.append(f"\n  {error}")
    return f"{instruction.mnemonic} does not exist on {target}:{''.join(reasons)}" if reasons else ""
