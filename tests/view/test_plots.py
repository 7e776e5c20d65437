"""The plots: what is in them, and what is refused; drawing needs matplotlib."""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree

import pytest

from cupytma import view
from cupytma.errors import MissingLibraryError, PictureError
from cupytma.view.plots import CARDS, Card, RooflinePoint, modelled_bandwidth

POINTS = {"matmul": (2e12, 1e9, 2e-3), "copy": (1e6, 4e9, 1.4e-3)}
CURVE = {"measured": [(4e6, 2.5e12), (2e6, 1.6e12)]}


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib")


def _lines(plot):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in plot.axes[0].get_lines()}


def test_points_lie_at_their_intensity_and_rate_and_are_named(matplotlib):
    lines = _lines(view.roofline(POINTS))
    assert lines["matmul: 1 PFLOP/s"] == ([2000.0], [1e15])
    assert lines["copy: 714 MFLOP/s"] == ([2.5e-4], [pytest.approx(1e6 / 1.4e-3)])
    same = view.roofline([RooflinePoint(name, *numbers) for name, numbers in POINTS.items()])
    assert _lines(same) == lines
    assert {text.get_text() for text in same.axes[0].get_legend().get_texts()} == set(lines)


@pytest.mark.parametrize("card", CARDS)
def test_roofs_are_those_of_the_card(matplotlib, card):
    lines = _lines(view.roofline({}, card=card))
    (memory,) = (line for label, line in lines.items() if label.startswith("memory"))
    assert [y / x for x, y in zip(*memory, strict=True)] == pytest.approx([CARDS[card].bandwidth] * 2)
    for name, peak in CARDS[card].peaks.items():
        (roof,) = (line for label, line in lines.items() if label.startswith(f"{name}: "))
        assert roof[1] == [peak, peak]
        assert roof[0][0] * CARDS[card].bandwidth == pytest.approx(peak)  # where memory and arithmetic meet


def test_roofs_of_ones_own(matplotlib):
    own = view.roofline(POINTS, card=None, bandwidth=2e12, peaks={"FP64": 60e12})
    mixed = view.roofline(POINTS, bandwidth=2e12, peaks={"FP64": 60e12}, title="Mine")
    card = view.roofline(POINTS, card=Card("mine", 2e12, {"FP64": 60e12}))
    assert _lines(own) == _lines(mixed) == _lines(card)
    assert "FP64: 60 TFLOP/s" in _lines(own)
    assert mixed.axes[0].get_title("left") == "Mine"
    assert card.axes[0].get_title("left") == "Roofline, mine"


def test_a_curve_shows_the_model_the_stages_and_what_was_measured(matplotlib):
    plot = view.pipeline_curve(
        CURVE, latency=1e-6, bandwidth=3e12, tile_bytes=16384, blocks=100, stages=[1, 2, 4], title="Mine"
    )
    lines = _lines(plot)
    assert lines["measured"] == ([2e6, 4e6], [1.6e12, 2.5e12])
    xs, ys = lines["model: 1 µs, 3 TB/s"]
    assert (xs[:2], ys) == ([0, pytest.approx(3e6)], [0, 3e12, 3e12])
    marks = {text.get_text(): text.xy for text in plot.axes[0].texts}
    assert marks == {
        "1": (1638400, pytest.approx(1.6384e12)), "2": (3276800, 3e12), "4": (6553600, 3e12),
    }  # fmt: skip
    assert plot.axes[0].get_title("left") == "Mine"


def test_the_model_is_littles_law_up_to_what_memory_gives():
    assert modelled_bandwidth(1e6, latency=1e-6, bandwidth=3e12) == pytest.approx(1e12)
    assert modelled_bandwidth(1e9, latency=1e-6, bandwidth=3e12) == 3e12


