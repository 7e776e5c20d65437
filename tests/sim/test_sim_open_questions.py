"""What an H200 answered to the questions that the first recordings left open; see golden/record_open_questions.py."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupytma import record, sim
from cupytma.record.prediction import BASE, tensor_map
from cupytma.record.recording import DIED, IM2COL_LOAD, Bytes
from cupytma.tensormap import Im2col, Interleave, Tiled

GOLDEN = Path(__file__).parents[1] / "golden"
COPIES, ANSWERS = GOLDEN / "h200_open_questions.npz", GOLDEN / "h200_open_questions.json"


class Answer:
    """One copy, the bytes it worked on, and what hardware did."""

    def __init__(self, question: str, label: str, case: record.Case, seen: record.Observation, bytes_: Any) -> None:
        self.question, self.label, self.case, self.seen = question, label, case, seen
        self.memory, self.source = bytes_


@cache
def copies() -> tuple[Answer, ...]:
    recording = record.read(COPIES)
    found, at = [], 0
    with np.load(COPIES) as file:
        patches, columns = file["patches"], (file["questions"], file["labels"], file["patch_bytes"])
    for case, seen, question, label, (memory_bytes, tile_bytes) in zip(
        recording.cases, recording.observations, *columns, strict=True
    ):
        memory, source = (part.copy() for part in recording.contents)
        memory[case.parameters.global_address :][:memory_bytes] = patches[at : at + memory_bytes]
        at += memory_bytes
        source[case.shared_offset :][:tile_bytes] = patches[at : at + tile_bytes]
        at += tile_bytes
        found.append(Answer(str(question), str(label), case, seen, (memory, source)))
    return tuple(found)


def of(question: str) -> list[Answer]:
    found = [one for one in copies() if one.question == question]
    assert found
    return found


QUESTIONS = sorted({one.question for one in copies()})


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_simulator_gives_every_answer_that_hardware_gave(question: str) -> None:
    wrong = []
    for one in of(question):
        predicted = record.predict(one.case, one.memory, one.source)
        same = predicted.outcome == one.seen.outcome and np.array_equal(predicted.image, one.seen.image)
        if one.seen.outcome == DIED:
            same = same and one.seen.error.startswith(predicted.error or " ")
        elif one.case.is_load:
            same = same and predicted.transaction_bytes == one.seen.transaction_bytes
        if not same:
            wrong.append(one.label)
    assert not wrong


def test_points_that_share_memory_are_taken_in_the_tiles_order_every_time() -> None:
    images: dict[str, list[Bytes]] = {}
    for one in (*of("b: overlapping reduction"), *of("b: overlapping store")):
        images.setdefault(one.label.partition(", try")[0] + one.question, []).append(one.seen.image)
    assert len(images) == 50
    for same in images.values():
        assert len(same) == 3
        assert all(np.array_equal(image, same[0]) for image in same)
    # Another order would have given other bytes: the answer says something.
    one = next(a for a in of("b: overlapping reduction") if a.label.startswith("FLOAT32 add, 16 points × 32 rows"))
    (points, rows), place = one.case.parameters.box_dim, one.case.parameters.global_address
    values = one.source[: points * rows * 4].view("<f4").reshape(rows, points)
    old = one.memory[place : place + points * 4].view("<f4")
    backwards = old
    for row in values[::-1]:
        backwards = backwards + row
    _, new = one.seen.changes()
    assert len(new)
    after = one.memory.copy()
    after[one.seen.changes()[0]] = new
    assert not np.array_equal(after[place : place + points * 4].view("<f4"), backwards)


def test_every_reduction_that_is_not_simulated_is_an_illegal_instruction() -> None:
    refused = {one.label for one in of("types and operations not recorded") if one.seen.outcome == DIED}
    for one in of("types and operations not recorded"):
        data_type, op = one.case.parameters.data_type, one.case.reduction
        assert (op in sim.reductions.measured_reductions(data_type)) == (one.label not in refused)


def test_interleaved_im2col_writes_are_among_the_copies() -> None:
    kinds = Counter(
        one.case.kind for one in copies()
        if isinstance(one.case.parameters, Im2col) and one.case.parameters.interleave != Interleave.NONE
        and one.case.kind != IM2COL_LOAD and len(one.seen.image)
    )  # fmt: skip
    assert set(kinds) == {3, 4}
    assert min(kinds.values()) >= 3


def answers(question: str) -> list[tuple[str, str]]:
    rows = json.loads(ANSWERS.read_text(encoding="utf-8"))["answers"]
    found = [(label, answer) for asked, label, answer in rows if asked.startswith(question)]
    assert found
    return found


def test_a_tensor_map_lies_at_any_multiple_of_64_bytes() -> None:
    for _, answer in answers("d:"):
        where = re.search(r"\((\d+) mod 128\): completed, 2048 B counted of 2048, bytes right", answer)
        assert where is None or int(where[1]) % 64 == 0
    places = {label: answer for label, answer in answers("d:") if label.startswith("global")}
    for label, answer in places.items():
        at = int(re.findall(r"\d+", label)[0])
        assert answer.startswith("DIED (cudaErrorMisalignedAddress)") == (at % 64 != 0)
    assert any("(64 mod 128): completed" in answer for _, answer in answers("d:"))


def test_the_wide_instruction_is_no_instruction_of_hopper() -> None:
    from cupytma import ptx

    for label, answer in answers("e:"):
        target, mode, destination = re.findall(r"[\w:]+", label.replace(" to", ""))[:3]
        form = ptx.tensor_load(rank=3, mode=mode, destination=destination)
        assert (answer == "assembles") == form.supported_on(target)
        assert (answer == "assembles") or target != "sm_100a"


MULTICASTS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], int]] = {
    "tile at 0": ("tiled", (32, 8), (), 0),
    "tile at 1152": ("tiled", (32, 8), (), 1152),
    "tile half outside the tensor": ("tiled", (48, 60), (), 0),
    "im2col at 256": ("im2col", (0, 2, 1, 0), (1, 2), 256),
}


def test_multicasts_reach_the_blocks_that_they_reached_on_hardware() -> None:
    maps = {
        "tiled": Tiled(
            data_type="FLOAT32", global_address=BASE, global_dim=(64, 64), box_dim=(32, 16), swizzle="128B"
        ),
        "im2col": Im2col(
            data_type="FLOAT16", global_address=BASE, global_dim=(32, 9, 7, 3), pixel_box_lower_corner=(-1, -1),
            pixel_box_upper_corner=(-1, -1), channels_per_pixel=32, pixels_per_column=40, swizzle="64B",
        ),
    }  # fmt: skip
    for label, answer in answers("f:"):
        name, mask = label.split(", mask ")
        kind, coords, offsets, place = MULTICASTS[name]
        use = {
            "memory": np.ones(1 << 16, np.uint8), "base": BASE, "shared_offset": place, "offsets": offsets,
            "cta_mask": int(mask, 2),
        }  # fmt: skip
        shared = [np.zeros(1 << 14, np.uint8) for _ in range(2)]
        if answer.startswith("DIED"):
            assert answer == "DIED (cudaErrorLaunchFailure)"
            with pytest.raises(sim.LaunchFailure):
                sim.multicast(maps[kind].encode(), coords, shared=shared, **use)
            continue
        counts = sim.multicast(maps[kind].encode(), coords, shared=shared, **use)
        assert answer == "; ".join(
            f"block {rank}: {'tile' if counted else 'nothing'}, {counted} B counted of {maps[kind].transaction_bytes}"
            for rank, counted in enumerate(counts)
        )
        assert [bool(array.any()) for array in shared] == [bool(counted) for counted in counts]


def test_a_tile_that_ends_outside_shared_memory_is_an_illegal_address() -> None:
    outcomes = set()
    for label, answer in answers("g:"):
        size, beyond = (int(number) for number in re.findall(r"(\d+) B", label))
        rounded = beyond - -size % 128  # the window ends at a multiple of 128 bytes
        assert (answer == "DIED (cudaErrorIllegalAddress)") == (rounded > 0)
        outcomes.add(rounded > 0)
    assert outcomes == {True, False}


def test_a_prefetch_dies_where_its_load_would() -> None:
    loads = {one.label: one.case for one in copies() if one.case.is_load and one.label.startswith("load: ")}
    for label, answer in answers("h: prefetch"):
        case = loads[label.replace("prefetch", "load")]
        use = {"memory": np.zeros(1 << 20, np.uint8), "base": BASE, "offsets": case.offsets}
        if answer.startswith("DIED"):
            assert answer == "DIED (cudaErrorIllegalInstruction)"
            with pytest.raises(sim.IllegalInstruction):
                sim.prefetch(tensor_map(case, BASE), case.coords, **use)
        else:
            sim.prefetch(tensor_map(case, BASE), case.coords, **use)


def test_the_script_asks_the_questions_that_the_recording_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GOLDEN))
    trials = [trial for ask in import_module("open_question_trials").TRIALS for trial in ask()]
    assert len(trials) == len(copies())
    for trial, answer in zip(trials, copies(), strict=True):
        case = trial.case
        if case.kind == IM2COL_LOAD and not case.offsets:  # a recording writes them out
            case = replace(case, offsets=(0,) * (case.parameters.rank - 2))
        assert (trial.question, trial.label, case) == (answer.question, answer.label, answer.case)
        memory, source = trial.contents()
        assert np.array_equal(memory, answer.memory)
        assert np.array_equal(source, answer.source)
