"""Kernels beside the rules' own examples: correct ones of several kinds, and for each rule ways to break them."""

from __future__ import annotations

from typing import NamedTuple

from cupytma.check import RULES
from cupytma.check.examples import INIT, LOAD, LOADED, MAP, OUT, STORED, USE, WAIT, changed, kernel
from cupytma.check.rules_barriers import RING

BULK = kernel(
    "    __shared__ alignas(128) float tile[1024];\n"
    "    __shared__ unsigned long long full;\n"
    "    if (threadIdx.x == 0) {\n"
    "        cupytma::mbarrier_init(&full, 1);\n"
    "        cupytma::fence_mbarrier_init();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int k = 0; k < tiles; ++k) {\n"
    "        if (threadIdx.x == 0) {\n"
    "            cupytma::bulk_wait_group_read<0>();\n"
    "            cupytma::mbarrier_arrive_expect_tx_sink(&full, 4096);\n"
    "            cupytma::bulk_copy_to_shared_cluster_from_global(tile, source + 1024 * k, 4096, &full);\n"
    "        }\n"
    "        cupytma::mbarrier_wait_parity(&full, k % 2);\n"
    "        tile[threadIdx.x] += 1;\n"
    "        cupytma::fence_proxy_async_shared_cta();\n"
    "        __syncthreads();\n"
    "        if (threadIdx.x == 0) {\n"
    "            cupytma::bulk_copy_to_global_from_shared_cta(out + 1024 * k, tile, 4096);\n"
    "            cupytma::bulk_commit_group();\n"
    "        }\n"
    "    }\n"
    "    if (threadIdx.x == 0) cupytma::bulk_wait_group<0>();\n",
    "const float* source", OUT, "int tiles",
)  # fmt: skip

# Written by hand, as many kernels are: inline assembly, one struct in dynamic shared memory, an elected thread.
BY_HAND = r"""#include <cupytma.cuh>

struct Storage {
    alignas(128) float tile[2][1024];
    alignas(128) float result[1024];
    unsigned long long full[2];
};
__device__ __forceinline__ unsigned shared_address(const void* p)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ bool elected()
{
    unsigned chosen;
    asm volatile("{ .reg .pred P; elect.sync _|P, 0xffffffff; selp.b32 %0, 1, 0, P; }" : "=r"(chosen));
    return chosen != 0;
}
__device__ __forceinline__ void init(unsigned long long* b, unsigned count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared_address(b)), "r"(count));
}
__device__ __forceinline__ void expect(unsigned long long* b, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        :: "r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(unsigned long long* b, unsigned parity)
{
    asm volatile(
        "{ .reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\n"
        "bra LAB_WAIT;\nDONE:\n}" :: "r"(shared_address(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ void load(void* tile, const void* map, unsigned long long* b, int x, int y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
        :: "r"(shared_address(tile)), "l"(map), "r"(shared_address(b)), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void store(const void* map, const void* tile, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
        :: "l"(map), "r"(shared_address(tile)), "r"(x), "r"(y) : "memory");
}

extern "C" __global__ void __launch_bounds__(128) kernel(
    const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap result)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    Storage& s = *reinterpret_cast<Storage*>(memory);
    if (threadIdx.x < 32 && elected()) {
        init(&s.full[0], 1);
        init(&s.full[1], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 32 && elected()) {
        expect(&s.full[0], 4096);
        load(s.tile[0], &map, &s.full[0], 0, 0);
        expect(&s.full[1], 4096);
        load(s.tile[1], &map, &s.full[1], 32, 0);
    }
    wait(&s.full[0], 0);
    wait(&s.full[1], 0);
    s.result[threadIdx.x] = s.tile[0][threadIdx.x] + s.tile[1][threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x < 32 && elected()) {
        store(&result, s.result, 0, 0);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
"""
REDUCED = changed(
    kernel(STORED, MAP), ("tensor_store_2d", "tensor_reduce_add_2d"), ("[threadIdx.x] = 1.0f", "[threadIdx.x] = 2.0f")
)
CP_ASYNC = kernel(
    "    __shared__ alignas(128) float tile[1024];\n"
    "    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(tile + 4 * threadIdx.x));\n"
    '    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"\n'
    '        :: "r"(at), "l"(source + 4 * threadIdx.x) : "memory");\n'
    "    cupytma::cp_async_commit_group();\n"
    "    cupytma::cp_async_wait_group<0>();\n"
    "    __syncthreads();\n"
    "    out[threadIdx.x] = tile[threadIdx.x ^ 1];\n",
    "const float* source", OUT,
)  # fmt: skip

