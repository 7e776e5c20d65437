// The tiles of a matrix product: their sizes, where their parts lie in shared memory, and the order they are taken in.
//
// The kernel computes D = X Y^T: X has `rows` rows and Y `columns` of them, each of K elements. X is the left operand
// and Y the right one, or the other way round (SWAPPED), so that a product with few rows has the weights on the side of
// the tensor cores that takes 64 rows at a time; D is then the transposed result.
#pragma once
#include <cluster_blocks.cuh>
#include <matmul_registers.cuh>

constexpr unsigned warp_threads = 32, warpgroup_threads = 128, warpgroup_warps = 4;
constexpr unsigned consumers = CONSUMERS;  // warpgroups that multiply
// A warp loads. Where a block has a multiprocessor for itself it belongs to a warpgroup, whose registers the others get.
constexpr bool gives_registers = RESIDENT == 1;
constexpr unsigned block_threads = consumers * warpgroup_threads + (gives_registers ? warpgroup_threads : warp_threads);
static_assert(consumers == 2 || !PING_PONG, "turns are taken by two");
constexpr unsigned cluster_rows = CLUSTER_ROWS, cluster_columns = CLUSTER_COLUMNS, split = SPLIT;
static_assert(cluster_rows * cluster_columns * split == cluster_blocks, "blocks share tiles, or the sum of one tile");
static_assert(split == 1 || cluster_blocks == split, "blocks that share a sum do not share loads");

constexpr unsigned instruction_rows = 64;  // of the left matrix of wgmma
constexpr unsigned group_rows = ROW_BLOCKS * instruction_rows;  // of one consumer
// A tile may have fewer rows than its consumers multiply: what lies behind its rows in shared memory is multiplied as
// if it were rows, and not written.
constexpr unsigned spare_rows = SPARE_ROWS;
constexpr unsigned tile_rows = (PING_PONG ? 1 : consumers) * group_rows - spare_rows;
static_assert(spare_rows < group_rows && spare_rows % 8 == 0, "each has rows, and whole patterns");
static_assert(spare_rows == 0 || (SWAPPED && !PING_PONG && split == 1 && !ROWS_MN_MAJOR), "where they are left out");
constexpr unsigned tile_columns = TILE_COLUMNS;
// Of these, that one instruction multiplies.
constexpr unsigned parts = COLUMN_PARTS, part_columns = tile_columns / parts;
static_assert(part_columns * parts == tile_columns && part_columns % 8 == 0, "instructions take eight columns or more");
static_assert(parts == 1 || (PROMOTE == 1 && parts == 2), "one part's sum is made while another's is added");
static_assert(parts == 1 || !COLUMNS_MN_MAJOR, "parts are lines that follow one another");
constexpr unsigned stages = STAGES;

// A stage holds 128 bytes along K of each row and column: what one swizzled box is wide, and four instructions of 32
// bytes.
constexpr unsigned span_bytes = 128;
constexpr unsigned stage_depth = span_bytes / ELEMENT_BYTES;  // in elements along K
constexpr unsigned instructions = 4;
constexpr unsigned rows_bytes = tile_rows * span_bytes, columns_bytes = tile_columns * span_bytes;
constexpr unsigned stage_bytes = rows_bytes + columns_bytes;
// 64 rows in shared memory, K-major: 64 lines of 128 bytes. MN-major: 64 elements of 2 bytes on each of 64 lines.
constexpr unsigned group_bytes = instruction_rows * span_bytes;
constexpr unsigned pattern_bytes = 8 * span_bytes;  // after which the 128B swizzle begins again
static_assert(!(ROWS_MN_MAJOR || COLUMNS_MN_MAJOR) || ELEMENT_BYTES == 2, "other elements are K-major");
static_assert(!COLUMNS_MN_MAJOR || tile_columns % instruction_rows == 0, "MN-major boxes are 64 elements wide");

// The result leaves in steps of so many columns of D, which fill a buffer: 8 KiB where the tile is as wide.
constexpr unsigned line_bytes = LINE_BYTES;
constexpr unsigned line_elements = line_bytes / OUT_BYTES;  // of the result, on a line of the buffer
constexpr unsigned step_columns = STEP_COLUMNS;
// The last step begins early enough to end with the tile, and writes a few columns of the one before once more.
constexpr unsigned steps = (tile_columns + step_columns - 1) / step_columns;
constexpr unsigned buffer_bytes = instruction_rows * step_columns * OUT_BYTES;
constexpr unsigned buffers = 2;
constexpr unsigned octets_at_once = step_columns % 16 == 0 ? 2 : 1;  // of columns, that one instruction lays out
static_assert(SWAPPED || (split == 1 && step_columns == line_elements), "lines of the result are whole");
static_assert(tile_columns % step_columns == 0 || !SWAPPED, "lines of the transposed result are not written twice");
static_assert(tile_columns >= step_columns && buffer_bytes % pattern_bytes == 0, "buffers are whole patterns");

