"""The founding document's eight slots and its debug line, beside the recorded bits."""

from __future__ import annotations

import pytest
from descriptor_strategies import parameters, raw_maps
from hypothesis import given

import cupytma as tma
from cupytma.tensormap import FIELDS, MUTATORS, TensorMap

MAP = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512, 4, 3, 2),
    global_strides=(2048, 1 << 20, 1 << 36, 3 << 37), box_dim=(64, 32, 1, 1, 1), swizzle="128B",
).encode()
NAMES = (
    "tensor_base_ptr", "fmt_dim_stride_packed", "box_size_packed", "elem_stride_packed", "load_mode_packed",
    "interleave_fill", "l2_sector_promo", "reserved_future",
)


def test_names_offsets_and_values():
    slots = MAP.slots()
    assert tuple(slot.name for slot in slots) == NAMES
    assert [slot.offset for slot in slots] == list(range(0, 64, 8))
    assert tuple(slot.value for slot in slots) == MAP.words[:8]


@given(raw_maps)
def test_any_bytes_have_slots(data):
    m = TensorMap(data)
    assert tuple(slot.value for slot in m.slots()) == m.words[:8]


@given(parameters())
def test_what_words_hold_is_every_field_in_its_place(p):
    slots = p.encode().slots()
    held = {entry for slot in slots for entry in slot.holds}
    places = {f"{field.label} {place}" for field in p.encode().fields() for place in field.bits.split(" + ")}
    assert held == {place for place in places if int(place.split("w")[-1].split("[")[0]) < 8}


def test_mutators_by_trying_every_one():
    """Which words change when each instruction runs on zeros and on ones."""
    found = {word: set() for word in range(16)}
    for name, mutator in MUTATORS.items():
        for ordinal in range(mutator.ordinals or 1):
            for template in (TensorMap(bytes(128)), TensorMap(b"\xff" * 128)):
                for value in range(mutator.limit(tma.TARGETS["sm_103a"])) or (0, 2**64 - 1):
                    after = template.replace_raw(name, value, ordinal, "sm_103a")
                    pairs = enumerate(zip(template.words, after.words, strict=True))
                    for word in (w for w, (a, b) in pairs if a != b):
                        found[word].add((name, ordinal) if mutator.ordinals else (name, None))
    for word, slot in enumerate(MAP.slots()):
        expected = {name for name, _ in found[word]}
        assert {name.partition("[")[0] for name in slot.mutators} == expected
        for name in slot.mutators:
            if name.endswith("]"):
                ordinals = set(map(int, name.partition("[")[2][:-1].split(", ")))
                assert ordinals == {i for field, i in found[word] if field == name.partition("[")[0]}
    assert all(not found[word] for word in range(8, 16))


def test_where_the_document_and_the_bits_part():
    base, packed, box, stride, mode, fill, l2, reserved = (slot.differences for slot in MAP.slots())
    assert base == ()
    assert any("global_dim[0] at w4[31:0]" in d for d in packed)
    assert "does not write this word: global_dim" in packed
    assert any("box_dim[0] at w6[63:56]" in d for d in box)
    assert "recorded nowhere: paired-CTA layout: no bits of it were recorded" in box
    assert any("global_strides[0] at w1[63:32]" in d for d in stride)
    assert any("is_im2col at w1[0]" in d for d in mode)
    assert any("interleave at w1[12:11]" in d for d in fill)
    assert any("l2_promotion at w1[18:17]" in d for d in l2)
    assert any("box_dim[1]" in d for d in reserved)


def test_the_documents_own_words_are_kept():
    packed = MAP.slots()[1]
    assert packed.meaning == "Format plus packed dimension lanes"
    assert packed.documented_mutators == ("global_dim",)
    assert [slot.documented_mutators for slot in MAP.slots() if slot.offset not in (0, 8, 24)] == [()] * 5


def test_a_printed_slot_has_it_all():
    text = str(MAP.slots()[3])
    for part in ("+24", "elem_stride_packed", "0x", "holds: global_strides[0] w3[35:32]", "written by: global_stride"):
        assert part in text


# the debug line


def test_the_line_of_the_payload():
    line = MAP.debug_line()
    assert line.startswith("DESC_TMA512: 0x00007f0000000000 ")
    assert line.removeprefix("DESC_TMA512: 0x").split() == [f"{word:016x}" for word in MAP.words[:8]]


@given(parameters())
def test_eight_words_are_enough_for_what_an_encoder_made(p):
    m = p.encode()
    assert TensorMap.from_debug_line(m.debug_line()) == m


@given(raw_maps)
def test_sixteen_words_hold_any_map(data):
    m = TensorMap(data)
    assert TensorMap.from_debug_line(m.debug_line(16)) == m
    assert TensorMap.from_debug_line(m.debug_line(8), template=m) == m
    assert TensorMap.from_debug_line(m.debug_line(4), template=m) == m
    assert bytes(TensorMap.from_debug_line(m.debug_line(8)))[:64] == data[:64]


def test_four_words_name_what_is_missing():
    with pytest.raises(tma.DescriptorError) as caught:
        TensorMap.from_debug_line(MAP.debug_line(4))
    for name in {f.name for f in FIELDS if 4 <= f.word < 8 and "tiled" in f.layouts}:
        assert name in str(caught.value)
    assert "words 4…7 are missing" in str(caught.value)
    assert "channels_per_pixel" not in str(caught.value)


def test_four_words_of_an_im2col_map_name_its_own():
    im2col = tma.Im2col(
        data_type="FLOAT16", global_address=0, global_dim=(64, 56, 8), pixel_box_lower_corner=(0,),
        pixel_box_upper_corner=(0,), channels_per_pixel=64, pixels_per_column=32,
    ).encode()
    with pytest.raises(tma.DescriptorError, match="channels_per_pixel") as caught:
        TensorMap.from_debug_line(im2col.debug_line(4))
    assert "box_dim" not in str(caught.value)


def test_a_line_among_others():
    log = f"launch 3\n  {MAP.debug_line()}  \ndone deadbeef\n"
    assert TensorMap.from_debug_line(log) == MAP


def test_words_with_0x_and_commas():
    words = ", ".join(f"{word:#x}" for word in MAP.words)
    assert TensorMap.from_debug_line(f"DESC_TMA512: {words}") == MAP


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no DESC_TMA512 line"),
        ("DESC_TMA512:", "no DESC_TMA512 line"),
        ("DESC_TMA512: 0x1 2 3", "3 words; it has 4, 8 or 16"),
        ("DESC_TMA512: 0x11112222333344445", "no DESC_TMA512 line"),
    ],
)
def test_lines_that_are_none(text, said):
    with pytest.raises(tma.DescriptorError, match=said):
        TensorMap.from_debug_line(text)


def test_other_counts_cannot_be_printed():
    with pytest.raises(tma.DescriptorError, match="4 words, 8 or 16; 5 were asked for"):
        MAP.debug_line(5)
