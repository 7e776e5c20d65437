"""The copy kernel's schedule as a program for the simulator: what its blocks do, with the synchronisation they use."""

from __future__ import annotations

from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import STAGES
from cupytma.ops.copy_plan import TilePlan, plan_copy
from cupytma.ops.program_parts import Body, add_rest, declare_memory
from cupytma.sim.program import Program, Thread
from cupytma.sim.program.errors import check_range
from cupytma.tensormap.arrays import view_of


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
