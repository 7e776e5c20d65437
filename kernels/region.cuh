// What the kernels that move strided arrays by ordinary loads and stores are told of them.
#pragma once

constexpr int max_outer_rank = MAX_OUTER_RANK;

// A strided place in two buffers: runs of `run` words that lie together, repeated along the outer dimensions, innermost
// first. Strides are in bytes.
struct Region {
    const unsigned char* source;
    unsigned char* destination;
    unsigned long long words;
    unsigned long long run;
    unsigned long long extents[max_outer_rank];
    long long source_strides[max_outer_rank];
    long long destination_strides[max_outer_rank];
    int outer_rank;
    int word_bytes;
};
