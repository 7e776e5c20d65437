// Copies of many arrays of different shapes in one launch.
//
// settle_pairs and settle_ragged find how each group moves and make its tensor maps, in a launch before; move_groups moves
// them all. Each warp takes a piece of one group, so that pieces are read and written in the order in which they lie in
// memory: that is faster than few blocks that go on and on (measured).
//
// What lies together in both arrays and at multiples of 16 bytes moves through the tensor unit: plain runs by bulk copies,
// strided ones through two tensor maps that are made here, of the same extents and box. A tensor store rounds each row up
// to 16 bytes, so that row ends within a 16-byte unit are left to ordinary loads and stores, as are arrays that no map may
// describe: the rest.
#include <groups.cuh>

constexpr unsigned move_warps = MOVE_WARPS;
constexpr unsigned tile_alignment = 128;
constexpr unsigned boxes_of_piece = 4;    // that follow one another, for one acquire of their maps
constexpr unsigned turns_of_rest = 8;     // words of a piece of a rest, for each lane
constexpr int max_outer = 4;
constexpr int max_rank = max_outer + 1;
constexpr unsigned word = 8;              // bytes of an element of the maps
constexpr unsigned max_box = 256;         // elements
constexpr unsigned line = 128;            // bytes; boxes start on whole lines
constexpr unsigned stage_bytes = STAGE_BYTES;
constexpr unsigned long long no_limit = ~0ull;
constexpr unsigned long long longest_row = static_cast<unsigned long long>(word) << 31;  // bytes: coordinates are int

enum Kind : unsigned { rest_alone, run, boxes };

// One copy: runs of bytes that lie together in both arrays, repeated along outer dimensions, innermost first.
struct Pair {
    unsigned long long source;
    unsigned long long destination;
    unsigned long long run;  // bytes
    unsigned long long extents[max_outer];
    long long source_strides[max_outer];  // bytes
    long long destination_strides[max_outer];
    // Of the last outer dimension, what the source has; the destination gets zeros beyond.
    unsigned long long limit;
    unsigned outer_rank;
    unsigned is_mapped;  // whether addresses and strides are such that the tensor unit may move it
};

// What is known of a group once its shape is.
struct Group {
    Pair pair;
    unsigned long long rest_start;  // bytes of each run that the unit moves
    unsigned long long rest_words;  // of each run, that are left
    unsigned kind;
    unsigned rest_word;             // bytes
    unsigned box[max_rank];         // elements of `word` bytes along dimension 0
    unsigned counts[max_rank];      // boxes along each dimension
    unsigned tile_bytes;
    unsigned shift;                 // added to the source's coordinate along the last dimension
    unsigned tiles;                 // boxes in all
};

static_assert(sizeof(Group) <= GROUP_BYTES, "the host makes room for the groups");

// The smallest part that splits an extent into as few parts as the limit allows.
__device__ __forceinline__ unsigned long long even(unsigned long long extent, unsigned long long limit)
{
    const unsigned long long parts = (extent + limit - 1) / limit;
    return (extent + parts - 1) / parts;
}

// Dimensions of one element go, and what lies together becomes one run.
__device__ __forceinline__ void merge(Pair& pair)
{
    if (pair.limit != no_limit) {
        return;
    }
    unsigned kept = 0;
#pragma unroll 1
    for (unsigned i = 0; i < pair.outer_rank; ++i) {
        const bool joins = kept == 0 && pair.source_strides[i] == static_cast<long long>(pair.run)
            && pair.destination_strides[i] == static_cast<long long>(pair.run)
            && pair.extents[i] <= longest_row / pair.run;
        if (pair.extents[i] == 1) {
            continue;
        }
        if (joins) {
            pair.run *= pair.extents[i];
            continue;
        }
        pair.extents[kept] = pair.extents[i];
        pair.source_strides[kept] = pair.source_strides[i];
        pair.destination_strides[kept] = pair.destination_strides[i];
        ++kept;
    }
    pair.outer_rank = kept;
}

// The longest word that everything of a rest is a multiple of.
__device__ __forceinline__ unsigned word_of(const Pair& pair, unsigned long long start, unsigned long long bytes)
{
    unsigned long long all = (pair.source + start) | (pair.destination + start) | bytes;
#pragma unroll 1
    for (unsigned i = 0; i < pair.outer_rank; ++i) {
        all |= static_cast<unsigned long long>(pair.source_strides[i] | pair.destination_strides[i]);
    }
    return all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
}

