// Matrix products fed by tensor loads: one warp loads, two warpgroups multiply, and tiles are taken in turn.
//
// The loading warp keeps STAGES pieces of both operands in flight; in a cluster each block loads a part of what several
// need, and sends it to all of them. Consumers work on one tile together (cooperative), or on one tile each
// (PING_PONG), so that one multiplies while the other writes its result. With SPLIT the blocks of a cluster add up
// parts of K of the same tile, and each finishes some of its columns, in a fixed order. RESIDENT blocks share a
// multiprocessor, so that those of the next product load while this one ends.
#include <matmul_result.cuh>
#include <matmul_sums.cuh>

struct Barriers {
    unsigned long long* full;     // of each stage: loaded
    unsigned long long* empty;    // of each stage: read by every consumer of every block that its loads go to
    unsigned long long* turn;     // of each consumer, with PING_PONG: the other has multiplied
    unsigned long long* partial;  // with SPLIT: the other blocks' parts of this one's columns have come

    __device__ explicit Barriers(unsigned char* shared)
        : full(reinterpret_cast<unsigned long long*>(shared + barriers_offset)), empty(full + stages),
          turn(empty + stages), partial(turn + consumers)
    {
    }
};

// The blocks of a cluster that this one shares loads with, itself included: its column of blocks, then its row.
constexpr unsigned sharers = split > 1 ? 1 : cluster_rows + cluster_columns - 1;
static_assert(sharers <= warp_threads, "a lane tells each");

__device__ __forceinline__ unsigned sharer(unsigned number)
{
    const unsigned rank = cluster_rank(), row = rank % cluster_rows, column = rank / cluster_rows;
    if (sharers == 1) {
        return rank;
    }
    if (number < cluster_rows) {
        return number + cluster_rows * column;
    }
    const unsigned other = number - cluster_rows;
    return row + cluster_rows * (other + (other >= column));
}

// Starts the loads of this block's share of an operand's part of a stage. `Parts` blocks share it, of which this is
// number `part`; the loads go to those in the mask.
template <unsigned Extent, unsigned Parts, bool MnMajor>
__device__ __forceinline__ void load_operand(
    unsigned char* shared, const CUtensorMap& map, int start, unsigned block, unsigned part, unsigned short mask,
    unsigned long long* mbarrier)
{
    constexpr unsigned share = Extent / Parts;
    constexpr unsigned box = MnMajor ? instruction_rows : share;
    static_assert(Extent % Parts == 0 && share % (MnMajor ? instruction_rows : 8) == 0, "shares are whole patterns");
    const int depth = static_cast<int>(block * stage_depth);
#pragma unroll
    for (unsigned offset = 0; offset < share; offset += box) {
        const unsigned place = part * share + offset;
        const int along = start + static_cast<int>(place);
        const int at[2] = {MnMajor ? along : depth, MnMajor ? depth : along};
        if constexpr (Parts > 1) {
            cupytma::tensor_load_multicast(shared + place * span_bytes, &map, at, mbarrier, mask);
        } else {
            cupytma::tensor_load(shared + place * span_bytes, &map, at, mbarrier);
        }
    }
}

