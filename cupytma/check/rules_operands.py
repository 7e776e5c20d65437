"""The rules about operands, targets and clusters."""

from __future__ import annotations

from cupytma.check.examples import COPY, EXPECT, LOAD, LOADED, MAP, OUT, TILE, changed, kernel
from cupytma.check.finding import Rule, Severity

_LOADED = kernel(LOADED, MAP, OUT)
_TENSOR = "PTX ISA: cp.async.bulk.tensor"
_BULK = kernel(
    changed(
        LOADED,
        (EXPECT, EXPECT.replace("sizeof tile", "1024")),
        (COPY, "        cupytma::bulk_copy_to_shared_cluster_from_global(tile, source, 1024, &loaded);\n"),
    ),
    "const float* source", OUT,
)  # fmt: skip
_CLUSTER = "__cluster_dims__(2, 1, 1) "
_JOIN = "    cupytma::barrier_cluster_arrive();\n    cupytma::barrier_cluster_wait();\n"
_MULTICAST = kernel(
    changed(
        LOADED,
        ("    __syncthreads();\n", _JOIN),
        (LOAD, f"    if (threadIdx.x == 0) {{\n{EXPECT}    }}\n    if (threadIdx.x == 0 && blockIdx.x % 2 == 0) {{\n"
               "        cupytma::tensor_load_2d_multicast(tile, &map, 0, 0, &loaded, 0x3);\n    }\n"),
    ),
    MAP, OUT, attributes=_CLUSTER,
)  # fmt: skip
_PEER = kernel(
    "    __shared__ float box[32];\n"
    "    box[threadIdx.x] = threadIdx.x;\n" + _JOIN
    + "    const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(&box[threadIdx.x]));\n"
    "    unsigned peer;\n"
    '    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(own), "r"(blockIdx.x % 2 ^ 1));\n'
    '    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(out[threadIdx.x]) : "r"(peer) : "memory");\n' + _JOIN,
    OUT, attributes=_CLUSTER,
)  # fmt: skip


def _ptx(target: str) -> str:
    return (
        f".version 8.8\n.target {target}\n.address_size 64\n\n"
        ".visible .entry kernel(\n    .param .u64 map,\n    .param .u64 address\n)\n{\n"
        "    .reg .b64 %rd<4>;\n"
        "    ld.param.u64 %rd1, [map];\n"
        "    ld.param.u64 %rd2, [address];\n"
        "    cvta.to.global.u64 %rd3, %rd1;\n"
        "    tensormap.replace.tile.global_address.global.b1024.b64 [%rd3], %rd2;\n"
        "    fence.proxy.tensormap::generic.release.gpu;\n"
        "    ret;\n}\n"
    )


