// Copies between strided places in global memory.
//
// tile_copy_1d … tile_copy_5d move boxes through two tensor maps of the same extents and box: one thread of each block
// keeps STAGES boxes of shared memory busy, loading ahead of the stores. Bytes that no tensor map may move are left to
// the block's other warps. word_copy moves everything with ordinary loads and stores, whatever the strides.
#include <region.cuh>
#include <tiles.cuh>
#include <words.cuh>

extern "C" __global__ void word_copy(const __grid_constant__ Region region)
{
    copy_region(region, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
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
