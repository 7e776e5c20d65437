"""What is measured: each operation at a size far past the L2 cache, small sizes from end to end, and launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cupytma.ops.array_copy import copy
from cupytma.ops.benchmark import CUDA, CUPY, TORCH, Aim, Case, Unavailable, Way, Work
from cupytma.ops.broadcast import broadcast_add
from cupytma.ops.convolution_columns import col2im, im2col
from cupytma.ops.multicast import multicast_copy
from cupytma.ops.permutation import permute, transpose
from cupytma.ops.reduction import reduce_add
from cupytma.ops.rows import gather_rows, scatter_add_rows, scatter_rows
from cupytma.runtime.compiler import compile
from cupytma.runtime.device import cupy
from cupytma.tensormap.arrays import tensor_map

_SIDE = 16384
_GIB = 2**30


def random_array(shape: tuple[int, ...], dtype: str, seed: int = 1) -> Any:
    """A GPU array of random bits."""
    module = cupy()
    count = 1
    for extent in shape:
        count *= extent
    words = -(-count * module.dtype(dtype).itemsize // 8)
    bits = module.random.default_rng(seed).integers(0, 2**63, size=words, dtype=module.uint64)
    return bits.view(dtype)[:count].reshape(shape)


def _torch_module() -> Any:
    """torch, if it is installed and sees the GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _tensors(torch: Any, *arrays: Any) -> list[Any]:
    """Arrays as tensors of the same memory."""
    signed = {"u1": "u1", "u2": "i2", "u4": "i4", "u8": "i8"}  # torch's unsigned types lack operations
    kinds = [array.dtype.str[1:] for array in arrays]
    return [
        torch.as_tensor(array.view(signed.get(kind, kind)), device="cuda")
        for array, kind in zip(arrays, kinds, strict=True)
    ]


def _torch(work: Callable[..., Any], *arrays: Any) -> dict[str, Way]:
    """The same with torch, where it is installed, on the same memory."""
    torch = _torch_module()
    if torch is None:
        return {}
    tensors = _tensors(torch, *arrays)
    return {TORCH: lambda: work(*tensors)}


