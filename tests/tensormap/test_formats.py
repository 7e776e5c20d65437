"""Tensor maps and parameters as text and plain values, written and read."""

from __future__ import annotations

import contextlib
import json
import pickle

import numpy as np
import pytest
from descriptor_strategies import parameters, raw_maps
from hypothesis import given
from hypothesis import strategies as st

import cupytma as tma
from cupytma.tensormap import Parameters, TensorMap

MAP = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), global_strides=(2048,),
    box_dim=(64, 32), swizzle="128B",
).encode()
WORDS = [f"{word:#x}" for word in MAP.words]


def gdb_dump(m, width=8, columns=2, label=" <map+{offset}>"):
    """As gdb prints memory with x/16gx and its kin."""
    data = bytes(m)
    numbers = [f"0x{int.from_bytes(data[i : i + width], 'little'):0{2 * width}x}" for i in range(0, 128, width)]
    return "\n".join(
        "\t".join([f"{0x7FFE0040 + i * width:#x}{label.format(offset=i * width)}:", *numbers[i : i + columns]])
        for i in range(0, len(numbers), columns)
    )


FORMATS = {
    "hex": TensorMap.to_hex,
    "hex in capitals, with blanks": lambda m: m.to_hex().upper()[:100] + " \n" + m.to_hex()[100:],
    "hex with 0x": lambda m: "0x" + m.to_hex(),
    "C": TensorMap.to_c,
    "C bytes": lambda m: "uint8_t map[128] = {" + ", ".join(map(str, bytes(m))) + "};",
    "JSON": TensorMap.to_json,
    "JSON, words alone": lambda m: json.dumps({"words": m.words}),
    "debug line": lambda m: m.debug_line(16),
    "x/16gx": gdb_dump,
    "x/32wx": lambda m: gdb_dump(m, 4, 4, ""),
    "x/128xb": lambda m: gdb_dump(m, 1, 8),
    "cuda-gdb session": lambda m: f"(cuda-gdb) x/16gx &map\n{gdb_dump(m)}\n(cuda-gdb) ",
    "gdb print": lambda m: "$1 = {opaque = {" + ", ".join(map(str, m.words)) + "}}",
    "words": lambda m: " ".join(f"{word:#x}" for word in m.words),
    "raw bytes": bytes,
    "text as bytes": lambda m: m.to_hex().encode(),
    "text as UTF-16": lambda m: m.to_c().encode("utf-16"),
}


@given(raw_maps, st.sampled_from(sorted(FORMATS)))
def test_every_format_is_read_back(data, form):
    m = TensorMap(data)
    assert TensorMap.parse(FORMATS[form](m)) == m


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_is_read_back(form):
    assert TensorMap.parse(FORMATS[form](MAP)) == MAP


def test_raw_bytes_that_are_characters():
    data = (b"a tensor map, by chance: " * 6)[:128]
    assert bytes(TensorMap.parse(data)) == data
    assert bytes(TensorMap.parse(bytearray(data))) == data
    assert bytes(TensorMap.parse(memoryview(data))) == data


def test_eight_words_of_a_debug_line_stand_for_what_an_encoder_made():
    assert TensorMap.parse(f"log: {MAP.debug_line()}") == MAP


def test_repeats_and_comments():
    assert TensorMap.parse("{opaque = {" + ", ".join(WORDS[:10]) + ", 0x0 <repeats 6 times>}}") == MAP
    words = ",\n".join(f"{word}ULL" for word in WORDS)
    assert TensorMap.parse(f"/* {{1, 2}} */ CUtensorMap m = {{{{ // words\n{words}}}}};") == MAP


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "no input"),
        (b"", "no input"),
        ("  \n", "no input"),
        (bytes(127), "127 bytes of binary data; a tensor map is 128 bytes"),
        ("00" * 127, "254 hex digits; a tensor map is 128 bytes: 256 hex digits"),
        ("xyz", "'xyz' is no hex"),
        ("1, 2, 3", "3 numbers; a tensor map is 128 bytes"),
        (", ".join(["1"] * 15 + ["0x10000000000000000"]), "no unsigned number of 64 bits"),
        (", ".join(["1"] * 15 + ["-1"]), "'-1' is no unsigned number of 64 bits"),
        (", ".join(["256"] * 128), "no unsigned number of 8 bits, and there are 128 of them"),
        (", ".join(["one"] * 16), "'one' is no integer"),
        (", ".join(["9" * 5000] * 16), "'999999999999999999999999…' is no integer"),
        ('{"words": [1,', "this is no JSON"),
        ('{"global_dim": [1]}', 'neither "bytes" nor "words"'),
        ('{"words": "12"}', '"words" is a list of 16 numbers'),
        (json.dumps({"bytes": "00" * 128, "words": [1] * 16}), "differ"),
        ("DESC_TMA512: 0x1 2 3 4", "words 4…7 are missing"),
    ],
)
def test_what_is_no_tensor_map_is_refused_with_the_reason(source, said):
    with pytest.raises(tma.DescriptorError) as caught:
        TensorMap.parse(source)
    assert said in str(caught.value)


