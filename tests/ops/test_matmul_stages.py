"""How many stages of a matrix product are in flight, against times measured on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matmul_arrays import judged_of

from cupytma.ops.matmul_configuration import Configuration
from cupytma.ops.matmul_plan import MatmulPlan, plan_matmul
from cupytma.targets import target

HOPPER = target("sm_90a")
RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "matmul_stages.json").read_text())
WAYS = [Configuration(*way) for way in RECORDED["configurations"]]


def recorded() -> list[tuple[MatmulPlan, dict[int, float]]]:
    """Plans, and the times that products took by the number of their stages."""
    found = []
    for case in RECORDED["cases"]:
        operands = judged_of(case["m"], case["n"], case["k"], case["dtype"])
        how = {name: case[name] for name in ("fast_accumulation", "static_b")}
        for way, times in case["times"].items():
            plan = plan_matmul(operands, HOPPER, 132, configuration=WAYS[int(way)], **how)
            found.append((plan, {int(stages): took for stages, took in times.items()}))
    return found


def test_the_stages_in_flight_took_at_most_a_tenth_more_than_the_fastest_number_and_0_7_percent_in_the_mean() -> None:
    slowdowns = [times[plan.stages] / min(times.values()) for plan, times in recorded() if plan.stages in times]
    assert len(slowdowns) > 0.98 * len(recorded()) > 500
    assert max(slowdowns) <= 1.1
    assert np.mean(slowdowns) <= 1.007


@pytest.mark.parametrize(
    ("m", "static_b", "way", "stages"),
    [
        # As many as fit, but 180 KiB beside the one that is multiplied without clusters.
        (512, False, Configuration(1, 128, 1, 2, is_swapped=True, consumers=1), 9),
        (512, False, Configuration(1, 128, is_swapped=True, consumers=1), 8),
        (64, False, Configuration(1, 64, is_swapped=True, consumers=1), 12),
        # Without a limit where loads begin before; with a promise that is not used there, as without it.
        (64, True, Configuration(1, 64, is_swapped=True, consumers=1), 14),
        (8, True, Configuration(1, 8, is_swapped=True, consumers=1), 15),
        (65, True, Configuration(1, 64, is_swapped=True, consumers=1), 12),
        # 128 KiB beside it where blocks that share a sum load the same weights as others.
        (128, False, Configuration(1, 128, split=2, is_swapped=True, consumers=1), 8),
        (129, False, Configuration(1, 128, split=2, is_swapped=True, consumers=1), 6),
    ],
)  # fmt: skip
def test_stages_in_flight_are_those_that_fit_or_fewer_where_that_was_faster(
    m: int, static_b: bool, way: Configuration, stages: int
) -> None:
    plan = plan_matmul(judged_of(m, 2112, 7168, "bfloat16"), HOPPER, 132, configuration=way, static_b=static_b)
    assert plan.stages == stages >= way.least_stages(2, plan.has_one_tile)
