// Rows of a matrix added up where a convolution's windows lie.
//
// col2im_1d … col2im_3d load tiles of columns through one tiled map and add them to the output through another, whose element
// strides are the windows' strides: one thread of each block keeps STAGES tiles busy. col2im_<type> adds with ordinary
// instructions, whatever the strides: a thread sums up all that falls on a number of the output, in the order of the taps.
#include <ring.cuh>

constexpr int reading = READING;  // reductions that may still read their tiles while the next ones are loaded

// Spatial dimensions W first; channels in numbers.
struct Tiling {
    int origin[3];            // the pixel that the first window's first tap adds to
    int stride[3];
    int dilation[3];
    unsigned kernel[3];
    int windows[3];
    int extents[3];           // of the output
    int box[4];               // windows of a tile along W, H, D as far as there are, then images
    unsigned counts[4];       // tiles along the same
    unsigned taps;
    int channels, tile_channels;
    unsigned channel_count;
    unsigned tiles;
    unsigned tile_bytes, stage_bytes;
};

template <int Spatial>
struct Place {
    int from[Spatial + 2], to[Spatial + 2];
    bool inside;

    // Taps first: tiles in flight lie close together in the columns and add to the same part of the output.
    __device__ Place(const Tiling& tiling, unsigned tile)
    {
        unsigned rest = tile / tiling.taps;
        unsigned tap = tile - rest * tiling.taps;
        const int shift = static_cast<int>(tap) * tiling.channels;
        const unsigned above = rest / tiling.channel_count;
        to[0] = static_cast<int>(rest - above * tiling.channel_count) * tiling.tile_channels;
        from[0] = shift + to[0];
        rest = above;
        inside = true;
#pragma unroll
        for (int i = 0; i < Spatial; ++i) {
            const unsigned taps_above = tap / tiling.kernel[i], tiles_above = rest / tiling.counts[i];
            const int at = tiling.origin[i] + static_cast<int>(tap - taps_above * tiling.kernel[i]) * tiling.dilation[i];
            // A reduction may not start at a negative coordinate: begin with the first window that adds inside.
            const int first = at < 0 ? (tiling.stride[i] - 1 - at) / tiling.stride[i] : 0;
            const int window = first + static_cast<int>(rest - tiles_above * tiling.counts[i]) * tiling.box[i];
            const long long pixel = at + static_cast<long long>(window) * tiling.stride[i];
            inside = inside && window < tiling.windows[i] && pixel < tiling.extents[i];
            from[i + 1] = window;
            to[i + 1] = static_cast<int>(pixel);
            tap = taps_above;
            rest = tiles_above;
        }
        from[Spatial + 1] = to[Spatial + 1] = static_cast<int>(rest) * tiling.box[Spatial];
    }
};

// Walks the tiles of one block that add anything.
template <int Spatial>
struct Adding {
    const Tiling& tiling;
    unsigned long long tile;

    // Moves on to the next tile that adds something, from this one on; whether there is one.
    __device__ bool left()
    {
#pragma unroll 1
        for (; tile < tiling.tiles; tile += gridDim.x) {
            if (Place<Spatial>(tiling, static_cast<unsigned>(tile)).inside) return true;
        }
        return false;
    }

    __device__ Place<Spatial> take()
    {
        const Place<Spatial> at(tiling, static_cast<unsigned>(tile));
        tile += gridDim.x;
        return at;
    }
};

template <int Spatial>
__device__ void col2im(const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling)
{
    in_one_thread(source, destination, [&](unsigned char* shared, unsigned long long* loaded) {
        move_through_stages<reading>(
            Adding<Spatial>{tiling, blockIdx.x}, shared, tiling.stage_bytes, loaded,
            [&](const Place<Spatial>& at, unsigned char* stage, unsigned long long* barrier) {
                cupytma::mbarrier_arrive_expect_tx_sink(barrier, tiling.tile_bytes);
                cupytma::tensor_load(stage, &source, at.from, barrier);
            },
            [&](const Place<Spatial>& at, const unsigned char* stage) {
                cupytma::tensor_reduce_add(&destination, at.to, stage);
            });
    });
}

#define COL2IM(spatial)                                                                                   \
    extern "C" __global__ void __launch_bounds__(warp_threads) col2im_##spatial##d(                       \
        const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,      \
        const __grid_constant__ Tiling tiling)                                                            \
    {                                                                                                     \
        col2im<spatial>(source, destination, tiling);                                                     \
    }
