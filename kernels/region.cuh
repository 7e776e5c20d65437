// What the kernels that move strided arrays by ordinary loads and stores are told of them.
#pragma once

constexpr int max_outer_rank = MAX_OUTER_RANK;

// A strided place in two buffers: runs of `run` words that lie together, repeated along the outer dimensions, innermost
// first. Strides are in bytes.
struct Region {
    const unsigned char* source;
    unsigned char* destination;
    unsigned long long words;
    unsigned long long run;
    unsigned long long extents[max_outer_rank];
    long long source_strides[max_outer_rank];
    long long destination_strides[max_outer_rank];
    int outer_rank;
    int word_bytes;
};

// Calls visit(source, destination, number in its run) for a region's words `first`, `first + step` and so on.
template <typename Word, typename Index, typename Visit>
__device__ __forceinline__ void visit_words(const Region& region, Index first, Index step, const Visit& visit)
{
    const Index words = static_cast<Index>(region.words), run = static_cast<Index>(region.run);
#pragma unroll 1
    for (Index word = first; word < words; word += step) {
        Index outer = word / run;
        const Index within = word - outer * run;
        const unsigned long long offset = static_cast<unsigned long long>(within) * sizeof(Word);
        const unsigned char* source = region.source + offset;
        unsigned char* destination = region.destination + offset;
#pragma unroll 1
        for (int dimension = 0; dimension < region.outer_rank; ++dimension) {
            const Index extent = static_cast<Index>(region.extents[dimension]);
            const Index rest = outer / extent;
            const long long position = static_cast<long long>(outer - rest * extent);
            source += position * region.source_strides[dimension];
            destination += position * region.destination_strides[dimension];
            outer = rest;
        }
        visit(reinterpret_cast<const Word*>(source), reinterpret_cast<Word*>(destination), within);
        if (words - word <= step) {
            break;  // the next index could wrap
        }
    }
}

// The same with indices of 32 bits where they are enough: divisions by them are much faster.
template <typename Word, typename Visit>
__device__ __forceinline__ void visit_words(const Region& region, unsigned first, unsigned step, const Visit& visit)
{
    if (region.words <= 0xffffffffull) {
        visit_words<Word, unsigned>(region, first, step, visit);
    } else {
        visit_words<Word, unsigned long long>(region, first, step, visit);
    }
}
