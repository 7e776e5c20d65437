"""Pictures with controls, and without."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import cupytma as tma
from cupytma import view
from cupytma.errors import PictureError
from cupytma.view.widgets import STATIC, Unpictured

ROOT = Path(__file__).resolve().parents[2]
MATRIX = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(16, 8), box_dim=(8, 4))


def tile_at(x=4, y=0):
    return view.tile(MATRIX, (x, y))


@pytest.fixture
def notebook(monkeypatch):
    """As in a notebook that has ipywidgets."""
    widgets = pytest.importorskip("ipywidgets")
    ipython = pytest.importorskip("IPython")
    monkeypatch.delenv(STATIC, raising=False)
    monkeypatch.setattr(ipython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    return widgets


def test_without_a_notebook_the_picture_is_that_of_the_values_that_the_controls_start_with():
    assert view.explore(tile_at, x=(-8, 16, 4), y=(-4, 8)).svg == tile_at(4, 0).svg
    assert view.explore(tile_at, x=(8, 16, 4)).svg == tile_at(8, 0).svg  # its default is no choice
    assert view.explore(tile_at, y=[-2, 0, 2]).svg == tile_at(4, 0).svg
    assert view.explore(lambda x: tile_at(x), x=(-8, 16)).svg == tile_at(-8).svg
    assert view.explore(lambda s: view.swizzle(s), s={"wide": "128B", "narrow": "32B"}).svg == view.swizzle("128B").svg
    assert view.explore(tile_at).svg == tile_at().svg
    assert view.explore(lambda **all_of: sorted(all_of.items()), flag=True, name="as it is") == [
        ("flag", True), ("name", "as it is"),
    ]  # fmt: skip


def test_without_ipywidgets_the_picture_is_static(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert view.explore(tile_at, x=(-8, 16, 4)).svg == tile_at().svg


def test_a_variable_of_the_environment_makes_pictures_static(notebook, monkeypatch):
    monkeypatch.setenv(STATIC, "1")
    assert view.explore(tile_at, x=(-8, 16, 4)).svg == tile_at().svg
    monkeypatch.setenv(STATIC, "0")
    assert not isinstance(view.explore(tile_at, x=(-8, 16, 4)), view.Picture)


def test_in_a_notebook_there_is_a_widget_for_each_control(notebook):
    given = {}

    def function(x=4, s="64B", flag=True, part=0.5, kept=None):
        given.update(x=x, s=s, flag=flag, part=part, kept=kept)
        return tile_at(x)

    shown = view.explore(function, x=(-8, 16, 4), s=["128B", "64B"], flag=True, part=(0.0, 1.0), kept=MATRIX)
    slider, choice, box, part = (w for w in shown.children if not isinstance(w, notebook.HTML))
    assert (type(slider), slider.min, slider.max, slider.step, slider.value) == (notebook.IntSlider, -8, 16, 4, 4)
    assert (type(choice), choice.value) == (notebook.Dropdown, "64B")
    assert choice.options == (("128B", "128B"), ("64B", "64B"))
    assert (type(box), box.value) == (notebook.Checkbox, True)
    assert (type(part), part.min, part.max, part.value) == (notebook.FloatSlider, 0.0, 1.0, 0.5)
    shown.update()
    assert given == {"x": 4, "s": "64B", "flag": True, "part": 0.5, "kept": MATRIX}
    assert shown.result.svg == shown.children[-1].value == tile_at(4).svg
    slider.value = 8
    assert shown.result.svg == shown.children[-1].value == tile_at(8).svg


def stored(widget):
    """What a cell that ends with a widget stores, output by output."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    with capture_output() as captured:
        assert widget._ipython_display_() is None
    return [output.data for output in captured.outputs]


def test_a_widget_is_followed_by_the_picture_that_it_starts_with(notebook):
    shown = view.explore(tile_at, x=(-8, 16, 4))
    widget, still = stored(shown)
    assert widget["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.model_id
    assert still["image/svg+xml"] == tile_at(4).svg
    assert tile_at(4).svg in still["text/html"]
    (_, still) = stored(view.explore(lambda x: tile_at(x), x=[3, 4]))
    assert "16 bytes" in still["text/html"]
    (_, still) = stored(view.explore(lambda x: [x, "<&>"], x=[3, 4]))
    assert "<pre>[3, &#x27;&lt;&amp;&gt;&#x27;]</pre>" in still["text/html"]


def test_the_picture_that_follows_is_hidden_where_the_widget_is_seen(notebook):
    shown = view.explore(tile_at, x=(-8, 16, 4))
    _, still = stored(shown)
    (mark,) = (name for name in shown._dom_classes if name.startswith("cupytma-"))
    assert f"body:has(.{mark}) .{mark}-still{{display:none}}" in still["text/html"]
    assert f'<div class="{mark}-still">' in still["text/html"]
    assert f'class="{mark}"' not in still["text/html"]
    assert mark not in stored(view.explore(tile_at, x=(-8, 16, 4)))[1]["text/html"]  # each widget has its own


@pytest.mark.parametrize("state", [True, False])
def test_a_notebook_with_sliders_has_its_picture_where_there_is_no_widget_manager(state):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    nbconvert = pytest.importorskip("nbconvert")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(
        "from cupytma import view\nview.explore(view.swizzle, swizzle=['64B', '32B'])"
    )]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != STATIC}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    nbclient.NotebookClient(book, kernel_name="python3", store_widget_state=state).execute(env=environment)
    assert ("widgets" in book.metadata) == state
    page, _ = nbconvert.HTMLExporter().from_notebook_node(book)
    body = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "Swizzle 64B: 8 rows of 64 bytes</title>" in body


def test_in_a_notebook_a_choice_without_a_picture_says_why(notebook):
    shown = view.explore(tile_at, x=(0, 16))
    shown.children[0].value = 3
    shown.update()
    assert isinstance(shown.result, Unpictured)
    assert "16 bytes" in shown.result._repr_html_()
    assert repr(shown.result).startswith("IllegalInstruction")


@pytest.mark.parametrize(
    ("controls", "message"),
    [({"z": (0, 4)}, "no argument 'z'; it has x, y"), ({"x": (8, 0)}, "control x is"),
     ({"x": (0, 8, 0)}, "control x is"), ({"x": (0, 8, -4)}, "control x is"),
     ({"x": []}, "control x offers nothing"), ({"x": {}}, "control x offers nothing")],
)  # fmt: skip
def test_controls_that_offer_nothing_are_refused(controls, message):
    with pytest.raises(PictureError, match=message):
        view.explore(tile_at, **controls)


@pytest.mark.parametrize("function", [None, "tile", 3])
def test_what_is_no_function_is_refused(function):
    with pytest.raises(PictureError, match="no function"):
        view.explore(function)
