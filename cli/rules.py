"""``cupytma rules``: what a tensor map must obey."""

from __future__ import annotations

import difflib
import re
from typing import Any

import click
from click.shell_completion import CompletionItem

from cupytma.targets import TARGETS, Target
from cupytma.tensormap import FOLKLORE, RULES, Folklore, Rule
from cupytma.tensormap.rule import MODES, OPERANDS

from .failures import Failure
from .options import TargetName, starting
from .output import paragraph, show, show_json

KINDS = tuple(mode.replace("_", "-") for mode in MODES)
_FOLKLORE = "folklore"
# By severity: what it is called, and what it means.
_SEVERITIES: dict[str, tuple[str, str]] = {
    "error": ("Rules", "The driver, and `cupytma encode`, refuse a map that breaks one."),
    "warning": ("Warnings", "Legal and surprising: `cupytma encode` says so, and nothing is refused."),
    "fault": ("Faults", "These encode; a copy that breaks one kills the kernel."),
    _FOLKLORE: ("Folklore", "Often enforced, and no rules."),
}
_PER = {"": "", "dim": "each dimension", "stride": "each stride", "corner": "each spatial dimension"}
_WORD = re.compile(r"[A-Za-z_]\w*")

Row = Rule | Folklore
ROWS: dict[str, Row] = {rule.id: rule for rule in RULES} | {entry.id: entry for entry in FOLKLORE}


class RuleWord(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """The id of a rule, or a word to look for."""

    name = "word"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return starting(ROWS, incomplete)


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma rules box-inner-span\n"
    "  cupytma rules stride --kind tiled\n"
    "  cupytma rules --severity fault --json"
)
@click.argument("words", nargs=-1, type=RuleWord(), metavar="[ID|WORD]...")
@click.option("--kind", type=click.Choice(KINDS), help="Those that hold for one kind of tensor map.")
@click.option("--target", type=TargetName(), help="Those that hold on one architecture.")
@click.option("--severity", type=click.Choice(tuple(_SEVERITIES)), help="Those of one sort.")
@click.option("--json", "as_document", is_flag=True, help="Print them whole, as JSON.")
def rules(
    words: tuple[str, ...], kind: str | None, target: Target | None, severity: str | None, as_document: bool
) -> None:
    """Show what a tensor map must obey, and how to mend it.

    With the id of a rule: all that is known of it. With other words: the rules that speak of all of them. What kernels
    are checked for is listed by `cupytma check --rules`.
    """
    listed = [row for row in ROWS.values() if _holds(row, kind, target) and severity in (None, _severity(row))]
    named = [ROWS[word] for word in words if word in ROWS]
    is_whole = bool(words) and len(named) == len(words)
    found = [row for row in named if row in listed] if is_whole else [row for row in listed if _speaks(row, words)]
    if not found:
        raise Failure(_nothing(words, named))
    if as_document:
        show_json([_document(row) for row in found])
    elif is_whole:
        for row in dict.fromkeys(found):
            _print_whole(row)
        others = [row.id for row in listed if row not in found and _speaks(row, words)]
        if others:
            show("", paragraph(f"{' '.join(words)} is spoken of by: {', '.join(others)}", 0, 2))
    else:
        _print_list(found)


def _severity(row: Row) -> str:
    return row.severity if isinstance(row, Rule) else _FOLKLORE


def _holds(row: Row, kind: str | None, target: Target | None) -> bool:
    if isinstance(row, Folklore):
        return True
    has_kind = kind is None or kind.replace("-", "_") in row.modes
    return has_kind and (target is None or row.feature is None or target.has(row.feature))


def _speaks(row: Row, words: tuple[str, ...]) -> bool:
    """Whether each word is somewhere in what the list shows."""
    text = " ".join((row.id, *_texts(row), *_kinds(row))).lower()
    return all(word.lower() in text for word in words)


def _texts(row: Row) -> tuple[str, str]:
    """What must hold and how to mend it; of folklore what is said and what is so."""
    if isinstance(row, Folklore):
        return row.claim, row.truth
    return row.statement, _as_said(row)[1]


