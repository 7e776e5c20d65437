// Pipelines through shared memory: one thread of a block loads tiles ahead into a ring of stages, the other warps use
// them, and tiles of results leave through a ring of their own. Who waits for which phase of which mbarrier is kept in
// here: a Producer and a Consumer that are asked in turn are right by construction.
//
// Dimension 0 moves fastest, extents and coordinates count elements, strides are in bytes.
#pragma once
#include <cupytma.cuh>
#include <cupytma/numbers.cuh>

namespace cupytma {
namespace pipeline {

constexpr unsigned warp_threads = 32;
constexpr unsigned tile_alignment = 128;  // bytes, of a tile in shared memory

// Rings of stages.

// Where a role is in a ring of stages. The parity is that of the phase that the ring's round completes.
template <int Stages>
struct RingPosition {
    unsigned stage = 0;
    unsigned parity = 0;

    __device__ void advance()
    {
        if (++stage == Stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// The mbarriers of a ring; declare them __shared__.
template <int Stages>
struct RingBarriers {
    unsigned long long full[Stages];   // a phase for each time that a stage's loads have come
    unsigned long long empty[Stages];  // a phase for each time that its consumers have left it

    // Run by one thread; a barrier of the block has to follow. Consumers are counted as they release a stage: as warps.
    __device__ void init(unsigned consumers)
    {
        for (int stage = 0; stage < Stages; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], consumers);
        }
        fence_mbarrier_init();  // before the unit signals them
    }
};

// The thread that loads. For each stage: begin, start loads that bring the announced bytes on loaded(), end.
template <int Stages>
class Producer {
public:
    __device__ explicit Producer(RingBarriers<Stages>& ring) : barriers(ring) {}

    // Waits until the stage is empty, and announces what its loads bring. Returns the number of the stage.
    __device__ unsigned begin(unsigned bytes)
    {
        mbarrier_wait_parity(&barriers.empty[at.stage], at.parity ^ 1);  // in the first round it is empty already
        mbarrier_arrive_expect_tx_sink(&barriers.full[at.stage], bytes);
        return at.stage;
    }
    __device__ unsigned long long* loaded() const { return &barriers.full[at.stage]; }
    __device__ void end() { at.advance(); }

private:
    RingBarriers<Stages>& barriers;
    RingPosition<Stages> at;
};

// Each thread of the warps that use what was loaded. For each stage: wait, read it, release.
template <int Stages>
class Consumer {
public:
    __device__ explicit Consumer(RingBarriers<Stages>& ring) : barriers(ring) {}

    // Waits until the stage is full. Returns its number.
    __device__ unsigned wait()
    {
        mbarrier_wait_parity(&barriers.full[at.stage], at.parity);
        return at.stage;
    }
    // Called by whole warps, which have read all that they need of the stage.
    __device__ void release()
    {
        __syncwarp();
        if (threadIdx.x % warp_threads == 0) {
            mbarrier_arrive_sink(&barriers.empty[at.stage]);
        }
        at.advance();
    }

private:
    RingBarriers<Stages>& barriers;
    RingPosition<Stages> at;
};

// Threads that work together: a warp, or the first Threads of the block, which meet at named barrier 1.
template <unsigned Threads>
class Group {
public:
    static constexpr unsigned threads = Threads;
    const unsigned thread = threadIdx.x % Threads;

    __device__ void sync() const
    {
        if constexpr (Threads == warp_threads) {
            __syncwarp();
        } else {
            asm volatile("bar.sync 1, %0;" : : "n"(Threads) : "memory");
        }
    }
    // The values of all threads combined, in the same order every time; every thread gets the result.
    template <class Value, class Combine>
    __device__ Value reduce(Value value, Combine combine) const;

