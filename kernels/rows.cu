// Rows of a table, taken or given by index.
//
// gather_rows, scatter_rows and scatter_add_rows move rows of whole 16-byte units by bulk copies: one warp of each block
// moves up to 32 rows or a piece of one, through STAGES stages of shared memory where it has more of them to move.
// gather_words, scatter_words and scatter_add_words move any rows by ordinary loads and stores.
//
// No row outside the table is read or written: where indices are not clipped, such an index leaves its row out, and
// its place is noted for the host.
#include <cupytma.cuh>
#include <noted.cuh>
#ifdef ELEMENT
#include <arithmetic.cuh>
#endif

constexpr int stages = STAGES;
constexpr unsigned stage_alignment = 128;
constexpr unsigned warp_threads = 32;
constexpr unsigned all_lanes = 0xffffffffu;
constexpr unsigned quad = 4;  // rows of gather4 and scatter4

enum class Operation { gather, scatter, scatter_add };

struct Rows {
    const unsigned char* source;
    unsigned char* destination;
    const unsigned char* index;
    unsigned long long* failure;  // two words in the host's memory
    unsigned long long rows;        // of the index
    unsigned long long table_rows;
    unsigned long long row_bytes;
    unsigned long long items;       // stages to be filled: groups of rows, or pieces of rows
    unsigned long long words;       // of all rows, for ordinary loads and stores
    unsigned long long words_per_row;
    long long source_stride;        // in bytes, as all strides
    long long destination_stride;
    long long index_stride;
    unsigned long long tag;         // of the call, for the host
    unsigned index_bytes;
    unsigned clips;
    unsigned rows_per_stage;
    unsigned pieces;                // of one row
    unsigned piece_bytes;
    unsigned slot_bytes;            // from one row to the next in a stage
    unsigned box_bytes;             // of one tensor reduction
    unsigned element_bytes;
    unsigned quads;                 // whether four rows move at a time
};

constexpr long long no_row = -1;

__device__ __forceinline__ long long read_index(const Rows& rows, unsigned long long position)
{
    const unsigned char* place = rows.index + static_cast<long long>(position) * rows.index_stride;
    return rows.index_bytes == 8 ? *reinterpret_cast<const long long*>(place) : *reinterpret_cast<const int*>(place);
}

__device__ __forceinline__ bool is_row(const Rows& rows, long long index)
{
    return static_cast<unsigned long long>(index) < rows.table_rows;
}

// The row that an index stands for.
__device__ __forceinline__ long long row_of(const Rows& rows, long long index)
{
    if (is_row(rows, index)) {
        return index;
    }
    return !rows.clips ? no_row : index < 0 ? 0 : static_cast<long long>(rows.table_rows - 1);
}

// What one stage holds: a group of rows, or a piece of one.
struct Item {
    unsigned long long position;  // of this lane's row in the index
    unsigned long long first;     // of the stage's first row
    unsigned long long offset;    // bytes from the start of the row
    unsigned bytes;
    unsigned count;  // rows in the stage

    __device__ Item(const Rows& rows, unsigned number, unsigned lane)
    {
        const unsigned long long item = blockIdx.x + static_cast<unsigned long long>(number) * gridDim.x;
        const unsigned long long group = rows.pieces == 1 ? item : item / rows.pieces;
        offset = (item - group * rows.pieces) * rows.piece_bytes;
        const unsigned long long left = rows.row_bytes - offset;
        bytes = left < rows.piece_bytes ? static_cast<unsigned>(left) : rows.piece_bytes;
        first = group * rows.rows_per_stage;
        const unsigned long long remaining = rows.rows - first;
        count = remaining < rows.rows_per_stage ? static_cast<unsigned>(remaining) : rows.rows_per_stage;
        position = first + lane;
    }
};

// Whether this lane's row moves together with the three after it, or with one of the three before it; the first of
// them has their rows.
struct Quad {
    int row[quad];
    bool is_whole;
    bool leads;

    __device__ Quad(const Rows& rows, long long row_number, unsigned lane)
    {
        const unsigned valid = __ballot_sync(all_lanes, row_number != no_row);
        const unsigned mask = (1u << quad) - 1;
        is_whole = rows.quads && (valid >> (lane & ~(quad - 1)) & mask) == mask;
        leads = is_whole && lane % quad == 0;
#pragma unroll
        for (unsigned i = 0; i < quad; ++i) {
            row[i] = static_cast<int>(__shfl_down_sync(all_lanes, row_number, i));
        }
    }
};

