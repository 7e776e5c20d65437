// The blocks of a cluster: CLUSTER of them along x, which meet and tell one another.
#pragma once
#include <cupytma.cuh>

constexpr unsigned cluster_blocks = CLUSTER;

__device__ __forceinline__ unsigned cluster_rank() { return blockIdx.x % cluster_blocks; }

// All threads of all blocks of the cluster come here. What they wrote before is not made known by it: mbarriers that
// were initialised are known by fence.mbarrier_init.
__device__ __forceinline__ void meet_cluster()
{
    cupytma::barrier_cluster_arrive_relaxed();
    cupytma::barrier_cluster_wait();
}

// The mbarrier that another block of the cluster, or this one, has where this block has one.
__device__ __forceinline__ unsigned long long* mbarrier_of(unsigned long long* mbarrier, unsigned rank)
{
    return reinterpret_cast<unsigned long long*>(cupytma::mapa_generic_u64(mbarrier, rank));
}

// Arrives on the mbarrier of another block of the cluster, or of this one, after what this thread wrote and read.
__device__ __forceinline__ void arrive_at(unsigned long long* mbarrier, unsigned rank)
{
    cupytma::mbarrier_arrive_release_cluster_shared_cluster_sink(mbarrier_of(mbarrier, rank));
}

// The same, for shared memory that was read by the copy engine or the tensor cores alone, which are known to be done: no
// ordinary access of this thread need come first, and none is waited for. (A release takes a fence of the whole GPU.)
// Of an mbarrier as `mbarrier_of` finds it, which takes long enough to be done once and for all.
__device__ __forceinline__ void give_back(unsigned long long* there)
{
    cupytma::mbarrier_arrive_relaxed_cluster_shared_cluster_sink(there);
}

// For what other blocks wrote or sent. What loads bring needs no more than mbarrier_wait_parity.
__device__ __forceinline__ void wait_for_cluster(unsigned long long* mbarrier, unsigned parity)
{
    while (!cupytma::mbarrier_try_wait_parity_acquire_cluster(mbarrier, parity)) {
    }
}
