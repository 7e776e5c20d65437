"""Mistakes that people make in kernels for the Tensor Memory Accelerator, each with words that the error must have."""

from __future__ import annotations

from dataclasses import dataclass, field

_HEAD = """\
#include <cupytma.cuh>
extern "C" __global__ void kernel(const __grid_constant__ CUtensorMap map, unsigned long long* pointer)
{
    __shared__ alignas(128) char tile[4096];
    __shared__ unsigned long long barrier;
"""
_TILE = '"r"((unsigned)__cvta_generic_to_shared(tile))'
_BARRIER = '"r"((unsigned)__cvta_generic_to_shared(&barrier))'
_LOAD = f':: {_TILE}, "l"(&map), "r"(0), {_BARRIER}'


@dataclass(frozen=True)
class Mistake:
    """A source that does not compile, and what its error must say.

    Attributes
    ----------
    name, source, target : str
    words : tuple of str
        Which the message must have.
    line : int or None
        Which the error must point at; None where the compiler names no place.
    """

    name: str
    source: str
    words: tuple[str, ...]
    target: str = "sm_90a"
    line: int | None = 6
    options: tuple[str, ...] = field(default=())


def _body(name: str, statement: str, *words: str, target: str = "sm_90a", line: int | None = 6) -> Mistake:
    return Mistake(name, f"{_HEAD}    {statement}\n}}\n", words, target, line)


def _asm(name: str, text: str, operands: str, *words: str, target: str = "sm_90a") -> Mistake:
    return _body(name, f'asm volatile("{text}" {operands});', *words, target=target)


def _whole(name: str, source: str, *words: str, line: int | None = 1) -> Mistake:
    return Mistake(name, source, words, line=line)


_LOAD_2D = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_REPLACE = "tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;"

