// Transpositions of many matrices of different shapes in one launch, of elements of 1, 2, 4, 8 or 16 bytes.
//
// settle_transposes makes the tensor maps of each group, in a launch before. transpose_groups turns tiles as
// transpose.cu does; turn_groups turns by ordinary loads and stores what no map may describe, and the ends of the
// destination's rows within a 16-byte unit.
#include <groups.cuh>
#include <turned_tile.cuh>

constexpr int stages = STAGES;
constexpr int outputs = OUTPUTS;
constexpr int turn_threads = 256;
constexpr int side = element_bytes <= 4 ? 64 : 32;  // of a tile that is turned by ordinary loads and stores
constexpr int elements_of_unit = unit / element_bytes;

// One matrix, as the host says it: element (row, column) of the source is element (column, row) of the destination.
struct Matrix {
    unsigned long long source;
    unsigned long long destination;
    unsigned long long rows;
    unsigned long long columns;
    long long source_row;  // strides in bytes
    long long source_column;
    long long destination_row;
    long long destination_column;
    unsigned long long is_mapped;  // whether addresses and strides are such that tensor maps may describe both
};

struct Group {
    Matrix matrix;
    unsigned long long mapped_rows;  // rows of the source that the tensor unit moves
    unsigned tile_rows;              // tiles along the rows
    unsigned turned_columns;         // tiles of the rest along the columns
};

static_assert(sizeof(Group) <= GROUP_BYTES, "the host makes room for the groups");

extern "C" __global__ void __launch_bounds__(setup_warps * warp_threads) settle_transposes(
    const __grid_constant__ Work<Group> work, const Matrix* matrices, const __grid_constant__ Integers shapes,
    const __grid_constant__ CUtensorMap source_seed, const __grid_constant__ CUtensorMap destination_seed)
{
    settle_all(work, [&](unsigned long long number, maps::Slot& slot) {
        Matrix matrix = matrices[number];
        if (shapes.data != nullptr) {
            const long long rows = shapes(number, 0), columns = shapes(number, 1);
            const bool fits = rows >= 0 && columns >= 0 && static_cast<unsigned long long>(rows) <= matrix.rows
                && static_cast<unsigned long long>(columns) <= matrix.columns;
            matrix.rows = fits ? static_cast<unsigned long long>(rows) : 0;
            matrix.columns = fits ? static_cast<unsigned long long>(columns) : 0;
            if (!fits && maps::lane_of_warp() == 0) {
                note_failure(work.failure, work.tag, number, 0);
            }
        }
        Group group = {};
        unsigned long long tiles = 0, turned = 0;
        if (matrix.rows != 0 && matrix.columns != 0) {
            group.matrix = matrix;
            group.mapped_rows = matrix.is_mapped ? matrix.rows / elements_of_unit * elements_of_unit : 0;
            if (group.mapped_rows != 0) {
                group.tile_rows = static_cast<unsigned>((group.mapped_rows + tile_rows - 1) / tile_rows);
                tiles = group.tile_rows * ((matrix.columns + tile_columns - 1) / tile_columns);
                const unsigned source_extents[2] = {
                    static_cast<unsigned>(matrix.columns * words), static_cast<unsigned>(group.mapped_rows)};
                const unsigned long long source_strides[1] = {static_cast<unsigned long long>(matrix.source_row)};
                maps::copy_template(slot, &source_seed);
                maps::rebind<2>(slot, matrix.source, source_extents, source_strides);
                maps::publish(work.maps + 2 * number, slot);
                const unsigned extents[2] = {
                    static_cast<unsigned>(group.mapped_rows * words), static_cast<unsigned>(matrix.columns)};
                const unsigned long long strides[1] = {static_cast<unsigned long long>(matrix.destination_row)};
                maps::copy_template(slot, &destination_seed);
                maps::rebind<2>(slot, matrix.destination, extents, strides);
                maps::publish(work.maps + 2 * number + 1, slot);
            }
            group.turned_columns = static_cast<unsigned>((matrix.columns + side - 1) / side);
            turned = (matrix.rows - group.mapped_rows + side - 1) / side * group.turned_columns;
        }
        if (maps::lane_of_warp() == 0) {
            work.groups[number] = group;
            work.tile_ends[number] = tiles;
            work.rest_ends[number] = turned;
        }
    });
}

// A block's walk through its part of all tiles, by one thread; it acquires the map that the thread copies through.
struct Walk {
    unsigned long long number, begin, end;
    unsigned height;  // tiles
    int row, column;  // elements, of the tile
    const CUtensorMap* tensor_map;

    __device__ Walk(const Work<Group>& work, unsigned long long first)
        : number(group_of(work.tile_ends, work.count, first)), begin(0), end(first), height(1), row(0), column(0),
          tensor_map(nullptr)
    {
    }

    __device__ void to(const Work<Group>& work, unsigned long long tile, unsigned side_of_copy)
    {
        if (tile >= end) {
            while (work.tile_ends[number] <= tile) {
                ++number;
            }
            begin = number == 0 ? 0 : work.tile_ends[number - 1];
            end = work.tile_ends[number];
            height = work.groups[number].tile_rows;
            tensor_map = work.maps + 2 * number + side_of_copy;
            maps::acquire(tensor_map);
        }
        const unsigned long long within = tile - begin, across = within / height;
        row = static_cast<int>(within - across * height) * tile_rows;
        column = static_cast<int>(across) * tile_columns;
    }
};

