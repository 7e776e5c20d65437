// The ring of stages that one thread of each block keeps busy: tiles are loaded into shared memory ahead of their way out.
#pragma once
#include <cupytma.cuh>

constexpr int stages = STAGES;
constexpr unsigned tile_alignment = 128;
constexpr unsigned warp_threads = 32;

// The tiles of one block: they are dealt to the blocks in turn.
struct Dealt {
    unsigned tiles;
    unsigned tile;

    __device__ explicit Dealt(unsigned tiles) : tiles(tiles), tile(blockIdx.x) {}
    __device__ bool left() const { return tile < tiles; }

    __device__ unsigned take()
    {
        const unsigned taken = tile;
        tile += gridDim.x;
        return taken;
    }
};

// Run by one thread. `Tiles` walks the tiles of the block: left() says whether there is another, and take() what `load` and
// `store` are told of it, beside the stage's memory; they start its way in and out. `Reading` ways out may still read their
// stages while others are loaded.
template <int Reading, typename Tiles, typename Load, typename Store>
__device__ void move_through_stages(
    Tiles loads, unsigned char* shared, unsigned stage_bytes, unsigned long long* loaded, Load load, Store store)
{
    Tiles stores = loads;
    unsigned count = 0;  // of loads
    const auto load_next = [&] {
        const unsigned stage = count++ % stages;
        load(loads.take(), shared + stage * stage_bytes, &loaded[stage]);
    };

    for (int stage = 0; stage < stages; ++stage) {
        cupytma::mbarrier_init(&loaded[stage], 1);
    }
    cupytma::fence_mbarrier_init();  // before the unit signals them
    while (count + Reading < stages && loads.left()) {
        load_next();
    }
#pragma unroll 1
    for (unsigned index = 0; stores.left(); ++index) {
        const unsigned stage = index % stages;
        cupytma::mbarrier_wait_parity(&loaded[stage], index / stages % 2);
        store(stores.take(), shared + stage * stage_bytes);
        cupytma::bulk_commit_group();
        if (loads.left()) {
            // The stage to refill was read by the way out of `Reading` iterations ago.
            cupytma::bulk_wait_group_read<Reading>();
            load_next();
        }
    }
    cupytma::bulk_wait_group_read<0>();  // the shared memory goes with the block
}

// Run by one warp: one of its threads works, with aligned shared memory and the stages' barriers.
template <typename Work>
__device__ void in_one_thread(const CUtensorMap& source, const CUtensorMap& destination, Work work)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long loaded[stages];
    if (cupytma::elect_sync()) {
        cupytma::prefetch_tensormap(&source);
        cupytma::prefetch_tensormap(&destination);
        const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % tile_alignment;
        work(dynamic_shared + (tile_alignment - misaligned) % tile_alignment, loaded);
    }
}
