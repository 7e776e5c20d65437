// Loads for all blocks of a cluster at once.
//
// CLUSTER blocks along x are a cluster. With CTA_GROUP 1 each of them has a load complete on an mbarrier of its own. With
// CTA_GROUP 2, on architectures that have it, the loads of a pair of blocks complete on the mbarrier of the even one,
// which tells the odd one.
#pragma once
#include <cluster_blocks.cuh>

constexpr unsigned cta_group = CTA_GROUP;
static_assert(cluster_blocks % cta_group == 0, "a cluster is a whole number of pairs");

// Announces a load that brings so many bytes to each block. Initialised with a count of 1, the mbarrier expects this,
// or in the odd block of a pair what `pass_on` does.
__device__ __forceinline__ void announce(unsigned long long* loaded, unsigned bytes)
{
    if (cta_group == 1 || cluster_rank() % 2 == 0) {
        cupytma::mbarrier_arrive_expect_tx_sink(loaded, cta_group * bytes);
    }
}

// The block that starts a cluster's loads of one number; with pairs its even block, whose mbarrier the loads name.
__device__ __forceinline__ unsigned issuer_of(unsigned number) { return number * cta_group % cluster_blocks; }

// Starts a load for every block of the cluster, at the same place in each. All have announced it.
template <int Rank>
__device__ __forceinline__ void load_for_cluster(
    unsigned char* tile, const CUtensorMap& source, const int (&at)[Rank], unsigned long long* loaded)
{
#if CTA_GROUP == 2
    cupytma::tensor_load_multicast_cta_group_2(tile, &source, at, loaded, (1u << cluster_blocks) - 1);
#elif CLUSTER > 1
    cupytma::tensor_load_multicast(tile, &source, at, loaded, (1u << cluster_blocks) - 1);
#else
    cupytma::tensor_load(tile, &source, at, loaded);
#endif
}

// Waits for a load that was announced.
__device__ __forceinline__ void wait_for_load(unsigned long long* loaded, unsigned parity)
{
    if constexpr (cta_group == 2) {
        wait_for_cluster(loaded, parity);  // the odd block of a pair has the even one's word
    } else {
        cupytma::mbarrier_wait_parity(loaded, parity);
    }
}

// Run by one thread that has waited for a load: the even block of a pair tells the odd one.
__device__ __forceinline__ void pass_on(unsigned long long* loaded)
{
    if (cta_group == 2 && cluster_rank() % 2 == 0) {
        arrive_at(loaded, cluster_rank() + 1);
    }
}
