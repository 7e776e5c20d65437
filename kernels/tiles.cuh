// What the kernels that move boxes through two tensor maps have in common: how tiles cover a tensor.
#pragma once
#include <ring.cuh>

// How tiles cover the tensor; dimension 0 is fastest. Tile t starts at box * (t's digits in the base of the counts).
struct Tiling {
    int box[5];
    unsigned counts[5];
    unsigned tiles;
    unsigned tile_bytes;
};

template <int Rank>
struct Coordinates {
    int start[Rank];

    __device__ Coordinates(const Tiling& tiling, unsigned tile)
    {
#pragma unroll
        for (int dimension = 0; dimension < Rank; ++dimension) {
            const unsigned rest = tile / tiling.counts[dimension];
            start[dimension] = static_cast<int>(tile - rest * tiling.counts[dimension]) * tiling.box[dimension];
            tile = rest;
        }
    }
};

// Run by one warp. `store` starts the way of a tile from shared memory to the destination, given its coordinates there.
template <int Rank, typename Store>
__device__ void move_tiles_in_one_thread(
    const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling, Store store)
{
    in_one_thread(source, destination, [&](unsigned char* shared, unsigned long long* loaded) {
        const unsigned stage_bytes = (tiling.tile_bytes + tile_alignment - 1) / tile_alignment * tile_alignment;
        move_through_stages<1>(
            Dealt(tiling.tiles), shared, stage_bytes, loaded,
            [&](unsigned tile, unsigned char* stage, unsigned long long* barrier) {
                const Coordinates<Rank> at(tiling, tile);
                cupytma::mbarrier_arrive_expect_tx_sink(barrier, tiling.tile_bytes);
                cupytma::tensor_load(stage, &source, at.start, barrier);
            },
            [&](unsigned tile, const unsigned char* stage) {
                const Coordinates<Rank> at(tiling, tile);
                store(at.start, stage);
            });
    });
}