def _contiguous(scale: int) -> Work:
    module, x = cupy(), random_array((2 * (_SIDE // scale) ** 2,), "u4")
    out = module.empty_like(x)

    def plain() -> None:
        module.cuda.runtime.memcpyAsync(out.data.ptr, x.data.ptr, x.nbytes, 3, module.cuda.get_current_stream().ptr)

    others = {CUDA: plain, **_torch(lambda a, b: b.copy_(a), x, out)}
    return Work(f"copy, {x.nbytes / _GIB:g} GiB", 2 * x.nbytes, lambda: copy(x, out), others)


def _window(scale: int) -> Work:
    module, side = cupy(), _SIDE // scale
    half, first = side // 2, 1000 // scale
    window = random_array((side, side), "u4")[first : first + half, 4 * first : 4 * first + half]
    out = module.empty((side, side), "u4")[:half, :half]
    others = {CUPY: lambda: module.copyto(out, window), **_torch(lambda a, b: b.copy_(a), window, out)}
    return Work(f"copy, {half}² float32 window", 2 * window.nbytes, lambda: copy(window, out), others)


def _transposed(dtype: str, name: str, scale: int) -> Work:
    side = _SIDE // scale
    x, out = random_array((side, side), dtype), cupy().empty((side, side), dtype)
    others = _torch(lambda a, b: b.copy_(a.t()), x, out)
    return Work(f"transpose, {side}² {name}", 2 * x.nbytes, lambda: transpose(x, out=out), others)


def _permuted(scale: int) -> Work:
    x, axes = random_array((64 // scale, 64, 64, 64, 8), "u2"), (1, 0, 3, 2, 4)
    out = cupy().empty(tuple(x.shape[axis] for axis in axes), x.dtype)
    others = _torch(lambda a, b: b.copy_(a.permute(axes)), x, out)
    return Work(f"permute, {x.shape} float16", 2 * x.nbytes, lambda: permute(x, axes, out=out), others)


def _reduced(scale: int) -> Work:
    x, out = (random_array(((_SIDE // scale) ** 2,), "u4", seed).view("f4") for seed in (1, 2))
    others = {CUPY: lambda: cupy().add(out, x, out=out), **_torch(lambda a, b: b.add_(a), x, out)}
    return Work(f"reduce_add, {x.nbytes / _GIB:g} GiB float32", 3 * x.nbytes, lambda: reduce_add(out, x), others)


def _accumulated(scale: int) -> Work:
    """Eight parts of a result, each read once; the result is read and written once where it stays in the L2 cache."""
    shape = _SIDE // scale // 2, _SIDE // scale // 4
    x, out = random_array((8, *shape), "u4").view("f4"), cupy().zeros(shape, "f4")
    others = _torch(lambda a, b: b.add_(a.sum(0)), x, out)
    title = f"reduce_add, 8 × {out.nbytes / 2**20:g} MiB float32 into one"
    return Work(title, x.nbytes + 2 * out.nbytes, lambda: reduce_add(out, x), others)


def _rows(operation: str, scale: int) -> Work:
    """Rows of 1 KiB, in random order, each at most once."""
    module, rows, many = cupy(), 2**20 // scale**2, 2**22 // scale**2
    table = random_array((many, 256), "u4").view("f4")
    index = module.random.RandomState(3).permutation(many)[:rows].astype("i8")
    some = random_array((rows, 256), "u4", 2).view("f4")
    ours, theirs, passes = {
        "gather_rows": (lambda: gather_rows(table, index, some), _torch_gathered, 2),
        "scatter_rows": (lambda: scatter_rows(table, index, some), lambda x, i, source: x.index_copy_(0, i, source), 2),
        "scatter_add_rows": (
            lambda: scatter_add_rows(table, index, some), lambda x, i, source: x.index_add_(0, i, source), 3,
        ),
    }[operation]  # fmt: skip
    moved = passes * some.nbytes + index.nbytes
    return Work(f"{operation}, {rows} × 1 KiB", moved, ours, _torch(theirs, table, index, some))


def _torch_gathered(x: Any, numbers: Any, out: Any) -> Any:
    import torch

    return torch.index_select(x, 0, numbers, out=out)


def _row_added(scale: int) -> Work:
    """A row added to each of many."""
    x, row = random_array((2**21 // scale**2, 512), "u4").view("f4"), random_array((512,), "u4", 2).view("f4")
    out = cupy().empty_like(x)
    others = {CUPY: lambda: cupy().add(x, row, out=out), **_torch(_torch_added, x, row, out)}
    title = f"broadcast_add, {len(x)} × 512 float32 and a row"
    return Work(title, 2 * x.nbytes + row.nbytes, lambda: broadcast_add(x, row, out), others)


def _torch_added(a: Any, b: Any, out: Any) -> Any:
    import torch

    return torch.add(a, b, out=out)


def _multicast(scale: int) -> Work:
    """One matrix copied to eight places."""
    copies = cupy().empty((8, 2**17 // scale**2, 512), "f4")
    one = random_array(copies.shape[1:], "u4").view("f4")
    others = _torch(lambda a, b: b.copy_(a.expand_as(b)), one, copies)
    title = f"multicast_copy, 8 × {one.nbytes / 2**20:g} MiB"
    return Work(title, one.nbytes + copies.nbytes, lambda: multicast_copy(one, copies), others)


def _columns(scale: int) -> Work:
    x = random_array((max(1, 32 // scale), 56, 56, 64), "u2")
    out = im2col(x, 3, padding=1)
    others, torch = {}, _torch_module()
    if torch is not None:  # channels first and dense, as its kernel has them
        image = _tensors(torch, x)[0].view(torch.float16).permute(0, 3, 1, 2).contiguous()
        others[TORCH] = lambda: torch.nn.functional.unfold(image, 3, padding=1)
    title = f"im2col 3×3, {x.shape} float16, written"
    return Work(title, out.nbytes, lambda: im2col(x, 3, padding=1, out=out), others)


def _folded(scale: int) -> Work:
    images = max(1, 32 // scale)
    columns = random_array((images * 56 * 56, 576), "u2").view("f2")
    out = cupy().empty((images, 56, 56, 64), "f2")
    others, torch = {}, _torch_module()
    if torch is not None:
        blocks = _tensors(torch, columns)[0].view(images, 56 * 56, 576).permute(0, 2, 1).contiguous()
        others[TORCH] = lambda: torch.nn.functional.fold(blocks, (56, 56), 3, padding=1)
    title = f"col2im 3×3, {out.shape} float16, read"
    return Work(title, columns.nbytes, lambda: col2im(columns, out.shape, 3, padding=1, out=out), others)


def _small(operation: str, side: int, for_torch: bool, scale: int) -> Work:
    """A call from end to end, on matrices of float32."""
    x, out = random_array((side, side), "u4").view("f4"), cupy().empty((side, side), "f4")
    torch, transposes = _torch_module(), operation == "transpose"
    if for_torch and torch is None:
        raise Unavailable("torch is not installed, or sees no GPU")
    a, b = _tensors(torch, x, out) if for_torch else (x, out)
    theirs = (lambda a, b: b.copy_(a.t())) if transposes else (lambda a, b: b.copy_(a))
    others = {CUPY: lambda: cupy().copyto(out, x.T if transposes else x), **_torch(theirs, x, out)}
    ours = (lambda: transpose(a, out=b)) if transposes else (lambda: copy(a, b))
    title = f"{operation}, {x.nbytes // 1024} KiB" + ", torch's tensors" * for_torch
    return Work(title, 2 * x.nbytes, ours, others)


_EMPTY_KERNELS = """
#include <cupytma.cuh>
extern "C" __global__ void maps(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                                const __grid_constant__ CUtensorMap c) {}
extern "C" __global__ void pointers(float* a, float* b, float* c) {}
"""


def _launched(name: str, scale: int) -> Work:
    """Empty kernels, so that the GPU keeps up with the host."""
    kernel, array = compile(_EMPTY_KERNELS).kernel(name), cupy().zeros((1024, 1024), "f4")
    raw = kernel.function().raw
    given: tuple[Any, ...] = (array,) * 3
    values: tuple[Any, ...] = given
    if name == "maps":
        given = tuple(tensor_map(array, box=(32, 32)) for _ in range(3))
        values = tuple(one.to_numpy() for one in given)
    title = f"launch, three {'descriptors' if name == 'maps' else 'arrays'}, on the host"
    return Work(title, 0, lambda: kernel(1, 32, given), {CUPY: lambda: raw((1,), (32,), values)})


def _small_cases() -> list[Case]:
    aims = (Aim(TORCH, 1.0),)
    return [
        Case(
            f"{operation}-{size}{'-torch' * of_torch}{'-queued' * (timing == 'queued')}",
            f"{size} from end to end, {how}" + ", of torch's tensors" * of_torch,
            partial(_small, operation, side, of_torch), group="small", timing=timing, aims=aims,
        )
        for side, size in ((128, "64KiB"), (512, "1MiB"))
        for operation in ("copy", "transpose")
        for of_torch in (False, True)
        for timing, how in (("alone", "waited for"), ("queued", "one of 50 in a row"))
    ]  # fmt: skip


CASES: tuple[Case, ...] = (
    Case("copy-contiguous", "2 GiB, contiguous", _contiguous, 4 * _GIB, 2, aims=(Aim(TORCH, 1.0), Aim(CUDA, 0.97))),
    Case("copy-window", "8192² float32 of 16384²", _window, 2 * _GIB, 2, aims=(Aim(TORCH, 1.25),)),
    *(
        Case(
            f"transpose-{name}", f"16384² {name}", partial(_transposed, dtype, name), gib * _GIB, 2,
            aims=(Aim(rate=rate * 1e9),),
        )
        for dtype, name, gib, rate in (
            ("u4", "float32", 2, 2800), ("u2", "bfloat16", 1, 2700), ("u1", "uint8", 1, 2500),
            ("u8", "float64", 4, 2800),
        )
    ),
    Case("permute", "(64, 64, 64, 64, 8) float16 by (1, 0, 3, 2, 4)", _permuted, _GIB, 1, aims=(Aim(TORCH, 2.0),)),
    Case("reduce_add-array", "1 GiB float32", _reduced, 2 * _GIB, 2, aims=(Aim(TORCH, 1.0),)),
    Case("reduce_add-parts", "8 × 128 MiB float32 into one", _accumulated, 2 * _GIB, 2),
    Case(
        "gather_rows", "1 Mi of 4 Mi rows of 1 KiB", partial(_rows, "gather_rows"), 6 * _GIB, 2,
        aims=(Aim(TORCH, 1.0), Aim(of_copy=0.9)),
    ),
    Case("scatter_rows", "1 Mi of 4 Mi rows of 1 KiB", partial(_rows, "scatter_rows"), 6 * _GIB, 2),
    Case("scatter_add_rows", "1 Mi of 4 Mi rows of 1 KiB", partial(_rows, "scatter_add_rows"), 6 * _GIB, 2),
    Case("broadcast_add", "2 Mi × 512 float32 and a row", _row_added, 8 * _GIB, 2, aims=(Aim(TORCH, 1.0),)),
    Case("multicast_copy", "256 MiB to 8 places", _multicast, 3 * _GIB, 2),
    Case("im2col", "3×3, 32×56×56×64 float16", _columns, _GIB // 4, 1, aims=(Aim(rate=2000e9),)),
    Case("col2im", "3×3, 32×56×56×64 float16", _folded, _GIB // 4, 1),
    *_small_cases(),
    *(
        Case(f"launch-{name}", f"three {name}, on the host", partial(_launched, kernel), group="launch", timing="host")
        for name, kernel in (("descriptors", "maps"), ("arrays", "pointers"))
    ),
)  # fmt: skip
