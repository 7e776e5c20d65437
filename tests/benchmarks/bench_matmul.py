"""Matrix products beside torch (cuBLAS) and Triton: microseconds and TFLOP/s, medians, all ways in alternation.

Needs a Hopper GPU and torch; the column of Triton is left out, with the reason, where it is missing or too old.

    python tests/benchmarks/bench_matmul.py                   # the table of M, N = K = 4096, float8 and bfloat16
    python tests/benchmarks/bench_matmul.py --models          # further shapes from language models
    python tests/benchmarks/bench_matmul.py --rows 1,16,128 --dtype float8_e4m3fn --quick
    python tests/benchmarks/bench_matmul.py --autotune        # ours as matmul.autotune finds it, kept from then on
    python tests/benchmarks/bench_matmul.py --sweep 2048      # every configuration at one M, N = K = 4096
    python tests/benchmarks/bench_matmul.py --host            # what a call costs on the host

Up to M = 128 weights are cold in L2: eight matrices of them in turn, in a CUDA graph; with ``--hot`` one matrix again
and again. Above, one pair of operands. The numbers are random, and so is the order of the ways, anew in each round.
What follows the times of a shape are those of cuBLAS, which adds float8 as precisely, and of Triton as multiples of
ours.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.matmul_configuration import Configuration
from cupytma.ops.matmul_plan import matmul_module
from cupytma.ops.matmul_ways import CONFIGURATIONS
from cupytma.runtime.compiler import current_target
from cupytma.tensormap.arrays import ArrayView

SMALL, LARGE = (1, 2, 4, 8, 16, 32, 64, 128), (256, 512, 1024, 2048, 4096, 8192)
SQUARE = ((4096, 4096),)
MODELS = ((7168, 2048), (2112, 7168), (24576, 1536), (4096, 14336), (14336, 4096))
DTYPES = {"float8_e4m3fn": 1, "bfloat16": 2}
WEIGHTS, ROUNDS, QUICK_ROUNDS = 8, 15, 5
OURS, STATIC, FAST = "ours", "ours static b", "ours fast"
# What our columns ask for beside the operands.
VARIANTS = {OURS: {}, STATIC: {"static_b": True}, FAST: {"fast_accumulation": True}}
CUBLAS = {"float8_e4m3fn": "cuBLAS FP8", "bfloat16": "cuBLAS BF16"}
FP16, TRITON = "cuBLAS FP16", "Triton"
THREADS = 16
Way = Callable[[int], Any]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Measuring:
    """How to measure.

    Attributes
    ----------
    rounds : int
        Samples of each way for few rows. Of more rows, where power limits the clock and it changes with what ran
        before, there are five times as many.
    is_hot : bool
        One matrix of weights also for few rows.
    """

    rounds: int = ROUNDS
    is_hot: bool = False

    def weights(self, m: int) -> int:
        """Matrices of weights that take turns."""
        return WEIGHTS if m <= max(SMALL) and not self.is_hot else 1

    def calls(self, m: int) -> int:
        """Products in a graph."""
        return 5 * WEIGHTS if m <= max(SMALL) else 8

    def samples(self, m: int) -> int:
        """Of each way."""
        return self.rounds * (1 if m <= max(SMALL) else 5)

    def replays(self, m: int) -> int:
        """Of the graph, for each sample."""
        return 20 if m <= max(SMALL) else 3


def variants(dtype: str) -> list[str]:
    """Our columns: 16-bit products are all added in float32."""
    return [name for name in VARIANTS if name != FAST or dtype.startswith("float8")]


def tensors(rows: int, depth: int, dtype: str, count: int = 1) -> list[Any]:
    import torch

    return [torch.randn(rows, depth, device="cuda").to(getattr(torch, dtype)) for _ in range(count)]


@cache
def triton_product() -> Any:
    """Triton's product, or None; the reason is printed once."""
    try:
        sys.path.append(str(Path(__file__).parent))
        from triton_matmul import product
    except Exception as error:
        print(f"{TRITON} is left out: {type(error).__name__}: {error}", flush=True)
        return None
    return product


def of_triton(a: Any, weights: list[Any], out: Any) -> dict[str, Way]:
    """Triton's column, where it works here."""
    product = triton_product()
    if product is None:
        return {}
    try:
        found = product(a, weights, out, a.shape[0] <= max(SMALL))
        found(0)
    except Exception as error:  # a compiler's own
        reason = (str(error).strip().splitlines() or [""])[0]
        print(f"{TRITON} is left out for {tuple(a.shape)} {a.dtype}: {type(error).__name__}: {reason}", flush=True)
        return {}
    return {TRITON: found}


