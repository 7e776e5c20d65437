"""On a GPU: operations on many arrays at once, with a pattern around every destination."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from guarded import Guarded
from test_grouped_copy import random_case
from test_grouped_transpose import matrices
from test_ragged import ROWS, lengths

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.transposition import SHAPES
from cupytma.runtime import captures

pytestmark = pytest.mark.gpu


class Device:
    """A host memory's image in device memory, with the same arrays in it."""

    def __init__(self, guarded: Guarded) -> None:
        import cupy

        self.guarded = guarded
        self.memory = cupy.zeros(len(guarded.memory) + 4096, cupy.uint8)
        start = -self.memory.data.ptr % 4096
        self.memory = self.memory[start : start + len(guarded.memory)]
        self.memory.set(guarded.before)

    def array(self, host: np.ndarray) -> Any:
        import cupy

        offset = host.ctypes.data - self.guarded.memory.ctypes.data
        dtype = np.dtype("c16") if host.dtype == np.dtype("V16") else host.dtype
        return cupy.ndarray(host.shape, dtype, self.memory.data + offset, host.strides)


@pytest.mark.parametrize("seed", range(6))
def test_random_arrays_arrive_and_nothing_beside_them_is_touched(seed: int) -> None:
    random = np.random.default_rng(seed)
    guarded = Guarded(1 << 26, seed), Guarded(1 << 26, seed + 100)
    pairs = [random_case(random, guarded) for _ in range(300)]
    wanted = guarded[1].before.copy()
    for source, destination in pairs:
        guarded[1].place(wanted, destination)[...] = source
    on_device = tuple(map(Device, guarded))
    sources, destinations = ([d.array(pair[i]) for pair in pairs] for i, d in enumerate(on_device))
    for _ in range(2):
        tma.grouped_copy(sources, destinations)
        np.testing.assert_array_equal(on_device[1].memory.get(), wanted)
        on_device[1].memory.set(guarded[1].before)
    np.testing.assert_array_equal(on_device[0].memory.get(), guarded[0].before)