// Run by one warp of each block, of which one thread loads: what all threads of a warp compute alike stays in uniform
// registers, which loads take their operands from, and they start sooner. With ROWS_BEFORE run by one thread: loads that
// start sooner take from what the kernel before still loads (measured: products took 1 to 11 % longer).
__device__ __forceinline__ void load_tiles(
    const CUtensorMap& rows_map, const CUtensorMap& columns_map, const CUtensorMap& out_map, const Product& product,
    unsigned char* shared, const Barriers& barriers)
{
    const bool loads = ROWS_BEFORE || cupytma::elect_sync();
    if (loads && product.depth_blocks > 0) {
        cupytma::prefetch_tensormap(&rows_map);
        cupytma::prefetch_tensormap(&columns_map);
    }
    const unsigned rank = split > 1 ? 0 : cluster_rank();
    const unsigned cluster_row = rank % cluster_rows, cluster_column = rank / cluster_rows;
    unsigned short row_mask = 0;  // the blocks that need the same rows
    for (unsigned column = 0; column < cluster_columns; ++column) {
        row_mask |= static_cast<unsigned short>(1u << (cluster_row + cluster_rows * column));
    }
    const unsigned short column_mask =
        static_cast<unsigned short>(((1u << cluster_rows) - 1) << (cluster_rows * cluster_column));
    const Depth depth(product);
    Position at;

    const auto load_rows = [&](const Tiles& tile, unsigned block, unsigned stage) {
        load_operand<tile_rows, cluster_columns, ROWS_MN_MAJOR>(
            shared + stage * stage_bytes, rows_map, tile.row(), block, cluster_column, row_mask, &barriers.full[stage]);
    };
    const auto load_columns = [&](const Tiles& tile, unsigned block, unsigned stage) {
        load_operand<tile_columns, cluster_rows, COLUMNS_MN_MAJOR>(
            shared + stage * stage_bytes + rows_bytes, columns_map, tile.column(), block, cluster_row, column_mask,
            &barriers.full[stage]);
    };

    // Weights that the kernel before this one does not write need not wait for it. They are the rows.
    unsigned started = 0;
    Tiles tiles(product);
#if ROWS_BEFORE
    const unsigned first = depth.blocks() < stages ? depth.blocks() : stages;
    for (; started < first && tiles.left(); ++started) {
        if (loads) {
            cupytma::mbarrier_arrive_expect_tx_sink(&barriers.full[started], stage_bytes);
            load_rows(tiles, depth.begin + started, started);
        }
    }
#endif
    cupytma::griddepcontrol_wait();
#pragma unroll 1
    for (; tiles.left(); tiles.next()) {
#pragma unroll 1
        for (unsigned block = depth.begin; block < depth.end; ++block, at.advance()) {
            const bool has_rows = started > 0;
            if (has_rows) {
                --started;
            } else {
                cupytma::mbarrier_wait_parity(&barriers.empty[at.stage], at.parity ^ 1);  // in the first round it is empty already
            }
            if (!ROWS_BEFORE) {
                __syncwarp();  // no thread falls behind by a round of the ring: parities would tell it nothing
            }
            if (loads) {
                if (!has_rows) {
                    cupytma::mbarrier_arrive_expect_tx_sink(&barriers.full[at.stage], stage_bytes);
                    load_rows(tiles, block, at.stage);
                }
                load_columns(tiles, block, at.stage);
            }
        }
    }
    if (loads && product.by_unit) {
        cupytma::prefetch_tensormap(&out_map);  // not before: the loads would wait for it
    }
}

__device__ __forceinline__ void multiply(
    float (&d)[part_columns / 2], unsigned long long rows, unsigned long long columns, bool add)
{
#if ELEMENT_BYTES == 2
    cupytma::MULTIPLY<1, 1, ROWS_MN_MAJOR, COLUMNS_MN_MAJOR>(d, rows, columns, add);
#else
    cupytma::MULTIPLY<1, 1>(d, rows, columns, add);
#endif
}

// A number that is the same for all threads of a warp. The compiler does not know it without being told, and computes
// from it in uniform registers, from where wgmma takes matrix descriptors; nor does it compute the number anew in loops.
__device__ __forceinline__ unsigned uniform(unsigned number) { return __shfl_sync(~0u, number, 0); }

// The matrix descriptor of an operand's part of a stage, and how far the next instruction's part lies, in its units of
// 16 bytes. K-major: rows of 128 bytes, eight to a pattern, and an instruction reads 32 bytes of each. MN-major: boxes
// of 64 elements, eight lines along K to a pattern, and an instruction reads 16 lines.
template <bool MnMajor>
struct Operand {
    static constexpr unsigned step = (MnMajor ? 2 * pattern_bytes : 32) >> 4;

