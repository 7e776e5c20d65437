"""The spelling that a toolkit and a target accept, or what would be needed."""

from __future__ import annotations

import re

from cupytma.errors import EmissionError
from cupytma.ptx.catalogue import catalogue
from cupytma.ptx.checks import integer, shown
from cupytma.ptx.instruction import Instruction, form_of
from cupytma.targets import Target
from cupytma.targets import target as target_of

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
TOOLKITS = {
    "12.0": (8, 0),
    "12.1": (8, 1),
    "12.2": (8, 2),
    "12.3": (8, 3),
    "12.4": (8, 4),
    "12.5": (8, 5),
    "12.6": (8, 5),
    "12.8": (8, 7),
    "12.9": (8, 8),
    "13.0": (9, 0),
    "13.1": (9, 1),
    "13.2": (9, 2),
    "13.3": (9, 3),
    "13.4": (9, 4),
    "13.5": (9, 5),
}
"""The PTX ISA version that each CUDA toolkit writes and assembles."""

# Words that may be replaced without a change of what happens: the value, what stands for it.
_EQUIVALENTS: tuple[tuple[str, object, object], ...] = (
    ("destination", "shared::cta", "shared::cluster"),
    ("cta_group", 1, None),
    ("semantics", "weak", None),
)


def version_of(version: str | tuple[int, int]) -> tuple[int, int]:
    """A PTX version such as ``"8.6"`` as numbers.

    Raises
    ------
    EmissionError
        If it is none.
    """
    if isinstance(version, tuple) and len(version) == 2:
        major, minor = map(integer, version)
        if major is not None and minor is not None and min(major, minor) >= 0:
            return major, minor
    if isinstance(version, str) and (found := _VERSION.fullmatch(version)):
        return int(found[1]), int(found[2])
    raise EmissionError(f"{shown(version)} is no PTX version; versions look like '8.6'")


def spell(
    instruction: Instruction,
    *,
    target: str | Target | None = None,
    ptx_version: str | tuple[int, int] | None = None,
    toolkit: str | None = None,
) -> Instruction:
    """The spelling of an instruction that a target and a PTX version accept.

    A destination ``shared::cta`` becomes ``shared::cluster``, which is the same for the executing block's own memory;
    ``cta_group=1`` and ``semantics="weak"`` are left out, which mean the same.

    Parameters
    ----------
    instruction : Instruction
        What is wanted.
    target : str or Target, optional
        Such as ``"sm_90a"``.
    ptx_version : str or tuple of int, optional
        Such as ``"8.5"``.
    toolkit : str, optional
        A CUDA version such as ``"12.6"``, instead of the PTX version.

    Returns
    -------
    Instruction
        `instruction` itself where it is accepted.

    Raises
    ------
    EmissionError
        If no spelling is accepted; the message says which PTX version and which targets have it. Also if both a toolkit
        and a PTX version are given.
    """
    instruction = form_of("spell", instruction)
    if toolkit is not None and ptx_version is not None:
        raise EmissionError("spell: toolkit clashes with ptx_version, which it stands for; give one of them")
    if toolkit is not None:
        if not isinstance(toolkit, str) or toolkit not in TOOLKITS:
            raise EmissionError(f"unknown toolkit {shown(toolkit)}; known: {', '.join(TOOLKITS)}")
        ptx_version = TOOLKITS[toolkit]
    version = None if ptx_version is None else version_of(ptx_version)
    chosen = None if target is None else target_of(target)

    def accepted(form: Instruction) -> bool:
        if version is not None and chosen is not None and chosen.ptx_version > version:
            return False
        return (version is None or form.ptx_version <= version) and (chosen is None or form.supported_on(chosen))

    found = next((form for form in _spellings(instruction) if accepted(form)), None)
    if found is None:
        raise EmissionError(_needed(instruction, version, chosen))
    return found


def _spellings(instruction: Instruction) -> tuple[Instruction, ...]:
    """The instruction and those that do the same."""
    words = dict(instruction.words)
    wanted = [words]
    for name, value, stands_in in _EQUIVALENTS:
        wanted += [{**w, name: stands_in} for w in wanted if w.get(name, ...) == value]  # type: ignore[dict-item]
    forms = {form.words: form for form in catalogue() if form.family == instruction.family}
    others = (forms.get(tuple(w.items())) for w in wanted[1:])
    return (instruction, *(form for form in others if form is not None))


def _needed(instruction: Instruction, version: tuple[int, int] | None, target: Target | None) -> str:
    reasons = []
    if version is not None:
        wanting = [("it", instruction.ptx_version), *((str(t), t.ptx_version) for t in (target,) if t is not None)]
        reasons += [f"{what} needs {_newer(needed, version)}" for what, needed in wanting if needed > version]
    if target is not None and not instruction.supported_on(target):
        having = ", ".join(map(str, instruction.targets)) or "none"
        reasons.append(f"{target} does not have it; targets that do: {having}")
    return f"{instruction.text} cannot be spelt otherwise: {'; '.join(reasons)}"


def _newer(needed: tuple[int, int], given: tuple[int, int]) -> str:
    toolkit = next((name for name, has in TOOLKITS.items() if has >= needed), None)
    wanted, had = (".".join(map(str, version)) for version in (needed, given))
    return f"PTX {wanted}" + (f" (CUDA {toolkit})" if toolkit else "") + f", not {had}"
