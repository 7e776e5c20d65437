// Numbers of 16 and 8 bits that are computed with as float, and the ends of the language's own types.
#pragma once

namespace cupytma {
namespace pipeline {

// A floating-point number of 16 or 8 bits: arithmetic is float32's, and what is assigned is rounded to nearest even.
template <class Format>
struct Narrow {
    typename Format::Bits bits;

    Narrow() = default;
    __device__ __forceinline__ Narrow(float number) : bits(Format::narrow(number)) {}
    __device__ __forceinline__ operator float() const { return Format::widen(bits); }
    __device__ __forceinline__ Narrow& operator+=(float other) { return *this = float(*this) + other; }
    __device__ __forceinline__ Narrow& operator-=(float other) { return *this = float(*this) - other; }
    __device__ __forceinline__ Narrow& operator*=(float other) { return *this = float(*this) * other; }
    __device__ __forceinline__ Narrow& operator/=(float other) { return *this = float(*this) / other; }
};

struct Float16Format {
    using Bits = unsigned short;
    static __device__ __forceinline__ float widen(Bits bits)
    {
        float number;
        asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
        return number;
    }
    static __device__ __forceinline__ Bits narrow(float number)
    {
        Bits bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(number));
        return bits;
    }
};

struct Bfloat16Format {
    using Bits = unsigned short;
    static __device__ __forceinline__ float widen(Bits bits) { return __uint_as_float(unsigned(bits) << 16); }
    static __device__ __forceinline__ Bits narrow(float number)
    {
        Bits bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(number));
        return bits;
    }
};

// What is too large for a number of 8 bits becomes the largest of its sign.
struct Float8E4M3Format {
    using Bits = unsigned char;
    static __device__ __forceinline__ float widen(Bits bits)
    {
        unsigned pair;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(bits)));
        return Float16Format::widen(static_cast<unsigned short>(pair));
    }
    static __device__ __forceinline__ Bits narrow(float number)
    {
        unsigned short pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(number));
        return static_cast<Bits>(pair);
    }
};

struct Float8E5M2Format {
    using Bits = unsigned char;
    static __device__ __forceinline__ float widen(Bits bits)
    {
        return Float16Format::widen(static_cast<unsigned short>(bits << 8));
    }
    static __device__ __forceinline__ Bits narrow(float number)
    {
        unsigned short pair;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(number));
        return static_cast<Bits>(pair);
    }
};

using float16 = Narrow<Float16Format>;
using bfloat16 = Narrow<Bfloat16Format>;
using float8_e4m3fn = Narrow<Float8E4M3Format>;
using float8_e5m2 = Narrow<Float8E5M2Format>;

// Where reductions begin: no number of the type is above highest() or below lowest(). For the language's own types.
template <class T>
__device__ __forceinline__ T highest()
{
    if constexpr (T(1) / 2 != 0) {
        return T(__int_as_float(0x7f800000));  // infinity
    } else if constexpr (T(-1) > T(0)) {
        return T(-1);
    } else {
        return T((T(1) << (8 * sizeof(T) - 2)) - 1 + (T(1) << (8 * sizeof(T) - 2)));
    }
}

template <class T>
__device__ __forceinline__ T lowest()
{
    if constexpr (T(1) / 2 != 0) {
        return -highest<T>();
    } else if constexpr (T(-1) > T(0)) {
        return T(0);
    } else {
        return T(-highest<T>() - 1);
    }
}

}  // namespace pipeline
}  // namespace cupytma
