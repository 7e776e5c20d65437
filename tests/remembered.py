"""What operations remember of arrays that they have met, so that a test begins without."""

from __future__ import annotations

from types import ModuleType

import pytest

from cupytma.ops.prepared import Memory


def forget(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let some operations' modules remember nothing, until the test is over."""
    for module in modules:
        own = {name: found for name, found in vars(module).items() if isinstance(found, Memory)}
        assert own, module.__name__
        for name, memory in own.items():
            monkeypatch.setattr(module, name, type(memory)())
