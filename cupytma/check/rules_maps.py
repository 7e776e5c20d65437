"""The rules about tensor maps: where they lie, and how a changed one is handed over."""

from __future__ import annotations

from cupytma.check.examples import LOADED, MAP, OUT, changed, kernel
from cupytma.check.finding import Rule, Severity

_MAPS = "PTX ISA: Tensor-map; tensormap.replace; membar, fence: fence.proxy.tensormap"
_LOADED = kernel(LOADED, MAP, OUT)
_ACQUIRE = "        cupytma::fence_proxy_tensormap_acquire_sys(map);\n"
_THROUGH_POINTER = kernel(
    changed(LOADED, ("    if (threadIdx.x == 0) {\n        cupytma::mbarrier_a",
                     "    if (threadIdx.x == 0) {\n" + _ACQUIRE + "        cupytma::mbarrier_a"), ("&map", "map")),
    "const CUtensorMap* map", OUT,
)  # fmt: skip
_REPLACES = (
    "        cupytma::tensormap_replace_global_address_shared_cta(&staged, data + 1024 * blockIdx.x);\n"
    "        cupytma::tensormap_replace_global_dim_shared_cta<0>(&staged, 32);\n"
    "        cupytma::tensormap_replace_global_dim_shared_cta<1>(&staged, 32);\n"
    "        cupytma::tensormap_replace_global_stride_shared_cta<0>(&staged, 128);\n"
)
_PUBLISH = "        cupytma::tensormap_cp_fenceproxy_gpu(map, &staged);\n"
_REACQUIRE = "        if (threadIdx.x == 0) cupytma::fence_proxy_tensormap_acquire_gpu(map);\n"
_REBOUND = kernel(
    "    __shared__ alignas(128) CUtensorMap staged;\n"
    "    CUtensorMap* map = maps + blockIdx.x;\n"
    "    if (threadIdx.x < 32) {\n"
    "        reinterpret_cast<unsigned*>(&staged)[threadIdx.x] =\n"
    "            reinterpret_cast<const unsigned*>(&seed)[threadIdx.x];\n"
    "        __syncwarp();\n"
    "        if (threadIdx.x == 0) {\n"
    + _REPLACES.replace("        cu", "            cu")
    + "        }\n"
    "        __syncwarp();\n" + _PUBLISH + _REACQUIRE + "    }\n" + changed(LOADED, ("&map", "map")),
    "const __grid_constant__ CUtensorMap seed", "CUtensorMap* maps", "unsigned long long data", OUT,
)  # fmt: skip
_PTX_HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n\n"


def _ptx(alignment: int) -> str:
    return (
        _PTX_HEAD + f".visible .entry kernel(\n    .param .align {alignment} .b8 map[128]\n)\n{{\n"
        "    .reg .b64 %rd<3>;\n"
        "    mov.b64 %rd1, map;\n"
        "    cvta.param.u64 %rd2, %rd1;\n"
        "    cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd2, {0, 0}];\n"
        "    ret;\n}\n"
    )


MAP_RULES = (
    Rule(
        "map-in-local-memory", Severity.ERROR,
        "a tensor map lies in parameters, constants or global memory, not in local memory",
        "A tensor map that is passed by value without __grid_constant__ is copied to local memory when its address is "
        "taken, and so is one in a variable of a function. The unit cannot read local memory.",
        "declare the parameter as const __grid_constant__ CUtensorMap, and pass it on by reference or pointer",
        _MAPS, bad=kernel(LOADED, MAP.replace("const __grid_constant__ ", ""), OUT), good=_LOADED,
    ),
    Rule(
        "map-in-shared-memory", Severity.ERROR,
        "a tensor map lies in parameters, constants or global memory, not in shared memory",
        "Shared memory is where a map may be changed, not where a copy reads it.",
        "publish the staged map with tensormap.cp_fenceproxy, acquire it, and use it in global memory",
        _MAPS,
        bad=kernel(
            "    __shared__ alignas(128) CUtensorMap copied;\n"
            "    if (threadIdx.x < 32) {\n"
            "        reinterpret_cast<unsigned*>(&copied)[threadIdx.x] =\n"
            "            reinterpret_cast<const unsigned*>(&map)[threadIdx.x];\n"
            "    }\n" + changed(LOADED, ("&map", "&copied")),
            MAP, OUT,
        ),
        good=_LOADED,
    ),
    Rule(
        "map-misaligned", Severity.ERROR,
        "a tensor map's address is a multiple of 64 bytes, and of 128 where it is changed",
        "The unit, and tensormap.replace, take the address as if it were one, or fault.",
        "use the type CUtensorMap, or alignas(64); alignas(128) for a map that is changed",
        _MAPS, bad=_ptx(16), good=_ptx(64),
    ),
    Rule(
        "map-not-acquired", Severity.ERROR,
        "a block acquires a tensor map in global memory after each change and before it uses it",
        "The tensormap proxy may hold an older copy of the map's bytes. The copies then go through the old map.",
        "execute fence.proxy.tensormap::generic.acquire on its 128 bytes in the block, after the change is known",
        _MAPS, bad=changed(_REBOUND, (_REACQUIRE, "")), good=_REBOUND,
    ),
    Rule(
        "map-from-host-not-acquired", Severity.WARNING,
        "a tensor map that is reached through a global pointer is acquired",
        "The order of a stream does not cover the tensormap proxy: after the host or another kernel has written "
        "a map, a "
        "block may still read the old one. A map that is never written again needs no fence.",
        "execute fence.proxy.tensormap::generic.acquire.sys on it, or pass it as a const __grid_constant__ parameter",
        _MAPS, bad=changed(_THROUGH_POINTER, (_ACQUIRE, "")), good=_THROUGH_POINTER,
    ),
    Rule(
        "map-scope-narrow", Severity.ERROR,
        "release and acquire of a tensor map have a scope that includes who changes it and who uses it",
        "With scope .cta the change is made known within one block. Other blocks, and blocks that another "
        "kernel or the "
        "host hands the map to, need not see it.",
        "use scope .gpu between blocks and kernels, .sys where the host writes the map",
        _MAPS, bad=changed(_THROUGH_POINTER, ("acquire_sys", "acquire_cta")), good=_THROUGH_POINTER,
    ),
    Rule(
        "map-not-released", Severity.ERROR,
        "a changed tensor map is released to the tensormap proxy",
        "tensormap.replace changes the map through the generic proxy. Without a release the unit need never see it.",
        "publish a staged map with tensormap.cp_fenceproxy; after changes in place execute "
        "fence.proxy.tensormap::generic.release",
        _MAPS, bad=changed(_REBOUND, (_PUBLISH, "")), good=_REBOUND,
    ),
    Rule(
        "map-replace-order", Severity.WARNING,
        "the fields of a tensor map are replaced in the order address, extents, strides",
        "The fields are written one by one. In this order, which the compilers keep too, a reader of the "
        "sequence sees at "
        "once that none is missing.",
        "replace global_address, then global_dim from 0 up, then global_stride from 0 up",
        "PTX ISA: tensormap.replace",
        bad=changed(
            _REBOUND,
            ("            cupytma::tensormap_replace_global_stride_shared_cta<0>(&staged, 128);\n", ""),
            ("            cupytma::tensormap_replace_global_address",
             "            cupytma::tensormap_replace_global_stride_shared_cta<0>(&staged, 128);\n"
             "            cupytma::tensormap_replace_global_address"),
        ),
        good=_REBOUND,
    ),
)  # fmt: skip
