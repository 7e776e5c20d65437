"""What holds of every picture: it is well-formed, small, the same every time, and at home in any page."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import Drawing

import cupytma as tma
from cupytma import sim, view
from cupytma.errors import PictureError
from cupytma.sim import examples
from cupytma.view import drawing

_FLOAT16 = {"data_type": "FLOAT16", "global_address": 0x7F0000000000}
MATRIX = tma.Tiled(**_FLOAT16, global_dim=(1024, 512), box_dim=(64, 32), swizzle="128B")
IMAGES = tma.Im2col(
    **_FLOAT16, global_dim=(64, 56, 56, 8), pixel_box_lower_corner=(-1, -1), pixel_box_upper_corner=(-1, -1),
    channels_per_pixel=64, pixels_per_column=256,
)  # fmt: skip
WIDE = tma.Im2colWide(
    **_FLOAT16, global_dim=(64, 12, 10, 4), pixel_box_lower_corner_width=-1, pixel_box_upper_corner_width=-1,
    channels_per_pixel=64, pixels_per_column=8, swizzle="128B",
)  # fmt: skip
LONG = "a name <with> \"marks\" & 'quotes' " + "that goes on " * 20


def _named_program():
    program = sim.Program(LONG)

    @program.role(name=LONG)
    def worker(t):
        yield t.syncthreads().named(LONG)

    return program


PICTURES = {
    "bit fields": lambda: view.bit_fields(),
    "bit fields of a map": lambda: view.bit_fields(MATRIX.encode()),
    "bit fields of images": lambda: view.bit_fields(IMAGES),
    "tile": lambda: view.tile(MATRIX, (1000, -8)),
    "tile far away": lambda: view.tile(MATRIX, (2**31 - 64, -(2**31))),
    "tile of a large tensor": lambda: view.tile(
        tma.Tiled(data_type="UINT8", global_address=0, global_dim=(2**32, 2**32 - 1), global_strides=(2**32,),
                  box_dim=(256, 256), element_strides=(1, 3)),
        (2**30, 2**30),
    ),
    "tile of rank 5": lambda: view.tile(
        tma.Tiled(**_FLOAT16, global_dim=(64, 4, 4, 4, 4), box_dim=(64, 2, 2, 2, 2)), (0, 3, -1, 3, 9)
    ),
    "tile of one row": lambda: view.tile(tma.Tiled(**_FLOAT16, global_dim=(10**9,), box_dim=(256,)), (8,)),
    "gathered rows": lambda: view.tile(
        tma.Tiled(**_FLOAT16, global_dim=(64, 10**6), box_dim=(64, 1)), (0, 5, 999_999, 0, -7), mode="tile::gather4"
    ),
    "walk": lambda: view.im2col(IMAGES, (0, 20, 54, 2), (1, 2)),
    "largest walk": lambda: view.im2col(
        tma.Im2col(data_type="UINT8", global_address=0, global_dim=(16, 32, 32, 4), pixel_box_lower_corner=(-2, -2),
                   pixel_box_upper_corner=(-2, -2), channels_per_pixel=16, pixels_per_column=1024)
    ),
    "walk over many images": lambda: view.im2col(
        tma.Im2col(data_type="UINT8", global_address=0, global_dim=(16, 5, 100), pixel_box_lower_corner=(-2,),
                   pixel_box_upper_corner=(-2,), channels_per_pixel=16, pixels_per_column=200)
    ),
    "walk along W": lambda: view.im2col(WIDE, (0, 2, 3, 1), (2, 1)),
    "rows of a swizzle": lambda: view.swizzle("128B", 2, 10**6, base=384),
    **{f"swizzle {s}": lambda s=s: view.swizzle(s) for s in tma.Swizzle},
    **{f"timeline of {name}": lambda make=make: view.timeline(make()) for name, make in examples.EXAMPLES.items()},
    "timeline of a hang": lambda: view.timeline(examples.prefetch_pipeline().without("announce")),
    "timeline of races": lambda: view.timeline(examples.prefetch_pipeline().without("wait for the load")),
    "long timeline": lambda: view.timeline(examples.matrix_multiply(stages=4, depth=150)),
    "timeline with long names": lambda: view.timeline(_named_program()),
}  # fmt: skip
each_picture = pytest.mark.parametrize("make", PICTURES.values(), ids=PICTURES)


@each_picture
def test_a_picture_is_small_and_the_same_every_time(make):
    picture = make()
    assert len(picture.svg.encode()) < 150_000
    assert make().svg == picture.svg


@each_picture
def test_a_picture_is_one_element_that_needs_nothing_and_clashes_with_nothing(make):
    picture = make()
    root = ElementTree.fromstring(picture.svg)
    assert root.find("{http://www.w3.org/2000/svg}title").text == picture.title
    for element in root.iter():
        assert element.tag.split("}")[1] in {"svg", "title", "desc", "style", "rect", "path", "text"}
        assert not set(element.attrib) & {"id", "style", "href"}
    assert not re.search(r"url\(|@import|<script", picture.svg)
    style = root.find("{http://www.w3.org/2000/svg}style").text
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", re.sub(r"@media[^{]*\{(.*)\}\n", r"\1", style))
    assert selectors
    assert all(s.strip().startswith((".cupytma-picture", "svg:root")) for s in selectors)


@each_picture
def test_everything_lies_in_the_frame_of_a_notebook(make):
    drawing = Drawing(make().svg)
    left, top, width, height = map(float, drawing.root.get("viewBox").split())
    assert width == float(drawing.root.get("width")) <= 900
    assert height == float(drawing.root.get("height"))
    for shape in drawing.rects:
        assert left <= shape.x <= shape.x + shape.width <= left + width
        assert top <= shape.y <= shape.y + shape.height <= top + height
    for path in drawing.root.iter("{http://www.w3.org/2000/svg}path"):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d"))]
        assert all(left <= x <= left + width for x in numbers[::2])
        assert all(top <= y <= top + height for y in numbers[1::2])
    for text in drawing.texts:
        start, end = text.reach
        assert left <= start
        assert end <= left + width
        assert top < text.y <= top + height


@each_picture
def test_texts_that_stand_in_a_line_do_not_overlap(make):
    lines: dict[float, list] = {}
    for text in Drawing(make().svg).texts:
        lines.setdefault(text.y, []).append(text)
    for line in lines.values():
        line.sort(key=lambda text: text.reach)
        for one, other in pairwise(line):
            assert one.reach[1] <= other.reach[0] + 0.5, (one, other)


@given(st.text(alphabet="aT7 ×", max_size=120), st.sampled_from(["", "small", "heading middle"]))
def test_a_width_is_the_exact_sum_over_its_letters_rounded_once(text, kind):
    exact = sum(Fraction(0.66 if letter in "T7" else 0.55) for letter in text)
    size = {"": 12, "small": 10.5, "heading middle": 13}[kind]
    assert drawing.text_width(text, kind) == size * float(exact)


def test_text_is_escaped_and_cut_and_whole_in_its_tip():
    picture = view.timeline(_named_program())
    assert "<with>" not in picture.svg
    assert "…" in picture.svg
    assert Drawing(picture.svg).root.find("{http://www.w3.org/2000/svg}title").text == f"Timeline of {LONG}"


def test_colours_are_those_of_the_page_or_told_apart_by_the_colour_blind():
    # Okabe and Ito, "Color Universal Design", 2008.
    assert set(drawing.COLOURS) <= {"#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}
    svg = view.tile(MATRIX).svg
    used = set(re.findall(r"#[0-9a-f]{3,6}", svg)) - set(drawing.COLOURS)
    ground = svg[svg.index("svg:root") :]
    assert all(colour in ground for colour in used)
    assert "prefers-color-scheme:dark" in ground
    assert ".cupytma-picture text{fill:currentColor}" in svg


# Of documents: white and GitHub's; of pages: Material's slate and JupyterLab's; each with the text that stands on it.
GROUNDS = {"#ffffff": "#1f2328", "#0d1117": "#e6e6e6", "#1e2129": "#e6e6e6", "#111111": "#ffffff"}


def contrast(one, other):
    """Of two colours, by WCAG 2."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (*one, *other)]
    high, low = sorted((np.dot((0.2126, 0.7152, 0.0722), parts[i : i + 3]) for i in (0, 3)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def channels(colour):
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


@pytest.mark.parametrize(("ground", "ink"), GROUNDS.items())
def test_text_is_read_on_every_tint_and_ground(ground, ink):
    svg = view.tile(MATRIX).svg
    ground, ink = channels(ground), channels(ink)
    alpha = float(re.search(r"\.tint\{fill-opacity:([\d.]+)", svg)[1])
    faint = float(re.search(r"\.faint\{opacity:([\d.]+)", svg)[1])
    for colour in re.findall(r"\.c\d\{fill:(#\w+)", svg):
        assert contrast(ink, alpha * channels(colour) + (1 - alpha) * ground) >= 4.5, colour
    assert contrast(faint * ink + (1 - faint) * ground, ground) >= 4.5


def test_a_document_has_a_ground_of_its_own_in_each_scheme():
    svg = view.tile(MATRIX).svg
    grounds = dict(re.findall(r"svg:root\{background:(#\w+);color:(#\w+)\}", svg))
    assert grounds == {"#fff": "#1f2328", "#0d1117": "#e6e6e6"}


def test_a_picture_is_saved_and_shown(tmp_path):
    picture = view.swizzle("64B")
    picture.save(tmp_path / "swizzle.svg")
    assert (tmp_path / "swizzle.svg").read_text(encoding="utf-8") == picture.svg == picture._repr_svg_() == str(picture)
    assert repr(picture) == "<Picture 'Swizzle 64B: 8 rows of 64 bytes'>"
    with pytest.raises(PictureError, match="path is None"):
        picture.save(None)
    with pytest.raises(FileNotFoundError):
        picture.save(tmp_path / "nowhere" / "swizzle.svg")


@pytest.mark.parametrize("function", [view.tile, view.im2col, view.bit_fields, view.timeline])
@pytest.mark.parametrize("subject", ["no map", 3, np.zeros((4, 4)), b"\0" * 128, object(), float("nan")])
def test_what_is_no_subject_is_refused(function, subject):
    with pytest.raises(PictureError, match=type(subject).__name__):
        function(subject)


def test_every_name_is_there_and_loaded_when_it_is_used():
    for name in view.__all__:
        assert getattr(view, name) is not None
        assert name in dir(view)
    assert tma.view is view
    with pytest.raises(AttributeError, match="no attribute 'picture'"):
        view.picture  # noqa: B018