    __device__ explicit Operand(const unsigned char* part)
        : first(cupytma::matrix_descriptor(part, MnMajor ? group_bytes : 16, pattern_bytes, 1)),
          low(uniform(static_cast<unsigned>(first)))
    {
    }
    // Of what lies so far from the part. Addresses are in the lower half, and do not fill it.
    __device__ unsigned long long descriptor(unsigned offset) const { return first >> 32 << 32 | (low + offset); }

private:
    const unsigned long long first;
    const unsigned low;
};

// The multiplying side of the ring.
class Consumer {
public:
    // Of so many stages in all.
    __device__ Consumer(unsigned char* shared, const Barriers& barriers, unsigned group, unsigned all)
        : barriers(barriers), rows(shared + (PING_PONG ? 0 : group * ROW_BLOCKS * group_bytes)),
          columns(shared + rows_bytes), reloaded(all > stages ? all - stages : 0),
          tells(threadIdx.x % warp_threads < sharers),
          empty(sharers > 1 ? mbarrier_of(barriers.empty, sharer(tells ? threadIdx.x % warp_threads : 0))
                            : barriers.empty)
    {
    }

    // Starts the products of one stage, of one part of the columns; `add` says whether its first ones are added to d.
    __device__ __forceinline__ void start(float (&d)[ROW_BLOCKS][part_columns / 2], unsigned part, bool add)
    {
        if (part == 0) {
            cupytma::mbarrier_wait_parity(&barriers.full[at.stage], at.parity);
        }
        const unsigned along = part * (part_columns * span_bytes >> 4);
        cupytma::wgmma_fence();
#pragma unroll
        for (unsigned step = 0; step < instructions; ++step) {
#pragma unroll
            for (unsigned block = 0; block < ROW_BLOCKS; ++block) {
                multiply(
                    d[block],
                    rows.descriptor(offset) + block * (group_bytes >> 4) + step * Operand<ROWS_MN_MAJOR>::step,
                    columns.descriptor(offset) + along + step * Operand<COLUMNS_MN_MAJOR>::step, add || step > 0);
            }
        }
        cupytma::wgmma_commit_group();
    }

    // Goes on to the next stage.
    __device__ __forceinline__ void advance()
    {
        at.advance();
        move();
    }

    // Tells the blocks that load the next stage to be released that this warp has read it; other blocks not where they
    // load it no more, for they may have ended.
    __device__ __forceinline__ void release()
    {
        if constexpr (sharers == 1) {
            if (tells) {
                cupytma::mbarrier_arrive_sink(&empty[read]);
            }
        } else {
            if (tells && released < reloaded) {
                give_back(&empty[read]);
            }
            ++released;
        }
        read = read + 1 < stages ? read + 1 : 0;
    }

    // Leaves stages to the other consumer.
    __device__ void skip(unsigned blocks)
    {
        at.advance(blocks);
        move();
        read = at.stage;
        released += blocks;
    }

private:
    // Computes where the stage lies now, and not when it has been waited for: the tensor cores would wait for it too.
    __device__ __forceinline__ void move()
    {
        offset = at.stage * (stage_bytes >> 4);
        hold(offset);
    }

    const Barriers& barriers;
    const Operand<ROWS_MN_MAJOR> rows;
    const Operand<COLUMNS_MN_MAJOR> columns;
    Position at;
    unsigned offset = 0;  // of this stage, in units of 16 bytes
    unsigned read = 0;    // the next stage to be released
    const unsigned reloaded;  // stages that are loaded again once they are read
    const bool tells;         // whether this thread tells a block of what its warp has read
    unsigned long long* const empty;  // of the block that this thread tells
    unsigned released = 0;
};

template <int Blocks, int Registers>
__device__ __forceinline__ void hold_all(float (&d)[Blocks][Registers])
{
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
        hold(d[block]);
    }
}

