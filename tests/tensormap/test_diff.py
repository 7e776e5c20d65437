"""What differs between two tensor maps."""

from __future__ import annotations

from descriptor_strategies import parameters, raw_maps
from hypothesis import given
from hypothesis import strategies as st

import cupytma as tma
from cupytma.tensormap import FieldDifference, TensorMap

MAP = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), global_strides=(2048,),
    box_dim=(64, 32), swizzle="128B",
).encode()


def with_bit(tensor_map, word, bit):
    return TensorMap((int.from_bytes(bytes(tensor_map), "little") ^ 1 << 64 * word + bit).to_bytes(128, "little"))


def test_fields_with_both_values():
    other = MAP.replace(global_dim={1: 300}, swizzle="64B", box_dim={0: 32})
    assert [str(d) for d in MAP.diff(other)] == [
        "swizzle_mode (w1[14:13]): 3 (128B) → 2 (64B)",
        "global_dim[1] (w4[63:32]): 512 → 300",
        "box_dim[0] (w6[63:56]): 64 → 32",
    ]
    assert MAP.diff(other)[1] == FieldDifference("global_dim[1]", "w4[63:32]", 512, 300)


def test_addresses_are_shown_in_hexadecimal():
    assert str(MAP.diff(MAP.with_address(16))[0]) == "global_address (w0[63:0]): 0x7f0000000000 → 0x10"


def test_recorded_words_count():
    stale = MAP.replace(box_dim={1: 8})
    assert [d.label for d in stale.diff(stale.decode().encode())] == ["recorded_box_bytes"]
    assert [d.label for d in stale.diff(TensorMap.from_bytes(bytes(stale)).decode().encode())] == ["recorded_box_bytes"]


def test_reserved_bits_are_named_one_by_one():
    other = with_bit(with_bit(MAP, 1, 22), 12, 3)
    assert MAP.diff(other) == (
        FieldDifference("reserved", "w1[22]", 0, 1), FieldDifference("reserved", "w12[3]", 0, 1)
    )
    assert [d.value for d in other.diff(MAP)] == [1, 1]


def test_another_rank_has_other_fields():
    other = MAP.replace(rank=3, global_dim={2: 7}, global_strides={1: 64})
    found = {d.label: (d.value, d.other) for d in MAP.diff(other)}
    assert found["rank"] == (2, 3)
    assert found["global_dim[2]"] == (None, 7)
    assert found["global_strides[1]"] == (None, 64)
    assert "global_dim[2] (w5[31:0]): absent → 7" in map(str, MAP.diff(other))


def test_another_kind_has_other_fields():
    im2col = tma.Im2col(
        data_type="FLOAT16", global_address=0, global_dim=(64, 56, 8), pixel_box_lower_corner=(0,),
        pixel_box_upper_corner=(0,), channels_per_pixel=64, pixels_per_column=32,
    ).encode()
    found = {d.label: (d.value, d.other) for d in MAP.diff(im2col)}
    assert found["is_im2col"] == (0, 1)
    assert found["box_dim[1]"] == (32, None)
    assert found["pixels_per_column"] == (None, 32)


def test_where_a_rank_makes_no_sense_words_are_compared():
    odd = with_bit(with_bit(MAP, 1, 6), 1, 5)
    assert [str(d) for d in MAP.diff(odd)] == ["word (w1[63:0]): 0x8000006310 → 0x8000006370"]


@given(parameters(), parameters())
def test_empty_exactly_if_equal(p, q):
    a, b = p.encode(), q.encode()
    assert a.diff(TensorMap(bytes(a))) == ()
    assert (a.diff(b) == ()) is (a == b)


@given(raw_maps, st.integers(0, 1023))
def test_any_bit_is_noticed(data, bit):
    a = TensorMap(data)
    b = with_bit(a, bit // 64, bit % 64)
    assert a.diff(b)
    assert not a.diff(a)


@given(parameters(), parameters())
def test_the_other_way_round_is_the_mirror(p, q):
    there = {(d.label, d.bits, d.value, d.other) for d in p.encode().diff(q.encode())}
    back = {(d.label, d.bits, d.other, d.value) for d in q.encode().diff(p.encode())}
    assert there == back
