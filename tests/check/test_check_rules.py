"""The table of rules: its examples are its tests."""

from __future__ import annotations

import pytest
from together import findings_of

from cupytma import check
from cupytma.check import RULES, Severity
from cupytma.check.examples import changed

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture(scope="module")
def bad() -> dict[str, tuple[check.Finding, ...]]:
    found: dict[str, tuple[check.Finding, ...]] = {}
    for target in dict.fromkeys(rule.target for rule in RULES.values()):
        rules = [rule for rule in RULES.values() if rule.target == target]
        found |= zip((r.id for r in rules), findings_of([r.bad for r in rules], target), strict=True)
    return found


@pytest.fixture(scope="module")
def good() -> dict[str, tuple[check.Finding, ...]]:
    return dict(zip(RULES, findings_of([rule.good for rule in RULES.values()], "sm_90a"), strict=True))


@pytest.mark.parametrize("name", RULES)
def test_the_bad_example_breaks_its_rule_and_no_other(name: str, bad: dict[str, tuple[check.Finding, ...]]) -> None:
    assert {finding.rule for finding in bad[name]} == {name}


@pytest.mark.parametrize("name", RULES)
def test_the_good_example_breaks_none(name: str, good: dict[str, tuple[check.Finding, ...]]) -> None:
    assert good[name] == ()


@pytest.mark.parametrize("target", ["sm_100a", "sm_103a", "sm_120a"])
def test_good_examples_are_good_on_every_target_with_what_they_use(target: str) -> None:
    sources = [rule.good for rule in RULES.values() if "multicast" not in rule.good or target != "sm_120a"]
    assert [found for found in findings_of(sources, target) if found] == []


@pytest.mark.parametrize("name", RULES)
def test_a_finding_says_where_and_what_to_do(name: str, bad: dict[str, tuple[check.Finding, ...]]) -> None:
    rule = RULES[name]
    order = list(Severity)
    for finding in bad[name]:
        assert finding.fix == rule.fix
        assert order.index(Severity(finding.severity)) >= order.index(rule.severity)
        assert finding.line > 0
        assert finding.ptx_line > 0
        assert str(finding).startswith(f"{finding.place}: {finding.severity}: ")
        assert bool(finding.file) != rule.bad.startswith(".version")


def test_rows_are_complete_and_written_alike() -> None:
    for name, rule in RULES.items():
        assert rule.id == name == name.lower()
        for text in (rule.title, rule.fix, rule.explanation, rule.source):
            assert text == text.strip()
            assert text
        assert rule.title[0].islower()
        assert not rule.title.endswith(".")
        assert rule.explanation.endswith(".")
        assert rule.fix[0].islower()


def test_an_example_that_does_not_change_is_noticed() -> None:
    with pytest.raises(ValueError, match="has no"):
        changed("abc", ("x", "y"))


@pytest.mark.parametrize(
    ("start", "severity"),
    [("tensor_reduce_add_2d(&map, 0, 0, tile)", "error"), ("tensor_store_2d(&map, 0, 0, tile)", "note")],
)
def test_what_a_whole_warp_starts_is_an_error_where_each_lane_counts(start: str, severity: str) -> None:
    """Measured on an H200: a reduction that a whole warp starts is made by each of its lanes."""
    source = f"""#include <cupytma.cuh>
extern "C" __global__ void __launch_bounds__(64) kernel(const __grid_constant__ CUtensorMap map)
{{
    __shared__ alignas(128) float tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = 1;
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x / 32 == 0) {{
        cupytma::{start};
        cupytma::bulk_commit_group();
        cupytma::bulk_wait_group<0>();
    }}
}}
"""
    found = {finding.rule: finding.severity for finding in check.check_cuda(source)}
    assert found == {"issued-by-every-thread": severity}