    template <class Value>
    __device__ Value sum(Value value) const
    {
        return reduce(value, [](Value a, Value b) { return a + b; });
    }
    template <class Value>
    __device__ Value max(Value value) const
    {
        return reduce(value, [](Value a, Value b) { return a < b ? b : a; });
    }
    template <class Value>
    __device__ Value min(Value value) const
    {
        return reduce(value, [](Value a, Value b) { return b < a ? b : a; });
    }
};

// Tiles of results that leave shared memory by tensor stores, while the next ones are written to other stages. Used by
// the threads of a group together. For each tile: write stage(), commit.
template <int Stages, unsigned Threads>
class StoreRing {
    static_assert(Stages >= 2, "a tile is written while the one before is stored: at least 2 stages are needed");

public:
    // The number of the stage that may be written.
    __device__ unsigned stage() const { return at.stage; }

    // `store` starts the stores of the stage, in one thread.
    template <class Store>
    __device__ void commit(Store store)
    {
        fence_proxy_async_shared_cta();  // what was written is for the unit to read
        if (group.thread == 0) {
            // The next stage to be written was stored Stages - 1 tiles ago: newer stores may still be reading.
            bulk_wait_group_read<Stages - 2>();
        }
        group.sync();
        if (group.thread == 0) {
            store();
            bulk_commit_group();
        }
        at.advance();
    }
    // After the last tile.
    __device__ void finish()
    {
        if (group.thread == 0) {
            bulk_wait_group<0>();
        }
    }

private:
    Group<Threads> group;
    RingPosition<Stages> at;
};

// Tiles.

// The extents of a tile.
template <int Inner, int... Outer>
struct Box {
    static constexpr int rank = 1 + sizeof...(Outer);
    static constexpr int inner = Inner;
    static constexpr int rows = (1 * ... * Outer);
    static constexpr int elements = inner * rows;

    static __device__ constexpr int extent(int dimension)
    {
        const int extents[rank] = {Inner, Outer...};
        return extents[dimension];
    }
};

// How tiles cover arrays, and how they are dealt to the blocks: in runs along dimension 0.
template <int Rank>
struct Tiling {
    int extent[Rank];      // of the arrays
    unsigned count[Rank];  // tiles along each dimension
    unsigned run;          // tiles of a run; the last one of a row may have fewer
    unsigned parts;        // runs along dimension 0
    unsigned runs;         // in all
};

// The tiles of one block, one after the other: `for (TileWalk<Box> tile(tiling); tile.more(); tile.next())`.
template <class Box>
class TileWalk {
public:
    static constexpr int rank = Box::rank;
    const Tiling<rank>& tiling;
    int start[rank];  // the tile's first element

    __device__ explicit TileWalk(const Tiling<rank>& how) : tiling(how), number(blockIdx.x) { begin_run(); }

    __device__ bool more() const { return number < tiling.runs; }
    __device__ bool begins_run() const { return position == 0; }
    __device__ bool ends_run() const { return position + 1 == length; }
    __device__ unsigned part() const { return number % tiling.parts; }
    __device__ void next()
    {
        if (ends_run()) {
            number += gridDim.x;
            begin_run();
        } else {
            ++position;
            start[0] += Box::inner;
        }
    }
    // Elements of the tile along a dimension that are the arrays'.
    __device__ int size(int dimension) const
    {
        return min(Box::extent(dimension), max(tiling.extent[dimension] - start[dimension], 0));
    }
    __device__ bool is_whole() const
    {
        bool whole = true;
#pragma unroll
        for (int dimension = 0; dimension < rank; ++dimension) {
            whole &= size(dimension) == Box::extent(dimension);
        }
        return whole;
    }
    // The coordinates of an element of the tile; false where it is none of the arrays'.
    __device__ bool locate(int element, int (&at)[rank]) const
    {
        bool inside = true;
#pragma unroll
        for (int dimension = 0; dimension < rank; ++dimension) {
            at[dimension] = start[dimension] + element % Box::extent(dimension);
            element /= Box::extent(dimension);
            inside &= at[dimension] < tiling.extent[dimension];
        }
        return inside;
    }