@pytest.mark.parametrize("make", [lambda: view.roofline(POINTS), lambda: view.pipeline_curve(CURVE, tile_bytes=8192)])
def test_a_plot_is_one_small_svg_with_text_that_is_text_the_same_every_time(matplotlib, make, tmp_path):
    svg = make()._repr_svg_()
    assert make()._repr_svg_() == svg
    assert len(svg) < 150_000
    root = ElementTree.fromstring(svg)
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert make().axes[0].get_xlabel() in texts
    assert float(root.get("width").removesuffix("pt")) * 96 / 72 <= 900
    make().save(tmp_path / "plot.svg")
    make().save(tmp_path / "plot.png")
    assert svg in (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("make", [lambda: view.roofline(POINTS), lambda: view.pipeline_curve(CURVE, tile_bytes=8192)])
def test_what_is_no_datum_has_the_pages_colours(matplotlib, make):
    from cupytma.view.drawing import COLOURS, GROUND

    svg = make()._repr_svg_()
    assert svg.count(GROUND) == 1
    root = ElementTree.fromstring(svg.replace(GROUND, ""))
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert all("fill: currentColor" in part.get("style") for part in (list(text) or [text]))
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg.replace(GROUND, ""))) <= set(COLOURS)


def test_drawing_leaves_the_users_settings_alone(matplotlib):
    before = dict(matplotlib.rcParams)
    view.roofline(POINTS)._repr_svg_()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("points", "message"),
    [({"a": (1, 2)}, "points must be"), ({"a": 3}, "points must be"), (5, "points must be"),
     ([("a", 1, 2, 3)], "no RooflinePoint"),
     ({"a": (0, 1, 1)}, "operations of 'a' is 0"), ({"a": (1, -1, 1)}, "bytes of 'a' is -1"),
     ({"a": (1, 1, float("nan"))}, "seconds of 'a' is nan"), ({"a": (1, 1, None)}, "seconds of 'a' is None"),
     ({"a": ("1", 1, 1)}, "operations of 'a' is '1'"), ({"a": (True, 1, 1)}, "operations of 'a' is True")],
)  # fmt: skip
def test_points_that_are_none_are_refused(points, message):
    with pytest.raises(PictureError, match=message):
        view.roofline(points)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"card": "A100"}, "no card 'A100'; known are H100 SXM"), ({"card": []}, "no card"),
     ({"card": None}, "bandwidth is None"),
     ({"card": None, "bandwidth": 1e12}, "no roof is given"), ({"peaks": {}}, "no roof is given"),
     ({"peaks": {"FP8": float("inf")}}, "peak of FP8 is inf"), ({"bandwidth": 0}, "bandwidth is 0")],
)  # fmt: skip
def test_roofs_that_are_none_are_refused(options, message):
    with pytest.raises(PictureError, match=message):
        view.roofline(POINTS, **options)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [((), {"latency": 0}, "latency is 0"), ((), {"bandwidth": "fast"}, "bandwidth is 'fast'"),
     ((), {"tile_bytes": -1}, "tile_bytes is -1"), ((), {"tile_bytes": 64, "stages": [0]}, "stages is 0"),
     ((), {"tile_bytes": 64, "blocks": None}, "blocks is None"), ((), {"tile_bytes": 64, "stages": 4}, "stages is 4"),
     (({"a": []},), {}, "'a' has no points"), (({"a": [1, 2]},), {}, "'a' must be pairs"), ((7,), {}, "measured is 7"),
     (({"a": [(1, float("nan"))]},), {}, "bandwidth of 'a' is nan")],
)  # fmt: skip
def test_curves_that_are_none_are_refused(arguments, options, message):
    with pytest.raises(PictureError, match=message):
        view.pipeline_curve(*arguments, **options)


@pytest.mark.parametrize("draw", [lambda: view.roofline(POINTS), lambda: view.pipeline_curve(CURVE)])
def test_without_matplotlib_it_is_said_what_to_do(draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "cupytma.view.figure", raising=False)
    monkeypatch.delattr("cupytma.view.figure", raising=False)
    with pytest.raises(MissingLibraryError, match="pip install matplotlib") as error:
        draw()
    assert isinstance(error.value, ImportError)
