// The four ways by which a descriptor reaches a kernel. Each kernel loads the tile at (x, y), in elements, and writes
// its TILE_BYTES to `out`. One block of any size; through_rebinding takes as many blocks as there are slots.
//
// rebind.cuh holds cupytma::rebind_shared_cta_seeded_2d_gpu, the function of cupytma.ptx.rebind(rank=2).
#include <cupytma.cuh>
#include <rebind.cuh>

// A thread that has acquired the map, where it must be acquired, makes the load.
__device__ __forceinline__ void move_tile(const CUtensorMap* map, int x, int y, unsigned* out)
{
    __shared__ alignas(1024) unsigned tile[TILE_BYTES / 4];
    __shared__ unsigned long long loaded;
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, TILE_BYTES);
        cupytma::tensor_load_2d(tile, map, x, y, &loaded);
    }
    __syncthreads();
    cupytma::mbarrier_wait_parity(&loaded, 0);
    for (int i = threadIdx.x; i < TILE_BYTES / 4; i += blockDim.x) {
        out[i] = tile[i];
    }
}

// 1. By value. The map cannot change while the kernel runs, and needs no fence.
extern "C" __global__ void through_parameter(const __grid_constant__ CUtensorMap map, int x, int y, unsigned* out)
{
    move_tile(&map, x, y, out);
}

// 2. In constant memory, which the host writes between launches. No fence either.
__constant__ CUtensorMap constant_map;

extern "C" __global__ void through_constant(int x, int y, unsigned* out)
{
    move_tile(&constant_map, x, y, out);
}

// 3. In global memory, which the host writes at any time: acquired at system scope, slot by slot.
extern "C" __global__ void through_buffer(const CUtensorMap* maps, int slot, int x, int y, unsigned* out)
{
    if (threadIdx.x == 0) {
        cupytma::fence_proxy_tensormap_acquire_sys(maps + slot);
    }
    move_tile(maps + slot, x, y, out);
}

// 4. Built on the device from a template: changed in shared memory, released to a slot of the block's own with
// tensormap.cp_fenceproxy, acquired at device scope. Block i reads matrix i of a batch.
extern "C" __global__ void through_rebinding(
    const __grid_constant__ CUtensorMap seed, CUtensorMap* maps, const unsigned long long* addresses, unsigned width,
    unsigned height, unsigned long long row_bytes, int x, int y, unsigned* out)
{
    __shared__ alignas(128) CUtensorMap staging;
    CUtensorMap* own = maps + blockIdx.x;
    if (threadIdx.x < 32) {
        const unsigned extents[2] = {width, height};
        const unsigned long long strides[1] = {row_bytes};
        cupytma::rebind_shared_cta_seeded_2d_gpu(own, &staging, &seed, addresses[blockIdx.x], extents, strides);
        if (threadIdx.x == 0) {
            cupytma::fence_proxy_tensormap_acquire_gpu(own);
        }
    }
    move_tile(own, x, y, out + blockIdx.x * (TILE_BYTES / 4));
}