// Run by one warp.
template <Operation operation>
__device__ __forceinline__ void move_rows(const Rows& rows, const CUtensorMap& table)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long loaded[stages];
    __shared__ long long chosen[stages][warp_threads];  // each lane's own
    constexpr bool gathers = operation == Operation::gather;
    const unsigned lane = threadIdx.x;
    const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % stage_alignment;
    unsigned char* const shared = dynamic_shared + (stage_alignment - misaligned) % stage_alignment;
    const unsigned stage_bytes =
        (rows.rows_per_stage * rows.slot_bytes + stage_alignment - 1) / stage_alignment * stage_alignment;
    const unsigned count =
        blockIdx.x < rows.items ? static_cast<unsigned>((rows.items - 1 - blockIdx.x) / gridDim.x + 1) : 0;
    const long long dense_stride = gathers ? rows.destination_stride : rows.source_stride;
    // Rows that lie together in shared memory and in the array without an index move by one copy.
    const bool together = dense_stride == static_cast<long long>(rows.row_bytes) && rows.slot_bytes == rows.row_bytes;
    bool failed = false;

    const auto index_of = [&](unsigned number) {
        if (number >= count) {
            return 0ll;
        }
        const Item item(rows, number, lane);
        return lane < item.count ? read_index(rows, item.position) : 0ll;
    };

    const auto load = [&](unsigned number, long long index) {
        const unsigned stage = number % stages;
        const Item item(rows, number, lane);
        unsigned char* const slot = shared + stage * stage_bytes + lane * rows.slot_bytes;
        const bool active = lane < item.count;
        const long long row = active ? row_of(rows, index) : no_row;
        chosen[stage][lane] = row;
        const unsigned valid = __ballot_sync(all_lanes, row != no_row);
        const unsigned wrong = __ballot_sync(all_lanes, active && row == no_row);
        if (wrong != 0 && !failed) {
            failed = true;
            if (lane == __ffs(static_cast<int>(wrong)) - 1) {
                note_failure(rows.failure, rows.tag, item.position, index);
            }
        }
        const bool at_once = !gathers && together;
        if (lane == 0) {
            cupytma::mbarrier_arrive_expect_tx_sink(
                &loaded[stage], (at_once ? item.count : static_cast<unsigned>(__popc(valid))) * item.bytes);
        }
        __syncwarp();  // every lane has waited for its stores from the stage, which others fill again
        if (at_once) {
            if (lane == 0) {
                cupytma::bulk_copy_to_shared_cluster_from_global(
                    slot, rows.source + static_cast<long long>(item.first) * rows.source_stride + item.offset,
                    item.count * item.bytes, &loaded[stage]);
            }
            return;
        }
#if GATHER4
        if constexpr (gathers) {
            const Quad four(rows, row, lane);
            if (four.leads) {
                cupytma::tensor_load_2d_gather4_shared_cta(
                    slot, &table, 0, four.row[0], four.row[1], four.row[2], four.row[3], &loaded[stage]);
            }
            if (four.is_whole) {
                return;
            }
        }
#endif
        if (row != no_row) {
            const long long from = gathers ? row : static_cast<long long>(item.position);
            cupytma::bulk_copy_to_shared_cluster_from_global(
                slot, rows.source + from * rows.source_stride + item.offset, item.bytes, &loaded[stage]);
        }
    };

    const auto store = [&](unsigned number) {
        const unsigned stage = number % stages;
        const Item item(rows, number, lane);
        const unsigned char* const slot = shared + stage * stage_bytes + lane * rows.slot_bytes;
        const long long row = chosen[stage][lane];
        if constexpr (gathers) {
            const unsigned valid = __ballot_sync(all_lanes, row != no_row);
            unsigned char* const destination =
                rows.destination + static_cast<long long>(item.position) * rows.destination_stride + item.offset;
            if (together && static_cast<unsigned>(__popc(valid)) == item.count) {
                if (lane == 0) {
                    cupytma::bulk_copy_to_global_from_shared_cta(destination, slot, item.count * item.bytes);
                }
            } else if (row != no_row) {
                cupytma::bulk_copy_to_global_from_shared_cta(destination, slot, item.bytes);
            }
        } else if constexpr (operation == Operation::scatter_add) {
            if (row != no_row) {
                for (unsigned box = 0; box < item.bytes; box += rows.box_bytes) {
                    cupytma::tensor_reduce_add_2d(
                        &table, static_cast<int>((item.offset + box) / rows.element_bytes), static_cast<int>(row),
                        slot + box);
                }
            }
        } else {
#if SCATTER4
            const Quad four(rows, row, lane);
            if (four.leads) {
                cupytma::tensor_store_2d_scatter4(
                    &table, 0, four.row[0], four.row[1], four.row[2], four.row[3], slot);
            }
            if (four.is_whole) {
                return;
            }
#endif
            if (row != no_row) {
                cupytma::bulk_copy_to_global_from_shared_cta(
                    rows.destination + row * rows.destination_stride + item.offset, slot, item.bytes);
            }
        }
    };

    if (lane == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            cupytma::mbarrier_init(&loaded[stage], 1);
        }
        cupytma::fence_mbarrier_init();  // before the unit signals them
    }
    __syncwarp();
    long long index = index_of(0);  // read ahead, so that its way from memory is not waited for
    for (unsigned number = 0; number + 1 < stages && number < count; ++number) {
        const long long next = index_of(number + 1);
        load(number, index);
        index = next;
    }
