"""A prefetch changes nothing, and complains where the load would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sim_recordings import BASE, SHARED_BYTES, recording

from cupytma import sim
from cupytma.errors import ArrayError
from cupytma.tensormap import Tiled

MATRIX = Tiled(data_type="UINT16", global_address=BASE, global_dim=(64, 16), box_dim=(32, 4)).encode()


def test_a_prefetch_of_every_recorded_load_does_what_the_load_does_to_global_memory() -> None:
    cases, memory, _ = recording()
    shared = np.zeros(SHARED_BYTES, dtype=np.uint8)
    refused = 0
    for case in cases:
        if not case.case.is_load:
            continue
        try:
            sim.load(
                case.tensor_map, case.case.coords, memory=memory, base=BASE, shared=shared,
                shared_offset=case.case.shared_offset, offsets=case.case.offsets,
            )  # fmt: skip
        except sim.SharedOverrun:  # a tile too long for the shared array is none for a prefetch
            sim.prefetch(case.tensor_map, case.case.coords, memory=memory, base=BASE, offsets=case.case.offsets)
        except sim.IllegalInstruction:
            refused += 1
            with pytest.raises(sim.IllegalInstruction):
                sim.prefetch(case.tensor_map, case.case.coords, memory=memory, base=BASE, offsets=case.case.offsets)
        else:
            sim.prefetch(case.tensor_map, case.case.coords, memory=memory, base=BASE, offsets=case.case.offsets)
    assert refused


@pytest.mark.parametrize(
    ("error", "pattern", "changes"),
    [
        (sim.IllegalInstruction, "coordinate 4 of dimension 0", {"coords": (4, 0)}),
        (sim.OutOfWindow, "touches global bytes", {"base": BASE + 16}),
        (sim.SimulationError, "1 coordinate for a tensor map of rank 2", {"coords": (0,)}),
        (sim.SimulationError, "for a tiled tensor map", {"offsets": (0,)}),
        (ArrayError, "memory has dtype float32", {"memory": np.zeros(512, np.float32)}),
        (sim.SimulationError, "tensor_map is a bytes", {"tensor_map": bytes(MATRIX)}),
    ],
)
def test_a_prefetch_is_refused_as_a_load_is(error: type[Exception], pattern: str, changes: dict[str, Any]) -> None:
    arguments = {"tensor_map": MATRIX, "coords": (0, 0), "memory": np.zeros(2048, np.uint8), "base": BASE} | changes
    with pytest.raises(error, match=pattern):
        sim.prefetch(**arguments)


def test_a_prefetch_needs_no_writable_memory_and_may_start_below_zero() -> None:
    frozen = np.zeros(2048, np.uint8)
    frozen.setflags(write=False)
    sim.prefetch(MATRIX, (-8, -1), memory=frozen, base=BASE)
