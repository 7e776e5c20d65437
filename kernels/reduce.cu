// Reductions of one strided array into another: destination = destination OPERATION source.
//
// tile_reduce_1d … tile_reduce_5d move boxes through two tensor maps of the same extents and box, by tensor loads and
// tensor reductions; along dimensions in which the destination stays where it is, every box is reduced into it. Elements
// that no tensor map may move are left to the block's other warps. element_reduce does everything by ordinary
// instructions, whatever the strides.
#include <region.cuh>
#include <tiles.cuh>
#include <arithmetic.cuh>

using Bits = ELEMENT::Bits;

__device__ __forceinline__ Bits combined(Bits old, Bits value) { return ELEMENT::ARITHMETIC(old, value); }

template <typename Index, bool Shared>
__device__ void reduce_elements(const Region& region, Index first, Index step)
{
    const Index words = static_cast<Index>(region.words), run = static_cast<Index>(region.run);
#pragma unroll 1
    for (Index word = first; word < words; word += step) {
        Index outer = word / run;
        const unsigned long long within = (word - outer * run) * sizeof(Bits);
        const unsigned char* source = region.source + within;
        unsigned char* destination = region.destination + within;
#pragma unroll 1
        for (int dimension = 0; dimension < region.outer_rank; ++dimension) {
            const Index extent = static_cast<Index>(region.extents[dimension]);
            const Index rest = outer / extent;
            const long long position = static_cast<long long>(outer - rest * extent);
            source += position * region.source_strides[dimension];
            destination += position * region.destination_strides[dimension];
            outer = rest;
        }
        const Bits value = *reinterpret_cast<const Bits*>(source);
        Bits* place = reinterpret_cast<Bits*>(destination);
        if constexpr (Shared) {
            combine_atomically(place, value, combined);
        } else {
            *place = combined(*place, value);
        }
        if (words - word <= step) {
            break;  // the next index could wrap
        }
    }
}

template <bool Shared>
__device__ void reduce_elements(const Region& region, unsigned first, unsigned step)
{
    if (region.words <= 0xffffffffull) {
        reduce_elements<unsigned, Shared>(region, first, step);
    } else {
        reduce_elements<unsigned long long, Shared>(region, first, step);
    }
}

// Elements of the destination are several threads' where it has a dimension in which it stays in place.
__device__ __noinline__ void reduce_region(const Region& region, unsigned first, unsigned step)
{
    bool shared = false;
    for (int dimension = 0; dimension < region.outer_rank; ++dimension) {
        shared |= region.destination_strides[dimension] == 0;
    }
    if (shared) {
        reduce_elements<true>(region, first, step);
    } else {
        reduce_elements<false>(region, first, step);
    }
}

extern "C" __global__ void element_reduce(const __grid_constant__ Region region)
{
    reduce_region(region, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

template <int Rank>
__device__ void tile_reduce(
    const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling, const Region& rest)
{
    if (threadIdx.x < warp_threads) {
        move_tiles_in_one_thread<Rank>(source, destination, tiling, [&](const int (&at)[Rank], const unsigned char* tile) {
            cupytma::TENSOR_REDUCE(&destination, at, tile);
        });
    } else {
        const unsigned helpers = blockDim.x - warp_threads;
        reduce_region(rest, blockIdx.x * helpers + threadIdx.x - warp_threads, gridDim.x * helpers);
    }
}

#define TILE_REDUCE(rank)                                                                                 \
    extern "C" __global__ void tile_reduce_##rank##d(                                                     \
        const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,      \
        const __grid_constant__ Tiling tiling, const __grid_constant__ Region rest)                       \
    {                                                                                                     \
        tile_reduce<rank>(source, destination, tiling, rest);                                             \
    }
TILE_REDUCE(1)
TILE_REDUCE(2)
TILE_REDUCE(3)
TILE_REDUCE(4)
TILE_REDUCE(5)
