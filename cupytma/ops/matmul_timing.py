"""Matrix products on the GPU, one way of tiling after the other: whether they agree, and how long they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cupytma.ops.matmul_configuration import Configuration
from cupytma.ops.matmul_plan import MatmulPlan, matmul_module
from cupytma.ops.prepared import span_bytes
from cupytma.runtime.device import cupy
from cupytma.tensormap.arrays import ArrayView
from cupytma.words import counted

_LINE = 128
# Of b there are so many times what L2 holds: what comes first is gone when it comes again.
_CACHES = 2.5
_MOST_WEIGHTS = 256
# Launches of a graph, fewer where they take longer; then as many more as each copy of b comes equally often.
_LAUNCHES, _GRAPH_SECONDS = 24, 1e-3
_SAMPLE_SECONDS = 2e-3
_MOST_REPLAYS = 20
# How far results may differ, as a part of an element and of the root mean square. Sums of float8 that the tensor cores
# add alone have few bits, and differ with the order.
_TOLERANCE, _FAST_TOLERANCE = 2**-6, 2**-4
_COMPARED = 1 << 24  # elements at a time

Launch = Callable[[int, tuple[int, ...]], None]


class ProductTimer:
    """A product of given operands, with a result of its own.

    Attributes
    ----------
    weights : list of int
        Addresses of b and of its copies.
    """

    def __init__(
        self, plan: MatmulPlan, views: Sequence[ArrayView | None], prepare: Callable[[Configuration], Launch],
        target: str, stream: Any, is_cold: bool,
    ) -> None:
        """Make the copies, in a stream that is the current one.

        Parameters
        ----------
        plan : MatmulPlan
            Of any configuration.
        views : sequence of ArrayView or None
            As for `plan_for`.
        prepare : callable
            Makes what launches the product, given a stream's handle and all arrays' addresses.
        target : str
            To compile for.
        stream : cupy.cuda.Stream
            That is the timer's own.
        is_cold : bool
            Each launch has another copy of b, of which there are more than L2 holds.
        """
        self._plan, self._prepare, self._target, self._stream = plan, prepare, target, stream
        self._addresses = [0 if view is None else view.address for view in views]
        b, out = views[1], views[2]
        assert b is not None
        assert out is not None
        self._out, (low, high) = out, span_bytes(out)
        self._room = cupy().empty(high - low + 2 * _LINE, "u1")
        start = int(self._room.data.ptr)
        self._addresses[2] = start + (out.address + low - start) % _LINE - low
        self._reference: Any = None
        self._prepared: dict[Configuration, Launch] = {}
        self._graphs: dict[Configuration, tuple[Any, int, int]] = {}
        self.weights = [b.address]
        if is_cold and b.size:
            self._copy_weights(b)
        stream.synchronize()  # copies are written: launches may be promised that b is

    def _copy_weights(self, b: ArrayView) -> None:
        module = cupy()
        low, high = span_bytes(b)
        pitch = -(-(high - low) // _LINE) * _LINE + _LINE
        cache = module.cuda.Device().attributes["L2CacheSize"]
        wanted = min(_MOST_WEIGHTS, max(2, -int(-_CACHES * cache // (high - low)))) - 1
        wanted = min(wanted, int(module.cuda.runtime.memGetInfo()[0]) // 2 // pitch)
        if wanted < 1:
            return
        self._copies = module.empty(wanted * pitch + _LINE, "u1")
        start = int(self._copies.data.ptr)
        start += (b.address + low - start) % _LINE - low
        for number in range(wanted):
            address = start + number * pitch
            module.cuda.runtime.memcpyAsync(address + low, b.address + low, high - low, 3, self._stream.ptr)
            self.weights.append(address)

    def build(self, plan: MatmulPlan) -> None:
        """Compile the kernel of a plan. May be called by several threads at once."""
        matmul_module(self._target, plan.defines())

    def check(self, plan: MatmulPlan) -> str:
        """Make the product as planned, and say how it differs from the first that was made; empty where it does not.

        Raises
        ------
        LaunchError
            If it cannot be launched.
        """
        self._room.fill(0)
        self._prepared[plan.configuration] = self._prepare(plan.configuration)
        self._launch(plan, 0)
        self._stream.synchronize()
        if self._reference is None:
            self._reference = self._room.copy()
            return ""
        tolerance = _FAST_TOLERANCE if plan.operands.a.type.is_narrow and not plan.is_promoted else _TOLERANCE
        found, first = (self._result(room) for room in (self._room, self._reference))
        return difference(found, first, plan.operands.result, tolerance)

    def _launch(self, plan: MatmulPlan, number: int) -> None:
        addresses = list(self._addresses)
        addresses[1] = self.weights[number % len(self.weights)]
        self._prepared[plan.configuration](self._stream.ptr, tuple(addresses))

    def _result(self, room: Any) -> Any:
        """The bits of a result within memory of the layout of the one that is written."""
        module, out = cupy(), self._out
        offset = self._addresses[2] - int(self._room.data.ptr)
        pointer = module.cuda.MemoryPointer(room.data.mem, room.data.ptr + offset - room.data.mem.ptr)
        return module.ndarray(out.shape, f"u{out.itemsize}", pointer, out.strides)

    def sample(self, plan: MatmulPlan) -> float:
        """Seconds of one product, the mean of many in a CUDA graph that is replayed, where they follow one another."""
        graph, launches, replays = self._graphs.get(plan.configuration) or self._captured(plan)
        begin, end = (cupy().cuda.Event() for _ in range(2))
        graph.launch(self._stream)  # so that the first that counts is not waited for by the GPU
        begin.record(self._stream)
        for _ in range(replays):
            graph.launch(self._stream)
        end.record(self._stream)
        end.synchronize()
        return float(cupy().cuda.get_elapsed_time(begin, end)) / 1e3 / replays / launches

    def _captured(self, plan: MatmulPlan) -> tuple[Any, int, int]:
        weights, seconds = len(self.weights), plan.cost.seconds
        launches = max(1, min(_LAUNCHES, round(_GRAPH_SECONDS / seconds)))
        launches = -(-launches // weights) * weights
        self._stream.begin_capture()
        try:
            for number in range(launches):
                self._launch(plan, number)
        finally:
            graph = self._stream.end_capture()
        found = graph, launches, max(1, min(_MOST_REPLAYS, round(_SAMPLE_SECONDS / seconds / launches)))
        self._graphs[plan.configuration] = found
        return found


def difference(found: Any, first: Any, result: str, tolerance: float) -> str:
    """How two results differ; empty where they do not, but for the order of sums.

    Parameters
    ----------
    found, first : array
        The bits, as unsigned integers, of shape (M, N).
    result : str
        Their type.
    tolerance : float
        How much, as a part of an element of the first and of the root mean square of the rows around it.
    """
    rows = max(1, _COMPARED // max(1, first.shape[1]))
    wrong, largest = 0, 0.0
    for start in range(0, first.shape[0], rows):
        one, other = found[start : start + rows], first[start : start + rows]
        if bool((one == other).all()):
            continue
        one, other = _numbers(one, result), _numbers(other, result)
        is_finite = abs(other) < float("inf")
        differs = ~((one == other) | (_is_nan(one) & _is_nan(other)))
        lost = differs & ~(is_finite & (abs(one) < float("inf")))
        if bool(lost.any()):
            wrong, largest = wrong + int(lost.sum()), float("inf")
        near = differs & ~lost
        if bool(near.any()):
            typical = float((other[is_finite] ** 2).mean()) ** 0.5
            apart = abs(one[near] - other[near])
            too_far = apart > tolerance * (abs(other[near]) + typical)
            wrong += int(too_far.sum())
            largest = max(largest, float((apart * too_far).max()))
    found = counted(wrong, "element differs", "elements differ", ",")
    return f"{found} from the first one's result, by up to {largest:.4g}" if wrong else ""


def _is_nan(numbers: Any) -> Any:
    return numbers != numbers


def _numbers(bits: Any, result: str) -> Any:
    """Bits as float32 numbers."""
    if result == "bfloat16":
        return (bits.astype("u4") << 16).view("f4")
    if result == "float16":
        return bits.copy().view("f2").astype("f4")
    return bits.copy().view("f4")