_ACQUIRE = "        cupytma::fence_proxy_tensormap_acquire_gpu(maps + slot);\n"
POINTER = kernel(
    "    if (threadIdx.x == 0) {\n" + _ACQUIRE + "    }\n"
    + changed(LOADED, ("&map", "maps + slot")),
    "const CUtensorMap* maps", "int slot", OUT,
)  # fmt: skip
_RELEASE = "        cupytma::fence_proxy_tensormap_release_gpu();\n"
IN_PLACE = kernel(
    "    if (threadIdx.x == 0) {\n" + _ACQUIRE
    + "        cupytma::tensormap_replace_global_address_generic(maps + slot, address);\n"
    "        cupytma::tensormap_replace_global_dim_generic<0>(maps + slot, width);\n"
    + _RELEASE + _ACQUIRE.replace("        ", "        ") + "    }\n" + changed(LOADED, ("&map", "maps + slot")),
    "CUtensorMap* maps", "int slot", "unsigned long long address", "unsigned width", OUT,
)  # fmt: skip

_LOAD = "    if (threadIdx.x == 0) {\n        cupytma::mbarrier_a"
_CLUSTER = "__cluster_dims__(4, 1, 1) "
_JOIN = "    cupytma::barrier_cluster_arrive();\n    cupytma::barrier_cluster_wait();\n"
MULTICAST = kernel(
    changed(
        LOADED, ("    __syncthreads();\n", _JOIN),
        (_LOAD, "    const int rank = blockIdx.x % 4;\n" + _LOAD),
        ("tensor_load_2d(tile, &map, 0, 0, &loaded)",
         "tensor_load_2d_multicast(tile + 256 * rank, &map, 0, 8 * rank, &loaded, 0xf)"),
    ) + _JOIN,
    MAP, OUT, attributes=_CLUSTER,
)  # fmt: skip
PEER = kernel(
    "    __shared__ float box[4];\n"
    "    const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(&box[blockIdx.x % 4]));\n"
    "    if (threadIdx.x < 4) {\n"
    "        unsigned peer;\n"
    '        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(own), "r"(threadIdx.x));\n'
    '        asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(peer), "f"(in[threadIdx.x]) : "memory");\n'
    "    }\n" + _JOIN + "    if (threadIdx.x < 4) out[threadIdx.x] = box[threadIdx.x];\n",
    "const float* in", OUT, attributes=_CLUSTER,
)  # fmt: skip

# Assembled by hand, where the compiler would refuse what is broken.
ASSEMBLED = """.version 8.8
.target sm_90a
.address_size 64

.const .align 64 .b8 constant_map[128];

.visible .entry kernel(
    .param .align 64 .b8 map[128],
    .param .u64 changed,
    .param .u64 address
)
{
    .reg .b64 %rd<6>;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd2, %rd1;
    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd2, {0, 0}];
    mov.u64 %rd3, constant_map;
    cvta.const.u64 %rd3, %rd3;
    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd3, {0, 0}];
    ld.param.u64 %rd4, [changed];
    ld.param.u64 %rd5, [address];
    tensormap.replace.tile.global_address.global.b1024.b64 [%rd4], %rd5;
    fence.proxy.tensormap::generic.release.gpu;
    ret;
}
"""

