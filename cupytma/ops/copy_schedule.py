"""The copy kernel's schedule as a program for the simulator: what its blocks do, with the synchronisation they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cupytma.errors import ArrayError
from cupytma.limits import MAX_GRID
from cupytma.ops.copy_launches import STAGES
from cupytma.ops.copy_plan import CHUNK_BYTES, CHUNKS_PER_BLOCK, BulkPlan, TilePlan, plan_copy
from cupytma.ops.program_parts import Body, add_rest, declare_memory
from cupytma.sim.program import Program, ProgramArray, Thread
from cupytma.sim.program.errors import check_range
from cupytma.tensormap.arrays import view_of


def copy_program(source: Any, destination: Any, *, blocks: int = 2, stages: int = STAGES) -> Program:
    """What `cupytma.copy` launches for two arrays, as a program that the simulator runs under many schedules.

    Tiles are dealt to the blocks in turn; one thread of each block keeps `stages` tiles in flight, loading ahead of the
    stores; other threads move the bytes that no tensor map may move. A launch on a GPU has a block for each tile. One
    run goes in chunks by bulk copies, a warp for each. Memory is a copy of the arrays' at the start.

    Parameters
    ----------
    source, destination : numpy.ndarray
        Of the same shape and dtype, of any strides; they may not overlap.
    blocks : int
        Of the grid; no more than there are tiles are used, and for one run as many as its chunks need.
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
    check_range("blocks", blocks, 1, MAX_GRID[0])
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
    program = Program("copy", blocks=grid if plan.bulk is None else plan.bulk.blocks)
    memory = declare_memory(program, source=source, destination=destination)
    if plan.bulk is not None:
        _add_bulk(program, plan.bulk, memory)
    if plan.tiles is not None:
        _add_tiles(program, plan.tiles, stages)
    if plan.rest is not None:
        add_rest(program, plan.rest, memory)
    return program


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
        yield t.bulk_wait_group(0, read=True).named("wait for the stores")


def _add_bulk(program: Program, bulk: BulkPlan, memory: Sequence[ProgramArray]) -> None:
    """The threads of ``bulk_copy``: one of each warp moves a chunk, others of the first the bytes after the units."""
    chunks = [program.shared_array(f"chunk[{i}]", CHUNK_BYTES) for i in range(CHUNKS_PER_BLOCK)]
    loaded = program.mbarriers("loaded", CHUNKS_PER_BLOCK)
    source, destination = (
        array[place - array.address : place - array.address + bulk.bytes]
        for array, place in zip(memory, (bulk.source, bulk.destination), strict=True)
    )

    @program.role(threads=CHUNKS_PER_BLOCK)
    def copier(t: Thread) -> Body:
        number = t.block * CHUNKS_PER_BLOCK + t.index
        if number < bulk.chunks:
            chunk, barrier, first = chunks[t.index], loaded[t.index], number * CHUNK_BYTES
            last = min(first + CHUNK_BYTES, bulk.whole)
            yield t.mbarrier_init(barrier, 1)
            yield t.fence_mbarrier_init().named("init fence")
            yield t.mbarrier_arrive_expect_tx(barrier, last - first).named("announce")
            yield t.bulk_copy(chunk[: last - first], source[first:last], barrier)
            yield t.mbarrier_wait_parity(barrier, 0).named("wait for the load")
            yield t.bulk_copy(destination[first:last], chunk[: last - first])
            yield t.bulk_commit_group().named("commit")
            yield t.bulk_wait_group(0, read=True).named("wait for the stores")

    @program.role
    def helper(t: Thread) -> Body:
        if t.block == 0 and bulk.whole < bulk.bytes:
            values = yield t.read_global(source[bulk.whole : bulk.bytes])
            yield t.write_global(destination[bulk.whole : bulk.bytes], values)
