"""Operations on arrays that come again at the same addresses, without a GPU: launched as if they were new."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import remembered
from test_prepared_operations import HALF, OTHER, THIRD, array, prepared_on, simulated_cuda

import cupytma as tma
from cupytma.errors import ArrayError, DriverError, LaunchError, RowIndexError
from cupytma.ops import array_copy, index_errors, noted_failures, short_way
from cupytma.runtime import places, streams

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> simulated_cuda.SimulatedCuda:
    return prepared_on(simulated_cuda.SimulatedCuda(monkeypatch), monkeypatch)


def made(cuda, operation) -> list[tuple]:
    """What an operation launches."""
    before = len(cuda.launches)
    operation()
    return [
        (one.kernel, id(one.module), one.shape, one.stream, one.device, one.arguments) for one in cuda.launches[before:]
    ]


def made_anew(cuda, monkeypatch: pytest.MonkeyPatch, operation) -> list[tuple]:
    """What an operation launches where nothing is remembered."""
    with monkeypatch.context() as patch:
        remembered.forget(patch, array_copy)
        return made(cuda, operation)


def strided(place: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "<f4"):
    found = array(place, *shape, dtype=dtype)
    found.strides = strides
    return found


MATRIX = array(HALF, 300, 504), array(OTHER, 300, 504)
WAYS = {
    "one run": (tma.copy, (array(1 << 40, 2**23), array(1 << 41, 2**23)), {}, "bulk_copy"),
    "a short run": (tma.copy, MATRIX, {}, "copy_words_1d"),
    "rows": (tma.copy, (strided(HALF, (300, 100), (2016, 4)), array(OTHER, 300, 100)), {}, "tile_copy_2d"),
    "short rows": (tma.copy, (strided(HALF, (300, 8), (2016, 4)), array(OTHER, 300, 8)), {}, "copy_words_2d"),
    "granules": (tma.copy, (array(HALF + 4, 999), array(OTHER, 999)), {}, "copy_granules_1d"),
    "transpose": (tma.transpose, (array(HALF, 504, 500),), {"out": array(OTHER, 500, 504)}, "transpose"),
    "fill": (tma.fill, (array(OTHER, 1000), 2), {}, "fill"),
    "owned reduction": (tma.reduce_add, MATRIX[::-1], {}, "vector_reduce_1d"),
    "atomic reduction": (tma.reduce_add, MATRIX[::-1], {"atomic": True}, "tile_reduce_2d"),
    "gather": (
        tma.gather_rows, (array(HALF, 5000, 256), array(THIRD, 900, dtype="<i8")), {"out": array(OTHER, 900, 256)},
        "gather_rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_third_call_at_the_same_addresses_launches_the_same_bytes(cuda, monkeypatch, way: str) -> None:
    operation, arguments, options, kernel = WAYS[way]

    def call() -> None:
        operation(*arguments, **options)

    first = made(cuda, call)
    assert [launch[0] for launch in first] == [kernel]
    assert made(cuda, call) == first
    monkeypatch.setattr(array_copy, "_move_described", None)  # it is not asked again
    assert made(cuda, call) == first
    assert made(cuda, call) == first


SOURCE, DESTINATION = array(HALF, 300, 504), array(OTHER, 300, 504)
INTEGERS = array(OTHER, 300, 504, dtype="<i4"), array(HALF, 300, 504, dtype="<i4")
OTHERS = {
    "another source": lambda: tma.copy(array(HALF + 0x10000, 300, 504), DESTINATION),
    "a source in another line": lambda: tma.copy(array(HALF + 16, 300, 504), DESTINATION),
    "another destination": lambda: tma.copy(SOURCE, array(OTHER + 0x10000, 300, 504)),
    "another shape": lambda: tma.copy(array(HALF, 299, 504), array(OTHER, 299, 504)),
    "other strides": lambda: tma.copy(strided(HALF, (300, 504), (4096, 4)), DESTINATION),
    "the other way round": lambda: tma.copy(DESTINATION, SOURCE),
    "another type": lambda: tma.copy(array(HALF, 300, 504, dtype="<f8"), array(OTHER, 300, 504, dtype="<f8")),
    "other axes": lambda: tma.permute(SOURCE, (1, 0), out=array(OTHER, 504, 300)),
    "sums": lambda: tma.reduce_add(DESTINATION, SOURCE),
    "sums of integers": lambda: tma.reduce_add(*INTEGERS),
    "maxima": lambda: tma.reduce_max(*INTEGERS),
    "maxima by others at the same time": lambda: tma.reduce_max(*INTEGERS, atomic=True),
    "a flip": lambda: tma.flip(SOURCE, 0, out=DESTINATION),
    "another flip": lambda: tma.flip(SOURCE, 1, out=DESTINATION),
    "a fill": lambda: tma.fill(DESTINATION, 1),
    "another fill": lambda: tma.fill(DESTINATION, 2),
}


def test_what_differs_in_anything_is_another_operation(cuda, monkeypatch) -> None:
    """Each of them twice, so that all are remembered, and then again."""
    for call in OTHERS.values():
        made(cuda, call)
        made(cuda, call)
    found = {name: made(cuda, call) for name, call in OTHERS.items()}
    for name, call in OTHERS.items():
        assert found[name] == made_anew(cuda, monkeypatch, call), name
    assert len({repr(launches) for launches in found.values()}) == len(OTHERS)
    assert len(array_copy._addressed._known) == len(OTHERS)


def test_the_current_stream_and_the_arrays_device_are_those_of_the_moment(cuda) -> None:
    for _ in range(3):
        tma.copy(SOURCE, DESTINATION)
    cuda.stream = 77
    tma.copy(SOURCE, DESTINATION)
    cuda.device = 1
    tma.copy(SOURCE, DESTINATION)
    assert [launch.stream for launch in cuda.launches] == [0, 0, 0, 77, 77]
    assert [launch.device for launch in cuda.launches] == [0] * 5
    assert cuda.device == 1


def test_overlap_is_refused_every_time(cuda) -> None:
    for _ in range(4):
        with pytest.raises(ArrayError, match="overlap"):
            tma.copy(array(HALF, 64), array(HALF + 128, 64))
    assert not cuda.launches
    assert not array_copy._addressed._known


@pytest.mark.parametrize("way", WAYS)
def test_memory_that_an_array_has_lost_is_missed_whatever_was_launched_before(cuda, way: str) -> None:
    """As a tensor's whose storage was resized to nothing, and whose shape stays."""
    operation, arguments, options, _ = WAYS[way]
    arrays = [array for array in (*arguments, *options.values()) if hasattr(array, "data")]
    for _ in range(3):
        operation(*arguments, **options)
    before = len(cuda.launches)
    for lost in arrays:
        place, lost.data.ptr = lost.data.ptr, 0
        try:
            for _ in range(3):
                with pytest.raises(ArrayError, match="elements at a null address"):
                    operation(*arguments, **options)
        finally:
            lost.data.ptr = place
    assert len(cuda.launches) == before
    operation(*arguments, **options)
    assert len(cuda.launches) > before


