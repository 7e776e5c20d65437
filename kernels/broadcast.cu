// A vector combined with every row, or every column, of an array: destination = source OPERATION vector, the vector
// lying along one dimension.
//
// The array is cut into stripes along the vector's dimension. A cluster of blocks takes a stripe, or a part of one: the
// stripe's piece of the vector is loaded once for all of them and stays in shared memory, while tiles of the source
// stream through a ring of STAGES in each block. One thread loads and stores tiles; COMBINING_WARPS change them where
// they are. Elements that no tensor map may move are left to the block's other warps. broadcast_elements does
// everything by ordinary loads and stores, whatever the strides.
#include <arithmetic.cuh>
#include <elementwise.cuh>
#include <tiles.cuh>
#include <cluster.cuh>

using Element = element::ELEMENT;
using Bits = Element::Bits;

constexpr int max_rank = MAX_OUTER_RANK + 1;
constexpr unsigned combining_warps = COMBINING_WARPS;
constexpr unsigned combining_threads = combining_warps * warp_threads;
constexpr unsigned chunk_bytes = 16;  // that a thread changes at a time
constexpr unsigned chunk_elements = chunk_bytes / sizeof(Bits);
constexpr unsigned word_bytes = 8;    // of the source's and the destination's tensor maps

__device__ __forceinline__ Bits combined(Bits one, Bits other)
{
    return Element::narrow(element::OPERATION::of(Element::widen(one), Element::widen(other)));
}

// Elements of strided arrays, dimension 0 fastest. Strides are in bytes.
struct Elements {
    const unsigned char* source;
    const unsigned char* vector;
    unsigned char* destination;
    unsigned long long first;  // of the elements counted through all dimensions
    unsigned long long elements;
    unsigned long long extents[max_rank];
    long long source_strides[max_rank];
    long long vector_strides[max_rank];
    long long destination_strides[max_rank];
    int rank;
    int unused;
};

template <typename Index>
__device__ void combine_elements(const Elements& work, Index first, Index step)
{
    const Index elements = static_cast<Index>(work.elements);
#pragma unroll 1
    for (Index number = static_cast<Index>(work.first) + first; number < elements; number += step) {
        const unsigned char* source = work.source;
        const unsigned char* vector = work.vector;
        unsigned char* destination = work.destination;
        Index rest = number;
#pragma unroll 1
        for (int dimension = 0; dimension < work.rank; ++dimension) {
            const Index extent = static_cast<Index>(work.extents[dimension]);
            const Index outer = rest / extent;
            const long long position = static_cast<long long>(rest - outer * extent);
            source += position * work.source_strides[dimension];
            vector += position * work.vector_strides[dimension];
            destination += position * work.destination_strides[dimension];
            rest = outer;
        }
        *reinterpret_cast<Bits*>(destination) =
            combined(*reinterpret_cast<const Bits*>(source), *reinterpret_cast<const Bits*>(vector));
        if (elements - number <= step) {
            break;  // the next number could wrap
        }
    }
}

__device__ __noinline__ void combine_elements(const Elements& work, unsigned first, unsigned step)
{
    if (work.elements <= 0x7fffffffull) {  // and so is the first number of any thread
        combine_elements<unsigned>(work, first, step);
    } else {
        combine_elements<unsigned long long>(work, first, step);
    }
}

