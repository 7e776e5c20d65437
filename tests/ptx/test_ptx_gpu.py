"""Instructions on a GPU: what the header's functions do, beside numpy and the simulator."""

from __future__ import annotations

import numpy as np
import pytest

import cupytma as tma
from cupytma import ptx

pytestmark = pytest.mark.gpu

BEGIN = """
    __shared__ alignas(1024) unsigned char tile[16384];
    __shared__ unsigned long long loaded;
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
        cupytma::fence_proxy_async_shared_cta();
    }
    __syncthreads();
"""
DUMP = """
    __syncthreads();
    cupytma::mbarrier_wait_parity(&loaded, 0);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = tile[i];
"""


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("space", ["global", "shared::cta"])
def test_a_rebound_map_loads_the_other_tensor(rank: int, space: str) -> None:
    import cupy

    shape, box = (3, 4, 5, 6, 64)[5 - rank :], (1, 2, 2, 3, 16)[5 - rank :]
    other = cupy.random.default_rng(rank).random((4, 5, 6, 8, 128)[5 - rank :], dtype=cupy.float32)
    template = tma.tensor_map(cupy.zeros(shape, cupy.float32), box)
    wanted = tma.tensor_map(other, box)
    slot = cupy.zeros(1024, cupy.uint8)[: 1024 - 128]
    slot = slot[-slot.data.ptr % 128 :][:128]
    slot[:] = cupy.frombuffer(bytes(template), cupy.uint8)
    rebind = ptx.rebind(rank=rank, space=space, scope="gpu")
    extents, strides = other.shape[::-1], other.strides[-2::-1] if rank > 1 else ()
    staged = "staging, &seed, " if space != "global" else ""
    coordinates = (16, 1, 1, 1, 0)[:rank]
    source = f"""
    #include <cupytma.cuh>
    namespace cupytma {{ {rebind.function()} }}
    extern "C" __global__ void k(
        const __grid_constant__ CUtensorMap seed, void* map, unsigned long long address, unsigned char* out, int bytes)
    {{
        {BEGIN}
        __shared__ alignas(128) unsigned char staging[128];
        const unsigned extents[] = {{ {", ".join(map(str, extents))} }};
        {f"const unsigned long long strides[] = {{ {', '.join(map(str, strides))} }};" if rank > 1 else ""}
        if (threadIdx.x < 32) {{
            cupytma::{rebind.function_name}(map, {staged}address, extents{", strides" if rank > 1 else ""});
        }}
        __syncthreads();
        if (threadIdx.x == 0) {{
            cupytma::fence_proxy_tensormap_acquire_gpu(map);
            cupytma::mbarrier_arrive_expect_tx_sink(&loaded, bytes);
            cupytma::tensor_load_{rank}d(tile, map, {", ".join(map(str, coordinates))}, &loaded);
        }}
        {DUMP}
    }}
    """
    out = cupy.zeros(wanted.box_bytes, cupy.uint8)
    tma.compile(source).kernel("k")(1, 128, (template, slot, other.data.ptr, out, wanted.box_bytes))
    window = tuple(slice(c, c + b) for c, b in zip(coordinates[::-1], box, strict=True))
    np.testing.assert_array_equal(out.get().view("f4"), other.get()[window].ravel())
    assert slot.get().tobytes()[:64] == bytes(wanted)[:64]


@pytest.mark.parametrize("operation", ["add", "min", "max", "inc", "dec", "and", "or", "xor"])
def test_tensor_reductions_do_what_the_simulator_does(operation: str) -> None:
    import cupy

    generator = np.random.default_rng(3)
    tile, before = (generator.integers(0, 2**32, (16, 32), dtype=np.uint32) for _ in range(2))
    destination = cupy.asarray(before)
    tensor_map = tma.tensor_map(destination, (16, 32))
    source = f"""
    #include <cupytma.cuh>
    extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, const unsigned* values)
    {{
        __shared__ alignas(128) unsigned tile[512];
        for (int i = threadIdx.x; i < 512; i += blockDim.x) tile[i] = values[i];
        cupytma::fence_proxy_async_shared_cta();
        __syncthreads();
        if (threadIdx.x == 0) {{
            cupytma::{ptx.tensor_reduce(rank=2, reduction=operation).function_name}(&map, 0, 0, tile);
            cupytma::bulk_commit_group();
            cupytma::bulk_wait_group<0>();
        }}
    }}
    """
    tma.compile(source).kernel("k")(1, 128, (tensor_map, cupy.asarray(tile)))
    memory, shared = before.copy().reshape(-1).view(np.uint8), tile.reshape(-1).view(np.uint8).copy()
    tma.sim.reduce(tensor_map, operation, (0, 0), memory=memory, base=destination.data.ptr, shared=shared)
    np.testing.assert_array_equal(destination.get().reshape(-1).view(np.uint8), memory)


