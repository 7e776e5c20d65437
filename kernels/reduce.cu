// Reductions of one strided array into another: destination = destination OPERATION source.
//
// tile_reduce_1d … tile_reduce_5d move boxes through two tensor maps of the same extents and box, by tensor loads and
// tensor reductions; along dimensions in which the destination stays where it is, every box is reduced into it. Elements
// that no tensor map may move are left to the block's other warp. vector_reduce_… and scalar_reduce_… have a thread for
// each vector of 16 bytes, or each element, of the destination: nobody else may reduce into it at the time. element_reduce
// does everything by ordinary instructions, whatever the strides; with ATOMIC it lets others reduce into the destination
// too, as tensor reductions do.
#include <places.cuh>
#include <region.cuh>
#include <tiles.cuh>
#include <arithmetic.cuh>

using Bits = ELEMENT::Bits;

__device__ __forceinline__ Bits combined(Bits old, Bits value) { return ELEMENT::ARITHMETIC(old, value); }

template <bool Shared>
__device__ __forceinline__ void reduce_elements(const Region& region, unsigned first, unsigned step)
{
    visit_words<Bits>(region, first, step, [](const Bits* source, Bits* destination, unsigned long long) {
        if constexpr (Shared) {
            combine_atomically(destination, *source, combined);
        } else {
            const Bits value = *source;
            *destination = combined(*destination, value);
        }
    });
}

// Elements of the destination are several threads' where it has a dimension in which it stays in place.
__device__ __noinline__ void reduce_region(const Region& region, unsigned first, unsigned step)
{
    bool shared = ATOMIC;
    for (int dimension = 0; dimension < region.outer_rank; ++dimension) {
        shared |= region.destination_strides[dimension] == 0;
    }
    if (shared) {
        reduce_elements<true>(region, first, step);
    } else {
        reduce_elements<false>(region, first, step);
    }
}

extern "C" __global__ void element_reduce(const __grid_constant__ Region region)
{
    reduce_region(region, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

// The elements of one vector, as the memory has them.
template <typename Vector>
struct Elements {
    static constexpr int count = sizeof(Vector) / sizeof(Bits);
    Bits element[count];

    __device__ __forceinline__ explicit Elements(Vector vector) { memcpy(element, &vector, sizeof(Vector)); }
    __device__ __forceinline__ Vector vector() const
    {
        Vector found;
        memcpy(&found, element, sizeof(Vector));
        return found;
    }
    __device__ __forceinline__ void combine(Vector values)
    {
        const Elements other(values);
#pragma unroll
        for (int i = 0; i < count; ++i) {
            element[i] = combined(element[i], other.element[i]);
        }
    }
};

// All parts of the source, `stride` bytes apart, go into the same elements of the destination.
template <int Outer, typename Vector>
__device__ __forceinline__ void reduce_vectors(const Places& places, unsigned parts, long long stride)
{
    const unsigned index = item_of_thread();
    if (index >= places.items) {
        return;
    }
    constexpr unsigned ahead = 4;
    const Place<Outer> place(places, index);
    Vector* const destination = reinterpret_cast<Vector*>(place.destination) + place.item;
    const unsigned char* source = place.source + static_cast<unsigned long long>(place.item) * sizeof(Vector);
    const auto value = [&](unsigned part) { return *reinterpret_cast<const Vector*>(source + part * stride); };
    if (parts == 1) {
        const Vector only = value(0);  // both on their way at once
        Elements<Vector> total(*destination);
        total.combine(only);
        *destination = total.vector();
        return;
    }
    Elements<Vector> total(*destination);
    unsigned part = 0;
#pragma unroll 1
    for (; parts - part >= ahead; part += ahead) {
        Vector values[ahead];
#pragma unroll
        for (unsigned i = 0; i < ahead; ++i) {
            values[i] = value(part + i);
        }
#pragma unroll
        for (unsigned i = 0; i < ahead; ++i) {
            total.combine(values[i]);
        }
    }
#pragma unroll 1
    for (; part < parts; ++part) {
        total.combine(value(part));
    }
    *destination = total.vector();
}

#define VECTOR_REDUCE(rank)                                                                               \
    extern "C" __global__ void vector_reduce_##rank##d(                                                   \
        const __grid_constant__ Places places, unsigned parts, long long stride)                          \
    {                                                                                                     \
        reduce_vectors<rank - 1, uint4>(places, parts, stride);                                           \
    }                                                                                                     \
    extern "C" __global__ void scalar_reduce_##rank##d(                                                   \
        const __grid_constant__ Places places, unsigned parts, long long stride)                          \
    {                                                                                                     \
        reduce_vectors<rank - 1, Bits>(places, parts, stride);                                            \
    }
VECTOR_REDUCE(1)
VECTOR_REDUCE(2)
VECTOR_REDUCE(3)
VECTOR_REDUCE(4)
VECTOR_REDUCE(5)

template <int Rank>
__device__ void tile_reduce(
    const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling, const Region& rest)
{
    if (threadIdx.x < warp_threads) {
        move_tiles_in_one_thread<Rank>(source, destination, tiling, [&](const int (&at)[Rank], const unsigned char* tile) {
            cupytma::TENSOR_REDUCE(&destination, at, tile);
        });
    } else {
        const unsigned helpers = blockDim.x - warp_threads;
        reduce_region(rest, blockIdx.x * helpers + threadIdx.x - warp_threads, gridDim.x * helpers);
    }
}

#define TILE_REDUCE(rank)                                                                                 \
    extern "C" __global__ void tile_reduce_##rank##d(                                                     \
        const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,      \
        const __grid_constant__ Tiling tiling, const __grid_constant__ Region rest)                       \
    {                                                                                                     \
        tile_reduce<rank>(source, destination, tiling, rest);                                             \
    }
TILE_REDUCE(1)
TILE_REDUCE(2)
TILE_REDUCE(3)
TILE_REDUCE(4)
TILE_REDUCE(5)
