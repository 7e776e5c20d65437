"""A GPU that is the simulator, for processes that the tests start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def on_simulated_gpu() -> Run:
    """Run ``cupytma record`` where CuPy is the stand-in of the folder ``device``."""

    def run(*arguments: str, defect: str = "") -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, (Path(__file__).parent / "device", ROOT)))
        environment = {**os.environ, "PYTHONPATH": path, "SIMULATED_GPU_DEFECT": defect, "COLUMNS": "100"}
        return subprocess.run(
            [sys.executable, "-m", "cupytma", "record", *arguments], env=environment, capture_output=True, text=True
        )

    return run
