// A strided place copied to another, word by word.
#pragma once
#include <region.cuh>

template <typename Word>
__device__ __forceinline__ void copy_words(const Region& region, unsigned first, unsigned step)
{
    visit_words<Word>(region, first, step, [](const Word* source, Word* destination, unsigned long long) {
        *destination = *source;
    });
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