extern "C" __global__ void __launch_bounds__(threads + 32, 1) transpose_groups(const __grid_constant__ Work<Group> work)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long full[stages], empty[stages];
    const unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared));
    const unsigned pad = (1024 - start % 1024) % 1024;
    unsigned char* const inputs = dynamic_shared + pad;
    unsigned char* const results = inputs + stages * tile_bytes;
    const unsigned long long total = work.tile_ends[work.count - 1];
    const unsigned long long first = part(total, blockIdx.x), last = part(total, blockIdx.x + 1);
    if (first == last) {
        return;
    }

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            cupytma::mbarrier_init(&full[stage], 1);
            cupytma::mbarrier_init(&empty[stage], threads / 32);
        }
        cupytma::fence_mbarrier_init();
    }
    __syncthreads();

    if (threadIdx.x >= threads) {
        if (!cupytma::elect_sync()) return;
        Walk walk(work, first);
        unsigned stage = 0, parity = 1;
#pragma unroll 1
        for (unsigned long long tile = first; tile < last; ++tile) {
            walk.to(work, tile, 0);
            cupytma::mbarrier_wait_parity(&empty[stage], parity);
            cupytma::mbarrier_arrive_expect_tx_sink(&full[stage], tile_bytes);
#pragma unroll
            for (int column = 0; column < square_columns; ++column) {
                const int from[2] = {(walk.column + column * square) * words, walk.row};
                cupytma::tensor_load(
                    inputs + stage * tile_bytes + column * load_bytes, walk.tensor_map, from, &full[stage]);
            }
            if (++stage == stages) stage = 0, parity ^= 1;
        }
        return;
    }

    Walk walk(work, first);
    unsigned stage = 0, parity = 0, output = 0;
#pragma unroll 1
    for (unsigned long long tile = first; tile < last; ++tile) {
        cupytma::mbarrier_wait_parity(&full[stage], parity);
        turn_tile(start + pad + stage * tile_bytes, start + pad + (stages + output) * tile_bytes, threadIdx.x);
        cupytma::fence_proxy_async_shared_cta();
        __syncwarp();
        if (threadIdx.x % 32 == 0) cupytma::mbarrier_arrive_sink(&empty[stage]);
        // The next output tile is free once all but the newest stores before this one have been read.
        if (threadIdx.x == 0) cupytma::bulk_wait_group_read<outputs - 2>();
        asm volatile("bar.sync 1, %0;" :: "n"(threads) : "memory");
        if (threadIdx.x == 0) {
            walk.to(work, tile, 1);
#pragma unroll
            for (int row = 0; row < square_rows; ++row) {
                const int to[2] = {(walk.row + row * square) * words, walk.column};
                cupytma::tensor_store(walk.tensor_map, to, results + output * tile_bytes + row * store_bytes);
            }
            cupytma::bulk_commit_group();
        }
        if (++stage == stages) stage = 0, parity ^= 1;
        if (++output == outputs) output = 0;
    }
    if (threadIdx.x == 0) cupytma::bulk_wait_group<0>();
}

template <int bytes>
struct ElementOf;
template <>
struct ElementOf<1> { using type = unsigned char; };
template <>
struct ElementOf<2> { using type = unsigned short; };
template <>
struct ElementOf<4> { using type = unsigned; };
template <>
struct ElementOf<8> { using type = unsigned long long; };
template <>
struct ElementOf<16> { using type = ulonglong2; };
using Element = ElementOf<element_bytes>::type;

extern "C" __global__ void __launch_bounds__(turn_threads) turn_groups(const __grid_constant__ Work<Group> work)
{
    constexpr int pad = element_bytes < 4 ? 4 / element_bytes : 1;
    __shared__ Element tile[side][side + pad];
    const unsigned long long total = work.rest_ends[work.count - 1];
    const unsigned long long first = part(total, blockIdx.x), last = part(total, blockIdx.x + 1);
    const int lane = threadIdx.x % side, step = turn_threads / side;
    if (first == last) {
        return;
    }
    unsigned long long number = group_of(work.rest_ends, work.count, first);
#pragma unroll 1
    for (unsigned long long index = first; index < last; ++index) {
        while (work.rest_ends[number] <= index) {
            ++number;
        }
        const Group& group = work.groups[number];
        const Matrix& matrix = group.matrix;
        const unsigned long long within = index - (number == 0 ? 0 : work.rest_ends[number - 1]);
        const unsigned long long down = within / group.turned_columns;
        const unsigned long long row = group.mapped_rows + down * side;
        const unsigned long long column = (within - down * group.turned_columns) * side;
        if (column + lane < matrix.columns) {
#pragma unroll 1
            for (int i = static_cast<int>(threadIdx.x) / side; i < side; i += step) {
                if (row + i < matrix.rows) {
                    tile[i][lane] = *reinterpret_cast<const Element*>(
                        matrix.source + static_cast<unsigned long long>(
                            static_cast<long long>(row + i) * matrix.source_row
                            + static_cast<long long>(column + lane) * matrix.source_column));
                }
            }
        }
        __syncthreads();
        if (row + lane < matrix.rows) {
#pragma unroll 1
            for (int i = static_cast<int>(threadIdx.x) / side; i < side; i += step) {
                if (column + i < matrix.columns) {
                    *reinterpret_cast<Element*>(
                        matrix.destination + static_cast<unsigned long long>(
                            static_cast<long long>(column + i) * matrix.destination_row
                            + static_cast<long long>(row + lane) * matrix.destination_column)) = tile[lane][i];
                }
            }
        }
        __syncthreads();
    }
}
