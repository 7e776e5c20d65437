// Copies by ordinary loads and stores, one word of each run for a thread.
#include <places.cuh>
#include <word.cuh>

#define COPY_WORDS(rank)                                                                                  \
    extern "C" __global__ void copy_words_##rank##d(const __grid_constant__ Places places)                \
    {                                                                                                     \
        const unsigned index = item_of_thread();                                                          \
        if (index < places.items) {                                                                       \
            const Place<rank - 1> place(places, index);                                                   \
            reinterpret_cast<Word*>(place.destination)[place.item] =                                      \
                reinterpret_cast<const Word*>(place.source)[place.item];                                  \
        }                                                                                                 \
    }
COPY_WORDS(1)
COPY_WORDS(2)
COPY_WORDS(3)
COPY_WORDS(4)
COPY_WORDS(5)
