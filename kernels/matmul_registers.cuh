// What the matrix product needs of the machine beside the generated header: named barriers, registers that the tensor
// cores write while the compiler does not look, and numbers of 16 bits.
#pragma once

// Writes four numbers to shared memory of the cluster, and tells an mbarrier beside them of their 16 bytes. Both are
// addresses of shared::cluster (PTX ISA: st.async).
__device__ __forceinline__ void send_to(unsigned place, const float (&numbers)[4], unsigned mbarrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                 : : "r"(place), "f"(numbers[0]), "f"(numbers[1]), "f"(numbers[2]), "f"(numbers[3]), "r"(mbarrier)
                 : "memory");
}

// The threads of one warpgroup, or of several, meet at a barrier of the block; 0 is __syncthreads'.
__device__ __forceinline__ void meet_at(unsigned barrier, unsigned threads)
{
    asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

// Accumulators are read and written by the tensor cores between instructions; the compiler must not move its own reads
// and writes of them across the place where this stands.
template <int Registers>
__device__ __forceinline__ void hold(float (&d)[Registers])
{
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
        asm volatile("" : "+f"(d[i]) : : "memory");
    }
}

// A number that is computed here, and not where it is used.
__device__ __forceinline__ void hold(unsigned& number) { asm volatile("" : "+r"(number) : : "memory"); }

// Two numbers of 16 bits in one word, the first in its lower half; rounded to nearest even.
__device__ __forceinline__ unsigned bfloat16_pair(float first, float second)
{
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

__device__ __forceinline__ unsigned float16_pair(float first, float second)
{
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Writes matrices of eight lines of eight numbers of 16 bits, whose lines begin where the lanes say: eight lanes for each
// matrix. Lane t has, of each, the two numbers of row t / 4 from column 2 (t % 4) on; a row is a line, or with Transposed
// a column is (PTX ISA: stmatrix).
template <bool Transposed>
__device__ __forceinline__ void store_matrices(void* line, const unsigned (&pairs)[2])
{
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(line));
    if constexpr (Transposed) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                     : : "r"(to), "r"(pairs[0]), "r"(pairs[1]) : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                     : : "r"(to), "r"(pairs[0]), "r"(pairs[1]) : "memory");
    }
}

template <bool Transposed>
__device__ __forceinline__ void store_matrices(void* line, const unsigned (&pairs)[4])
{
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(line));
    if constexpr (Transposed) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                     : : "r"(to), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3]) : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     : : "r"(to), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3]) : "memory");
    }
}

__device__ __forceinline__ float widened_float16(unsigned short bits)
{
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
    return number;
}

__device__ __forceinline__ float widened_bfloat16(unsigned short bits)
{
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
