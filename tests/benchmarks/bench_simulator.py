"""How long one simulated copy takes, and a sweep over a large matrix.

Not collected by a plain ``pytest``, whose files begin with ``test_``. Run it by name, with pytest-benchmark installed:

    pytest tests/benchmarks/bench_simulator.py --benchmark-columns=min,median

The aims: a tile of 64 KiB in well under a millisecond after the first, a 4096² float32 matrix tile by tile in seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cupytma import Im2col, Tiled, sim

pytest.importorskip("pytest_benchmark", reason="pip install pytest-benchmark")

BASE = 0x7F0000000000
EXTENT = 4096


@pytest.fixture(scope="module")
def matrix() -> np.ndarray:
    return np.random.default_rng(0).random((EXTENT, EXTENT), dtype=np.float32)


def tile_map(swizzle: str, box: tuple[int, ...], data_type: str = "FLOAT32") -> Any:
    p = Tiled(
        data_type=data_type, global_address=BASE, global_dim=(EXTENT, EXTENT), box_dim=box, swizzle=swizzle
    )  # fmt: skip
    return p.encode()


@pytest.mark.parametrize("place", ["inside", "edge"])
@pytest.mark.parametrize(
    ("swizzle", "box", "data_type"),
    [
        ("NONE", (128, 128), "FLOAT32"),  # 64 KiB
        ("NONE", (128, 128), "TFLOAT32"),
        ("128B", (32, 256), "FLOAT32"),  # 32 KiB, the most with 128B
        ("NONE", (4, 256), "FLOAT32"),
    ],
)
@pytest.mark.parametrize("operation", ["load", "store", "reduce"])
def test_one_tile(
    benchmark: Any, matrix: np.ndarray, operation: str, swizzle: str, box: tuple[int, int], data_type: str, place: str
) -> None:
    m, shared = tile_map(swizzle, box, data_type), np.zeros(1 << 16, np.uint8)
    coords = (64, 128) if place == "inside" else (EXTENT - 16, EXTENT - 100)
    use = {"memory": matrix.copy().reshape(-1).view(np.uint8), "base": BASE, "shared": shared}
    if operation == "reduce":
        benchmark(lambda: sim.reduce(m, "add", coords, **use))
    else:
        benchmark(lambda: getattr(sim, operation)(m, coords, **use))


@pytest.mark.parametrize("swizzle", ["NONE", "128B"])
def test_one_im2col_load_of_64_kib(benchmark: Any, swizzle: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, 8 * 56 * 56 * 64 * 2, dtype=np.uint8)
    m = Im2col(
        data_type="FLOAT16", global_address=BASE, global_dim=(64, 56, 56, 8), pixel_box_lower_corner=(-1, -1),
        pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=512, swizzle=swizzle,
    ).encode()  # fmt: skip
    shared = np.zeros(1 << 16, np.uint8)
    benchmark(lambda: sim.load(m, (0, 3, 3, 1), memory=image, base=BASE, shared=shared, offsets=(1, 1)))


@pytest.mark.parametrize("side", [32, 64, 128])
def test_a_sweep_over_a_4096_square_matrix(benchmark: Any, matrix: np.ndarray, side: int) -> None:
    m, shared, memory = tile_map("NONE", (side, side)), np.zeros(1 << 16, np.uint8), matrix.reshape(-1).view(np.uint8)

    def sweep() -> None:
        for y in range(0, EXTENT, side):
            for x in range(0, EXTENT, side):
                sim.load(m, (x, y), memory=memory, base=BASE, shared=shared)

    benchmark.pedantic(sweep, rounds=3, warmup_rounds=1)
    benchmark.extra_info["tiles per second"] = (EXTENT // side) ** 2 / benchmark.stats.stats.median
