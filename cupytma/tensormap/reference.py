"""The tables of bits, data types and swizzles as Markdown, for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cupytma.tensormap.enums import DataType, Swizzle
from cupytma.tensormap.fields import DATA_TYPES, FIELDS, SWIZZLES
from cupytma.tensormap.rule import Rule


def tables_of_bits() -> tuple[str, ...]:
    """Sections in Markdown: the bit fields, the data types and the swizzles."""
    return _fields(), _data_types(), _swizzles()


def holds_for(rule: Rule) -> str:
    """Which maps and targets a rule holds for, in words."""
    modes = ", ".join(mode.replace("_", "-") for mode in rule.modes) if len(rule.modes) < 3 else "all"
    return modes if rule.feature is None else f"{modes}; targets with {rule.feature.value}"


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

