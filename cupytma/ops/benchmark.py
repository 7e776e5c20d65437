"""How fast the operations are, beside torch and CuPy, as bytes a second and as a part of what a plain copy reaches."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cupytma.ops.array_copy import copy
from cupytma.ops.broadcast import broadcast_add
from cupytma.ops.convolution_columns import im2col
from cupytma.ops.multicast import multicast_copy
from cupytma.ops.permutation import permute, transpose
from cupytma.ops.reduction import reduce_add
from cupytma.ops.rows import gather_rows, scatter_add_rows, scatter_rows
from cupytma.runtime.device import cupy

_WARMUPS, _REPEATS = 3, 15
# Bytes that are filled before each call: what is timed is the GPU's work, and the call is made while it is busy.
_QUEUED = 1 << 29


@dataclass(frozen=True)
class Case:
    """One operation on arrays of one size.

    Attributes
    ----------
    name : str
    bytes : int
        Read plus written; of im2col, which reads the same many times over, written.
    ours : callable
    others : dict of str to callable
        The same with other libraries, by name.
    """

    name: str
    bytes: int
    ours: Callable[[], Any]
    others: dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Measurement:
    """A case's medians.

    Attributes
    ----------
    name : str
    bytes : int
        Read plus written.
    seconds : float
        Of one call, on the GPU.
    others : dict of str to float
        Seconds of the others.
    """

    name: str
    bytes: int
    seconds: float
    others: dict[str, float]

    @property
    def rate(self) -> float:
        """Bytes read plus written a second."""
        return self.bytes / self.seconds


def random_array(shape: tuple[int, ...], dtype: str, seed: int = 1) -> Any:
    """A GPU array of random bits."""
    module = cupy()
    count = 1
    for extent in shape:
        count *= extent
    words = -(-count * module.dtype(dtype).itemsize // 8)
    bits = module.random.default_rng(seed).integers(0, 2**63, size=words, dtype=module.uint64)
    return bits.view(dtype)[:count].reshape(shape)


def cases(scale: int = 1) -> Iterator[Case]:
    """The operations, one after the other. Let go of each case before the next is asked for: its arrays are large.

    Parameters
    ----------
    scale : int
        Extents of matrices are divided by this, for small GPUs and quick looks; 1 for sizes far past the L2 cache.
    """
    side = 16384 // scale
    yield _contiguous(side)
    yield _window(side, scale)
    for dtype, name in (("u4", "float32"), ("u2", "bfloat16"), ("u1", "uint8"), ("u8", "float64")):
        yield _transposed(side, dtype, name)
    yield _permuted(scale)
    yield _reduced(side)
    yield _accumulated(side)
    yield from _rows(scale)
    yield from _broadcast(scale)
    yield _columns(scale)


def _contiguous(side: int) -> Case:
    module, x = cupy(), random_array((2 * side * side,), "u4")
    out = module.empty_like(x)

    def plain() -> None:
        module.cuda.runtime.memcpyAsync(out.data.ptr, x.data.ptr, x.nbytes, 3, module.cuda.get_current_stream().ptr)

    others = {"cudaMemcpyAsync": plain, **_torch(lambda a, b: b.copy_(a), x, out)}
    return Case(f"copy, {x.nbytes / 2**30:g} GiB", 2 * x.nbytes, lambda: copy(x, out), others)


def _window(side: int, scale: int) -> Case:
    module, half, first = cupy(), side // 2, 1000 // scale
    window = random_array((side, side), "u4")[first : first + half, 4 * first : 4 * first + half]
    out = module.empty((side, side), "u4")[:half, :half]
    others = {"CuPy": lambda: module.copyto(out, window), **_torch(lambda a, b: b.copy_(a), window, out)}
    return Case(f"copy, {half}² float32 window", 2 * window.nbytes, lambda: copy(window, out), others)


def _transposed(side: int, dtype: str, name: str) -> Case:
    x, out = random_array((side, side), dtype), cupy().empty((side, side), dtype)
    others = _torch(lambda a, b: b.copy_(a.t()), x, out)
    return Case(f"transpose, {side}² {name}", 2 * x.nbytes, lambda: transpose(x, out=out), others)


def _permuted(scale: int) -> Case:
    x, axes = random_array((64 // scale, 64, 64, 64, 8), "u2"), (1, 0, 3, 2, 4)
    out = cupy().empty(tuple(x.shape[axis] for axis in axes), x.dtype)
    others = _torch(lambda a, b: b.copy_(a.permute(axes)), x, out)
    return Case(f"permute, {x.shape} float16", 2 * x.nbytes, lambda: permute(x, axes, out=out), others)


def _reduced(side: int) -> Case:
    x, out = (random_array((side * side,), "u4", seed).view("f4") for seed in (1, 2))
    others = {"CuPy": lambda: cupy().add(out, x, out=out), **_torch(lambda a, b: b.add_(a), x, out)}
    return Case(f"reduce_add, {x.nbytes / 2**30:g} GiB float32", 3 * x.nbytes, lambda: reduce_add(out, x), others)


def _accumulated(side: int) -> Case:
    """Eight parts of a result, each read once; the result is read and written once where it stays in the L2 cache."""
    x, out = random_array((8, side // 2, side // 4), "u4").view("f4"), cupy().zeros((side // 2, side // 4), "f4")
    others = _torch(lambda a, b: b.add_(a.sum(0)), x, out)
    name = f"reduce_add, 8 × {out.nbytes / 2**20:g} MiB float32 into one"
    return Case(name, x.nbytes + 2 * out.nbytes, lambda: reduce_add(out, x), others)


def _rows(scale: int) -> Iterator[Case]:
    """Rows of 1 KiB, in random order, each at most once."""
    module, rows, many = cupy(), 2**20 // scale**2, 2**22 // scale**2
    table = random_array((many, 256), "u4").view("f4")
    index = module.random.RandomState(3).permutation(many)[:rows].astype("i8")
    some = random_array((rows, 256), "u4", 2).view("f4")
    copied, added = 2 * some.nbytes + index.nbytes, 3 * some.nbytes + index.nbytes

    def gathered(x: Any, numbers: Any, out: Any) -> Any:
        import torch

        return torch.index_select(x, 0, numbers, out=out)

    others = _torch(gathered, table, index, some)
    yield Case(f"gather_rows, {rows} × 1 KiB", copied, lambda: gather_rows(table, index, some), others)
    others = _torch(lambda x, numbers, source: x.index_copy_(0, numbers, source), table, index, some)
    yield Case(f"scatter_rows, {rows} × 1 KiB", copied, lambda: scatter_rows(table, index, some), others)
    others = _torch(lambda x, numbers, source: x.index_add_(0, numbers, source), table, index, some)
    yield Case(f"scatter_add_rows, {rows} × 1 KiB", added, lambda: scatter_add_rows(table, index, some), others)


def _broadcast(scale: int) -> Iterator[Case]:
    """A row added to each of many, and one matrix copied to eight places."""
    x, row = random_array((2**20 // scale**2, 512), "u4").view("f4"), random_array((512,), "u4", 2).view("f4")
    out = cupy().empty_like(x)

    def added(a: Any, b: Any, c: Any) -> Any:
        import torch

        return torch.add(a, b, out=c)

    others = {"CuPy": lambda: cupy().add(x, row, out=out), **_torch(added, x, row, out)}
    name = f"x + row, {len(x)} × 512 float32"
    yield Case(name, 2 * x.nbytes + row.nbytes, lambda: broadcast_add(x, row, out), others)
    copies = out.reshape(8, -1, 512)
    one = x[: copies.shape[1]]
    others = _torch(lambda a, b: b.copy_(a.expand_as(b)), one, copies)
    name = f"multicast_copy, 8 × {one.nbytes / 2**20:g} MiB"
    yield Case(name, one.nbytes + copies.nbytes, lambda: multicast_copy(one, copies), others)


def _columns(scale: int) -> Case:
    x = random_array((max(1, 32 // scale), 56, 56, 64), "u2")
    out = im2col(x, 3, padding=1)
    return Case(
        f"im2col 3×3, {x.shape} float16, written", out.nbytes, lambda: im2col(x, 3, padding=1, out=out),
        _torch_unfold(x),
    )  # fmt: skip


def _torch_unfold(x: Any) -> dict[str, Callable[[], Any]]:
    """torch's columns of the same image, channels first and dense as its kernel has them."""
    try:
        import torch
    except ImportError:
        return {}
    image = torch.as_tensor(x.view("i2"), device="cuda").view(torch.float16).permute(0, 3, 1, 2).contiguous()
    return {"torch unfold": lambda: torch.nn.functional.unfold(image, 3, padding=1)}


def _torch(work: Callable[..., Any], *arrays: Any) -> dict[str, Callable[[], Any]]:
    """The same with torch, where it is installed, on the same memory."""
    try:
        import torch
    except ImportError:
        return {}
    signed = {"u1": "u1", "u2": "i2", "u4": "i4", "u8": "i8"}  # torch's unsigned types lack operations
    kinds = [array.dtype.str[1:] for array in arrays]
    tensors = [
        torch.as_tensor(array.view(signed.get(kind, kind)), device="cuda")
        for array, kind in zip(arrays, kinds, strict=True)
    ]
    return {"torch": lambda: work(*tensors)}


def measure(case: Case) -> Measurement:
    """Medians of one case, all ways in alternation."""
    module = cupy()
    scratch = module.empty(_QUEUED, module.uint8)
    ways = {"": case.ours, **case.others}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(_WARMUPS + _REPEATS):
        for name, work in ways.items():
            start, end = module.cuda.Event(), module.cuda.Event()
            scratch.fill(repeat)
            start.record()
            work()
            end.record()
            end.synchronize()
            if repeat >= _WARMUPS:
                seconds[name].append(1e-3 * module.cuda.get_elapsed_time(start, end))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return Measurement(case.name, case.bytes, medians.pop(""), medians)