template <int Blocks, int Registers>
__device__ __forceinline__ void set_to_zero(float (&d)[Blocks][Registers])
{
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
#pragma unroll
        for (int i = 0; i < Registers; ++i) {
            d[block][i] = 0;
        }
    }
}

// Adds up a tile, or this block's part of it. `done` is called when all that is left to come has been started.
template <typename Done>
__device__ __forceinline__ void add_up(
    Consumer& consumer, unsigned blocks, float (&sum)[ROW_BLOCKS][tile_columns / 2], Done done)
{
#if PROMOTE
    set_to_zero(sum);
    // The tensor cores add products of 8 bits with fewer bits than float32 has: each stage's sum is added in float32.
    // Where registers allow, while the next sum is made: that of the next stage, or of the other half of the columns.
    constexpr unsigned sums = PROMOTE > 1 || parts > 1 ? 2 : 1;
    float d[sums][ROW_BLOCKS][part_columns / 2];
    const auto start = [&](unsigned sum_number, unsigned part, unsigned index) {
        hold_all(d[sum_number]);
        consumer.start(d[sum_number], part, false);
        if (part + 1 == parts) {
            consumer.advance();
            if (index + 1 == blocks) {
                done();
            }
        }
    };
    const auto add = [&](unsigned sum_number, unsigned part) {
        hold_all(d[sum_number]);
        if (part + 1 == parts) {
            consumer.release();
        }
#pragma unroll
        for (unsigned block = 0; block < ROW_BLOCKS; ++block) {
#pragma unroll
            for (unsigned i = 0; i < part_columns / 2; ++i) {
                sum[block][part * (part_columns / 2) + i] += d[sum_number][block][i];
            }
        }
    };
    unsigned index = 0;
    if constexpr (sums == 2) {
        // No product is under way from one round to the next: ptxas would have every one waited for at once.
        constexpr unsigned round = ROUND, last = round * parts - 1;
#pragma unroll 1
        for (; index + round <= blocks; index += round) {
#pragma unroll
            for (unsigned step = 0; step <= last; ++step) {
                start(step % 2, step % parts, index + step / parts);
                if (step > 0) {
                    cupytma::wgmma_wait_group<1>();
                    add((step - 1) % 2, (step - 1) % parts);
                }
            }
            cupytma::wgmma_wait_group<0>();
            add(last % 2, last % parts);
        }
    }
#pragma unroll 1
    for (; index < blocks; ++index) {
#pragma unroll
        for (unsigned part = 0; part < parts; ++part) {
            start(part, part, index);
        }
        cupytma::wgmma_wait_group<0>();
#pragma unroll
        for (unsigned part = 0; part < parts; ++part) {
            add(part, part);
        }
    }
    if (blocks == 0) {
        done();
    }
#else
    if (blocks == 0) {
        set_to_zero(sum);
        done();
        return;
    }
    consumer.start(sum, 0, false);
    consumer.advance();
#pragma unroll 1
    for (unsigned left = blocks - 1; left > 0; --left) {
        hold_all(sum);
        consumer.start(sum, 0, true);
        consumer.advance();
        cupytma::wgmma_wait_group<1>();  // all but this stage's: the one before has been read
        hold_all(sum);
        consumer.release();
    }
    done();
    cupytma::wgmma_wait_group<0>();
    hold_all(sum);
    consumer.release();
#endif
}