MISTAKES: tuple[Mistake, ...] = (
    _body(
        "a function that the plain target lacks", "cupytma::tensormap_replace_global_address_global(pointer, 1);",
        "tensormap.replace needs sm_90a: you compiled for sm_90", target="sm_90",
    ),
    _asm(
        "an instruction that the plain target lacks", _REPLACE, ':: "l"(pointer), "l"(pointer)',
        "tensormap.replace needs sm_90a: you compiled for sm_90", "target='sm_90a'", target="sm_90",
    ),
    _asm(
        "setmaxnreg on the plain target", "setmaxnreg.inc.sync.aligned.u32 64;", "",
        "setmaxnreg needs sm_90a: you compiled for sm_90", target="sm_90",
    ),
    _asm(
        "a gather on Hopper",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2,%2,%2,%2,%2}], [%3];",
        _LOAD, "needs sm_100a: you compiled for sm_90a", "no target of compute capability 9.0 has it",
    ),
    _asm(
        "a modifier of Blackwell on Hopper", f"{_LOAD_2D}.cta_group::1 [%0], [%1, {{%2,%2}}], [%3];", _LOAD,
        "needs sm_100a: you compiled for sm_90a",
    ),
    _asm(
        "wgmma on Blackwell", "wgmma.fence.sync.aligned;", "", "wgmma needs sm_90a: you compiled for sm_100a",
        target="sm_100a",
    ),
    _asm(
        "tcgen05 on Hopper", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];",
        f":: {_BARRIER}", "tcgen05 needs sm_100a: you compiled for sm_90a",
    ),
    _asm(
        "a swizzle's atom on Hopper", "tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%0], 1;",
        ':: "l"(pointer)', "needs sm_100a: you compiled for sm_90a",
    ),
    _asm(
        "bare .shared",
        "cp.async.bulk.tensor.2d.shared.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2,%2}], [%3];", _LOAD,
        "write .shared::cta or .shared::cluster",
    ),
    _asm(
        "a load without its completion",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile [%0], [%1, {%2,%2}], [%3];", _LOAD,
        ".mbarrier::complete_tx::bytes is mandatory",
    ),
    _asm(
        "a store without its group", "cp.async.bulk.tensor.2d.global.shared::cta.tile [%1, {%2,%2}], [%0];",
        f':: {_TILE}, "l"(&map), "r"(0)', ".bulk_group is mandatory",
    ),
    _asm(
        "a multicast without its mask", f"{_LOAD_2D}.multicast::cluster [%0], [%1, {{%2,%2}}], [%3];", _LOAD,
        ".multicast::cluster needs its operand, the mask",
    ),
    _asm(
        "a mask without its modifier", f"{_LOAD_2D} [%0], [%1, {{%2,%2}}], [%3], %4;", f'{_LOAD}, "h"((short)3)',
        "A mask needs the modifier .multicast::cluster",
    ),
    _asm(
        "three coordinates for two dimensions", f"{_LOAD_2D} [%0], [%1, {{%2,%2,%2}}], [%3];", _LOAD,
        "it takes [%0], [%1, {%2, %3}], [%4]",
    ),
    _asm(
        "a mode that is spelt otherwise",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tiled.mbarrier::complete_tx::bytes [%0], [%1, {%2,%2}], [%3];",
        _LOAD, "Unknown modifier '.tiled'", f"near it: {_LOAD_2D}",
    ),
    _asm(
        "im2col with two dimensions",
        "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2,%2}], [%3];",
        _LOAD, "near it:", "3d.shared::cluster.global.im2col",
    ),
    _asm(
        "a reduction that does not exist",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.sub.tile.bulk_group [%1, {%2,%2}], [%0];",
        f':: {_TILE}, "l"(&map), "r"(0)', "Unknown modifier '.sub'", "near it:",
    ),
    _asm(
        "an ordinal in a register", "tensormap.replace.tile.box_dim.global.b1024.b32 [%0], %1, %2;",
        ':: "l"(pointer), "r"(0), "r"(64)', "ordinal is a constant", 'the constraint "n"',
    ),
    _asm(
        "a size that is no multiple of 16",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 20, [%2];",
        f':: {_TILE}, "l"(pointer), {_BARRIER}', "steps of 16",
    ),
    _asm(
        "an acquire of half a tensor map", "fence.proxy.tensormap::generic.acquire.gpu [%0], 64;", ':: "l"(pointer)',
        "it takes [%0], 128",
    ),
    _asm("a wait without its count", "cp.async.bulk.wait_group.read;", "", "it takes %0"),
    _asm(
        "a prefetch without its level", "cp.async.bulk.prefetch.tensor.2d.global.tile [%0, {%1,%1}];",
        ':: "l"(&map), "r"(0)', "names its level, .L2",
    ),
    _asm("a misspelt instruction", "cp.async.bulk.commit_grp;", "", "near it: cp.async.bulk.commit_group"),
    _asm(
        "a parity without .parity", "mbarrier.try_wait.shared::cta.b64 p, [%0], 0;", f":: {_BARRIER}",
        "mbarrier.try_wait.parity", ".reg .pred p",
    ),
    _asm("an operand that is not there", "mov.u32 %0, %5;", ':: "r"(0)', "they count from %0"),
    _body("a misspelt function", "cupytma::tensor_load2d(tile, &map, 0, 0, &barrier);", "tensor_load_2d"),
    _body(
        "a function without its namespace", "tensor_load_2d(tile, &map, 0, 0, &barrier);",
        "write cupytma::tensor_load_2d",
    ),
    _body("a name near one of ours", "mbarier_init(&barrier, 1);", "did you mean cupytma::mbarrier_init"),
    _body("a map by value", "cupytma::tensor_load_2d(tile, map, 0, 0, &barrier);", "write &map"),
    _body(
        "a coordinate too few", "cupytma::tensor_load_2d(tile, &map, 0, &barrier);",
        "it is declared void tensor_load_2d(void* destination, const void* tensor_map, int coordinate_0",
    ),
    _body(
        "an mbarrier of another type", "cupytma::mbarrier_init(reinterpret_cast<unsigned*>(&barrier), 1);",
        "an mbarrier is an `unsigned long long`",
    ),
    _body(
        "a constant between parentheses", "cupytma::bulk_wait_group(0);",
        "count is a constant and stands between < and >",
    ),
    _body("a constant out of range", "cupytma::bulk_wait_group<99>();", "count is 0 to 63"),
    _body("a type of the standard library", "uint32_t x = 0;", "unsigned int", "cuda/std/cstdint"),
    _body("the standard library", "int x = std::min(1, 2);", "NVRTC has no standard library", "cuda::std::min"),
    _body("a half without its header", "half x;", "#include <cuda_fp16.h>", "pip install"),
    _body("a function of the host", "cuTensorMapEncodeTiled();", "in Python, tma.Tiled"),
    _body("cooperative groups without their header", "auto c = cg::this_cluster();", "#include <cooperative_groups.h>"),
    _whole(
        "cuda.h", '#include <cuda.h>\nextern "C" __global__ void kernel() {}\n', "CUtensorMap comes with",
        "<cupytma.cuh>",
    ),
    _whole(
        "a map without our header", 'extern "C" __global__ void kernel(const __grid_constant__ CUtensorMap map) {}\n',
        "CUtensorMap comes with #include <cupytma.cuh>",
    ),
    _whole("a standard header", "#include <vector>\n", "NVRTC has no standard library"),
    _whole("a header of one's own", "#include <my_tiles.cuh>\n", "headers={'my_tiles.cuh': text}", "includes="),
    _whole("a header of CUTLASS", "#include <cute/tensor.hpp>\n", "includes=['…/cutlass/include']"),
    _whole(
        "a grid constant that may change",
        '#include <cupytma.cuh>\nextern "C" __global__ void kernel(__grid_constant__ CUtensorMap map) {}\n',
        "const __grid_constant__ CUtensorMap map", line=2,
    ),
    _whole(
        "a grid constant by reference",
        '#include <cupytma.cuh>\nextern "C" __global__ void kernel(const __grid_constant__ CUtensorMap& map) {}\n',
        "by value", line=2,
    ),
    _whole(
        'a template that is extern "C"', 'extern "C" template <int N> __global__ void kernel(float* p) {}\n',
        'leave out extern "C"',
    ),
    _whole("a function of the host in the source", "int twice(int x) { return 2 * x; }\n", "mark functions __device__"),
    _whole(
        "a missing semicolon", 'extern "C" __global__ void kernel(int* p) { p[0] = 1 }\n', 'expected a ";"',
    ),
)
