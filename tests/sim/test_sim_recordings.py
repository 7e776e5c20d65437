"""Every copy recorded on an H100: the same bytes, the same transaction counts, the same deaths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sim_recordings import (
    BASE,
    COMPLETED,
    DIED,
    IM2COL_LOAD,
    IM2COL_STORE,
    NEVER_COMPLETED,
    REDUCTION,
    SHARED_BYTES,
    TILED_LOAD,
    TILED_STORE,
    UNWRITTEN,
    Bytes,
    Case,
    recording,
)

from cupytma import record, sim

GOLDEN = Path(__file__).parents[1] / "golden"


def run(case: Case, memory: Bytes, shared: Bytes) -> int:
    """The recorded operation on the simulator; the transaction bytes of a load, else 0."""
    place = {"memory": memory, "base": BASE, "shared": shared, "shared_offset": case.case.shared_offset}
    if case.case.is_load:
        return sim.load(case.tensor_map, case.case.coords, **place, offsets=case.case.offsets)
    if case.case.kind == REDUCTION:
        sim.reduce(case.tensor_map, case.case.reduction, case.case.coords, **place)
    else:
        sim.store(case.tensor_map, case.case.coords, **place)
    return 0


def load_differs(case: Case, memory: Bytes) -> bool:
    shared = np.full(SHARED_BYTES, UNWRITTEN, dtype=np.uint8)
    expected = shared.copy()
    expected[case.case.shared_offset : case.case.shared_offset + len(case.seen.image)] = case.seen.image
    moved = run(case, memory, shared)
    # With interleave the recorder's expectation was an estimate, judged in a test of its own.
    return not np.array_equal(shared, expected) or (not case.interleaved and moved != case.seen.transaction_bytes)


def write_differs(case: Case, memory: Bytes, source: Bytes) -> bool:
    written, expected = memory.copy(), memory.copy()
    places, values = case.seen.changes()
    expected[places] = values
    run(case, written, source)
    return not np.array_equal(written, expected)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        pytest.param(lambda c: c.case.kind == TILED_LOAD and not c.interleaved, 837, id="tiled loads"),
        pytest.param(lambda c: c.case.kind == TILED_LOAD and c.interleaved, 62, id="tiled interleaved loads"),
        pytest.param(lambda c: c.case.kind == IM2COL_LOAD and not c.interleaved, 367, id="im2col loads"),
        pytest.param(lambda c: c.case.kind == IM2COL_LOAD and c.interleaved, 15, id="im2col interleaved loads"),
        pytest.param(lambda c: c.case.kind == TILED_STORE, 300, id="tiled stores"),
        pytest.param(lambda c: c.case.kind == IM2COL_STORE, 91, id="im2col stores"),
        pytest.param(lambda c: c.case.kind == REDUCTION, 234, id="reductions"),
    ],
)
def test_every_recorded_copy_gives_the_recorded_bytes(wanted: Callable[[Case], bool], count: int) -> None:
    cases, memory, source = recording()
    chosen = [case for case in cases if wanted(case) and case.seen.outcome != DIED]
    assert len(chosen) == count
    wrong = [
        case.number
        for case in chosen
        if (load_differs(case, memory) if case.case.is_load else write_differs(case, memory, source))
    ]
    assert not wrong


def test_every_recorded_death_raises_a_fault_and_touches_nothing() -> None:
    cases, memory, source = recording()
    dead = [case for case in cases if case.seen.outcome == DIED]
    faults = {TILED_LOAD: sim.SharedOverrun}
    assert len(dead) == 44
    for case in dead:
        window, shared = memory.copy(), source.copy()
        with pytest.raises(faults.get(case.case.kind, sim.IllegalInstruction)):
            run(case, window, shared)
        assert np.array_equal(window, memory), case.number
        assert np.array_equal(shared, source), case.number


def test_a_barrier_that_expects_more_than_the_simulated_count_never_completes() -> None:
    cases, memory, _ = recording()
    outcomes: dict[str, set[int]] = {"more": set(), "exact": set()}
    for case in cases:
        if not case.case.is_load or case.seen.outcome == DIED:
            continue
        moved = run(case, memory, np.zeros(SHARED_BYTES, dtype=np.uint8))
        if case.seen.transaction_bytes >= moved:
            outcomes["more" if case.seen.transaction_bytes > moved else "exact"].add(case.seen.outcome)
    assert outcomes == {"more": {NEVER_COMPLETED}, "exact": {COMPLETED}}


def test_the_random_copies_of_an_h200_agree_to_the_last_byte_and_count() -> None:
    recorded = record.read(GOLDEN / "h200_cases.npz")
    assert recorded.about["device"] == "NVIDIA H200"
    assert "counted" in recorded.about
    outcomes = [seen.outcome for seen in recorded.observations]
    assert (outcomes.count(COMPLETED), outcomes.count(DIED)) == (1000, 40)
    assert not list(record.disagreements(recorded))
