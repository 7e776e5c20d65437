"""The model that chooses how a product is tiled, against times measured on a GPU."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matmul_arrays import judged_of

from cupytma.ops.matmul_configuration import Configuration, problem_with
from cupytma.ops.matmul_cost import Cost, cost_of
from cupytma.ops.matmul_operands import Operands
from cupytma.ops.matmul_ways import CONFIGURATIONS, choose, possible
from cupytma.targets import target

MULTIPROCESSORS, MOST_BYTES = 132, target("sm_90a").shared_bytes
RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "matmul_times.json").read_text())
WAYS = [Configuration(**dict(zip(RECORDED["fields"], way, strict=True))) for way in RECORDED["configurations"]]
SLOWER = 1.35  # times the fastest, at the least, of ways whose times are not kept


@dataclass(frozen=True)
class Case:
    """A measured product, and how much longer than the fastest the other ways took."""

    operands: Operands
    is_promoted: bool
    is_static: bool
    is_cold: bool
    fastest: float
    slowdowns: dict[Configuration, float]

    def cost(self, configuration: Configuration) -> Cost:
        return cost_of(configuration, self.operands, self.is_promoted, MULTIPROCESSORS, self.is_static)

    @cached_property
    def possible(self) -> list[Configuration]:
        return list(possible(self.operands, self.is_promoted, MOST_BYTES, MULTIPROCESSORS))

    @cached_property
    def measured(self) -> list[Configuration]:
        """Of the possible ways."""
        return [c for c in self.possible if c in self.slowdowns]

    @cached_property
    def chosen(self) -> Configuration:
        """Of the ways that were measured."""
        return min(self.measured, key=lambda c: self.cost(c).ranked_seconds)


def case_of(told: dict[str, Any]) -> Case:
    operands = judged_of(told["m"], told["n"], told["k"], told["dtype"])
    fastest = min(told["times"].values())
    slowdowns = {WAYS[number]: SLOWER for number in told["slower"]}
    slowdowns |= {WAYS[int(number)]: took / fastest for number, took in told["times"].items()}
    is_promoted = operands.a.type.is_narrow and not told["fast_accumulation"]
    return Case(operands, is_promoted, told["static_b"], told["cold"], fastest * 1e-6, slowdowns)


CASES = [case_of(told) for told in RECORDED["cases"]]


def test_what_the_model_chooses_took_at_most_14_percent_more_than_the_fastest_and_0_7_in_the_mean() -> None:
    slowdowns = np.array([case.slowdowns[case.chosen] for case in CASES])
    weights = [1 + (case.operands.n == case.operands.k == 4096) for case in CASES]
    assert len(CASES) == 317
    assert slowdowns.max() <= 1.14
    assert np.sort(slowdowns)[-3] <= 1.09
    assert np.average(slowdowns, weights=weights) <= 1.007


def test_the_model_says_what_a_chosen_way_takes_to_a_quarter_and_to_a_tenth_in_the_mean() -> None:
    cold = [case for case in CASES if case.is_cold]
    ratios = [case.cost(case.chosen).seconds / (case.fastest * case.slowdowns[case.chosen]) for case in cold]
    assert min(ratios) >= 0.75
    assert max(ratios) <= 1.25
    assert np.abs(np.log(ratios)).mean() <= 0.1


def test_what_is_possible_has_a_way_almost_as_fast_as_the_fastest_of_every_measured_product() -> None:
    for case in CASES:
        assert min(case.slowdowns[c] for c in case.measured) <= 1.02, case.operands


def test_every_way_of_the_table_was_within_1_5_percent_of_the_fastest_of_some_product() -> None:
    for configuration in CONFIGURATIONS:
        found = [case.slowdowns[configuration] for case in CASES if configuration in case.measured]
        assert min(found) <= 1.015, configuration


def test_every_kind_of_fitted_way_was_within_3_percent_of_the_fastest_of_some_product() -> None:
    least: dict[Configuration, float] = {}
    for case in CASES:
        for c in case.possible:
            if c not in CONFIGURATIONS:
                kind = replace(c, tile_columns=8, spare_rows=8 * (c.spare_rows > 0))
                least[kind] = min(least.get(kind, SLOWER), case.slowdowns.get(c, SLOWER))
    assert len(least) >= 9
    assert max(least.values()) <= 1.03


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 9000), st.integers(0, 30000), st.booleans(), st.sampled_from([1, 78, 114, 132]))
def test_there_are_at_most_64_ways_to_choose_among(m: int, n: int, is_promoted: bool, multiprocessors: int) -> None:
    dtype = "float8_e4m3fn" if is_promoted else "bfloat16"
    found = list(possible(judged_of(m, n, 4096, dtype), is_promoted, MOST_BYTES, multiprocessors))
    assert 25 <= len(found) == len(set(found)) <= 64


@pytest.mark.parametrize("m", [1, 8, 16])
@pytest.mark.parametrize(("n", "k"), [(128256, 8192), (16384, 53248), (65536, 65536)])
def test_ways_that_memory_bounds_are_still_told_apart(m: int, n: int, k: int) -> None:
    operands = judged_of(m, n, k, "bfloat16")
    ways = possible(operands, False, MOST_BYTES, MULTIPROCESSORS)
    costs = sorted(cost_of(c, operands, False, MULTIPROCESSORS).ranked_seconds for c in ways)
    chosen = cost_of(choose(operands, False, MULTIPROCESSORS, MOST_BYTES), operands, False, MULTIPROCESSORS)
    assert chosen.ranked_seconds == costs[0] < costs[1]


def test_promoted_tiles_that_are_fitted_are_halved_where_they_must_be() -> None:
    for case in CASES:
        for c in case.possible:
            assert not case.is_promoted or c.stage_sums == 2 or c.promoted_parts == 2, c


def test_few_of_all_choices_are_ways_that_were_not_measured() -> None:
    measured = 0
    for case in CASES:
        chosen = choose(case.operands, case.is_promoted, MULTIPROCESSORS, MOST_BYTES, case.is_static)
        if chosen in case.slowdowns:
            assert chosen == case.chosen
            measured += 1
    assert measured >= 0.91 * len(CASES)


PRODUCTS = {
    "m": st.integers(0, 5000), "n": st.integers(0, 5000), "units": st.integers(0, 400),
    "dtype": st.sampled_from(["float8_e4m3fn", "bfloat16", "float32"]),
    "result": st.sampled_from(["bfloat16", "float32"]),
    "multiprocessors": st.sampled_from([1, 2, 3, 7, 78, 114, 132]), "configuration": st.sampled_from(CONFIGURATIONS),
    "is_promoted": st.booleans(),
}  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(**PRODUCTS)
@example(0, 3323, 391, "bfloat16", "bfloat16", 1, Configuration(1, 128, is_swapped=True), False)
def test_the_model_stays_near_the_floor_at_least_and_rows_loaded_before_never_make_it_longer(
    m: int, n: int, units: int, dtype: str, result: str, multiprocessors: int, configuration: Configuration,
    is_promoted: bool,
) -> None:  # fmt: skip
    operands = judged_of(m, n, 16 * units, dtype, result)
    is_promoted = is_promoted and operands.a.type.is_narrow
    if problem_with(configuration, operands, is_promoted, MOST_BYTES):
        return
    late, early = (
        cost_of(configuration, operands, is_promoted, multiprocessors, is_static) for is_static in (False, True)
    )
    least, most = (early, late) if configuration.is_swapped else (late, early)  # b has the rows where swapped
    floor = early.floor_seconds
    assert 0.77 * floor <= least.ranked_seconds <= most.ranked_seconds
    assert all(cost.seconds == max(cost.ranked_seconds, floor) for cost in (early, late))
    assert late.floor_seconds == floor
    assert (late.waves == 0) == (m * n == 0)


@pytest.mark.parametrize(
    ("dtype", "is_row_major"), [("float8_e4m3fn", False), ("bfloat16", False), ("bfloat16", True), ("float32", False)]
)
@pytest.mark.parametrize("result", ["bfloat16", "float32"])
def test_every_product_can_be_made_in_most_ways_of_the_table(dtype: str, is_row_major: bool, result: str) -> None:
    operands = judged_of(512, 512, 512, dtype, result, is_row_major)
    found = list(possible(operands, operands.a.type.is_narrow, MOST_BYTES, MULTIPROCESSORS))
    assert len(found) >= 0.8 * len(CONFIGURATIONS)
