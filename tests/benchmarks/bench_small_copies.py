"""Small copies and transpositions from end to end: microseconds of one call until the GPU has done it, beside torch.

Needs a GPU. All ways in alternation, medians:

    python tests/benchmarks/bench_small_copies.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import cupytma as tma
from cupytma.ops.benchmark import random_array

CALLS, ROUNDS = 50, 100


def main() -> None:
    import cupy
    import torch

    for side, name in ((128, "64 KiB"), (512, "1 MiB")):
        x, out = random_array((side, side), "f4"), cupy.empty((side, side), cupy.float32)
        a, b = torch.as_tensor(x, device="cuda"), torch.as_tensor(out, device="cuda")
        ways: dict[str, Callable[[], object]] = {
            "copy": lambda x=x, out=out: tma.copy(x, out),
            "copy, torch": lambda a=a, b=b: b.copy_(a),
            "copy of torch's": lambda a=a, b=b: tma.copy(a, b),
            "copy, CuPy": lambda x=x, out=out: cupy.copyto(out, x),
            "transpose": lambda x=x, out=out: tma.transpose(x, out=out),
            "transpose, torch": lambda a=a, b=b: b.copy_(a.t()),
            "transpose, CuPy": lambda x=x, out=out: cupy.copyto(out, x.T),
        }
        one: dict[str, list[float]] = {key: [] for key in ways}
        many: dict[str, list[float]] = {key: [] for key in ways}
        for _ in range(ROUNDS):
            for key, work in ways.items():
                work()
                cupy.cuda.Device().synchronize()
                start = time.perf_counter()
                work()
                cupy.cuda.Device().synchronize()
                one[key].append(time.perf_counter() - start)
                start = time.perf_counter()
                for _ in range(CALLS):
                    work()
                cupy.cuda.Device().synchronize()
                many[key].append((time.perf_counter() - start) / CALLS)
        for key in ways:
            alone, queued = (1e6 * statistics.median(times[key]) for times in (one, many))
            print(f"{name:7s} {key:18s} {alone:7.2f} µs alone, {queued:7.2f} µs in a queue of {CALLS}", flush=True)


if __name__ == "__main__":
    main()
