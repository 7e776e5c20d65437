// What kernels need of CUDA and of the generated header, on the host: a thread for each thread, copies that are made at
// once. Blocks run one after the other. Tensor stores round the end of a row up to 16 bytes, as the hardware does.
#pragma once
#include <algorithm>
#include <cmath>

#include "../../cuda_on_host.cuh"

#define __shared__ static

using std::max;
using std::min;

alignas(128) inline unsigned char dynamic_shared[1 << 18];

inline ThreadBarrier of_block, named_barriers[16], of_warps[32];
inline unsigned exchanged_words[1024];

inline void __syncthreads() { of_block.sync(blockDim.x); }
inline void __syncwarp() { of_warps[threadIdx.x / 32].sync(32); }
inline void host_bar_sync(unsigned number, unsigned threads) { named_barriers[number].sync(threads); }
inline unsigned host_exchange(unsigned word, unsigned lane)
{
    exchanged_words[threadIdx.x] = word;
    __syncwarp();
    const unsigned result = lane < 32 ? exchanged_words[threadIdx.x / 32 * 32 + lane] : word;
    __syncwarp();
    return result;
}
inline unsigned __shfl_down_sync(unsigned, unsigned word, unsigned by)
{
    return host_exchange(word, threadIdx.x % 32 + by);
}
inline unsigned __shfl_sync(unsigned, unsigned word, unsigned lane) { return host_exchange(word, lane); }
inline unsigned __cvta_generic_to_shared(const void* address)
{
    return static_cast<unsigned>(static_cast<const unsigned char*>(address) - dynamic_shared);
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }

namespace cupytma {

inline void bulk_commit_group() {}
template <int Count> void bulk_wait_group() {}
template <int Count> void bulk_wait_group_read() {}

// Of a tensor map: address, rank, bytes of a word, five extents, four strides, and the box in bytes of the last word.
template <int Rank, class Move>
long long for_each_word(const void* tensor_map, const int (&at)[Rank], unsigned char* shared, bool rounded, Move move)
{
    const unsigned long long* words = static_cast<const CUtensorMap*>(tensor_map)->opaque;
    const long long word = words[2];
    mistakes += words[1] != Rank || at[0] * word % 16 != 0 || __cvta_generic_to_shared(shared) % 128 != 0;
    long long elements = 1;
    for (int d = 0; d < Rank; ++d) {
        elements *= (words[12] >> (8 * d) & 255) + 1;
        mistakes += at[d] < 0;
    }
    for (long long element = 0; element < elements; ++element) {
        long long rest = element, address = words[0];
        bool inside = true;
        for (int d = 0; d < Rank; ++d) {
            const long long box = (words[12] >> (8 * d) & 255) + 1, x = at[d] + rest % box;
            rest /= box;
            const long long extent = words[3 + d];
            inside &= x < (rounded && d == 0 ? (extent * word + 15) / 16 * 16 / word : extent);
            address += x * (d == 0 ? word : static_cast<long long>(words[7 + d]));
        }
        move(reinterpret_cast<unsigned char*>(address), shared + element * word, word, inside);
    }
    return elements * word;
}

template <int Rank>
void tensor_load(void* destination, const void* tensor_map, const int (&at)[Rank], unsigned long long* mbarrier)
{
    const long long bytes = for_each_word(
        tensor_map, at, static_cast<unsigned char*>(destination), false,
        [](unsigned char* global, unsigned char* shared, long long word, bool inside) {
            inside ? std::memcpy(shared, global, word) : std::memset(shared, 0, word);
        });
    host_arrive(mbarrier, 0, -bytes);
}
template <int Rank>
void tensor_store(const void* tensor_map, const int (&at)[Rank], const void* source)
{
    for_each_word(
        tensor_map, at, const_cast<unsigned char*>(static_cast<const unsigned char*>(source)), true,
        [](unsigned char* global, unsigned char* shared, long long word, bool inside) {
            inside ? std::memcpy(global, shared, word) : nullptr;
        });
}

}  // namespace cupytma

template <class Body>
int host_launch(unsigned grid, unsigned block_size, Body body)
{
    mistakes = 0;
    gridDim.x = grid;
    blockDim.x = block_size;
    for (unsigned block = 0; block < grid; ++block) {
        std::memset(dynamic_shared, 0xAB, sizeof dynamic_shared);
        run_threads(block_size, [=](unsigned thread) {
            blockIdx.x = block;
            threadIdx.x = thread;
            body();
        });
    }
    return mistakes;
}
