"""Shared by all tests: GPU tests skip, with a reason, where there is no GPU for them."""

from __future__ import annotations

import pytest

from cupytma.runtime.device import has_tma_device


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not has_tma_device():
        skip = pytest.mark.skip(reason="needs CuPy and a GPU of compute capability 9.0 or newer")
        for item in gpu_items:
            item.add_marker(skip)
