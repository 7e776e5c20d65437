"""Launches on a GPU: shapes, clusters, plans, streams, graphs, threads, other libraries' arrays."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import LaunchError

pytestmark = pytest.mark.gpu

WRITE = """
extern "C" __global__ void write_value(int* out, int value) { *out = value; }
extern "C" __global__ void add_value(int* out, int value) { atomicAdd(out, value); }
"""
CLUSTER = """
#include <cupytma.cuh>
__device__ unsigned rank_in_cluster() { unsigned r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ unsigned cluster_size() { unsigned r; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)); return r; }
extern "C" __global__ void ranks(unsigned* out) {
    out[2 * blockIdx.x] = rank_in_cluster();
    out[2 * blockIdx.x + 1] = cluster_size();
}
extern "C" __global__ void __cluster_dims__(4, 1, 1) fixed(unsigned* out) {
    out[2 * blockIdx.x] = rank_in_cluster();
    out[2 * blockIdx.x + 1] = cluster_size();
}
extern "C" __global__ void __launch_bounds__(64) narrow(unsigned* out) { *out = blockDim.x; }
"""
TILE = """
#include <cupytma.cuh>
extern "C" __global__ void first(const __grid_constant__ CUtensorMap map, float* out, int x, int y) {
    __shared__ alignas(128) float tile[32];
    __shared__ unsigned long long loaded;
    cupytma::mbarrier_init(&loaded, 1);
    cupytma::fence_mbarrier_init();
    cupytma::mbarrier_arrive_expect_tx_sink(&loaded, sizeof tile);
    cupytma::tensor_load_2d(tile, &map, x, y, &loaded);
    cupytma::mbarrier_wait_parity(&loaded, 0);
    for (int i = 0; i < 32; ++i) out[i] = tile[i];
}
struct Maps { CUtensorMap map[3]; };
extern "C" __global__ void several(const __grid_constant__ Maps maps, float* out) {
    __shared__ alignas(128) float tile[32];
    __shared__ unsigned long long loaded;
    cupytma::mbarrier_init(&loaded, 1);
    cupytma::fence_mbarrier_init();
    for (int i = 0; i < 3; ++i) {
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, sizeof tile);
        cupytma::tensor_load_2d(tile, &maps.map[i], 0, 0, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, i & 1);
        out[i] = tile[0];
    }
}
"""


@pytest.fixture(scope="module")
def write() -> tma.runtime.Module:
    return tma.compile(WRITE)


@pytest.fixture(scope="module")
def clusters() -> tma.runtime.Module:
    return tma.compile(CLUSTER)


@pytest.fixture(scope="module")
def tiles() -> tma.runtime.Module:
    return tma.compile(TILE)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_a_launch_in_clusters_has_clusters_of_that_size(clusters, size: int) -> None:
    import cupy

    out = cupy.full(64, 99, cupy.uint32)
    clusters.kernel("ranks")(32, 1, (out,), cluster=size)
    ranks, sizes = out.get().reshape(32, 2).T
    assert ranks.tolist() == [block % size for block in range(32)]
    assert set(sizes.tolist()) == {size}


def test_a_kernel_with_cluster_dimensions_needs_none_from_the_launch(clusters) -> None:
    import cupy

    out = cupy.zeros(16, cupy.uint32)
    for cluster in (None, 4, (4, 1, 1)):
        out[:] = 0
        clusters.kernel("fixed")(8, 1, (out,), cluster=cluster)
        assert out.get().reshape(8, 2)[:, 1].tolist() == [4] * 8
    with pytest.raises(LaunchError, match=r"compiled with __cluster_dims__ of \(4, 1, 1\)"):
        clusters.kernel("fixed")(8, 1, (out,), cluster=2)
    with pytest.raises(LaunchError, match=r"no whole number of clusters .* use \(8, 1, 1\)"):
        clusters.kernel("fixed")(6, 1, (out,))


def test_more_threads_than_the_kernel_was_compiled_for_are_refused(clusters) -> None:
    import cupy

    with pytest.raises(LaunchError, match="at most 64"):
        clusters.kernel("narrow")(1, 128, (cupy.zeros(1, cupy.uint32),))


def test_blocks_of_a_cooperative_launch_wait_for_one_another() -> None:
    import cupy

    source = """
    extern "C" __global__ void meet(unsigned* count, unsigned* seen) {
        if (threadIdx.x != 0) return;
        atomicAdd(count, 1u);
        while (atomicAdd(count, 0u) < gridDim.x) {}
        seen[blockIdx.x] = *(volatile unsigned*)count;
    }
    """
    kernel = tma.compile(source).kernel("meet")
    grid = kernel.persistent_grid(1024)
    count, seen = cupy.zeros(1, cupy.uint32), cupy.zeros(grid, cupy.uint32)
    kernel(grid, 1024, (count, seen), cooperative=True)
    assert seen.get().tolist() == [grid] * grid
    with pytest.raises(LaunchError, match=r"refuses to launch meet .*cooperative"):
        kernel(grid + 1, 1024, (count, seen), cooperative=True)


def test_a_programmatic_launch_sees_what_the_kernel_before_it_wrote() -> None:
    import cupy

    source = """
    extern "C" __global__ void first(int* data, int value) {
        asm volatile("griddepcontrol.launch_dependents;");
        for (int i = 0; i < 1000; ++i) __nanosleep(100);
        data[threadIdx.x] = value;
    }
    extern "C" __global__ void second(const int* data, int* out) {
        asm volatile("griddepcontrol.wait;" ::: "memory");
        out[threadIdx.x] = data[threadIdx.x] + 1;
    }
    """
    module = tma.compile(source)
    data, out = cupy.zeros(128, cupy.int32), cupy.zeros(128, cupy.int32)
    for value in range(5):
        module.kernel("first")(1, 128, (data, value), programmatic=True)
        module.kernel("second")(1, 128, (data, out), programmatic=True)
        assert out.get().tolist() == [value + 1] * 128


def test_occupancy_is_that_of_the_driver(clusters) -> None:
    kernel = clusters.kernel("ranks")
    assert kernel.max_active_blocks(1024) == 2
    assert kernel.max_active_blocks(128, 200 * 1024) == 1
    multiprocessors = tma.runtime.multiprocessors()
    assert kernel.persistent_grid(1024) == 2 * multiprocessors
    assert kernel.persistent_grid(1024, tiles=5) == 5
    most = kernel.max_active_clusters(1024, 2)
    assert 0 < most <= multiprocessors
    assert kernel.persistent_grid(1024, cluster=2) == 2 * most
    assert kernel.persistent_grid(1024, cluster=2, tiles=5) == 6


def test_dynamic_beside_static_shared_memory_is_allowed_up_to_the_limit() -> None:
    import cupy

    source = """
    extern "C" __global__ void k(int* out, int words) {
        __shared__ int fixed[64];
        extern __shared__ int shared[];
        fixed[threadIdx.x] = threadIdx.x;
        shared[words - 1] = 7;
        __syncthreads();
        *out = shared[words - 1] + fixed[0];
    }
    """
    kernel, out = tma.compile(source).kernel("k"), cupy.zeros(1, cupy.int32)
    for shared_bytes in (48 * 1024 - 256, 48 * 1024 - 4, 48 * 1024, 100 * 1024, 227 * 1024 - 256):
        out[:] = 0
        kernel(1, 1, (out, shared_bytes // 4), shared_bytes=shared_bytes)
        assert int(out[0]) == 7
    with pytest.raises(LaunchError, match="the kernel itself has 256 B"):
        kernel(1, 1, (out, 1), shared_bytes=227 * 1024)


def test_several_tensor_maps_go_to_one_struct(tiles) -> None:
    import cupy

    arrays = [cupy.full((8, 32), value, cupy.float32) for value in (3, 5, 7)]
    maps = [tma.tensor_map(array, box=(1, 32)) for array in arrays]
    out = cupy.zeros(3, cupy.float32)
    tiles.kernel("several")(1, 1, (maps, out))
    assert out.get().tolist() == [3, 5, 7]
    with pytest.raises(LaunchError, match=r"2 tensor maps, 256 B, .* the kernel declares a struct of 384 B"):
        tiles.kernel("several")(1, 1, (maps[:2], out))


def test_a_plan_makes_the_launch_again_and_again(write) -> None:
    import cupy

    out = cupy.zeros(1, cupy.int32)
    plan = write.kernel("add_value").plan(1, 1, (out, 3))
    for _ in range(4):
        plan()
    assert int(out[0]) == 12
    plan.set(1, 100)
    plan()
    assert int(out[0]) == 112


def test_a_plan_takes_a_new_address_or_array_for_its_map(tiles) -> None:
    import cupy

    sources = [cupy.random.default_rng(seed).random((64, 32), dtype=cupy.float32) for seed in range(3)]
    out = cupy.zeros(32, cupy.float32)
    plan = tiles.kernel("first").plan(1, 1, (tma.tensor_map(sources[0], box=(1, 32)), out, 0, 5))
    plan()
    np.testing.assert_array_equal(out.get(), sources[0].get()[5])
    plan.set(0, sources[1])
    plan()
    np.testing.assert_array_equal(out.get(), sources[1].get()[5])
    plan.set(0, sources[2].data.ptr)
    plan.set(3, 6)
    plan()
    np.testing.assert_array_equal(out.get(), sources[2].get()[6])
    with pytest.raises(LaunchError, match=r"argument 0 of kernel first: .*shape"):
        tiles.kernel("first").plan(1, 1, (tma.tensor_map(sources[0], box=(1, 32)), out, 0, 5)).set(0, sources[1][:8])
    with pytest.raises(LaunchError, match=r"argument 0 of kernel first: .*16"):
        plan.set(0, sources[2].data.ptr + 4)
    plan()
    np.testing.assert_array_equal(out.get(), sources[2].get()[6])


def test_a_plan_keeps_the_arrays_alive_that_it_works_on(tiles) -> None:
    import cupy

    source, out = cupy.arange(32 * 4, dtype=cupy.float32).reshape(4, 32), cupy.zeros(32, cupy.float32)
    expected, alive = source.get()[2], weakref.ref(source)
    plan = tiles.kernel("first").plan(1, 1, (tma.tensor_map(source, box=(1, 32)), out, 0, 2))
    del source
    gc.collect()
    others = [cupy.full((4, 32), -1, cupy.float32) for _ in range(64)]  # would be given the memory were it free
    plan()
    np.testing.assert_array_equal(out.get(), expected)
    assert alive() is not None
    plan.set(0, others[0])
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("kind", ["cupy", "handle", "torch", "protocol"])
def test_a_launch_takes_streams_of_any_library(write, kind: str) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        given = torch.cuda.ExternalStream(stream.ptr)
    elif kind == "protocol":
        given = type("Other", (), {"__cuda_stream__": lambda self: (0, stream.ptr)})()
    else:
        given = stream if kind == "cupy" else stream.ptr
    out = cupy.zeros(1, cupy.int32)
    cupy.cuda.Device().synchronize()
    write.kernel("write_value")(1, 1, (out, 5), stream=given)
    stream.synchronize()
    assert int(out[0]) == 5
    plan = write.kernel("write_value").plan(1, 1, (out, 6), stream=given)
    plan()
    stream.synchronize()
    assert int(out[0]) == 6


def test_arrays_of_torch_are_worked_on_in_torchs_current_stream() -> None:
    torch = pytest.importorskip("torch")
    slow = tma.compile("""
    extern "C" __global__ void slow(int* out, int value) {
        for (int i = 0; i < 3000; ++i) __nanosleep(1000);
        *out = value;
    }
    extern "C" __global__ void read(const int* in, int* out) { *out = *in; }
    """)
    data, out = (torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        slow.kernel("slow")(1, 1, (data, 7))
        slow.kernel("read")(1, 1, (data, out))
        copied = out.clone()
    stream.synchronize()
    assert copied.item() == 7
    tall = torch.arange(64, dtype=torch.float32, device="cuda").reshape(2, 32)
    tensor_map = tma.tensor_map(tall, box=(1, 32))
    block = tma.runtime.ParameterBlock(tma.compile(TILE).kernel("first").signature)
    place = tma.compile(TILE).kernel("first").marshaller.fill(block.data, (tensor_map, None, 0, 0))
    assert type(place).__name__ == "TorchDevice"


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_launches_and_plans_are_captured_in_graphs(write, library: str) -> None:
    import cupy

    add = write.kernel("add_value")
    if library == "cupy":
        out, stream = cupy.zeros(1, cupy.int32), cupy.cuda.Stream(non_blocking=True)
        plan = add.plan(1, 1, (out, 10))
        add.function()
        cupy.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            add(1, 1, (out, 1))
            plan()
            add(2, 1, (out, 100), cluster=2)
            graph = stream.end_capture()
            for _ in range(3):
                graph.launch(stream)
            stream.synchronize()
    else:
        torch = pytest.importorskip("torch")
        out = torch.zeros(1, dtype=torch.int32, device="cuda")
        plan = add.plan(1, 1, (out, 10))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            add(1, 1, (out, 1))
            plan()
            add(2, 1, (out, 100), cluster=2)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    assert int(out[0]) == 3 * (1 + 10 + 200)


def test_a_captured_launch_keeps_its_arguments_when_the_plan_changes(write) -> None:
    import cupy

    out, stream = cupy.zeros(1, cupy.int32), cupy.cuda.Stream(non_blocking=True)
    plan = write.kernel("write_value").plan(1, 1, (out, 10))
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        plan()
        graph = stream.end_capture()
        plan.set(1, 20)
        graph.launch(stream)
        stream.synchronize()
        assert int(out[0]) == 10
        plan()
        stream.synchronize()
    assert int(out[0]) == 20


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_graph_takes_the_arguments_that_its_plan_has_been_set(tiles, library: str) -> None:
    import cupy

    sources = [cupy.random.default_rng(seed).random((64, 32), dtype=cupy.float32) for seed in range(2)]
    out = cupy.zeros(32, cupy.float32)
    plan = tiles.kernel("first").plan(1, 1, (tma.tensor_map(sources[0], box=(1, 32)), out, 0, 5))
    cupy.cuda.Device().synchronize()
    if library == "cupy":
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            captured = plan.capture()
            graph = stream.end_capture()
        replay = lambda: (graph.launch(stream), stream.synchronize())  # noqa: E731
    else:
        torch = pytest.importorskip("torch")
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            captured = plan.capture(torch.cuda.current_stream())
        graph.instantiate()
        replay = lambda: (graph.replay(), torch.cuda.synchronize())  # noqa: E731
    replay()
    np.testing.assert_array_equal(out.get(), sources[0].get()[5])
    plan.set(0, sources[1])
    plan.set(3, 7)
    replay()
    np.testing.assert_array_equal(out.get(), sources[0].get()[5])
    captured.update(graph)
    replay()
    np.testing.assert_array_equal(out.get(), sources[1].get()[7])
    with pytest.raises(LaunchError, match="not being captured"):
        plan.capture()
    for wrong in (None, "graph", 1.5, True):
        with pytest.raises(LaunchError, match="no graph"):
            captured.update(wrong)


def test_threads_share_a_kernel(write) -> None:
    import cupy

    kernel, wrong = write.kernel("write_value"), []

    def work(number: int) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            out = cupy.zeros(1, cupy.int32)
            for i in range(300):
                kernel(1, 1, (out, number * 1000 + i), cluster=1 + number % 2 if i % 2 else None) if number % 2 == 0 \
                    else kernel(1, 1, (out, number * 1000 + i))
                stream.synchronize()
                if int(out[0]) != number * 1000 + i:
                    wrong.append((number, i, int(out[0])))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_fresh_thread_may_launch_in_clusters_before_it_uses_cuda(write) -> None:
    import cupy

    out, problems = cupy.zeros(1, cupy.int32), []
    kernel = write.kernel("add_value")
    kernel(2, 1, (out, 1), cluster=2)

    def work() -> None:
        try:
            kernel(2, 1, (out, 1), cluster=2, stream=0)
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    cupy.cuda.Device().synchronize()
    assert problems == []
    assert int(out[0]) == 4


@pytest.mark.parametrize("library", ["numba", "torch", "dlpack"])
def test_arrays_of_other_libraries_are_pointers(write, library: str) -> None:
    import cupy

    if library == "numba":
        cuda = pytest.importorskip("numba.cuda")
        array = cuda.to_device(np.zeros(1, np.int32))
        read = lambda: int(array.copy_to_host()[0])  # noqa: E731
    elif library == "torch":
        torch = pytest.importorskip("torch")
        array = torch.zeros(1, dtype=torch.int32, device="cuda")
        read = lambda: int(array.item())  # noqa: E731
    else:
        owner = cupy.zeros(1, cupy.int32)
        array = type("Only", (), {
            "__dlpack__": lambda self, **options: owner.__dlpack__(**options),
            "__dlpack_device__": lambda self: owner.__dlpack_device__(),
        })()  # fmt: skip
        read = lambda: int(owner[0])  # noqa: E731
    write.kernel("write_value")(1, 1, (array, 41), stream=0)
    cupy.cuda.Device().synchronize()
    assert read() == 41


@pytest.mark.parametrize("value", [np.zeros(1, np.int32), "torch", [1], "text", 1.5])
def test_host_memory_never_reaches_a_kernel(write, value: object) -> None:
    if isinstance(value, str) and value == "torch":
        value = pytest.importorskip("torch").zeros(1)
    with pytest.raises(LaunchError, match="argument 0 of kernel write_value"):
        write.kernel("write_value")(1, 1, (value, 1))


def two_devices() -> bool:
    import cupy

    return bool(cupy.cuda.runtime.getDeviceCount() > 1)


def test_every_device_has_its_own_copy_of_a_kernel(write) -> None:
    import cupy

    if not two_devices():
        pytest.skip("needs two GPUs")
    kernel, arrays = write.kernel("write_value"), []
    for device in (0, 1):
        with cupy.cuda.Device(device):
            arrays.append(cupy.zeros(1, cupy.int32))
            kernel(1, 1, (arrays[-1], device + 5))
            assert int(arrays[-1][0]) == device + 5
    with cupy.cuda.Device(1):
        plan = kernel.plan(1, 1, (arrays[1], 77))
    with cupy.cuda.Device(0):
        plan()
    with cupy.cuda.Device(1):
        assert int(arrays[1][0]) == 77
    with cupy.cuda.Device(0), pytest.raises(LaunchError, match="on device 1 and the current device is 0"):
        kernel(1, 1, (arrays[1], 1))
    both = tma.compile('extern "C" __global__ void both(int* a, int* b) {}').kernel("both")
    with pytest.raises(LaunchError, match="argument 0 on device 0; argument 1 on device 1"):
        both(1, 1, arrays)
    with pytest.raises(LaunchError, match="on device 0"):
        plan.set(0, arrays[0])
