// Transposition of two dimensions through swizzled tiles, for elements of 1, 2, 4, 8 and 16 bytes.
//
// A tile is SQUARE_ROWS × SQUARE_COLUMNS squares; a square is 128 bytes wide and as many elements high as wide. One warp loads
// tiles ahead with tensor loads; the others turn a tile in registers, 16 bytes by 16 bytes, into an output tile, which
// one thread stores with tensor stores. Both tiles have the 128B swizzle, and lanes walk the 8 × 8 blocks of 16 bytes of
// a square so that neither the reads nor the writes of eight lanes meet in a bank.
#include <turned_tile.cuh>

constexpr int rank = RANK;
constexpr int stages = STAGES;
constexpr int outputs = OUTPUTS;

struct Tiling {
    unsigned rows, columns;      // tiles along the source's two dimensions
    unsigned batches[3];
    unsigned tiles;
    unsigned band;               // tile rows that are walked together
};

struct Place {
    int row, column, batch[3];

    // Bands of rows, column after column: tiles in flight are close together in the source and in the destination.
    __device__ Place(const Tiling& tiling, unsigned tile)
    {
        const unsigned matrix = tiling.rows * tiling.columns;
        unsigned outer = 0;
        if constexpr (rank > 2) {
            outer = tile / matrix;
            tile -= outer * matrix;
        }
        const unsigned per_band = tiling.band * tiling.columns;
        const unsigned band = tile / per_band, within = tile - band * per_band;
        const unsigned height = min(tiling.band, tiling.rows - band * tiling.band);
        const unsigned across = within / height;
        row = static_cast<int>(band * tiling.band + within - across * height) * tile_rows;
        column = static_cast<int>(across) * tile_columns;
#pragma unroll
        for (int dimension = 0; dimension < rank - 2; ++dimension) {
            const unsigned rest = outer / tiling.batches[dimension];
            batch[dimension] = static_cast<int>(outer - rest * tiling.batches[dimension]);
            outer = rest;
        }
    }
};

extern "C" __global__ void __launch_bounds__(threads + 32) transpose(
    const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,
    const __grid_constant__ Tiling tiling)
{
    extern __shared__ unsigned char dynamic_shared[];
    __shared__ unsigned long long full[stages], empty[stages];
    const unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared));
    const unsigned pad = (1024 - start % 1024) % 1024;
    unsigned char* const inputs = dynamic_shared + pad;
    unsigned char* const results = inputs + stages * tile_bytes;

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
        cupytma::prefetch_tensormap(&source);
        unsigned stage = 0, parity = 1;
#pragma unroll 1
        for (unsigned tile = blockIdx.x; tile < tiling.tiles; tile += gridDim.x) {
            const Place at(tiling, tile);
            cupytma::mbarrier_wait_parity(&empty[stage], parity);
            cupytma::mbarrier_arrive_expect_tx_sink(&full[stage], tile_bytes);
#pragma unroll
            for (int column = 0; column < square_columns; ++column) {
                int from[rank] = {(at.column + column * square) * words, at.row};
#pragma unroll
                for (int dimension = 2; dimension < rank; ++dimension) from[dimension] = at.batch[dimension - 2];
                cupytma::tensor_load(
                    inputs + stage * tile_bytes + column * load_bytes, &source, from, &full[stage]);
            }
            if (++stage == stages) stage = 0, parity ^= 1;
        }
        return;
    }

    unsigned stage = 0, parity = 0, output = 0;
#pragma unroll 1
    for (unsigned tile = blockIdx.x; tile < tiling.tiles; tile += gridDim.x) {
        cupytma::mbarrier_wait_parity(&full[stage], parity);
        turn_tile(start + pad + stage * tile_bytes, start + pad + (stages + output) * tile_bytes, threadIdx.x);
        cupytma::fence_proxy_async_shared_cta();
        __syncwarp();
        if (threadIdx.x % 32 == 0) cupytma::mbarrier_arrive_sink(&empty[stage]);
        // The next output tile is free once all but the newest stores before this one have been read.
        if (threadIdx.x == 0) cupytma::bulk_wait_group_read<outputs - 2>();
        asm volatile("bar.sync 1, %0;" :: "n"(threads) : "memory");
        if (threadIdx.x == 0) {
            const Place at(tiling, tile);
#pragma unroll
            for (int row = 0; row < square_rows; ++row) {
                int to[rank] = {(at.row + row * square) * words, at.column};
#pragma unroll
                for (int dimension = 2; dimension < rank; ++dimension) to[dimension] = at.batch[dimension - 2];
                cupytma::tensor_store(
                    &destination, to, results + output * tile_bytes + row * store_bytes);
            }
            cupytma::bulk_commit_group();
        }
        if (++stage == stages) stage = 0, parity ^= 1;
        if (++output == outputs) output = 0;
    }
    if (threadIdx.x == 0) cupytma::bulk_wait_group<0>();
}
