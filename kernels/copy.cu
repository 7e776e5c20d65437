// Copies between strided places in global memory.
//
// tile_copy_1d … tile_copy_5d move boxes through two tensor maps of the same extents and box: one thread of each block
// keeps STAGES boxes of shared memory busy, loading ahead of the stores. Bytes that no tensor map may move are left to
// the block's other warps. word_copy moves everything with ordinary loads and stores, whatever the strides.
#include <cupytma.cuh>
#include <region.cuh>

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

template <typename Word, typename Index>
__device__ void copy_words(const Region& region, Index first, Index step)
{
    const Index words = static_cast<Index>(region.words), run = static_cast<Index>(region.run);
#pragma unroll 1
    for (Index word = first; word < words; word += step) {
        Index outer = word / run;
        const unsigned long long within = (word - outer * run) * sizeof(Word);
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
        *reinterpret_cast<Word*>(destination) = *reinterpret_cast<const Word*>(source);
        if (words - word <= step) {
            break;  // the next index could wrap
        }
    }
}

template <typename Word>
__device__ void copy_words(const Region& region, unsigned first, unsigned step)
{
    if (region.words <= 0xffffffffull) {
        copy_words<Word, unsigned>(region, first, step);
    } else {
        copy_words<Word, unsigned long long>(region, first, step);
    }
}

__device__ __noinline__ void copy_region(const Region& region, unsigned first, unsigned step)
{
    switch (region.word_bytes) {
    case 16: copy_words<ulonglong2>(region, first, step); break;
    case 8: copy_words<unsigned long long>(region, first, step); break;
    case 4: copy_words<unsigned>(region, first, step); break;
    case 2: copy_words<unsigned short>(region, first, step); break;
    default: copy_words<unsigned char>(region, first, step); break;
    }
}

extern "C" __global__ void word_copy(const __grid_constant__ Region region)
{
    copy_region(region, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

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

// Run by one thread. Tiles are dealt to the blocks in turn.
template <int Rank>
__device__ void copy_tiles(
    const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling, unsigned char* shared,
    unsigned long long* loaded)
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
        cupytma::tensor_store(&destination, at.start, shared + stage * stage_bytes);
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
__device__ void tile_copy(
    const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling, const Region& rest)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long loaded[stages];
    if (threadIdx.x < warp_threads) {
        if (cupytma::elect_sync()) {
            cupytma::prefetch_tensormap(&source);
            cupytma::prefetch_tensormap(&destination);
            const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % tile_alignment;
            copy_tiles<Rank>(
                source, destination, tiling, dynamic_shared + (tile_alignment - misaligned) % tile_alignment, loaded);
        }
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
