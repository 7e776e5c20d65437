// Transposition of two dimensions by ordinary loads and stores, for arrays that no tensor map may describe.
//
// A tile of shared memory is filled along the source's dense dimension and emptied along the destination's; a row of it
// is one word longer than the tile, so that columns lie in different banks.
#include <region.cuh>

constexpr int threads = 256;

// The region's first outer dimension is dense in the source, the second in the destination; runs are one element.
template <typename Element, int side>
__device__ void turn(const Region& region, unsigned tiles)
{
    constexpr int pad = sizeof(Element) < 4 ? 4 / sizeof(Element) : 1;
    __shared__ Element tile[side][side + pad];
    const unsigned across = static_cast<unsigned>((region.extents[0] + side - 1) / side);
    const unsigned along = static_cast<unsigned>((region.extents[1] + side - 1) / side);
    const int lane = threadIdx.x % side, first = threadIdx.x / side;
#pragma unroll 1
    for (unsigned index = blockIdx.x; index < tiles; index += gridDim.x) {
        unsigned outer = index / across;
        const unsigned long long column = static_cast<unsigned long long>(index - outer * across) * side;
        const unsigned rest = outer / along;
        const unsigned long long row = static_cast<unsigned long long>(outer - rest * along) * side;
        outer = rest;
        const unsigned char* source = region.source;
        unsigned char* destination = region.destination;
#pragma unroll 1
        for (int dimension = 2; dimension < region.outer_rank; ++dimension) {
            const unsigned extent = static_cast<unsigned>(region.extents[dimension]);
            const unsigned above = outer / extent;
            const long long position = outer - above * extent;
            source += position * region.source_strides[dimension];
            destination += position * region.destination_strides[dimension];
            outer = above;
        }
        if (column + lane < region.extents[0]) {
            source += (column + lane) * sizeof(Element);
#pragma unroll
            for (int i = first; i < side; i += threads / side) {
                if (row + i < region.extents[1]) {
                    tile[i][lane] = *reinterpret_cast<const Element*>(
                        source + static_cast<long long>(row + i) * region.source_strides[1]);
                }
            }
        }
        __syncthreads();
        if (row + lane < region.extents[1]) {
            destination += (row + lane) * sizeof(Element);
#pragma unroll
            for (int i = first; i < side; i += threads / side) {
                if (column + i < region.extents[0]) {
                    *reinterpret_cast<Element*>(
                        destination + static_cast<long long>(column + i) * region.destination_strides[0]) = tile[lane][i];
                }
            }
        }
        __syncthreads();
    }
}

#define TURN(bytes, element, side)                                                                        \
    extern "C" __global__ void __launch_bounds__(threads) turn_##bytes(                                   \
        const __grid_constant__ Region region, unsigned tiles)                                            \
    {                                                                                                     \
        turn<element, side>(region, tiles);                                                               \
    }
TURN(1, unsigned char, 64)
TURN(2, unsigned short, 64)
TURN(4, unsigned, 64)
TURN(8, unsigned long long, 32)
TURN(16, ulonglong2, 32)
