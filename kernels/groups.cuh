// Groups: pieces of work of different shapes that one launch does.
//
// A kernel settles the groups first, a warp for each: what it is of tiles, and of words or tiles that the tensor unit may
// not move. The last of its blocks adds both up, so that the blocks of the kernel that does the work find their parts.
#pragma once
#include <cupytma.cuh>
#include <noted.cuh>

namespace maps = cupytma::tensormap;

constexpr unsigned warp_threads = 32;
constexpr unsigned setup_warps = 8;
constexpr unsigned unit = 16;  // bytes that the tensor unit moves at least

// Integers in device memory, of 4 or 8 bytes; a null pointer stands for none.
struct Integers {
    const unsigned char* data;
    long long row_bytes;
    long long entry_bytes;
    int item_bytes;
    int is_signed;

    __device__ long long operator()(unsigned long long row, int entry = 0) const
    {
        const unsigned char* at = data + static_cast<long long>(row) * row_bytes + entry * entry_bytes;
        if (item_bytes == 8) {
            return *reinterpret_cast<const long long*>(at);
        }
        return is_signed ? static_cast<long long>(*reinterpret_cast<const int*>(at))
                         : static_cast<long long>(*reinterpret_cast<const unsigned*>(at));
    }
};

// Memory of all groups.
template <typename Group>
struct Work {
    Group* groups;
    CUtensorMap* maps;              // of each group the source's, then the destination's
    unsigned long long* tile_ends;  // tiles of the groups up to each
    unsigned long long* rest_ends;  // what they leave to ordinary loads and stores
    unsigned* blocks_done;          // 0 before and after
    unsigned long long* failure;    // two words in the host's memory
    unsigned long long tag;         // of the call, for the host
    unsigned long long count;
};

// What each group has becomes what the groups up to it have. Run by one whole block.
__device__ __forceinline__ void accumulate(unsigned long long* values, unsigned long long count)
{
    __shared__ unsigned long long sums[setup_warps * warp_threads];
    const unsigned threads = blockDim.x;
    const unsigned long long share = (count + threads - 1) / threads;
    const unsigned long long first = min(count, share * threadIdx.x), last = min(count, first + share);
    unsigned long long sum = 0;
    for (unsigned long long i = first; i < last; ++i) {
        sum += __ldcg(values + i);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned step = 1; step < threads; step *= 2) {
        const unsigned long long before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    sum = sums[threadIdx.x] - sum;
    for (unsigned long long i = first; i < last; ++i) {
        sum += __ldcg(values + i);
        values[i] = sum;
    }
    __syncthreads();
}

// Calls `settle_one` for every group, a warp for each; the last block then adds up.
template <typename Group, typename SettleOne>
__device__ __forceinline__ void settle_all(const Work<Group>& work, SettleOne settle_one)
{
    __shared__ maps::Slot slots[setup_warps];
    __shared__ bool is_last;
    const unsigned warp = threadIdx.x / warp_threads;
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * setup_warps;
#pragma unroll 1
    for (unsigned long long number = static_cast<unsigned long long>(blockIdx.x) * setup_warps + warp;
         number < work.count; number += step) {
        settle_one(number, slots[warp]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(work.blocks_done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last) {
        __threadfence();
        accumulate(work.tile_ends, work.count);
        accumulate(work.rest_ends, work.count);
        if (threadIdx.x == 0) {
            *work.blocks_done = 0;
        }
    }
}

// The group that a tile is of: the first that ends after it.
__device__ __forceinline__ unsigned long long group_of(
    const unsigned long long* ends, unsigned long long count, unsigned long long number)
{
    unsigned long long low = 0, high = count - 1;
    while (low < high) {
        const unsigned long long middle = (low + high) / 2;
        if (ends[middle] > number) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// The part of `total` that is a block's own; parts follow one another, so that a block meets few groups.
__device__ __forceinline__ unsigned long long part(unsigned long long total, unsigned block)
{
    return total / gridDim.x * block + min(total % gridDim.x, static_cast<unsigned long long>(block));
}
