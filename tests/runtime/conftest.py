"""What the tests of the runtime share."""

from __future__ import annotations

from typing import Any

import pytest

from cupytma.runtime import allocations
from cupytma.runtime.allocations import UnknownMemory


@pytest.fixture(autouse=True)
def _no_memory_is_known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses that tests make up are no faults, on machines where a driver could be asked about them too."""

    def without_driver() -> Any:
        raise UnknownMemory("no test without a GPU asks a driver")

    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(allocations, "_driver", without_driver)
