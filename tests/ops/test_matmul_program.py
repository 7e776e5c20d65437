"""The schedule of matrix products on the simulator: clean under any order, exact, no step too many."""

from __future__ import annotations

import numpy as np
import pytest
from matmul_arrays import TYPES, expected, matrix, operands

from cupytma.errors import ArrayError
from cupytma.ops import matmul_program
from cupytma.ops.matmul_configuration import Configuration
from cupytma.ops.simulated_copy import span_of
from cupytma.sim.program import ProgramError

C = Configuration
CASES = [
    (70, 64, 320, "float8_e4m3fn", "bfloat16", False, C(1, 64), {"stages": 2}),
    (200, 136, 320, "float8_e4m3fn", "bfloat16", False, C(1, 128, 2), {"stages": 2}),
    (200, 133, 144, "bfloat16", "float32", True, C(1, 64, 1, 2), {"stages": 3}),
    (5, 300, 1040, "float8_e4m3fn", "bfloat16", False, C(1, 8, split=4, is_swapped=True), {"stages": 2}),
    (9, 304, 1040, "bfloat16", "float32", True, C(1, 16, split=2, is_swapped=True), {"static_b": True, "stages": 3}),
    (40, 300, 400, "bfloat16", "bfloat16", False, C(1, 40, split=3, is_swapped=True, consumers=1), {"stages": 2}),
    (70, 136, 400, "float16", "bfloat16", False, C(2, 72, split=4, is_swapped=True), {"stages": 3}),
    (300, 200, 144, "bfloat16", "bfloat16", False, C(1, 128, 2, is_ping_pong=True), {"stages": 2}),
    (200, 200, 144, "bfloat16", "bfloat16", False, C(1, 64, is_ping_pong=True), {"stages": 2, "static_b": True}),
    (513, 129, 32, "bfloat16", "bfloat16", False, C(1, 128, 2, 2, is_ping_pong=True), {"stages": 2}),
    (9, 300, 400, "bfloat16", "bfloat16", False, C(1, 16, is_swapped=True, spare_rows=16), {"stages": 2}),
    (9, 200, 400, "bfloat16", "bfloat16", False, C(1, 16, is_swapped=True, consumers=1, spare_rows=24), {"stages": 3}),
    (9, 192, 400, "bfloat16", "float32", False, C(1, 16, is_swapped=True, consumers=1, spare_rows=16), {"stages": 3}),
]
# What is found when a step is left out, in clusters whose blocks load for one another, in blocks with one tile, with
# ping-pong, and with sums that blocks share.
FAULTS = {
    "clusters": {
        "init fence": "init-not-fenced",
        "first barrier": "init-unordered",
        "announce": "arrival-missing",
        "wait for a full stage": "tile-not-complete",
        "release the stage": "arrival-missing",
        "wait for an empty stage": "refill-unordered",
        "wait for the buffer": "source-still-read",
        "proxy fence": "proxy-fence",
        "commit": "group-not-committed",
        "wait for the stores": "exit-in-flight",
    },
    "one tile": {"meet before writing": "unordered"},
    "ping-pong": {"pass the turn": "arrival-missing"},
    "sums of few columns": {
        "tell of the part": "arrival-missing",
        "wait for the parts": "unordered",
    },
    "sums": {
        "announce the parts": "arrival-missing",
        "meet before sending": "unordered",
        "proxy fence before sending": "proxy-fence",
        "wait for the parts": "tile-not-complete",
        "tell that they have come": "cluster-barrier-order",
        "last barrier": "exit-in-flight",
    },
}
PROGRAMS = {
    "clusters": (300, 128, 384, C(1, 64, 2)),
    "one tile": (128, 64, 384, C(1, 64)),
    "ping-pong": (300, 64, 384, C(1, 64, is_ping_pong=True)),
    "sums of few columns": (8, 128, 640, C(1, 8, split=2, is_swapped=True)),
    "sums": (24, 128, 640, C(1, 24, split=2, is_swapped=True)),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}x{case[1]}x{case[2]}-{case[6]}")
def test_products_are_exact_under_every_schedule(case) -> None:
    m, n, k, dtype, result, is_row_major, configuration, how = case
    a, b = operands(m, n, k, dtype, is_row_major)
    out = matrix(m, n, result, 16)
    report = matmul_program(a, b, out, configuration=configuration, **how).run(schedules=4)
    assert report.clean, report
    assert not report.order_dependent
    out[...] = expected(a, b).astype(np.float32).astype(TYPES[result])
    np.testing.assert_array_equal(report.arrays["out"], span_of(out)[0])


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind, steps in FAULTS.items() for step in steps])
def test_every_step_of_the_kernel_is_needed(kind: str, step: str) -> None:
    m, n, k, configuration = PROGRAMS[kind]
    arrays = operands(m, n, k, "float8_e4m3fn")
    program = matmul_program(*arrays, matrix(m, n, "bfloat16", 8), configuration=configuration, stages=2)
    assert step in program.steps
    assert FAULTS[kind][step] in program.without(step).run(schedules=2).rules


def test_an_empty_result_has_no_schedule() -> None:
    with pytest.raises(ArrayError, match="out is empty"):
        matmul_program(*operands(0, 64, 128, "bfloat16"), matrix(0, 64, "bfloat16"))


def test_fewer_stages_than_parcels_and_results_take_are_refused() -> None:
    arrays = *operands(70, 136, 400, "float16"), matrix(70, 136, "bfloat16", 16)
    with pytest.raises(ProgramError, match=r"stages is 2; it must be 3 to 64"):
        matmul_program(*arrays, configuration=C(2, 72, split=4, is_swapped=True), stages=2)
