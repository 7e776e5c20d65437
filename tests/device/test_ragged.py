"""Ragged batches to padded arrays and back: every row arrives, zeros follow, and nothing beside them is written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from captured_streams import CapturedStreams
from emulated_cuda import Array, EmulatedCuda, needs_compiler
from guarded import Guarded

from cupytma.errors import ArrayError
from cupytma.ops import ragged as module
from cupytma.ops.group_errors import check_groups
from cupytma.ops.ragged import ragged_gather, ragged_scatter
from cupytma.runtime import captures
from cupytma.runtime.transfer import Staging

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    yield
    module._recent.clear()


# Trailing shape, dtype, and bytes between the rows of either array.
ROWS = [
    ((64,), np.float32, 0, 0),
    ((64,), np.float32, 16, 32),
    ((10,), np.float32, 8, 24),  # rows of 40 bytes: 32 of them, and two words
    ((3,), np.uint8, 0, 0),
    ((), np.int64, 0, 0),
    ((4, 24), np.float16, 0, 0),
    ((2, 3, 16), np.uint8, 16, 0),
    ((300,), np.uint8, 1, 0),
]


def lengths(seed: int, sequences: int, most: int) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, most + 1, sequences)
    found[0], found[-1] = most, 0
    return found


@needs_compiler
@pytest.mark.parametrize(("trailing", "dtype", "ragged_pitch", "padded_pitch"), ROWS)
@pytest.mark.parametrize("device", [True, False])
def test_there_and_back(
    cuda: EmulatedCuda, trailing: tuple[int, ...], dtype: Any, ragged_pitch: int, padded_pitch: int, device: bool
) -> None:
    guarded = Guarded(1 << 22, 1), Guarded(1 << 22, 2), Guarded(1 << 22, 3)
    count = lengths(len(trailing), 11, 19)
    offsets = np.concatenate([[2], 2 + np.cumsum(count)]).astype(np.int32)
    total = int(offsets[-1]) + 3
    pitched = (0, 0) if len(trailing) == 0 else (ragged_pitch, padded_pitch)
    ragged = guarded[0].array((total, *trailing), dtype, pitched[0])
    padded = guarded[1].array((11, 19, *trailing), dtype, pitched[1])
    back = guarded[2].array((total, *trailing), dtype, pitched[0])
    wanted, returned = guarded[1].before.copy(), guarded[2].before.copy()
    place = guarded[1].place(wanted, padded)
    place[...] = 0
    for i, (first, end) in enumerate(pairwise(offsets)):
        place[i, : end - first] = ragged[first:end]
    guarded[2].place(returned, back)[2 : total - 3] = ragged[2 : total - 3]

    given = Array.of(offsets) if device else offsets
    result = Array.of(padded)
    assert ragged_gather(Array.of(ragged), given, result) is result
    np.testing.assert_array_equal(guarded[1].memory, wanted)
    ragged_scatter(Array.of(padded), given, Array.of(back))
    np.testing.assert_array_equal(guarded[2].memory, returned)
    assert cuda.launches == ["settle_ragged", "move_groups"] * 2


@needs_compiler
def test_new_padded_arrays_have_the_longest_sequences_rows_or_those_asked_for(cuda: EmulatedCuda) -> None:
    ragged = Array.of(np.arange(24, dtype=np.float64).reshape(12, 2))
    assert ragged_gather(ragged, [0, 5, 5, 12]).shape == (3, 7, 2)
    made = ragged_gather(ragged, Array.of(np.array([0, 5, 12])), rows=8)
    assert made.host[1, :, 0].tolist() == [10, 12, 14, 16, 18, 20, 22, 0]
    assert ragged_gather(ragged, [0]).shape == (0, 0, 2)


@needs_compiler
def test_offsets_on_the_device_that_do_not_fit_leave_their_sequence_out(cuda: EmulatedCuda) -> None:
    ragged, padded = np.arange(32, dtype=np.float32).reshape(8, 4), np.full((3, 4, 4), -1, np.float32)
    for offsets in ([0, 4, 2, 6], [0, 4, 9, 9], [0, 4, -1, 3]):
        padded[...] = -1
        ragged_gather(Array.of(ragged), Array.of(np.array(offsets)), Array.of(padded))
        np.testing.assert_array_equal(padded[0], ragged[:4])
        assert (padded[1] == -1).all()
        with pytest.raises(ArrayError, match=r"ragged_gather: offsets\[[12]\] and offsets\[[23]\] are not in order"):
            check_groups()
    out = np.zeros((8, 4), np.float32)
    ragged_scatter(Array.of(padded[:2]), Array.of(np.array([0, 5, 8])), Array.of(out))
    assert (out[:5] == 0).all()
    with pytest.raises(ArrayError, match=r"ragged_scatter: offsets\[0\]"):
        ragged_scatter(Array.of(padded[:2]), Array.of(np.array([0, 4, 8])), Array.of(out))


RAGGED, PADDED = Array.of(np.zeros((8, 4), np.float32)), Array.of(np.zeros((2, 5, 4), np.float32))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((RAGGED, [0, 4, 8], Array.of(np.zeros((2, 5, 3), np.float32))), {}, "the same trailing extents"),
        ((RAGGED, [0, 4, 8], Array.of(np.zeros((2, 5, 4), np.float64))), {}, "types differ"),
        ((RAGGED, [0, 8], PADDED), {}, "offsets are of 1 sequence, and padded has 2"),
        ((RAGGED, [0, 4, 9], PADDED), {}, r"offsets\[1\] = 4 and offsets\[2\] = 9 are not in order within 0 and 8"),
        ((RAGGED, [0, 6, 8], PADDED), {}, "sequence 0 has 6 rows, and padded has 5"),
        ((RAGGED, [0.5, 4, 8], PADDED), {}, "whole numbers"),
        ((RAGGED, [3, 0]), {}, r"offsets\[0\] = 3 and offsets\[1\] = 0 are not in order"),
        ((RAGGED, np.array([0, 2**64 - 1], np.uint64)), {}, "18446744073709551615 is more than"),
        ((RAGGED, Array.of(np.array([0, 4, 8]))), {"rows": 2**63}, "rows = 9223372036854775808 is outside"),
        ((RAGGED, None, PADDED), {}, "offsets"),
        ((RAGGED, [], PADDED), {}, r"\(sequences \+ 1,\) is needed"),
        ((RAGGED, [0, 4, 8], PADDED), {"rows": 3}, "rows is for a new padded array"),
        ((RAGGED, Array.of(np.array([0, 4, 8]))), {}, "only the device knows"),
        ((RAGGED, [0, 4, 8]), {"rows": -1}, "rows = -1 is outside"),
        ((RAGGED, [0, 4, 8]), {"rows": "x"}, "rows: 'x' is no whole number"),
        ((np.zeros((8, 4)), [0, 4, 8], PADDED), {}, "ragged is in host memory"),
        ((RAGGED, Array.of(np.array([0.0, 4, 8])), PADDED), {}, "offsets is of float64"),
        ((Array.of(PADDED.host.reshape(10, 4)), [0, 4, 8], PADDED), {}, "ragged and padded overlap"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_launched(
    cuda: EmulatedCuda, arguments: Any, options: Any, message: str
) -> None:
    with pytest.raises(ArrayError, match=message):
        ragged_gather(*arguments, **options)
    assert cuda.launches == []


@needs_compiler
def test_a_batch_that_was_given_another_shape_is_gathered_by_that(cuda: EmulatedCuda) -> None:
    ragged, padded = Array.of(np.arange(32.0).reshape(8, 4)), Array.of(np.zeros((2, 8, 4)))
    offsets = Array.of(np.array([0, 2, 5]))
    ragged_gather(ragged, offsets, padded)
    ragged.host, padded.host = ragged.host.reshape(16, 2), padded.host.reshape(2, 16, 2)  # as by ragged.shape = (16, 2)
    ragged_gather(ragged, offsets, padded)
    np.testing.assert_array_equal(padded.host[1, :4, 0], [4, 6, 8, 0])


@needs_compiler
def test_offsets_of_the_host_live_as_long_as_a_graph_that_uploads_them(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    CapturedStreams(monkeypatch, cuda.module.cuda).begin(7)
    ragged_gather(RAGGED, [0, 4, 8], PADDED, stream=7)
    (held,) = (kept._captured for _, kept in captures._kept if isinstance(kept, Staging))
    arrays = [entry for entry in held if isinstance(entry, Array)]
    assert [entry.get().tolist() for entry in arrays] == [[0, 4, 8]]
    assert any(bytes(entry)[:24] == np.array([0, 4, 8]).tobytes() for entry in held if not isinstance(entry, Array))


@needs_compiler
def test_sequences_that_have_rows_do_not_fit_a_padded_array_that_has_none(cuda: EmulatedCuda) -> None:
    ragged_gather(RAGGED, Array.of(np.array([0, 0, 0])), rows=0)
    check_groups()
    ragged_gather(RAGGED, Array.of(np.array([0, 0, 3])), rows=0)
    with pytest.raises(ArrayError, match=r"offsets\[1\] and offsets\[2\]"):
        check_groups()
    ragged_scatter(Array.of(np.zeros((2, 0, 4), np.float32)), Array.of(np.array([0, 2, 2])), RAGGED)
    with pytest.raises(ArrayError, match=r"ragged_scatter: offsets\[0\]"):
        check_groups()
