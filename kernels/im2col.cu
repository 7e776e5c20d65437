// The windows of a convolution as rows of a matrix.
//
// im2col_1d … im2col_3d load tiles through an im2col map, which fills what lies outside the input with zeros, and store them
// through a tiled one: one thread of each block keeps STAGES tiles busy. A tile is some channels of some output pixels at
// some taps, one load for each tap. im2col_words moves everything with ordinary loads and stores, whatever the strides.
#include <ring.cuh>

constexpr int reading = READING;  // stores that may still read their tiles while the next ones are loaded

// Spatial dimensions W first; coordinates in pixels, channels in words.
struct Tiling {
    int origin[3];            // what the first output's first tap sees
    int stride[3];
    unsigned dilation[3];
    unsigned kernel[3];
    unsigned outputs[3];
    unsigned taps, tile_taps, tap_count;
    unsigned channel_words, channel_count;
    unsigned pixels;          // of a tile
    unsigned tiles;
    unsigned load_bytes;      // of one tap
    unsigned stage_bytes;
};

struct Place {
    unsigned tap, pixel;
    int channel;

    // Taps first: tiles in flight see the same part of the input, and complete rows of the result.
    __device__ Place(const Tiling& tiling, unsigned tile)
    {
        const unsigned rest = tile / tiling.tap_count;
        tap = (tile - rest * tiling.tap_count) * tiling.tile_taps;
        const unsigned block = rest / tiling.channel_count;
        channel = static_cast<int>((rest - block * tiling.channel_count) * tiling.channel_words);
        pixel = block * tiling.pixels;
    }
};

template <int Spatial>
__device__ void load_tap(
    unsigned char* destination, const CUtensorMap& source, const Tiling& tiling, const int (&start)[Spatial + 2],
    unsigned tap, unsigned long long* loaded)
{
    unsigned short offset[Spatial];
#pragma unroll
    for (int i = 0; i < Spatial; ++i) {
        const unsigned rest = tap / tiling.kernel[i];
        offset[i] = static_cast<unsigned short>((tap - rest * tiling.kernel[i]) * tiling.dilation[i]);
        tap = rest;
    }
    if constexpr (Spatial == 1) {
        cupytma::tensor_load_3d_im2col(destination, &source, start[0], start[1], start[2], loaded, offset[0]);
    } else if constexpr (Spatial == 2) {
        cupytma::tensor_load_4d_im2col(
            destination, &source, start[0], start[1], start[2], start[3], loaded, offset[0], offset[1]);
    } else {
        cupytma::tensor_load_5d_im2col(
            destination, &source, start[0], start[1], start[2], start[3], start[4], loaded, offset[0], offset[1],
            offset[2]);
    }
}

template <int Spatial>
__device__ void load_tile(
    unsigned char* destination, const CUtensorMap& source, const Tiling& tiling, unsigned tile,
    unsigned long long* loaded)
{
    const Place at(tiling, tile);
    int start[Spatial + 2] = {at.channel};
    unsigned pixel = at.pixel;
#pragma unroll
    for (int i = 0; i < Spatial; ++i) {
        const unsigned rest = pixel / tiling.outputs[i];
        start[i + 1] = tiling.origin[i] + static_cast<int>(pixel - rest * tiling.outputs[i]) * tiling.stride[i];
        pixel = rest;
    }
    start[Spatial + 1] = static_cast<int>(pixel);
    const unsigned taps = min(tiling.tile_taps, tiling.taps - at.tap);
    cupytma::mbarrier_arrive_expect_tx_sink(loaded, taps * tiling.load_bytes);
#pragma unroll 1
    for (unsigned i = 0; i < taps; ++i) {
        load_tap<Spatial>(destination + i * tiling.load_bytes, source, tiling, start, at.tap + i, loaded);
    }
}

template <int Spatial>
__device__ void im2col(const CUtensorMap& source, const CUtensorMap& destination, const Tiling& tiling)
{
    in_one_thread(source, destination, [&](unsigned char* shared, unsigned long long* loaded) {
        move_through_stages<reading>(
            Dealt(tiling.tiles), shared, tiling.stage_bytes, loaded,
            [&](unsigned tile, unsigned char* stage, unsigned long long* barrier) {
                load_tile<Spatial>(stage, source, tiling, tile, barrier);
            },
            [&](unsigned tile, const unsigned char* stage) {
                const Place at(tiling, tile);
                const int to[3] = {at.channel, static_cast<int>(at.pixel), static_cast<int>(at.tap)};
                cupytma::tensor_store(&destination, to, stage);
            });
    });
}