def test_an_im2col_load_with_offsets_does_what_the_simulator_does() -> None:
    import cupy

    image = cupy.random.default_rng(4).random((2, 9, 11, 64), dtype=cupy.float32).astype(cupy.float16)
    parameters = tma.Im2col(
        data_type="FLOAT16", global_address=image.data.ptr, global_dim=image.shape[::-1],
        pixel_box_lower_corner=(-1, -1), pixel_box_upper_corner=(-1, -1), channels_per_pixel=64, pixels_per_column=80,
        swizzle="128B",
    )  # fmt: skip
    tensor_map = parameters.encode()
    load = ptx.tensor_load(rank=4, mode="im2col").function_name
    source = f"""
    #include <cupytma.cuh>
    extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, unsigned char* out, int bytes)
    {{
        {BEGIN}
        if (threadIdx.x == 0) {{
            cupytma::mbarrier_arrive_expect_tx_sink(&loaded, bytes);
            cupytma::{load}(tile, &map, 0, 3, -1, 0, &loaded, 2, 1);
        }}
        {DUMP}
    }}
    """
    out = cupy.zeros(tensor_map.box_bytes, cupy.uint8)
    tma.compile(source).kernel("k")(1, 128, (tensor_map, out, tensor_map.box_bytes))
    shared = np.zeros(tensor_map.box_bytes, np.uint8)
    memory = image.get().reshape(-1).view(np.uint8)
    tma.sim.load(
        tensor_map, (0, 3, -1, 0), memory=memory, base=image.data.ptr, shared=shared, offsets=(2, 1)
    )
    np.testing.assert_array_equal(out.get(), shared)


def test_bulk_copies_with_hints_and_prefetches_move_bytes_both_ways() -> None:
    import cupy

    source = """
    #include <cupytma.cuh>
    extern "C" __global__ void k(const unsigned char* from, unsigned char* to, unsigned* sum, int bytes)
    {
        __shared__ alignas(128) unsigned char tile[4096];
        __shared__ unsigned long long loaded;
        if (threadIdx.x == 0) {
            const unsigned long long policy = cupytma::createpolicy_fractional_evict_first();
            cupytma::bulk_prefetch(from, bytes);
            cupytma::mbarrier_init(&loaded, 1);
            cupytma::fence_mbarrier_init();
            const unsigned long long token = cupytma::mbarrier_arrive_expect_tx(&loaded, bytes);
            cupytma::bulk_copy_to_shared_cluster_from_global_cache_hint(tile, from, bytes, &loaded, policy);
            while (!cupytma::mbarrier_try_wait(&loaded, token)) {}
            cupytma::bulk_copy_to_global_from_shared_cta_cache_hint(to, tile, bytes, policy);
            cupytma::bulk_reduce_to_global_add_u32(sum, tile, bytes);
            cupytma::bulk_commit_group();
            cupytma::bulk_wait_group<0>();
        }
    }
    """
    data = cupy.random.RandomState(5).randint(0, 256, 4096, dtype=cupy.int32).astype(cupy.uint8)
    copied, total = cupy.zeros_like(data), cupy.full(1024, 7, cupy.uint32)
    tma.compile(source).kernel("k")(1, 32, (data, copied, total, 4096))
    np.testing.assert_array_equal(copied.get(), data.get())
    np.testing.assert_array_equal(total.get(), data.get().view(np.uint32) + np.uint32(7))


