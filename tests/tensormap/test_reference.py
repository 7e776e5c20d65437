"""The tables of bits for the documentation have every row."""

from __future__ import annotations

from cupytma.tensormap import FIELDS, RULES
from cupytma.tensormap.enums import DataType, Swizzle
from cupytma.tensormap.reference import holds_for, tables_of_bits


def test_every_field_type_and_swizzle_has_a_row() -> None:
    fields, data_types, swizzles = tables_of_bits()
    for field in FIELDS:
        assert f"| `{field.bits}` | `{field.label}` |" in fields
    assert [f"| `{member}` |" in data_types for member in DataType] == [True] * len(DataType)
    assert [f"| `{member}` |" in swizzles for member in Swizzle] == [True] * len(Swizzle)


def test_what_a_rule_holds_for_names_kinds_and_features() -> None:
    said = {rule.id: holds_for(rule) for rule in RULES}
    assert said["box-range"] == "tiled"
    assert said["wide-swizzle"] == "im2col-wide; targets with im2col-wide tensor maps"
    assert said["stride-alignment"] == "all"
