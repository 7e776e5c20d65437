// With SPLIT: how the blocks of a cluster make one sum of their parts of it. Each finishes some of the tile's columns,
// and gets from each other block what that has of these, a parcel from each warp.
#pragma once
#include <matmul_result.cuh>

#if SPLIT > 1
// Octets of columns that a block finishes.
__device__ __forceinline__ unsigned octets_of(unsigned rank)
{
    const unsigned begin = rank * own_octets, left = begin < octets ? octets - begin : 0;
    return left < own_octets ? left : own_octets;
}

// Bytes that the other blocks send this one.
__device__ __forceinline__ unsigned bytes_of_parts()
{
    return octets_of(cluster_rank()) * (split - 1) * consumer_warps * octet_bytes;
}

// Where a thread has its numbers of an octet and of 64 rows in the parcel that its warp sends a block.
__device__ __forceinline__ unsigned place_in_parcel(unsigned octet, unsigned block)
{
    return ((octet % own_octets * ROW_BLOCKS + block) * warp_threads + threadIdx.x % warp_threads) * 16;
}

// Where this warp's parcel for another block lies among all that block `rank` sends, or the one that it gets from it.
__device__ __forceinline__ unsigned parcel_place(unsigned other, unsigned rank)
{
    return ((other - (other > rank)) * consumer_warps + threadIdx.x / warp_threads) * parcel_bytes;
}

// Calls `send` with the other block, the place in the parcel and the four numbers, for all that this thread sends.
template <typename Send>
__device__ __forceinline__ void for_each_sent(const float (&sum)[ROW_BLOCKS][tile_columns / 2], Send send)
{
#pragma unroll
    for (unsigned octet = 0; octet < octets; ++octet) {
        const unsigned to = octet / own_octets;
        if (to == cluster_rank()) {
            continue;
        }
#pragma unroll
        for (unsigned block = 0; block < ROW_BLOCKS; ++block) {
            const float* all = &sum[block][octet * 4];
            const float four[4] = {all[0], all[1], all[2], all[3]};
            send(to, place_in_parcel(octet, block), four);
        }
    }
}

// Each warp lays out its parcels where the stages were, and the copy engine brings them to the other blocks' warps.
__device__ __forceinline__ void send_parcels(
    const float (&sum)[ROW_BLOCKS][tile_columns / 2], unsigned char* shared, unsigned long long* arrived)
{
    const unsigned rank = cluster_rank(), to = threadIdx.x % warp_threads;
    for_each_sent(sum, [&](unsigned other, unsigned place, const float (&four)[4]) {
        *reinterpret_cast<float4*>(shared + parcel_place(other, rank) + place) =
            make_float4(four[0], four[1], four[2], four[3]);
    });
    cupytma::fence_proxy_async_shared_cta();
    __syncwarp();
    cupytma::barrier_cluster_wait();  // before parcels leave, the others have initialised their mbarriers
    if (const unsigned bytes = octets_of(to) * octet_bytes; to < split && to != rank && bytes > 0) {
        void* there = reinterpret_cast<void*>(
            cupytma::mapa_generic_u64(shared + partial_offset + parcel_place(rank, to), to));
        cupytma::bulk_copy_to_shared_cluster_from_shared_cta(
            there, shared + parcel_place(to, rank), bytes, mbarrier_of(arrived, to));
    }
}

// Each thread writes its numbers into the parcels of the other blocks.
__device__ __forceinline__ void send_numbers(
    const float (&sum)[ROW_BLOCKS][tile_columns / 2], unsigned char* shared, unsigned long long* arrived)
{
    const unsigned rank = cluster_rank();
    cupytma::barrier_cluster_wait();  // before numbers leave, the others have initialised their mbarriers
    for_each_sent(sum, [&](unsigned other, unsigned place, const float (&four)[4]) {
        send_to(
            cupytma::mapa_shared_cluster_u32(shared + partial_offset + parcel_place(rank, other) + place, other), four,
            cupytma::mapa_shared_cluster_u32(arrived, other));
    });
}

// Replaces this block's part of the sum by the whole one, in those columns that are this block's. The others' parts are
// there when `arrived` is told of their bytes. Parts are added in the order of the blocks.
__device__ __forceinline__ void add_parts(
    float (&sum)[ROW_BLOCKS][tile_columns / 2], unsigned char* shared, unsigned long long* arrived)
{
    const unsigned rank = cluster_rank();
    const unsigned char* partial = shared + partial_offset;
    meet_at(sharing_barrier, consumers * warpgroup_threads);  // all warps have read the stages
    if constexpr (parcels) {
        send_parcels(sum, shared, arrived);
    } else {
        send_numbers(sum, shared, arrived);
    }
    if (octets_of(rank) > 0) {
        wait_for_cluster(arrived, 0);
    }
    if constexpr (parcels) {
        cupytma::barrier_cluster_arrive_relaxed();  // the others' parcels have been read
    }
#pragma unroll
    for (unsigned octet = 0; octet < octets; ++octet) {
        if (octet / own_octets != rank) {
            continue;
        }
#pragma unroll
        for (unsigned block = 0; block < ROW_BLOCKS; ++block) {
            float* own = &sum[block][octet * 4];
            float whole[4] = {};
#pragma unroll
            for (unsigned from = 0; from < split; ++from) {
                float4 part = make_float4(own[0], own[1], own[2], own[3]);
                if (from != rank) {
                    part = *reinterpret_cast<const float4*>(
                        partial + parcel_place(from, rank) + place_in_parcel(octet, block));
                }
                whole[0] += part.x;
                whole[1] += part.y;
                whole[2] += part.z;
                whole[3] += part.w;
            }
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                own[i] = whole[i];
            }
        }
    }
}
#endif