# One role writes, another stores.
HANDED_OVER = kernel(
    "    __shared__ alignas(128) float tile[1024];\n"
    "    __shared__ unsigned long long ready, taken;\n"
    "    if (threadIdx.x == 0) {\n"
    "        cupytma::mbarrier_init(&ready, 128);\n"
    "        cupytma::mbarrier_init(&taken, 1);\n"
    "    }\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x < 128) {\n"
    "        for (int k = 0; k < tiles; ++k) {\n"
    "            cupytma::mbarrier_wait_parity(&taken, k % 2 ^ 1);\n"
    "            tile[threadIdx.x] = k;\n"
    "            cupytma::fence_proxy_async_shared_cta();\n"
    "            cupytma::mbarrier_arrive_sink(&ready);\n"
    "        }\n"
    "    } else if (cupytma::elect_sync()) {\n"
    "        for (int k = 0; k < tiles; ++k) {\n"
    "            cupytma::mbarrier_wait_parity(&ready, k % 2);\n"
    "            cupytma::tensor_store_2d(&map, 0, 32 * k, tile);\n"
    "            cupytma::bulk_commit_group();\n"
    "            cupytma::bulk_wait_group_read<0>();\n"
    "            cupytma::mbarrier_arrive_sink(&taken);\n"
    "        }\n"
    "        cupytma::bulk_wait_group<0>();\n"
    "    }\n",
    MAP, "int tiles",
)  # fmt: skip

# Each warp adds its own part of shared memory to what is there, again and again.
SLICES = kernel(
    "    __shared__ alignas(128) float tile[4][32];\n"
    "    const int warp = threadIdx.x / 32;\n"
    "    for (int k = 0; k < tiles; ++k) {\n"
    "        tile[warp][threadIdx.x % 32] = k;\n"
    "        cupytma::fence_proxy_async_shared_cta();\n"
    "        __syncwarp();\n"
    "        if (threadIdx.x % 32 == 0) {\n"
    "            cupytma::bulk_reduce_to_global_add_f32(out + 128 * k + 32 * warp, tile[warp], 128);\n"
    "            cupytma::bulk_commit_group();\n"
    "            cupytma::bulk_wait_group_read<0>();\n"
    "        }\n"
    "        __syncwarp();\n"
    "    }\n"
    "    if (threadIdx.x % 32 == 0) cupytma::bulk_wait_group<0>();\n",
    OUT, "int tiles",
)  # fmt: skip

# So few rounds that the compiler leaves no loop.
FOUR_TIMES = changed(BULK, ("k < tiles", "k < 4"), (", int tiles", ""))

_ANEW = (
    "    __syncthreads();\n"
    "    if (threadIdx.x == 0) cupytma::mbarrier_inval(&loaded);\n"
    "    __syncthreads();\n" + INIT + "    __syncthreads();\n"
)
_BY_ELECTED = "    if (threadIdx.x < 32 && cupytma::elect_sync()) {\n        cupytma::mbarrier_a"
# One place for two mbarriers, one after the other: one thread initialises, another one loads.
ANEW = kernel(
    changed(LOADED, (_LOAD, _BY_ELECTED)) + _ANEW + changed(LOAD + WAIT + USE, (_LOAD, _BY_ELECTED)), MAP, OUT
)

STAGED = RULES["map-not-acquired"].good

GOOD = {
    "ring": RING, "bulk": BULK, "by hand": BY_HAND, "reduced": REDUCED, "cp.async": CP_ASYNC, "pointer": POINTER,
    "in place": IN_PLACE, "multicast": MULTICAST, "peer": PEER, "assembled": ASSEMBLED, "staged": STAGED,
    "handed over": HANDED_OVER, "slices": SLICES, "four times": FOUR_TIMES, "anew": ANEW,
}  # fmt: skip


