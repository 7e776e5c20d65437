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
    REDUCTION,
    SHARED_BYTES,
    memory_contents,
)
from cupytma.targets import TARGETS
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
    assert {case.kind for case in drawn} == set(range(REDUCTION + 1))
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


@pytest.mark.parametrize("name", ["sm_90a", "sm_100a", "sm_120a"])
def test_a_target_is_asked_for_what_it_has(name: str) -> None:
    target = TARGETS[name]
    cases = draw_cases(300, 9, target=target)
    assert all(case.parameters.violations(target) == () for case in cases)
    modes = {case.mode for case in cases if case.kind != REDUCTION}
    assert ("tile::gather4" in modes) == ("im2col::w" in modes) == (name != "sm_90a")
    assert ("tile::scatter4" in modes) == ("im2col::w::128" in modes) == (name == "sm_100a")
    newer = {case.parameters.swizzle for case in cases if case.parameters.swizzle > Swizzle.B128}
    packed = {case.parameters.data_type for case in cases if case.parameters.data_type > DataType.TFLOAT32_FTZ}
    assert (len(newer), len(packed)) == ((0, 0) if name == "sm_90a" else (3, 3))


def test_what_hardware_was_first_asked_alone_is_drawn_with_the_rest(drawn) -> None:
    assert any(case.kind == REDUCTION and isinstance(case.parameters, Im2col) for case in drawn)
    assert any(case.kind == IM2COL_STORE and case.parameters.interleave for case in drawn)
