// The way of a matrix product out: accumulators are scaled, converted and laid out in shared memory as lines of the
// result, which tensor stores or ordinary stores write.
//
// Thread t of a warpgroup has, of 64 rows of D, row 16 (t / 32) + t % 32 / 4 and the one eight further, and of each
// eight columns two that follow one another, from 2 (t % 4) (PTX ISA: Register Fragments for wgmma.mma_async). Lines of
// a buffer have 128 bytes or 64, and their 16-byte units change places by the swizzle of that span, so that the threads
// of a warp write to different banks. A line is a piece of a row of the result: a row of D, or where D is transposed a column of
// it.
#pragma once
#include <matmul_tiles.cuh>

constexpr unsigned group_barrier = 1;  // the first consumer's; the next is the other's
constexpr unsigned sharing_barrier = group_barrier + consumers;  // of all consumers

// How many factors there are for the rows of D, and for its columns; of what type the bias is.
enum { no_factor = 0, one_factor = 1, a_factor_each = 2 };
enum { no_bias = 0, float32_bias = 1, result_bias = 2 };

struct Scaling {
    const float *rows, *columns;  // factors
    const unsigned char* bias;    // along the result's rows
};

#if OUT_BYTES == 4
using OutBits = unsigned;
#else
using OutBits = unsigned short;
#endif

class Result {
public:
    __device__ Result(
        const CUtensorMap& map, const Product& product, const Scaling& scaling, unsigned char* out,
        unsigned char* shared, unsigned group)
        : map(map), product(product), scaling(scaling), out(out), thread(threadIdx.x % warpgroup_threads),
          barrier(group_barrier + group), staging(shared + buffers_offset + group * buffers * buffer_bytes),
          first(PING_PONG ? 0 : group * group_rows)
    {
    }

    // Writes this consumer's rows of the tile that begins there.
    template <int Blocks, int Registers>
    __device__ __forceinline__ void write(const float (&sum)[Blocks][Registers], int row, int column)
    {
#pragma unroll
        for (unsigned block = 0; block < Blocks; ++block) {
            write_rows(sum[block], row, first + block * instruction_rows, column);
        }
    }

    // Shared memory must stay as long as stores read it.
    __device__ void finish() const
    {
        if (thread == 0) {
            cupytma::bulk_wait_group_read<0>();
        }
    }

private:
    // Writes 64 rows of the tile that begins at `tile`, from number `within` on.
    template <int Registers>
    __device__ __forceinline__ void write_rows(const float (&sum)[Registers], int tile, unsigned within, int column)
    {
        const int row = tile + static_cast<int>(within);
        const unsigned line = thread / warp_threads * 16 + thread % warp_threads / 4, pair = thread % 4 * 2;
        const int rows[2] = {row + static_cast<int>(line), row + static_cast<int>(line) + 8};
        const float factors[2] = {
            factor<ROW_SCALES>(scaling.rows, rows[0], product.rows),
            factor<ROW_SCALES>(scaling.rows, rows[1], product.rows)};
        float added[2] = {};
        if (SWAPPED) {
            added[0] = bias(rows[0], product.rows);
            added[1] = bias(rows[1], product.rows);
        }
#pragma unroll
        for (unsigned step = 0; step < steps; ++step) {
            if (split > 1 && step * step_columns / (own_octets * 8) != cluster_rank()) {
                continue;
            }
            const unsigned offset = step + 1 < steps ? step * step_columns : tile_columns - step_columns;
            const int begin = column + static_cast<int>(offset);
            unsigned char* buffer = staging + sent++ % buffers * buffer_bytes;
            if (product.by_unit && thread == 0) {
                cupytma::bulk_wait_group_read<buffers - 1>();  // the store that used this buffer before has read it
            }
            meet_at(barrier, warpgroup_threads);
            unsigned pairs[2 * octets_at_once];
#pragma unroll
            for (unsigned octet = 0; octet < step_columns / 8; ++octet) {
                const unsigned local = octet * 8 + pair;  // of the first column, in this step
                const int at = begin + static_cast<int>(local);
                const float column_factors[2] = {
                    factor<COLUMN_SCALES>(scaling.columns, at, product.columns),
                    factor<COLUMN_SCALES>(scaling.columns, at + 1, product.columns)};
                float column_added[2] = {};
                if (!SWAPPED) {
                    column_added[0] = bias(at, product.columns);
                    column_added[1] = bias(at + 1, product.columns);
                }
#pragma unroll
                for (unsigned half = 0; half < 2; ++half) {
                    float values[2];
#pragma unroll
                    for (unsigned i = 0; i < 2; ++i) {
                        const float found = sum[(offset + octet * 8) / 2 + half * 2 + i];
                        values[i] = found * (factors[half] * column_factors[i]);
                        if (BIAS_TYPE != no_bias) {
                            values[i] += SWAPPED ? added[half] : column_added[i];
                        }
                    }
                    if constexpr (OUT_BYTES == 4) {
                        lay(buffer, line + 8 * half, local, values);
                    } else {
                        pairs[octet % octets_at_once * 2 + half] = pair_of(values);
                    }
                }
                if constexpr (OUT_BYTES == 2) {
                    if ((octet + 1) % octets_at_once == 0) {
                        lay_matrices(buffer, octet + 1 - octets_at_once, pairs);
                    }
                }
            }
            send(buffer, tile, within, begin);
        }
    }

    // A factor; 1 where there is none, and outside the matrix. Read from L2: the kernel before this one may have
    // written it after this one began.
    template <int Factors>
    static __device__ __forceinline__ float factor(const float* factors, int index, int extent)
    {
        if constexpr (Factors == no_factor) {
            return 1;
        } else if constexpr (Factors == one_factor) {
            return __ldcg(factors);
        } else {
            return index < extent ? __ldcg(factors + index) : 1;
        }
    }

