"""Shared by all tests: GPU tests skip, with a reason, where there is no GPU for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cupytma.runtime.device import has_tma_device


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the tests compile stays out of the user's cache, and is not found there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUPYTMA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not has_tma_device():
        skip = pytest.mark.skip(reason="needs CuPy and a GPU of compute capability 9.0 or newer")
        for item in gpu_items:
            item.add_marker(skip)
