"""Records of launches made by hand, with kernels that are compiled and never launched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import cupytma as tma
from cupytma.runtime.history import LaunchRecord

PRELUDE = """
#include <cupytma.cuh>
#define BEGIN \\
    __shared__ unsigned long long loaded; \\
    if (threadIdx.x == 0) { cupytma::mbarrier_init(&loaded, 1); cupytma::fence_mbarrier_init(); } \\
    __syncthreads(); \\
    ONE cupytma::mbarrier_arrive_expect_tx_sink(&loaded, bytes);
#define ONE if (threadIdx.x == 0)
struct Both { CUtensorMap maps[2]; };
#define MAP const __grid_constant__ CUtensorMap
extern "C" __global__ void kernel
"""
KERNELS = {
    # A load into a tile of its own, of 16 KiB.
    "load": """(MAP map, unsigned char* out, int x, int y, int bytes) {
        __shared__ alignas(128) unsigned char tile[16384]; BEGIN
        ONE cupytma::tensor_load_2d(tile, &map, x, y, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, 0); out[0] = tile[x]; }""",
    "load_dynamic": """(MAP map, unsigned char* out, int x, int y, int bytes) {
        extern __shared__ __align__(128) unsigned char tile[]; BEGIN
        ONE cupytma::tensor_load_2d(tile, &map, x, y, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, 0); out[0] = tile[x]; }""",
    "load_unaligned": """(MAP map, unsigned char* out, int x, int y, int bytes) {
        __shared__ unsigned char tile[16384]; BEGIN
        ONE cupytma::tensor_load_2d(tile, &map, x, y, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, 0); out[0] = tile[x]; }""",
    "store": """(MAP map, int x, int y) {
        __shared__ alignas(128) unsigned char tile[16384]; tile[threadIdx.x] = x;
        cupytma::fence_proxy_async_shared_cta(); __syncthreads(); ONE { cupytma::tensor_store_2d(&map, x, y, tile);
        cupytma::bulk_commit_group(); cupytma::bulk_wait_group<0>(); } }""",
    "reduce_and": """(MAP map, int x, int y) {
        __shared__ alignas(128) unsigned char tile[16384]; tile[threadIdx.x] = x;
        cupytma::fence_proxy_async_shared_cta(); __syncthreads(); ONE { cupytma::tensor_reduce_and_2d(&map, x, y, tile);
        cupytma::bulk_commit_group(); cupytma::bulk_wait_group<0>(); } }""",
    "multicast": """(MAP map, unsigned char* out, int x, int y, int bytes) {
        __shared__ alignas(128) unsigned char tile[16384]; BEGIN
        ONE cupytma::tensor_load_2d_multicast(tile, &map, x, y, &loaded, 3);
        cupytma::mbarrier_wait_parity(&loaded, 0); out[0] = tile[x]; }""",
    "im2col_store": """(MAP map, int x) {
        __shared__ alignas(128) unsigned char tile[16384]; tile[threadIdx.x] = x;
        cupytma::fence_proxy_async_shared_cta(); __syncthreads();
        ONE { cupytma::tensor_store_3d_im2col_no_offs(&map, x, 0, 0, tile);
        cupytma::bulk_commit_group(); cupytma::bulk_wait_group<0>(); } }""",
    "im2col_load": """(MAP map, unsigned char* out, int x, int y, int bytes) {
        __shared__ alignas(128) unsigned char tile[16384]; BEGIN
        ONE cupytma::tensor_load_3d_im2col(tile, &map, x, y, 0, &loaded, 0);
        cupytma::mbarrier_wait_parity(&loaded, 0); out[0] = tile[x]; }""",
    "prefetch": "(MAP map, int x, int y) { cupytma::tensor_prefetch_2d(&map, x, y); }",
    "indirect": """(const CUtensorMap* map, unsigned char* out, int x, int y, int bytes) {
        __shared__ alignas(128) unsigned char tile[16384]; BEGIN
        ONE cupytma::fence_proxy_tensormap_acquire_sys(map); ONE cupytma::tensor_load_2d(tile, map, x, y, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, 0); out[0] = tile[x]; }""",
    "struct_of_two": """(const __grid_constant__ Both both, unsigned char* out, int x, int bytes) {
        __shared__ alignas(128) unsigned char tile[16384]; BEGIN
        ONE cupytma::tensor_load_2d(tile, &both.maps[x & 1], x, 0, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, 0); out[0] = tile[x]; }""",
    "change": """(MAP map, CUtensorMap* out, unsigned long long address) {
        __shared__ alignas(128) CUtensorMap staging; __shared__ alignas(128) unsigned char tile[1024]; int bytes = 1024;
        staging = map; BEGIN
        cupytma::tensormap_replace_global_address_shared_cta(&staging, address);
        cupytma::tensormap_cp_fenceproxy_gpu(out, &staging);
        ONE cupytma::fence_proxy_tensormap_acquire_gpu(out); ONE cupytma::tensor_load_2d(tile, out, 0, 0, &loaded);
        cupytma::mbarrier_wait_parity(&loaded, 0); }""",
    "scalars": """(int a, float b, double c, unsigned char d, unsigned long long e, float* f) {
        *f = a + b + c + d + e; }""",
}  # fmt: skip


def kernel(name: str, target: str = "sm_90a") -> Any:
    """One of the kernels, alone in its module, by its own name; the same one every time."""
    return _kernel(name, target)


@cache
def _kernel(name: str, target: str) -> Any:
    return tma.compile(PRELUDE.replace("void kernel", f"void {name}") + KERNELS[name], target).kernel(name)


def packed(called: Any, arguments: Sequence[Any]) -> bytes:
    """A parameter block."""
    signature = called.signature
    data = bytearray(signature.size)
    for parameter, argument in zip(signature.parameters, arguments, strict=True):
        if isinstance(argument, list):
            value = b"".join(map(bytes, argument))
        elif isinstance(argument, (bytes, tma.TensorMap)):
            value = bytes(argument)
        elif isinstance(argument, float):
            value = np.dtype(f"f{parameter.size}").type(argument).tobytes()
        else:
            value = int(argument % (1 << 8 * parameter.size)).to_bytes(parameter.size, "little")
        assert len(value) == parameter.size
        data[parameter.offset : parameter.offset + parameter.size] = value
    return bytes(data)


def record(
    name: str,
    *arguments: Any,
    grid: tuple[int, int, int] = (1, 1, 1),
    cluster: tuple[int, int, int] | None = None,
    shared_bytes: int = 0,
    target: str = "sm_90a",
) -> LaunchRecord:
    """A launch of one of the kernels."""
    called = kernel(name, target)
    return LaunchRecord(called, grid, (128, 1, 1), cluster, shared_bytes, 0, packed(called, arguments))


BASE = 0x7F0000000000
TILED = tma.Tiled(
    data_type="FLOAT32", global_address=BASE, global_dim=(256, 128), global_strides=(1024,), box_dim=(32, 32)
)
MAP = TILED.encode()
OUT = BASE + (1 << 30)


def load(tensor_map: Any = MAP, x: int = 0, y: int = 0, name: str = "load", **launch: Any) -> LaunchRecord:
    size = tensor_map.box_bytes if isinstance(tensor_map, tma.TensorMap) else 4096
    return record(name, tensor_map, OUT, x, y, size, **launch)