class Broken(NamedTuple):
    """A way to break a good kernel: the rule that is then broken, the kernel, and what changes in its text."""

    rule: str
    good: str
    changes: tuple[tuple[str, str], ...]
    target: str = "sm_90a"

    @property
    def source(self) -> str:
        return changed(GOOD[self.good], *self.changes)


_FENCE = ("        cupytma::fence_proxy_async_shared_cta();\n", "")
_HAND_FENCE = ('    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n', "")
_HAND_COMMIT = ('        asm volatile("cp.async.bulk.commit_group;" ::: "memory");\n', "")
_HAND_WAIT = '        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");\n'
_HAND_SYNC = 'memory");\n    __syncthreads();\n    if (threadIdx.x < 32 && elected()) {\n        store'
_HAND_INIT = '        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");\n'
_COPIED = (
    "    extern __shared__",
    "    CUtensorMap copied = map;\n    reinterpret_cast<volatile int*>(&copied)[0] += 16;\n    extern __shared__",
)

_DONE = (
    ("    __shared__ float box[4];\n", "    __shared__ float box[4];\n    __shared__ unsigned long long done;\n"
     "    if (threadIdx.x == 0) cupytma::mbarrier_init(&done, 1);\n    __syncthreads();\n"),
    ("    if (threadIdx.x < 4) out",
     "    if (threadIdx.x == 0) cupytma::mbarrier_arrive_sink(&done);\n    if (threadIdx.x < 4) out"),
)
_SHARED_COPY = (
    ("    extern __shared__", "    __shared__ alignas(128) CUtensorMap copied;\n"
     "    if (threadIdx.x == 0) copied = map;\n    extern __shared__"),
    ("load(s.tile[0], &map", "load(s.tile[0], &copied"),
)
_BY_ALL = (("(threadIdx.x < 32 && elected()) {\n        store", "(true) {\n        store"),)
_ADDRESS = "        cupytma::tensormap_replace_global_address_generic(maps + slot, address);\n"
_WIDTH = "        cupytma::tensormap_replace_global_dim_generic<0>(maps + slot, width);\n"
_TURNED = ((_ADDRESS + _WIDTH, _WIDTH + _ADDRESS),)
_ROWS = "            cupytma::tensormap_replace_global_dim_shared_cta<{}>(&staged, 32);\n"
_TURNED_STAGED = ((_ROWS.format(0) + _ROWS.format(1), _ROWS.format(1) + _ROWS.format(0)),)

