// CUDA C++ on the host, as far as the kernels that make and use tensor maps need it: the threads of a block are fibers
// that take turns where one waits, blocks run one after another, and the tensor unit works at once. What the unit does
// to bytes is written from the measured facts, not from the package's own tables.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __constant__ static
#define __shared__ static
#define __launch_bounds__(...)

struct uint3 { unsigned x, y, z; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;
using std::max;
using std::min;

constexpr unsigned arena_bytes = 256 * 1024;
alignas(1024) unsigned char dynamic_shared[arena_bytes];

namespace emulation {
constexpr unsigned warp_size = 32;
constexpr int most_idle_rounds = 2000;

struct Meeting {
    unsigned arrived = 0;
    unsigned long long round = 0;
};
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
};
struct Mbarrier {
    unsigned count = 0, pending = 0;
    long long bytes = 0;
    unsigned phase = 0;
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline unsigned current;
inline bool progress;
inline std::function<void()> body;
inline std::map<unsigned, Meeting> meetings;
inline std::map<const void*, Mbarrier> mbarriers;
inline unsigned long long exchanged[2][1024];
inline const char* failure;

[[noreturn]] inline void fail(const char* why)
{
    failure = why;
    swapcontext(&fibers[current].context, &scheduler);
    std::abort();
}

inline void yield()
{
    swapcontext(&fibers[current].context, &scheduler);
}

inline void entry()
{
    body();
    fibers[current].done = true;
    progress = true;
    swapcontext(&fibers[current].context, &scheduler);
}

// Waits for threads first to last - 1, those that have ended left out.
inline void meet(unsigned key, unsigned first, unsigned last)
{
    Meeting& meeting = meetings[key];
    const unsigned long long round = meeting.round;
    ++meeting.arrived;
    progress = true;
    for (;;) {
        if (meeting.round != round) return;
        unsigned alive = 0;
        for (unsigned i = first; i < last; ++i) alive += !fibers[i].done;
        if (meeting.arrived >= alive) {
            meeting.arrived = 0;
            ++meeting.round;
            progress = true;
            return;
        }
        yield();
    }
}

inline unsigned lane() { return current % warp_size; }
inline void meet_warp()
{
    const unsigned first = current / warp_size * warp_size;
    meet(1000 + current / warp_size, first, std::min<unsigned>(first + warp_size, fibers.size()));
}

// What every lane gives, for the lanes to read.
inline const unsigned long long* exchange(unsigned long long value)
{
    const unsigned first = current / warp_size * warp_size;
    exchanged[0][current] = value;
    meet_warp();
    exchanged[1][current] = exchanged[0][current];
    meet_warp();
    return exchanged[1] + first;
}

inline const char* run_block(unsigned threads)
{
    meetings.clear();
    mbarriers.clear();
    fibers.clear();
    fibers.resize(threads);
    for (auto& fiber : fibers) {
        fiber.stack.resize(64 * 1024);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, entry, 0);
    }
    failure = nullptr;
    for (int idle = 0;;) {
        bool alive = false;
        progress = false;
        for (current = 0; current < threads; ++current) {
            if (fibers[current].done) continue;
            alive = true;
            threadIdx = {current, 0, 0};
            swapcontext(&scheduler, &fibers[current].context);
            if (failure) return failure;
        }
        if (!alive) return nullptr;
        idle = progress ? 0 : idle + 1;
        if (idle > most_idle_rounds) return "the block hangs";
    }
}

template <typename... Parameters, std::size_t... I>
const char* launch(void (*kernel)(Parameters...), const unsigned* shape, void** arguments, std::index_sequence<I...>)
{
    gridDim = {shape[0], shape[1], shape[2]};
    blockDim = {shape[3], 1, 1};
    if (shape[4] != 1 || shape[5] != 1) return "a block has one dimension here";
    if (shape[6] > arena_bytes) return "too much shared memory";
    body = [=] { kernel(*reinterpret_cast<std::remove_reference_t<Parameters>*>(arguments[I])...); };
    for (unsigned z = 0; z < shape[2]; ++z)
        for (unsigned y = 0; y < shape[1]; ++y)
            for (unsigned x = 0; x < shape[0]; ++x) {
                blockIdx = {x, y, z};
                std::memset(dynamic_shared, 0xCD, shape[6]);
                if (const char* why = run_block(shape[3])) return why;
            }
    return nullptr;
}

template <typename... Parameters>
const char* launch(void (*kernel)(Parameters...), const unsigned* shape, void** arguments)
{
    return launch(kernel, shape, arguments, std::index_sequence_for<Parameters...>());
}
}  // namespace emulation