def _kinds(row: Row) -> tuple[str, ...]:
    return tuple(mode.replace("_", "-") for mode in row.modes) if isinstance(row, Rule) else ()


def _as_said(rule: Rule) -> tuple[str, str]:
    """What is said of a map that breaks the rule, and the way out; with numbers, that of an example."""
    from cupytma.help.examples import EXAMPLES

    said = EXAMPLES[rule.id].violation(rule.id)
    pairs = ((rule.message, said.message), (rule.fix, said.fix))
    message, fix = (text if text == template else f"for example: {text}" for template, text in pairs)
    return message, fix


def _print_list(found: list[Row]) -> None:
    severities = [severity for severity in _SEVERITIES if any(_severity(row) == severity for row in found)]
    for severity in severities:
        title, meaning = _SEVERITIES[severity]
        gap = "\n" if severity != severities[0] else ""
        show(gap + paragraph(f"{title}: {meaning}"), style="bold")
        for row in (row for row in found if _severity(row) == severity):
            holds, mend = _texts(row)
            head = "fix: " if isinstance(row, Rule) else "but: "
            show(paragraph(row.id + _scope(row), 2, 2), paragraph(holds, 4), paragraph(head + mend, 4, len(head)))


def _scope(row: Row) -> str:
    """What a rule is limited to, for the line of its id; "" where it holds for all."""
    if isinstance(row, Folklore) or (len(row.modes) == len(MODES) and row.feature is None):
        return ""
    kinds = () if len(row.modes) == len(MODES) else _kinds(row)
    return f" ({', '.join(kinds)}{'; ' if kinds and row.feature else ''}{'newer targets' if row.feature else ''})"


def _print_whole(row: Row) -> None:
    _, meaning = _SEVERITIES[_severity(row)]
    show(row.id, style="bold")
    if isinstance(row, Folklore):
        lines = [("is", meaning), ("said", row.claim), ("so", row.truth)]
    else:
        message, fix = _as_said(row)
        lines = [
            ("is", f"{row.severity}. {meaning}"), ("holds", row.statement), ("exactly", row.holds),
            ("for", "; ".join(filter(None, (", ".join(_kinds(row)), _PER[row.per])))),
            ("on", ", ".join(_targets(row)) if row.feature else "every target"),
            ("says", message), ("fix", fix), ("known", row.source),
        ]  # fmt: skip
    for head, text in lines:
        show(paragraph(f"{head + ':':<9}{text}", 2, 9))
    for name, meaning in _operands(row).items():
        show(paragraph(f"{name}: {meaning}", 4, 4))


def _targets(row: Rule) -> list[str]:
    return [target.name for target in TARGETS.values() if row.feature is None or target.has(row.feature)]


def _operands(row: Row) -> dict[str, str]:
    """What the operands mean that a rule's expression names."""
    if isinstance(row, Folklore):
        return {}
    return {word: OPERANDS[word] for word in dict.fromkeys(_WORD.findall(row.holds)) if word in OPERANDS}


def _document(row: Row) -> dict[str, Any]:
    if isinstance(row, Folklore):
        return {"id": row.id, "severity": _FOLKLORE, "statement": row.claim, "truth": row.truth}
    return {
        "id": row.id, "severity": row.severity, "statement": row.statement, "holds": row.holds,
        "message": row.message, "fix": row.fix, "kinds": list(_kinds(row)), "per": row.per or None,
        "targets": _targets(row), "source": row.source,
    }  # fmt: skip


def _nothing(words: tuple[str, ...], named: list[Row]) -> str:
    """What to say where nothing is found."""
    if named or not words:
        return f"{', '.join(row.id for row in named) or 'nothing'} is not among what the options leave; take one away"
    close = difflib.get_close_matches(words[0][:40], ROWS, n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; `cupytma rules` lists all"
    return f"no rule speaks of {' '.join(words)[:60]!r}{hint}"
