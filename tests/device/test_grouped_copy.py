"""Copies of many arrays in one launch: every byte arrives, and none beside. The kernels run on the host here."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from captured_streams import CapturedStreams
from emulated_cuda import Array, EmulatedCuda, needs_compiler
from guarded import Guarded
from numpy.lib.stride_tricks import as_strided

import cupytma as tma
from cupytma.errors import ArrayError, CupytmaError
from cupytma.ops import group_errors
from cupytma.ops import grouped_copies as module
from cupytma.ops.group_errors import check_groups
from cupytma.ops.grouped_copies import grouped_copy

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    yield
    module._recent.clear()


def random_case(random: np.random.Generator, guarded: tuple[Guarded, Guarded]) -> tuple[np.ndarray, np.ndarray]:
    """A pair of arrays of one shape and of layouts of their own."""
    dtype = random.choice([np.uint8, np.float16, np.float32, np.float64])
    item = np.dtype(dtype).itemsize
    rank = int(random.integers(1, 6))
    shape = (*map(int, random.integers(1, 7, rank - 1)), int(random.integers(1, 400)))
    made = []
    for memory in guarded:
        aligned = random.random() < 0.6
        pitch = int(random.choice([0, 16, 48])) if aligned else int(random.choice([0, item, 3 * item]))
        if aligned and rank > 1:
            pitch += -(shape[-1] * item) % 16
        made.append(memory.array(shape, dtype, pitch, 0 if random.random() < 0.8 else item))
    return made[0], made[1]


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_random_arrays_arrive_and_nothing_beside_them_is_touched(cuda: EmulatedCuda, seed: int) -> None:
    random = np.random.default_rng(seed)
    guarded = Guarded(1 << 24, seed), Guarded(1 << 24, seed + 100)
    pairs = [random_case(random, guarded) for _ in range(60)]
    wanted = guarded[1].before.copy()
    for source, destination in pairs:
        guarded[1].place(wanted, destination)[...] = source
    returned = grouped_copy([Array.of(s) for s, _ in pairs], [Array.of(d) for _, d in pairs])
    assert len(returned) == 60
    np.testing.assert_array_equal(guarded[1].memory, wanted)
    np.testing.assert_array_equal(guarded[0].memory, guarded[0].before)
    assert cuda.launches == ["settle_pairs", "move_groups"]


def groups_of(prepared: Any) -> np.ndarray:
    """What the device found for each group."""
    pair = module.PAIR
    group = np.dtype([
        ("pair", pair), ("rest_start", "u8"), ("rest_words", "u8"), ("kind", "u4"), ("rest_word", "u4"),
        ("box", "u4", 5), ("counts", "u4", 5), ("tile_bytes", "u4"), ("shift", "u4"),
        ("tiles", "u4"), ("pad", "u4"),
    ])  # fmt: skip
    workspace = prepared.parts[0].workspace
    raw = (ctypes.c_uint8 * (group.itemsize * workspace.count)).from_address(int(workspace.work["groups"]))
    return np.frombuffer(raw, group)


@needs_compiler
def test_each_layout_moves_the_way_it_should(cuda: EmulatedCuda) -> None:
    memory = Guarded(1 << 20, 1), Guarded(1 << 20, 2)
    layouts = [
        ((40000,), np.uint8, 0, 0),  # one run of whole units
        ((33,), np.float32, 0, 0),  # 132 bytes: 128, and a word left
        ((64, 128), np.float32, 16, 0),  # rows apart: boxes
        ((9, 130), np.float16, 12, 0),  # boxes of 256 bytes, and 4 bytes of each row
        ((100,), np.uint8, 0, 1),  # off the 16 bytes
        ((3, 5), np.uint8, 11, 0),  # rows of 5 bytes
    ]
    pairs = [[m.array(shape, dtype, pitch, shift) for m in memory] for shape, dtype, pitch, shift in layouts]
    grouped_copy([Array.of(s) for s, _ in pairs], [Array.of(d) for _, d in pairs])
    for source, destination in pairs:
        np.testing.assert_array_equal(source, destination)
    views = [[tma.tensormap.arrays.view_of(Array.of(a)) for a in side] for side in zip(*pairs, strict=True)]
    prepared = module.prepare(*views, None, 0)
    prepared.launch(0)
    found = groups_of(prepared)
    assert found["kind"].tolist() == [1, 1, 2, 2, 0, 0]
    assert found["rest_words"].tolist() == [0, 1, 0, 1, 100, 5]
    assert found["rest_word"][[1, 3, 4, 5]].tolist() == [4, 4, 1, 1]
    assert found["tile_bytes"][2:4].tolist() == [8 * 512, 9 * 256]
    assert found["tiles"].tolist() == [0, 0, 8, 1, 0, 0]
    ends = np.frombuffer(
        (ctypes.c_uint64 * 12).from_address(int(prepared.parts[0].workspace.work["tile_ends"])), np.uint64
    )
    assert ends.tolist() == [10, 11, 13, 14, 14, 14, 0, 1, 1, 10, 110, 125]


@needs_compiler
def test_shapes_on_the_device_are_read_when_the_copy_runs(cuda: EmulatedCuda) -> None:
    random = np.random.default_rng(3)
    sources = [random.integers(0, 200, (20, 48), dtype=np.uint8) for _ in range(9)]
    destinations = [np.zeros((24, 48 if i % 2 else 64), np.uint8) for i in range(9)]
    shapes = np.stack([random.integers(0, 21, 9), random.integers(0, 49, 9)], 1).astype(np.int32)
    shapes[0], shapes[1], shapes[2] = (20, 48), (20, 48), (0, 5)
    arguments = [Array.of(a) for a in sources], [Array.of(a) for a in destinations]
    on_device = Array.of(shapes)
    for _ in range(2):
        for destination in destinations:
            destination[...] = 255
        grouped_copy(*arguments, shapes=on_device)
        for source, destination, (rows, columns) in zip(sources, destinations, shapes.tolist(), strict=True):
            wanted = np.full_like(destination, 255)
            wanted[:rows, :columns] = source[:rows, :columns]
            np.testing.assert_array_equal(destination, wanted)
        shapes[3:] = random.integers(0, 20, (6, 2))
    assert cuda.launches == ["settle_pairs", "move_groups"] * 2


@needs_compiler
def test_a_shape_on_the_device_that_does_not_fit_leaves_its_pair_out_and_is_raised_later(cuda: EmulatedCuda) -> None:
    sources, destinations = [np.ones((4, 16), np.uint8) for _ in range(3)], [np.zeros((4, 16), np.uint8) for _ in "abc"]
    shapes = np.array([[4, 16], [5, 16], [2, 16]], np.int64)
    arguments = [Array.of(a) for a in sources], [Array.of(a) for a in destinations]
    grouped_copy(*arguments, shapes=Array.of(shapes))
    assert [int(d.sum()) for d in destinations] == [64, 0, 32]
    with pytest.raises(ArrayError, match=r"grouped_copy: shapes\[1\] is not within 0 and the shapes"):
        check_groups()
    check_groups()
    shapes[1] = -1, 3
    grouped_copy(*arguments, shapes=Array.of(shapes))
    with pytest.raises(ArrayError, match=r"shapes\[1\]"):
        grouped_copy(*arguments)
    assert int(destinations[1].sum()) == 0
    grouped_copy(*arguments)
    assert int(destinations[1].sum()) == 64


@needs_compiler
def test_shapes_on_the_host_copy_the_leading_parts(cuda: EmulatedCuda) -> None:
    source, destination = np.arange(64, dtype=np.uint8).reshape(4, 16), np.zeros((6, 20), np.uint8)
    grouped_copy([Array.of(source)], [Array.of(destination)], shapes=[(3, 9)])
    wanted = np.zeros((6, 20), np.uint8)
    wanted[:3, :9] = source[:3, :9]
    np.testing.assert_array_equal(destination, wanted)
    with pytest.raises(ArrayError, match=r"shapes\[0\] = \(5, 9\) is not within 0 and \(4, 16\)"):
        grouped_copy([Array.of(source)], [Array.of(destination)], shapes=[(5, 9)])


@needs_compiler
def test_a_second_call_with_the_same_arrays_is_one_launch_and_with_others_is_not(cuda: EmulatedCuda) -> None:
    sources = [Array.of(np.full(64, i, np.uint8)) for i in range(5)]
    destinations = [Array.of(np.zeros(64, np.uint8)) for _ in range(5)]
    grouped_copy(sources, destinations)
    sources[2].host[...] = 77
    grouped_copy(list(sources), tuple(destinations))
    assert cuda.launches == ["settle_pairs", "move_groups", "move_groups"]
    assert destinations[2].host.tolist() == [77] * 64
    del sources[4], destinations[4]
    gc.collect()
    assert [p.is_alive for p in module._recent._known.values()] == [False]
    grouped_copy(sources, destinations)
    assert cuda.launches[3:] == ["settle_pairs", "move_groups"]


@needs_compiler
def test_empty_lists_and_empty_arrays_are_copied(cuda: EmulatedCuda) -> None:
    assert grouped_copy([], []) == []
    made = grouped_copy([Array.of(np.zeros((0, 3))), Array.of(np.ones((2, 2)))])
    assert made[1].host.tolist() == [[1, 1], [1, 1]]
    assert made[0].shape == (0, 3)


DEVICE = Array.of(np.zeros((4, 16), np.uint8))
OTHER = Array.of(np.zeros((4, 16), np.uint8))
THIRD = Array.of(np.zeros((4, 16), np.uint8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([DEVICE], []), "1 source and 0 destinations"),
        ((DEVICE, [OTHER]), "sources is a Array; a list of arrays is needed"),
        ((None, [OTHER]), "sources is a NoneType"),
        (([None], [OTHER]), r"sources\[0\]: .*no array"),
        (([np.zeros(3)], [OTHER]), r"sources\[0\] is in host memory"),
        (([DEVICE], [Array.of(np.zeros((4, 8), np.uint8))]), r"sources\[0\] and destinations\[0\]: the shapes differ"),
        (([DEVICE], [Array.of(np.zeros((4, 16), np.int8))]), "the types differ"),
        (([DEVICE, OTHER], [OTHER, THIRD]), r"sources\[1\] and destinations\[0\] overlap"),
        (([DEVICE, DEVICE], [OTHER, OTHER]), r"destinations\[0\] and destinations\[1\] overlap"),
        (([DEVICE], [Array.of(as_strided(OTHER.host, (4, 16), (8, 1)))]), "of the destination overlap"),
        (([DEVICE[:3]], [DEVICE[1:]]), "source and destination overlap"),
    ],
)
def test_what_cannot_be_copied_is_refused_before_anything_is_launched(
    cuda: EmulatedCuda, arguments: Any, message: str
) -> None:
    with pytest.raises(ArrayError, match=message):
        grouped_copy(*arguments)
    assert cuda.launches == []


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (Array.of(np.zeros((1, 3), np.int32)), r"shapes has shape \(1, 3\); \(1, 2\) is needed"),
        (Array.of(np.zeros((2, 2), np.int32)), r"\(1, 2\) is needed"),
        (Array.of(np.zeros((1, 2), np.float32)), "shapes is of float32"),
        ([[1.5, 2]], "whole numbers are needed"),
        ([[1, 2], [3]], "every row as long"),
        ("ab", "shape"),
        ([[None, 1]], "whole numbers are needed"),
    ],
)
def test_shapes_that_are_none_are_refused(cuda: EmulatedCuda, shapes: Any, message: str) -> None:
    with pytest.raises(CupytmaError, match=message):
        grouped_copy([DEVICE], [OTHER], shapes=shapes)
    assert cuda.launches == []


@needs_compiler
def test_column_slices_of_one_matrix_are_destinations_beside_one_another(cuda: EmulatedCuda) -> None:
    matrix = np.zeros((8, 40), np.uint8)
    parts = [Array.of(np.full((8, 10), i + 1, np.uint8)) for i in range(4)]
    grouped_copy(parts, [Array.of(matrix[:, 10 * i : 10 * i + 10]) for i in range(4)])
    assert matrix.tolist() == [[i + 1 for i in range(4) for _ in range(10)]] * 8


@needs_compiler
def test_what_a_graph_captures_settles_its_groups_at_every_replay_and_keeps_their_memory(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = CapturedStreams(monkeypatch, cuda.module.cuda)
    arrays = [Array.of(np.full(100, i, np.uint8)) for i in range(4)]
    streams.begin(7)
    for _ in range(2):
        grouped_copy(arrays[:2], arrays[2:], stream=7)
    prepared = weakref.ref(next(reversed(module._recent._known.values())))
    graph = streams.end(7)
    assert cuda.launches == ["settle_pairs", "move_groups"] * 2
    for _ in range(2):
        grouped_copy(arrays[:2], arrays[2:], stream=7)
    assert cuda.launches[4:] == ["settle_pairs", "move_groups", "move_groups"]
    module._recent.clear()
    gc.collect()
    assert prepared() is not None
    streams.destroy(graph)
    streams.begin(7)
    grouped_copy(arrays[:2], arrays[2:], stream=7)
    gc.collect()
    assert prepared() is None


@pytest.mark.parametrize("lost", [0, 1])
def test_dense_arrays_that_lost_their_memory_are_refused_by_their_place(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    class Lost(Array):
        data = SimpleNamespace(ptr=0, device_id=0)

        @property
        def __cuda_array_interface__(self) -> Any:
            return {**super().__cuda_array_interface__, "data": (0, False)}

    monkeypatch.setattr(cuda.module, "ndarray", Lost)
    lists = [[Lost((4,))], [Lost((4,))]]
    address = lists[1 - lost][0]
    address.data = SimpleNamespace(ptr=address.host.ctypes.data, device_id=0)
    with pytest.raises(CupytmaError, match=r"\[0\] has 4 elements at a null address"):
        grouped_copy(*lists)
    assert cuda.launches == []


@needs_compiler
def test_lists_of_the_caller_are_returned_as_they_are_and_not_kept(cuda: EmulatedCuda) -> None:
    sources, destinations = ([Array.of(np.full(100, i, np.uint8)) for i in several] for several in ((1, 2), (0, 0)))
    others = [Array.of(np.full(100, i, np.uint8)) for i in (3, 4)]
    for _ in range(3):
        before = list(sources), list(destinations)
        assert grouped_copy(sources, destinations) is destinations
        assert all(a is b for a, b in zip((*sources, *destinations), (*before[0], *before[1]), strict=True))
        assert grouped_copy(tuple(sources), tuple(destinations)) == destinations
    sources[1] = others[0]
    grouped_copy(sources, destinations)
    sources.reverse()
    grouped_copy(sources, destinations)
    assert [array.host[0] for array in destinations] == [3, 1]
    destinations[:] = others[1:] + destinations[:1]
    grouped_copy(sources, destinations)
    assert [array.host[0] for array in destinations] == [3, 1]
    with pytest.raises(CupytmaError, match="overlap"):
        grouped_copy(destinations, destinations[::-1])
    with pytest.raises(CupytmaError, match="2 sources and 1 destination"):
        grouped_copy(sources, destinations[:1])


@needs_compiler
def test_lists_that_change_while_they_are_prepared_are_those_that_are_kept_under_them(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, destinations = ([Array.of(np.full(100, i, np.uint8)) for i in several] for several in ((1, 2), (0, 0)))
    other, prepare = Array.of(np.full(100, 9, np.uint8)), module._prepare_dense

    def meanwhile(*given: Any) -> Any:
        found = prepare(*given)
        sources[1] = other
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, "_prepare_dense", meanwhile)
        grouped_copy(sources, destinations)
    grouped_copy(sources, destinations)
    assert [array.host[0] for array in destinations] == [1, 9]


@needs_compiler
def test_a_pair_of_more_dimensions_than_a_group_can_have_is_copied_by_itself(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Any] = []
    monkeypatch.setattr(module, "move", lambda source, axes, destination, stream: moved.append((source, destination)))
    source = np.zeros((2, 3, 2, 3, 2, 3, 4), np.uint8).transpose(5, 3, 1, 6, 4, 2, 0)
    plain = np.arange(9, dtype=np.uint8)
    made = grouped_copy([Array.of(source), Array.of(plain)], [Array.of(source.copy()), Array.of(plain * 0)])
    assert [(a.shape, b.shape) for a, b in moved] == [(source.shape, source.shape)]
    assert moved[0][0].address == source.ctypes.data
    np.testing.assert_array_equal(made[1].host, plain)


class Awkward:
    """Refuses whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Any:
        raise KeyError("no")