extern "C" __global__ void broadcast_elements(const __grid_constant__ Elements work)
{
    combine_elements(work, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

// Tile number stripe * stripe_step + block * block_step is a stripe's tile `block`.
struct Stripes {
    Tiling tiling;
    unsigned stripes;
    unsigned blocks;         // of tiles, in a stripe
    unsigned stripe_step;
    unsigned block_step;
    unsigned length;         // elements of the vector that a stripe has
    unsigned vector_box;     // elements of the vector that one load brings
    unsigned vector_boxes;
    unsigned by_rows;        // whether each element of the vector has several elements of a tile, one after another
    unsigned per_element;    // and how many
    unsigned is_flat;        // whether tiles are cut from an array without regard to its rows of `length` elements
};

// What one block does.
struct Share {
    unsigned stripe, first, step, count;

    __device__ explicit Share(const Stripes& work)
    {
        const unsigned number = blockIdx.x / cluster_blocks, parts = gridDim.x / cluster_blocks / work.stripes;
        stripe = number % work.stripes;
        first = number / work.stripes * cluster_blocks + cluster_rank();
        step = parts * cluster_blocks;
        const unsigned left = work.tiling.tiles - stripe * work.stripe_step;
        const unsigned blocks = min(work.blocks, (left + work.block_step - 1) / work.block_step);
        count = first < blocks ? (blocks - 1 - first) / step + 1 : 0;
    }

    __device__ unsigned tile(const Stripes& work, unsigned index) const
    {
        return stripe * work.stripe_step + (first + index * step) * work.block_step;
    }
};

union Chunk {
    uint4 whole;
    Bits element[chunk_elements];
};

// Elements of the vector from `index` on; after the last one comes the first.
__device__ __forceinline__ Chunk vector_chunk(const Bits* vector, unsigned index, unsigned length)
{
    Chunk chunk;
    if (index % chunk_elements == 0 && index + chunk_elements <= length) {
        chunk.whole = *reinterpret_cast<const uint4*>(vector + index);
    } else {
#pragma unroll
        for (unsigned i = 0; i < chunk_elements; ++i) {
            chunk.element[i] = vector[index];
            index = index + 1 == length ? 0 : index + 1;
        }
    }
    return chunk;
}

// Run by the combining threads: changes a tile in shared memory.
template <bool ByRows>
__device__ __forceinline__ void combine_tile(
    unsigned char* tile, unsigned tile_bytes, const Bits* vector, unsigned start, const Stripes& work, unsigned thread)
{
#pragma unroll 4
    for (unsigned offset = thread * chunk_bytes; offset < tile_bytes; offset += combining_threads * chunk_bytes) {
        Chunk chunk, other;
        chunk.whole = *reinterpret_cast<const uint4*>(tile + offset);
        const unsigned position = offset / sizeof(Bits);
        if constexpr (ByRows) {
            const Bits value = vector[start + position / work.per_element];
#pragma unroll
            for (unsigned i = 0; i < chunk_elements; ++i) {
                other.element[i] = value;
            }
        } else {
            other = vector_chunk(vector, (start + position) % work.length, work.length);
        }
#pragma unroll
        for (unsigned i = 0; i < chunk_elements; ++i) {
            chunk.element[i] = combined(chunk.element[i], other.element[i]);
        }
        *reinterpret_cast<uint4*>(tile + offset) = chunk.whole;
    }
}

// Which element of the stripe's piece of the vector a tile begins with.
template <int Rank>
__device__ __forceinline__ unsigned vector_start(const Stripes& work, const Share& share, const int (&at)[Rank])
{
    if (work.by_rows) {
        return static_cast<unsigned>(at[Rank - 1]) - share.stripe * work.length;
    }
    if (work.is_flat) {
        const unsigned long long row = static_cast<unsigned>(at[Rank - 1]);
        return static_cast<unsigned>(row * (work.tiling.box[0] * word_bytes / sizeof(Bits)) % work.length);
    }
    return 0;
}

struct Barriers {
    unsigned long long* loaded;
    unsigned long long* combined;
    unsigned long long* vector;
};

// Run by one thread.
template <int Rank>
__device__ void stream_tiles(
    const CUtensorMap& source, const CUtensorMap& destination, const CUtensorMap& vector, const Stripes& work,
    const Share& share, unsigned char* shared, Bits* piece, const Barriers& barriers)
{
    const unsigned tile_bytes = work.tiling.tile_bytes;
    const unsigned stage_bytes = (tile_bytes + tile_alignment - 1) / tile_alignment * tile_alignment;

    const auto load = [&](unsigned index) {
        const unsigned stage = index % stages;
        const Coordinates<Rank> at(work.tiling, share.tile(work, index));
        cupytma::mbarrier_arrive_expect_tx_sink(&barriers.loaded[stage], tile_bytes);
        cupytma::tensor_load(shared + stage * stage_bytes, &source, at.start, &barriers.loaded[stage]);
    };

    for (unsigned box = 0; box < work.vector_boxes; ++box) {
        if (cluster_rank() == issuer_of(box)) {
            const int at[1] = {static_cast<int>(share.stripe * work.length + box * work.vector_box)};
            load_for_cluster(
                reinterpret_cast<unsigned char*>(piece + box * work.vector_box), vector, at, barriers.vector);
        }
    }
    for (unsigned index = 0; index + 1 < stages && index < share.count; ++index) {
        load(index);
    }
    wait_for_load(barriers.vector, 0);
    pass_on(barriers.vector);
#pragma unroll 1
    for (unsigned index = 0; index < share.count; ++index) {
        const unsigned stage = index % stages;
        cupytma::mbarrier_wait_parity(&barriers.combined[stage], index / stages % 2);
        const Coordinates<Rank> at(work.tiling, share.tile(work, index));
        cupytma::tensor_store(&destination, at.start, shared + stage * stage_bytes);
        cupytma::bulk_commit_group();
        if (index + stages - 1 < share.count) {
            // The stage to refill was stored one iteration ago; only the newest store may still be reading.
            cupytma::bulk_wait_group_read<1>();
            load(index + stages - 1);
        }
    }
    cupytma::bulk_wait_group<0>();
}

template <int Rank>
__device__ void combine_tiles(
    const Stripes& work, const Share& share, unsigned char* shared, const Bits* piece, const Barriers& barriers,
    unsigned thread)
{
    const unsigned tile_bytes = work.tiling.tile_bytes;
    const unsigned stage_bytes = (tile_bytes + tile_alignment - 1) / tile_alignment * tile_alignment;
    wait_for_load(barriers.vector, 0);
#pragma unroll 1
    for (unsigned index = 0; index < share.count; ++index) {
        const unsigned stage = index % stages;
        const Coordinates<Rank> at(work.tiling, share.tile(work, index));
        const unsigned start = vector_start(work, share, at.start);
        cupytma::mbarrier_wait_parity(&barriers.loaded[stage], index / stages % 2);
        unsigned char* const tile = shared + stage * stage_bytes;
        if (work.by_rows) {
            combine_tile<true>(tile, tile_bytes, piece, start, work, thread);
        } else {
            combine_tile<false>(tile, tile_bytes, piece, start, work, thread);
        }
        cupytma::fence_proxy_async_shared_cta();  // each thread's own writes, before the store reads them
        __syncwarp();
        if (thread % warp_threads == 0) {
            cupytma::mbarrier_arrive_sink(&barriers.combined[stage]);
        }
    }
}

template <int Rank>
__device__ __forceinline__ void broadcast(
    const CUtensorMap& source, const CUtensorMap& destination, const CUtensorMap& vector, const Stripes& work,
    const Elements& rest)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long loaded[stages], combined_tile[stages], vector_loaded;
    const Barriers barriers = {loaded, combined_tile, &vector_loaded};
    const Share share(work);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            cupytma::mbarrier_init(&loaded[stage], 1);
            cupytma::mbarrier_init(&combined_tile[stage], combining_warps);
        }
        cupytma::mbarrier_init(&vector_loaded, 1);
        cupytma::fence_mbarrier_init();
        announce(&vector_loaded, work.vector_boxes * work.vector_box * static_cast<unsigned>(sizeof(Bits)));
    }
    __syncwarp();
    meet_cluster();  // no block is written to before its mbarriers are there, and expect it
    const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % tile_alignment;
    unsigned char* const start = dynamic_shared + (tile_alignment - misaligned) % tile_alignment;
    const unsigned vector_bytes = work.vector_boxes * work.vector_box * static_cast<unsigned>(sizeof(Bits));
    unsigned char* const shared = start + (vector_bytes + tile_alignment - 1) / tile_alignment * tile_alignment;
    Bits* const piece = reinterpret_cast<Bits*>(start);
    if (threadIdx.x < warp_threads) {
        if (cupytma::elect_sync()) {
            cupytma::prefetch_tensormap(&source);
            cupytma::prefetch_tensormap(&destination);
            cupytma::prefetch_tensormap(&vector);
            stream_tiles<Rank>(source, destination, vector, work, share, shared, piece, barriers);
        }
    } else if (threadIdx.x < warp_threads + combining_threads) {
        combine_tiles<Rank>(work, share, shared, piece, barriers, threadIdx.x - warp_threads);
    } else {
        const unsigned helpers = blockDim.x - warp_threads - combining_threads;
        combine_elements(
            rest, blockIdx.x * helpers + threadIdx.x - warp_threads - combining_threads, gridDim.x * helpers);
    }
    __syncwarp();
    meet_cluster();  // no block ends while loads that it has started for others may be under way
}

#define BROADCAST(rank)                                                                                         \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS_PER_MULTIPROCESSOR) broadcast_##rank##d(   \
        const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,            \
        const __grid_constant__ CUtensorMap vector, const __grid_constant__ Stripes work,                       \
        const __grid_constant__ Elements rest)                                                                  \
    {                                                                                                           \
        broadcast<rank>(source, destination, vector, work, rest);                                               \
    }
BROADCAST(2)
BROADCAST(3)
BROADCAST(4)
BROADCAST(5)