    // How many of some elements of the tile, which follow one another in a row, are the arrays'.
    __device__ int count(int element, int most) const
    {
        int at[rank];
        return locate(element, at) ? min(most, tiling.extent[0] - at[0]) : 0;
    }

private:
    unsigned number, position, length;

    __device__ void begin_run()
    {
        unsigned rest = number / tiling.parts;
        const unsigned first = part() * tiling.run;
        position = 0;
        length = min(tiling.run, tiling.count[0] - first);
        start[0] = static_cast<int>(first) * Box::inner;
#pragma unroll
        for (int dimension = 1; dimension < rank; ++dimension) {
            const unsigned outer = rest / tiling.count[dimension];
            start[dimension] = static_cast<int>(rest - outer * tiling.count[dimension]) * Box::extent(dimension);
            rest = outer;
        }
    }
};

// The boxes that a tile consists of: one where Inner is the tile's own, else pieces of its rows, one after the other.
template <class Box, int Inner, int Pack, class Move>
__device__ __forceinline__ void for_each_box(const TileWalk<Box>& tile, Move move)
{
    static_assert(Box::inner % Inner == 0 && Inner % Pack == 0, "boxes divide a row of the tile");
    int at[Box::rank];
#pragma unroll
    for (int dimension = 0; dimension < Box::rank; ++dimension) {
        at[dimension] = tile.start[dimension];
    }
    if constexpr (Inner == Box::inner) {
        at[0] /= Pack;
        move(at, 0);
    } else {
#pragma unroll 1
        for (int element = 0; element < Box::elements; element += Inner) {
            tile.locate(element, at);
            at[0] /= Pack;
            move(at, element);
        }
    }
}

// Starts the loads of a tile, through a map whose box has Inner elements of the tile along dimension 0, Pack of which
// are one of the map's. They bring sizeof(T) * Box::elements bytes, also where the tile reaches beyond the tensor.
template <class Box, int Inner, int Pack, class T>
__device__ __forceinline__ void load(
    T* shared, const CUtensorMap& map, const TileWalk<Box>& tile, unsigned long long* loaded)
{
    for_each_box<Box, Inner, Pack>(tile, [&](const int (&at)[Box::rank], int element) {
        tensor_load(shared + element, &map, at, loaded);
    });
}

// Starts the stores of a tile; they leave out what lies beyond the map's tensor.
template <class Box, int Inner, int Pack, class T>
__device__ __forceinline__ void store(const CUtensorMap& map, const TileWalk<Box>& tile, const T* shared)
{
    for_each_box<Box, Inner, Pack>(tile, [&](const int (&at)[Box::rank], int element) {
        tensor_store(&map, at, shared + element);
    });
}

// An array for ordinary loads and stores.
template <int Rank>
struct Strided {
    unsigned char* data;
    long long stride[Rank];
    long long stored;  // elements of each row that tensor stores write