def ways(shape: Shape, dtype: str, measuring: Measuring) -> dict[str, Way]:
    """The same product by several ways; each is told which of the weights to take."""
    import torch

    m, n, k = shape
    count = measuring.weights(m)
    (a,), weights = tensors(m, k, dtype), [b.T for b in tensors(n, k, dtype, count)]
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    found: dict[str, Way] = {
        name: lambda i, how=VARIANTS[name]: tma.matmul(a, weights[i % count], out=out, **how)
        for name in variants(dtype)
    }
    if dtype == "bfloat16":
        found[CUBLAS[dtype]] = lambda i: torch.matmul(a, weights[i % count], out=out)
    elif n % 16 == 0 and k % 16 == 0:
        one = torch.ones((), device="cuda")
        for name, fast in ((CUBLAS[dtype], False), (f"{CUBLAS[dtype]} fast", True)):
            found[name] = lambda i, fast=fast: torch._scaled_mm(
                a, weights[i % count], one, one, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
    if dtype != "bfloat16":
        wide, halves = a.half(), [weight.T.half().T for weight in weights]
        result = torch.empty(m, n, device="cuda", dtype=torch.float16)
        found[FP16] = lambda i: torch.matmul(wide, halves[i % count], out=result)
    return {**found, **of_triton(a, weights, out)}


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


def seconds(found: dict[Any, Way], m: int, measuring: Measuring) -> dict[Any, float]:
    """Medians of the time of one product by each way, whatever names it."""
    import torch

    calls, replays = measuring.calls(m), measuring.replays(m)
    graphs = {name: captured(way, calls) for name, way in found.items()}
    times: dict[Any, list[float]] = {name: [] for name in graphs}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    shuffle = random.Random(0).shuffle
    for _ in range(measuring.samples(m)):
        turns = list(graphs.items())
        shuffle(turns)  # where power limits the clock, whatever always comes first is measured on a cool GPU
        for name, graph in turns:
            graph.replay()
            begin.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) / 1e3 / replays / calls)
    return {name: statistics.median(samples) for name, samples in times.items()}


def matrices(shape: Shape, dtype: str) -> tuple[ArrayView, ArrayView]:
    """Operands as they will be, before they are there."""
    (m, n, k), size = shape, DTYPES[dtype]
    return (
        ArrayView(1 << 40, (m, k), (k * size, size), dtype, size, 0),
        ArrayView(1 << 44, (k, n), (size, k * size), dtype, size, 0),
    )


def compile_ahead(shapes: Iterable[Shape], dtype: str, options: Iterable[dict[str, Any]]) -> None:
    """Compile what products will need, several at a time, so that nobody waits for one after the other."""
    asked = list(options)
    found = {}
    for shape in shapes:
        for how in asked:
            try:
                (part, *_) = tma.matmul.explain(*matrices(shape, dtype), **how).parts
            except ArrayError:  # a configuration that is not for this product
                continue
            defines = part.plan.defines()
            found[tuple(sorted(defines.items()))] = defines
    target = str(current_target())
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda defines: matmul_module(target, defines), found.values()))


def tune(shapes: Iterable[Shape], dtype: str, measuring: Measuring) -> Iterator[str]:
    """What `matmul.autotune` finds for each shape and each of our columns."""
    for m, n, k in shapes:
        (a,), (b,) = tensors(m, k, dtype), tensors(n, k, dtype)
        for name in variants(dtype):
            cold = False if measuring.is_hot else None
            found = tma.matmul.autotune(a, b.T, cold=cold, **VARIANTS[name])
            yield f"{name}: {found.product}: {found.configuration}, {found.measured.seconds * 1e6:.2f} µs"


def table(shapes: list[Shape], dtype: str, measuring: Measuring) -> Iterator[str]:
    """A line for each shape, under a line of titles for each N and K: microseconds, and TFLOP/s in brackets."""
    begun = time.perf_counter()
    compile_ahead(shapes, dtype, [VARIANTS[name] for name in variants(dtype)])
    yield f"{dtype}: kernels compiled in {time.perf_counter() - begun:.1f} s"
    titles: tuple[Any, ...] = ()
    for shape in shapes:
        m, n, k = shape
        found = seconds(ways(shape, dtype, measuring), m, measuring)
        if titles != (n, k, *found):
            titles = n, k, *found
            yield f"\n{dtype}, N = {n}, K = {k}: µs (TFLOP/s)"
            yield f"{'M':>6}" + "".join(f"{name:>20}" for name in found) + f"{'cuBLAS':>10}{TRITON:>10}"
        cells = "".join(f"{1e6 * took:>11.2f} {f'({2 * m * n * k / took / 1e12:.1f})':>8}" for took in found.values())
        ratios = "".join(
            f"{f'{found[name] / found[OURS]:.2f} ×' if name in found else '':>10}" for name in (CUBLAS[dtype], TRITON)
        )
        yield f"{m:>6}{cells}{ratios}"


