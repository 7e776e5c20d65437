// Copies of runs that begin and end anywhere: a thread writes one aligned 16-byte granule of the destination, which it
// shifts together from two aligned granules of the source. Where a run begins or ends inside one of them, it goes word by
// word, of the length that all runs begin and end at multiples of: nothing outside either run is read or written.
#include <places.cuh>
#include <word.cuh>

constexpr int granule = 16;

__device__ __forceinline__ unsigned offset_in_granule(const void* place)
{
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(place)) % granule;
}

// 16 bytes from byte `shift` of the 32 that two granules have.
__device__ __forceinline__ uint4 shifted(uint4 low, uint4 high, unsigned shift)
{
    unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int step = 2; step > 0; --step) {
        if (shift / sizeof(unsigned) & step) {
#pragma unroll
            for (int i = 0; i + step < 8; ++i) {
                words[i] = words[i + step];
            }
        }
    }
    const unsigned bits = shift % sizeof(unsigned) * 8;
    return {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
            __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

template <int Outer>
__device__ __forceinline__ void copy_granule(const Places& places)
{
    const unsigned index = item_of_thread();
    if (index >= places.items) {
        return;
    }
    const Place<Outer> place(places, index);
    const long long run = static_cast<long long>(places.run);
    const long long first = static_cast<long long>(place.item) * granule - offset_in_granule(place.destination);
    const unsigned char* const source = place.source + first;
    const unsigned shift = offset_in_granule(source);
    const long long low = first - shift;
    if (low >= 0 && first >= 0 && (shift == 0 ? first + granule : low + 2 * granule) <= run) {
        const uint4* const aligned = reinterpret_cast<const uint4*>(source - shift);
        uint4 value = aligned[0];
        if (shift != 0) {
            value = shifted(value, aligned[1], shift);
        }
        *reinterpret_cast<uint4*>(place.destination + first) = value;
        return;
    }
    const long long end = first + granule < run ? first + granule : run;
    for (long long byte = first < 0 ? 0 : first; byte < end; byte += sizeof(Word)) {
        *reinterpret_cast<Word*>(place.destination + byte) = *reinterpret_cast<const Word*>(place.source + byte);
    }
}

#define COPY_GRANULES(rank)                                                                               \
    extern "C" __global__ void copy_granules_##rank##d(const __grid_constant__ Places places)             \
    {                                                                                                     \
        copy_granule<rank - 1>(places);                                                                   \
    }
COPY_GRANULES(1)
COPY_GRANULES(2)
COPY_GRANULES(3)
COPY_GRANULES(4)
COPY_GRANULES(5)
