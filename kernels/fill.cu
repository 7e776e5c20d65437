// One value in every element of a strided place, by ordinary stores.
#include <region.cuh>

// An element's bytes, repeated. Runs begin with an element, and elements are 1, 2, 4, 8 or 16 bytes.
struct Pattern {
    alignas(16) unsigned char bytes[16];
};

template <typename Word, typename Index>
__device__ void fill_words(const Region& region, const Word* pattern, Index first, Index step)
{
    const Index words = static_cast<Index>(region.words), run = static_cast<Index>(region.run);
#pragma unroll 1
    for (Index word = first; word < words; word += step) {
        Index outer = word / run;
        const Index within = word - outer * run;
        unsigned char* destination = region.destination + static_cast<unsigned long long>(within) * sizeof(Word);
#pragma unroll 1
        for (int dimension = 0; dimension < region.outer_rank; ++dimension) {
            const Index extent = static_cast<Index>(region.extents[dimension]);
            const Index rest = outer / extent;
            destination += static_cast<long long>(outer - rest * extent) * region.destination_strides[dimension];
            outer = rest;
        }
        *reinterpret_cast<Word*>(destination) = pattern[within % (sizeof(Pattern) / sizeof(Word))];
        if (words - word <= step) {
            break;  // the next index could wrap
        }
    }
}

template <typename Word>
__device__ void fill_words(const Region& region, const Pattern& pattern)
{
    const Word* const word = reinterpret_cast<const Word*>(pattern.bytes);
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    if (region.words <= 0xffffffffull) {
        fill_words<Word, unsigned>(region, word, first, step);
    } else {
        fill_words<Word, unsigned long long>(region, word, first, step);
    }
}

extern "C" __global__ void fill(const __grid_constant__ Region region, const __grid_constant__ Pattern pattern)
{
    switch (region.word_bytes) {
    case 16: fill_words<ulonglong2>(region, pattern); break;
    case 8: fill_words<unsigned long long>(region, pattern); break;
    case 4: fill_words<unsigned>(region, pattern); break;
    case 2: fill_words<unsigned short>(region, pattern); break;
    default: fill_words<unsigned char>(region, pattern); break;
    }
}
