// Copies by ordinary loads and stores, GROUP words that follow one another in a run for a thread.
#include <places.cuh>
#include <word.cuh>

template <int Outer>
__device__ __forceinline__ void copy_group(const Places& places)
{
    const unsigned index = item_of_thread();
    if (index >= places.items) {
        return;
    }
    const Place<Outer> place(places, index);
    const unsigned long long first = static_cast<unsigned long long>(place.item) * GROUP;
    const Word* const source = reinterpret_cast<const Word*>(place.source) + first;
    Word* const destination = reinterpret_cast<Word*>(place.destination) + first;
    const unsigned long long left = places.run / sizeof(Word) - first;
    Word words[GROUP];
#pragma unroll
    for (unsigned i = 0; i < GROUP; ++i) {
        if (i < left) {
            words[i] = source[i];
        }
    }
#pragma unroll
    for (unsigned i = 0; i < GROUP; ++i) {
        if (i < left) {
            destination[i] = words[i];
        }
    }
}

#define COPY_WORDS(rank)                                                                                  \
    extern "C" __global__ void copy_words_##rank##d(const __grid_constant__ Places places)                \
    {                                                                                                     \
        copy_group<rank - 1>(places);                                                                     \
    }
COPY_WORDS(1)
COPY_WORDS(2)
COPY_WORDS(3)
COPY_WORDS(4)
COPY_WORDS(5)
