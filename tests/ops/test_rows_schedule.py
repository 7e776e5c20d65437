"""The schedule of gathers and scatters on the simulator: clean for any layout, exact to the byte, no step too many."""

from __future__ import annotations

import numpy as np
import pytest

from cupytma.errors import ArrayError
from cupytma.ops.rows import ROW_STAGES
from cupytma.ops.rows_schedule import rows_program
from cupytma.ops.simulated_copy import span_of

FAULTS = {
    "init fence": "init-not-fenced",
    "announce": "arrival-missing",
    "wait for the load": "tile-not-complete",
    "commit": "group-not-committed",
    "wait for the stage": "source-still-read",
    "wait for the stores": "exit-in-flight",
}


def aligned(rows: int, width: int, pad: int = 0) -> np.ndarray:
    """Rows of float32, from an address that bulk copies take."""
    buffer = np.zeros(rows * (width + pad) + 32, np.float32)
    start = -buffer.ctypes.data % 128 // 4
    whole = buffer[start : start + rows * (width + pad)].reshape(rows, width + pad)
    whole[...] = np.random.default_rng(1).integers(-8, 9, whole.shape)
    return whole[:, :width]


def check(operation: str, source, destination, index, schedules: int = 3, **options) -> None:
    report = rows_program(operation, source, destination, index, **options).run(schedules=schedules)
    assert report.clean, report
    assert not report.order_dependent
    table = source if operation == "gather" else destination
    good = (index >= 0) & (index < len(table))
    if operation == "gather":
        destination[good] = source[index[good]]
    elif operation == "scatter":
        destination[index[good]] = source[good]
    else:
        np.add.at(destination, index[good], source[good])
    np.testing.assert_array_equal(report.arrays["destination"], span_of(destination)[0])
    np.testing.assert_array_equal(report.arrays["source"], span_of(source)[0])


@pytest.mark.parametrize("operation", ["gather", "scatter", "scatter_add"])
@pytest.mark.parametrize(
    ("width", "pads"), [(64, (0, 0)), (260, (0, 0)), (516, (4, 8)), (1024, (0, 4)), (5120, (0, 0))]
)
@pytest.mark.parametrize("wrong", [False, True])
def test_rows_arrive_under_every_schedule(operation: str, width: int, pads, wrong: bool) -> None:
    rows, count = 40, 5 if width > 1024 else 37
    index = np.random.default_rng(0).permutation(rows)[:count]
    if wrong:
        index[count // 2], index[-1] = -1, rows
    shapes = [(rows, width, pads[0]), (count, width, pads[1])]
    source, destination = (aligned(*shape) for shape in (shapes if operation == "gather" else shapes[::-1]))
    check(operation, source, destination, index, schedules=2, blocks=2, stages=3)


def test_repeated_indices_are_added_in_any_order() -> None:
    check("scatter_add", aligned(40, 128), aligned(3, 128), np.arange(40) % 3, schedules=6)


@pytest.mark.parametrize("step", FAULTS)
@pytest.mark.parametrize("operation", ["gather", "scatter"])
def test_every_step_of_the_kernel_is_needed(operation: str, step: str) -> None:
    """Enough rows to fill the ring of stages in each block."""
    index, arrays = np.arange(12), [aligned(12, 2048), aligned(12, 2048, 4)]
    program = rows_program(operation, *arrays, index, blocks=1, stages=3)
    assert set(FAULTS) <= set(program.steps)
    for seed in range(4):
        assert FAULTS[step] in program.without(step).run(schedules=1, seed=seed).rules


def test_the_warp_meets_before_a_stage_is_refilled() -> None:
    """One thread stores what all of them load again."""
    program = rows_program("gather", aligned(96, 64), aligned(96, 64), np.arange(96), blocks=1, stages=2)
    assert program.run(schedules=4).clean
    for seed in range(4):
        assert "source-still-read" in program.without("all have waited").run(schedules=3, seed=seed).rules


def test_the_stages_are_the_kernels() -> None:
    arrays = aligned(40, 256), aligned(40, 256), np.arange(40)
    program = rows_program("gather", *arrays)
    assert program.shared_bytes == rows_program("gather", *arrays, stages=ROW_STAGES).shared_bytes
    assert program.shared_bytes < rows_program("gather", *arrays, stages=ROW_STAGES + 1).shared_bytes


def test_what_no_bulk_copies_move_has_no_schedule() -> None:
    with pytest.raises(ArrayError, match="too short"):
        rows_program("gather", aligned(4, 16), aligned(4, 16), np.arange(4))
