// A tensor map that is born on the device, in three kernels and in one: make a template, encode, consume.
//
// Each map describes a matrix of float32 whose address and extents the device finds in `matrices`, and boxes of
// BOX_ROWS × BOX_COLUMNS. consume_tile and encode_and_consume write the box at (x, y), in elements, of matrix
// blockIdx.x to `out`. One warp or more to a block.
#include <cupytma.cuh>

namespace maps = cupytma::tensormap;

constexpr unsigned tile_elements = BOX_ROWS * BOX_COLUMNS;
constexpr unsigned float32 = 7;  // as tensormap.replace numbers the types

struct Matrix {
    unsigned long long address;
    unsigned long long row_bytes;
    unsigned rows;
    unsigned columns;
};

// What all maps have in common. The seed is any tiled map that the host has encoded.
__device__ void write_template(maps::Slot& slot, const CUtensorMap* seed)
{
    maps::copy_template(slot, seed);
    if (maps::lane_of_warp() == 0) {
        maps::replace_rank(slot, 2);
        maps::replace_elemtype<float32>(slot);
        maps::replace_interleave_layout<0>(slot);
        maps::replace_swizzle_mode<0>(slot);
        maps::replace_fill_mode<0>(slot);
        maps::replace_box_dim<0>(slot, BOX_COLUMNS);
        maps::replace_box_dim<1>(slot, BOX_ROWS);
        maps::replace_element_stride<0>(slot, 1);
        maps::replace_element_stride<1>(slot, 1);
    }
    __syncwarp();
}

__device__ void point_at(maps::Slot& slot, const Matrix& matrix)
{
    const unsigned extents[2] = {matrix.columns, matrix.rows};
    const unsigned long long strides[1] = {matrix.row_bytes};
    maps::rebind<2>(slot, matrix.address, extents, strides);
}

// A thread that has acquired the map makes the load.
__device__ void move_tile(const CUtensorMap* map, int x, int y, unsigned* out)
{
    __shared__ alignas(128) unsigned tile[tile_elements];
    __shared__ unsigned long long loaded;
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, tile_elements * 4);
        cupytma::tensor_load_2d(tile, map, x, y, &loaded);
    }
    __syncthreads();
    cupytma::mbarrier_wait_parity(&loaded, 0);
    for (unsigned i = threadIdx.x; i < tile_elements; i += blockDim.x) {
        out[i] = tile[i];
    }
}

// 1. Makes the template, once.
extern "C" __global__ void make_template(const __grid_constant__ CUtensorMap seed, CUtensorMap* made)
{
    __shared__ maps::Slot slot;
    if (threadIdx.x < 32) {
        write_template(slot, &seed);
        maps::publish(made, slot);
    }
}

// 2. Encodes the map of one matrix to a block. The template lies in global memory, where the generic proxy reads it.
extern "C" __global__ void encode_maps_of_matrices(const CUtensorMap* made, const Matrix* matrices, CUtensorMap* slots)
{
    __shared__ maps::Slot slot;
    if (threadIdx.x < 32) {
        maps::copy_template(slot, made);
        point_at(slot, matrices[blockIdx.x]);
        maps::publish(slots + blockIdx.x, slot);
    }
}

// 3. Consumes them. Neither the end of the kernel before nor the start of this one shows the change.
extern "C" __global__ void consume_tile(const CUtensorMap* slots, int x, int y, unsigned* out)
{
    if (threadIdx.x == 0) {
        maps::acquire(slots + blockIdx.x);
    }
    move_tile(slots + blockIdx.x, x, y, out + blockIdx.x * tile_elements);
}

// The same in one kernel: the block that encodes a map uses it, and acquires it all the same.
extern "C" __global__ void encode_and_consume(
    const __grid_constant__ CUtensorMap seed, const Matrix* matrices, CUtensorMap* slots, int x, int y, unsigned* out)
{
    __shared__ maps::Slot slot;
    CUtensorMap* const own = slots + blockIdx.x;
    if (threadIdx.x < 32) {
        write_template(slot, &seed);
        point_at(slot, matrices[blockIdx.x]);
        maps::publish(own, slot, maps::Scope::cta);
        if (threadIdx.x == 0) {
            maps::acquire(own, maps::Scope::cta);
        }
    }
    move_tile(own, x, y, out + blockIdx.x * tile_elements);
}