def test_multicast_reaches_every_block_of_a_cluster_and_remote_arrivals_are_counted() -> None:
    import cupy

    arrive = ptx.mbarrier_arrive_expect_tx(semantics="release", scope="cluster", state=False).function_name
    source = f"""
    #include <cupytma.cuh>
    extern "C" __global__ void __cluster_dims__(4, 1, 1) k(
        const __grid_constant__ CUtensorMap map, float* out)
    {{
        __shared__ alignas(128) float tile[16 * 32];
        __shared__ unsigned long long loaded;
        if (threadIdx.x == 0) {{
            cupytma::mbarrier_init(&loaded, 1);
            cupytma::fence_mbarrier_init();
            cupytma::{arrive}(&loaded, sizeof(tile));
        }}
        cupytma::barrier_cluster_arrive_release_aligned();
        cupytma::barrier_cluster_wait_acquire_aligned();
        if (threadIdx.x == 0) {{
            // Each block loads a quarter of the tile and sends it to all.
            cupytma::tensor_load_2d_multicast(
                tile + blockIdx.x * 4 * 32, &map, 0, static_cast<int>(blockIdx.x) * 4, &loaded, 15);
        }}
        cupytma::mbarrier_wait_parity(&loaded, 0);
        for (int i = threadIdx.x; i < 16 * 32; i += blockDim.x) out[blockIdx.x * 16 * 32 + i] = tile[i];
        cupytma::barrier_cluster_arrive_aligned();
        cupytma::barrier_cluster_wait_aligned();
    }}
    """
    matrix = cupy.random.default_rng(6).random((16, 32), dtype=cupy.float32)
    out = cupy.zeros((4, 16, 32), cupy.float32)
    tma.compile(source).kernel("k")(4, 128, (tma.tensor_map(matrix, (4, 32)), out))
    np.testing.assert_array_equal(out.get(), np.broadcast_to(matrix.get(), (4, 16, 32)))


@pytest.mark.parametrize("n", [8, 64, 256])
def test_wgmma_multiplies_tiles_that_a_swizzled_load_brought(n: int) -> None:
    import cupy

    multiply = ptx.wgmma_mma_async(n=n, d_type="f32", a_type="bf16", b_type="bf16")
    registers = n // 2
    source = f"""
    #define CUPYTMA_WGMMA
    #include <cupytma.cuh>
    __device__ unsigned long long matrix(const void* tile)  // K-major, rows of 128 bytes under the 128B swizzle
    {{
        const unsigned long long address = static_cast<unsigned>(__cvta_generic_to_shared(tile));
        return (address & 0x3FFFF) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
    }}
    extern "C" __global__ void k(
        const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, float* out)
    {{
        __shared__ alignas(1024) unsigned char a[64 * 128];
        extern __shared__ unsigned char dynamic[];
        unsigned char* b = dynamic + (1024 - __cvta_generic_to_shared(dynamic) % 1024) % 1024;
        __shared__ unsigned long long loaded;
        if (threadIdx.x == 0) {{
            cupytma::mbarrier_init(&loaded, 1);
            cupytma::fence_mbarrier_init();
            cupytma::mbarrier_arrive_expect_tx_sink(&loaded, (64 + {n}) * 128);
            cupytma::tensor_load_2d(a, &a_map, 0, 0, &loaded);
            cupytma::tensor_load_2d(b, &b_map, 0, 0, &loaded);
        }}
        __syncthreads();
        cupytma::mbarrier_wait_parity(&loaded, 0);
        float d[{registers}] = {{}};
        cupytma::wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {{
            cupytma::{multiply.function_name}(d, matrix(a + 32 * step), matrix(b + 32 * step), true);
        }}
        cupytma::wgmma_commit_group();
        cupytma::wgmma_wait_group<0>();
        for (int i = 0; i < {registers}; ++i) out[threadIdx.x * {registers} + i] = d[i];
    }}
    """
    torch = pytest.importorskip("torch")
    left, right = (torch.randn(rows, 64, device="cuda").to(torch.bfloat16) for rows in (64, n))
    out = cupy.zeros(128 * registers, cupy.float32)
    maps = [tma.tensor_map(x, (len(x), 64), swizzle="128B") for x in (left, right)]
    tma.compile(source).kernel("k")(1, 128, (*maps, out), shared_bytes=n * 128 + 1024)
    expected = (left.double() @ right.double().T).cpu().numpy()
    found = np.zeros((64, n))
    values = out.get().reshape(128, registers)
    for thread in range(128):  # PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"
        row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
        for i in range(registers):
            found[row + 8 * (i // 2 % 2), column + 8 * (i // 4) + i % 2] = values[thread, i]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
