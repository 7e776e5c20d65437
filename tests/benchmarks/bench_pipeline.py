"""Pipeline kernels beside torch: bytes read plus written a second, medians, all ways in alternation.

Needs a GPU:

    python tests/benchmarks/bench_pipeline.py
    python tests/benchmarks/bench_pipeline.py --sweep       # stages, blocks and tiles of one kernel
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

from cupytma import copy, pipeline_kernel
from cupytma.ops.benchmark import REPEATS, TIMINGS, Work
from cupytma.runtime.device import cupy

SIDE = 16384
SOFTMAX = """
float top = lowest<float>(), total = 0;
for (int i = thread; i < length; i += threads) top = max(top, float(x[i]));
top = group.max(top);
for (int i = thread; i < length; i += threads) total += __expf(x[i] - top);
total = 1 / group.sum(total);
for (int i = thread; i < length; i += threads) out[i] = __expf(x[i] - top) * total;
"""


def tensors(count: int, shape: tuple[int, ...], dtype: str) -> list[Any]:
    import torch

    return [torch.randn(shape, device="cuda").to(getattr(torch, dtype)) for _ in range(count)]


def scale_add(dtype: str, **options: Any) -> Work:
    import torch

    a, b, out = tensors(3, (SIDE, SIDE), dtype)
    kernel = pipeline_kernel(
        "out = scale * a + b", f"{dtype} a, {dtype} b", f"{dtype} out", scalars="float32 scale", **options
    )
    others: dict[str, Callable[[], Any]] = {"torch": lambda: torch.add(b, a, alpha=2.0, out=out)}
    return Work(f"scale_add {SIDE}² {dtype}", 3 * a.nbytes, lambda: kernel(a, b, out=out, scale=2.0), others)


def row_sum(rows: int, columns: int, dtype: str) -> Work:
    import torch

    (x,) = tensors(1, (rows, columns), dtype)
    out = torch.empty(rows, device="cuda", dtype=x.dtype)
    kernel = pipeline_kernel("total += x", f"{dtype} x", reduce={f"{dtype} total": "add"})
    others: dict[str, Callable[[], Any]] = {"torch": lambda: torch.sum(x, 1, out=out)}
    return Work(f"row sum {rows} × {columns} {dtype}", x.nbytes, lambda: kernel(x, out=out), others)


def dot() -> Work:
    import torch

    x, y = tensors(2, (SIDE * SIDE,), "float32")
    out = torch.empty((), device="cuda")
    kernel = pipeline_kernel("total += x * y", "float32 x, float32 y", reduce={"float32 total": "add"}, over="all")
    others: dict[str, Callable[[], Any]] = {"torch": lambda: torch.dot(x, y, out=out)}
    return Work(f"dot {SIDE}² float32", 2 * x.nbytes, lambda: kernel(x, y, out=out), others)


def softmax(columns: int, dtype: str) -> Work:
    import torch

    x, out = tensors(2, (SIDE * SIDE // columns, columns), dtype)
    kernel = pipeline_kernel(SOFTMAX, f"{dtype} x", f"{dtype} out", each="row")
    others: dict[str, Callable[[], Any]] = {"torch": lambda: torch.softmax(x, 1, out=out)}
    return Work(f"softmax rows of {columns} {dtype}", 2 * x.nbytes, lambda: kernel(x, out=out), others)


def copied() -> Work:
    x, out = tensors(2, (SIDE, SIDE), "float32")
    return Work("copy, to compare", 2 * x.nbytes, lambda: copy(x, out), {"torch": lambda: out.copy_(x)})


def cases() -> Iterator[Work]:
    """One after the other: their arrays are large."""
    yield copied()
    for dtype in ("float32", "bfloat16", "uint8"):
        yield scale_add(dtype)
    yield row_sum(SIDE, SIDE, "float32")
    yield row_sum(SIDE, SIDE, "bfloat16")
    yield row_sum(16, SIDE * SIDE // 16, "float32")
    yield dot()
    for columns in (512, 4096, 16384):
        yield softmax(columns, "float32")
    yield softmax(4096, "bfloat16")


def sweep() -> Iterator[Work]:
    """One kernel, other shapes of its pipeline."""
    for tile_bytes in (4096, 8192, 16384):
        for blocks in (1, 2, 3):
            for stages in (2, 3, 4, None):
                for threads in (128, 256):
                    options = {"tile_bytes": tile_bytes, "blocks": blocks, "stages": stages, "threads": threads}
                    case = scale_add("float32", **options)
                    yield Work(f"{options}", case.bytes, case.ours, {})


def main() -> None:
    cupy()
    print(f"{'kernel':46s} {'ms':>8s} {'GB/s':>7s}   beside")
    for case in sweep() if "--sweep" in sys.argv[1:] else cases():
        try:
            found = TIMINGS["device"]({"": case.ours, **case.others}, REPEATS)
        except Exception as error:  # a shape that does not fit
            print(f"{case.title:46s} {str(error).splitlines()[0]}", flush=True)
            continue
        seconds = {name: statistics.median(times) for name, times in found.items()}
        ours = seconds.pop("")
        beside = ", ".join(
            f"{name} {case.bytes / theirs / 1e9:.0f} GB/s ({theirs / ours:.2f} ×)" for name, theirs in seconds.items()
        )
        print(f"{case.title:46s} {1e3 * ours:8.3f} {case.bytes / ours / 1e9:7.0f}   {beside}", flush=True)
        del case


if __name__ == "__main__":
    main()
