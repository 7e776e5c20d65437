"""Which way of tiling a matrix product is the fastest on this GPU, by measuring."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Protocol

from cupytma.errors import ArrayError, CompileError, LaunchError
from cupytma.ops.matmul_choices import keep
from cupytma.ops.matmul_configuration import Configuration
from cupytma.ops.matmul_cost import cost_of
from cupytma.ops.matmul_operands import check_on_gpu, new_result
from cupytma.ops.matmul_plan import MatmulPlan, Measured, plan_matmul
from cupytma.ops.matmul_timing import ProductTimer
from cupytma.ops.matmul_types import type_name
from cupytma.ops.matmul_ways import possible
from cupytma.ops.matrix_product import forget_prepared, plan_for, prepared_for, views_of
from cupytma.runtime import cache
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy, device_name
from cupytma.runtime.given import shown
from cupytma.runtime.occupancy import multiprocessors
from cupytma.runtime.streams import current_stream, handle_of, is_capturing, wait_for
from cupytma.sticky import STICKY_ERRORS, code_of
from cupytma.words import counted

FEW_ROWS = 128  # up to which weights are cold by default
_MOST_COST = 3.0  # times the cheapest by the model
_MOST_THREADS = 16  # that compile
_ROUNDS, _FIRST_ROUNDS = 15, 3
_SLOWER = 1.2  # times the fastest after the first rounds: not measured any more
_SOMEWHERE = 1 << 54  # where a result is thought to lie that is not given


@dataclass(frozen=True)
class TunedRow:
    """A way of tiling that was measured.

    Attributes
    ----------
    configuration : Configuration
    seconds : float
        Of one product, the median.
    rounds : int
        How often it was measured.
    expected_seconds : float
        By the model.
    """

    configuration: Configuration
    seconds: float
    rounds: int
    expected_seconds: float


@dataclass(frozen=True)
class LeftOut:
    """A way of tiling that was not measured, and why."""

    configuration: Configuration
    reason: str


@dataclass(frozen=True)
class Tuning:
    """What was measured of a product. Print it.

    Attributes
    ----------
    product : str
        What was multiplied, in words.
    measured : Measured
        The GPU, and the time of the fastest.
    configuration : Configuration
        The fastest.
    rows : tuple of TunedRow
        The fastest first, and after those that were measured to the end those that were too slow early.
    left_out : tuple of LeftOut
        Those that could not be compiled or launched, or whose result was not that of the first.
    folder : str
        Of the cache that keeps it; empty where only this process knows of it, since there is none to write to.
    """

    product: str
    measured: Measured
    configuration: Configuration
    rows: tuple[TunedRow, ...]
    left_out: tuple[LeftOut, ...]
    folder: str

    def __str__(self) -> str:
        kept = f"kept in {self.folder}" if self.folder else "known to this process alone: there is no cache to write to"
        lines = [f"{self.product}: {self.configuration}", f"  {self.measured}; {kept}"]
        for row in self.rows:
            lines.append(
                f"  {row.seconds * 1e6:10.2f} µs ({row.expected_seconds * 1e6:.2f} expected, "
                f"{counted(row.rounds, 'round')})  {row.configuration}"
            )
        return "\n".join((*lines, *(f"  left out: {one.configuration}: {one.reason}" for one in self.left_out)))


def autotune(
    a: Any, b: Any, *, scale_a: Any = None, scale_b: Any = None, bias: Any = None, out: Any = None,
    out_dtype: Any = None, a_dtype: Any = None, b_dtype: Any = None, tf32: bool = False,
    fast_accumulation: bool = False, static_b: bool = False, stream: Any = None, cold: bool | None = None,
    budget: float = 2.0,
) -> Tuning:
    """Measure the ways of tiling a product on this GPU, and keep the fastest for products like it.

    The ways that the model finds at most three times as expensive as the cheapest are compiled, by up to 16 threads,
    and each makes the product once. One whose result differs from the first one's by more than the order of sums can
    explain is left out. The others are timed in turn, in CUDA graphs, up to 15 rounds; after three rounds those that
    are more than a fifth slower than the fastest are measured no more. The smallest median wins.

    `cupytma.matmul` takes it from then on, in this process and, through the cache on disk, in others, for products
    with the same types, extents, layouts, scales, bias and promises on GPUs of this name. Another call measures anew.

    Parameters
    ----------
    a, b, scale_a, scale_b, bias, out_dtype, a_dtype, b_dtype, tf32, fast_accumulation, static_b
        As for `cupytma.matmul`. They are read and not changed; numbers like those to come give the truest times, since
        zeros take less power.
    out : array, optional
        As for `cupytma.matmul`; its layout counts, and it is not written: results go to memory of their own.
    stream : stream or int, optional
        What the arrays are ordered on. Default: torch's current stream if an array is torch's, else CuPy's. Products
        are timed on another one, after the work that this has been given.
    cold : bool, optional
        Time the product with `b` cold in L2, as a layer's weights are: each launch has another copy of `b`, of which
        there are at least two and as many as take 2.5 times what L2 holds, but no more than 256, nor than half of the
        free memory. Else with the same `b` each time, of which L2 keeps what it can. Default: cold up to M = 128,
        where reading `b` is what takes the time.
    budget : float
        Seconds for timing, beside those for compiling; each way is timed once at least.

    Returns
    -------
    Tuning
        The fastest and the medians of all.

    Raises
    ------
    ArrayError
        As `cupytma.matmul`; or if the result is empty, or ``cold`` or ``budget`` is none.
    LaunchError
        If the stream is being captured, or no way of tiling can be launched.
    CompileError
        If none can be compiled.
    NoDeviceError, TargetError
        As `cupytma.matmul`.
    """
    module = cupy()
    is_cold, seconds = _checked(cold, budget)
    named = tuple(None if given is None else type_name(name, given) for name, given in zip(
        ("out_dtype", "a_dtype", "b_dtype"), (out_dtype, a_dtype, b_dtype), strict=True
    ))  # fmt: skip
    options = *named, tf32, fast_accumulation, static_b
    arrays = tuple(array for array in (a, b, out, scale_a, scale_b, bias) if array is not None)
    first, second, result, *others = views_of((a, b, out, scale_a, scale_b, bias))
    assert first is not None
    assert second is not None
    if result is None:
        result = new_result(first, second, named[1], named[0], _SOMEWHERE)
    views = first, second, result, *others
    check_on_gpu(a=first, out=result)
    device = int(result.device or 0)
    with module.cuda.Device(device):
        target = current_target()
        plan: MatmulPlan = plan_for(
            (*options, None), views, lambda operands, **how: plan_matmul(operands, target, multiprocessors(), **how)
        )
        if plan.is_empty:
            raise ArrayError(f"the result has shape {result.shape}, and there is nothing to measure")
        producer = handle_of(current_stream(*arrays) if stream is None else stream)
        if is_capturing(producer):
            raise LaunchError("this stream is being captured, and what is captured cannot be timed: tune before")
        own = module.cuda.Stream(non_blocking=True)
        for handle in (producer, *(view.stream for view in views if view is not None)):
            wait_for(handle, own)
        # In memory of its own, which goes back to the device with it.
        with own, module.cuda.using_allocator(module.cuda.MemoryPool().malloc):
            timer = ProductTimer(
                plan, views, lambda configuration: prepared_for((*options, configuration), views, device),
                str(target), own, plan.operands.m <= FEW_ROWS if is_cold is None else is_cold,
            )  # fmt: skip
            rows, left_out = measure(candidates(plan), timer, seconds)
            own.synchronize()
        measured = Measured(device_name(device), rows[0].seconds, len(timer.weights) > 1)
    best = replace(plan, configuration=rows[0].configuration, measured=measured)
    folder = cache.folder() if keep(best) else ""
    forget_prepared()
    return Tuning(_in_words(best), measured, best.configuration, tuple(rows), tuple(left_out), folder)


def _checked(cold: object, budget: Any) -> tuple[bool | None, float]:
    if not (cold is None or isinstance(cold, bool)):
        raise ArrayError(f"cold = {shown(cold)}; it must be True, False or None")
    try:
        seconds = 0.0 if isinstance(budget, (bool, str, bytes)) else float(budget)
    except Exception:  # of any class that says it is a number
        seconds = 0.0
    if not (isfinite(seconds) and seconds > 0):
        raise ArrayError(f"budget = {shown(budget)}; it must be a positive number of seconds")
    return cold, seconds


def _in_words(plan: MatmulPlan) -> str:
    o = plan.operands
    return f"M = {o.m}, N = {o.n}, K = {o.k}, {o.a.type.name} × {o.b.type.name} to {o.result}"


def candidates(plan: MatmulPlan) -> list[MatmulPlan]:
    """A product in the ways that are worth measuring, the cheapest by the model first.

    Parameters
    ----------
    plan : MatmulPlan
        Of any configuration.
    """
    costs = {
        c: cost_of(c, plan.operands, plan.is_promoted, plan.multiprocessors, plan.is_static).ranked_seconds
        for c in possible(plan.operands, plan.is_promoted, plan.most_bytes, plan.multiprocessors)
    }
    least = min(costs.values())
    chosen = sorted((c for c in costs if costs[c] <= _MOST_COST * least), key=costs.__getitem__)
    return [replace(plan, configuration=configuration) for configuration in chosen]


class Timer(Protocol):
    """What makes and times products; see `ProductTimer`."""

    def build(self, plan: MatmulPlan) -> None:
        """Compile a plan's kernel."""

    def check(self, plan: MatmulPlan) -> str:
        """Make the product; how it differs from the first."""

    def sample(self, plan: MatmulPlan) -> float:
        """Seconds of one product."""


