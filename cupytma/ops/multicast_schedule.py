"""The schedule of a copy to many places as a program for the simulator: clusters that share each load."""

from __future__ import annotations

from math import prod
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.multicast import MULTICAST_STAGES
from cupytma.ops.multicast_plan import MulticastTiles, plan_multicast
from cupytma.ops.program_parts import Body, add_rest, declare_memory, meet
from cupytma.sim.program import Program, Thread
from cupytma.sim.program.errors import check_range
from cupytma.tensormap.arrays import view_of


def multicast_program(
    source: Any, destination: Any, *, clusters: int = 1, stages: int = MULTICAST_STAGES
) -> Program:
    """What `cupytma.multicast_copy` launches for two arrays, as a program that the simulator runs under many schedules.

    Loads are dealt to the clusters in turn. One thread of each block keeps `stages` tiles in flight: it announces a
    load to its own mbarrier and tells the block that starts it, and that block loads the tile for all of them.

    Parameters
    ----------
    source, destination : numpy.ndarray
        As for `cupytma.multicast_copy`.
    clusters : int
        Of the grid; no more than there are loads are used.
    stages : int
        Tiles in flight in a block, at least 2.

    Returns
    -------
    Program
        Its arrays are those of `cupytma.ops.copy_program`.

    Raises
    ------
    ArrayError
        As `cupytma.multicast_copy`; or if no tile goes by multicast from source to destination.
    ProgramError
        For numbers of clusters or stages that make no launch.
    """
    check_range("clusters", clusters, 1, 2**20)
    check_range("stages", stages, 2, 64)
    plan = plan_multicast(view_of(source), view_of(destination))
    tiles = plan.tiles
    if tiles is None or plan.before is not None:
        raise ArrayError(f"no tile goes by multicast from this source, and there is no schedule of it: {plan.reason}")
    blocks = min(clusters, tiles.items) * tiles.cluster
    program = Program("multicast copy", blocks=blocks, cluster=tiles.cluster)
    memory = declare_memory(program, source=source, destination=destination)
    _add_tiles(program, tiles, stages)
    if plan.rest is not None:
        add_rest(program, plan.rest, memory, meets=True)
    return program


def _add_tiles(program: Program, tiles: MulticastTiles, stages: int) -> None:
    """The thread that moves tiles, as ``copy_tiles`` of the kernel."""
    tile_bytes, cluster = tiles.source.box_bytes, tiles.cluster
    ring = [program.shared_array(f"stage[{i}]", tile_bytes) for i in range(stages)]
    loaded, released = program.mbarriers("loaded", stages), program.mbarriers("released", stages)

    def item(t: Thread, index: int) -> tuple[int, int]:
        tile, group = divmod(t.block // cluster + index * (t.blocks // cluster), tiles.groups)
        return tile, group * cluster + t.rank

    def load(t: Thread, index: int) -> Body:
        stage, issuer = index % stages, index % stages % cluster
        yield t.mbarrier_arrive_expect_tx(loaded[stage], tile_bytes).named("announce")
        yield t.mbarrier_arrive(released[stage].mapa(issuer), scope="cluster").named("release the stage")
        if t.rank == issuer:
            wait = t.mbarrier_wait_parity(released[stage], index // stages % 2, scope="cluster")
            yield wait.named("wait for the other blocks")
            at = tiles.start(item(t, index)[0])
            yield t.tensor_load(ring[stage], tiles.source, at, loaded[stage], cta_mask=(1 << cluster) - 1)

    @program.role
    def copier(t: Thread) -> Body:
        first, step = t.block // cluster, t.blocks // cluster
        count = len(range(first, tiles.items, step))
        for stage in range(stages):
            yield t.mbarrier_init(loaded[stage], 1)
            yield t.mbarrier_init(released[stage], cluster)
        yield t.fence_mbarrier_init().named("init fence")
        yield from meet(t, "first barrier")
        for index in range(min(stages - 1, count)):
            yield from load(t, index)
        for index in range(count):
            stage = index % stages
            wait = t.mbarrier_wait_parity(loaded[stage], index // stages % 2, scope="cluster")
            yield wait.named("wait for the load")
            tile, copy = item(t, index)
            if copy < prod(tiles.copies):
                yield t.tensor_store(tiles.destination, tiles.place(tile, copy), ring[stage])
            yield t.bulk_commit_group().named("commit")
            if index + stages - 1 < count:
                yield t.bulk_wait_group(1, read=True).named("wait for the stage")
                yield from load(t, index + stages - 1)
        yield t.bulk_wait_group(0).named("wait for the stores")
        yield from meet(t, "last barrier")

