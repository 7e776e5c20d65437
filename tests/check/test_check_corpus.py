"""Kernels of several kinds: the correct ones are let pass, and each way to break them is found for what it is."""

from __future__ import annotations

from collections import Counter

import pytest
from corpus import BROKEN, GOOD, Broken
from together import findings_of

from cupytma import check
from cupytma.check import RULES

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")

TARGETS = ["sm_90a", "sm_100a"]


@pytest.mark.parametrize("target", TARGETS)
def test_correct_kernels_have_no_findings(target: str) -> None:
    found = dict(zip(GOOD, findings_of(list(GOOD.values()), target), strict=True))
    assert {name: findings for name, findings in found.items() if findings} == {}


@pytest.fixture(scope="module")
def found() -> dict[tuple[Broken, str], tuple[check.Finding, ...]]:
    rows = [(row, target) for row in BROKEN for target in (TARGETS if row.target == "sm_90a" else [row.target])]
    findings = {}
    for target in dict.fromkeys(target for _, target in rows):
        own = [row for row, wanted in rows if wanted == target]
        findings |= zip([(row, target) for row in own], findings_of([row.source for row in own], target), strict=True)
    return findings


@pytest.mark.parametrize("number", range(len(BROKEN)), ids=[f"{row.rule}-{row.good}" for row in BROKEN])
def test_what_is_broken_is_found_and_nothing_else(
    number: int, found: dict[tuple[Broken, str], tuple[check.Finding, ...]]
) -> None:
    for (row, _), findings in found.items():
        if row is BROKEN[number]:
            assert {finding.rule for finding in findings} == {row.rule}


def test_every_rule_has_three_kernels_that_break_it() -> None:
    counts = Counter(row.rule for row in BROKEN)
    assert {rule: 1 + counts[rule] for rule in RULES if 1 + counts[rule] < 3} == {}