// Boxes of about a stage, as even as the extents allow.
__device__ __forceinline__ void choose_boxes(Group& group, const unsigned long long (&extents)[max_rank])
{
    const unsigned long long row = extents[0] * word;
    unsigned long long inner = row;
    if (row > line) {
        inner = min(static_cast<unsigned long long>(max_box * word), (even(row, max_box * word) + line - 1) / line * line);
    }
    unsigned long long room = stage_bytes / inner, box = inner / word;
    group.tile_bytes = static_cast<unsigned>(inner);
#pragma unroll 1
    for (unsigned i = 0; i < max_rank; ++i) {
        if (i > 0) {
            box = even(extents[i], max(1ull, min(static_cast<unsigned long long>(max_box), room)));
            room /= box;
            group.tile_bytes *= static_cast<unsigned>(box);
        }
        group.box[i] = static_cast<unsigned>(box);
        group.counts[i] = static_cast<unsigned>((extents[i] + box - 1) / box);
    }
}

template <int i>
__device__ __forceinline__ void replace_dimension(
    maps::Slot& slot, const Group& group, const unsigned long long (&extents)[max_rank],
    const long long (&strides)[max_outer])
{
    if (i <= static_cast<int>(group.pair.outer_rank)) {
        maps::replace_global_dim<i>(slot, static_cast<unsigned>(extents[i]));
        maps::replace_box_dim<i>(slot, group.box[i]);
        if constexpr (i > 0) {
            maps::replace_global_stride<i - 1>(slot, static_cast<unsigned long long>(strides[i - 1]));
        }
    }
}

// A whole warp makes the map of one side.
__device__ __forceinline__ void make_map(
    maps::Slot& slot, CUtensorMap* tensor_map, const CUtensorMap* seed, const Group& group, unsigned long long address,
    const unsigned long long (&extents)[max_rank], const long long (&strides)[max_outer])
{
    maps::copy_template(slot, seed);
    const unsigned rank = group.pair.outer_rank + 1;
    if (maps::lane_of_warp() == 0) {
        maps::replace_rank(slot, rank);
        maps::replace_global_address(slot, address);
        replace_dimension<0>(slot, group, extents, strides);
        replace_dimension<1>(slot, group, extents, strides);
        replace_dimension<2>(slot, group, extents, strides);
        replace_dimension<3>(slot, group, extents, strides);
        replace_dimension<4>(slot, group, extents, strides);
    }
    maps::publish(tensor_map, slot, maps::Scope::gpu);
}

// Finds how a pair moves, and makes its maps where it has any. Run by a whole warp; an empty pair has a run of 0.
__device__ __forceinline__ void settle(
    const Work<Group>& work, unsigned long long number, Pair pair, maps::Slot& slot, const CUtensorMap* seed)
{
    Group group = {};
    unsigned long long pieces = 0, words = 0;
    bool is_empty = pair.run == 0;
#pragma unroll 1
    for (unsigned i = 0; i < pair.outer_rank; ++i) {
        is_empty = is_empty || pair.extents[i] == 0;
    }
    if (!is_empty) {
        merge(pair);
        group.pair = pair;
        const unsigned long long whole = pair.is_mapped ? pair.run / unit * unit : 0;
        group.kind = whole == 0 ? rest_alone : pair.outer_rank == 0 ? run : boxes;
        group.rest_start = whole;
        const unsigned long long left = pair.run - whole;
        group.rest_word = word_of(pair, whole, left);
        group.rest_words = left / group.rest_word;
        words = group.rest_words;
#pragma unroll 1
        for (unsigned i = 0; i < pair.outer_rank; ++i) {
            words *= pair.extents[i];
        }
        if (group.kind == run) {
            pieces = (whole + stage_bytes - 1) / stage_bytes;
        } else if (group.kind == boxes) {
            unsigned long long extents[max_rank] = {whole / word, 1, 1, 1, 1};
#pragma unroll
            for (unsigned i = 0; i < max_outer; ++i) {
                extents[i + 1] = i < pair.outer_rank ? pair.extents[i] : 1;
            }
            choose_boxes(group, extents);
            group.tiles = 1;
#pragma unroll
            for (unsigned i = 0; i < max_rank; ++i) {
                group.tiles *= group.counts[i];
            }
            pieces = (group.tiles + boxes_of_piece - 1) / boxes_of_piece;
            make_map(
                slot, work.maps + 2 * number + 1, seed, group, pair.destination, extents, pair.destination_strides);
            if (pair.limit != no_limit) {
                // A source of no rows is a map of one that is never asked for.
                group.shift = pair.limit == 0;
#pragma unroll
                for (unsigned i = 1; i < max_rank; ++i) {
                    extents[i] = i == pair.outer_rank ? max(pair.limit, 1ull) : extents[i];
                }
            }
            make_map(slot, work.maps + 2 * number, seed, group, pair.source, extents, pair.source_strides);
        }
    }
    if (maps::lane_of_warp() == 0) {
        work.groups[number] = group;
        work.tile_ends[number] = pieces;
        work.rest_ends[number] = words;
    }
}