#define EMULATED(name)                                                                                    \
    extern "C" const char* run_##name(const unsigned* shape, void** arguments)                            \
    {                                                                                                     \
        return emulation::launch(name, shape, arguments);                                                 \
    }

// The language's functions.
inline void __syncthreads() { emulation::meet(0, 0, emulation::fibers.size()); }
inline void __syncwarp(unsigned = ~0u) { emulation::meet_warp(); }
inline void named_barrier(unsigned id, unsigned threads) { emulation::meet(id, 0, threads); }
inline void __threadfence() {}
inline void __nanosleep(unsigned) { emulation::yield(); }
inline unsigned __ballot_sync(unsigned, bool value)
{
    const unsigned long long* given = emulation::exchange(value);
    unsigned found = 0;
    for (unsigned i = 0; i < 32; ++i) found |= unsigned(given[i] != 0) << i;
    return found;
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane)
{
    unsigned long long bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = emulation::exchange(bits)[lane % 32];
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned by)
{
    unsigned long long bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    const unsigned lane = emulation::lane();
    const unsigned long long* given = emulation::exchange(bits);
    if (lane >= by) std::memcpy(&value, given + lane - by, sizeof value);
    return value;
}
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned pick)
{
    const unsigned long long both = low | static_cast<unsigned long long>(high) << 32;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) found |= (both >> (pick >> 4 * i & 7) * 8 & 255) << 8 * i;
    return found;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits)
{
    return static_cast<unsigned>((low | static_cast<unsigned long long>(high) << 32) >> (bits & 31));
}
template <typename T>
T atomicAdd(T* place, T value)
{
    const T before = *place;
    *place += value;
    return before;
}
template <typename T>
T atomicCAS(T* place, std::common_type_t<T> compare, std::common_type_t<T> value)
{
    const T before = *place;
    if (before == compare) *place = value;
    return before;
}
template <typename To, typename From>
To same_bits(From from)
{
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
inline unsigned __float_as_uint(float number) { return same_bits<unsigned>(number); }
inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
inline long long __double_as_longlong(double number) { return same_bits<long long>(number); }
inline float __fadd_rn(float one, float other) { return one + other; }
inline double __dadd_rn(double one, double other) { return one + other; }
template <typename T>
T __ldg(const T* place) { return *place; }
template <typename T>
T __ldcg(const T* place) { return *place; }
inline std::uintptr_t __cvta_generic_to_shared(const void* pointer)
{
    const auto* p = static_cast<const unsigned char*>(pointer);
    return p >= dynamic_shared && p < dynamic_shared + arena_bytes ? std::uintptr_t(p - dynamic_shared)
                                                                    : reinterpret_cast<std::uintptr_t>(p);
}

typedef struct alignas(64) CUtensorMap_st {
    unsigned long long opaque[16];
} CUtensorMap;

namespace emulation {
// A tiled map without interleave and with element strides of 1, read from its bits.
struct Map {
    unsigned long long address;
    int rank, size, swizzle;
    long long extents[5], strides[5], box[5];

    explicit Map(const CUtensorMap* given)
    {
        const unsigned long long* w = given->opaque;
        static const int sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2};
        address = w[0];
        rank = int(w[1] >> 4 & 7) + 1;
        size = sizes[w[1] >> 7 & 15];
        swizzle = int(w[1] >> 13 & 3);
        if (w[1] & 1 || w[1] >> 11 & 3) fail("the unit here has tiled maps without interleave alone");
        const unsigned low[] = {unsigned(w[1] >> 32), unsigned(w[2]), unsigned(w[2] >> 32), unsigned(w[3])};
        const unsigned dims[] = {unsigned(w[4]), unsigned(w[4] >> 32), unsigned(w[5]), unsigned(w[5] >> 32), unsigned(w[6])};
        const unsigned boxes[] = {
            unsigned(w[6] >> 56), unsigned(w[7] & 255), unsigned(w[7] >> 8 & 255), unsigned(w[7] >> 16 & 255),
            unsigned(w[7] >> 24 & 255)};
        strides[0] = size;
        for (int i = 0; i < 4; ++i) strides[i + 1] = ((w[3] >> (32 + 4 * i) & 15) << 32 | low[i]) << 4;
        for (int i = 0; i < 5; ++i) extents[i] = i < rank ? dims[i] + 1ll : 1, box[i] = i < rank ? boxes[i] + 1 : 1;
        if (box[0] * size % 16) fail("illegal instruction: the inner row of the box");
        if (address % 16) fail("illegal instruction: the address");
    }

    long long bytes() const { return box[0] * box[1] * box[2] * box[3] * box[4] * size; }

    template <typename Move>
    void each(const int* at, const void* tile, bool stores, Move move) const
    {
        const auto place = reinterpret_cast<std::uintptr_t>(tile);
        if (place % 128) fail("misaligned address: the tile");
        if (at[0] * size % 16) fail("illegal instruction: the start of a row");
        for (int i = 0; stores && i < rank; ++i)
            if (at[i] < 0) fail("illegal instruction: a store's start is negative");
        const long long row = std::max<long long>(box[0] * size, swizzle ? 16 << swizzle : 0);
        const long long inner = stores ? (extents[0] * size + 15) / 16 * 16 : extents[0] * size;
        long long g[5] = {};
        long long number = 0;
        for (g[4] = 0; g[4] < box[4]; ++g[4])
            for (g[3] = 0; g[3] < box[3]; ++g[3])
                for (g[2] = 0; g[2] < box[2]; ++g[2])
                    for (g[1] = 0; g[1] < box[1]; ++g[1], ++number) {
                        bool inside = true;
                        unsigned long long from = address;
                        for (int i = 1; i < rank; ++i) {
                            const long long x = at[i] + g[i];
                            inside = inside && x >= 0 && x < extents[i];
                            from += x * strides[i];
                        }
                        for (long long b = 0; b < box[0] * size; ++b) {
                            const long long x = at[0] * static_cast<long long>(size) + b;
                            const std::uintptr_t linear = place + number * row + b;
                            auto* shared = reinterpret_cast<unsigned char*>(
                                linear ^ ((linear >> 7 & ((1u << swizzle) - 1)) << 4));
                            // A store's unit is 16 bytes, in if its first byte is.
                            const bool in = inside && x >= 0 && x < inner;
                            move(shared, reinterpret_cast<unsigned char*>(from + x), in);
                        }
                    }
    }
};

inline void finish(Mbarrier& barrier)
{
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.phase ^= 1;
        barrier.pending = barrier.count;
        progress = true;
    }
}
}  // namespace emulation

