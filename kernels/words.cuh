// A strided place copied to another, word by word.
#pragma once
#include <region.cuh>

template <typename Word, typename Index>
__device__ void copy_words(const Region& region, Index first, Index step)
{
    const Index words = static_cast<Index>(region.words), run = static_cast<Index>(region.run);
#pragma unroll 1
    for (Index word = first; word < words; word += step) {
        Index outer = word / run;
        const unsigned long long within = (word - outer * run) * sizeof(Word);
        const unsigned char* source = region.source + within;
        unsigned char* destination = region.destination + within;
#pragma unroll 1
        for (int dimension = 0; dimension < region.outer_rank; ++dimension) {
            const Index extent = static_cast<Index>(region.extents[dimension]);
            const Index rest = outer / extent;
            const long long position = static_cast<long long>(outer - rest * extent);
            source += position * region.source_strides[dimension];
            destination += position * region.destination_strides[dimension];
            outer = rest;
        }
        *reinterpret_cast<Word*>(destination) = *reinterpret_cast<const Word*>(source);
        if (words - word <= step) {
            break;  // the next index could wrap
        }
    }
}

template <typename Word>
__device__ void copy_words(const Region& region, unsigned first, unsigned step)
{
    if (region.words <= 0xffffffffull) {
        copy_words<Word, unsigned>(region, first, step);
    } else {
        copy_words<Word, unsigned long long>(region, first, step);
    }
}

__device__ __noinline__ void copy_region(const Region& region, unsigned first, unsigned step)
{
    switch (region.word_bytes) {
    case 16: copy_words<ulonglong2>(region, first, step); break;
    case 8: copy_words<unsigned long long>(region, first, step); break;
    case 4: copy_words<unsigned>(region, first, step); break;
    case 2: copy_words<unsigned short>(region, first, step); break;
    default: copy_words<unsigned char>(region, first, step); break;
    }
}
