"""The copy kernel's schedule as a program for the simulator: what its blocks do, with the synchronisation they use."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import STAGES
from cupytma.ops.copy_plan import TilePlan, plan_copy
from cupytma.ops.layout import Region
from cupytma.ops.simulated_copy import span_of
from cupytma.sim.program import Operation, Program, ProgramArray, Thread
from cupytma.sim.program.errors import check_range
from cupytma.tensormap.arrays import view_of

Body = Generator[Operation, Any, None]
Int64 = npt.NDArray[np.int64]

# The kernel's helper warps, as threads of the model.
_HELPERS = 2


def copy_program(source: Any, destination: Any, *, blocks: int = 2, stages: int = STAGES) -> Program:
    """What `cupytma.copy` launches for two arrays, as a program that the simulator runs under many schedules.

    Tiles are dealt to the blocks in turn; one thread of each block keeps `stages` tiles in flight, loading ahead of the
    stores; other threads move the bytes that no tensor map may move. Memory is a copy of the arrays' at the start.

    Parameters
    ----------
    source, destination : numpy.ndarray
        Of the same shape and dtype, of any strides; they may not overlap.
    blocks : int
        Of the grid; no more than there are tiles are used.
    stages : int
        Tiles in flight in a block, at least 2.

    Returns
    -------
    Program
        Its arrays are the bytes from the first to the last of each of the two, ``source`` and ``destination``; one
        array ``memory`` where these lie between one another.

    Raises
    ------
    ArrayError
        As `cupytma.copy`; or if the arrays are empty, for which nothing is launched; or if two of their dimensions
        change places.
    ProgramError
        For numbers of blocks or stages that make no launch.
    """
    check_range("blocks", blocks, 1, 2**31 - 1)
    check_range("stages", stages, 2, 64)
    plan = plan_copy(view_of(source), view_of(destination))
    if plan.is_empty:
        raise ArrayError("the arrays are empty, and nothing is launched for them")
    if plan.turned is not None:
        raise ArrayError(
            "two dimensions change places between these arrays: their copy is a transposition, for which there is no "
            "program yet; sim.examples has one of a swizzled transposition"
        )
    grid = min(blocks, plan.tiles.tiles) if plan.tiles is not None else blocks
    program = Program("copy", blocks=grid)
    memory = declare_memory(program, source=source, destination=destination)
    if plan.tiles is not None:
        _add_tiles(program, plan.tiles, stages)
    if plan.rest is not None:
        add_rest(program, plan.rest, memory)
    return program


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


def _add_tiles(program: Program, tiles: TilePlan, stages: int) -> None:
    """The thread that moves tiles, as ``copy_tiles`` of the kernel."""
    tile_bytes = tiles.source.box_bytes
    ring = [program.shared_array(f"stage[{i}]", tile_bytes) for i in range(stages)]
    loaded = program.mbarriers("loaded", stages)
    coordinates = tiles.coordinates()

    def load(t: Thread, index: int) -> Body:
        stage, at = index % stages, coordinates[t.block + index * t.blocks]
        yield t.mbarrier_arrive_expect_tx(loaded[stage], tile_bytes).named("announce")
        yield t.tensor_load(ring[stage], tiles.source, at, loaded[stage])

    @program.role
    def copier(t: Thread) -> Body:
        count = len(range(t.block, len(coordinates), t.blocks))
        for barrier in loaded:
            yield t.mbarrier_init(barrier, 1)
        yield t.fence_mbarrier_init().named("init fence")
        for index in range(min(stages - 1, count)):
            yield from load(t, index)
        for index in range(count):
            stage, at = index % stages, coordinates[t.block + index * t.blocks]
            yield t.mbarrier_wait_parity(loaded[stage], index // stages % 2).named("wait for the load")
            yield t.tensor_store(tiles.destination, at, ring[stage])
            yield t.bulk_commit_group().named("commit")
            if index + stages - 1 < count:
                # The stage to load again was stored one iteration ago; only the newest store may still be reading.
                yield t.bulk_wait_group(1, read=True).named("wait for the stage")
                yield from load(t, index + stages - 1)
        yield t.bulk_wait_group(0).named("wait for the stores")


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

    @program.role(threads=_HELPERS)
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