OPERAND_RULES = (
    Rule(
        "shared-misaligned", Severity.ERROR,
        "a tile in shared memory begins at a multiple of 128 bytes, other bulk copies' ends at one of 16",
        "The hardware faults with a misaligned address.",
        "declare the array alignas(128), and put tiles in it at multiples of 128 bytes",
        _TENSOR + "; measured",
        bad=changed(_LOADED, ("tensor_load_2d(tile,", "tensor_load_2d(tile + 8,")), good=_LOADED,
    ),
    Rule(
        "shared-weakly-aligned", Severity.WARNING,
        "the variable that a tile lies in is declared with the tile's alignment",
        "Where the variable comes to lie is the linker's choice. It may be right today and fault after another "
        "variable "
        "is added. With a swizzle, the pattern follows the address and not the tile's beginning.",
        "declare it alignas(128); alignas(1024) for a tile with the 128B swizzle",
        _TENSOR + "; measured", bad=changed(_LOADED, (TILE, TILE.replace("alignas(128) ", ""))), good=_LOADED,
    ),
    Rule(
        "size-not-multiple", Severity.ERROR,
        "a bulk copy moves a multiple of 16 bytes",
        "The hardware refuses other sizes.",
        "round the size up to a multiple of 16, and leave room for it; or move the rest by ordinary loads and stores",
        "PTX ISA: cp.async.bulk",
        bad=changed(_BULK, ("tile, source, 1024", "tile, source, 1020"), ("&loaded, 1024", "&loaded, 1020")),
        good=_BULK,
    ),
    Rule(
        "coordinate-misaligned", Severity.ERROR,
        "a copy starts at a multiple of 16 bytes along the innermost dimension",
        "The hardware faults with an illegal instruction where the innermost coordinate times the element's size is no "
        "multiple of 16 bytes; interleaved maps excepted.",
        "start at a multiple of 16 bytes, and leave out what comes before within the tile",
        _TENSOR + "; measured", bad=changed(_LOADED, ("&map, 0, 0", "&map, 1, 0")), good=_LOADED,
    ),
    Rule(
        "issued-by-every-thread", Severity.ERROR,
        "one thread starts a copy, not all threads of a warp",
        "A copy is started once by each thread that executes it. All bring their bytes to the barrier, where those of "
        "one are expected, reductions are made again and again, and stores write the same bytes as often. On an H200 a "
        "reduction that a whole warp starts is made 32 times, once by each lane. Loads of a whole warp may be meant, "
        "where every lane announces its own, and stores of one do no harm: both are said with less severity.",
        "let one thread do it: threadIdx.x == 0, or elect.sync within a warp",
        _TENSOR + "; measured",
        bad=changed(_LOADED, (LOAD, "    if (threadIdx.x < 32) {\n" + EXPECT + COPY + "    }\n")), good=_LOADED,
    ),
    Rule(
        "target-lacks-instruction", Severity.ERROR,
        "every instruction exists on the target and in the PTX version of the module",
        "The assembler, or the driver when it loads the PTX, refuses the module.",
        "compile for a target that has it; those of one architecture end in a, such as sm_90a",
        "PTX ISA: Target ISA notes of each instruction", bad=_ptx("sm_90"), good=_ptx("sm_90a"),
    ),
    Rule(
        "multicast-slow", Severity.WARNING,
        "multicast is compiled for a target that has it at full speed",
        "On targets without an architecture's own features a multicast may be much slower than loads of each "
        "block's own.",
        "compile for the architecture's own target, such as sm_90a or sm_100a",
        _TENSOR + ": .multicast::cluster", bad=_MULTICAST, good=_MULTICAST, target="sm_90",
    ),
    Rule(
        "multicast-mask", Severity.ERROR,
        "a multicast goes to blocks of the cluster",
        "Bits of the mask beyond the cluster's blocks address blocks that are not there.",
        "set no bit beyond the number of blocks that .reqnctapercluster (__cluster_dims__) says",
        _TENSOR + ": .multicast::cluster", bad=changed(_MULTICAST, ("0x3", "0x5")), good=_MULTICAST,
    ),
    Rule(
        "cluster-not-declared", Severity.NOTE,
        "a kernel that reaches other blocks of its cluster says how large the cluster is",
        "The launch decides then. Without the attribute there is one block in a cluster, and the others that "
        "the kernel "
        "counts on never come.",
        "declare __cluster_dims__, or be sure that every launch gives the cluster attribute",
        "PTX ISA: .reqnctapercluster", bad=changed(_MULTICAST, (_CLUSTER, "")), good=_MULTICAST,
    ),
    Rule(
        "peer-may-have-ended", Severity.WARNING,
        "a block ends after the others are done with its shared memory",
        "The shared memory of a block that has ended is another's. Accesses to it from a peer then fault, or "
        "write over "
        "what is there.",
        "end with barrier.cluster.arrive and barrier.cluster.wait in every thread of the cluster",
        "CUDA programming guide: distributed shared memory",
        bad=changed(_PEER, ('"memory");\n' + _JOIN, '"memory");\n')), good=_PEER,
    ),
)  # fmt: skip
