"""How many groups may be pending when a stage is loaded again: every number of stages, and counts around the right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cupytma.sim import ProgramError, examples

_REPORTS = json.loads((Path(__file__).parents[1] / "golden" / "reports.json").read_text(encoding="utf-8"))
GIVEN = next(report["given"] for report in _REPORTS if report["id"] == "wait-group-off-by-one")
RINGS = [(stages, ahead) for stages in range(1, 6) for ahead in range(stages)]


def test_the_reported_pipeline_overwrites_a_buffer_that_a_store_still_reads() -> None:
    program = examples.prefetch_pipeline(stages=GIVEN["stages"], pending=GIVEN["wait_group"])
    report = program.run(schedules=40)
    assert "source-still-read" in report.rules
    finding = next(f for f in report.findings if f.rule == "source-still-read")
    assert finding.kind == "race"
    assert "bulk_copy" in finding.message
    assert "'ring'" in finding.message
    assert "bulk_wait_group" in finding.fix
    assert {place.source.split(":")[0] for place in finding.places} == {"examples.py"}


@pytest.mark.parametrize(("stages", "ahead"), RINGS)
def test_the_count_follows_from_the_stages(stages: int, ahead: int) -> None:
    """As many groups may be pending as were committed after the one whose buffer is needed, and .read is enough."""
    right = stages - 1 - ahead
    for pending in range(right + 3):
        program = examples.prefetch_pipeline(stages=stages, ahead=ahead, pending=pending, tiles=2 * stages + 2)
        for seed in range(4):
            report = program.run(schedules=1, seed=seed)
            assert report.rules == (set() if pending <= right else {"source-still-read"}), (pending, report)


@pytest.mark.parametrize("stages", range(1, 6))
def test_a_pipeline_computes_the_same_whatever_its_stages(stages: int) -> None:
    for tiles in (0, 1, stages, 3 * stages + 1):
        report = examples.prefetch_pipeline(stages=stages, tiles=tiles).run(schedules=8)
        assert report.clean
        np.testing.assert_array_equal(report.arrays["data"].ravel(), 2 * np.arange(32 * tiles))


def test_a_pipeline_that_never_fills_its_ring_needs_no_wait_for_a_stage() -> None:
    assert examples.prefetch_pipeline(stages=5, tiles=5).without("wait for the stage").run(schedules=12).clean


@pytest.mark.parametrize("wrong", [{"stages": 0}, {"stages": -2}, {"ahead": 3}, {"tiles": -1}, {"pending": 1.5}])
def test_numbers_that_make_no_pipeline_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ProgramError, match=next(iter(wrong))):
        examples.prefetch_pipeline(**wrong)
