"""The table of handshakes: the simulator's verdict is the table's, and the sources are what the names say."""

from __future__ import annotations

import re

import numpy as np
import pytest
from handshakes import HANDSHAKES, Handshake

import cupytma as tma
from cupytma.sim.program import RULES

FENCE = r"(tensormap\.cp_fenceproxy|fence\.proxy\.tensormap::generic)[\w.:]*\.(release|acquire)\.(\w+)"
each = pytest.mark.parametrize("handshake", HANDSHAKES, ids=lambda h: h.name)


@each
def test_the_simulator_finds_what_the_table_says_in_every_schedule(handshake: Handshake) -> None:
    for seed in range(8):
        report = handshake.program().run(schedules=1, seed=seed)
        assert report.rules == ({handshake.verdict} if handshake.verdict else set()), report
    if not handshake.verdict:
        np.testing.assert_array_equal(report.arrays["seen"], report.arrays["second"])


@each
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_sources_compile_to_the_fences_of_their_names(handshake: Handshake, target: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    module = tma.compile(handshake.source, target)
    assert module.kernels == ("handshake",)
    fences = {(kind, scope) for _, kind, scope in re.findall(FENCE, re.sub(r"\.sync\.aligned", "", module.ptx))}
    releases, acquires = ({s for k, s in fences if k == kind} for kind in ("release", "acquire"))
    assert bool(releases) == (handshake.verdict != "map-not-released")
    if handshake.verdict == "map-not-acquired":
        # None at all, one in another block, or one of before the change.
        assert acquires in (set(), {"gpu"}, {"sys"})
        assert bool(acquires) == ("another block" in handshake.name or "two uses" in handshake.name)
    else:
        assert acquires
    if handshake.verdict == "map-scope":
        assert "cta" in releases | acquires
    assert module.kernel("handshake").num_device_tmas == 1


def test_the_table_names_each_variant_once_and_rules_that_exist() -> None:
    assert len({h.name for h in HANDSHAKES}) == len(HANDSHAKES)
    known = {rule.id for rule in (RULES.values() if hasattr(RULES, "values") else RULES)}
    assert {h.verdict for h in HANDSHAKES} - {""} == {"map-not-released", "map-not-acquired", "map-scope"}
    assert {h.verdict for h in HANDSHAKES} - {""} <= known


# The static checker calls one rule of the simulator by another name.
_CHECKERS_NAME = {"map-scope": "map-scope-narrow"}


@each
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_checker_finds_the_same_without_running_anything(handshake: Handshake, target: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    found = {finding.rule for finding in tma.check.check_cuda(handshake.source, target) if finding.severity == "error"}
    assert found == ({_CHECKERS_NAME.get(handshake.verdict, handshake.verdict)} if handshake.verdict else set())
