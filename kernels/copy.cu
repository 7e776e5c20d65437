// Copies between strided places in global memory.
//
// bulk_copy moves one run, a chunk of it in each warp. tile_copy_1d … tile_copy_5d move boxes through two tensor maps of
// the same extents and box; bytes that no tensor map may move are left to the block's other warp. word_copy moves
// everything with ordinary loads and stores, whatever the strides.
//
// A block for each piece is faster than few blocks that go on and on: pieces then are read and written in the order in
// which they lie in memory.
#include <region.cuh>
#include <tiles.cuh>
#include <words.cuh>

extern "C" __global__ void word_copy(const __grid_constant__ Region region)
{
    copy_region(region, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

// A chunk of CHUNK_BYTES for the first thread of each warp; what is left after the last whole unit goes byte by byte.
extern "C" __global__ void bulk_copy(const unsigned char* source, unsigned char* destination, unsigned long long bytes)
{
    __shared__ alignas(tile_alignment) unsigned char chunks[CHUNKS_PER_BLOCK][CHUNK_BYTES];
    __shared__ unsigned long long loaded[CHUNKS_PER_BLOCK];
    constexpr unsigned unit = 16;
    const unsigned lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
    const unsigned long long index = static_cast<unsigned long long>(blockIdx.x) * CHUNKS_PER_BLOCK + warp;
    const unsigned long long start = index * CHUNK_BYTES;
    if (lane != 0) {
        const unsigned long long left = bytes / unit * unit + lane - 1;
        if (index == 0 && left < bytes) {
            destination[left] = source[left];
        }
        return;
    }
    if (start + unit > bytes) {
        return;
    }
    const unsigned size =
        bytes - start < CHUNK_BYTES ? static_cast<unsigned>(bytes - start) / unit * unit : CHUNK_BYTES;
    cupytma::mbarrier_init(&loaded[warp], 1);
    cupytma::fence_mbarrier_init();  // before the unit signals it
    cupytma::mbarrier_arrive_expect_tx_sink(&loaded[warp], size);
    cupytma::bulk_copy_to_shared_cluster_from_global(chunks[warp], source + start, size, &loaded[warp]);
    cupytma::mbarrier_wait_parity(&loaded[warp], 0);
    cupytma::bulk_copy_to_global_from_shared_cta(destination + start, chunks[warp], size);
    cupytma::bulk_commit_group();
    cupytma::bulk_wait_group_read<0>();  // the shared memory goes with the block
}

template <int Rank>
__device__ void tile_copy(
    const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling, const Region& rest)
{
    if (threadIdx.x < warp_threads) {
        move_tiles_in_one_thread<Rank>(source, destination, tiling, [&](const int (&at)[Rank], const unsigned char* tile) {
            cupytma::tensor_store(&destination, at, tile);
        });
    } else {
        const unsigned helpers = blockDim.x - warp_threads;
        copy_region(rest, blockIdx.x * helpers + threadIdx.x - warp_threads, gridDim.x * helpers);
    }
}

#define TILE_COPY(rank)                                                                                   \
    extern "C" __global__ void tile_copy_##rank##d(                                                       \
        const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,      \
        const __grid_constant__ Tiling tiling, const __grid_constant__ Region rest)                       \
    {                                                                                                     \
        tile_copy<rank>(source, destination, tiling, rest);                                               \
    }
TILE_COPY(1)
TILE_COPY(2)
TILE_COPY(3)
TILE_COPY(4)
TILE_COPY(5)
