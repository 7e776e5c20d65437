// What kernels are told of two strided arrays in which each thread has one item of a run.
#pragma once

constexpr int max_outer = 4;

// Runs of bytes that lie together in both arrays, repeated along up to four outer dimensions, innermost first. Strides
// are in bytes.
struct Places {
    const unsigned char* source;
    unsigned char* destination;
    unsigned long long run;
    long long source_strides[max_outer];
    long long destination_strides[max_outer];
    unsigned extents[max_outer];
    unsigned items;
    unsigned items_per_run;
};

// Where the run of an item begins in both arrays, and the item's number in it.
template <int Outer>
struct Place {
    const unsigned char* source;
    unsigned char* destination;
    unsigned item;

    __device__ __forceinline__ Place(const Places& places, unsigned index)
        : source(places.source), destination(places.destination), item(index)
    {
        if constexpr (Outer > 0) {
            unsigned outer = index / places.items_per_run;
            item = index - outer * places.items_per_run;
#pragma unroll
            for (int dimension = 0; dimension < Outer; ++dimension) {
                const unsigned extent = places.extents[dimension];
                const unsigned rest = dimension + 1 < Outer ? outer / extent : 0;
                const long long position = outer - rest * extent;
                source += position * places.source_strides[dimension];
                destination += position * places.destination_strides[dimension];
                outer = rest;
            }
        }
    }
};

__device__ __forceinline__ unsigned item_of_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }
