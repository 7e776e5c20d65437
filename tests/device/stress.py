"""Blocks that change a map and use it again and again, to see whether a copy goes through the map as it was before."""

from __future__ import annotations

from typing import Any

import numpy as np

import cupytma as tma

SOURCE = r"""
#include <cupytma.cuh>

namespace maps = cupytma::tensormap;
constexpr unsigned words = 32;

__device__ unsigned tensor_of(unsigned turn, unsigned tensors)
{
    return (turn * 2654435761u + blockIdx.x / BLOCKS * 40503u) % tensors;
}

__device__ void use(const CUtensorMap* map, unsigned turn, unsigned wanted, unsigned* tile, unsigned long long* loaded,
                    unsigned& stale)
{
    cupytma::fence_proxy_async_shared_cta();  // the tile has been read
    cupytma::mbarrier_arrive_expect_tx_sink(loaded, words * 4);
    cupytma::tensor_load_1d(tile, map, 0, loaded);
    cupytma::mbarrier_wait_parity(loaded, turn % 2);
    stale += tile[0] != wanted || tile[words - 1] != wanted;
}

__device__ unsigned look(const unsigned* flag)
{
    unsigned seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(__cvta_generic_to_global(flag)) : "memory");
    return seen;
}

__device__ void tell(unsigned* flag, unsigned value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(__cvta_generic_to_global(flag)), "r"(value) : "memory");
}

__device__ void change(maps::Slot& slot, CUtensorMap* map, const unsigned* data, unsigned tensor, maps::Scope scope)
{
    const unsigned extents[1] = {words};
    maps::rebind<1>(slot, reinterpret_cast<unsigned long long>(data + tensor * words), extents, nullptr);
    maps::publish(map, slot, scope);
}

// With BLOCKS 1 a block uses its own map; with 2, every second block changes the map that the next one uses.
extern "C" __global__ void __launch_bounds__(32) stress(
    const __grid_constant__ CUtensorMap seed, CUtensorMap* slots, const unsigned* data, unsigned tensors,
    unsigned turns, unsigned* flags, unsigned* stale)
{
    __shared__ maps::Slot slot;
    __shared__ alignas(128) unsigned tile[words];
    __shared__ unsigned long long loaded;
    const unsigned pair = blockIdx.x / BLOCKS;
    CUtensorMap* const map = slots + pair;
    unsigned *const told = flags + 64 * pair, *const done = told + 32;
    const bool changes = blockIdx.x % BLOCKS == 0, uses = blockIdx.x % BLOCKS == BLOCKS - 1;
    unsigned found = 0;
    if (threadIdx.x == 0) {
        cupytma::mbarrier_init(&loaded, 1);
        cupytma::fence_mbarrier_init();
    }
    __syncwarp();
    if (changes) maps::copy_template(slot, &seed);
    for (unsigned turn = 0; turn < turns; ++turn) {
        const unsigned tensor = tensor_of(turn, tensors);
        if (changes) {
            if (BLOCKS > 1 && threadIdx.x == 0) while (look(done) != turn) {}
            __syncwarp();
            change(slot, map, data, tensor, maps::Scope::SCOPE);
            if (BLOCKS > 1 && threadIdx.x == 0) tell(told, turn + 1);
        }
        if (uses && threadIdx.x == 0) {
            if (BLOCKS > 1) while (look(told) != turn + 1) {}
            if (ACQUIRE) maps::acquire(map, maps::Scope::SCOPE);
            use(map, turn, tensor, tile, &loaded, found);
            if (BLOCKS > 1) tell(done, turn + 1);
        }
        __syncwarp();
    }
    if (found != 0) atomicAdd(stale, found);
}
"""
TENSORS, WORDS = 64, 32
SEED = tma.Tiled(data_type="UINT32", global_address=0, global_dim=(WORDS,), box_dim=(WORDS,)).encode()


def compiled(target: str | None, blocks: int, acquire: bool) -> tma.runtime.Module:
    """One block that uses its own map, or pairs of blocks."""
    scope = "cta" if blocks == 1 else "gpu"
    return tma.compile(SOURCE, target, defines={"BLOCKS": blocks, "ACQUIRE": int(acquire), "SCOPE": scope})


def stale_reads(module: Any, blocks: int, groups: int, turns: int) -> int:
    """How many copies of all went through a map as it was before; needs a GPU that runs all blocks at once."""
    import cupy

    data = cupy.repeat(cupy.arange(TENSORS, dtype=cupy.uint32), WORDS)
    slots, stale = tma.DescriptorBuffer(groups), cupy.zeros(1, cupy.uint32)
    flags = cupy.zeros(64 * groups, cupy.uint32)
    module.kernel("stress")(blocks * groups, 32, (SEED, slots, data, TENSORS, turns, flags, stale))
    tma.runtime.synchronize()
    return int(np.asarray(stale.get())[0])
