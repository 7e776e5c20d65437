"""Every notebook runs, checks itself, and shows what its stored outputs show."""

from __future__ import annotations

import ast
import json
import re
from copy import deepcopy
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")

import stored_notebooks  # noqa: E402
from stored_notebooks import NOTEBOOKS  # noqa: E402

MOST_CELLS, MOST_BYTES = 25, 200_000
# Addresses of this process, folders, times and versions: another on each run or machine.
UNSTABLE = re.compile(
    r"0x(?:5|7f)[0-9a-f]{10}\b|/(?:tmp|home|root|usr)/|ipykernel|\d\d:\d\d:\d\d|matplotlib v", re.IGNORECASE
)
PLOTS = re.compile(r"view\.(roofline|pipeline_curve)\(")
# Without a GPU; what stands under a condition is indented.
COMPILES = re.compile(r'"[^ "][^"]*(tma\.compile|check\.check_cuda)\(')
# Where the examples take their tensors to lie, and where programs do.
CHOSEN_ADDRESSES = re.compile(r"0x7f0000[0-9a-f]{6}\b")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_notebooks_are_numbered_without_a_gap() -> None:
    assert [path.stem[:3] for path in NOTEBOOKS] == [f"{number:02}_" for number in range(1, len(NOTEBOOKS) + 1)]
    assert len(NOTEBOOKS) >= 9


@each_notebook
def test_a_notebook_shows_what_is_stored(path: Path) -> None:
    if PLOTS.search(path.read_text(encoding="utf-8")):
        pytest.importorskip("matplotlib", reason="shows a plot, which needs matplotlib")
    if COMPILES.search(path.read_text(encoding="utf-8")):
        pytest.importorskip("cuda.bindings.nvrtc", reason="compiles, which needs cuda-python and NVRTC")
    stored = stored_notebooks.shown(stored_notebooks.read(path))
    found = stored_notebooks.shown(stored_notebooks.execute(path))
    for (source, now), (_, before) in zip(found, stored, strict=True):
        assert now == before, f"{path.name} shows something else; if rightly so: {stored_notebooks.COMMAND}\n{source}"


@each_notebook
def test_what_is_stored_is_small_and_the_same_everywhere(path: Path) -> None:
    notebook = stored_notebooks.read(path)
    assert path.stat().st_size <= MOST_BYTES
    assert len(notebook.cells) <= MOST_CELLS
    assert notebook == stored_notebooks.tidied(deepcopy(notebook)), f"not stored by {stored_notebooks.COMMAND}"
    for _, outputs in stored_notebooks.shown(notebook):
        text = CHOSEN_ADDRESSES.sub("", json.dumps(outputs, ensure_ascii=False))
        assert not UNSTABLE.search(text), UNSTABLE.search(text)
        assert all("stderr" not in output for output in outputs)


@each_notebook
def test_a_notebook_begins_with_a_question_and_ends_with_an_exercise(path: Path) -> None:
    cells = stored_notebooks.read(path).cells
    assert re.search(r"\*\*[^*]+\?\*\*", cells[0].source)
    *_, exercise = (number for number, cell in enumerate(cells) if cell.cell_type == "markdown")
    assert "## Exercise" in cells[exercise].source
    (solution,) = (cell for cell in cells[exercise:] if "solution" in cell.metadata.get("tags", ()))
    assert solution.metadata.jupyter.source_hidden
    assert "assert" in cells[-1].source


@each_notebook
def test_an_exercise_judges_what_the_solution_gives(path: Path) -> None:
    *_, solution, judge = stored_notebooks.code_cells(stored_notebooks.read(path))
    assert "solution" in solution.metadata.tags
    assigned = {
        node.name if isinstance(node, ast.FunctionDef) else node.id
        for node in ast.walk(ast.parse(solution.source))
        if isinstance(node, ast.FunctionDef) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    assert assigned & {node.id for node in ast.walk(ast.parse(judge.source)) if isinstance(node, ast.Name)}


def test_another_output_is_noticed() -> None:
    notebook = stored_notebooks.read(NOTEBOOKS[0])
    changed = deepcopy(notebook)
    printed = next(
        output for cell in stored_notebooks.code_cells(changed) for output in cell.outputs if "text" in output
    )
    printed.text = printed.text.replace("512 bytes", "511 bytes")
    assert stored_notebooks.shown(changed) != stored_notebooks.shown(notebook)


def test_a_wrong_notebook_does_not_run_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / NOTEBOOKS[0].name
    wrong = NOTEBOOKS[0].read_text(encoding="utf-8").replace("start = (48, 30)", "start = (32, 30)")
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="assert"):
        stored_notebooks.execute(path)
