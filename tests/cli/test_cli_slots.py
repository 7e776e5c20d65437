"""``cupytma slots``: the eight slots, and what tensormap.replace writes."""

from __future__ import annotations

import json

import pytest

import cupytma as tma
from cupytma.tensormap import FIELDS, MUTATORS

MAP = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512, 7), box_dim=(64, 32, 1), swizzle="128B"
).encode()


def document(invoke, *arguments: str, **keywords) -> dict:
    result = invoke("slots", *arguments, "--json", **keywords)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_slots_of_a_map_are_the_librarys(invoke):
    rows = document(invoke, "-", input=bytes(MAP))["slots"]
    assert len(rows) == 8
    for row, slot in zip(rows, MAP.slots(), strict=True):
        assert (row["slot"], row["offset"], int(row["value"], 16)) == (slot.name, slot.offset, slot.value)
        assert (row["holds"], row["written_by"]) == (list(slot.holds), list(slot.mutators))
        assert row["differences"] == list(slot.differences)


def test_without_a_map_every_field_of_the_payload_is_in_its_slot(invoke):
    rows = document(invoke)["slots"]
    held = [(row["offset"] // 8, entry) for row in rows for entry in row["holds"]]
    assert sorted(held) == sorted((field.word, f"{field.label} {field.bits}") for field in FIELDS if field.word < 8)
    assert all(row["value"] is None for row in rows)


def test_every_field_of_replace_with_the_bits_it_writes(invoke):
    rows = {row["field"]: row for row in document(invoke)["replace_fields"]}
    assert list(rows) == list(MUTATORS)
    for field, mutator in MUTATORS.items():
        assert rows[field]["writes"][0] == [place.bits for place in mutator.places(0)]
        assert len(rows[field]["writes"]) == (mutator.ordinals or 1)
    assert rows["swizzle_atomicity"]["targets"] == [
        name for name, target in tma.targets.TARGETS.items()
        if target.has(tma.targets.Feature.TENSORMAP_REPLACE) and target.has(tma.targets.Feature.SWIZZLE_ATOMICITY)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("target", "elements", "atomicity"), [("sm_90a", 13, False), ("sm_100a", 16, True), ("sm_90", None, False)]
)
def test_a_target_has_the_fields_that_its_assembler_takes(invoke, target, elements, atomicity):
    rows = {row["field"]: row for row in document(invoke, "--target", target)["replace_fields"]}
    assert ("swizzle_atomicity" in rows) == atomicity
    if elements is None:
        assert rows == {}
        assert "sm_90 has no tensormap.replace" in invoke("slots", "--target", target).stdout
    else:
        assert rows["elemtype"]["operand"] == f"immediate 0 to {elements - 1}"


@pytest.mark.parametrize("arguments", [[], [bytes(MAP).hex()]], ids=["every kind", "one map"])
def test_the_text_fits_and_says_names_bits_and_mutators(invoke, arguments):
    text = invoke("slots", *arguments).stdout
    flat = " ".join(text.split())
    assert "+8 fmt_dim_stride_packed" in flat
    assert "holds: global_address w0[63:0]" in text
    assert "written by: global_address" in text
    assert ("0x00007f0000000000" in text) == bool(arguments)
    assert ("Fields of tensormap.replace" in text) == (not arguments)
    assert max(map(len, text.splitlines())) <= 80


def test_a_map_without_a_kind_shows_what_any_kind_has(invoke):
    words = list(MAP.words)
    words[1] |= 7 << 4
    rows = document(invoke, " ".join(map(hex, words)))["slots"]
    assert any(entry.startswith("channels_per_pixel") for entry in rows[6]["holds"])


@pytest.mark.parametrize("arguments", [["missing.bin"], ["zz zz"], ["."], ["🙂"], [""], ["--target", "sm_80"]])
def test_errors_end_with_2(invoke, arguments):
    result = invoke("slots", *arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80
