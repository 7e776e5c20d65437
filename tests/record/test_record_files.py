"""Recordings as files, and held against the simulator."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupytma import record
from cupytma.errors import CupytmaError, SimulationError
from cupytma.record.drawing import draw_cases
from cupytma.record.recording import ROW, memory_contents

GOLDEN = Path(__file__).parents[1] / "golden" / "hardware_cases.npz"


@pytest.fixture(scope="module")
def made() -> record.Recording:
    cases, (memory, source) = draw_cases(80, 2), memory_contents(2)
    seen = tuple(record.predict(case, memory, source) for case in cases)
    return record.Recording(cases, seen, 2, {"device": "none", "counted": "yes"})


def test_a_recording_is_read_back_as_it_was_written(made: record.Recording, tmp_path: Path) -> None:
    made.save(tmp_path / "name without suffix")
    read = record.read(tmp_path / "name without suffix")
    assert (read.cases, read.seed, read.about) == (made.cases, made.seed, made.about)
    for ours, theirs in zip(made.observations, read.observations, strict=True):
        assert (ours.outcome, ours.transaction_bytes, ours.error) == (
            theirs.outcome, theirs.transaction_bytes, theirs.error,
        )  # fmt: skip
        np.testing.assert_array_equal(ours.image, theirs.image)


def test_the_columns_are_those_of_the_recordings_there_are(made: record.Recording, tmp_path: Path) -> None:
    made.save(tmp_path / "made.npz")
    with np.load(GOLDEN) as golden, np.load(tmp_path / "made.npz") as file:
        assert set(golden.files) <= set(file.files)
        theirs = golden["cases"].dtype
        assert theirs.names == ROW.names
        for name in set(ROW.names or ()) - {"rec"}:
            assert ROW[name] == theirs[name]
        for name in ROW["rec"].names or ():
            assert ROW["rec"][name] == theirs["rec"][name]


def test_a_changed_byte_count_or_death_is_a_disagreement(made: record.Recording) -> None:
    def differs(number: int, **changes: object) -> list[int]:
        seen = list(made.observations)
        seen[number] = replace(seen[number], **changes)
        changed = record.Recording(made.cases, tuple(seen), made.seed, made.about)
        return [one.number for one in record.disagreements(changed)]

    load = next(i for i, case in enumerate(made.cases) if case.is_load)
    store = next(i for i, c in enumerate(made.cases) if not c.is_load and len(made.observations[i].image))
    assert list(record.disagreements(made)) == []
    for number in (load, store):
        image = made.observations[number].image.copy()
        image[-1] ^= 1
        assert differs(number, image=image) == [number]
        assert differs(number, outcome=2, error="cudaErrorIllegalInstruction") == [number]
    assert differs(load, transaction_bytes=made.observations[load].transaction_bytes + 16) == [load]
    assert differs(load, outcome=0) == [load]
    assert differs(load, image=made.observations[load].image[:-1]) == [load]


@pytest.mark.parametrize("contents", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_other_files_are_refused(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(contents)
    with pytest.raises(SimulationError, match="is no recording of copies"):
        record.read(tmp_path / "file")


def _spoiled(column: np.ndarray) -> list[np.ndarray]:
    """Columns of other shapes, types and values."""
    found = [column.reshape(-1)[: column.size // 2], np.zeros(0, column.dtype), np.array(["x"]), np.array(3)]
    found += [np.array(-1), np.array([None], object), np.full(column.shape, np.nan), np.array([], np.float64)]
    if column.dtype.names:
        for name in column.dtype.names:
            for byte in (0x7F, 0xFF):
                other = column.copy()
                other[name] = np.frombuffer(bytes([byte]) * other.dtype[name].itemsize, other.dtype[name])[0]
                found.append(other)
    return found


@pytest.mark.parametrize("name", ["cases", "images", "seed", "errors", "about"])
def test_a_damaged_recording_is_refused_or_compared_and_no_other_error_comes(
    name: str, made: record.Recording, tmp_path: Path
) -> None:
    made.save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as file:
        columns = dict(file)
    for spoiled in _spoiled(columns[name]):
        np.savez(tmp_path / "spoiled.npz", **columns | {name: spoiled})
        with contextlib.suppress(CupytmaError):
            recording = record.read(tmp_path / "spoiled.npz")
            list(record.disagreements(recording))
            record.undescribed(recording)
    data = bytearray((tmp_path / "whole.npz").read_bytes())
    for place in range(0, len(data), max(1, len(data) // 60)):
        (tmp_path / "spoiled.npz").write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        with contextlib.suppress(CupytmaError):
            record.read(tmp_path / "spoiled.npz")


@pytest.mark.parametrize("path", [None, 5, 1.5, []])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(SimulationError, match=r"path is .*; it must be the path of a file"):
        record.read(path)


def test_arrays_of_something_else_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", cases=np.zeros(3), images=np.zeros(3), seed=1)
    np.savez(tmp_path / "half.npz", cases=np.zeros(3))
    for name, message in (("array.npy", "lacks cases"), ("other.npz", "rows lack rec"), ("half.npz", "lacks images")):
        with pytest.raises(SimulationError, match=message):
            record.read(tmp_path / name)
    with pytest.raises(SimulationError, match="cannot be read: No such file"):
        record.read(tmp_path / "missing.npz")
