"""``cupytma layout``: the bit-field table."""

from __future__ import annotations

import json

import pytest

from cupytma.tensormap import FIELDS, DataType
from cupytma.tensormap.fields import DATA_TYPES, RANKS, WORDS, fields_of, known_bits


def listed(invoke, *arguments: str) -> list[dict]:
    result = invoke("layout", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_every_field_is_in_json(invoke):
    rows = [(row["name"], row["index"], row["word"], row["low"], row["width"]) for row in listed(invoke)]
    assert rows == [(field.name, field.index, field.word, field.low, field.width) for field in FIELDS]


def test_every_field_is_in_the_table_with_bits_width_and_encoding(invoke):
    text = invoke("layout").stdout
    lines = [line.split() for line in text.splitlines()]
    for field in FIELDS:
        assert any(line[:3] == [field.bits, str(field.width), field.label] for line in lines)
    assert "0 none, 1 32B, 2 64B, 3 128B" in text
    assert "bytes >> 4, low 32 bits" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("kind", "rank"), [(kind, rank) for kind in RANKS for rank in RANKS[kind]])
def test_kind_and_rank_leave_the_fields_of_such_a_map(invoke, kind, rank):
    arguments = ("--kind", kind.replace("_", "-"), "--rank", str(rank))
    found = listed(invoke, *arguments)
    assert [(row["field"], row["bits"]) for row in found] == [(f.label, f.bits) for f in fields_of(kind, rank)]
    bits = sum(((1 << row["width"]) - 1) << (64 * row["word"] + row["low"]) for row in found)
    assert bits == known_bits(kind, rank)
    table = [line.split() for line in invoke("layout", *arguments).stdout.splitlines()]
    assert [line[0] for line in table if line[:1] and line[0].startswith("w")] == [
        row["bits"] for row in sorted(found, key=lambda row: (row["word"], row["low"]))
    ]


def test_codes_of_the_element_formats(invoke):
    (row,) = listed(invoke, "element_format")
    for member in DataType:
        if not DATA_TYPES[member].tf32:
            assert row["codes"][str(member)] == DATA_TYPES[member].element_format
    assert "9 FLOAT64" in " ".join(invoke("layout", "element_format").stdout.split())


@pytest.mark.parametrize("word", range(WORDS))
def test_a_word_by_its_number(invoke, word):
    result = invoke("layout", f"w{word}", "--json")
    expected = [field.label for field in FIELDS if field.word == word]
    if not expected:
        assert result.exit_code == 2
        return
    assert [row["field"] for row in json.loads(result.stdout)] == expected


def test_a_field_by_name_part_or_index(invoke):
    assert {row["name"] for row in listed(invoke, "swizzle")} == {"swizzle_mode", "swizzle_atomicity"}
    assert {row["bits"] for row in listed(invoke, "global_dim[1]")} == {"w4[63:32]"}
    assert {row["bits"] for row in listed(invoke, "Global-Dim[1]")} == {"w4[63:32]"}


def test_im2col_has_no_ranks_below_3(invoke):
    assert all(min(row["ranks"]) >= 3 for row in listed(invoke, "--kind", "im2col") if row["kinds"] != ["tiled"] and
               "tiled" not in row["kinds"])
    assert "1 to 5" not in invoke("layout", "--kind", "im2col").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["colour"], "no field is called 'colour'"),
        (["w99"], "w0 to w15"),
        (["box_dim", "--kind", "im2col"], "no field is called 'box_dim' there"),
        (["--kind", "im2col", "--rank", "2"], "rank 3 to 5"),
        (["--rank", "6"], "6 is not in the range"),
        (["--rank", "x"], "'x'"),
        (["🙂"], "🙂"),
        (["y" * 5000], "no field"),
    ],
)
def test_nothing_found_says_what_there_is(invoke, arguments, said):
    result = invoke("layout", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert max(map(len, result.stderr.splitlines())) <= 80