// With SPLIT each block finishes so many octets of columns that follow one another, the last ones fewer or none. It
// gets these of each other block's sum, a parcel from each warp.
constexpr unsigned octets = tile_columns / 8, own_octets = (octets + split - 1) / split;
static_assert(split == 1 || (own_octets * 8 % step_columns == 0 && tile_columns % step_columns == 0), "whole steps");
constexpr unsigned consumer_warps = consumers * warpgroup_warps;
constexpr unsigned octet_bytes = ROW_BLOCKS * warp_threads * 16;  // that a warp has of an octet
constexpr unsigned parcel_bytes = own_octets * octet_bytes;
// Parcels are laid out and sent whole, which is the faster for many columns; or threads send what they have.
constexpr bool parcels = split > 1 && PARCELS;
constexpr unsigned partial_bytes = (split - 1) * consumer_warps * parcel_bytes;

// What a block finds where in its shared memory, which begins on a multiple of 1024 bytes. With one tile it lays out its
// parcels and the result where the stages were.
constexpr bool one_tile = ONE_TILE;
static_assert(one_tile || split == 1, "blocks that share a sum have one tile");
constexpr unsigned stages_bytes = stages * stage_bytes, buffers_bytes = consumers * buffers * buffer_bytes;
constexpr unsigned buffers_offset = !one_tile ? stages_bytes : parcels ? partial_bytes : 0;
static_assert(!one_tile || buffers_offset + buffers_bytes <= stages_bytes, "the stages have room for both");
constexpr unsigned partial_offset = stages_bytes;
constexpr unsigned barriers_offset = one_tile ? partial_offset + partial_bytes : buffers_offset + buffers_bytes;
// What the last stage's instructions read behind it, as if it were rows, is shared memory as well.
constexpr unsigned behind_rows = spare_rows > tile_columns ? spare_rows - tile_columns : 0;
constexpr unsigned shared_bytes = barriers_offset + (2 * stages + consumers + 1) * 8 + behind_rows * span_bytes;
static_assert(shared_bytes + pattern_bytes <= SHARED_BYTES, "the host has asked for as much");

// What a launch is told beside the tensor maps.
struct Product {
    int rows, columns;          // of D
    unsigned depth_blocks;      // stages along K
    unsigned row_tiles, column_tiles;  // of clusters
    unsigned band;              // tiles along a that are worked on together, so that L2 serves b's again
    long long row_stride, column_stride;  // of D in memory, in bytes
    unsigned by_unit;           // tensor stores write the result
};

// Where an operand's rows lie along K and in shared memory. The position of a stage in the ring, and its parity.
struct Position {
    unsigned stage = 0, parity = 0;

    __device__ void advance()
    {
        stage = stage + 1 < stages ? stage + 1 : 0;
        parity ^= stage == 0;
    }
    __device__ void advance(unsigned count)
    {
        stage += count;
        parity ^= stage / stages % 2;
        stage %= stages;
    }
};

// The tiles of one block; clusters take them in turn.
class Tiles {
public:
    __device__ explicit Tiles(const Product& product)
        : product(product), tile(blockIdx.x / cluster_blocks), count(product.row_tiles * product.column_tiles)
    {
        place();
    }
    __device__ bool left() const { return tile < count; }
    // Tiles of this block, from this one on.
    __device__ unsigned number_left() const
    {
        const unsigned clusters = gridDim.x / cluster_blocks;
        return left() ? (count - tile + clusters - 1) / clusters : 0;
    }
    __device__ void next()
    {
        tile += gridDim.x / cluster_blocks;
        place();
    }
    // The first row and column of D that this block computes.
    __device__ int row() const { return first_row; }
    __device__ int column() const { return first_column; }

private:
    __device__ void place()
    {
        if (!left()) {
            return;
        }
        // Tiles of the same weights follow one another: blocks that begin together load them together.
        const unsigned across = SWAPPED ? product.row_tiles : product.column_tiles;
        const unsigned along = SWAPPED ? product.column_tiles : product.row_tiles;
        const unsigned per_band = product.band * across;
        const unsigned begin = tile / per_band * product.band, rest = tile % per_band;
        const unsigned remaining = along - begin, height = remaining < product.band ? remaining : product.band;
        const unsigned of_a = begin + rest % height, of_b = rest / height;
        const unsigned rank = split > 1 ? 0 : cluster_rank();
        first_row = static_cast<int>(((SWAPPED ? of_b : of_a) * cluster_rows + rank % cluster_rows) * tile_rows);
        first_column =
            static_cast<int>(((SWAPPED ? of_a : of_b) * cluster_columns + rank / cluster_rows) * tile_columns);
    }

    const Product& product;
    unsigned tile, count;
    int first_row = 0, first_column = 0;
};

// The blocks of stages along K that this block adds up.
struct Depth {
    unsigned begin, end;

    __device__ explicit Depth(const Product& product)
        : begin(part(product.depth_blocks, split > 1 ? cluster_rank() : 0)),
          end(part(product.depth_blocks, split > 1 ? cluster_rank() + 1 : 1))
    {
    }
    __device__ unsigned blocks() const { return end - begin; }

private:
    static __device__ unsigned part(unsigned blocks, unsigned number) { return blocks * number / split; }
};
