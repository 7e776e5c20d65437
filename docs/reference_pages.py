"""Pages of the reference that are written from the package's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click

from cupytma.check import RULES as CHECKER_RULES
from cupytma.cli.application import cli
from cupytma.help import KINDS, Topic, topics
from cupytma.sim.program import RULES as PROGRAM_RULES
from cupytma.targets import TARGETS, Feature
from cupytma.tensormap import RULES as TENSOR_MAP_RULES
from cupytma.tensormap import reference

# On which page the topics of a kind are.
PAGE_OF = {
    "rule": "reference/tensor-map-rules.md",
    "warning": "reference/tensor-map-rules.md",
    "fault": "reference/tensor-map-rules.md",
    "folklore": "reference/tensor-map-rules.md",
    "finding": "reference/checker-findings.md",
    "program": "reference/program-findings.md",
    "cuda": "reference/errors.md",
    "error": "reference/errors.md",
    "recipe": "reference/fence-recipes.md",
}
# What was run on hardware; the rest was compiled, and simulated where a simulation is documented.
RUN_ON = {"sm_90": "H100, H200", "sm_90a": "H100, H200"}


def pages() -> dict[str, str]:
    """The pages by path."""
    return {
        "reference/index.md": _index(),
        "reference/tensor-map-rules.md": _tensor_map_rules(),
        "reference/bit-fields.md": _bit_fields(),
        "reference/checker-findings.md": _checker_findings(),
        "reference/program-findings.md": _program_findings(),
        "reference/errors.md": _errors(),
        "reference/fence-recipes.md": _recipes(),
        "reference/targets.md": _targets(),
        "reference/command-line.md": _command_line(),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    return line(head) + line("---" for _ in head) + "".join(line(row) for row in rows)


def _of_kind(kind: str) -> list[Topic]:
    return [topic for topic in topics() if topic.kind == kind]


def _sections(kind: str, level: int) -> Iterator[str]:
    for topic in _of_kind(kind):
        title = f"{topic.title[0].upper()}{topic.title[1:]}."
        yield f"{'#' * level} {topic.id} {{ #{topic.id} }}\n\n{title}\n\n{topic.text}"


def _link(id: str) -> str:
    return f"[`{id}`](#{id})"


def _index() -> str:
    return (
        "# Reference\n\n"
        "Written from the tables that the code itself reads, each time this site is built: the encoder, the checkers, "
        "the simulator and these pages cannot differ.\n\n"
        f"- [Rules of tensor maps](tensor-map-rules.md): {len(TENSOR_MAP_RULES)} rules, warnings and faults, with an "
        "example of each\n"
        "- [Bit fields](bit-fields.md): what each of the 128 bytes holds, data types, swizzles\n"
        "- [Instructions](instructions/index.md): every form of every PTX instruction of the family\n"
        "- [Fence recipes](fence-recipes.md): what has to follow what, by the path that data takes\n"
        f"- [Checker findings](checker-findings.md): {len(CHECKER_RULES)} mistakes that are found in kernels\n"
        f"- [Program findings](program-findings.md): {len(PROGRAM_RULES)} mistakes that a simulated program shows\n"
        "- [Errors](errors.md): those of CUDA that stay, and those that are raised here\n"
        "- [Targets](targets.md): which architecture has what, and what was run on hardware\n"
        "- [Command line](command-line.md): every command with its options\n"
    )


def _tensor_map_rules() -> str:
    parts = [
        "# Rules of tensor maps\n\n"
        "The encoder, the checkers and this page read the same rows. Everything is in driver order: dimension 0 moves "
        "fastest. `cupytma help ID` prints each of them.\n",
    ]
    for kind in ("rule", "warning", "fault"):
        rows = [
            (_link(rule.id), rule.statement, reference.holds_for(rule), rule.source)
            for rule in TENSOR_MAP_RULES
            if rule.severity == {"rule": "error"}.get(kind, kind)
        ]
        parts.append(f"## {KINDS[kind]}\n\n{table(('id', 'rule', 'for', 'known from'), rows)}")
    rows = [(_link(topic.id), topic.title) for topic in _of_kind("folklore")]
    parts.append(f"## {KINDS['folklore']}\n\n{table(('id', 'what is said'), rows)}")
    parts.append("## One by one\n")
    for kind in ("rule", "warning", "fault", "folklore"):
        parts += _sections(kind, 3)
    return "\n".join(parts)


def _bit_fields() -> str:
    return "\n".join(("# Bits of a tensor map\n", *reference.tables_of_bits()))


def _checker_findings() -> str:
    rows = [(_link(rule.id), rule.severity.value, rule.title) for rule in CHECKER_RULES.values()]
    head = (
        "# What the checker finds\n\n"
        "[Checking kernels](../checker.md) says how it is used. Each finding has a kernel that breaks the rule and no "
        "other, and the same kernel mended; the tests check both.\n\n"
    )
    return head + table(("id", "severity", "what must hold"), rows) + "\n" + "\n".join(_sections("finding", 2))


def _program_findings() -> str:
    rows = [(_link(rule.id), rule.kind, rule.statement, rule.source) for rule in PROGRAM_RULES.values()]
    head = (
        "# What a simulated program is told\n\n"
        "[Why a kernel hangs or races](../programs.md) says how a program is written and run. A finding names its row "
        "of this table, `sim.program.RULES`.\n\n"
    )
    found = table(("id", "kind", "what has to hold", "known from"), rows)
    return head + found + "\n" + "\n".join(_sections("program", 2))


def _errors() -> str:
    parts = ["# Errors\n", f"## {KINDS['cuda']}\n"]
    parts.append("A kernel died, and every later call is answered alike: `every-call-fails`.\n")
    parts.append(table(("id", "what happened"), [(_link(topic.id), topic.title) for topic in _of_kind("cuda")]))
    parts += _sections("cuda", 3)
    parts.append(f"## {KINDS['error']}\n")
    parts.append("All derive from `CupytmaError` or `CupytmaWarning`, and from the builtin that one would catch.\n")
    parts += _sections("error", 3)
    return "\n".join(parts)


def _recipes() -> str:
    rows = [(_link(topic.id), topic.title) for topic in _of_kind("recipe")]
    head = (
        "# Fences, by the path that data takes\n\n"
        "The unit reads and writes memory through proxies of its own. For each path that data can take, these are the "
        "instructions in order, who executes each, and at which scope; `ptx.recipe(id)` gives them to code.\n\n"
    )
    return head + table(("id", "path"), rows) + "\n" + "\n".join(_sections("recipe", 2))


def targets_table() -> str:
    """Which target has what, and what was run on hardware: the table of README.md and of the site."""
    names = list(TARGETS)
    shown = [name for name in names if name.endswith("a")]
    rows = [[feature.value, *("yes" if TARGETS[name].has(feature) else "" for name in shown)] for feature in Feature]
    rows.append(["shared memory of a block", *(f"{TARGETS[name].shared_bytes >> 10} KiB" for name in shown)])
    rows.append(["oldest PTX ISA", *(".".join(map(str, TARGETS[name].ptx_version)) for name in shown)])
    rows.append(["run on hardware", *(RUN_ON.get(name, "no") for name in shown)])
    return table(("feature", *(f"`{name}`" for name in shown)), rows)


def _targets() -> str:
    others = [name for name in TARGETS if not name.endswith("a")]
    rows = [
        (
            f"`{name}`", ".".join(map(str, TARGETS[name].compute_capability)),
            "; ".join(feature.value for feature in Feature if TARGETS[name].has(feature)), RUN_ON.get(name, "no"),
        )
        for name in others
    ]  # fmt: skip
    return (
        "# Targets\n\n"
        "What each architecture has, from the table that descriptors, instructions, the simulator and the compiler "
        "read. On H100 and H200 kernels and operations were run, and the simulator was held against what they did. For "
        "the others kernels are compiled, and copies are simulated as documents describe them; nothing was run.\n\n"
        + targets_table() + "\n"
        "Without the letter there is what every card of the generation and later ones have:\n\n"
        + table(("target", "compute capability", "features", "run on hardware"), rows)
    )


def _command_line() -> str:
    parts = [
        "# Command line\n\n"
        "Errors end with exit code 2 and say on stderr what to do; - is standard input or output. "
        '`eval "$(cupytma completion bash)"` turns on completion in bash, `cupytma completion --help` says how in '
        "others.\n"
    ]
    root = click.Context(cli, info_name="cupytma", terminal_width=80, max_content_width=80, **cli.context_settings)
    parts += _commands(cli, root, 2)
    return "\n".join(parts)


def _commands(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                inner = click.Context(found, context, info_name=name, terminal_width=80, max_content_width=80)
                yield from _commands(found, inner, min(level + 1, 4))