def sweep(m: int, dtype: str, measuring: Measuring) -> Iterator[str]:
    """Every configuration that fits, the fastest first."""
    import torch

    shape = (m, *SQUARE[0])
    _, n, k = shape
    asked = [{**VARIANTS[name], "configuration": c} for name in variants(dtype) for c in CONFIGURATIONS]
    compile_ahead([shape], dtype, asked)
    count = measuring.weights(m)
    (a,), weights = tensors(m, k, dtype), [b.T for b in tensors(n, k, dtype, count)]
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    found: dict[tuple[str, Configuration], Way] = {}
    for name in variants(dtype):
        for configuration in CONFIGURATIONS:
            how = {**VARIANTS[name], "configuration": configuration}
            try:
                tma.matmul(a, weights[0], out=out, **how)
            except ArrayError:
                continue
            found[name, configuration] = lambda i, how=how: tma.matmul(a, weights[i % count], out=out, **how)
    times = seconds(found, m, measuring)
    for (name, configuration), took in sorted(times.items(), key=lambda one: one[1]):
        yield f"M = {m} {1e6 * took:8.2f} µs {2 * m * n * k / took / 1e12:7.1f} TFLOP/s  {name}: {configuration}"


def host(rows: Iterable[int], dtype: str = "float8_e4m3fn", n: int = 4096, k: int = 4096) -> Iterator[str]:
    """Calls outside of graphs, with tensors that are new each time: µs on the host, and until the GPU has done them."""
    import torch

    one, weights = torch.ones((), device="cuda"), [b.T for b in tensors(n, k, dtype, WEIGHTS)]
    yield f"{dtype}, N = {n}, K = {k}: µs a call on the host / from the call until the GPU has done it"
    for m in rows:
        fresh = tensors(m, k, dtype, 4 * WEIGHTS)
        calls: dict[str, Callable[[int], Any]] = {
            "ours": lambda i, fresh=fresh: tma.matmul(fresh[i % len(fresh)], weights[i % WEIGHTS]),
            "ours static b": lambda i, fresh=fresh: tma.matmul(
                fresh[i % len(fresh)], weights[i % WEIGHTS], static_b=True
            ),
            "cuBLAS": lambda i, fresh=fresh: torch._scaled_mm(
                fresh[i % len(fresh)], weights[i % WEIGHTS], one, one, out_dtype=torch.bfloat16
            ),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                found[name].append((_each(call, 64, waits=False), _each(call, 64, waits=True)))
        shown = (
            f"{name} {1e6 * statistics.median(a for a, _ in t):6.2f} / {1e6 * statistics.median(b for _, b in t):6.2f}"
            for name, t in found.items()
        )
        yield f"{m:6d}  {'   '.join(shown)}"


def _each(call: Callable[[int], Any], calls: int, waits: bool) -> float:
    """Seconds of one of several calls."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(calls):
        call(number)
        if waits:
            torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    found = tuple(int(part) for part in text.split(","))
    if not all(number > 0 for number in found):
        raise ValueError(text)
    return found


def chosen(arguments: list[str]) -> Iterator[str]:
    """What the command line asks for, line by line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", action="store_true", help="shapes from language models")
    parser.add_argument("--rows", type=numbers, default=(*SMALL, *LARGE), help="M, such as 1,16,128")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="default: all")
    parser.add_argument("--hot", action="store_true", help="one matrix of weights for few rows too")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds and not {ROUNDS}")
    parser.add_argument("--autotune", action="store_true", help="measure our configurations first, and keep the best")
    parser.add_argument("--sweep", type=int, metavar="M", help="every configuration at one M")
    parser.add_argument("--host", action="store_true", help="what a call costs on the host")
    given = parser.parse_args(arguments)
    measuring = Measuring(QUICK_ROUNDS if given.quick else ROUNDS, given.hot)
    shapes = [(m, n, k) for n, k in (MODELS if given.models else SQUARE) for m in given.rows]
    if given.host:
        yield from host([m for m in given.rows if m <= max(SMALL)])
        return
    for dtype in given.dtype or DTYPES:
        if given.sweep:
            yield from sweep(given.sweep, dtype, measuring)
            continue
        if given.autotune:
            yield from tune(shapes, dtype, measuring)
        yield from table(shapes, dtype, measuring)


if __name__ == "__main__":
    for line in chosen(sys.argv[1:]):
        print(line, flush=True)
