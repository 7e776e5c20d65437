"""The card of a tensor map in notebooks."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import cupytma as tma
from cupytma.tensormap import TensorMap
from cupytma.view import card

MAP = tma.Tiled(
    data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512), global_strides=(2048,),
    box_dim=(64, 32), swizzle="128B",
).encode()
VOID = {"br", "hr", "img", "input", "link", "meta"}


class Reader(HTMLParser):
    """The text of a page, and whether every element is closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.tags = [], [], set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def read(html):
    reader = Reader(html)
    assert not reader.open
    return reader


def test_it_says_what_the_map_says():
    text = " ".join(read(MAP._repr_html_()).text)
    for part in ("tiled, rank 2, FLOAT16", "1024, 512", "0x7f0000000000", "128B", "4096 bytes", "1024 bytes"):
        assert part in text
    for field in MAP.fields():
        assert field.label in text
        assert field.bits in text
    for word in MAP.words:
        assert f"{word:016x}" in text


def test_it_needs_nothing_from_elsewhere_and_runs_nothing():
    html = MAP._repr_html_()
    assert not read(html).tags & {"script", "img", "link", "iframe", "object"}
    assert "url(" not in html
    assert "@import" not in html


def test_colours_follow_the_page():
    html = MAP._repr_html_()
    assert "color:inherit" in html
    assert "background:none" in html
    assert "#fff" not in html
    assert "#000" not in html


def test_warnings_and_broken_rules_are_notes():
    overlapping = MAP.replace(global_strides=(16,))
    text = " ".join(read(overlapping._repr_html_()).text)
    for warning in overlapping.decode().warnings():
        assert warning.message in text
    assert "address-alignment" in " ".join(read(MAP.replace_raw("global_address", 8)._repr_html_()).text)
    assert 'class="note' not in MAP._repr_html_()


def test_rules_of_a_target():
    atom = MAP.replace(swizzle="128B_ATOM_32B", target="sm_100a")
    assert 'class="note bad"' in card(atom)
    assert 'class="note bad"' not in card(atom, "sm_100a")


@pytest.mark.parametrize("data", [b"\xff" * 128, bytes(MAP.replace_raw("elemtype", 11).replace_raw("elemtype", 6))])
def test_undecodable_maps_have_a_card_too(data):
    text = " ".join(read(TensorMap(data)._repr_html_()).text)
    assert "undecodable" in text
    assert "w1[" in text
    assert f"{TensorMap(data).words[0]:016x}" in text


def test_reserved_bits_are_shown():
    odd = TensorMap((int.from_bytes(bytes(MAP), "little") | 1 << 64 + 30).to_bytes(128, "little"))
    assert "w1[30]" in " ".join(read(odd._repr_html_()).text)


def test_im2col_has_its_own_fields():
    m = tma.Im2col(
        data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(64, 56, 56, 8), pixel_box_lower_corner=(-1, -1),
        pixel_box_upper_corner=(1, 1), channels_per_pixel=64, pixels_per_column=32,
    ).encode()
    text = " ".join(read(m._repr_html_()).text)
    assert "im2col, rank 4" in text
    assert "pixel_box_lower_corner" in text
    assert "-1, -1" in text
