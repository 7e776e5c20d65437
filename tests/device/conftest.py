"""What the tests of device-made tensor maps share."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated_cuda import EmulatedCuda


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, libraries: Path) -> EmulatedCuda:
    return EmulatedCuda(monkeypatch, libraries)
