"""Matrix products beside torch (cuBLAS): microseconds and TFLOP/s, medians, all ways in alternation.

Needs a Hopper GPU and torch:

    python tests/benchmarks/bench_matmul.py                # the table of M, N = K = 4096, float8 and bfloat16
    python tests/benchmarks/bench_matmul.py --models       # further shapes from language models
    python tests/benchmarks/bench_matmul.py --sweep 2048   # every configuration at one M, float8
    python tests/benchmarks/bench_matmul.py --host         # what a call costs on the host

Up to M = 128 weights are cold in L2: eight matrices of them in turn, in a CUDA graph. Above, one pair of operands. The
numbers are random.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.matmul_configuration import CONFIGURATIONS

SMALL, LARGE = (1, 2, 4, 8, 16, 32, 64, 128), (256, 512, 1024, 2048, 4096, 8192)
MODELS = ((7168, 2048), (2112, 7168), (24576, 1536), (4096, 14336), (14336, 4096))
WEIGHTS, ROUNDS, REPLAYS = 8, 15, 20
Way = Callable[[int], Any]


def tensors(rows: int, depth: int, dtype: str, count: int = 1) -> list[Any]:
    import torch

    return [torch.randn(rows, depth, device="cuda").to(getattr(torch, dtype)) for _ in range(count)]


def ways(m: int, n: int, k: int, dtype: str, **options: Any) -> dict[str, Way]:
    """The same product by several ways; each is told which of the weights to take."""
    import torch

    count = WEIGHTS if m <= max(SMALL) else 1
    (a,), weights = tensors(m, k, dtype), [b.T for b in tensors(n, k, dtype, count)]
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    one = torch.ones((), device="cuda")
    found: dict[str, Way] = {
        "ours": lambda i: tma.matmul(a, weights[i % count], out=out, **options),
        "ours, static b": lambda i: tma.matmul(a, weights[i % count], out=out, static_b=True, **options),
    }
    if dtype.startswith("float8"):
        found["ours, fast"] = lambda i: tma.matmul(a, weights[i % count], out=out, fast_accumulation=True, **options)
        if n % 16 == 0 and k % 16 == 0:
            for fast in (False, True):
                found["cuBLAS, fast" if fast else "cuBLAS"] = lambda i, fast=fast: torch._scaled_mm(
                    a, weights[i % count], one, one, out_dtype=torch.bfloat16, use_fast_accum=fast
                )
    else:
        found["cuBLAS"] = lambda i: torch.matmul(a, weights[i % count], out=out)
    return found


def captured(way: Way, calls: int) -> Any:
    import torch

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for number in range(WEIGHTS):
            way(number)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for number in range(calls):
            way(number)
    return graph


def seconds(found: dict[str, Way], calls: int) -> dict[str, float]:
    """Medians of the time of one product by each way."""
    import torch

    graphs = {name: captured(way, calls) for name, way in found.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            graph.replay()
            begin.record()
            for _ in range(REPLAYS if calls > 1 else 3):
                graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / 1e3 / (REPLAYS if calls > 1 else 3) / calls)
    return {name: statistics.median(found) for name, found in times.items()}


def lines(shapes: list[tuple[int, int, int]], dtype: str) -> Iterator[str]:
    """A table, a shape to a line."""
    for m, n, k in shapes:
        small = m <= max(SMALL)
        found = seconds(ways(m, n, k, dtype), 5 * WEIGHTS if small else 1)
        shown = "  ".join(
            f"{name} {1e6 * took:8.2f} µs {2 * m * n * k / took / 1e12:7.1f} TFLOP/s" for name, took in found.items()
        )
        ratio = found["cuBLAS"] / found["ours"] if "cuBLAS" in found else float("nan")
        yield f"{dtype} M = {m:5d} N = {n:5d} K = {k:5d}  {shown}  {ratio:.2f} ×"


def sweep(m: int, dtype: str = "float8_e4m3fn", n: int = 4096, k: int = 4096) -> Iterator[str]:
    """Every configuration that fits, the fastest first."""
    measured = []
    for configuration in CONFIGURATIONS:
        try:
            found = ways(m, n, k, dtype, configuration=configuration)
            kept = {name: way for name, way in found.items() if name.startswith("ours")}
            if dtype.startswith("float8"):
                try:
                    kept["ours"](0)
                except ArrayError:
                    kept = {"ours, fast": kept["ours, fast"]}
            for name, took in seconds(kept, 5 * WEIGHTS if m <= max(SMALL) else 1).items():
                measured.append((took, name, configuration))
        except ArrayError:
            continue
    for took, name, configuration in sorted(measured, key=lambda row: row[0]):
        yield f"M = {m} {1e6 * took:8.2f} µs {2 * m * n * k / took / 1e12:7.1f} TFLOP/s  {name}: {configuration}"


def host(calls: int = 2000) -> Iterator[str]:
    """What a call costs on the host, the launch included, fresh tensors each time and the same."""
    import torch

    (a,), (b,) = tensors(16, 256, "float8_e4m3fn"), tensors(256, 256, "float8_e4m3fn")
    out, one = torch.empty(16, 256, device="cuda", dtype=torch.bfloat16), torch.ones((), device="cuda")
    b = b.T
    cases: dict[str, Callable[[], Any]] = {
        "ours, out given": lambda: tma.matmul(a, b, out=out),
        "ours": lambda: tma.matmul(a, b),
        "torch._scaled_mm": lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16),
    }
    for name, call in cases.items():
        times = []
        for _ in range(ROUNDS):
            call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls // ROUNDS):
                call()
            times.append((time.perf_counter() - start) / (calls // ROUNDS))
        yield f"{name}: {1e6 * statistics.median(times):.2f} µs a call"


def main() -> None:
    arguments = sys.argv[1:]
    if "--host" in arguments:
        chosen = host()
    elif "--sweep" in arguments:
        chosen = sweep(int(arguments[arguments.index("--sweep") + 1]))
    else:
        sides = MODELS if "--models" in arguments else ((4096, 4096),)
        shapes = [(m, n, k) for n, k in sides for m in (*SMALL, *LARGE)]
        chosen = (line for dtype in ("float8_e4m3fn", "bfloat16") for line in lines(shapes, dtype))
    for line in chosen:
        print(line, flush=True)


if __name__ == "__main__":
    main()
