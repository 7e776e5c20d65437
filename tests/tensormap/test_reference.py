"""The documentation page of rules and bits is the tables'."""

from __future__ import annotations

from pathlib import Path

from cupytma.tensormap import FIELDS, FOLKLORE, RULES
from cupytma.tensormap.reference import reference

_PAGE = Path(__file__).parents[2] / "docs" / "tensor-maps.md"


def test_the_page_in_the_documentation_is_what_the_tables_give() -> None:
    assert _PAGE.read_text(encoding="utf-8") == reference()


def test_the_page_names_every_row() -> None:
    page = reference()
    for row in (*RULES, *FOLKLORE):
        assert f"`{row.id}`" in page
    for field in FIELDS:
        assert f"| `{field.bits}` | `{field.label}` |" in page