// Run by the threads of one consumer.
__device__ __forceinline__ void multiply_tiles(
    const CUtensorMap& out_map, const Product& product, const Scaling& scaling, unsigned char* out,
    unsigned char* shared, const Barriers& barriers, unsigned group)
{
    const Depth depth(product);
    Tiles tiles(product);
    Consumer consumer(shared, barriers, group, tiles.number_left() * depth.blocks());
    Result result(out_map, product, scaling, out, shared, group);
    unsigned number = 0;  // of the tile, among this block's
#pragma unroll 1
    for (; tiles.left(); tiles.next(), ++number) {
        if (PING_PONG && number % consumers != group) {
            consumer.skip(depth.blocks());
            continue;
        }
        if (PING_PONG) {
            // Before the other has seen all its stages full, their parities tell nothing of this one's.
            cupytma::mbarrier_wait_parity(&barriers.turn[group], number / consumers % 2 ^ (group == 0));
        }
        float sum[ROW_BLOCKS][tile_columns / 2];
        add_up(consumer, depth.blocks(), sum, [&] {
            if (PING_PONG) {
                cupytma::mbarrier_arrive_sink(&barriers.turn[1 - group]);
            }
        });
#if SPLIT > 1
        add_parts(sum, shared, barriers.partial);
#else
        if (one_tile && consumers > 1 && !PING_PONG) {
            meet_at(sharing_barrier, consumers * warpgroup_threads);  // all warps have read the stages
        }
#endif
        result.write(sum, tiles.row(), tiles.column());
    }
    result.finish();
}

extern "C" __global__ void __launch_bounds__(block_threads, RESIDENT) matmul(
    const __grid_constant__ CUtensorMap rows_map, const __grid_constant__ CUtensorMap columns_map,
    const __grid_constant__ CUtensorMap out_map, const __grid_constant__ Product product, unsigned char* out,
    const float* row_scales, const float* column_scales, const unsigned char* bias)
{
    extern __shared__ unsigned char dynamic_shared[];
    const unsigned misaligned = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) % pattern_bytes;
    const unsigned padding = (pattern_bytes - misaligned) % pattern_bytes;
    unsigned char* shared = dynamic_shared + padding;
    const Barriers barriers(shared);
    if (threadIdx.x == 0) {
        for (unsigned stage = 0; stage < stages; ++stage) {
            cupytma::mbarrier_init(&barriers.full[stage], 1);
            cupytma::mbarrier_init(
                &barriers.empty[stage], (PING_PONG ? 1 : consumers) * warpgroup_warps * sharers);
        }
        for (unsigned group = 0; group < consumers; ++group) {
            cupytma::mbarrier_init(&barriers.turn[group], warpgroup_threads);
        }
        cupytma::mbarrier_init(barriers.partial, 1);
        cupytma::fence_mbarrier_init();
#if SPLIT > 1
        cupytma::mbarrier_arrive_expect_tx_sink(barriers.partial, bytes_of_parts());
#endif
    }
    // No block is written to or told of anything before its mbarriers are there; parts of sums are sent late.
    if constexpr (split > 1) {
        __syncthreads();
        cupytma::barrier_cluster_arrive_relaxed();
    } else if constexpr (cluster_blocks > 1) {
        meet_cluster();
    } else {
        __syncthreads();
    }
    cupytma::griddepcontrol_launch_dependents();
    const unsigned warp = uniform(threadIdx.x / warp_threads), group = warp / warpgroup_warps;
    if (group == consumers) {
        if constexpr (gives_registers) {
            cupytma::setmaxnreg_dec<LOADING_REGISTERS>();
        }
        if (warp == consumers * warpgroup_warps && (!ROWS_BEFORE || cupytma::elect_sync())) {
            load_tiles(rows_map, columns_map, out_map, product, shared, barriers);
        }
        __syncwarp();
#if SPLIT > 1
        cupytma::barrier_cluster_wait();
        if constexpr (parcels) {
            cupytma::barrier_cluster_arrive_relaxed();
        }
#endif
    } else {
        if constexpr (gives_registers) {
            cupytma::setmaxnreg_inc<MULTIPLYING_REGISTERS>();
        }
        shared = dynamic_shared + uniform(padding);  // which is not computed anew at each stage
        cupytma::griddepcontrol_wait();  // before scales are read and the result is written
        multiply_tiles(
            out_map, product, Scaling{row_scales, column_scales, bias}, out, shared, Barriers(shared), group);
    }
    // No block ends while others may read what it has laid out for them. For what they load for it and tell it, it has waited.
    if constexpr (parcels) {
        cupytma::barrier_cluster_wait();
    }
}