namespace cupytma {
using emulation::mbarriers;
inline void mbarrier_init(unsigned long long* b, unsigned count) { mbarriers[b] = {count, count, 0, 0}; }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive_expect_tx_sink(unsigned long long* b, unsigned bytes)
{
    auto& barrier = mbarriers.at(b);
    if (barrier.pending == 0) emulation::fail("an arrival too many");
    barrier.bytes += bytes;
    --barrier.pending;
    emulation::finish(barrier);
}
inline void mbarrier_arrive_sink(unsigned long long* b)
{
    auto& barrier = mbarriers.at(b);
    if (barrier.pending == 0) emulation::fail("an arrival too many");
    --barrier.pending;
    emulation::finish(barrier);
}
inline void mbarrier_wait_parity(unsigned long long* b, unsigned parity)
{
    while (mbarriers.at(b).phase == parity) emulation::yield();
    emulation::progress = true;
}
inline bool elect_sync(unsigned = ~0u)
{
    __syncwarp();
    return emulation::lane() == 0;
}
inline void prefetch_tensormap(const void*) {}
inline void fence_proxy_async() {}
inline void fence_proxy_async_shared_cta() {}
inline void bulk_commit_group() {}
template <int N> void bulk_wait_group() {}
template <int N> void bulk_wait_group_read() {}
inline void bulk_copy_to_shared_cluster_from_global(void* to, const void* from, unsigned bytes, unsigned long long* b)
{
    if (bytes % 16 || reinterpret_cast<std::uintptr_t>(to) % 16 || reinterpret_cast<std::uintptr_t>(from) % 16)
        emulation::fail("a bulk copy that is not aligned");
    std::memcpy(to, from, bytes);
    auto& barrier = mbarriers.at(b);
    barrier.bytes -= bytes;
    emulation::finish(barrier);
}
inline void bulk_copy_to_global_from_shared_cta(void* to, const void* from, unsigned bytes)
{
    if (bytes % 16 || reinterpret_cast<std::uintptr_t>(to) % 16 || reinterpret_cast<std::uintptr_t>(from) % 16)
        emulation::fail("a bulk copy that is not aligned");
    std::memcpy(to, from, bytes);
}
template <int Rank>
void tensor_load(void* tile, const void* map, const int (&at)[Rank], unsigned long long* b)
{
    const emulation::Map m(static_cast<const CUtensorMap*>(map));
    if (m.rank != Rank) emulation::fail("a load of another rank than its map");
    m.each(at, tile, false, [](unsigned char* shared, unsigned char* global, bool in) { *shared = in ? *global : 0; });
    auto& barrier = mbarriers.at(b);
    barrier.bytes -= m.bytes();
    emulation::finish(barrier);
}
template <int Rank>
void tensor_store(const void* map, const int (&at)[Rank], const void* tile)
{
    const emulation::Map m(static_cast<const CUtensorMap*>(map));
    if (m.rank != Rank) emulation::fail("a store of another rank than its map");
    m.each(at, tile, true, [](unsigned char* shared, unsigned char* global, bool in) { if (in) *global = *shared; });
}
// What a reduction makes of an element, for the type that the kernel reduces.
template <int Rank, typename Bits>
void tensor_reduce(const void* map, const int (&at)[Rank], const void* tile, Bits (*combine)(Bits, Bits))
{
    const emulation::Map m(static_cast<const CUtensorMap*>(map));
    if (m.rank != Rank) emulation::fail("a reduction of another rank than its map");
    if (m.size != sizeof(Bits)) emulation::fail("a reduction of another type than its map's");
    m.each(at, tile, true, [=](unsigned char* shared, unsigned char* global, bool in) {
        if (!in || reinterpret_cast<std::uintptr_t>(shared) % sizeof(Bits)) return;
        Bits old, value;
        std::memcpy(&old, global, sizeof old);
        std::memcpy(&value, shared, sizeof value);
        old = combine(old, value);
        std::memcpy(global, &old, sizeof old);
    });
}
inline void tensor_load_1d(void* tile, const void* map, int x, unsigned long long* b)
{
    const int at[1] = {x};
    tensor_load<1>(tile, map, at, b);
}
inline void tensor_load_2d(void* tile, const void* map, int x, int y, unsigned long long* b)
{
    const int at[2] = {x, y};
    tensor_load<2>(tile, map, at, b);
}

// tensormap.replace, by the measured expansion.
inline void put(void* map, int word, int low, int width, unsigned long long value)
{
    auto* w = static_cast<unsigned long long*>(map);
    const unsigned long long mask = (width == 64 ? ~0ull : (1ull << width) - 1) << low;
    w[word] = (w[word] & ~mask) | (value << low & mask);
}
#define REPLACES(space)                                                                                             \
    inline void tensormap_replace_global_address_##space(void* m, unsigned long long v) { put(m, 0, 0, 64, v); }      \
    inline void tensormap_replace_rank_##space(void* m, unsigned v) { put(m, 1, 4, 3, v); }                           \
    template <int i> void tensormap_replace_box_dim_##space(void* m, unsigned v)                                      \
    {                                                                                                               \
        i == 0 ? put(m, 6, 56, 8, v - 1) : put(m, 7, 8 * (i - 1), 8, v - 1);                                          \
    }                                                                                                               \
    template <int i> void tensormap_replace_global_dim_##space(void* m, unsigned v)                                   \
    {                                                                                                               \
        put(m, 4 + i / 2, 32 * (i % 2), 32, v - 1);                                                                   \
    }                                                                                                               \
    template <int i> void tensormap_replace_global_stride_##space(void* m, unsigned long long v)                      \
    {                                                                                                               \
        put(m, i == 0 ? 1 : i == 3 ? 3 : 2, i == 0 || i == 2 ? 32 : 0, 32, v >> 4);                                   \
        put(m, 3, 32 + 4 * i, 4, v >> 36);                                                                            \
    }                                                                                                               \
    template <int i> void tensormap_replace_element_stride_##space(void* m, unsigned v)                               \
    {                                                                                                               \
        put(m, 6, 32 + 3 * i, 3, v - 1);                                                                              \
    }                                                                                                               \
    template <int v> void tensormap_replace_elemtype_##space(void* m)                                                 \
    {                                                                                                               \
        put(m, 1, 7, 4, v < 11 ? v : v < 13 ? v - 4 : v - 2);                                                         \
        if (v == 11 || v == 12) put(m, 1, 16, 1, 1);                                                                  \
    }                                                                                                               \
    template <int v> void tensormap_replace_interleave_layout_##space(void* m) { put(m, 1, 11, 2, v); }               \
    template <int v> void tensormap_replace_swizzle_mode_##space(void* m)                                             \
    {                                                                                                               \
        put(m, 1, 13, 2, v);                                                                                          \
        put(m, 1, 22, 1, v >> 2);                                                                                     \
    }                                                                                                               \
    template <int v> void tensormap_replace_swizzle_atomicity_##space(void* m) { put(m, 1, 19, 3, v); }               \
    template <int v> void tensormap_replace_fill_mode_##space(void* m) { put(m, 1, 15, 1, v); }
REPLACES(shared_cta)
REPLACES(global)
#undef REPLACES
#define SCOPED(scope)                                                                                               \
    inline void tensormap_cp_fenceproxy_##scope(void* to, const void* from)                                         \
    {                                                                                                               \
        if (reinterpret_cast<std::uintptr_t>(to) % 128 || reinterpret_cast<std::uintptr_t>(from) % 128)             \
            emulation::fail("misaligned address: a slot");                                                            \
        emulation::meet_warp();                                                                                       \
        std::memcpy(to, from, 128);                                                                                 \
        emulation::meet_warp();                                                                                       \
    }                                                                                                               \
    inline void fence_proxy_tensormap_acquire_##scope(const void*) {}                                               \
    inline void fence_proxy_tensormap_release_##scope() {}
SCOPED(cta)
SCOPED(cluster)
SCOPED(gpu)
SCOPED(sys)
#undef SCOPED
}  // namespace cupytma
