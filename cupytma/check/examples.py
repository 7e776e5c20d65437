"""Pieces that the rules' examples are put together from, so that a bad and a good one differ in what matters alone."""

from __future__ import annotations

MAP = "const __grid_constant__ CUtensorMap map"
OUT = "float* out"

TILE = "    __shared__ alignas(128) float tile[32 * 32];\n"
BARRIER = "    __shared__ unsigned long long loaded;\n"
INIT = (
    "    if (threadIdx.x == 0) {\n"
    "        cupytma::mbarrier_init(&loaded, 1);\n"
    "        cupytma::fence_mbarrier_init();\n"
    "    }\n"
)
SYNC = "    __syncthreads();\n"
EXPECT = "        cupytma::mbarrier_arrive_expect_tx_sink(&loaded, sizeof tile);\n"
COPY = "        cupytma::tensor_load_2d(tile, &map, 0, 0, &loaded);\n"
LOAD = f"    if (threadIdx.x == 0) {{\n{EXPECT}{COPY}    }}\n"
WAIT = "    cupytma::mbarrier_wait_parity(&loaded, 0);\n"
USE = "    out[threadIdx.x] = tile[threadIdx.x];\n"
LOADED = TILE + BARRIER + INIT + SYNC + LOAD + WAIT + USE

FILL = "    tile[threadIdx.x] = 1.0f;\n"
FENCE = "    cupytma::fence_proxy_async_shared_cta();\n"
STORE = "        cupytma::tensor_store_2d(&map, 0, 0, tile);\n"
COMMIT = "        cupytma::bulk_commit_group();\n"
WAIT_STORE = "        cupytma::bulk_wait_group<0>();\n"
STORED = TILE + FILL + FENCE + SYNC + f"    if (threadIdx.x == 0) {{\n{STORE}{COMMIT}{WAIT_STORE}    }}\n"


def kernel(body: str, *parameters: str, attributes: str = "") -> str:
    """A kernel in CUDA C++ with the header that its functions are in."""
    head = f'extern "C" __global__ void {attributes}kernel({", ".join(parameters)})'
    return f"#include <cupytma.cuh>\n\n{head}\n{{\n{body}}}\n"


def changed(text: str, *changes: tuple[str, str]) -> str:
    """A text with pieces replaced; each must be there."""
    for old, new in changes:
        if old not in text:
            raise ValueError(f"an example has no {old!r}")
        text = text.replace(old, new, 1)
    return text
