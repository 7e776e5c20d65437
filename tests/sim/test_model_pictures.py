"""The holes of a tiling drawn: the text by heart, the SVG by what stands in it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma.errors import SimulationError
from cupytma.sim import model
from cupytma.view import holes_svg, holes_text
from cupytma.view.drawing import GROUND

SVG = "{http://www.w3.org/2000/svg}"
tilings = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(1, 8)), min_size=1, max_size=3).map(
    lambda sizes: model.correctness(*zip(*sizes, strict=True))
)
drawn = settings(max_examples=150, deadline=None, derandomize=True)


def test_a_picture_shows_elements_and_both_kinds_of_holes() -> None:
    assert model.correctness(8, 4, 3).picture() == (
        "dimension 0: extent 8, box 4, element stride 3: 2 boxes of 3 tiles of 2 slots\n"
        "position |  0  1  2  3 |  4  5  6  7 ‖  8  9\n"
        "x = 0    |  #  .  .  # |             ‖\n"
        "x = 1    |  .  #  .  . |  !          ‖\n"
        "x = 2    |  .  .  #  . |     !       ‖\n"
        "x = 4    |             |  #  .  .  # ‖\n"
        "x = 5    |             |  .  #  .  . ‖  0\n"
        "x = 6    |             |  .  .  #  . ‖     0\n"
        "\n"
        "# element   ! hole that holds data   0 hole that holds the fill   . element of other tiles\n"
        "| start of a box   ‖ end of the tensor   … left out"
    )


def test_a_picture_of_a_store_shows_what_is_written_past_the_tensor() -> None:
    picture = model.correctness((14, 2), (16, 4), data_type="UINT16", op="store").picture()
    assert "x =  0   |  #  #  #  #  #  #  #  #  #  #  #  #  #  # ‖  !  !" in picture
    assert "x = 0    |  #  # ‖  -  -" in picture
    assert "! hole that is written   - hole that is not written" in picture


@drawn
@given(tilings)
def test_a_picture_wide_enough_shows_every_slot_as_what_it_is(c: model.Correctness) -> None:
    parts = holes_text(c, 10_000).split("\n\n")
    for d, part in zip(c.dimensions, parts, strict=False):
        lines = part.splitlines()[2:]
        if "…" in lines:
            continue
        marks = "".join(line.split("|", 1)[1] for line in lines)
        assert marks.count("#") == d.extent
        assert marks.count("!") == d.unfilled_holes
        assert marks.count("0") == d.slots - d.inside
        assert len(lines) == d.boxes * d.element_stride


@drawn
@given(tilings, st.integers(40, 120))
def test_lines_keep_to_the_width(c: model.Correctness, width: int) -> None:
    *pictures, _ = holes_text(c, width).split("\n\n")
    for picture in pictures:
        heading, *lines = picture.splitlines()
        assert heading.startswith("dimension ")
        assert len(lines) <= 27
        # The numbers here are short enough; long ones may take more.
        assert max(map(len, lines)) <= max(width, 75)


def test_what_does_not_fit_is_left_out_and_the_holes_stay() -> None:
    c = model.correctness((10**9, 100), (256, 16), (7, 3))
    first, second, _ = c.picture().split("\n\n")
    for picture in (first, second):
        assert "…" in picture
        assert "#" in picture
        assert "!" in picture
        assert "0 " in picture
        assert len(picture.splitlines()) <= 27
    assert max(map(len, second.splitlines())) <= 100


@pytest.mark.parametrize("width", [39, 0, -1, None, "80", 80.0, float("nan")])
def test_a_width_that_is_none_is_refused(width: object) -> None:
    with pytest.raises(SimulationError, match="width is"):
        model.correctness(8, 4).picture(width)  # type: ignore[arg-type]


@drawn
@given(tilings)
def test_an_svg_is_one_well_formed_element_with_the_verdict_and_every_mark(c: model.Correctness) -> None:
    root = ElementTree.fromstring(c.svg())
    assert root.tag == f"{SVG}svg"
    assert c.verdict in root.find(f"{SVG}title").text  # type: ignore[union-attr, operator]
    assert root.find(f"{SVG}desc").text == " ".join(c.reasons)  # type: ignore[union-attr]
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert sum(text.startswith("dimension ") for text in texts) == len(c.dimensions)  # type: ignore[union-attr]
    if "…" in texts:
        return
    rects = [element.get("class") for element in root.iter(f"{SVG}rect")]
    # The legend has one of each.
    assert rects.count("element") == sum(d.extent for d in c.dimensions) + 1
    assert rects.count("unfilled") == sum(d.unfilled_holes for d in c.dimensions) + 1
    assert rects.count("filled") == sum(d.slots - d.inside for d in c.dimensions) + 1


def test_an_svg_stays_in_its_frame_and_small() -> None:
    for c in (model.correctness((10**9, 100), (256, 16), (7, 3)), model.correctness((40, 7), (6, 9), (4, 5))):
        svg = holes_svg(c)
        root = ElementTree.fromstring(svg)
        width, height = int(root.get("width")), int(root.get("height"))  # type: ignore[arg-type]
        for element in root.iter():
            x, y = element.get("x", element.get("x2", "0")), element.get("y", element.get("y2", "0"))
            assert 0 <= int(x) <= width
            assert 0 <= int(y) <= height
        assert width < 1200
        assert len(svg) < 100_000


def test_an_svg_needs_nothing_from_elsewhere_and_takes_the_pages_colours() -> None:
    svg = model.correctness(8, 4, 3).svg()
    assert model.correctness(8, 4, 3)._repr_svg_() == svg
    assert not re.search(r"<script|<image|href|url\(|@import| on\w+=", svg)
    assert "currentColor" in svg
    assert "#000" not in svg
    # A ground of its own where it is no part of a page alone.
    assert "background" not in svg.replace(GROUND, "")