def test_arrays_without_elements_need_no_memory(cuda) -> None:
    for _ in range(3):
        tma.copy(array(0, 0, 4), array(0, 0, 4))
        tma.gather_rows(array(HALF, 4, 256), array(0, 0, dtype="<i8"), array(0, 0, 256))
    assert not cuda.launches


def test_an_index_out_of_range_is_told_of_by_the_next_call_however_often_rows_have_moved(cuda, monkeypatch) -> None:
    x, index, out = array(HALF, 5000, 256), array(THIRD, 900, dtype="<i8"), array(OTHER, 900, 256)
    for _ in range(3):
        tma.gather_rows(x, index, out)
    tag = index_errors.tag_of(("gather_rows", 5000))
    noted = np.array([tag << noted_failures.POSITION_BITS | 8, 2**64 - 5], np.uint64)
    monkeypatch.setitem(index_errors._failures._records, 0, (None, noted))
    with pytest.raises(RowIndexError, match=r"index\[7\] = -5 is out of range: the table has 5000 rows"):
        tma.gather_rows(x, index, out)
    assert len(cuda.launches) == 3
    tma.gather_rows(x, index, out)
    assert len(cuda.launches) == 4


def test_what_the_driver_refuses_is_an_error_of_the_launch(cuda) -> None:
    for _ in range(3):
        tma.copy(SOURCE, DESTINATION)
    cuda.answer = 1
    with pytest.raises(DriverError, match="copy_words_1d"):
        tma.copy(SOURCE, DESTINATION)
    cuda.answer = 0
    tma.copy(SOURCE, DESTINATION)
    assert len(cuda.launches) == 4