// What the host knows of the copies, and of their shapes where these are in device memory: `shapes` are of the leading
// part of each pair that is copied, in array order.
extern "C" __global__ void __launch_bounds__(setup_warps * warp_threads) settle_pairs(
    const __grid_constant__ Work<Group> work, const Pair* pairs, const __grid_constant__ Integers shapes, unsigned item_bytes,
    const __grid_constant__ CUtensorMap seed)
{
    settle_all(work, [&](unsigned long long number, maps::Slot& slot) {
        Pair pair = pairs[number];
        if (shapes.data != nullptr) {
            // The innermost of the pair's dimensions is counted in elements here, and then in bytes.
            bool fits = true;
#pragma unroll 1
            for (int i = 0; i <= static_cast<int>(pair.outer_rank); ++i) {
                const long long extent = shapes(number, static_cast<int>(pair.outer_rank) - i);
                const unsigned long long most = i == 0 ? pair.run / item_bytes : pair.extents[i - 1];
                fits = fits && extent >= 0 && static_cast<unsigned long long>(extent) <= most;
                if (i == 0) {
                    pair.run = static_cast<unsigned long long>(extent) * item_bytes;
                } else {
                    pair.extents[i - 1] = static_cast<unsigned long long>(extent);
                }
            }
            if (!fits) {
                pair.run = 0;
                if (maps::lane_of_warp() == 0) {
                    note_failure(work.failure, work.tag, number, 0);
                }
            }
        }
        settle(work, number, pair, slot, &seed);
    });
}

// A ragged batch: sequence i is rows offsets[i] to offsets[i + 1] - 1 of one array, and the first rows of row i of the
// padded one. `row` says how one sequence of the padded array's length would be copied from the ragged array's start.
extern "C" __global__ void __launch_bounds__(setup_warps * warp_threads) settle_ragged(
    const __grid_constant__ Work<Group> work, const __grid_constant__ Pair row, const __grid_constant__ Integers offsets,
    unsigned long long total_rows, long long padded_stride, unsigned gathers, const __grid_constant__ CUtensorMap seed)
{
    settle_all(work, [&](unsigned long long number, maps::Slot& slot) {
        Pair pair = row;
        const int last = static_cast<int>(pair.outer_rank) - 1;
        const long long first = offsets(number), end = offsets(number + 1);
        unsigned long long longest = 0;
        long long ragged_stride = 0;
#pragma unroll
        for (int i = 0; i < max_outer; ++i) {
            if (i == last) {
                longest = pair.extents[i];
                ragged_stride = gathers ? pair.source_strides[i] : pair.destination_strides[i];
            }
        }
        const bool fits = first >= 0 && end >= first && static_cast<unsigned long long>(end) <= total_rows
            && static_cast<unsigned long long>(end - first) <= longest;
        if (!fits) {
            pair.run = 0;
            if (maps::lane_of_warp() == 0) {
                note_failure(work.failure, work.tag, number, 1);
            }
        } else {
            const unsigned long long rows = static_cast<unsigned long long>(end - first);
            const long long ragged = first * ragged_stride, padded = static_cast<long long>(number) * padded_stride;
            pair.source += static_cast<unsigned long long>(gathers ? ragged : padded);
            pair.destination += static_cast<unsigned long long>(gathers ? padded : ragged);
            if (gathers) {
                pair.limit = rows;
            } else {
#pragma unroll
                for (int i = 0; i < max_outer; ++i) {
                    pair.extents[i] = i == last ? rows : pair.extents[i];
                }
            }
        }
        settle(work, number, pair, slot, &seed);
    });
}

