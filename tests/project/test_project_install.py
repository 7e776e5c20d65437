"""Installed from a wheel, installed editable, and run from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from readme_blocks import ROOT

PACKAGED = ("cupytma", "kernels", "cli", "pyproject.toml", "README.md", "LICENSE")
# Run in a folder of its own: what is importable, and where it comes from.
PROBE = """
import importlib.util, json, pathlib
import cupytma, cupytma.cli, cupytma.kernels
from cupytma import help, ptx
print(json.dumps({
    "package": cupytma.__file__, "cli": cupytma.cli.__file__, "kernels": cupytma.kernels.__file__,
    "typed": (pathlib.Path(cupytma.__file__).parent / "py.typed").is_file(),
    "sources": sorted(p.name for p in pathlib.Path(cupytma.kernels.__file__).parent.glob("*.cu")),
    "copy": cupytma.kernels.source("copy.cu")[:2],
    "box_bytes": cupytma.Tiled(
        data_type="FLOAT16", global_address=0, global_dim=(64, 64), box_dim=(64, 8)).encode().box_bytes,
    "header": "tensor_load_2d" in ptx.header(target="sm_90a"),
    "how_tos": [topic.title for topic in help.find("kernel-hangs")],
    "strangers": [name for name in ("cli", "kernels", "notebooks") if importlib.util.find_spec(name)],
}))
"""


def _run(*command: object, cwd: Path, **environment: str) -> str:
    """Standard output of a command that must succeed, run without the checkout on the path."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**clean, **environment}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def tree(tmp_path):
    """A copy of what is packaged, so that building leaves nothing in the checkout."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


class Environment:
    """A virtual environment that sees this one's packages, all but cupytma itself."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        scripts = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python, self.command = scripts / "python", scripts / "cupytma"
        where = _run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
        self.site_packages = Path(where.strip())
        shared = folder / "shared"
        shared.mkdir()
        for entry in _installed_here():
            if not (shared / entry.name).exists() and not (self.site_packages / entry.name).exists():
                (shared / entry.name).symlink_to(entry)
        (self.site_packages / "shared.pth").write_text(str(shared))
        self._before = set(os.listdir(self.site_packages))

    def install(self, *arguments: object, cwd: Path) -> set[str]:
        """What an installation adds to site-packages."""
        _run(
            self.python, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", *arguments, cwd=cwd
        )
        return set(os.listdir(self.site_packages)) - self._before - {"__pycache__"}

    def probe(self, cwd: Path) -> dict[str, object]:
        return json.loads(_run(self.python, "-c", PROBE, cwd=cwd))


def _installed_here() -> list[Path]:
    folders = [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    return [
        entry
        for folder in folders if folder.is_dir()
        for entry in folder.iterdir()
        if not entry.name.startswith(("cupytma", "__editable__", "__pycache__", "pip")) and entry.suffix != ".pth"
    ]


@pytest.fixture
def environment(tmp_path):
    if os.name == "nt":
        pytest.skip("links to packages need rights that Windows users lack")
    return Environment(tmp_path / "environment")


@pytest.fixture
def elsewhere(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def _check_probe(found: dict[str, object]) -> None:
    assert found["typed"]
    assert "copy.cu" in found["sources"]
    assert found["copy"] == "//"
    assert found["box_bytes"] == 1024
    assert found["header"]
    assert found["how_tos"] == ["My kernel hangs"]
    assert found["strangers"] == []


def _check_command(environment: Environment, cwd: Path) -> None:
    assert _run(environment.command, "--version", cwd=cwd).startswith("cupytma ")
    assert "On the simulator" in _run(environment.command, "demo", cwd=cwd, CUDA_VISIBLE_DEVICES="")
    assert _run(environment.python, "-m", "cupytma", "--version", cwd=cwd).startswith("cupytma ")


def test_wheel(tree, environment, elsewhere):
    _run(sys.executable, "-m", "build", "--no-isolation", ".", cwd=tree)  # an sdist, and the wheel from it
    (wheel,) = (tree / "dist").glob("*.whl")
    added = environment.install(wheel, cwd=elsewhere)
    assert {name for name in added if not name.endswith(".dist-info")} == {"cupytma"}
    found = environment.probe(elsewhere)
    for part in ("package", "cli", "kernels"):
        assert str(found[part]).startswith(str(environment.site_packages / "cupytma"))
    _check_probe(found)
    _check_command(environment, elsewhere)


def test_editable(tree, environment, elsewhere):
    added = environment.install("--editable", tree, cwd=elsewhere)
    assert all(name.endswith(".dist-info") or name.startswith("__editable__") for name in added)
    found = environment.probe(elsewhere)
    for part, place in (("package", "cupytma"), ("cli", "cli"), ("kernels", "kernels")):
        assert Path(str(found[part])).parent == tree / place
    _check_probe(found)
    _check_command(environment, elsewhere)
    (tree / "cupytma" / "version.py").write_text('__version__ = "9.9.9"\n')
    assert _run(environment.command, "--version", cwd=elsewhere) == "cupytma 9.9.9\n"


def test_checkout_needs_no_installation(tree, elsewhere):
    """With the tree on the path alone, from within it and from outside."""
    assert _run(sys.executable, "-m", "cupytma", "--version", cwd=tree).startswith("cupytma ")
    output = _run(sys.executable, "-m", "cupytma", "demo", cwd=elsewhere, PYTHONPATH=str(tree), CUDA_VISIBLE_DEVICES="")
    assert "On the simulator" in output
