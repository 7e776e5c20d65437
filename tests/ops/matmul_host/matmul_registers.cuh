// The kernel's header of this name, on the host.
#pragma once
#include <cupytma.cuh>

inline void meet_at(unsigned barrier, unsigned threads) { block().named[barrier].sync(threads); }

inline void send_to(unsigned place, const float (&numbers)[4], unsigned mbarrier)
{
    const auto at = [](unsigned address) { return blocks[address / shared_size]->shared + address % shared_size; };
    mistakes += place / shared_size == blockIdx.x % cluster_size;
    std::memcpy(at(place), numbers, sizeof(numbers));
    cupytma::host_arrive(reinterpret_cast<unsigned long long*>(at(mbarrier)), 0, -16);
}

template <int Registers>
void hold(float (&)[Registers])
{
}

inline void hold(unsigned&) {}

inline unsigned rounded_to_bfloat16(float number)
{
    const unsigned bits = __float_as_uint(number);
    return number != number ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned rounded_to_float16(float number)
{
    const _Float16 found = static_cast<_Float16>(number);
    unsigned short bits;
    std::memcpy(&bits, &found, 2);
    return bits;
}
inline unsigned bfloat16_pair(float first, float second)
{
    return rounded_to_bfloat16(first) | rounded_to_bfloat16(second) << 16;
}
inline unsigned float16_pair(float first, float second)
{
    return rounded_to_float16(first) | rounded_to_float16(second) << 16;
}
template <bool Transposed, int Matrices>
void store_matrices(void* line, const unsigned (&pairs)[Matrices])
{
    auto& told = block().told[threadIdx.x / 32];
    const unsigned lane = threadIdx.x % 32;
    told[lane].line = static_cast<unsigned char*>(line);
    std::memcpy(told[lane].pairs, pairs, sizeof(pairs));
    mistakes += lane < 8 * Matrices && __cvta_generic_to_shared(line) % 16 != 0;
    __syncwarp();
    if (lane < 8 * Matrices) {
        for (unsigned i = 0; i < 8; ++i) {  // of this lane's line
            const unsigned row = Transposed ? i : lane % 8, column = Transposed ? lane % 8 : i;
            const unsigned pair = told[row * 4 + column / 2].pairs[lane / 8];
            const unsigned short bits = static_cast<unsigned short>(pair >> column % 2 * 16);
            std::memcpy(told[lane].line + 2 * i, &bits, 2);
        }
    }
    __syncwarp();
}
inline float widened_float16(unsigned short bits)
{
    _Float16 found;
    std::memcpy(&found, &bits, 2);
    return found;
}
inline float widened_bfloat16(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
