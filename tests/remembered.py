"""What operations remember of arrays that they have met, so that a test begins without."""

from __future__ import annotations

from types import ModuleType

import pytest

from cupytma.ops import prepared

MEMORIES = {
    "_prepared": prepared.Memory, "_addressed": prepared.Recurring, "_guarded": prepared.Guarded,
    "_same": prepared.Memory,
}  # fmt: skip


def forget(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let some operations' modules remember nothing, until the test is over."""
    for module in modules:
        for name, memory in MEMORIES.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, memory())
