"""One load to several blocks of a cluster, as measured on an H200 with two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sim_reference import random_bytes

from cupytma import sim
from cupytma.errors import ArrayError
from cupytma.tensormap import Im2col, Tiled

BASE = 0x20000
MATRIX = Tiled(data_type="UINT16", global_address=BASE, global_dim=(64, 16), box_dim=(32, 4), swizzle="64B").encode()
PIXELS = Im2col(
    data_type="UINT16", global_address=BASE, global_dim=(32, 4, 8), pixel_box_lower_corner=(-1,),
    pixel_box_upper_corner=(-1,), channels_per_pixel=32, pixels_per_column=6,
).encode()  # fmt: skip
MEMORY = random_bytes(2048, 1)


def blocks(count: int) -> list[Any]:
    return [np.full(1024, rank, np.uint8) for rank in range(count)]


@pytest.mark.parametrize("mask", [None, 0b11, 0b01, 0b10, 0b00])
@pytest.mark.parametrize(
    ("m", "coords", "offsets"), [(MATRIX, (32, 8), ()), (MATRIX, (48, 14), ()), (PIXELS, (0, 0, 1), (1,))]
)
def test_every_block_of_the_mask_gets_what_a_load_of_its_own_would_bring(
    m: Any, coords: tuple[int, ...], offsets: tuple[int, ...], mask: int | None
) -> None:
    shared = blocks(2)
    use = {"memory": MEMORY, "base": BASE, "shared_offset": 128, "offsets": offsets}
    counts = sim.multicast(m, coords, shared=shared, cta_mask=mask, **use)
    for rank, (found, expected) in enumerate(zip(shared, blocks(2), strict=True)):
        chosen = mask is None or mask >> rank & 1
        moved = sim.load(m, coords, shared=expected, **use) if chosen else 0
        assert counts[rank] == moved
        assert (found == expected).all()


def test_a_block_outside_the_cluster_is_the_launch_failure_it_was_on_hardware() -> None:
    for mask in (0b100, 0b111):
        shared = blocks(2)
        with pytest.raises(sim.LaunchFailure, match="names block 2 of a cluster of 2; clear the bits above 1"):
            sim.multicast(MATRIX, (0, 0), memory=MEMORY, base=BASE, shared=shared, cta_mask=mask)
        assert all((found == expected).all() for found, expected in zip(shared, blocks(2), strict=True))


def test_one_block_that_cannot_take_the_tile_leaves_all_unchanged() -> None:
    shared = [*blocks(2), np.zeros(100, np.uint8)]
    with pytest.raises(sim.SharedOverrun):
        sim.multicast(MATRIX, (0, 0), memory=MEMORY, base=BASE, shared=shared)
    assert all((found == expected).all() for found, expected in zip(shared, blocks(2), strict=False))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"shared": []}, sim.SimulationError, "shared holds 0 arrays"),
        ({"shared": blocks(17)}, sim.SimulationError, "shared holds 17 arrays"),
        ({"cta_mask": 1 << 16}, sim.SimulationError, "does not fit the instruction's 16-bit"),
        ({"cta_mask": -1}, sim.SimulationError, "does not fit the instruction's 16-bit"),
        ({"cta_mask": "all"}, sim.SimulationError, "cta_mask is 'all'; it must be an integer"),
        ({"shared": [np.zeros(9, np.float32)]}, ArrayError, r"shared\[0\] has dtype float32"),
        ({"shared": 3}, sim.SimulationError, "shared is 3; it must be a sequence of arrays"),
        ({"shared": np.zeros(1024, np.uint8)}, sim.SimulationError, "it must be a sequence of arrays"),
    ],
)
def test_bad_operands_are_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sim.multicast(MATRIX, (0, 0), **({"memory": MEMORY, "base": BASE, "shared": blocks(2)} | changes))
