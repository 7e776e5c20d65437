"""The reference of instructions, written from the rows of `cupytma.ptx`."""

from __future__ import annotations

import inspect
from types import ModuleType

from cupytma import ptx
from cupytma.ptx import barriers, bulk, cluster, fences, groups, matrix, policy, tensor, tensormap, waits, wgmma
from cupytma.ptx.catalogue import FAMILIES
from cupytma.ptx.family import Family
from cupytma.ptx.instruction import Instruction
from cupytma.targets import TARGETS

FOLDER = "reference/instructions"
_MODULES: tuple[tuple[ModuleType, str], ...] = (
    (tensor, "Tensor copies"),
    (bulk, "Bulk copies"),
    (groups, "Groups of copies"),
    (tensormap, "Tensor maps on the device"),
    (barriers, "mbarriers"),
    (waits, "Waiting for an mbarrier"),
    (fences, "Fences"),
    (cluster, "Clusters and launches"),
    (policy, "Cache policies"),
    (matrix, "Matrices to registers"),
    (wgmma, "Multiplying matrices"),
)


def navigation() -> list[str | dict[str, str]]:
    """What the site's navigation has under "Instructions"."""
    return [f"{FOLDER}/index.md", *({title: _path(module)} for module, title in _MODULES)]


def pages() -> dict[str, str]:
    """The pages by path."""
    return {f"{FOLDER}/index.md": _index(), **{_path(module): _page(module, title) for module, title in _MODULES}}


def _path(module: ModuleType) -> str:
    return f"{FOLDER}/{module.__name__.rpartition('.')[2]}.md"


def _families(module: ModuleType) -> dict[str, list[Family]]:
    """The rows of a module by the constructor's name; a constructor may have several."""
    own = [id(row) for value in vars(module).values() for row in (value if isinstance(value, tuple) else (value,))]
    found: dict[str, list[Family]] = {}
    for family in FAMILIES:
        if id(family) in own:
            found.setdefault(family.name, []).append(family)
    return found


def _index() -> str:
    lines = [
        "# Instructions\n",
        f"All {len(ptx.catalogue()):,} forms of the instructions that move data with the Tensor Memory Accelerator, or "
        "that kernels with it need. Each is made by a constructor of `cupytma.ptx`, has a function in "
        "`#include <cupytma.cuh>`, and is found by `ptx.parse` in a text.\n",
    ]
    for module, title in _MODULES:
        name = _path(module).rpartition("/")[2]
        lines.append(f"## {title}\n\n| constructor | forms | does |\n| --- | --- | --- |")
        for constructor, rows in _families(module).items():
            count = sum(len(row.forms()) for row in rows)
            lines.append(f"| [`{constructor}`]({name}#{constructor}) | {count:,} | {_summary(constructor)} |")
        lines.append("")
    return "\n".join(lines)


def _summary(constructor: str) -> str:
    return inspect.cleandoc(getattr(ptx, constructor).__doc__ or "").partition("\n")[0]


def _page(module: ModuleType, title: str) -> str:
    return f"# {title}\n\n" + "\n".join(_section(name, rows) for name, rows in _families(module).items())


def _section(constructor: str, rows: list[Family]) -> str:
    forms = [form for row in rows for form in row.forms()]
    first = forms[0]
    words: dict[str, dict[str, None]] = {}
    for row in rows:
        for word in row.words:
            words.setdefault(word.name, {}).update((repr(choice.value), None) for choice in word.choices)
    choices = "\n".join(f"- `{name}`: {', '.join(f'`{value}`' for value in values)}" for name, values in words.items())
    operands = "\n".join(f"- {operand}" for operand in first.operands)
    head = "\n\n".join(
        filter(
            None,
            (
                f"## {constructor} {{ #{constructor} }}", _summary(constructor), f"Source: {first.source}.",
                f"Choices of `ptx.{constructor}`; not all go together:\n\n{choices}" if choices else "",
                f"For example `{first.text}`:\n\n{first.documentation}\n\n{operands}",
            ),
        )
    )  # fmt: skip
    return f"{head}\n\n{_forms(forms)}"


def _forms(forms: list[Instruction]) -> str:
    """A table of forms; long ones are folded."""
    lines = ["| PTX | function | ISA | targets |", "| --- | --- | --- | --- |"]
    for form in forms:
        version = ".".join(map(str, form.ptx_version))
        lines.append(f"| `{form.mnemonic}` | `{form.function_name}` | {version} | {_targets(form)} |")
    count = f"{len(forms):,} form{'s'[: len(forms) != 1]}"
    return f'??? note "{count}"\n\n' + "\n".join(f"    {line}" for line in lines) + "\n"


def _targets(form: Instruction) -> str:
    names = [target.name for target in form.targets]
    return "all" if len(names) == len(TARGETS) else ", ".join(name.removeprefix("sm_") for name in names)
