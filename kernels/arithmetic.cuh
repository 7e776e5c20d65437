// The arithmetic of tensor reductions, on the bits of elements, for what ordinary instructions reduce: an element of
// one array has the same result whichever way it goes. As measured on an H100: float32 and the 16-bit floats round to
// nearest even once, keep denormals and give one NaN; a float64 NaN comes out as it went in, the new one before the old.
#pragma once

template <typename Word, typename Number>
struct Integer {
    using Bits = Word;

    static __device__ Word add(Word old, Word value) { return old + value; }
    static __device__ Word minimum(Word old, Word value)
    {
        return static_cast<Number>(value) < static_cast<Number>(old) ? value : old;
    }
    static __device__ Word maximum(Word old, Word value)
    {
        return static_cast<Number>(value) > static_cast<Number>(old) ? value : old;
    }
    static __device__ Word bits_and(Word old, Word value) { return old & value; }
    static __device__ Word bits_or(Word old, Word value) { return old | value; }
    static __device__ Word bits_xor(Word old, Word value) { return old ^ value; }
    static __device__ Word increment(Word old, Word limit) { return old >= limit ? 0 : old + 1; }
    static __device__ Word decrement(Word old, Word limit) { return old == 0 || old > limit ? limit : old - 1; }
};

using UINT32 = Integer<unsigned, unsigned>;
using INT32 = Integer<unsigned, int>;
using UINT64 = Integer<unsigned long long, unsigned long long>;
using INT64 = Integer<unsigned long long, long long>;

struct FLOAT32 {
    using Bits = unsigned;

    static __device__ Bits add(Bits old, Bits value)
    {
        const float total = __fadd_rn(__uint_as_float(old), __uint_as_float(value));
        return total != total ? 0x7fffffffu : __float_as_uint(total);
    }
};

struct FLOAT64 {
    using Bits = unsigned long long;

    static __device__ bool is_nan(Bits bits) { return (bits & ~(1ull << 63)) > 0x7ff0000000000000ull; }
    static __device__ Bits add(Bits old, Bits value)
    {
        if (is_nan(value) || is_nan(old)) {
            return is_nan(value) ? value : old;
        }
        const double total = __dadd_rn(
            __longlong_as_double(static_cast<long long>(old)), __longlong_as_double(static_cast<long long>(value)));
        return total != total ? 0xfff8000000000000ull : static_cast<Bits>(__double_as_longlong(total));
    }
};

// float32 holds any of the two types' numbers, and more than twice their digits: rounding a sum to it first changes
// nothing.
template <typename Format>
struct ShortFloat {
    using Bits = unsigned short;

    static __device__ bool is_nan(Bits bits) { return (bits & 0x7fff) > Format::infinity; }
    static __device__ Bits add(Bits old, Bits value)
    {
        const float total = __fadd_rn(Format::widen(old), Format::widen(value));
        return total != total ? static_cast<Bits>(0x7fff) : Format::narrow(total);
    }
    // Integers in the order of the numbers; -0 comes before +0.
    static __device__ int ordered(Bits bits) { return bits & 0x8000 ? -1 - (bits & 0x7fff) : bits & 0x7fff; }
    static __device__ Bits pick(Bits old, Bits value, bool takes_value)
    {
        if (is_nan(old) || is_nan(value)) {
            return is_nan(old) && is_nan(value) ? static_cast<Bits>(0x7fff) : is_nan(old) ? value : old;
        }
        return takes_value ? value : old;
    }
    static __device__ Bits minimum(Bits old, Bits value) { return pick(old, value, ordered(value) < ordered(old)); }
    static __device__ Bits maximum(Bits old, Bits value) { return pick(old, value, ordered(value) > ordered(old)); }
};

struct Float16Format {
    static constexpr int infinity = 0x7c00;

    static __device__ float widen(unsigned short bits)
    {
        float number;
        asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
        return number;
    }
    static __device__ unsigned short narrow(float number)
    {
        unsigned short bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(number));
        return bits;
    }
};

struct Bfloat16Format {
    static constexpr int infinity = 0x7f80;

    static __device__ float widen(unsigned short bits)
    {
        return __uint_as_float(static_cast<unsigned>(bits) << 16);
    }
    static __device__ unsigned short narrow(float number)
    {
        unsigned short bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(number));
        return bits;
    }
};

using FLOAT16 = ShortFloat<Float16Format>;
using BFLOAT16 = ShortFloat<Bfloat16Format>;

// Where several threads may have the same element.
template <typename Bits, typename Combine>
__device__ __forceinline__ void combine_atomically(Bits* place, Bits value, Combine combine)
{
    Bits old = *place;
    while (true) {
        const Bits found = atomicCAS(place, old, combine(old, value));
        if (found == old) {
            return;
        }
        old = found;
    }
}