#define IM2COL(spatial)                                                                                   \
    extern "C" __global__ void __launch_bounds__(warp_threads) im2col_##spatial##d(                       \
        const __grid_constant__ CUtensorMap source, const __grid_constant__ CUtensorMap destination,      \
        const __grid_constant__ Tiling tiling)                                                            \
    {                                                                                                     \
        im2col<spatial>(source, destination, tiling);                                                     \
    }
IM2COL(1)
IM2COL(2)
IM2COL(3)

// Spatial dimensions W first, of extent 1 where there are fewer than three. Strides in bytes.
struct Words {
    long long batch_stride, spatial_strides[3], source_channel_stride;
    long long row_stride, tap_stride, channel_stride;
    unsigned long long pixels;
    long long origin[3], stride[3], dilation[3], extents[3];
    unsigned kernel[3], outputs[3];
    unsigned taps;
    unsigned words;  // of the channels of a pixel
    unsigned parts;  // words of an element
    int word_bytes;
};

constexpr unsigned listed_taps = 256;
constexpr unsigned word_threads = 256;

struct Tap {
    long long source, destination;  // bytes from the first tap
    long long at[3];                // pixels from the first tap
};

// A group of threads makes a row at a time, so that neighbours write neighbouring words.
template <typename Word>
__device__ void move_words(
    const unsigned char* source, unsigned char* destination, const Words& plan, Tap* list)
{
    const unsigned row_words = min(plan.words, 32u) * min(plan.taps, 32u);
    const unsigned width = row_words > 16 ? 32 : row_words > 8 ? 16 : row_words > 4 ? 8 : 4;
    const unsigned lane = threadIdx.x % width;
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * (word_threads / width);
#pragma unroll 1
    for (unsigned first = 0; first < plan.taps; first += listed_taps) {
        const unsigned taps = min(listed_taps, plan.taps - first);
        __syncthreads();
        for (unsigned i = threadIdx.x; i < taps; i += word_threads) {
            unsigned tap = first + i;
            Tap found = {0, tap * plan.tap_stride, {}};
            for (int d = 0; d < 3; ++d) {
                found.at[d] = tap % plan.kernel[d] * plan.dilation[d];
                found.source += found.at[d] * plan.spatial_strides[d];
                tap /= plan.kernel[d];
            }
            list[i] = found;
        }
        __syncthreads();
        const unsigned long long words = static_cast<unsigned long long>(taps) * plan.words;
#pragma unroll 1
        for (unsigned long long pixel = blockIdx.x * (word_threads / width) + threadIdx.x / width; pixel < plan.pixels;
             pixel += step) {
            long long start[3];
            unsigned long long rest = pixel;
            const unsigned char* from = source;
            for (int d = 0; d < 3; ++d) {
                const unsigned long long above = rest / plan.outputs[d];
                start[d] = plan.origin[d] + static_cast<long long>(rest - above * plan.outputs[d]) * plan.stride[d];
                from += start[d] * plan.spatial_strides[d];
                rest = above;
            }
            from += static_cast<long long>(rest) * plan.batch_stride;
            unsigned char* const to = destination + static_cast<long long>(pixel) * plan.row_stride;
#pragma unroll 4
            for (unsigned long long word = lane; word < words; word += width) {
                unsigned tap, channel;
                if (words <= 0xffffffffull) {
                    tap = static_cast<unsigned>(word) / plan.words;
                    channel = static_cast<unsigned>(word) - tap * plan.words;
                } else {
                    tap = static_cast<unsigned>(word / plan.words);
                    channel = static_cast<unsigned>(word - static_cast<unsigned long long>(tap) * plan.words);
                }
                const unsigned element = plan.parts > 1 ? channel / plan.parts : channel;
                const unsigned part = (channel - element * (plan.parts > 1 ? plan.parts : 1)) * sizeof(Word);
                const Tap& there = list[tap];
                bool inside = true;
                for (int d = 0; d < 3; ++d) {
                    const long long at = start[d] + there.at[d];
                    inside = inside && at >= 0 && at < plan.extents[d];
                }
                Word value = {};
                if (inside) {
                    value = *reinterpret_cast<const Word*>(
                        from + there.source + element * plan.source_channel_stride + part);
                }
                *reinterpret_cast<Word*>(to + there.destination + element * plan.channel_stride + part) = value;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(word_threads) im2col_words(
    const unsigned char* source, unsigned char* destination, const __grid_constant__ Words plan)
{
    __shared__ Tap list[listed_taps];
    switch (plan.word_bytes) {
    case 16: move_words<ulonglong2>(source, destination, plan, list); break;
    case 8: move_words<unsigned long long>(source, destination, plan, list); break;
    case 4: move_words<unsigned>(source, destination, plan, list); break;
    case 2: move_words<unsigned short>(source, destination, plan, list); break;
    default: move_words<unsigned char>(source, destination, plan, list); break;
    }
}
