"""Every notebook runs, and shows what its stored outputs show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def printed(notebook: dict) -> list[str]:
    """What each cell prints."""
    return [
        "".join(text for output in cell.get("outputs", ()) for text in output.get("text", ()))
        for cell in notebook["cells"]
    ]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert printed(json.loads(nbformat.writes(notebook))) == printed(stored)
