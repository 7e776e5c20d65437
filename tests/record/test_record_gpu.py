"""Fresh random copies on the GPU at hand: hardware and simulator agree on every byte and every count."""

from __future__ import annotations

import os

import pytest

from cupytma import record
from cupytma.record.recording import DIED

pytestmark = pytest.mark.gpu


def test_500_fresh_copies_agree_with_the_simulator() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    recording = record.record_random(500, 0, seed)
    assert len(recording.cases) == 500
    wrong = list(record.disagreements(recording))
    assert not wrong, f"seed {seed}:\n" + "\n".join(map(str, wrong[:5]))


def test_what_the_simulator_calls_a_fault_kills_the_kernel() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    recording = record.record_random(0, 16, seed)
    assert [seen.outcome for seen in recording.observations] == [DIED] * 16, f"seed {seed}"
    assert not list(record.disagreements(recording)), f"seed {seed}"
