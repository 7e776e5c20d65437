"""What the package loads, and that its examples are right."""

from __future__ import annotations

import doctest
import subprocess
import sys

import cupytma.view.widgets

_HEAVY = {"numpy", "matplotlib", "ipywidgets", "cupy", "cuda", "IPython"}


def _loaded(code: str) -> set[str]:
    """The heavy modules that some code loads, beyond what starting Python does."""
    show = "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    report = f"import sys\nbefore = set(sys.modules)\n{code}\n{show}"
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(result.stdout.split()) & _HEAVY


def test_a_card_loads_nothing_heavy():
    assert not _loaded("from cupytma import Tiled, view\nview.card(Tiled(data_type=0, global_address=0, "
                       "global_dim=(16,), box_dim=(16,)).encode())")  # fmt: skip


def test_pictures_load_numpy_alone():
    names = "bit_fields, tile, swizzle, im2col, timeline, explore, roofline, pipeline_curve"
    assert _loaded(f"from cupytma.view import {names}\nswizzle('128B')") == {"numpy"}


def test_modules_that_are_imported_first_hide_no_function():
    code = """
import importlib, pkgutil, types
from cupytma import view
for found in pkgutil.iter_modules(view.__path__):
    if found.name != "figure":  # which needs matplotlib
        importlib.import_module(f"cupytma.view.{found.name}")
names = [name for name in view.__all__ if isinstance(getattr(view, name), types.ModuleType)]
assert not names, names
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_examples_in_docstrings_are_right():
    failed, tried = doctest.testmod(cupytma.view.widgets)
    assert tried
    assert not failed
