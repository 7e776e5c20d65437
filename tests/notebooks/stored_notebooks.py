"""The notebooks, executed: what each cell shows, and how that is stored.

``python tests/notebooks/stored_notebooks.py`` executes all notebooks and stores their outputs; with names, such as
``03_swizzles``, those alone. What is stored is the same on every run and every machine, with a GPU or without:

- widgets are left out, and the pictures that stand in for them stay;
- cells tagged ``measured`` show what a GPU was measured to do, and are stored without outputs;
- no times, versions, process numbers and the like.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from cupytma.view.widgets import STATIC

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MEASURED = "measured"
COMMAND = "python tests/notebooks/stored_notebooks.py"
_WIDGET, _SVG = "application/vnd.jupyter.widget-view+json", "image/svg+xml"
_CELL_SECONDS = 120
# A figure's places depend on matplotlib's version, its words do not.
_FIGURE = re.compile(r'<g id="figure_\d+">')
_WORDS = re.compile(r"<text[^>]*>([^<]*)</text>")
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)  # matplotlib's version
_OWN_LINE = re.compile(r"(?<=[a-z]\.py):\d+(?=\))")  # of a module of the package, which any change of it moves
_CELL_LINE = re.compile(r" \(\d+\.py:\d+\)")  # a line of a cell, whose file's name is the kernel's affair

Notebook = Any


def read(path: Path) -> Notebook:
    """A notebook as it is stored."""
    return nbformat.read(path, as_version=4)


def execute(path: Path) -> Notebook:
    """A notebook with the outputs that it has now, as they would be stored.

    The kernel is a process of this interpreter, and finds the package where this file is.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell raises.
    """
    notebook = read(path)
    environment = os.environ | {STATIC: "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])}
    client = nbclient.NotebookClient(
        notebook, timeout=_CELL_SECONDS, kernel_name="python3", record_timing=False, store_widget_state=False
    )
    client.execute(env=environment, cwd=str(ROOT))
    return tidied(notebook)


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def tidied(notebook: Notebook) -> Notebook:
    """The notebook without what is another on every run or machine."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
        }
    )
    for cell in code_cells(notebook):
        if MEASURED in cell.metadata.get("tags", ()):
            cell.outputs = []
        for output in cell.outputs:
            data = output.get("data", {})
            data.pop(_WIDGET, None)
            if _SVG in data:
                data[_SVG] = _CELL_LINE.sub("", _METADATA.sub("", data[_SVG]))
        cell.outputs = _joined(cell.outputs)
    return notebook


def code_cells(notebook: Notebook) -> list[Any]:
    """The cells that are executed."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook: Notebook) -> list[tuple[str, list[Any]]]:
    """What each code cell shows, with its source: streams by name, and displayed data by type."""
    return [(cell.source, [_comparable(output) for output in cell.outputs]) for cell in code_cells(notebook)]


def store(path: Path) -> None:
    """Execute a notebook and write it with its outputs."""
    nbformat.write(execute(path), path)


def _joined(outputs: list[Any]) -> list[Any]:
    """What a cell prints comes in pieces, cut by chance."""
    found: list[Any] = []
    for output in outputs:
        last = found[-1] if found else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            found.append(output)
    return found


def _comparable(output: Any) -> Any:
    if output.output_type == "stream":
        return output.name, output.text
    return {kind: _words(data) if kind == _SVG else data for kind, data in output.data.items()}


def _words(svg: str) -> Any:
    return _WORDS.findall(svg) if _FIGURE.search(svg) else _OWN_LINE.sub("", svg)


def main(names: list[str]) -> None:
    """Store the notebooks whose names begin with one of those given, or all."""
    for path in NOTEBOOKS:
        if not names or path.stem.startswith(tuple(names)):
            start = time.perf_counter()
            store(path)
            print(f"{path.stem:32} {time.perf_counter() - start:6.1f} s {path.stat().st_size:>9,} B", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
