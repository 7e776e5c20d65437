// What the matrix product's kernel needs of CUDA and of the generated header, on the host: a thread for each thread,
// and the blocks of a cluster at the same time. Loads are made at once, when they can do most harm to what is still
// read; products and stores as late as can be, when the kernel waits for them; and the kernel before this one, which
// may run beside it, does its work when it is waited for.
//
// wgmma finds elements as the PTX ISA says of canonical layouts under the 128B swizzle: K-major, groups of eight rows
// stride_byte_offset apart; MN-major, groups of 64 elements leading_byte_offset apart, of eight lines along K
// stride_byte_offset apart. Bits 4 to 6 of an address are changed by bits 7 to 9.
#pragma once
#include <cmath>
#include <deque>
#include <functional>
#include <memory>

#include "../../cuda_on_host.cuh"

struct uint2 {
    unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

struct float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

constexpr unsigned shared_size = 1 << 18;
struct Block {
    unsigned char* shared;
    ThreadBarrier named[16], warps[32];
    std::atomic<int> copies{0};  // under way, that read this block's shared memory
    std::atomic<bool> has_waited{false};  // for the kernel before this one
    // What the threads of each warp tell one another.
    struct Told {
        unsigned char* line;
        unsigned pairs[4];
    } told[32][32];
};
inline std::vector<std::unique_ptr<Block>> blocks;  // of the cluster that runs
inline ThreadBarrier of_cluster;
inline unsigned cluster_size;
inline Block& block() { return *blocks[blockIdx.x % cluster_size]; }

inline void __syncthreads() { block().named[0].sync(blockDim.x); }
inline void __syncwarp() { block().warps[threadIdx.x / 32].sync(32); }
inline unsigned __shfl_sync(unsigned, unsigned number, unsigned) { return number; }  // all threads have the same
inline unsigned char* host_shared() { return block().shared; }
inline unsigned __cvta_generic_to_shared(const void* address)
{
    const long long offset = static_cast<const unsigned char*>(address) - block().shared;
    mistakes += offset < 0 || offset >= shared_size;
    return static_cast<unsigned>(offset);
}
inline unsigned __float_as_uint(float number)
{
    unsigned bits;
    std::memcpy(&bits, &number, 4);
    return bits;
}
template <class Number>
Number __ldcg(const Number* place)
{
    return *place;
}

namespace cupytma {

inline void mbarrier_arrive_release_cluster_shared_cluster_sink(unsigned long long* mbarrier)
{
    host_arrive(mbarrier, 1, 0);
}

inline void mbarrier_arrive_relaxed_cluster_shared_cluster_sink(unsigned long long* mbarrier)
{
    host_arrive(mbarrier, 1, 0);
    std::lock_guard<std::mutex> lock(mbarriers_mutex);
    host_mbarrier(mbarrier).is_told = true;
}
inline bool mbarrier_try_wait_parity_acquire_cluster(unsigned long long* mbarrier, unsigned parity)
{
    mbarrier_wait_parity(mbarrier, parity);
    return true;
}
inline thread_local bool is_met = false;  // arrived at the barrier of the cluster, and not waited yet
inline thread_local unsigned met_phase;
inline void barrier_cluster_arrive_relaxed()
{
    mistakes += is_met;
    is_met = true;
    met_phase = of_cluster.arrive(blockDim.x * cluster_size);
}
inline void barrier_cluster_wait()
{
    mistakes += !is_met;
    is_met = false;
    of_cluster.wait(met_phase);
}
inline unsigned mapa_shared_cluster_u32(const void* address, unsigned rank)
{
    return rank * shared_size + __cvta_generic_to_shared(address);
}
inline unsigned long long mapa_generic_u64(const void* address, unsigned rank)
{
    return reinterpret_cast<unsigned long long>(blocks[rank]->shared + __cvta_generic_to_shared(address));
}
// A copy is made late, when it can do most harm to what its source is used for, and ends when that is needed no more.
inline std::vector<std::thread> engines;
inline std::mutex engines_mutex;
constexpr std::chrono::milliseconds copy_time{100};
inline void bulk_copy_to_shared_cluster_from_shared_cta(
    void* destination, const void* source, unsigned bytes, unsigned long long* mbarrier)
{
    const unsigned from = __cvta_generic_to_shared(source);
    const long long to = static_cast<unsigned char*>(destination) - blocks[0]->shared;
    mistakes += from % 16 != 0 || to % 16 != 0 || bytes % 16 != 0 || bytes == 0;
    mistakes += to < 0 || to / shared_size >= cluster_size || to / shared_size == blockIdx.x % cluster_size;
    const long long signal = reinterpret_cast<unsigned char*>(mbarrier) - blocks[0]->shared;
    mistakes += signal / shared_size != to / shared_size;
    Block& own = block();
    ++own.copies;
    std::lock_guard<std::mutex> lock(engines_mutex);
    engines.emplace_back([=, &own] {
        std::this_thread::sleep_for(copy_time);
        std::memcpy(destination, source, bytes);
        --own.copies;
        host_arrive(mbarrier, 0, -static_cast<long long>(bytes));
    });
}
inline void griddepcontrol_launch_dependents() {}

// The work before this kernel ends when all are waiting that have to, so that others have run ahead as far as they may:
// every thread that multiplies, and the one that loads. A kernel in which some do not wait gives these time to do harm.
inline void (*work_before)() = nullptr;
inline unsigned waiting, have_to_wait;
inline std::mutex work_mutex;
inline std::condition_variable work_changed;
constexpr std::chrono::seconds time_to_do_harm{5};
inline void griddepcontrol_wait()
{
    block().has_waited = true;
    std::unique_lock<std::mutex> lock(work_mutex);
    if (++waiting == have_to_wait) {
        work_changed.notify_all();
    }
    work_changed.wait_for(lock, time_to_do_harm, [] { return !work_before || waiting == have_to_wait; });
    if (work_before) {
        work_before();
        work_before = nullptr;
        work_changed.notify_all();
    }
}

// What a thread has started, in groups, and does when it waits for it.
class Groups {
public:
    void start(std::function<void()> work) { open.push_back(std::move(work)); }
    void commit()
    {
        groups.push_back(std::move(open));
        open.clear();
    }
    void wait(std::size_t left)
    {
        for (; groups.size() > left; groups.pop_front()) {
            for (const auto& work : groups.front()) {
                work();
            }
        }
    }
    bool empty() const { return open.empty() && groups.empty(); }

private:
    std::vector<std::function<void()>> open;
    std::deque<std::vector<std::function<void()>>> groups;
};
inline thread_local Groups stores, products;
inline void bulk_commit_group() { stores.commit(); }
template <int Count> void bulk_wait_group_read() { stores.wait(Count); }
template <int Count> void setmaxnreg_inc() {}
template <int Count> void setmaxnreg_dec() {}
// The threads of a warp execute these together.
inline void wgmma_fence() { __syncwarp(); }
inline void wgmma_commit_group()
{
    products.commit();
    __syncwarp();
}
template <int Count> void wgmma_wait_group()
{
    products.wait(Count);
    __syncwarp();
}

inline unsigned swizzled(unsigned address, unsigned span = 128)
{
    return address ^ (address >> 7 & (span / 16 - 1)) << 4;
}

// Of a tensor map: address, bytes of an element, two extents, the stride, and the box of the two.
template <class Move>
void for_each_element(const void* tensor_map, const int (&at)[2], const void* tile, bool rounded, Move move)
{
    const unsigned long long* words = static_cast<const CUtensorMap*>(tensor_map)->opaque;
    const long long size = words[1], extents[2] = {(long long)words[2], (long long)words[3]};
    const long long extent = rounded ? (extents[0] * size + 15) / 16 * 16 / size : extents[0];
    const unsigned start = __cvta_generic_to_shared(tile), span = (unsigned)words[7];
    mistakes += words[5] * size != span || at[0] * size % 16 != 0 || start % 128 != 0 || at[0] < 0 || at[1] < 0;
    for (unsigned line = 0; line < words[6]; ++line) {
        for (unsigned element = 0; element < words[5]; ++element) {
            const long long x = at[0] + (long long)element, y = at[1] + (long long)line;
            const unsigned place = swizzled(start + line * span + element * (unsigned)size, span);
            move(reinterpret_cast<unsigned char*>(words[0]) + y * (long long)words[4] + x * size, place, size,
                 x < extent && y < extents[1]);
        }
    }
}

inline void host_load(void* tile, const void* map, const int (&at)[2], unsigned long long* mbarrier, unsigned mask)
{
    const unsigned long long* words = static_cast<const CUtensorMap*>(map)->opaque;
    const unsigned signal = __cvta_generic_to_shared(mbarrier);
    for (unsigned rank = 0; rank < cluster_size; ++rank) {
        if (mask >> rank & 1) {
            unsigned char* shared = blocks[rank]->shared;
            for_each_element(map, at, tile, false, [=](unsigned char* global, unsigned place, long long size, bool in) {
                in ? std::memcpy(shared + place, global, size) : std::memset(shared + place, 0, size);
            });
            host_arrive(reinterpret_cast<unsigned long long*>(shared + signal), 0, -128ll * (long long)words[6]);
        }
    }
}
template <int Rank>
void tensor_load(void* tile, const void* map, const int (&at)[Rank], unsigned long long* mbarrier)
{
    host_load(tile, map, at, mbarrier, 1u << blockIdx.x % cluster_size);
}
template <int Rank>
void tensor_load_multicast(
    void* tile, const void* map, const int (&at)[Rank], unsigned long long* mbarrier, unsigned short mask)
{
    host_load(tile, map, at, mbarrier, mask);
}
template <int Rank>
void tensor_store(const void* map, const int (&at)[Rank], const void* tile)
{
    const unsigned char* shared = block().shared;
    const int x = at[0], y = at[Rank - 1];
    CUtensorMap plane = *static_cast<const CUtensorMap*>(map);  // where a third dimension, in the middle, is `at`
    if (Rank == 3) {
        mistakes += at[1] < 0 || at[1] >= (long long)plane.opaque[8];
        plane.opaque[0] += at[1] * plane.opaque[9];
    }
    stores.start([=] {
        const auto write = [=](unsigned char* global, unsigned place, long long size, bool in) {
            in ? std::memcpy(global, shared + place, size) : nullptr;
        };
        for_each_element(&plane, {x, y}, tile, true, write);
    });
}

inline unsigned long long matrix_descriptor(
    const void* start, unsigned leading_byte_offset, unsigned stride_byte_offset, unsigned swizzle)
{
    return (unsigned long long)(__cvta_generic_to_shared(start) >> 4)
        | (unsigned long long)(leading_byte_offset >> 4) << 16
        | (unsigned long long)(stride_byte_offset >> 4) << 32 | (unsigned long long)swizzle << 62;
}

// A number of a type: 0 e4m3, 1 e5m2, 2 bf16, 3 f16, 4 tf32.
inline float number(const unsigned char* place, int type)
{
    unsigned bits = 0;
    std::memcpy(&bits, place, type < 2 ? 1 : type < 4 ? 2 : 4);
    if (type == 0) {
        const int exponent = bits >> 3 & 15, fraction = bits & 7;
        const float size =
            exponent == 0 ? std::ldexp(fraction / 8.0f, -6) : std::ldexp(1 + fraction / 8.0f, exponent - 7);
        return (bits & 127) == 127 ? NAN : bits & 128 ? -size : size;
    }
    if (type == 1 || type == 3) {
        const unsigned short half = static_cast<unsigned short>(type == 1 ? bits << 8 : bits);
        _Float16 found;
        std::memcpy(&found, &half, 2);
        return found;
    }
    return __uint_as_float(type == 2 ? bits << 16 : bits);
}

inline unsigned place_of(unsigned long long descriptor, int transposed, unsigned size, unsigned row, unsigned k)
{
    const unsigned start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
    const unsigned stride = (descriptor >> 32 & 0x3fff) << 4;
    mistakes += descriptor >> 62 != 1;
    return swizzled(
        transposed ? start + row / 64 * leading + row % 64 * size + k / 8 * stride + k % 8 * 128
                   : start + row / 8 * stride + row % 8 * 128 + k * size);
}

inline float multiplied(unsigned long long a, unsigned long long b, int trans_a, int trans_b, int i, float sum)
{
    const unsigned char* shared = block().shared;
    const unsigned thread = threadIdx.x % 128;
    const unsigned row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    const unsigned column = i / 4 * 8 + thread % 4 * 2 + i % 2;
    // Rows behind a tile's lie in what the block has asked for too.
    mistakes += place_of(a, trans_a, ELEMENT_BYTES, row, 31 / ELEMENT_BYTES) >= SHARED_BYTES - 1024;
    for (unsigned k = 0; k < 32 / ELEMENT_BYTES; ++k) {
        sum += number(shared + place_of(a, trans_a, ELEMENT_BYTES, row, k), HOST_ROWS_TYPE)
            * number(shared + place_of(b, trans_b, ELEMENT_BYTES, column, k), HOST_COLUMNS_TYPE);
    }
    return sum;
}

template <int ScaleA, int ScaleB, int TransA = 0, int TransB = 0, int Registers>
void host_multiply(float (&d)[Registers], unsigned long long a, unsigned long long b, bool add)
{
    float* sums = d;
    products.start([=] {
        for (int i = 0; i < Registers; ++i) {
            sums[i] = multiplied(a, b, TransA, TransB, i, add ? sums[i] : 0);
        }
    });
}

}  // namespace cupytma

template <class Body>
int host_launch(unsigned grid, unsigned threads_of_block, unsigned cluster, Body body)
{
    mistakes = 0;
    gridDim.x = grid;
    blockDim.x = threads_of_block;
    cluster_size = cluster;
    cupytma::waiting = 0;
    cupytma::have_to_wait = cluster * (threads_of_block - 128 + 1);
    std::vector<unsigned char> memory(cluster * shared_size + 1024);
    unsigned char* aligned = memory.data() + (1024 - reinterpret_cast<unsigned long long>(memory.data()) % 1024);
    // From the last on: what a block writes of the tile behind its own is not written over by whose it is.
    for (unsigned left = grid; left > 0; left -= cluster) {
        const unsigned first = left - cluster;
        std::memset(memory.data(), 0xFF, memory.size());  // not a number, of every type
        blocks.clear();
        cupytma::mbarriers.clear();
        for (unsigned rank = 0; rank < cluster; ++rank) {
            blocks.push_back(std::make_unique<Block>());
            blocks.back()->shared = aligned + rank * shared_size;
        }
        run_threads(cluster * threads_of_block, [=](unsigned number) {
            blockIdx.x = first + number / threads_of_block;
            threadIdx.x = number % threads_of_block;
            body();
            mistakes += block().copies > 0;
            mistakes += !cupytma::stores.empty() || !cupytma::products.empty() || cupytma::is_met;
        });
        for (std::thread& engine : cupytma::engines) {
            engine.join();
        }
        cupytma::engines.clear();
        for (const auto& block : blocks) {  // a kernel ends after those before it: the next one waits for it alone
            mistakes += !block->has_waited;
        }
        for (const auto& [place, mbarrier] : cupytma::mbarriers) {
            mistakes += !mbarrier.is_awaited();
        }
    }
    return mistakes;
}