#pragma unroll 1
    for (unsigned number = 0; number < count; ++number) {
        cupytma::mbarrier_wait_parity(&loaded[number % stages], number / stages % 2);
        store(number);
        cupytma::bulk_commit_group();
        if (number + stages - 1 < count) {
            // The stage to refill was stored one iteration ago; only each lane's newest stores may still be reading.
            cupytma::bulk_wait_group_read<1>();
            const long long next = index_of(number + stages);
            load(number + stages - 1, index);
            index = next;
        }
    }
    cupytma::bulk_wait_group_read<0>();  // the shared memory goes with the block
}

template <Operation operation, typename Word, typename Index, typename Combine>
__device__ void move_words(const Rows& rows, int* failed, Combine combine)
{
    const Index words = static_cast<Index>(rows.words), per_row = static_cast<Index>(rows.words_per_row);
    const Index step = gridDim.x * blockDim.x;
#pragma unroll 1
    for (Index word = blockIdx.x * blockDim.x + threadIdx.x; word < words; word += step) {
        const Index position = word / per_row;
        const unsigned long long within = (word - position * per_row) * sizeof(Word);
        const long long index = read_index(rows, position), row = row_of(rows, index);
        if (row == no_row) {
            if (atomicExch(failed, 1) == 0) {
                note_failure(rows.failure, rows.tag, position, index);
            }
        } else {
            const long long dense = static_cast<long long>(position);
            const long long from = operation == Operation::gather ? row : dense;
            const long long to = operation == Operation::gather ? dense : row;
            combine(
                reinterpret_cast<Word*>(rows.destination + to * rows.destination_stride + within),
                *reinterpret_cast<const Word*>(rows.source + from * rows.source_stride + within));
        }
        if (words - word <= step) {
            break;  // the next index could wrap
        }
    }
}

template <Operation operation, typename Word, typename Combine>
__device__ void move_words(const Rows& rows, Combine combine)
{
    __shared__ int failed;
    if (threadIdx.x == 0) {
        failed = 0;
    }
    __syncthreads();
    if (rows.words <= 0xffffffffull) {
        move_words<operation, Word, unsigned>(rows, &failed, combine);
    } else {
        move_words<operation, Word, unsigned long long>(rows, &failed, combine);
    }
}

#ifdef ELEMENT

extern "C" __global__ void __launch_bounds__(warp_threads) scatter_add_rows(
    const __grid_constant__ Rows rows, const __grid_constant__ CUtensorMap table)
{
    move_rows<Operation::scatter_add>(rows, table);
}

extern "C" __global__ void scatter_add_words(const __grid_constant__ Rows rows)
{
    using Bits = ELEMENT::Bits;
    move_words<Operation::scatter_add, Bits>(rows, [](Bits* place, Bits value) {
        combine_atomically(place, value, [](Bits old, Bits added) { return ELEMENT::add(old, added); });
    });
}

#else

template <Operation operation, typename Word>
__device__ void copy_words(const Rows& rows)
{
    move_words<operation, Word>(rows, [](Word* place, Word value) { *place = value; });
}

#define MOVE(operation)                                                                                   \
    extern "C" __global__ void __launch_bounds__(warp_threads) operation##_rows(                          \
        const __grid_constant__ Rows rows, const __grid_constant__ CUtensorMap table)                     \
    {                                                                                                     \
        move_rows<Operation::operation>(rows, table);                                                     \
    }                                                                                                     \
    extern "C" __global__ void operation##_words_1(const __grid_constant__ Rows rows)                     \
    {                                                                                                     \
        copy_words<Operation::operation, unsigned char>(rows);                                            \
    }                                                                                                     \
    extern "C" __global__ void operation##_words_2(const __grid_constant__ Rows rows)                     \
    {                                                                                                     \
        copy_words<Operation::operation, unsigned short>(rows);                                           \
    }                                                                                                     \
    extern "C" __global__ void operation##_words_4(const __grid_constant__ Rows rows)                     \
    {                                                                                                     \
        copy_words<Operation::operation, unsigned>(rows);                                                 \
    }                                                                                                     \
    extern "C" __global__ void operation##_words_8(const __grid_constant__ Rows rows)                     \
    {                                                                                                     \
        copy_words<Operation::operation, unsigned long long>(rows);                                       \
    }                                                                                                     \
    extern "C" __global__ void operation##_words_16(const __grid_constant__ Rows rows)                    \
    {                                                                                                     \
        copy_words<Operation::operation, ulonglong2>(rows);                                               \
    }
MOVE(gather)
MOVE(scatter)

#endif
