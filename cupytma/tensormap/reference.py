"""The tables of this package as one page of documentation: ``python -m cupytma.tensormap.reference > FILE``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cupytma.tensormap.cautions import FOLKLORE
from cupytma.tensormap.enums import DataType, Swizzle
from cupytma.tensormap.fields import DATA_TYPES, FIELDS, SWIZZLES
from cupytma.tensormap.rule import Rule
from cupytma.tensormap.rules import RULES

_INTRODUCTION = """\
# Tensor maps: rules and bits

Generated from the tables that the encoder, the decoder and the checkers read; `python -m cupytma.tensormap.reference`
prints it again. Everything is in driver order: dimension 0 moves fastest.
"""

_SECTIONS = (
    ("error", "Rules", "A tensor map that breaks one of these is refused by the driver, and by `encode`."),
    ("warning", "Warnings", "Legal and surprising: `warnings()` says so, and nothing is refused."),
    ("fault", "Faults", "These encode. A copy that breaks one of them kills the kernel; `faults()` says so before."),
)


def reference() -> str:
    """The whole page, in Markdown."""
    parts = [_INTRODUCTION]
    for severity, title, words in _SECTIONS:
        rows = [_rule_row(rule) for rule in RULES if rule.severity == severity]
        parts.append(f"## {title}\n\n{words}\n\n" + _table(("id", "rule", "for", "known from"), rows))
    folklore = [(f"`{entry.id}`", entry.claim, entry.truth) for entry in FOLKLORE]
    parts.append(
        "## Folklore\n\nOften enforced, and no rules.\n\n" + _table(("id", "what is said", "what is so"), folklore)
    )
    parts += [_fields(), _data_types(), _swizzles()]
    return "\n".join(parts)


def _rule_row(rule: Rule) -> tuple[str, ...]:
    holds_for = ", ".join(mode.replace("_", "-") for mode in rule.modes) if len(rule.modes) < 3 else "all"
    if rule.feature is not None:
        holds_for += f"; targets with {rule.feature.value}"
    return f"`{rule.id}`", rule.statement, holds_for, rule.source


def _fields() -> str:
    rows = [
        (
            f"`{field.bits}`", f"`{field.label}`", field.form,
            "all" if len(field.layouts) == 3 else ", ".join(layout.replace("_", "-") for layout in field.layouts),
            _ranks(field.ranks),
        )
        for field in FIELDS
    ]  # fmt: skip
    return (
        "## Bit fields\n\nThe 128 bytes are sixteen little-endian 64-bit words `w0` to `w15`. Bits that no row names "
        "are zero.\n\n" + _table(("bits", "holds", "as", "layouts", "ranks"), rows)
    )


def _ranks(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


def _data_types() -> str:
    rows = [
        (str(int(member)), f"`{member}`", str(row.element_bits), str(row.element_format), str(int(row.tf32)))
        for member, row in ((member, DATA_TYPES[member]) for member in DataType)
    ]
    return "## Data types\n\n" + _table(("number", "name", "bits of an element", "`w1[10:7]`", "`w1[16]`"), rows)


def _swizzles() -> str:
    rows = [
        (str(int(member)), f"`{member}`", str(member.span), str(row.swizzle_mode), str(row.swizzle_atomicity))
        for member, row in ((member, SWIZZLES[member]) for member in Swizzle)
    ]
    return "## Swizzles\n\n" + _table(("number", "name", "span in bytes", "`w1[14:13]`", "`w1[20:19]`"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    return line(head) + line("---" for _ in head) + "".join(line(row) for row in rows)


if __name__ == "__main__":
    print(reference(), end="")
