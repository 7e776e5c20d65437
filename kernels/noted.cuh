// Failures that kernels note for the host.
#pragma once

constexpr int position_bits = 40;

// Two words of the host's memory, written at once: the call and the place in its input, from 1, and what is wrong there.
__device__ __forceinline__ void note_failure(
    unsigned long long* failure, unsigned long long tag, unsigned long long position, unsigned long long what)
{
    const unsigned long long place = (tag << position_bits) | ((position + 1) & ((1ull << position_bits) - 1));
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};"
        :
        : "l"(__cvta_generic_to_global(failure)), "l"(place), "l"(what)
        : "memory");
}
