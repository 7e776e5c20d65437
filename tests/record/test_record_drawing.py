"""Random cases: legal, varied, the same for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest

from cupytma.record.drawing import draw_cases, draw_faults
from cupytma.record.prediction import predict
from cupytma.record.recording import (
    COMPLETED,
    DIED,
    GLOBAL_BYTES,
    IM2COL_STORE,
    KINDS,
    REDUCTION,
    SHARED_BYTES,
    memory_contents,
)
from cupytma.tensormap import DataType, Im2col, Interleave, Swizzle


@pytest.fixture(scope="module")
def drawn():
    return draw_cases(600, 9)


def test_a_seed_gives_the_same_cases(drawn) -> None:
    assert draw_cases(40, 9) == drawn[:40]
    assert draw_cases(40, 10) != drawn[:40]


def test_cases_are_legal_and_within_the_window(drawn) -> None:
    memory, source = memory_contents(9)
    for case in drawn:
        assert case.parameters.violations() == ()
        assert 0 <= case.parameters.global_address < GLOBAL_BYTES
        assert case.shared_offset + case.parameters.tile_bytes <= SHARED_BYTES
        assert predict(case, memory, source).outcome == COMPLETED


def test_everything_there_is_gets_drawn(drawn) -> None:
    assert set(Counter(case.kind for case in drawn)) == set(range(len(KINDS)))
    for attribute, members in (("swizzle", list(Swizzle)[:4]), ("interleave", list(Interleave)), ("rank", range(1, 6))):
        assert {getattr(case.parameters, attribute) for case in drawn} == set(members)
    assert {case.parameters.data_type for case in drawn} == set(DataType) - set(list(DataType)[13:])
    assert {case.reduction for case in drawn if case.kind == REDUCTION} == {
        "add", "min", "max", "inc", "dec", "and", "or", "xor",
    }  # fmt: skip
    loads = [case for case in drawn if case.is_load]
    assert any(min(case.coords) < 0 for case in loads)
    assert any(set(case.parameters.element_strides) != {1} for case in loads)
    assert any(case.shared_offset % 1024 for case in loads)


def test_faults_are_predicted_to_be_such() -> None:
    memory, source = memory_contents(9)
    faults = draw_faults(60, 9)
    errors = Counter(predict(case, memory, source).error for case in faults)
    assert set(errors) == {"cudaErrorIllegalInstruction", "cudaErrorMisalignedAddress"}
    assert all(predict(case, memory, source).outcome == DIED for case in faults)


def test_what_no_recording_has_is_drawn_on_request_alone(drawn) -> None:
    def unmeasured(case) -> bool:
        p = case.parameters
        if case.kind == IM2COL_STORE:
            return p.interleave != Interleave.NONE
        return case.kind == REDUCTION and isinstance(p, Im2col)

    assert not any(map(unmeasured, drawn))
    assert len(draw_cases(20, 9, wanted=unmeasured, unmeasured=True)) == 20