class Nowhere:
    """An array without memory."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "version": 3, "shape": (4,), "typestr": "<f4", "data": (0, False), "strides": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((Awkward(),), {}, "sources is a Awkward; a list of arrays"),
        (([Awkward()],), {}, r"sources\[0\] cannot be read"),
        (([Array((4,))], Awkward()), {}, "destinations is a Awkward"),
        (([Array((4,))], [Awkward()]), {}, r"destinations\[0\] cannot be read"),
        (([Array((4,))], [Array((4,))]), {"shapes": Awkward()}, "shapes = .*: whole numbers"),
        (([Array((4,))], [Array((4,))]), {"shapes": np.array([[2**64 - 1]], np.uint64)}, "is more than"),
        (([Array((4,))], [Array((4,))]), {"stream": Awkward()}, "stream = .*: a stream of CuPy"),
        (([Nowhere()],), {}, "4 elements at a null address"),
        (([Array((4,), np.float32)], [Nowhere()]), {}, "4 elements at a null address"),
    ],
)
def test_whatever_is_no_array_is_refused_by_its_place(
    cuda: EmulatedCuda, arguments: Any, options: Any, message: str
) -> None:
    with pytest.raises(CupytmaError, match=message):
        grouped_copy(*arguments, **options)
    assert cuda.launches == []


@needs_compiler
def test_a_call_beside_a_graph_has_a_workspace_of_its_own(cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [Array.of(np.ones((8, 8)))], [Array.of(np.zeros((8, 8)))]
    shapes = Array.of(np.array([[4, 4]]))
    streams, used = CapturedStreams(monkeypatch, cuda.module.cuda), []
    for is_captured in (False, True, False, True, True):
        if is_captured:
            streams.begin(7)
        for _ in range(2):
            grouped_copy(*arrays, shapes=shapes, stream=7)
            used.append(next(reversed(module._recent._known.values())))
        if is_captured:
            streams.end(7)
    number = {id(prepared): i for i, prepared in enumerate(dict.fromkeys(used))}
    # A capture takes over what calls before it have used; those after it get another, and so does another capture.
    assert [number[id(prepared)] for prepared in used] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


@needs_compiler
@pytest.mark.parametrize("was_called", [False, True])
def test_graphs_of_one_call_share_a_workspace_only_if_neither_writes_it(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch, was_called: bool
) -> None:
    arrays = [Array.of(np.ones((8, 8)))], [Array.of(np.zeros((8, 8)))]
    streams, used = CapturedStreams(monkeypatch, cuda.module.cuda), []
    if was_called:
        grouped_copy(*arrays, stream=7)
        cuda.launches.clear()
    for _ in range(2):
        streams.begin(7)
        grouped_copy(*arrays, stream=7)
        used.append(next(reversed(module._recent._known.values())))
        streams.end(7)
    assert cuda.launches == (["move_groups"] if was_called else ["settle_pairs", "move_groups"]) * 2
    assert (used[0] is used[1]) == was_called


@needs_compiler
def test_what_a_failed_capture_prepared_is_not_found_outside_of_it(
    cuda: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only replays would bring the device what the host says of the groups."""
    arrays = [Array.of(np.ones((8, 8)))], [Array.of(np.zeros((8, 8)))]
    streams = CapturedStreams(monkeypatch, cuda.module.cuda)
    streams.begin(7)
    with monkeypatch.context() as patch:
        patch.setattr(group_errors, "raise_noted", lambda device: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            grouped_copy(*arrays, stream=7)
    prepared = next(reversed(module._recent._known.values()))
    streams.end(7)
    grouped_copy(*arrays, stream=7)
    assert next(reversed(module._recent._known.values())) is not prepared


@needs_compiler
def test_threads_with_default_streams_of_their_own_settle_for_themselves(cuda: EmulatedCuda) -> None:
    arrays = [Array.of(np.ones((8, 8)))], [Array.of(np.zeros((8, 8)))]
    for _ in range(2):
        thread = Thread(target=grouped_copy, args=arrays, kwargs={"stream": 2})
        thread.start()
        thread.join()
    assert cuda.launches == ["settle_pairs", "move_groups"] * 2
    for _ in range(2):
        grouped_copy(*arrays, stream=2)
    assert cuda.launches[4:] == ["settle_pairs", "move_groups", "move_groups"]


@needs_compiler
def test_rows_are_joined_no_further_than_coordinates_reach(cuda: EmulatedCuda) -> None:
    row = 12 << 30  # bytes; two that lie together are more than 2^31 words

    class Far:
        def __init__(self, address: int) -> None:
            self.__cuda_array_interface__ = {
                "version": 3, "shape": (2, 2, row), "typestr": "|u1", "data": (address, False),
                "strides": (2 * row + 16, row, 1),
            }  # fmt: skip

    views = [[tma.tensormap.arrays.view_of(Far(address))] for address in (1 << 45, 1 << 46)]
    prepared = module.prepare(*views, Array.of(np.array([[2, 2, row]])), 0)
    prepared.parts[0].settling(0)
    (group,) = groups_of(prepared)
    assert (group["kind"], group["pair"]["run"], group["pair"]["outer_rank"]) == (2, row, 2)
    address = int(prepared.parts[0].workspace.work["maps"])
    held = tma.TensorMap.from_bytes(bytes((ctypes.c_uint8 * 128).from_address(address))).decode()
    assert held.global_dim == (row // 8, 2, 2)
