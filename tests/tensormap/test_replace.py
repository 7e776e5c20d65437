"""tensormap.replace on bytes: against recordings of an H100, and what the checked forms refuse."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from descriptor_strategies import addresses, im2col, parameters, raw_maps, strides, tiled
from hypothesis import given
from hypothesis import strategies as st

import cupytma as tma
from cupytma.tensormap import MUTATORS, TensorMap, rebind_steps

RECORDINGS = Path(__file__).parents[1] / "golden" / "replacements.npz"
MAP = tma.Tiled(
    data_type="BFLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), global_strides=(2048,),
    box_dim=(64, 32), swizzle="128B", l2_promotion="128B",
).encode()
TF32 = MAP.replace(box_dim={0: 32}).replace_raw("elemtype", 11)
IM2COL = tma.Im2col(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(64, 56, 56, 8), pixel_box_lower_corner=(-1, -1),
    pixel_box_upper_corner=(1, 1), channels_per_pixel=64, pixels_per_column=32, swizzle="128B",
).encode()
ZEROS, ONES = TensorMap(bytes(128)), TensorMap(b"\xff" * 128)


def payload(tensor_map):
    """What the hardware reads."""
    return bytes(tensor_map)[:64]


# one instruction


def test_every_recording_of_the_hardware():
    with np.load(RECORDINGS) as file:
        rows, fields = file["rows"], file["fields"]
    wrong = []
    for row in rows:
        field, ordinal = str(fields[row["field"]]), int(row["ord"])  # immediates were recorded as their own ordinal
        before = TensorMap.from_bytes(row["before"])
        if bytes(before.replace_raw(field, row["value"], ordinal=ordinal)) != row["after"].tobytes():
            wrong.append((field, ordinal, int(row["value"])))
    assert len(rows) == 1770
    assert not wrong


def test_the_fields_are_those_of_the_instruction():
    with np.load(RECORDINGS) as file:
        assert set(MUTATORS) == set(file["fields"])


REGISTER_FIELDS = [name for name, mutator in MUTATORS.items() if not mutator.choices]


@given(raw_maps, st.sampled_from(REGISTER_FIELDS), st.integers(-(2**63), 2**64 - 1), st.integers(0, 4))
def test_only_the_field_changes_and_only_in_the_payload(data, field, value, ordinal):
    mutator = MUTATORS[field]
    ordinal = ordinal if mutator.ordinals else 0
    before = TensorMap(data)
    after = before.replace_raw(field, value, ordinal)
    assert bytes(before) == data
    written = [0] * 16
    for place in mutator.places(ordinal):
        written[place.word] |= place.mask
    for old, new, mask in zip(before.words, after.words, written, strict=True):
        assert (old ^ new) & ~mask == 0
    assert written[8:] == [0] * 8


@given(raw_maps, st.sampled_from(REGISTER_FIELDS), st.integers(0, 2**64 - 1))
def test_operands_lose_what_their_register_does_not_hold(data, field, value):
    bits = MUTATORS[field].operand_bits
    m = TensorMap(data)
    assert m.replace_raw(field, value) == m.replace_raw(field, value % 2**bits) == m.replace_raw(field, value - 2**bits)


@pytest.mark.parametrize(
    ("field", "value", "ordinal", "parameter", "held"),
    [
        ("global_address", 0x7F0000001000, 0, "global_address", 0x7F0000001000),
        ("rank", 0, 0, "rank", 1),
        ("box_dim", 16, 1, "box_dim", (64, 16)),
        ("box_dim", 0, 1, "box_dim", (64, 256)),
        ("box_dim", 256, 0, "box_dim", (256, 32)),
        ("global_dim", 2**32, 1, "global_dim", (1024, 2**32)),
        ("global_dim", 0, 0, "global_dim", (2**32, 512)),
        ("global_stride", 4096, 0, "global_strides", (4096,)),
        ("global_stride", 4096 + 15, 0, "global_strides", (4096,)),
        ("global_stride", 2**40 + 64, 0, "global_strides", (64,)),
        ("element_stride", 8, 1, "element_strides", (1, 8)),
        ("element_stride", 9, 1, "element_strides", (1, 1)),
        ("elemtype", 8, 0, "data_type", tma.DataType.FLOAT32_FTZ),
        ("elemtype", 9, 0, "data_type", tma.DataType.FLOAT64),
        ("elemtype", 12, 0, "data_type", tma.DataType.TFLOAT32_FTZ),
        ("interleave_layout", 2, 0, "interleave", tma.Interleave.B32),
        ("swizzle_mode", 1, 0, "swizzle", tma.Swizzle.B32),
        ("fill_mode", 1, 0, "oob_fill", tma.OobFill.NAN_REQUEST_ZERO_FMA),
    ],
)
def test_what_is_read_back(field, value, ordinal, parameter, held):
    assert getattr(MAP.replace_raw(field, value, ordinal).decode(), parameter) == held


def test_types_of_newer_targets():
    types = [MAP.replace_raw("elemtype", n, target="sm_100a").decode().data_type for n in (13, 14, 15)]
    assert [str(t) for t in types] == ["16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B"]


def test_swizzle_atoms_of_newer_targets():
    atoms = [MAP.replace_raw("swizzle_atomicity", n, target="sm_100a").decode().swizzle for n in range(4)]
    assert [str(s) for s in atoms] == ["128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]


def test_atomicity_clears_the_bit_above_it():
    assert ONES.replace_raw("swizzle_atomicity", 2, target="sm_100a").words[1] == ONES.words[1] & ~(7 << 19) | 2 << 19


def test_swizzle_mode_has_its_high_bit_apart():
    assert ONES.replace_raw("swizzle_mode", 1).words[1] == ONES.words[1] & ~(1 << 22 | 3 << 13) | 1 << 13
    assert ZEROS.replace_raw("swizzle_mode", 4, target="sm_103a").words[1] == 1 << 22


def test_no_type_clears_the_tf32_flag():
    flagged = MAP.replace_raw("elemtype", 11)
    assert flagged.decode().data_type == tma.DataType.TFLOAT32
    assert flagged.replace_raw("elemtype", 7).decode().data_type == tma.DataType.TFLOAT32


@pytest.mark.parametrize("value", [0, 16, 4096, 2**20, 2**36, 2**40 - 16, 2**64 - 1])
def test_a_fifth_stride_overwrites_the_high_bits_of_all(value):
    """As the assembler expands it: one 32-bit store of the low part, its bits 19:16 replaced by the high part."""
    low, high = value >> 4 & 0xFFFFFFFF, value >> 36 & 0xF
    expected = (low & ~0xF0000 | high << 16) << 32
    for template in (ZEROS, ONES, MAP):
        after = template.replace_raw("global_stride", value, ordinal=4)
        assert after.words[3] == template.words[3] & 0xFFFFFFFF | expected
        assert after.words[:3] + after.words[4:] == template.words[:3] + template.words[4:]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("box_size", 1), tma.EmissionError, "no field 'box_size'; it has global_address, rank, box_dim"),
        (("box_dim", 1, 5), tma.EmissionError, "box_dim: ordinal 5 is outside 0…4"),
        (("box_dim", 1, -1), tma.EmissionError, "ordinal -1 is outside 0…4"),
        (("elemtype", 16, 0, "sm_100a"), tma.EmissionError, "elemtype: immediate 16 is outside 0…15 on sm_100a"),
        (("elemtype", 16), tma.EmissionError, "immediate 16 is outside 0…12 on sm_90a"),
        (("elemtype", 13), tma.TargetError, "sm_90a has no the packed element types"),
        (("elemtype", -1), tma.EmissionError, "immediate -1 is outside"),
        (("interleave_layout", 3), tma.EmissionError, "interleave_layout: immediate 3 is outside 0…2"),
        (("swizzle_mode", 4), tma.TargetError, "targets that do: sm_103a"),
        (("swizzle_mode", 5, 0, "sm_103a"), tma.EmissionError, "immediate 5 is outside 0…4 on sm_103a"),
        (("swizzle_atomicity", 0), tma.TargetError, "32 or 64 byte atom"),
        (("swizzle_atomicity", 4, 0, "sm_100a"), tma.EmissionError, "immediate 4 is outside 0…3"),
        (("fill_mode", 2), tma.EmissionError, "fill_mode: immediate 2 is outside 0…1"),
        (("rank", 1, 0, "sm_100"), tma.TargetError, "sm_100 has no tensormap.replace"),
        (("rank", 1.5), tma.EmissionError, "1.5 is no integer"),
    ],
)
def test_what_the_assembler_refuses(arguments, error, said):
    with pytest.raises(error, match=said.replace(".", r"\.")):
        MAP.replace_raw(*arguments)


# checked replacement


def test_replace_is_a_fresh_encoding_but_for_words_8_and_9():
    changes = {
        "global_address": 0x7F0000004000, "global_dim": {1: 300}, "global_strides": (4096,), "box_dim": {0: 32, 1: 8},
        "element_strides": {1: 2}, "data_type": "FLOAT16", "swizzle": "64B", "oob_fill": "NAN_REQUEST_ZERO_FMA",
    }
    after = MAP.replace(**changes)
    fresh = dataclasses.replace(
        MAP.decode(), **{**changes, "global_dim": (1024, 300), "box_dim": (32, 8), "element_strides": (1, 2)}
    ).encode()
    assert payload(after) == payload(fresh)
    assert bytes(after)[64:] == bytes(MAP)[64:] != bytes(fresh)[64:]
    assert after.box_bytes == fresh.box_bytes == 64 * 4
    assert after.shared_alignment == 512
    assert after.decode() == TensorMap(bytes(after)).decode() == fresh.decode()
    assert MAP.decode().global_dim == (1024, 512)


@given(tiled(), st.data())
def test_any_legal_tensor_can_be_put_in_place(p, data):
    other = data.draw(tiled(ranks=(p.rank,)))
    changes = {
        "global_address": other.global_address, "global_dim": other.global_dim,
        "global_strides": dict(enumerate(other.global_strides)), "element_strides": other.element_strides,
    }
    changed = dataclasses.replace(p, **{**changes, "global_strides": other.global_strides})
    assert payload(p.encode().replace(**changes)) == payload(changed.encode())


@given(tiled(), st.integers(1, 5))
def test_rank_changes_leave_nothing_behind(p, rank):
    after = p.encode().replace(rank=rank, **({"interleave": "NONE"} if rank < 3 else {}))
    kept = min(rank, p.rank)
    assert after.decode().global_dim == (*p.global_dim[:kept], *(1,) * (rank - kept))
    assert after.decode().box_dim == (*p.box_dim[:kept], *(1,) * (rank - kept))
    assert after.reserved_bits == ()
    assert payload(after) == payload(after.decode().encode())


def test_a_dimension_more():
    after = MAP.replace(rank=3, global_dim={2: 7}, global_strides={1: 1 << 20})
    assert after.decode().global_dim == (1024, 512, 7)
    assert after.decode().global_strides == (2048, 1 << 20)


def test_atoms_are_written_where_they_change_and_the_target_has_them():
    atom = MAP.replace(swizzle="128B_ATOM_64B", target="sm_100a")
    assert str(atom.decode().swizzle) == "128B_ATOM_64B"
    assert str(atom.replace(swizzle="128B", target="sm_100a").decode().swizzle) == "128B"
    with pytest.raises(tma.TargetError, match="atom"):
        atom.replace(swizzle="128B")
    defective = TensorMap((int.from_bytes(bytes(MAP), "little") | 1 << 64 + 21).to_bytes(128, "little"))
    assert defective.replace(swizzle="64B", box_dim={0: 32}, target="sm_100a").words[1] >> 21 & 1


def test_im2col_keeps_what_it_is():
    after = IM2COL.replace(global_address=4096, global_dim={3: 9})
    assert after.decode() == dataclasses.replace(IM2COL.decode(), global_address=4096, global_dim=(64, 56, 56, 9))


def test_a_wide_map_keeps_its_mode():
    wide = tma.Im2colWide(
        data_type="FLOAT16", global_address=0, global_dim=(64, 56, 56, 8), pixel_box_lower_corner_width=0,
        pixel_box_upper_corner_width=0, channels_per_pixel=64, pixels_per_column=32, mode="W128",
    ).encode()
    for moved in (wide.replace(global_address=4096), wide.with_address(4096), wide.with_address(64).with_address(4096)):
        assert moved.decode() == dataclasses.replace(wide.decode(), global_address=4096)
        assert moved.box_bytes == wide.box_bytes == 128 * 128


def test_all_broken_rules_are_named_at_once():
    with pytest.raises(tma.DescriptorError) as caught:
        MAP.replace(global_address=8, global_dim={0: 0}, global_strides=(2040,), box_dim={1: 257})
    assert {v.rule for v in caught.value.violations} >= {
        "address-alignment", "dim-range", "stride-alignment", "box-range"
    }


@pytest.mark.parametrize(
    ("tensor_map", "changes", "said"),
    [
        (MAP, {"l2_promotion": "NONE"}, "tensormap.replace has no field for l2_promotion"),
        (MAP, {"boxes": 1}, "no tensor map has a parameter boxes"),
        (MAP, {"channels_per_pixel": 64}, "channels_per_pixel"),
        (IM2COL, {"channels_per_pixel": 64}, "tensormap.replace has no field for channels_per_pixel"),
        (IM2COL, {"box_dim": {0: 64}}, "an im2col tensor map has no box_dim"),
        (IM2COL, {"rank": 3}, "the rank of an im2col tensor map decides how its corners are packed"),
        (MAP, {"rank": 6}, "rank 6 is outside 1…5"),
        (MAP, {"rank": "2"}, "rank = '2' is no integer"),
        (MAP, {"rank": 3, "global_dim": {2: 7}}, "dimension 2 is new and has extent 7: give global_strides[1]"),
        (MAP, {"global_dim": (1, 2, 3)}, "global_dim has 3 entries, and rank 2 needs 2; pass rank= as well"),
        (MAP, {"global_dim": {2: 7}}, "global_dim has no entry 2: rank 2 has 2 of them"),
        (MAP, {"global_strides": {1: 64}}, "global_strides has no entry 1: rank 2 has 1 of them"),
        (MAP, {"box_dim": 64}, "box_dim = 64: give all entries, or {index: value}"),
        (MAP, {"box_dim": {0: "64"}}, "box_dim"),
        (MAP, {"swizzle": "96B"}, "Swizzle has no member '96B'"),
        (MAP, {"swizzle": "128B_ATOM_32B"}, "128B_ATOM_32B"),
        (TF32, {"data_type": "FLOAT32"}, "cannot change data_type from TFLOAT32 to FLOAT32"),
        (TF32, {"data_type": "FLOAT16"}, "w1[10:7] = 6 with w1[16] = 1 is no element"),
    ],
)
def test_refusals_say_why(tensor_map, changes, said):
    with pytest.raises(tma.DescriptorError) as caught:
        tensor_map.replace(**changes)
    assert said in str(caught.value)


def test_undecodable_maps_are_refused_by_what_they_hold():
    for change in (lambda: ONES.replace(global_address=0), lambda: ONES.with_address(0)):
        with pytest.raises(tma.DescriptorError, match=r"w1\[6:4\]"):
            change()


# another address


@given(parameters(), addresses)
def test_with_address_is_a_fresh_encoding(p, address):
    m = p.encode()
    moved = dataclasses.replace(p, global_address=address)
    assert m.with_address(address) == moved.encode()
    assert m.with_address(0).with_address(np.uint64(address)).decode() == moved
    assert bytes(m) == bytes(p.encode())


@pytest.mark.parametrize(
    ("tensor_map", "address", "rule"),
    [
        (MAP, 8, "address-alignment"),
        (MAP, -16, "address-range"),
        (MAP, 2**57, "address-range"),
        (MAP, 2**64, "address-range"),
        (MAP, 2**70 + 1, "address-alignment"),
        (IM2COL.replace(interleave="32B", swizzle="32B"), 16, "address-alignment"),
    ],
)
def test_with_address_refuses_by_rule(tensor_map, address, rule):
    with pytest.raises(tma.DescriptorError) as caught:
        tensor_map.with_address(address)
    assert rule in {v.rule for v in caught.value.violations}
    assert all(v.rule.startswith("address") for v in caught.value.violations)


def test_with_address_takes_integers_alone():
    with pytest.raises(tma.DescriptorError, match=r"global_address = 1\.5"):
        MAP.with_address(1.5)


# rebinding


def test_steps_are_in_the_order_of_the_founding_document():
    assert rebind_steps("%rd1", ("%r1", "%r2", "%r3"), ("%rd2", "%rd3")) == (
        ("global_address", 0, "%rd1"),
        ("global_dim", 0, "%r1"), ("global_dim", 1, "%r2"), ("global_dim", 2, "%r3"),
        ("global_stride", 0, "%rd2"), ("global_stride", 1, "%rd3"),
    )


@pytest.mark.parametrize("rank", range(1, 6))
def test_a_rebind_takes_twice_the_rank_steps(rank):
    assert len(rebind_steps(0, (1,) * rank, (16,) * (rank - 1))) == 2 * rank


@pytest.mark.parametrize(("extents", "strides"), [((), ()), ((1,) * 6, (16,) * 5), ((1, 2), ()), ((1, 2), (16, 16))])
def test_lengths_that_fit_no_rank(extents, strides):
    with pytest.raises(tma.DescriptorError, match="a tensor map has 1 to 5 extents and one stride less"):
        rebind_steps(0, extents, strides)


@given(tiled(), st.data())
def test_rebind_is_the_steps_and_a_fresh_encoding(p, data):
    address = data.draw(addresses)
    extents = data.draw(st.tuples(*(st.integers(1, 2**32),) * p.rank))
    steps_of_strides = data.draw(st.tuples(*(strides,) * (p.rank - 1)))
    m = p.encode()
    stepped = m
    for field, ordinal, value in rebind_steps(address, extents, steps_of_strides):
        stepped = stepped.replace_raw(field, value, ordinal)
    moved = dataclasses.replace(p, global_address=address, global_dim=extents, global_strides=steps_of_strides)
    assert m.rebind(address, extents, steps_of_strides) == stepped == moved.encode()


def test_a_stride_that_is_no_multiple_of_16_is_refused_where_it_can_be_seen():
    """K = 511 in a 16-bit type: raw, the hardware drops the low bits without a word."""
    with pytest.raises(tma.DescriptorError) as caught:
        MAP.rebind(0x7F0000000000, (511, 512), (1022,))
    assert [v.rule for v in caught.value.violations] == ["stride-alignment"]
    assert "1022 B (of dimension 1) is 14 mod 16" in str(caught.value)
    assert MAP.replace_raw("global_stride", 1022).decode().global_strides == (1008,)


@pytest.mark.parametrize(
    ("tensor_map", "extents", "strides", "changes", "said"),
    [
        (IM2COL, (64, 56, 56, 8), (128, 7168, 401408), {}, "this is an im2col tensor map, which is host-born"),
        (MAP, (64, 8, 8), (128, 1024), {}, "3 extents were given for rank 2, which a rebind keeps"),
        (MAP, (64, 8), (128,), {"swizzle": "64B", "box_dim": {0: 32}}, "swizzle, box_dim cannot be changed"),
        (MAP, (64, 8), (128,), {"oob_fill": "NONE"}, "oob_fill cannot be changed: what has them is host-born"),
        (MAP, (64, 8), (128,), {"data_type": "FLOAT16"}, "data_type cannot be changed"),
    ],
)
def test_what_is_host_born_is_refused_unless_asked_for(tensor_map, extents, strides, changes, said):
    with pytest.raises(tma.DescriptorError) as caught:
        tensor_map.rebind(0, extents, strides, **changes)
    assert said in str(caught.value)
    assert "pass general=True" in str(caught.value)
    after = tensor_map.rebind(0, extents, strides, general=True, **changes)
    assert after.decode().global_dim == extents
    assert after.decode().global_strides == strides


# the drivers' defect


def test_an_ordinal_of_a_field_that_has_none_does_not_matter():
    before = TensorMap(bytes(range(128)))
    for field, mutator in MUTATORS.items():
        if not mutator.ordinals:
            given = {"target": "sm_100a", "value": 1}
            assert before.replace_raw(field, ordinal=3, **given) == before.replace_raw(field, **given)


@given(raw_maps)
def test_the_workaround_clears_one_bit(data):
    m = TensorMap(data)
    after = m.apply_workaround()
    assert after.words[1] == m.words[1] & ~(1 << 21)
    assert after.words[:1] + after.words[2:] == m.words[:1] + m.words[2:]
    assert bytes(m) == data


@given(parameters())
def test_the_workaround_leaves_maps_made_here_alone(p):
    assert p.encode().apply_workaround() == p.encode()


@given(im2col(), addresses)
def test_nothing_changes_a_map_in_place(p, address):
    m = p.encode()
    before = bytes(m), hash(m), repr(m)
    m.with_address(address)
    m.replace(global_address=address)
    m.replace_raw("global_address", address)
    m.apply_workaround()
    assert (bytes(m), hash(m), repr(m)) == before