BROKEN = (
    Broken("proxy-fence-missing", "bulk", (_FENCE,)),
    Broken("proxy-fence-missing", "by hand", (_HAND_FENCE,)),
    Broken("proxy-fence-missing", "reduced", (("    cupytma::fence_proxy_async_shared_cta();\n", ""),)),
    Broken(
        "proxy-fence-missing", "handed over", (("            cupytma::fence_proxy_async_shared_cta();\n", ""),)
    ),
    Broken("wait-never-completed", "handed over", (("            cupytma::mbarrier_arrive_sink(&ready);\n", ""),)),
    Broken("arrival-never-waited", "handed over", (("cupytma::mbarrier_wait_parity(&ready, k % 2);", ";"),)),
    Broken("commit-group-missing", "handed over", (("            cupytma::bulk_commit_group();\n", ""),)),
    Broken("parity-never-flips", "handed over", (("&ready, k % 2", "&ready, 0"),)),
    Broken("tile-not-synchronised", "by hand", ((_HAND_SYNC, _HAND_SYNC.replace("    __syncthreads();\n", "")),)),
    Broken("tile-not-synchronised", "reduced", (("    __syncthreads();\n", ""),)),
    Broken("tile-not-synchronised", "bulk", (("cta();\n        __syncthreads();\n", "cta();\n"),)),
    Broken("commit-group-missing", "by hand", (_HAND_COMMIT,)),
    Broken("commit-group-missing", "reduced", (("        cupytma::bulk_commit_group();\n", ""),)),
    Broken("shared-reused-early", "bulk", (("            cupytma::bulk_wait_group_read<0>();\n", ""),)),
    Broken("shared-reused-early", "bulk", (("bulk_wait_group_read<0>", "bulk_wait_group_read<1>"),)),
    Broken("proxy-fence-missing", "slices", (_FENCE,)),
    Broken("tile-not-synchronised", "slices", (("cta();\n        __syncwarp();\n", "cta();\n"),)),
    Broken("shared-reused-early", "slices", (("group_read<0>", "group_read<1>"),)),
    Broken("shared-reused-early", "slices", (("        }\n        __syncwarp();\n", "        }\n"),)),
    Broken("wait-group-kind", "by hand", ((_HAND_WAIT, _HAND_WAIT.replace(".bulk", "") + _HAND_WAIT),)),
    Broken("wait-group-kind", "cp.async", (("cp_async_wait_group<0>", "bulk_wait_group<0>"),)),
    Broken("exit-in-flight", "bulk", (("    if (threadIdx.x == 0) cupytma::bulk_wait_group<0>();\n", ""),)),
    Broken("exit-in-flight", "by hand", ((_HAND_WAIT, ""),)),
    Broken("mbarrier-not-initialised", "bulk", (("        cupytma::mbarrier_init(&full, 1);\n", ""),)),
    Broken("mbarrier-not-initialised", "by hand", (("        init(&s.full[1], 1);\n", ""),)),
    Broken("mbarrier-init-not-fenced", "bulk", (("        cupytma::fence_mbarrier_init();\n", ""),)),
    Broken("mbarrier-init-not-fenced", "multicast", (("        cupytma::fence_mbarrier_init();\n", ""),)),
    Broken("mbarrier-init-not-fenced", "by hand", ((_HAND_INIT, ""),)),
    Broken("mbarrier-init-unordered", "bulk", (("    __syncthreads();\n    for", "    for"),)),
    Broken("mbarrier-init-unordered", "ring", (("    __syncthreads();\n", ""),)),
    Broken("expect-tx-mismatch", "bulk", (("sink(&full, 4096)", "sink(&full, 8192)"),)),
    Broken("expect-tx-mismatch", "by hand", (("expect(&s.full[1], 4096)", "expect(&s.full[1], 2048)"),)),
    Broken("load-never-waited", "by hand", (("    wait(&s.full[1], 0);\n", ""),)),
    Broken("load-never-waited", "bulk", (("        cupytma::mbarrier_wait_parity(&full, k % 2);\n", ""),)),
    Broken("wait-never-completed", "by hand", (("        expect(&s.full[0], 4096);\n", ""),)),
    Broken("wait-never-completed", "ring", (("        cupytma::mbarrier_arrive_sink(&empty[stage]);\n", ""),)),
    Broken("parity-never-flips", "bulk", (("wait_parity(&full, k % 2)", "wait_parity(&full, 0)"),)),
    Broken("parity-never-flips", "ring", (("&empty[stage], parity", "&empty[stage], 1"),)),
    Broken("parity-never-flips", "four times", (("&full, k % 2", "&full, 0"),)),
    Broken("parity-of-no-phase", "by hand", (("wait(&s.full[1], 0)", "wait(&s.full[1], 1)"),)),
    Broken("parity-of-no-phase", "pointer", (("wait_parity(&loaded, 0)", "wait_parity(&loaded, 1)"),)),
    Broken("map-in-local-memory", "by hand", (_COPIED, ("load(s.tile[0], &map", "load(s.tile[0], &copied"))),
    Broken("map-in-local-memory", "by hand", (("const __grid_constant__ CUtensorMap result", "CUtensorMap result"),)),
    Broken("map-not-acquired", "in place", ((_RELEASE + _ACQUIRE, _RELEASE),)),
    Broken("map-from-host-not-acquired", "pointer", ((_ACQUIRE, ""),)),
    Broken("map-scope-narrow", "pointer", (("acquire_gpu", "acquire_cta"),)),
    Broken("map-scope-narrow", "in place", (("release_gpu", "release_cta"),)),
    Broken("map-not-released", "in place", ((_RELEASE, ""),)),
    Broken("shared-misaligned", "bulk", (("global(tile, source + 1024 * k", "global(tile + 2, source + 1024 * k"),)),
    Broken("shared-misaligned", "by hand", (("load(s.tile[1], &map", "load(s.tile[1] + 4, &map"),)),
    Broken("shared-misaligned", "reduced", (("0, 0, tile)", "0, 0, tile + 16)"),)),
    Broken("shared-weakly-aligned", "bulk", (("alignas(128) float tile", "alignas(4) float tile"),)),
    Broken("shared-weakly-aligned", "reduced", (("alignas(128) float tile", "alignas(16) float tile"),)),
    Broken("size-not-multiple", "bulk", (("tile, 4096);", "tile, 4092);"),)),
    Broken("size-not-multiple", "bulk", (("k, 4096, &full", "k, 4088, &full"), ("&full, 4096", "&full, 4088"))),
    Broken("coordinate-misaligned", "by hand", (("&s.full[1], 32, 0)", "&s.full[1], 33, 0)"),)),
    Broken("coordinate-misaligned", "reduced", (("&map, 0, 0", "&map, 7, 0"),)),
    Broken("issued-by-every-thread", "by hand", (("elected()) {\n        store", "true) {\n        store"),)),
    Broken("multicast-slow", "multicast", (("    const int rank", "    const  int rank"),), "sm_90"),
    Broken("multicast-mask", "multicast", (("0xf)", "0x1f)"),)),
    Broken("multicast-mask", "multicast", (("0xf)", "0)"),)),
    Broken("cluster-not-declared", "multicast", ((_CLUSTER, ""),)),
    Broken("cluster-not-declared", "peer", ((_CLUSTER, ""),)),
    Broken("peer-may-have-ended", "peer", ((_JOIN, ""),)),
    Broken("peer-may-have-ended", "peer", ((_JOIN, "    __syncthreads();\n"),)),
    Broken("arrival-never-waited", "ring", (("    cupytma::mbarrier_wait_parity(&empty[stage], parity);\n", ""),)),
    Broken("arrival-never-waited", "peer", _DONE),
    Broken("map-in-shared-memory", "staged", (("load_2d(tile, map", "load_2d(tile, &staged"),)),
    Broken("map-in-shared-memory", "by hand", _SHARED_COPY),
    Broken("map-misaligned", "assembled", ((".param .align 64 .b8 map", ".param .align 8 .b8 map"),)),
    Broken("map-misaligned", "assembled", ((".const .align 64", ".const .align 16"),)),
    Broken("map-misaligned", "staged", (("alignas(128) CUtensorMap staged", "alignas(64) CUtensorMap staged"),)),
    Broken("map-not-acquired", "staged", (("cupytma::fence_proxy_tensormap_acquire_gpu(map);", "__nanosleep(1);"),)),
    Broken("map-from-host-not-acquired", "pointer", ((_ACQUIRE, "    cupytma::prefetch_tensormap(maps + slot);\n"),)),
    Broken("map-not-released", "staged", (("        cupytma::tensormap_cp_fenceproxy_gpu(map, &staged);\n", ""),)),
    Broken("map-replace-order", "in place", _TURNED),
    Broken("map-replace-order", "staged", _TURNED_STAGED),
    Broken("issued-by-every-thread", "by hand", _BY_ALL),
    Broken("target-lacks-instruction", "assembled", ((".target sm_90a", ".target sm_90"),)),
    Broken("target-lacks-instruction", "assembled", ((".version 8.8", ".version 7.8"),)),
    Broken("multicast-slow", "multicast", (("    const int rank", "    const  int rank"),), "sm_100"),
)  # fmt: skip
