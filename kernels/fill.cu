// One value in every element of a strided place, by ordinary stores.
#include <region.cuh>

// An element's bytes, repeated. Runs begin with an element, and elements are 1, 2, 4, 8 or 16 bytes.
struct Pattern {
    alignas(16) unsigned char bytes[16];
};

template <typename Word>
__device__ __forceinline__ void fill_words(const Region& region, const Pattern& pattern)
{
    const Word* const words = reinterpret_cast<const Word*>(pattern.bytes);
    visit_words<Word>(
        region, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x,
        [=](const Word*, Word* destination, unsigned long long within) {
            *destination = words[within % (sizeof(Pattern) / sizeof(Word))];
        });
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
