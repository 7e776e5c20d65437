"""The copy kernel's schedule on the simulator: clean for any layout, exact to the byte, no step superfluous."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_copy_plan import rows_in_tiles

from cupytma.errors import ArrayError
from cupytma.ops import copy_program, simulate_copy
from cupytma.ops.copy_launches import STAGES
from cupytma.ops.copy_plan import plan_copy
from cupytma.ops.simulated_copy import span_of
from cupytma.sim import ProgramError
from cupytma.tensormap.arrays import view_of

FAULTS = {
    "init fence": "init-not-fenced",
    "announce": "arrival-missing",
    "wait for the load": "tile-not-complete",
    "commit": "group-not-committed",
    "wait for the stage": "source-still-read",
    "wait for the stores": "exit-in-flight",
}


def windows(shape: tuple[int, ...], padding: int, dtype: str = "f4") -> tuple[np.ndarray, np.ndarray]:
    """A source and a destination inside wider arrays."""
    wide = (*shape[:-1], shape[-1] + padding)
    source = np.random.default_rng(1).integers(0, 100, wide).astype(dtype)
    return source[..., : shape[-1]], np.zeros(wide, dtype)[..., : shape[-1]]


def check(source: np.ndarray, destination: np.ndarray, schedules: int = 3, **options: Any) -> None:
    """The program changes memory as the copy does, under every schedule."""
    report = copy_program(source, destination, **options).run(schedules=schedules)
    assert report.clean, report
    assert not report.order_dependent
    simulate_copy(source, destination)
    np.testing.assert_array_equal(report.arrays["destination"], span_of(destination)[0])
    np.testing.assert_array_equal(report.arrays["source"], span_of(source)[0])


@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple),
    padding=st.integers(0, 9),
    dtype=st.sampled_from(["u1", "f2", "f4", "f8"]),
    blocks=st.integers(1, 5),
    stages=st.integers(2, 5),
    however_short=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_layout_is_copied_exactly(
    shape: tuple[int, ...], padding: int, dtype: str, blocks: int, stages: int, however_short: bool
) -> None:
    with rows_in_tiles(however_short):
        check(*windows(shape, padding, dtype), schedules=2, blocks=blocks, stages=stages)


def test_many_tiles_of_an_odd_array() -> None:
    check(*windows((61, 3, 75), 5), schedules=20)
    check(np.arange(40_003, dtype=np.uint8), np.zeros(40_003, np.uint8))


def from_a_line(size: int) -> np.ndarray:
    """Bytes that begin with a line of memory."""
    buffer = np.random.default_rng(size).integers(0, 256, size + 128, dtype=np.uint8)
    return buffer[-buffer.ctypes.data % 128 :][:size]


@pytest.mark.parametrize("size", [16, 17, 511, 512, 513, 2048, 2049, 40_003])
def test_one_run_goes_in_chunks(size: int) -> None:
    arrays = from_a_line(size), from_a_line(size)
    with rows_in_tiles():
        assert plan_copy(*map(view_of, arrays)).bulk is not None
        check(*arrays, schedules=4)


def test_every_step_of_bulk_copies_is_needed() -> None:
    with rows_in_tiles():
        program = copy_program(from_a_line(5000), from_a_line(5000))
    assert set(program.steps) == set(FAULTS) - {"wait for the stage"}
    for step in program.steps:
        for seed in range(4):
            assert FAULTS[step] in program.without(step).run(schedules=1, seed=seed).rules, step


def test_the_destination_may_lie_in_the_memory_of_the_source() -> None:
    memory = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
    report = copy_program(memory[:, :40], memory[:, 64:104]).run(schedules=6)
    assert report.clean, report
    expected = memory.copy()
    expected[:, 64:104] = expected[:, :40]
    moved = report.arrays["memory"].view(np.float32)
    np.testing.assert_array_equal(moved, expected.ravel()[: moved.size])


@pytest.mark.parametrize("step", FAULTS)
def test_every_step_of_the_kernel_is_needed(step: str) -> None:
    """A run long enough to fill the ring of stages in each block."""
    source, destination = windows((96, 256), 16)
    program = copy_program(source, destination)
    assert set(program.steps) == set(FAULTS)
    for seed in range(4):
        assert FAULTS[step] in program.without(step).run(schedules=1, seed=seed).rules


def test_the_stages_are_the_kernels() -> None:
    source, destination = windows((96, 256), 16)
    program = copy_program(source, destination)
    assert program.shared_bytes == copy_program(source, destination, stages=STAGES).shared_bytes
    assert program.shared_bytes < copy_program(source, destination, stages=STAGES + 1).shared_bytes


def test_no_more_blocks_than_tiles() -> None:
    with rows_in_tiles():
        assert copy_program(np.zeros((4, 32)), np.zeros((4, 32)), blocks=100).blocks == 1


def test_what_has_no_launch_is_refused() -> None:
    with pytest.raises(ArrayError, match="nothing is launched"):
        copy_program(np.zeros((0, 4)), np.zeros((0, 4)))
    with pytest.raises(ArrayError, match="shapes differ"):
        copy_program(np.zeros(4), np.zeros(5))
    for wrong in ({"stages": 1}, {"stages": 2.5}, {"blocks": 0}, {"blocks": None}):
        with pytest.raises(ProgramError, match=next(iter(wrong))):
            copy_program(np.zeros(64), np.zeros(64), **wrong)
