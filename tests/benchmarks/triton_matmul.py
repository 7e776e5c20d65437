"""A plain matrix product in Triton, fed by tensor maps and tuned over a handful of tilings: what ours stands beside.

Needs Triton with host-side tensor descriptors (3.4 and newer) and torch; importing it fails without. One tile to a
block, no warp specialisation (of loops with descriptors Triton offers it on Blackwell), float32 sums by the tensor
cores alone, so that for float8 it is what `fast_accumulation` asks of ours.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# Rows, columns and 128-byte spans of K of a tile, stages, warps.
_SMALL = ((16, 32, 2, 8, 4), (64, 32, 2, 5, 4), (64, 64, 1, 5, 4), (128, 32, 1, 5, 4))
_LARGE = ((128, 256, 1, 4, 8), (256, 128, 1, 4, 8), (128, 128, 1, 4, 4), (64, 128, 1, 4, 4))
_GROUP = 8  # rows of tiles that are worked on together
_TUNING = {"warmup": 2, "rep": 10}  # milliseconds for each


@triton.jit(do_not_specialize=["rows"])
def _multiply(
    a, b, c, rows, columns, depth, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
    group: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row_tiles = tl.cdiv(rows, block_m)
    column_tiles = tl.cdiv(columns, block_n)
    together = group * column_tiles
    first = tile // together * group
    rest = tile % together
    height = tl.minimum(row_tiles - first, group)
    row = (first + rest % height) * block_m
    column = rest // height * block_n
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for k in range(0, depth, block_k):
        left = a.load([row, k])
        right = b.load([column, k])
        total = tl.dot(left, right.T, total)
    c.store([row, column], total.to(tl.bfloat16))


def _set_blocks(given: dict[str, Any]) -> None:
    """Tell the descriptors which boxes a tiling has, before it is launched."""
    m, n, k = (given[name] for name in ("block_m", "block_n", "block_k"))
    for name, block in (("a", [m, k]), ("b", [n, k]), ("c", [m, n])):
        given[name].block_shape = block


@cache
def _tuned(is_small: bool, element_bytes: int) -> Any:
    configs = [
        triton.Config(
            {"block_m": m, "block_n": n, "block_k": spans * 128 // element_bytes, "group": _GROUP},
            num_stages=stages, num_warps=warps, pre_hook=_set_blocks,
        )
        for m, n, spans, stages, warps in (_SMALL if is_small else _LARGE)
    ]  # fmt: skip
    bench = partial(triton.testing.do_bench, **_TUNING)
    return triton.autotune(configs, key=["rows", "columns", "depth"], do_bench=bench)(_multiply)


def product(a: Any, weights: list[Any], out: Any, is_small: bool) -> Callable[[int], Any]:
    """What multiplies `a` by one of the weights, the transposes of row-major (N, K) tensors, into a bfloat16 tensor.

    Parameters
    ----------
    a : torch.Tensor
        Of shape (M, K).
    weights : list of torch.Tensor
        Of shape (K, N).
    out : torch.Tensor
        Of shape (M, N).
    is_small : bool
        Tilings for few rows are tried.
    """
    assert out.dtype == torch.bfloat16
    any_block = [1, 1]  # until a tiling is chosen
    left, result = (TensorDescriptor.from_tensor(tensor, any_block) for tensor in (a, out))
    right = [TensorDescriptor.from_tensor(weight.T, any_block) for weight in weights]
    (rows, depth), columns = a.shape, out.shape[1]
    kernel = _tuned(is_small, a.element_size())

    def grid(chosen: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(rows, chosen["block_m"]) * triton.cdiv(columns, chosen["block_n"]),)

    return lambda number: kernel[grid](left, right[number % len(right)], result, rows, columns, depth)