def measure(
    plans: Sequence[MatmulPlan], timer: Timer, budget: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[TunedRow], list[LeftOut]]:
    """Medians of a product's time as planned in several ways, the fastest first, and the ways left out.

    Parameters
    ----------
    plans : sequence of MatmulPlan
        With different configurations.
    timer : Timer
    budget : float
        Seconds of `clock` after which no other round begins.

    Raises
    ------
    CompileError, LaunchError
        The first failure, if nothing can be compiled or launched.
    """
    failures: dict[Configuration, Exception] = {}
    wrong: dict[Configuration, str] = {}
    ready = _built(plans, timer, failures)
    times: dict[Configuration, list[float]] = {}
    for plan in ready:
        try:
            if said := timer.check(plan):
                wrong[plan.configuration] = said
            else:
                times[plan.configuration] = []
        except LaunchError as error:
            if code_of(error) in STICKY_ERRORS:  # nothing can be launched any more
                raise
            failures[plan.configuration] = error
    if not times:
        raise next(iter(failures.values()))
    begun, timed = clock(), [plan for plan in ready if plan.configuration in times]
    for turn in range(_ROUNDS):
        if turn and clock() - begun >= budget:
            break
        for plan in timed:
            times[plan.configuration].append(timer.sample(plan))
        if turn + 1 == _FIRST_ROUNDS:
            medians = {plan.configuration: statistics.median(times[plan.configuration]) for plan in timed}
            timed = [plan for plan in timed if medians[plan.configuration] <= _SLOWER * min(medians.values())]
    expected = {plan.configuration: plan.cost.seconds for plan in ready}
    rows = [
        TunedRow(configuration, statistics.median(found), len(found), expected[configuration])
        for configuration, found in times.items()
    ]
    left_out = {**wrong, **{c: str(error).partition("\n")[0] for c, error in failures.items()}}
    # Those that were measured in all rounds come first: of others a few lucky ones say little.
    rows.sort(key=lambda row: (-row.rounds, row.seconds))
    return rows, [LeftOut(configuration, reason) for configuration, reason in left_out.items()]


def _built(
    plans: Sequence[MatmulPlan], timer: Timer, failures: dict[Configuration, Exception]
) -> list[MatmulPlan]:
    """The plans whose kernels were compiled, several at a time: NVRTC lets other threads run."""
    workers = max(1, min(len(plans), _MOST_THREADS, os.cpu_count() or 1))
    pool, ready = ThreadPoolExecutor(workers), []
    try:
        for plan, found in [(plan, pool.submit(timer.build, plan)) for plan in plans]:
            error = found.exception()
            if isinstance(error, CompileError):
                failures[plan.configuration] = error
            elif error is not None:
                raise error
            else:
                ready.append(plan)
    finally:  # also when the user has had enough: only what is being compiled is waited for
        pool.shutdown(cancel_futures=True)
    return ready
