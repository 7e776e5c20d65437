"""Pictures with sliders in notebooks, which are static ones where there can be no sliders."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from html import escape
from typing import Any

from cupytma.errors import CupytmaError, PictureError
from cupytma.view.html import framed, note

STATIC = "CUPYTMA_STATIC_PICTURES"
"""The environment variable that, set to anything but 0, makes every picture a static one."""

_WHERE_WIDGETS_ARE = "(controls, where there are widgets; without them the picture below)"


class Unpictured:
    """What is shown where a choice has no picture: the error, as notebooks and terminals show it."""

    def __init__(self, error: CupytmaError) -> None:
        self.error = error

    def _repr_html_(self) -> str:
        return framed([note(str(self.error), bad=True)])

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


def explore(function: Callable[..., Any], /, **controls: Any) -> Any:
    """A picture with a slider or a list for each argument, in a notebook with ipywidgets; else the picture alone.

    Parameters
    ----------
    function : callable
        Takes the arguments by name, and returns a picture (or anything that a notebook shows).
    **controls
        What each argument may be: ``(first, last)`` or ``(first, last, step)`` for a slider, a list or a dict of names
        to values for a choice, True or False for a box to tick, anything else for an argument that stays as it is. A
        slider starts at the default of the function's argument, if it has one, and otherwise at its first value.

    Returns
    -------
    object
        A widget, stored in a notebook with the picture that it starts with, which is seen where the notebook is read
        without widgets (``nbconvert`` without a network, GitHub, a notebook that is opened again); or, without
        ipywidgets, outside of a notebook, or with the environment variable ``CUPYTMA_STATIC_PICTURES`` set, what the
        function returns for the values that the controls start with.

    Raises
    ------
    PictureError
        If a control offers nothing, or the function has no such argument.

    Examples
    --------
    >>> from cupytma import view
    >>> picture = view.explore(view.swizzle, swizzle=["128B", "64B", "32B"], element_size=[2, 4], rows=(4, 16))
    >>> picture
    <Picture 'Swizzle 128B: 8 rows of 128 bytes'>
    """
    if not callable(function):
        raise PictureError(f"{function!r} is no function; pass one that takes the controls by name")
    parameters = _parameters(function, controls)
    starts = {name: _start(name, control, parameters.get(name)) for name, control in controls.items()}
    widgets = _widgets()
    if widgets is None:
        return function(**starts)
    chosen = {name: _control(widgets, control, starts[name]) for name, control in controls.items()}

    area = widgets.HTML()  # not the Output of `interactive`, which shows nothing that is returned

    def drawn(**values: Any) -> Any:
        try:
            found = function(**values)
        except CupytmaError as error:
            found = Unpictured(error)
        area.value = _kinds(found)["text/html"]
        return found

    widget = widgets.interactive(drawn, **chosen)
    widget.children = (*(child for child in widget.children if child is not widget.out), area)
    return _with_picture(widget, widget.result)


def _with_picture(widget: Any, picture: Any) -> Any:
    """The widget, followed by a static picture that gives way to it where there are widgets.

    Two outputs and not two kinds of one: readers of notebooks prefer a widget to all other kinds, also where they then
    cannot show it.
    """
    mark = f"cupytma-explored-{widget.model_id}"
    widget.add_class(mark)

    def display_both() -> None:
        from IPython.display import display

        display({**widget._repr_mimebundle_(), "text/plain": _WHERE_WIDGETS_ARE}, raw=True)
        display(_still(picture, mark), raw=True)

    widget._ipython_display_ = display_both
    return widget


def _still(picture: Any, mark: str) -> dict[str, str]:
    """A picture by kinds of output; as HTML it is hidden in pages that have an element of a class."""
    found = _kinds(picture)
    hidden = f"<style>body:has(.{mark}) .{mark}-still{{display:none}}</style>"
    return {**found, "text/html": f'{hidden}<div class="{mark}-still">{found["text/html"]}</div>'}


def _kinds(picture: Any) -> dict[str, str]:
    """What a notebook shows of an object, by kinds of output; always with HTML."""
    found = {"text/plain": repr(picture)}
    for kind, name in (("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_")):
        if hasattr(picture, name):
            found[kind] = str(getattr(picture, name)())
    found.setdefault("text/html", found.get("image/svg+xml") or f"<pre>{escape(found['text/plain'])}</pre>")
    return found


def _parameters(function: Callable[..., Any], controls: dict[str, Any]) -> dict[str, inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return {}
    parameters = dict(signature.parameters)
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in controls:
            if name not in parameters:
                raise PictureError(f"the function has no argument {name!r}; it has {', '.join(parameters) or 'none'}")
    return parameters


def _is_range(control: Any) -> bool:
    return isinstance(control, tuple) and len(control) in (2, 3) and all(map(_is_number, control))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _start(name: str, control: Any, parameter: inspect.Parameter | None) -> Any:
    """The value that a control starts with."""
    default = inspect.Parameter.empty if parameter is None else parameter.default
    if _is_range(control):
        first, last = control[:2]
        if first > last or (len(control) == 3 and control[2] <= 0):
            raise PictureError(f"control {name} is {control!r}; it must be (first, last) or (first, last, step)")
        return default if _is_number(default) and first <= default <= last else first
    if isinstance(control, (list, dict)):
        offered = list(control.values() if isinstance(control, dict) else control)
        if not offered:
            raise PictureError(f"control {name} offers nothing to choose from")
        return default if any(default is o or default == o for o in offered) else offered[0]
    return control


def _widgets() -> Any:
    """ipywidgets, in a notebook that can show them; else None."""
    if os.environ.get(STATIC, "0") not in ("", "0"):
        return None
    try:
        import ipywidgets
        from IPython import get_ipython
    except ImportError:
        return None
    shell = get_ipython()
    return ipywidgets if shell is not None and hasattr(shell, "kernel") else None


def _control(widgets: Any, control: Any, start: Any) -> Any:
    """The widget of a control."""
    if _is_range(control):
        whole = all(isinstance(number, int) for number in control)
        slider = widgets.IntSlider if whole else widgets.FloatSlider
        first, last, *step = control
        options = {"step": step[0]} if step else {}
        return slider(value=start, min=first, max=last, continuous_update=False, **options)
    if isinstance(control, dict):
        return widgets.Dropdown(options=list(control.items()), value=start)
    if isinstance(control, list):
        return widgets.Dropdown(options=[(str(value), value) for value in control], value=start)
    return widgets.Checkbox(value=start) if isinstance(control, bool) else widgets.fixed(control)