// The group that a piece is of: the first that ends after it. Run by a whole warp.
__device__ __forceinline__ unsigned long long group_of_warp(
    const unsigned long long* ends, unsigned long long count, unsigned long long number, unsigned lane)
{
    unsigned long long low = 0;
    while (count > 1) {
        const unsigned long long slice = (count + warp_threads - 1) / warp_threads;
        const unsigned long long last = min((lane + 1) * slice, count) - 1;  // of the lane's slice
        const unsigned past = __ballot_sync(~0u, ends[low + last] > number);
        const unsigned long long first = (static_cast<unsigned>(__ffs(static_cast<int>(past))) - 1) * slice;
        low += first;
        count = min(slice, count - first);
    }
    return low;
}

template <int Rank>
__device__ __forceinline__ void move_box(
    const CUtensorMap* maps_of_group, const Group& group, const int (&start)[max_rank], unsigned char* stage,
    unsigned long long* loaded, unsigned parity)
{
    int from[Rank], to[Rank];
#pragma unroll
    for (int i = 0; i < Rank; ++i) {
        to[i] = start[i];
        from[i] = start[i] + static_cast<int>(i == Rank - 1 ? group.shift : 0);
    }
    cupytma::mbarrier_arrive_expect_tx_sink(loaded, group.tile_bytes);
    cupytma::tensor_load(stage, maps_of_group, from, loaded);
    cupytma::mbarrier_wait_parity(loaded, parity);
    cupytma::tensor_store(maps_of_group + 1, to, stage);
}

// Run by one thread; the mbarrier completes a phase for each box.
__device__ __forceinline__ void move_boxes(
    const CUtensorMap* maps_of_group, const Group& group, unsigned long long piece, unsigned char* stage,
    unsigned long long* loaded, unsigned& parity)
{
    maps::acquire(maps_of_group);
    maps::acquire(maps_of_group + 1);
    const unsigned first = static_cast<unsigned>(piece) * boxes_of_piece;
    const unsigned last = min(first + boxes_of_piece, group.tiles);
#pragma unroll 1
    for (unsigned tile = first; tile < last; ++tile) {
        int start[max_rank];
        unsigned within = tile;
#pragma unroll
        for (int i = 0; i < max_rank; ++i) {
            const unsigned rest = within / group.counts[i];
            start[i] = static_cast<int>((within - rest * group.counts[i]) * group.box[i]);
            within = rest;
        }
        cupytma::bulk_wait_group_read<0>();  // the box before
        switch (group.pair.outer_rank) {
        case 1: move_box<2>(maps_of_group, group, start, stage, loaded, parity); break;
        case 2: move_box<3>(maps_of_group, group, start, stage, loaded, parity); break;
        case 3: move_box<4>(maps_of_group, group, start, stage, loaded, parity); break;
        default: move_box<5>(maps_of_group, group, start, stage, loaded, parity); break;
        }
        cupytma::bulk_commit_group();
        parity ^= 1;
    }
}

// Run by one thread.
__device__ __forceinline__ void move_run(
    const Group& group, unsigned long long piece, unsigned char* stage, unsigned long long* loaded, unsigned& parity)
{
    const unsigned long long offset = piece * stage_bytes, left = group.rest_start - offset;
    const unsigned bytes = static_cast<unsigned>(min(left, static_cast<unsigned long long>(stage_bytes)));
    cupytma::bulk_wait_group_read<0>();  // the piece before
    cupytma::mbarrier_arrive_expect_tx_sink(loaded, bytes);
    cupytma::bulk_copy_to_shared_cluster_from_global(
        stage, reinterpret_cast<const void*>(group.pair.source + offset), bytes, loaded);
    cupytma::mbarrier_wait_parity(loaded, parity);
    cupytma::bulk_copy_to_global_from_shared_cta(
        reinterpret_cast<void*>(group.pair.destination + offset), stage, bytes);
    cupytma::bulk_commit_group();
    parity ^= 1;
}