@pytest.mark.parametrize("strided", [False, True])
def test_four_thousand_arrays_of_random_shapes_are_exact(strided: bool) -> None:
    import cupy

    random = np.random.default_rng(1)
    sizes = np.exp2(random.uniform(10, 20 if strided else 22, 4096)).astype(int)
    generator = cupy.random.default_rng(2)
    pool = generator.integers(0, 255, 1 << 24, dtype=cupy.uint8)
    sources, destinations = [], []
    for size in sizes.tolist():
        start = int(random.integers(0, (len(pool) - size - 1) // 16)) * 16
        if strided:
            columns = int(random.integers(16, 512))
            rows = max(1, size // 512)
            sources.append(pool[start : start + rows * 512].reshape(rows, 512)[:, :columns])
            destinations.append(cupy.zeros((rows, 640), cupy.uint8)[:, :columns])
        else:
            sources.append(pool[start : start + size])
            destinations.append(cupy.zeros(size, cupy.uint8))
    tma.grouped_copy(sources, destinations)
    for source, destination in zip(sources, destinations, strict=True):
        assert bool((source == destination).all())
        if strided:
            assert not bool(destination.base[:, destination.shape[1] :].any())


@pytest.mark.parametrize("size", SHAPES)
def test_random_matrices_are_transposed_and_nothing_beside_them_is_touched(size: int) -> None:
    for seed in range(4):
        guarded = Guarded(1 << 23, size), Guarded(1 << 23, size + 1)
        pairs = matrices(size, 10 * seed + size, guarded)
        wanted = guarded[1].before.copy()
        for source, destination in pairs:
            guarded[1].place(wanted, destination)[...] = source.T
        on_device = tuple(map(Device, guarded))
        tma.grouped_transpose(*([d.array(pair[i]) for pair in pairs] for i, d in enumerate(on_device)))
        np.testing.assert_array_equal(on_device[1].memory.get(), wanted)


def test_large_matrices_are_transposed() -> None:
    import cupy

    generator, random = cupy.random.default_rng(5), np.random.default_rng(5)
    sources = [generator.random(tuple(map(int, random.integers(1, 3000, 2))), dtype=cupy.float32) for _ in range(40)]
    for source, made in zip(sources, tma.grouped_transpose(sources), strict=True):
        assert bool((made == source.T).all())


@pytest.mark.parametrize(("trailing", "dtype", "ragged_pitch", "padded_pitch"), ROWS)
def test_ragged_batches_there_and_back(
    trailing: tuple[int, ...], dtype: Any, ragged_pitch: int, padded_pitch: int
) -> None:
    import cupy

    guarded = Guarded(1 << 25, 1), Guarded(1 << 25, 2), Guarded(1 << 25, 3)
    count = lengths(3, 150, 60)
    offsets = np.concatenate([[2], 2 + np.cumsum(count)]).astype(np.int32)
    total = int(offsets[-1]) + 3
    pitched = (0, 0) if len(trailing) == 0 else (ragged_pitch, padded_pitch)
    ragged = guarded[0].array((total, *trailing), dtype, pitched[0])
    padded = guarded[1].array((150, 60, *trailing), dtype, pitched[1])
    back = guarded[2].array((total, *trailing), dtype, pitched[0])
    wanted, returned = guarded[1].before.copy(), guarded[2].before.copy()
    place = guarded[1].place(wanted, padded)
    place[...] = 0
    for i in range(150):
        place[i, : count[i]] = ragged[offsets[i] : offsets[i + 1]]
    guarded[2].place(returned, back)[2 : total - 3] = ragged[2 : total - 3]
    devices = tuple(map(Device, guarded))
    arrays = [d.array(host) for d, host in zip(devices, (ragged, padded, back), strict=True)]
    given = cupy.asarray(offsets)
    tma.ragged_gather(arrays[0], given, arrays[1])
    np.testing.assert_array_equal(devices[1].memory.get(), wanted)
    tma.ragged_scatter(arrays[1], given, arrays[2])
    np.testing.assert_array_equal(devices[2].memory.get(), returned)
    tma.ops.check_groups()


def test_shapes_on_the_device_are_read_at_every_replay_of_a_graph() -> None:
    import cupy

    sources = [cupy.full((64, 256), i + 1, cupy.uint8) for i in range(50)]
    destinations = [cupy.zeros((64, 256), cupy.uint8) for _ in range(50)]
    shapes, stream = cupy.full((50, 2), 1, cupy.int32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    tma.grouped_copy(sources, destinations, shapes=shapes, stream=stream)
    with stream:
        stream.begin_capture()
        # A call that waits for the device could not be captured.
        tma.grouped_copy(sources, destinations, shapes=shapes, stream=stream)
        graph = stream.end_capture()
    random = np.random.default_rng(0)
    for _ in range(3):
        rows = np.stack([random.integers(0, 65, 50), random.integers(0, 257, 50)], 1).astype(np.int32)
        for destination in destinations:
            destination.fill(0)
        shapes.set(rows)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        for i, (height, width) in enumerate(rows.tolist()):
            wanted = np.zeros((64, 256), np.uint8)
            wanted[:height, :width] = i + 1
            np.testing.assert_array_equal(destinations[i].get(), wanted)


def test_a_shape_that_does_not_fit_is_raised_and_its_pair_left_out() -> None:
    import cupy

    sources, destinations = [cupy.ones((8, 64))] * 3, [cupy.zeros((8, 64)) for _ in range(3)]
    tma.grouped_copy(sources, destinations, shapes=cupy.asarray([[8, 64], [9, 64], [1, 1]]))
    with pytest.raises(ArrayError, match=r"shapes\[1\]"):
        tma.check_groups()
    assert [float(d.sum()) for d in destinations] == [512, 0, 1]


def test_the_same_arrays_on_another_stream_and_new_arrays_in_their_place_are_copied() -> None:
    import cupy

    sources, destinations = ([cupy.full(5000 + i, i, cupy.float32) for i in range(40)] for _ in range(2))
    for stream in (None, cupy.cuda.Stream(non_blocking=True), None):
        for destination in destinations:
            destination.fill(-1)
        cupy.cuda.Device().synchronize()
        tma.grouped_copy(sources, destinations, stream=stream)
        cupy.cuda.Device().synchronize()
        assert all(bool((s == d).all()) for s, d in zip(sources, destinations, strict=True))
    for turn in range(20):  # memory and objects come again with other shapes
        del sources, destinations
        sources = [cupy.full(3000 + 100 * turn + i, turn, cupy.float32) for i in range(40)]
        destinations = [cupy.zeros_like(source) for source in sources]
        tma.grouped_copy(sources, destinations)
        assert all(bool((s == d).all()) for s, d in zip(sources, destinations, strict=True))


def test_tensors_of_torch_are_copied_on_torchs_stream() -> None:
    torch = pytest.importorskip("torch")
    sources = [torch.full((64, 100 + i), i, dtype=torch.bfloat16, device="cuda") for i in range(30)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        made = tma.grouped_copy(sources)
        again = tma.grouped_copy(made)
    stream.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(sources, again, strict=True))
    assert all(isinstance(tensor, torch.Tensor) for tensor in again)


def test_more_dimensions_than_a_group_can_have_are_copied_too() -> None:
    import cupy

    array = cupy.arange(2**14, dtype=cupy.int16).reshape(2, 4, 2, 4, 2, 4, 32).transpose(5, 3, 1, 6, 4, 2, 0)
    made = tma.grouped_copy([array, cupy.ones(3)])
    assert bool((made[0] == array).all())
    assert made[1].get().tolist() == [1, 1, 1]


def test_replays_and_calls_on_another_stream_do_not_meet_in_one_workspace() -> None:
    import cupy

    sources = [cupy.full((64, 256), i + 1, cupy.uint8) for i in range(200)]
    destinations = [cupy.zeros((64, 256), cupy.uint8) for _ in range(200)]
    shapes = cupy.full((200, 2), 64, cupy.int32)
    stream, beside = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    tma.grouped_copy(sources, destinations, shapes=shapes, stream=stream)
    with stream:
        stream.begin_capture()
        tma.grouped_copy(sources, destinations, shapes=shapes, stream=stream)
        graph = stream.end_capture()
    for _ in range(200):
        graph.launch(beside)
        tma.grouped_copy(sources, destinations, shapes=shapes, stream=stream)
    cupy.cuda.Device().synchronize()
    for i, destination in enumerate(destinations):
        assert bool((destination[:, :64] == i + 1).all())
        assert not bool(destination[:, 64:].any())


def test_a_matrix_that_was_given_another_shape_in_place_is_turned_by_that() -> None:
    import cupy

    source, turned = cupy.arange(64 * 96, dtype=cupy.float32).reshape(64, 96).copy(), cupy.zeros((96, 64), cupy.float32)
    for shape in ((64, 96), (96, 64), (32, 192)):
        source.shape, turned.shape = shape, shape[::-1]
        tma.grouped_transpose([source], [turned])
        np.testing.assert_array_equal(turned.get(), source.get().T)


_GROUPS, _EXTENT = 1000, 64


def _copied(whole: np.ndarray, rows: np.ndarray) -> np.ndarray:
    wanted = np.zeros_like(whole)
    for i, (height, width) in enumerate(rows):
        wanted[i, :height, :width] = whole[i, :height, :width]
    return wanted


def _gathered(whole: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    wanted, ragged = np.zeros_like(whole), whole.reshape(-1, _EXTENT)
    for i, (first, end) in enumerate(pairwise(offsets)):
        wanted[i, : end - first] = ragged[first:end]
    return wanted


class ManyGroups:
    """A call on many arrays in two blocks of memory: `call` it on a stream; `wanted` is what it writes."""

    def __init__(self, name: str) -> None:
        import cupy

        random = np.random.default_rng(0)
        whole = random.integers(1, 256, (_GROUPS, _EXTENT, _EXTENT), dtype=np.uint8)
        rows = random.integers(0, _EXTENT + 1, (_GROUPS, 2))
        offsets = np.concatenate([[0], np.cumsum(rows[:, 0])])
        source, self.written = cupy.asarray(whole), cupy.zeros_like(cupy.asarray(whole))
        lists, ragged = (list(source), list(self.written)), source.reshape(-1, _EXTENT)
        shapes, starts = cupy.asarray(rows), cupy.asarray(offsets)
        calls: dict[str, tuple[Callable[[Any], Any], Callable[[], np.ndarray]]] = {
            "copies": (lambda stream: tma.grouped_copy(*lists, stream=stream), lambda: whole),
            "copies of parts": (
                lambda stream: tma.grouped_copy(*lists, shapes=shapes, stream=stream), lambda: _copied(whole, rows),
            ),
            "transposes": (
                lambda stream: tma.grouped_transpose(*lists, stream=stream), lambda: whole.transpose(0, 2, 1),
            ),
            "transposes of parts": (
                lambda stream: tma.grouped_transpose(*lists, shapes=shapes, stream=stream),
                lambda: _copied(whole, rows).transpose(0, 2, 1),
            ),
            "a ragged batch": (
                lambda stream: tma.ragged_gather(ragged, starts, self.written, stream=stream),
                lambda: _gathered(whole, offsets),
            ),
            "a ragged batch of the host's offsets": (
                lambda stream: tma.ragged_gather(ragged, offsets, self.written, stream=stream),
                lambda: _gathered(whole, offsets),
            ),
        }  # fmt: skip
        self.call, wanted = calls[name]
        self.wanted = cupy.asarray(wanted())

    def captured(self, stream: Any) -> Any:
        with stream:
            stream.begin_capture()
            self.call(stream)
            return stream.end_capture()

    def check_replays(self, *launches: Callable[[], None]) -> None:
        """Nothing is written but what is wanted, by graphs that run at the same time."""
        import cupy

        self.written.fill(0)
        cupy.cuda.Device().synchronize()
        for _ in range(3):
            for launch in launches:
                launch()
        cupy.cuda.Device().synchronize()
        assert bool((self.written == self.wanted).all())


@pytest.mark.parametrize("was_called", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "copies", "copies of parts", "transposes", "transposes of parts", "a ragged batch",
        "a ragged batch of the host's offsets",
    ],
)  # fmt: skip
def test_two_graphs_of_one_call_are_replayed_at_the_same_time(name: str, was_called: bool) -> None:
    """And while the call itself is made on a third stream."""
    import cupy

    streams, groups = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)], ManyGroups(name)
    cupy.cuda.Device().synchronize()
    groups.call(streams[0] if was_called else streams[2])  # kernels are loaded before anything is captured
    cupy.cuda.Device().synchronize()
    graphs = [groups.captured(streams[0]) for _ in range(2)]
    for _ in range(100):
        groups.check_replays(
            lambda: graphs[0].launch(streams[0]), lambda: graphs[1].launch(streams[1]), lambda: groups.call(streams[2])
        )
    tma.check_groups()


def test_a_graph_that_is_replayed_alone_first_needs_no_other() -> None:
    """The second to be captured brings the device all that the host says."""
    import cupy

    stream, groups = cupy.cuda.Stream(non_blocking=True), ManyGroups("copies")
    groups.call(None)
    cupy.cuda.Device().synchronize()
    _, second = [groups.captured(stream) for _ in range(2)]
    groups.check_replays(lambda: second.launch(stream))


def test_the_memory_of_a_graph_is_free_when_it_is_gone_and_not_before() -> None:
    import cupy

    stream, groups = cupy.cuda.Stream(non_blocking=True), ManyGroups("copies of parts")
    groups.call(None)
    cupy.cuda.Device().synchronize()
    captures._drop()
    before = len(captures._kept)
    graphs = [groups.captured(stream) for _ in range(2)]
    held = len(captures._kept) - before
    assert held > 0
    graphs[0].launch(stream)
    del graphs[0]
    gc.collect()
    for _ in range(200):  # CUDA lets go in a thread of its own
        captures._drop()
        if len(captures._kept) - before <= held // 2:
            break
        time.sleep(0.05)
    assert len(captures._kept) - before == held // 2
    for _ in range(20):
        groups.check_replays(lambda: graphs[0].launch(stream))
    captures._drop()
    assert len(captures._kept) - before == held // 2


def test_torch_captures_calls_whose_memory_is_allocated_then() -> None:
    """In the mode of capture that forbids allocations."""
    torch = pytest.importorskip("torch")
    whole = torch.randint(0, 256, (200, 64, 64), dtype=torch.uint8, device="cuda")
    shapes = torch.full((200, 2), 40, dtype=torch.int32, device="cuda")
    tma.grouped_copy([whole[0]], [torch.empty_like(whole[0])], shapes=shapes[:1])  # kernels are loaded
    written = [torch.zeros_like(whole) for _ in range(2)]
    graphs = [torch.cuda.CUDAGraph() for _ in written]
    for graph, result in zip(graphs, written, strict=True):
        with torch.cuda.graph(graph):
            tma.grouped_copy(list(whole), list(result), shapes=shapes)
    for _ in range(20):
        for graph in graphs:
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.replay()
        torch.cuda.synchronize()
        for result in written:
            assert torch.equal(result[:, :40, :40], whole[:, :40, :40])
            assert not bool(result[:, 40:].any() | result[:, :, 40:].any())
            result.zero_()
        torch.cuda.synchronize()