class TensorType(str):
    """A dtype of torch."""

    @property
    def is_complex(self) -> bool:
        return "complex" in self


class Tensor:
    """What is read of a tensor of torch; strides are in elements."""

    is_nested = False

    def __init__(self, place: int, shape: tuple[int, ...], dtype: str, itemsize: int, **flags: bool) -> None:
        self.place, self.shape, self.itemsize, self.flags = place, shape, itemsize, flags
        self.dtype = TensorType(f"torch.{dtype}")
        self.device = SimpleNamespace(type="cuda", index=0)

    def data_ptr(self) -> int:
        return self.place

    def get_device(self) -> int:
        return 0

    def element_size(self) -> int:
        return self.itemsize

    def stride(self) -> tuple[int, ...]:
        return tuple(int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape)))

    def is_contiguous(self) -> bool:
        return True

    def is_conj(self) -> bool:
        return self.flags.get("conj", False)

    def is_neg(self) -> bool:
        return self.flags.get("neg", False)


@pytest.fixture
def torch(cuda, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Torch, as far as copies ask it."""
    module = SimpleNamespace(
        Tensor=Tensor, nn=SimpleNamespace(Parameter=type("Parameter", (Tensor,), {})),
        cuda=SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=55)),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 55),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(places, "readers", dict(places.readers))
    for kind in (Tensor, module.nn.Parameter):
        monkeypatch.setitem(short_way.short_ways, kind, None)  # and at the end what was learnt is forgotten
        del short_way.short_ways[kind]
    return module


@pytest.mark.parametrize("flag", ["conj", "neg"])
@pytest.mark.parametrize("which", [0, 1])
def test_lazy_views_of_torch_are_refused_also_where_their_memory_has_been_copied(cuda, torch, flag, which) -> None:
    whole = [Tensor(place, (300, 64), "complex64", 8) for place in (HALF, OTHER)]
    for _ in range(4):
        tma.copy(*whole)
    assert len(array_copy._addressed._known) == 1
    assert [launch.stream for launch in cuda.launches] == [55] * 4
    lazy = list(whole)
    lazy[which] = Tensor(whole[which].place, (300, 64), "complex64", 8, **{flag: True})
    with pytest.raises(ArrayError, match=f"lazy {flag} view"):
        tma.copy(*lazy)
    assert len(cuda.launches) == 4


def test_tensors_of_other_types_at_the_same_address_are_told_apart(cuda, torch) -> None:
    for _ in range(4):
        tma.copy(*(Tensor(place, (4096, 2048), "float32", 4) for place in (1 << 40, 1 << 41)))
    tma.copy(*(Tensor(place, (4096, 2048), "float64", 8) for place in (1 << 40, 1 << 41)))
    *_, bytes_of_four, bytes_of_eight = [int.from_bytes(launch.arguments[2], "little") for launch in cuda.launches]
    assert (bytes_of_four, bytes_of_eight) == (4096 * 2048 * 4, 4096 * 2048 * 8)


class Protocol:
    """A stream of a library that says its handle by the CUDA stream protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 88


@pytest.mark.parametrize(
    ("stream", "handle"),
    [(88, 88), (0, 0), (np.int64(88), 88), (SimpleNamespace(cuda_stream=88), 88), (SimpleNamespace(ptr=88), 88),
     (Protocol(), 88)],
)  # fmt: skip
def test_streams_of_any_library_and_handles_are_launched_on(cuda, stream, handle: int) -> None:
    tma.copy(SOURCE, DESTINATION, stream=stream)
    tma.gather_rows(array(HALF, 500, 256), array(THIRD, 9, dtype="<i8"), array(OTHER, 9, 256), stream=stream)
    assert [launch.stream for launch in cuda.launches] == [handle, handle]
    assert not cuda.waits, "the arrays name no stream whose work there is to wait for"


class Produced(type(SOURCE)):
    """An array that was written in a stream."""

    writer: int | None = None

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {**super().__cuda_array_interface__, "stream": self.writer}


@pytest.mark.parametrize(
    ("writer", "stream", "waits"),
    [
        (66, 88, [(88, 66)]), (66, SimpleNamespace(cuda_stream=88), [(88, 66)]), (66, 66, []), (1, 88, [(88, 0)]),
        (1, 0, []), (1, 1, []), (2, 1, [(0, 2)]), (66, None, [(77, 66)]), (77, None, []), (None, 88, []),
    ],
)  # fmt: skip
def test_the_stream_waits_for_what_wrote_the_arrays(cuda, writer, stream, waits) -> None:
    cuda.stream = 77
    source = Produced(HALF, (300, 504), "<f4")
    source.writer = writer
    tma.copy(source, DESTINATION, stream=stream)
    assert cuda.waits == waits
    assert len(cuda.launches) == 1


@pytest.mark.parametrize("stream", ["main", True, -1, 1.5, 1 << 64, object()])
def test_what_is_no_stream_is_refused(cuda, stream) -> None:
    with pytest.raises(LaunchError, match="a stream of CuPy or torch"):
        tma.copy(SOURCE, DESTINATION, stream=stream)
    with pytest.raises(LaunchError, match="a stream of CuPy or torch"):
        streams.wait_for(None, stream)
    assert not cuda.launches


def test_results_are_allocated_in_the_stream_that_writes_them(cuda, monkeypatch) -> None:
    """Whose handle alone is known: memory of CuPy's is taken from that stream's pool."""
    entered: list[int] = []
    monkeypatch.setattr(simulated_cuda.Stream, "__enter__", lambda self: entered.append(self.ptr), raising=False)
    monkeypatch.setattr(simulated_cuda.Stream, "__exit__", lambda *_: None, raising=False)
    monkeypatch.setattr(cuda.cupy, "empty", lambda shape, dtype: array(OTHER, *shape, dtype=dtype), raising=False)
    for stream in (88, 0, SimpleNamespace(cuda_stream=66), cuda.cupy.cuda.Stream(cuda, 55)):
        assert tma.copy(SOURCE, stream=stream).shape == SOURCE.shape
    assert entered == [88, 0, 66, 55] == [launch.stream for launch in cuda.launches]


@pytest.mark.parametrize("axes", [("add", False), (1.0, 0.0), ("1", "0"), None, 3, (None, 0), ["add", False]])
def test_axes_are_integers_whatever_was_prepared_between_the_arrays(cuda, axes) -> None:
    one, other = array(HALF, 64, 64), array(OTHER, 64, 64)
    for _ in range(3):
        tma.reduce_add(other, one)
        tma.permute(one, (1, 0), out=other)
    before = len(cuda.launches)
    with pytest.raises(ArrayError, match="axes = "):
        tma.permute(one, axes, out=other)
    assert len(cuda.launches) == before


def test_threads_that_move_rows_first_at_the_same_time_note_failures_in_one_place(monkeypatch) -> None:
    made = []

    def slow(size: int) -> np.ndarray:
        together.wait(0.2) if not made else None
        made.append(np.zeros(size, np.uint8).view(Pinned))
        return made[-1]

    class Pinned(np.ndarray):
        ptr = property(lambda self: self.ctypes.data)

    together = threading.Event()
    cuda = SimpleNamespace(Device=lambda number: nullcontext(), alloc_pinned_memory=slow)
    monkeypatch.setattr(noted_failures, "cupy", lambda: SimpleNamespace(cuda=cuda))
    failures = noted_failures.NotedFailures(lambda call, position, word: ArrayError(f"{call} {position} {word}"))
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: failures.record_address(0), range(8)))
        tags = list(pool.map(lambda i: (i, failures.tag_of(("gather_rows", i))), range(64)))
    assert len(made) == len(set(places)) == 1
    for i, tag in tags:
        made[0].view(np.uint64)[:] = tag << noted_failures.POSITION_BITS | 5, 9
        with pytest.raises(ArrayError, match=rf"\('gather_rows', {i}\) 4 9"):
            failures.raise_noted(0)
        failures.raise_noted(0)  # once
