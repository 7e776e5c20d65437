"""The bit-field map against the bytes themselves."""

from __future__ import annotations

import pytest
from reading import Drawing

import cupytma as tma
from cupytma import view
from cupytma.errors import DescriptorError, PictureError

_COMMON = {"data_type": "FLOAT16", "global_address": 0x7F0000000000, "swizzle": "128B"}
MAPS = {
    "matrix": tma.Tiled(**_COMMON, global_dim=(1024, 512), box_dim=(64, 32)),
    "rank 5": tma.Tiled(**_COMMON, global_dim=(64, 3, 5, 7, 9), box_dim=(64, 1, 2, 3, 4),
                        element_strides=(1, 2, 1, 3, 1)),
    "images": tma.Im2col(**_COMMON, global_dim=(64, 56, 56, 8), pixel_box_lower_corner=(-1, -2),
                         pixel_box_upper_corner=(3, -4), channels_per_pixel=64, pixels_per_column=32),
}  # fmt: skip
_PLACE = r"(w(\d+)\[(\d+)(?::(\d+))?\]) (\S+) = (\S+)(?: \((?:\w+)\))? \(.*\)"


def _places(drawing: Drawing):
    """Of every field that is drawn: word, highest and lowest bit, label, value, and its shape."""
    for rect, match in drawing.tipped(_PLACE):
        _, word, high, low, label, value = match.groups()
        yield int(word), int(high), int(low or high), label, int(value, 0), rect


@pytest.mark.parametrize("parameters", MAPS.values(), ids=MAPS)
def test_every_field_is_drawn_with_its_value(parameters):
    given = parameters.encode()
    drawn = list(_places(Drawing(view.bit_fields(given).svg)))
    assert {(label, value) for *_, label, value, _ in drawn} == {(f.label, f.value) for f in given.fields()}
    places = {f"w{word}[{high}:{low}]" if high > low else f"w{word}[{low}]" for word, high, low, *_ in drawn}
    assert places == {place for f in given.fields() for place in f.bits.split(" + ")}


@pytest.mark.parametrize("parameters", MAPS.values(), ids=MAPS)
def test_shapes_stand_where_the_bits_are_and_cover_every_bit_that_is_set(parameters):
    given = parameters.encode()
    drawn = list(_places(Drawing(view.bit_fields(given).svg)))
    (word0,) = (rect for word, *_, rect in drawn if word == 0)
    bit = (word0.width + 1) / 64
    right = word0.x + word0.width
    for word, high, low, _, _, rect in drawn:
        assert rect.width == pytest.approx((high - low + 1) * bit - 1, abs=0.1)
        assert rect.x + rect.width == pytest.approx(right - low * bit, abs=0.1)
        assert [other for other, *_, r in drawn if r.y == rect.y] == [word] * sum(r.y == rect.y for *_, r in drawn)
    covered = [0] * 16
    for word, high, low, *_ in drawn:
        covered[word] |= ((2 << high) - 1) & ~((1 << low) - 1)
    assert all(value & ~covered[word] == 0 for word, value in enumerate(given.words))


def test_without_a_map_the_fields_of_a_layout_are_drawn():
    drawing = Drawing(view.bit_fields().svg)
    tips = [rect.tip for rect in drawing.rects]
    assert "w6[63:56] box_dim[0] (minus 1)" in tips
    assert "w3[47:44] global_strides[3] (bytes >> 36)" in tips
    assert not any("=" in tip for tip in tips)
    images = [rect.tip for rect in Drawing(view.bit_fields(layout="im2col", rank=3).svg).rects]
    assert "w7[41:32] pixels_per_column (minus 1)" in images
    assert not any("box_dim" in tip for tip in images)


def test_bits_that_hold_nothing_known_are_shown():
    number = int.from_bytes(bytes(MAPS["matrix"].encode()), "little") | 1 << 64 + 30 | 1 << 64 * 12 + 5
    drawing = Drawing(view.bit_fields(tma.TensorMap(number.to_bytes(128, "little"))).svg)
    assert [m[1] for _, m in drawing.tipped(r"(\S+) is set and holds nothing known")] == ["w1[30]", "w12[5]"]
    assert "w13 to w15: nothing, all bits 0" in drawing.words
    assert "holds nothing known" not in view.bit_fields(MAPS["matrix"]).svg


def test_bytes_without_a_rank_are_refused_as_the_decoder_does():
    with pytest.raises(DescriptorError, match="rank"):
        view.bit_fields(tma.TensorMap(b"\xff" * 128))


@pytest.mark.parametrize(
    ("layout", "rank", "named"),
    [("round", 2, "round"), (None, 2, "None"), ("tiled", 6, "6"), ("im2col", 2, "2"), ("tiled", True, "True"),
     ("tiled", 2.5, "2.5"), ("tiled", "2", "'2'"), ("tiled", [], "[]"), ([], 2, "[]")],
)  # fmt: skip
def test_fields_of_no_layout_are_refused(layout, rank, named):
    with pytest.raises(PictureError) as error:
        view.bit_fields(layout=layout, rank=rank)
    assert named in str(error.value)
