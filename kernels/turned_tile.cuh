// A tile whose two dimensions change places: in shared memory it lies in squares of 128 bytes by as many elements, with the
// 128B swizzle, and is turned in registers, 16 bytes by 16 bytes. Lanes walk the 8 × 8 blocks of 16 bytes of a square so
// that neither the reads nor the writes of eight lanes meet in a bank.
#pragma once
#include <cupytma.cuh>

constexpr int element_bytes = ELEMENT_BYTES;
constexpr int square_rows = SQUARE_ROWS;        // of squares in a tile, along the source's rows
constexpr int square_columns = SQUARE_COLUMNS;
constexpr int threads = THREADS;  // that turn tiles

constexpr int span = 128;                                  // bytes of a row of a square
constexpr int chunk = 16;                                  // bytes that one instruction moves
constexpr int chunks = span / chunk;                       // of a row, and blocks along each side of a square
constexpr int block = chunk / element_bytes;               // elements along each side of a block
constexpr int square = span / element_bytes;               // elements along each side of a square
constexpr int tile_rows = square_rows * square;            // elements of a tile along each of the source's dimensions
constexpr int tile_columns = square_columns * square;
constexpr unsigned load_bytes = tile_rows * span;          // one column of squares: what one tensor load moves
constexpr unsigned store_bytes = tile_columns * span;      // one row of squares: what one tensor store moves
constexpr unsigned tile_bytes = square_columns * load_bytes;
constexpr int words = element_bytes > 8 ? element_bytes / 8 : 1;  // of an element, as the tensor maps count
constexpr int units = square_rows * square_columns * chunks;  // of eight blocks, one for each of eight lanes
constexpr int lanes = 8;
static_assert(units * lanes % threads == 0, "every thread turns as many blocks");

struct Chunk {
    unsigned word[4];
};

__device__ __forceinline__ Chunk read_chunk(unsigned address)
{
    Chunk c;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c.word[0]), "=r"(c.word[1]), "=r"(c.word[2]), "=r"(c.word[3]) : "r"(address));
    return c;
}

__device__ __forceinline__ void write_chunk(unsigned address, const Chunk& c)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(c.word[0]), "r"(c.word[1]), "r"(c.word[2]), "r"(c.word[3]) : "memory");
}

// Column `column` of a block whose rows are given, as a row.
__device__ __forceinline__ Chunk turned(const Chunk (&row)[block], int column)
{
    Chunk result;
    if constexpr (element_bytes == 16) {
        result = row[0];
    } else if constexpr (element_bytes == 8) {
#pragma unroll
        for (int i = 0; i < 4; ++i) result.word[i] = row[i / 2].word[2 * column + i % 2];
    } else if constexpr (element_bytes == 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) result.word[i] = row[i].word[column];
    } else if constexpr (element_bytes == 2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            result.word[i] = __byte_perm(
                row[2 * i].word[column / 2], row[2 * i + 1].word[column / 2], column % 2 ? 0x7632 : 0x5410);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned pick = column % 4 * 0x11 + 0x40;  // the byte of one row, then that of the next
            const unsigned low = __byte_perm(row[4 * i].word[column / 4], row[4 * i + 1].word[column / 4], pick);
            const unsigned high = __byte_perm(row[4 * i + 2].word[column / 4], row[4 * i + 3].word[column / 4], pick);
            result.word[i] = __byte_perm(low, high, 0x5410);
        }
    }
    return result;
}

// Which block of a square, of its row of blocks, a lane takes with block `column` of a row. Both this and its sum with
// the column take eight values, for any step: no two lanes read, or write, in the same banks.
__device__ __forceinline__ int block_row(int column, int step)
{
    if constexpr (element_bytes == 16) {
        // Multiplication by x in the field of eight elements; by x and by x + 1 are both one to one.
        return ((column << 1 & 7) ^ (column >> 2 ? 3 : 0)) ^ step;
    }
    return column ^ step;
}

__device__ __forceinline__ unsigned swizzled(unsigned row, unsigned chunk_in_row)
{
    return row * span + ((chunk_in_row ^ row % 8) * chunk);
}

__device__ __forceinline__ void turn_tile(unsigned source, unsigned destination, int thread)
{
    const int column = thread % lanes;
#pragma unroll 1
    for (int unit = thread / lanes; unit < units; unit += threads / lanes) {
        const int step = unit % chunks;
        const int square_row = unit / chunks % square_rows, square_column = unit / chunks / square_rows;
        const int row = block_row(column, step);
        Chunk rows[block];
#pragma unroll
        for (int k = 0; k < block; ++k) {
            rows[k] = read_chunk(
                source + square_column * load_bytes + swizzled(square_row * square + row * block + k, column));
        }
#pragma unroll
        for (int k = 0; k < block; ++k) {
            write_chunk(
                destination + square_row * store_bytes + swizzled(square_column * square + column * block + k, row),
                turned(rows, k));
        }
    }
}
