"""What pyproject.toml declares."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re

import pytest
from readme_blocks import ROOT

import cupytma


@pytest.fixture(scope="module")
def project():
    tomllib = pytest.importorskip("tomllib", reason="reading TOML needs Python 3.11")
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def test_runtime_needs_four_packages(project):
    assert _names(project["project"]["dependencies"]) == {"numpy", "click", "rich", "ml-dtypes"}


def test_extras(project):
    extras = project["project"]["optional-dependencies"]
    assert {"cuda12", "cuda13", "test", "docs", "notebooks"} <= set(extras)
    assert set(extras["docs"]) < set(extras["test"])
    both = {"cuda-python", "cuda-pathfinder", "platformdirs"}
    assert _names(extras["cuda12"]) == {"cupy-cuda12x", "nvidia-cuda-nvrtc-cu12"} | both
    assert _names(extras["cuda13"]) == {"cupy-cuda13x", "nvidia-cuda-nvrtc"} | both
    assert _names(extras["test"]) >= {"pytest", "pytest-xdist", "hypothesis", "ruff", "mypy"}


def test_python_and_licence(project):
    assert project["project"]["requires-python"] == ">=3.10"
    assert project["project"]["license"] == {"text": "MIT"}
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")


def test_the_command(project):
    assert project["project"]["scripts"] == {"cupytma": "cupytma.cli:main"}


def test_version_is_one(project):
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cupytma.version.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", cupytma.__version__)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # in a source tree that is not installed
        assert importlib.metadata.version("cupytma") == cupytma.__version__


def test_every_package_is_listed(project):
    listed = set(project["tool"]["setuptools"]["packages"])
    folders = {path.parent for path in (ROOT / "cupytma").rglob("__init__.py")}
    assert listed == {".".join(path.relative_to(ROOT).parts) for path in folders} | {"cupytma.kernels", "cupytma.cli"}
