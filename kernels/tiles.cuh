// What the kernels that move boxes through two tensor maps have in common: how tiles cover a tensor, and the ring of
// stages that one thread of each block keeps busy, loading ahead of the stores.
#pragma once
#include <cupytma.cuh>

constexpr int stages = STAGES;
constexpr unsigned tile_alignment = 128;
constexpr unsigned warp_threads = 32;

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

// Run by one thread. Tiles are dealt to the blocks in turn. `store` starts the way of a tile from shared memory to the
// destination, given its coordinates there.
template <int Rank, typename Store>
__device__ void move_tiles(
    const CUtensorMap& source, const Tiling& tiling, unsigned char* shared, unsigned long long* loaded, Store store)
{
    const unsigned stage_bytes = (tiling.tile_bytes + tile_alignment - 1) / tile_alignment * tile_alignment;
    const unsigned count = blockIdx.x < tiling.tiles ? (tiling.tiles - 1 - blockIdx.x) / gridDim.x + 1 : 0;

    const auto load = [&](unsigned index) {
        const unsigned stage = index % stages;
        const Coordinates<Rank> at(tiling, blockIdx.x + index * gridDim.x);
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded[stage], tiling.tile_bytes);
        cupytma::tensor_load(shared + stage * stage_bytes, &source, at.start, &loaded[stage]);
    };

    for (int stage = 0; stage < stages; ++stage) {
        cupytma::mbarrier_init(&loaded[stage], 1);
    }
    cupytma::fence_mbarrier_init();  // before the unit signals them
    for (unsigned index = 0; index + 1 < stages && index < count; ++index) {
        load(index);
    }
#pragma unroll 1
    for (unsigned index = 0; index < count; ++index) {
        const unsigned stage = index % stages;
        cupytma::mbarrier_wait_parity(&loaded[stage], index / stages % 2);
        const Coordinates<Rank> at(tiling, blockIdx.x + index * gridDim.x);
        store(at.start, shared + stage * stage_bytes);
        cupytma::bulk_commit_group();
        if (index + stages - 1 < count) {
            // The stage to refill was stored one iteration ago; only the newest store may still be reading.
            cupytma::bulk_wait_group_read<1>();
            load(index + stages - 1);
        }
    }
    cupytma::bulk_wait_group_read<0>();  // the shared memory goes with the block
}

// Run by one warp.
template <int Rank, typename Store>
__device__ void move_tiles_in_one_thread(
    const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling, Store store)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long loaded[stages];
    if (cupytma::elect_sync()) {
        cupytma::prefetch_tensormap(&source);
        cupytma::prefetch_tensormap(&destination);
        const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % tile_alignment;
        move_tiles<Rank>(
            source, tiling, dynamic_shared + (tile_alignment - misaligned) % tile_alignment, loaded, store);
    }
}
