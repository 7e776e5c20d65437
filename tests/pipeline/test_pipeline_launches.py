"""Pipeline kernels up to the driver's call, without a GPU: what is launched, with which arguments."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from captured_streams import CapturedStreams

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops import short_way
from cupytma.pipeline import launch
from cupytma.runtime import captures
from cupytma.runtime import streams as runtime_streams
from cupytma.runtime.kernel import Kernel
from cupytma.targets import target

sys.path.append(str(Path(__file__).parents[1] / "runtime"))
import simulated_cuda
from fake_cuda import FakeCuda

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
PARTIAL = 0x7700000000
RESIDENT = 264


class Array:
    """A device array that is only an address, a shape and strides."""

    def __init__(self, address: int, like: Any, device: int = 0) -> None:
        self.data = SimpleNamespace(ptr=address, device_id=device)
        self.shape, self.strides, self.dtype = like.shape, like.strides, like.dtype
        self.__cuda_array_interface__ = {
            "version": 3, "typestr": like.dtype.str, "data": (address, False), "shape": like.shape,
            "strides": like.strides,
        }  # fmt: skip


class Stream(SimpleNamespace):
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> simulated_cuda.SimulatedCuda:
    """Launches that find a GPU and are made nowhere; new arrays lie at addresses that nothing else has."""
    cuda = simulated_cuda.SimulatedCuda(monkeypatch)
    made: list[int] = []
    known: list[Any] = []

    def empty(shape: Any, dtype: Any) -> Any:
        made.append(PARTIAL + len(made) * 2**24)
        return Array(made[-1], np.lib.stride_tricks.as_strided(np.zeros(1, dtype), np.zeros(shape, dtype).shape))

    def loaded(kernel: Any, plan: Any, chosen: Any) -> Any:
        module = compiled(kernel, plan, chosen)
        for name in module.kernels:
            found = module.kernel(name)
            if found not in known:  # modules outlive a test
                known.append(cuda.load(found))
        return module

    compiled = tma.pipeline.PipelineKernel.module
    stream = Stream(ptr=77)
    module = SimpleNamespace(cuda=SimpleNamespace(Device=lambda n: simulated_cuda.Device(cuda, n)), empty=empty)
    monkeypatch.setattr(tma.pipeline.PipelineKernel, "module", loaded)
    monkeypatch.setattr(launch, "cupy", lambda: module)
    monkeypatch.setattr(launch, "current_stream", lambda *_: stream)
    monkeypatch.setattr(launch, "current_target", lambda: target("sm_90a"))
    monkeypatch.setattr(launch, "multiprocessors", lambda: 132)
    monkeypatch.setattr(launch, "allocate", lambda size, handle: empty(size, "u1").data)
    monkeypatch.setattr(Kernel, "persistent_grid", lambda *_: RESIDENT)
    return cuda


def words(argument: bytes, kind: str = "<u8") -> Any:
    return np.frombuffer(argument[: len(argument) // 8 * 8], kind)


def test_a_launch_has_the_arrays_of_its_call(cuda: simulated_cuda.SimulatedCuda) -> None:
    kernel = tma.pipeline_kernel(
        "out = scale * a + b - n", "float32 a, float32 b", "float32 out", scalars="float32 scale, int32 n"
    )
    like = np.zeros((600, 512), np.float32)
    for shift in (0, 1 << 20):
        a, b, out = (Array(base + shift, like) for base in (0x10000000, 0x20000000, 0x30000000))
        assert kernel(a, b, out=out, scale=2.5, n=-3) is out
        made = cuda.launches.pop()
        assert [int(words(made.arguments[n])[0]) for n in range(3)] == [array.data.ptr for array in (a, b, out)]
        assert np.frombuffer(made.arguments[4][:4], "f4")[0] == 2.5
        assert np.frombuffer(made.arguments[4][8:12], "i4")[0] == -3
        plan = kernel.plan(like, like)
        assert made.shape[:6] == (plan.tiles, 1, 1, 256 + 32, 1, 1)
        assert made.shape[6] == plan.variant.shared_bytes + 128
        assert made.stream == 77
        extent, count, *runs = np.frombuffer(made.arguments[3], "u4")
        assert (extent, count, runs) == (600 * 512, plan.tiles, [1, plan.tiles, plan.tiles])
    assert not cuda.launches
    assert len(kernel.prepared) == 1


def test_memory_that_an_array_has_lost_is_missed_whatever_was_launched_before(
    cuda: simulated_cuda.SimulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(short_way.short_ways, Array, short_way.OF_CUPY)
    kernel = tma.pipeline_kernel("out = a + b", "float32 a, float32 b", "float32 out")
    like = np.zeros((64, 512), np.float32)
    arrays = [Array(base, like) for base in (0x10000000, 0x20000000, 0x30000000)]
    for _ in range(2):
        kernel(*arrays[:2], out=arrays[2])
    for position, name in enumerate(("a", "b", "out")):
        given = [*arrays[:position], Array(0, like), *arrays[position + 1 :]]
        for _ in range(2):
            with pytest.raises(ArrayError, match=f"{name} has .* elements at a null address"):
                kernel(*given[:2], out=given[2])
    assert len(cuda.launches) == 2


def test_threads_that_meet_many_layouts_at_once_forget_without_failing() -> None:
    memory = launch.Memory()
    made = launch.Launches((), 0, ())
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda first: [memory.keep((first, n), made) for n in range(5000)], range(4)))
    finally:
        sys.setswitchinterval(before)
    assert launch.Memory.most <= len(memory) <= launch.Memory.most + 4


def test_arrays_of_known_types_take_the_short_way(
    cuda: simulated_cuda.SimulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(short_way.short_ways, Array, short_way.OF_CUPY)
    kernel = tma.pipeline_kernel("out = n * a", "float32 a", "float32 out", scalars="int32 n")
    like = np.zeros((64, 512), np.float32)
    kernel(Array(0x10000000, like), out=Array(0x20000000, like), n=1)
    monkeypatch.setattr(launch, "_launch", None)
    cuda.stream = 88
    kernel(Array(0x30000000, like), out=Array(0x40000000, like), n=2)
    made = cuda.launches[1]
    assert [int(words(made.arguments[n])[0]) for n in range(2)] == [0x30000000, 0x40000000]
    assert np.frombuffer(made.arguments[3][:4], "i4")[0] == 2
    assert made.stream == 88
    with pytest.raises(TypeError):  # which must be checked, the long way
        kernel(Array(0x30000000, like), out=Array(0x30000000, like), n=2)
    with pytest.raises(TypeError):
        kernel(Array(0x30000004, like), out=Array(0x40000000, like), n=2)


def test_large_arrays_have_a_grid_that_runs_all_at_once(cuda: simulated_cuda.SimulatedCuda) -> None:
    kernel = tma.pipeline_kernel("out = a", "float32 a", "float32 out")
    like = np.zeros((4096, 4096), np.float32)
    made = kernel(Array(0x10000000, like))
    assert made.__cuda_array_interface__["shape"] == like.shape
    assert cuda.launches[0].shape[0] == RESIDENT


def test_row_ends_and_arrays_without_a_map_are_told_as_strides(cuda: simulated_cuda.SimulatedCuda) -> None:
    kernel = tma.pipeline_kernel("out = a + b", "float32 a, float32 b", "float32 out")
    room = np.zeros((64, 336), np.float32)
    a, out = (Array(address, room[:, :331]) for address in (0x10000000, 0x30000000))
    b = Array(0x20000004, room[:, 1:332])
    kernel(a, b, out=out)
    a_map, out_map, _, b_array, out_array = cuda.launches[0].arguments
    assert (words(a_map)[0], words(out_map)[0]) == (0x10000000, 0x30000000)
    assert words(b_array, "<i8").tolist() == [0x20000004, 4, 336 * 4, 0]
    assert words(out_array, "<i8").tolist() == [0x30000000, 4, 336 * 4, 328]


def test_what_blocks_leave_is_combined_by_a_second_launch(cuda: simulated_cuda.SimulatedCuda) -> None:
    dot = tma.pipeline_kernel(
        "total += x * y", "float32 x, float32 y", reduce={"float32 total": "add"}, over="all", name="dot"
    )
    like, one = np.zeros((2048, 2048), np.float32), np.zeros((), np.float32)
    total = Array(0x30000000, one)
    dot(Array(0x10000000, like), Array(0x20000000, like), out=total)
    main, combine = cuda.launches
    assert (main.kernel, combine.kernel) == ("dot", "dot_combine")
    assert words(main.arguments[-1])[0] == words(combine.arguments[2])[0] == PARTIAL
    assert np.frombuffer(combine.arguments[3], "u4")[0] == main.shape[0] == RESIDENT
    assert words(combine.arguments[4])[0] == 1
    assert words(combine.arguments[1])[0] == words(main.arguments[3])[0] == 0x30000000


def test_rows_are_cut_where_there_are_few_of_them(cuda: simulated_cuda.SimulatedCuda) -> None:
    rows = tma.pipeline_kernel("total += x", "float32 x", reduce={"float32 total": "add"})
    for shape, launches in (((100000, 512), 1), ((16, 1 << 20), 2)):
        x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), shape, (4 * shape[1], 4))
        rows(Array(0x1000000000, x), out=Array(0x30000000, np.zeros(shape[0], np.float32)))
        assert len(cuda.launches) == launches
        cuda.launches.clear()


def test_overlap_is_found_for_each_call(cuda: simulated_cuda.SimulatedCuda) -> None:
    kernel = tma.pipeline_kernel("out = a", "float32 a", "float32 out")
    like = np.zeros((64, 512), np.float32)
    kernel(Array(0x10000000, like), out=Array(0x20000000, like))
    same = Array(0x10000000, like)
    kernel(same, out=same)
    with pytest.raises(ArrayError, match="out overlaps a"):
        kernel(Array(0x10000000, like), out=Array(0x10000400, like))
    assert len(cuda.launches) == 2


def test_empty_arrays_launch_nothing(cuda: simulated_cuda.SimulatedCuda) -> None:
    empty = np.zeros((0, 64), np.float32)
    kernel = tma.pipeline_kernel("out = a", "float32 a", "float32 out")
    kernel(Array(0x10000000, empty), out=Array(0x20000000, empty))
    total = tma.pipeline_kernel("total += a", "float32 a", reduce={"float32 total": "add"})
    total(Array(0x10000000, empty), out=Array(0x20000000, np.zeros(0, np.float32)))
    with pytest.raises(ArrayError, match="nothing to reduce"):
        total(Array(0x10000000, empty.T), out=Array(0x20000000, np.zeros(64, np.float32)))
    assert not cuda.launches


def test_arrays_of_other_places_are_refused(cuda: simulated_cuda.SimulatedCuda) -> None:
    kernel = tma.pipeline_kernel("out = a", "float32 a", "float32 out")
    like = np.zeros((64, 512), np.float32)
    with pytest.raises(ArrayError, match="a is in host memory"):
        kernel(like, out=Array(0x20000000, like))
    with pytest.raises(ArrayError, match="out is in host memory"):
        kernel(Array(0x20000000, like), out=like)
    assert not cuda.launches


def test_replays_of_a_graph_keep_the_memory_of_partial_results(
    cuda: simulated_cuda.SimulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tma.pipeline_kernel("total += a", "float32 a", reduce={"float32 total": "add"}, over="all")
    arguments = Array(0x10000000, np.zeros((4096, 512), np.float32)), Array(0x70000000, np.zeros((), np.float32))
    streams, module = CapturedStreams(monkeypatch, host := FakeCuda().cuda), SimpleNamespace(cuda=host)
    for place in (captures, runtime_streams):
        monkeypatch.setattr(place, "cupy", lambda: module)
    monkeypatch.setattr(captures, "as_cupy", lambda handle: Stream(ptr=handle))
    monkeypatch.setattr(launch, "allocate", captures.allocate)
    kernel(arguments[0], out=arguments[1])
    assert not captures._kept
    streams.begin(77)
    kernel(arguments[0], out=arguments[1])
    ((_, memory),) = captures._kept
    main, combine = cuda.launches[2:]
    assert words(main.arguments[-1])[0] == words(combine.arguments[2])[0] == memory.ptr