    __device__ __forceinline__ float bias(int index, int extent) const
    {
        if (BIAS_TYPE == no_bias || index >= extent) {
            return 0;
        }
        if (BIAS_TYPE == float32_bias || OUT_BYTES == 4) {
            return __ldcg(reinterpret_cast<const float*>(scaling.bias) + index);
        }
        const unsigned short bits = __ldcg(reinterpret_cast<const unsigned short*>(scaling.bias) + index);
        return OUT_IS_FLOAT16 ? widened_float16(bits) : widened_bfloat16(bits);
    }

    // Where a byte of a line lies in a buffer.
    static __device__ __forceinline__ unsigned place(unsigned line, unsigned byte)
    {
        return line * line_bytes + (byte ^ (line * line_bytes / span_bytes % (line_bytes / 16) << 4));
    }

    // Lays two neighbouring elements of a row of D into the buffer, of four bytes each.
    static __device__ __forceinline__ void lay(
        unsigned char* buffer, unsigned row, unsigned column, const float (&values)[2])
    {
        const unsigned bits[2] = {__float_as_uint(values[0]), __float_as_uint(values[1])};
        if (SWAPPED) {
            const unsigned box = row / line_elements * step_columns, byte = row % line_elements * OUT_BYTES;
#pragma unroll
            for (unsigned i = 0; i < 2; ++i) {
                *reinterpret_cast<unsigned*>(buffer + place(box + column + i, byte)) = bits[i];
            }
            return;
        }
        *reinterpret_cast<uint2*>(buffer + place(row, column * OUT_BYTES)) = make_uint2(bits[0], bits[1]);
    }

    // Lays a warp's elements of two bytes into the buffer: 16 rows of D and, from an octet of columns on, as many as are
    // laid at once. Matrices are told apart by their rows first.
    template <int Matrices>
    __device__ __forceinline__ void lay_matrices(
        unsigned char* buffer, unsigned octet, const unsigned (&pairs)[Matrices]) const
    {
        static_assert(!SWAPPED || OUT_BYTES == 4 || line_elements == instruction_rows, "a line takes all rows");
        const unsigned matrix = thread % warp_threads / 8;
        const unsigned row = thread / warp_threads * 16 + matrix % 2 * 8, column = (octet + matrix / 2) * 8;
        const unsigned line = (SWAPPED ? column : row) + thread % 8, first = SWAPPED ? row : column;
        store_matrices<SWAPPED>(buffer + place(line, first * OUT_BYTES), pairs);
    }

    static __device__ __forceinline__ unsigned pair_of(const float (&values)[2])
    {
        return OUT_IS_FLOAT16 ? float16_pair(values[0], values[1]) : bfloat16_pair(values[0], values[1]);
    }

    // Writes a full buffer: 64 rows of D, or those of them that are the tile's, and the columns of a step.
    __device__ __forceinline__ void send(const unsigned char* buffer, int tile, unsigned within, int column) const
    {
        constexpr unsigned boxes = SWAPPED ? instruction_rows / line_elements : 1;
        constexpr unsigned lines = SWAPPED ? step_columns : instruction_rows;  // of a box
        const int row = tile + static_cast<int>(within);
        // The map of tiles with spare rows tells tiles apart, and is for whole ones.
        if (product.by_unit && (spare_rows == 0 || tile + static_cast<int>(tile_rows) <= product.rows)) {
            cupytma::fence_proxy_async_shared_cta();
            meet_at(barrier, warpgroup_threads);
            if (thread == 0) {
#pragma unroll
                for (unsigned box = 0; box < boxes; ++box) {
                    const unsigned char* part = buffer + box * lines * line_bytes;
                    if constexpr (spare_rows > 0) {
                        const unsigned along = within + box * line_elements;
                        if (along < tile_rows) {
                            const int at[3] = {static_cast<int>(along), tile / static_cast<int>(tile_rows), column};
                            cupytma::tensor_store(&map, at, part);
                        }
                    } else {
                        const int across = row + static_cast<int>(box * line_elements);
                        const int at[2] = {SWAPPED ? across : column, SWAPPED ? column : row};
                        cupytma::tensor_store(&map, at, part);
                    }
                }
                cupytma::bulk_commit_group();
            }
            return;
        }
        if (spare_rows > 0 && product.by_unit && thread == 0) {
            cupytma::bulk_commit_group();  // of no stores, so that groups are counted as buffers are
        }
        meet_at(barrier, warpgroup_threads);
#pragma unroll 1
        for (unsigned element = thread; element < boxes * lines * line_elements; element += warpgroup_threads) {
            const unsigned line = element / line_elements, along = element % line_elements;
            const unsigned of_rows = SWAPPED ? line / lines * line_elements + along : line;
            const int in_row = row + static_cast<int>(of_rows);
            const int in_column = column + static_cast<int>(SWAPPED ? line % lines : along);
            if (in_row < product.rows && in_column < product.columns && within + of_rows < tile_rows) {
                const OutBits bits = *reinterpret_cast<const OutBits*>(buffer + place(line, along * OUT_BYTES));
                *reinterpret_cast<OutBits*>(out + in_row * product.row_stride + in_column * product.column_stride) =
                    bits;
            }
        }
    }

    const CUtensorMap& map;
    const Product& product;
    const Scaling scaling;
    unsigned char* const out;
    const unsigned thread, barrier;
    unsigned char* const staging;
    const unsigned first;  // row of a tile that this consumer has
    unsigned sent = 0;  // buffers, one after the other over all tiles
};
