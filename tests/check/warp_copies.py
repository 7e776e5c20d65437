"""How often a copy is made that a whole warp starts with the same operands: once, or by each of its lanes.

The PTX ISA says that each thread starts one; the assembler may make one of them. On a GPU, it prints what a reduction
by one lane, by all lanes of a warp, and by four warps adds to a tensor of zeros:
``python tests/check/warp_copies.py``.
"""

from __future__ import annotations

import cupytma as tma
from cupytma.runtime.device import cupy

SOURCE = """#include <cupytma.cuh>

extern "C" __global__ void add(const __grid_constant__ CUtensorMap map, int lanes)
{
    __shared__ alignas(128) float tile[32 * 32];
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) tile[i] = 1;
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x % 32 < lanes) {
        cupytma::tensor_reduce_add_2d(&map, 0, 0, tile);
        cupytma::bulk_commit_group();
        cupytma::bulk_wait_group<0>();
    }
}

extern "C" __global__ void add_by_warps(const __grid_constant__ CUtensorMap map)
{
    __shared__ alignas(128) float tile[32 * 32];
    for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) tile[i] = 1;
    cupytma::fence_proxy_async_shared_cta();
    __syncthreads();
    cupytma::tensor_reduce_add_2d(&map, 0, 0, tile);
    cupytma::bulk_commit_group();
    cupytma::bulk_wait_group<0>();
}
"""


def main() -> None:
    """Print what each way adds to every element."""
    module = tma.compile(SOURCE)
    sums = cupy().zeros((32, 32), "float32")
    tensor_map = tma.tensor_map(sums, box=(32, 32))
    for name, block, arguments in (
        ("add", 32, (tensor_map, 1)), ("add", 32, (tensor_map, 32)), ("add_by_warps", 32, (tensor_map,)),
        ("add_by_warps", 128, (tensor_map,)),
    ):  # fmt: skip
        sums.fill(0)
        module.kernel(name)(1, block, arguments)
        found = sums.get()
        print(f"{name} with {block} threads, {arguments[1:]}: {found.min()} to {found.max()}")


if __name__ == "__main__":
    main()
