// One strided array copied to many places.
//
// multicast_copy_2d … multicast_copy_5d load each tile once for all blocks of a cluster, and every block stores it to a
// copy of its own. One thread of each block keeps STAGES tiles of shared memory busy, loading ahead of the stores. Bytes
// that no tensor map may move are left to the block's other warps.
#include <region.cuh>
#include <tiles.cuh>
#include <words.cuh>
#include <cluster.cuh>

// Both tensor maps have the dimensions of the tile and of the copies. An item is a tile and as many copies as a cluster
// has blocks; those of one tile follow one another.
struct Copies {
    Tiling tiling;         // of one copy; counts are 1 along the dimensions of the copies
    unsigned extents[5];   // 1 along the dimensions of the tile
    unsigned copies;
    unsigned groups;       // of copies
    unsigned items;
};

template <int Rank>
struct Item {
    Coordinates<Rank> tile;
    unsigned copy;  // this block's

    __device__ Item(const Copies& work, unsigned item)
        : tile(work.tiling, item / work.groups), copy(item % work.groups * cluster_blocks + cluster_rank())
    {
    }

    __device__ Coordinates<Rank> destination(const Copies& work) const
    {
        Coordinates<Rank> at = tile;
        unsigned rest = copy;
#pragma unroll
        for (int dimension = 0; dimension < Rank; ++dimension) {
            at.start[dimension] += static_cast<int>(rest % work.extents[dimension]);
            rest /= work.extents[dimension];
        }
        return at;
    }
};

// Run by one thread of each block of a cluster; all go through the same items.
template <int Rank>
__device__ void copy_tiles(
    const CUtensorMap& source, const CUtensorMap& destination, const Copies& work, unsigned char* shared,
    unsigned long long* loaded, unsigned long long* released)
{
    const unsigned tile_bytes = work.tiling.tile_bytes;
    const unsigned stage_bytes = (tile_bytes + tile_alignment - 1) / tile_alignment * tile_alignment;
    const unsigned first = blockIdx.x / cluster_blocks, step = gridDim.x / cluster_blocks;
    const unsigned count = first < work.items ? (work.items - 1 - first) / step + 1 : 0;

    const auto load = [&](unsigned index) {
        const unsigned stage = index % stages, issuer = issuer_of(stage);
        announce(&loaded[stage], tile_bytes);
        if (cluster_blocks > 1) {
            give_back(mbarrier_of(&released[stage], issuer));  // this block's stage is free
        }
        if (cluster_rank() == issuer) {
            if (cluster_blocks > 1) {
                cupytma::mbarrier_wait_parity(&released[stage], index / stages % 2);
            }
            load_for_cluster(
                shared + stage * stage_bytes, source, Item<Rank>(work, first + index * step).tile.start,
                &loaded[stage]);
        }
    };

    for (unsigned index = 0; index + 1 < stages && index < count; ++index) {
        load(index);
    }
#pragma unroll 1
    for (unsigned index = 0; index < count; ++index) {
        const unsigned stage = index % stages;
        wait_for_load(&loaded[stage], index / stages % 2);
        pass_on(&loaded[stage]);
        const Item<Rank> item(work, first + index * step);
        if (item.copy < work.copies) {
            cupytma::tensor_store(&destination, item.destination(work).start, shared + stage * stage_bytes);
        }
        cupytma::bulk_commit_group();
        if (index + stages - 1 < count) {
            // The stage to refill was stored one iteration ago; only the newest store may still be reading.
            cupytma::bulk_wait_group_read<1>();
            load(index + stages - 1);
        }
    }
    cupytma::bulk_wait_group<0>();
}

template <int Rank>
__device__ void multicast_copy(
    const CUtensorMap& source, const CUtensorMap& destination, const Copies& work, const Region& rest)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long loaded[stages], released[stages];
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            cupytma::mbarrier_init(&loaded[stage], 1);
            cupytma::mbarrier_init(&released[stage], cluster_blocks);
        }
        cupytma::fence_mbarrier_init();
    }
    __syncwarp();
    meet_cluster();  // no block is written to or told of anything before its mbarriers are there
    if (threadIdx.x >= warp_threads) {
        const unsigned helpers = blockDim.x - warp_threads;
        copy_region(rest, blockIdx.x * helpers + threadIdx.x - warp_threads, gridDim.x * helpers);
    } else if (cupytma::elect_sync()) {
        cupytma::prefetch_tensormap(&source);
        cupytma::prefetch_tensormap(&destination);
        const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % tile_alignment;
        copy_tiles<Rank>(
            source, destination, work, dynamic_shared + (tile_alignment - misaligned) % tile_alignment, loaded,
            released);
    }
    __syncwarp();
    meet_cluster();  // no block ends while loads that it has started for others may be under way
}

#define MULTICAST_COPY(rank)                                                                              \
    extern "C" __global__ void multicast_copy_##rank##d(                                                  \
        const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,      \
        const __grid_constant__ Copies work, const __grid_constant__ Region rest)                         \
    {                                                                                                     \
        multicast_copy<rank>(source, destination, work, rest);                                            \
    }
MULTICAST_COPY(2)
MULTICAST_COPY(3)
MULTICAST_COPY(4)
MULTICAST_COPY(5)
