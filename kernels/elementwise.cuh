// Arithmetic of one element with another, rounded once to the elements' type: as numpy and torch have it. Both 16-bit
// floats are widened to float32, whose sum or product rounds to them as the exact one does, or as torch's does where it
// is denormal in bfloat16. Integers wrap. A NaN is the minimum and the maximum of itself and anything.
#pragma once
#include <arithmetic.cuh>

namespace element {

template <typename Number>
struct Plain {
    using Bits = Number;
    using Value = Number;

    static __device__ __forceinline__ Number widen(Number bits) { return bits; }
    static __device__ __forceinline__ Number narrow(Number value) { return value; }
};

template <typename Format>
struct Short {
    using Bits = unsigned short;
    using Value = float;

    static __device__ __forceinline__ float widen(Bits bits) { return Format::widen(bits); }
    static __device__ __forceinline__ Bits narrow(float value) { return Format::narrow(value); }
};

using int8 = Plain<signed char>;
using uint8 = Plain<unsigned char>;
using int16 = Plain<short>;
using uint16 = Plain<unsigned short>;
using int32 = Plain<int>;
using uint32 = Plain<unsigned>;
using int64 = Plain<long long>;
using uint64 = Plain<unsigned long long>;
using float16 = Short<Float16Format>;
using bfloat16 = Short<Bfloat16Format>;
using float32 = Plain<float>;
using float64 = Plain<double>;

template <typename Value>
struct Unsigned {
    using Type = unsigned long long;  // wraps as every integer's low bits do
};
template <>
struct Unsigned<float> {
    using Type = float;
};
template <>
struct Unsigned<double> {
    using Type = double;
};

struct add {
    template <typename Value>
    static __device__ __forceinline__ Value of(Value one, Value other)
    {
        using Wrapping = typename Unsigned<Value>::Type;
        return static_cast<Value>(static_cast<Wrapping>(one) + static_cast<Wrapping>(other));
    }
};

struct multiply {
    template <typename Value>
    static __device__ __forceinline__ Value of(Value one, Value other)
    {
        using Wrapping = typename Unsigned<Value>::Type;
        return static_cast<Value>(static_cast<Wrapping>(one) * static_cast<Wrapping>(other));
    }
};

struct minimum {
    template <typename Value>
    static __device__ __forceinline__ Value of(Value one, Value other)
    {
        return one != one || one < other ? one : other;
    }
};

struct maximum {
    template <typename Value>
    static __device__ __forceinline__ Value of(Value one, Value other)
    {
        return one != one || one > other ? one : other;
    }
};

}  // namespace element