template <typename Word, typename Index>
__device__ __forceinline__ void move_word(const Group& group, unsigned long long word_number)
{
    const Index words = static_cast<Index>(group.rest_words);
    Index outer = static_cast<Index>(word_number) / words;
    const unsigned long long within =
        group.rest_start + static_cast<unsigned long long>(static_cast<Index>(word_number) - outer * words) * sizeof(Word);
    unsigned long long source = group.pair.source + within, destination = group.pair.destination + within;
    unsigned long long position = 0;
#pragma unroll 1
    for (unsigned i = 0; i < group.pair.outer_rank; ++i) {
        const Index extent = static_cast<Index>(group.pair.extents[i]);
        const Index rest = outer / extent;
        position = static_cast<unsigned long long>(outer - rest * extent);
        source += position * static_cast<unsigned long long>(group.pair.source_strides[i]);
        destination += position * static_cast<unsigned long long>(group.pair.destination_strides[i]);
        outer = rest;
    }
    // Beyond the source's rows the destination gets zeros.
    *reinterpret_cast<Word*>(destination) =
        position < group.pair.limit ? *reinterpret_cast<const Word*>(source) : Word{};
}

template <typename Index>
__device__ __forceinline__ void move_word(const Group& group, unsigned long long word_number)
{
    switch (group.rest_word) {
    case 16: move_word<ulonglong2, Index>(group, word_number); break;
    case 8: move_word<unsigned long long, Index>(group, word_number); break;
    case 4: move_word<unsigned, Index>(group, word_number); break;
    case 2: move_word<unsigned short, Index>(group, word_number); break;
    default: move_word<unsigned char, Index>(group, word_number); break;
    }
}

// Run by a whole warp, whose lanes take words that lie side by side.
__device__ __forceinline__ void move_rest(const Work<Group>& work, unsigned long long piece, unsigned lane)
{
    constexpr unsigned words = warp_threads * turns_of_rest;
    const unsigned long long total = work.rest_ends[work.count - 1], first = piece * words;
    unsigned long long group = group_of_warp(work.rest_ends, work.count, first, lane);
    unsigned long long end = work.rest_ends[group], begin = group == 0 ? 0 : work.rest_ends[group - 1];
#pragma unroll 1
    for (unsigned turn = 0; turn < turns_of_rest; ++turn) {
        const unsigned long long number = first + turn * warp_threads + lane;
        if (number >= total) {
            break;
        }
        while (end <= number) {
            begin = end;
            end = work.rest_ends[++group];
        }
        if (end - begin <= 0xffffffffull) {
            move_word<unsigned>(work.groups[group], number - begin);
        } else {
            move_word<unsigned long long>(work.groups[group], number - begin);
        }
    }
}

extern "C" __global__ void __launch_bounds__(move_warps * warp_threads) move_groups(const __grid_constant__ Work<Group> work)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long loaded[move_warps];
    const unsigned warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
    const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % tile_alignment;
    unsigned char* const stage = dynamic_shared + (tile_alignment - misaligned) % tile_alignment + warp * stage_bytes;
    const unsigned long long pieces = work.tile_ends[work.count - 1], words = work.rest_ends[work.count - 1];
    const unsigned long long rests = (words + warp_threads * turns_of_rest - 1) / (warp_threads * turns_of_rest);
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * move_warps;
    unsigned parity = 0;
    if (lane == 0) {
        cupytma::mbarrier_init(&loaded[warp], 1);
        cupytma::fence_mbarrier_init();  // before the unit signals it
    }
    __syncwarp();
#pragma unroll 1
    for (unsigned long long index = static_cast<unsigned long long>(blockIdx.x) * move_warps + warp;
         index < max(pieces, rests); index += step) {
        if (index < pieces) {
            const unsigned long long number = group_of_warp(work.tile_ends, work.count, index, lane);
            if (lane == 0) {
                const Group& group = work.groups[number];
                const unsigned long long piece = index - (number == 0 ? 0 : work.tile_ends[number - 1]);
                if (group.kind == run) {
                    move_run(group, piece, stage, &loaded[warp], parity);
                } else {
                    move_boxes(work.maps + 2 * number, group, piece, stage, &loaded[warp], parity);
                }
            }
            __syncwarp();
        }
        if (index < rests) {
            move_rest(work, index, lane);
            __syncwarp();
        }
    }
    if (lane == 0) {
        cupytma::bulk_wait_group_read<0>();  // the shared memory goes with the block
    }
}