@given(st.text(max_size=300) | st.binary(max_size=300))
def test_nothing_else_comes_out_than_a_map_or_a_reason(source):
    with contextlib.suppress(tma.DescriptorError):
        assert isinstance(TensorMap.parse(source), TensorMap)


def test_c_is_a_definition():
    text = MAP.to_c("weights")
    assert text.splitlines()[0] == "CUtensorMap weights = {{"
    assert text.splitlines()[-1] == "}};"
    assert text.count("0x") == 16


# dictionaries and JSON of maps


def test_a_document_has_everything():
    document = MAP.to_dict("sm_90a")
    assert document["kind"] == "tiled"
    assert document["target"] == "sm_90a"
    assert document["parameters"]["global_dim"] == [1024, 512]
    assert document["parameters"]["swizzle"] == "128B"
    assert document["bytes"] == bytes(MAP).hex()
    assert document["box_bytes"] == 4096
    assert document["shared_alignment"] == 1024
    assert document["reserved_bits"] == []
    assert {"field": "global_dim[1]", "bits": "w4[63:32]", "value": 512, "meaning": ""} in document["fields"]
    assert json.loads(MAP.to_json("sm_90a")) == document


@given(raw_maps)
def test_any_map_has_a_document_that_is_read_back(data):
    m = TensorMap(data)
    document = json.loads(m.to_json())
    assert TensorMap.from_dict(document) == TensorMap.from_json(m.to_json()) == m
    assert ("error" in document) is (document["parameters"] is None)


@pytest.mark.parametrize("document", [[], 5, "text", None])
def test_documents_that_are_none(document):
    with pytest.raises(tma.DescriptorError):
        TensorMap.from_dict(document)
    with pytest.raises(tma.DescriptorError):
        Parameters.from_dict(document)


# dictionaries and JSON of parameters


@given(parameters())
def test_parameters_are_read_back(p):
    assert Parameters.from_dict(p.to_dict()) == p
    assert type(p).from_json(p.to_json()) == p
    assert Parameters.from_dict(json.loads(json.dumps(p.to_dict()))) == p


@given(parameters())
def test_the_parameters_of_a_maps_document_are_read_back(p):
    assert Parameters.from_dict(p.encode().to_dict()) == p


def test_numbers_may_be_hexadecimal_and_defaults_left_out():
    p = Parameters.from_dict(
        {"data_type": "FLOAT16", "global_address": "0x7f0000000000", "global_dim": [64], "box_dim": ["0x40"]}
    )
    assert p == tma.Tiled(data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(64,), box_dim=(64,))


@pytest.mark.parametrize(
    ("kind", "document", "said"),
    [
        (Parameters, {"kind": "cubic"}, "of kind 'cubic'; expected tiled, im2col, im2col_wide"),
        (tma.Im2col, {"kind": "tiled"}, "of kind 'tiled'; expected im2col"),
        (tma.Tiled, {"kind": "tiled", "boxes": 1, "data_type": "INT32"}, "unknown: boxes; missing: global_address"),
        (tma.Tiled, {"parameters": 5}, "no object of names and values"),
        (tma.Tiled, {"data_type": "F", "global_address": 0, "global_dim": [1], "box_dim": [1]}, "no member 'F'"),
    ],
)
def test_documents_of_other_things_are_refused(kind, document, said):
    with pytest.raises(tma.DescriptorError) as caught:
        kind.from_dict(document)
    assert said in str(caught.value)


@given(parameters())
def test_pickles(p):
    assert pickle.loads(pickle.dumps(p.encode())) == p.encode()
    assert pickle.loads(pickle.dumps(p)) == p


@pytest.mark.parametrize("value", [1.0, 1.5, float("inf"), float("nan"), True, np.bool_(True), np.float32(1), 1j, None])
@pytest.mark.parametrize("enumeration", [tma.Swizzle, tma.DataType])
def test_only_whole_numbers_stand_for_members(enumeration: type, value: object) -> None:
    with pytest.raises(ValueError, match="has no member"):
        enumeration.of(value)
    assert enumeration.of(np.uint8(1)) == enumeration.of(1) == 1
