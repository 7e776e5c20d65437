"""What programs of the kernels' schedules have in common: memory, ordinary loads and stores, cluster barriers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.ops.layout import Region
from cupytma.ops.simulated_copy import span_of
from cupytma.sim.program import Operation, Program, ProgramArray, Thread

Body = Generator[Operation, Any, None]
Int64 = npt.NDArray[np.int64]

# The kernels' helper warps, as threads of the model.
HELPERS = 2


def declare_memory(program: Program, **arrays: Any) -> tuple[ProgramArray, ...]:
    """The memory of arrays, at its addresses; one array ``memory`` for those that lie between one another."""
    spans = {name: span_of(array) for name, array in arrays.items()}
    groups: list[list[str]] = []
    end = 0
    for name in sorted(spans, key=lambda name: spans[name][1]):
        found, address = spans[name]
        if groups and address < end:
            groups[-1].append(name)
        else:
            groups.append([name])
        end = max(end, address + found.size)
    declared = {}
    for group in groups:
        start = min(spans[name][1] for name in group)
        whole = np.zeros(max(spans[name][1] + spans[name][0].size for name in group) - start, np.uint8)
        for name in group:
            found, address = spans[name]
            whole[address - start : address - start + found.size] = found
        memory = program.global_array(group[0] if len(group) == 1 else "memory", whole, address=start)
        declared.update(dict.fromkeys(group, memory))
    return tuple(declared[name] for name in arrays)


def add_rest(
    program: Program, rest: Region, memory: Sequence[ProgramArray], meets: bool = False
) -> None:
    """The threads that move what no tensor map may move, by ordinary loads and stores.

    With `meets` they come to the barrier of the cluster before and after.
    """
    source, destination = memory
    strides = [(dim.extent, dim.source_stride, dim.destination_stride) for dim in rest.outer]
    steps = [(extent, stride) for extent, stride, _ in strides], [(extent, stride) for extent, _, stride in strides]
    reads = places_of(rest.source - source.address, rest.run, steps[0])
    writes = places_of(rest.destination - destination.address, rest.run, steps[1])

    @program.role(threads=HELPERS)
    def helper(t: Thread) -> Body:
        mine = slice(t.block * t.threads + t.index, None, t.blocks * t.threads)
        if meets:
            yield from meet(t, "first barrier")
        if reads[mine].size:
            values = yield t.read_global(source[reads[mine]])
            yield t.write_global(destination[writes[mine]], values)
        if meets:
            yield from meet(t, "last barrier")


def meet(t: Thread, name: str) -> Body:
    """All threads of the cluster come to its barrier."""
    yield t.barrier_cluster_arrive().named(name)
    yield t.barrier_cluster_wait().named(name)


def places_of(start: int, run: int, steps: list[tuple[int, int]]) -> Int64:
    """Where the bytes of a region lie, a row for each run."""
    rows = np.full(1, start, dtype=np.int64)
    for extent, stride in steps:
        rows = np.add.outer(np.arange(extent, dtype=np.int64) * stride, rows).ravel()
    return np.add.outer(rows, np.arange(run, dtype=np.int64))