COL2IM(1)
COL2IM(2)
COL2IM(3)

// Spatial dimensions W first, of extent 1 where there are fewer than three. Strides in bytes.
struct Words {
    long long batch_stride, spatial_strides[3], destination_channel_stride;
    long long row_stride, tap_stride, channel_stride;
    unsigned long long numbers;  // of the output
    long long origin[3], stride[3], dilation[3];
    unsigned extents[3], kernel[3], windows[3];
    unsigned channels;           // numbers of the channels of a pixel
    unsigned parts;              // numbers of an element
};

struct Half {
    using Sum = float;
    unsigned short bits;
    __device__ Sum widened() const
    {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
    __device__ void assign(Sum value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
};

struct Bfloat {
    using Sum = float;
    unsigned short bits;
    __device__ Sum widened() const { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
    __device__ void assign(Sum value) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value)); }
};

template <typename Number>
struct Plain {
    using Sum = Number;
    Number value;
    __device__ Sum widened() const { return value; }
    __device__ void assign(Sum sum) { value = sum; }
};

template <typename Number>
__device__ void add_words(const unsigned char* source, unsigned char* destination, const Words& plan)
{
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
#pragma unroll 1
    for (unsigned long long number = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
         number < plan.numbers; number += step) {
        unsigned long long rest = number / plan.channels;
        const unsigned channel = static_cast<unsigned>(number - rest * plan.channels);
        const unsigned element = channel / plan.parts;
        const unsigned part = (channel - element * plan.parts) * sizeof(Number);
        long long pixel[3];
        unsigned char* to = destination + element * plan.destination_channel_stride + part;
        for (int d = 0; d < 3; ++d) {
            const unsigned long long above = rest / plan.extents[d];
            pixel[d] = static_cast<long long>(rest - above * plan.extents[d]);
            to += pixel[d] * plan.spatial_strides[d];
            rest = above;
        }
        to += static_cast<long long>(rest) * plan.batch_stride;
        const long long image = static_cast<long long>(rest) * plan.windows[0] * plan.windows[1] * plan.windows[2];
        const unsigned char* const from = source + element * plan.channel_stride + part;
        typename Number::Sum sum = 0;
        long long tap = 0;
        for (unsigned d = 0; d < plan.kernel[2]; ++d) {
            const long long z = pixel[2] - plan.origin[2] - d * plan.dilation[2], deep = z / plan.stride[2];
            const bool in_d = z >= 0 && deep * plan.stride[2] == z && deep < plan.windows[2];
            for (unsigned h = 0; h < plan.kernel[1]; ++h) {
                const long long y = pixel[1] - plan.origin[1] - h * plan.dilation[1], high = y / plan.stride[1];
                if (!in_d || y < 0 || high * plan.stride[1] != y || high >= plan.windows[1]) {
                    tap += plan.kernel[0];
                    continue;
                }
                for (unsigned w = 0; w < plan.kernel[0]; ++w, ++tap) {
                    const long long x = pixel[0] - plan.origin[0] - w * plan.dilation[0], wide = x / plan.stride[0];
                    if (x < 0 || wide * plan.stride[0] != x || wide >= plan.windows[0]) continue;
                    const long long row = image + (deep * plan.windows[1] + high) * plan.windows[0] + wide;
                    sum += reinterpret_cast<const Number*>(from + row * plan.row_stride + tap * plan.tap_stride)->widened();
                }
            }
        }
        reinterpret_cast<Number*>(to)->assign(sum);
    }
}

#define COL2IM_WORDS(name, number)                                                                        \
    extern "C" __global__ void __launch_bounds__(256) col2im_##name(                                      \
        const unsigned char* source, unsigned char* destination, const __grid_constant__ Words plan)      \
    {                                                                                                     \
        add_words<number>(source, destination, plan);                                                     \
    }
COL2IM_WORDS(float16, Half)
COL2IM_WORDS(bfloat16, Bfloat)
COL2IM_WORDS(float32, Plain<float>)
COL2IM_WORDS(float64, Plain<double>)
COL2IM_WORDS(uint8, Plain<unsigned char>)
COL2IM_WORDS(uint16, Plain<unsigned short>)
COL2IM_WORDS(uint32, Plain<unsigned>)
COL2IM_WORDS(uint64, Plain<unsigned long long>)