    template <class T>
    __device__ T& element(const int (&at)[Rank]) const
    {
        long long offset = 0;
#pragma unroll
        for (int dimension = 0; dimension < Rank; ++dimension) {
            offset += at[dimension] * stride[dimension];
        }
        return *reinterpret_cast<T*>(data + offset);
    }
};

// Brings a tile of an array that no tensor map takes; zeros where the tile reaches beyond it.
template <class Box, class T, unsigned Threads>
__device__ void copy_in(
    T* shared, const Strided<Box::rank>& array, const TileWalk<Box>& tile, const Group<Threads>& group)
{
#pragma unroll 4
    for (int element = group.thread; element < Box::elements; element += Threads) {
        int at[Box::rank];
        const bool inside = tile.locate(element, at);
        shared[element] = inside ? array.template element<const T>(at) : T();
    }
}

// Writes what tensor stores leave of a tile: the ends of rows that are no multiple of 16 bytes, or everything.
template <class Box, class T, unsigned Threads>
__device__ void copy_out(
    const Strided<Box::rank>& array, const TileWalk<Box>& tile, const T* shared, const Group<Threads>& group)
{
    const long long left = array.stored - tile.start[0];
    const int first = left <= 0 ? 0 : left >= Box::inner ? Box::inner : static_cast<int>(left);
    const int width = tile.size(0) - first;
    if (width <= 0) {
        return;
    }
#pragma unroll 1
    for (int number = group.thread; number < width * Box::rows; number += Threads) {
        const int row = number / width, element = row * Box::inner + first + number - row * width;
        int at[Box::rank];
        if (tile.locate(element, at)) {
            array.template element<T>(at) = shared[element];
        }
    }
}

// Elements.

// Elements of a tile that lie together, as one word of shared memory.
template <class T, int Count>
struct alignas(sizeof(T) * Count) Vector {
    T value[Count];
};

template <int Count, class T>
__device__ __forceinline__ Vector<T, Count> read(const T* shared)
{
    return *reinterpret_cast<const Vector<T, Count>*>(shared);
}

template <class T, int Count>
__device__ __forceinline__ void write(T* shared, const Vector<T, Count>& values)
{
    *reinterpret_cast<Vector<T, Count>*>(shared) = values;
}

// Reductions.

// The number of a row, counted over all dimensions but 0, and back.
template <int Rank>
__device__ unsigned long long row_number(const Tiling<Rank>& tiling, const int (&at)[Rank])
{
    unsigned long long row = 0;
#pragma unroll
    for (int dimension = Rank - 1; dimension > 0; --dimension) {
        row = row * tiling.extent[dimension] + at[dimension];
    }
    return row;
}

template <int Rank>
__device__ unsigned long long row_count(const Tiling<Rank>& tiling)
{
    unsigned long long rows = 1;
#pragma unroll
    for (int dimension = 1; dimension < Rank; ++dimension) {
        rows *= tiling.extent[dimension];
    }
    return rows;
}

template <int Rank>
__device__ void locate_row(const Tiling<Rank>& tiling, unsigned long long row, int (&at)[Rank])
{
    at[0] = 0;
#pragma unroll
    for (int dimension = 1; dimension < Rank; ++dimension) {
        at[dimension] = static_cast<int>(row % tiling.extent[dimension]);
        row /= tiling.extent[dimension];
    }
}

template <class T, class Exchange>
__device__ __forceinline__ T exchanged(const T& value, Exchange exchange)
{
    unsigned words[(sizeof(T) + 3) / 4] = {};
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (unsigned& word : words) {
        word = exchange(word);
    }
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
}

template <unsigned Threads>
template <class Value, class Combine>
__device__ Value Group<Threads>::reduce(Value value, Combine combine) const
{
    constexpr unsigned all = 0xffffffff;
#pragma unroll
    for (unsigned distance = warp_threads / 2; distance > 0; distance /= 2) {
        value = combine(
            value, exchanged(value, [&](unsigned word) { return __shfl_down_sync(all, word, distance); }));
    }
    value = exchanged(value, [&](unsigned word) { return __shfl_sync(all, word, 0); });
    if constexpr (Threads > warp_threads) {
        // As bytes: a variable in shared memory has no constructor.
        alignas(Value) __shared__ unsigned char memory[sizeof(Value) * (Threads / warp_threads)];
        Value* of_warps = reinterpret_cast<Value*>(memory);
        sync();  // the results of the last time have been read
        of_warps[thread / warp_threads] = value;
        sync();
        value = of_warps[0];
#pragma unroll
        for (unsigned warp = 1; warp < Threads / warp_threads; ++warp) {
            value = combine(value, of_warps[warp]);
        }
    }
    return value;
}

// Dynamic shared memory as what the kernel keeps there, aligned for tiles. Launch with tile_alignment more bytes.
template <class Layout>
__device__ Layout& shared_memory()
{
    extern __shared__ unsigned char dynamic_shared[];
    const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % tile_alignment;
    return *reinterpret_cast<Layout*>(dynamic_shared + (tile_alignment - misaligned) % tile_alignment);
}

}  // namespace pipeline
}  // namespace cupytma
