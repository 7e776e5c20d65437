"""The schedule of a vector combined with an array as a program for the simulator: clusters, stripes and a ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.broadcast import BROADCAST_STAGES
from cupytma.ops.broadcast_plan import OPERATIONS, ElementRegion, StripePlan, axis_of, plan_broadcast
from cupytma.ops.program_parts import HELPERS, Body, declare_memory, meet, places_of
from cupytma.runtime.given import shown
from cupytma.sim.program import Program, ProgramArray, Thread
from cupytma.sim.program.errors import check_range
from cupytma.tensormap.arrays import view_of

# The kernel's combining warps, as threads of the model.
_WARPS = 2


def combine(operation: str, one: Any, other: Any) -> Any:
    """An operation on numpy arrays, as the kernels have it.

    Raises
    ------
    ArrayError
        If there is no such operation.
    """
    if operation not in OPERATIONS:
        raise ArrayError(f"operation = {shown(operation)}: there is {', '.join(OPERATIONS)}")
    with np.errstate(all="ignore"):
        return getattr(np, OPERATIONS[operation])(one, other)  # numpy's names are the kernels' own


def broadcast_program(
    operation: str, source: Any, vector: Any, destination: Any, *, axis: int = -1, parts: int = 1,
    stages: int = BROADCAST_STAGES,
) -> Program:
    """What `cupytma.broadcast_add` and its kin launch, as a program that the simulator runs under many schedules.

    Each stripe has `parts` clusters. The blocks of a cluster share the loads of the stripe's piece of the vector, which
    go to all of them; then tiles are dealt to the blocks. One thread of each block keeps `stages` tiles in flight,
    others combine them where they are.

    Parameters
    ----------
    operation : str
        ``"add"``, ``"mul"``, ``"min"`` or ``"max"``.
    source, vector, destination : numpy.ndarray
        As for `cupytma.broadcast_add`.
    axis : int
    parts : int
        Clusters of each stripe.
    stages : int
        Tiles in flight in a block, at least 2.

    Returns
    -------
    Program
        Its arrays are the bytes from the first to the last of each array, ``source``, ``vector`` and ``destination``;
        one array ``memory`` for those that lie between one another.

    Raises
    ------
    ArrayError
        As `cupytma.broadcast_add`; or if the arrays are empty, for which nothing is launched.
    ProgramError
        For numbers of parts or stages that make no launch.
    """
    check_range("parts", parts, 1, 2**20)
    check_range("stages", stages, 2, 64)
    combine(operation, np.zeros(0), np.zeros(0))
    view = view_of(source)
    plan = plan_broadcast(view, view_of(vector), view_of(destination), axis_of(axis, len(view.shape)))
    if plan.is_empty:
        raise ArrayError("the arrays are empty, and nothing is launched for them")
    tiles = plan.tiles
    blocks, cluster = (2, 1) if tiles is None else (tiles.stripes * parts * tiles.cluster, tiles.cluster)
    program = Program(f"broadcast {operation}", blocks=blocks, cluster=cluster)
    memory = declare_memory(program, source=source, vector=vector, destination=destination)
    if tiles is not None:
        _Schedule(program, operation, tiles, np.asarray(source).dtype, stages).add()
    if plan.rest is not None:
        _add_rest(program, operation, plan.rest, memory, np.asarray(source).dtype, meets=tiles is not None)
    return program


class _Schedule:
    """The threads of the kernel that move tiles, and those that combine them."""

    def __init__(self, program: Program, operation: str, tiles: StripePlan, dtype: np.dtype[Any], stages: int) -> None:
        self.program, self.operation, self.tiles, self.stages = program, operation, tiles, stages
        self.piece = program.shared_array("piece", tiles.vector_boxes * tiles.vector_box, dtype)
        elements = tiles.source.box_bytes // tiles.itemsize
        self.ring = [program.shared_array(f"stage[{i}]", elements, dtype) for i in range(stages)]
        self.loaded, self.combined = program.mbarriers("loaded", stages), program.mbarriers("combined", stages)
        self.vector = program.mbarrier("vector loaded")

    def add(self) -> None:
        """Give the program its roles."""
        self.program.role(self.mover, name="mover")
        self.program.role(self.combiner, name="combiner", threads=_WARPS)

    def share(self, t: Thread) -> tuple[int, list[int]]:
        """The stripe of a block, and its tiles."""
        number, cluster = t.block // t.cluster, t.cluster
        part, stripe = divmod(number, self.tiles.stripes)
        parts = t.blocks // cluster // self.tiles.stripes
        stripe_step, block_step = self.tiles.steps
        blocks = range(part * cluster + t.rank, self.tiles.blocks_of(stripe), parts * cluster)
        return stripe, [stripe * stripe_step + block * block_step for block in blocks]

    def load(self, t: Thread, index: int, tile: int) -> Body:
        stage = index % self.stages
        yield t.mbarrier_arrive_expect_tx(self.loaded[stage], self.tiles.source.box_bytes).named("announce")
        yield t.tensor_load(self.ring[stage], self.tiles.source, self.tiles.start(tile), self.loaded[stage])

    def mover(self, t: Thread) -> Body:
        stripe, mine = self.share(t)
        ahead, box = self.stages - 1, self.tiles.vector_box
        for stage in range(self.stages):
            yield t.mbarrier_init(self.loaded[stage], 1)
            yield t.mbarrier_init(self.combined[stage], _WARPS)
        yield t.mbarrier_init(self.vector, 1)
        yield t.fence_mbarrier_init().named("init fence")
        yield t.mbarrier_arrive_expect_tx(self.vector, self.piece.size).named("announce the vector")
        yield from meet(t, "first barrier")
        for number in range(self.tiles.vector_boxes):
            if t.rank == number % t.cluster:
                at = stripe * self.tiles.length + number * box
                piece = self.piece[number * box : (number + 1) * box]
                yield t.tensor_load(piece, self.tiles.vector, (at,), self.vector, cta_mask=(1 << t.cluster) - 1)
        for index in range(min(ahead, len(mine))):
            yield from self.load(t, index, mine[index])
        yield t.mbarrier_wait_parity(self.vector, 0, scope="cluster")
        for index, tile in enumerate(mine):
            stage = index % self.stages
            wait = t.mbarrier_wait_parity(self.combined[stage], index // self.stages % 2)
            yield wait.named("wait for the combined tile")
            yield t.tensor_store(self.tiles.destination, self.tiles.start(tile), self.ring[stage])
            yield t.bulk_commit_group().named("commit")
            if index + ahead < len(mine):
                yield t.bulk_wait_group(1, read=True).named("wait for the stage")
                yield from self.load(t, index + ahead, mine[index + ahead])
        yield t.bulk_wait_group(0).named("wait for the stores")
        yield from meet(t, "last barrier")

    def combiner(self, t: Thread) -> Body:
        yield from meet(t, "first barrier")
        yield t.mbarrier_wait_parity(self.vector, 0, scope="cluster").named("wait for the vector")
        piece = yield t.read_shared(self.piece)
        stripe, mine = self.share(t)
        for index, tile in enumerate(mine):
            stage = index % self.stages
            part = self.ring[stage][t.index :: t.threads]
            other = piece[self.tiles.vector_indices(stripe, self.tiles.start(tile))][t.index :: t.threads]
            wait = t.mbarrier_wait_parity(self.loaded[stage], index // self.stages % 2)
            yield wait.named("wait for the load")
            values = yield t.read_shared(part)
            yield t.write_shared(part, combine(self.operation, values, other))
            yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
            yield t.mbarrier_arrive(self.combined[stage]).named("hand over")
        yield from meet(t, "last barrier")


def _add_rest(
    program: Program, operation: str, rest: ElementRegion, memory: Sequence[ProgramArray], dtype: np.dtype[Any],
    meets: bool,
) -> None:
    """The threads that combine elements by ordinary loads and stores."""
    places = [
        places_of(
            getattr(rest, name) - array.address, dtype.itemsize,
            [(step.extent, getattr(step, name)) for step in rest.steps],
        )[rest.first :]
        for name, array in zip(("source", "vector", "destination"), memory, strict=True)
    ]

    @program.role(threads=HELPERS)
    def helper(t: Thread) -> Body:
        mine = slice(t.block * t.threads + t.index, None, t.blocks * t.threads)
        if meets:
            yield from meet(t, "first barrier")
        source, vector, destination = (place[mine] for place in places)
        if destination.size:
            values = yield t.read_global(memory[0][source])
            others = yield t.read_global(memory[1][vector])
            found = combine(operation, values.view(dtype), others.view(dtype))
            yield t.write_global(memory[2][destination], found.view(np.uint8).reshape(destination.shape))
        if meets:
            yield from meet(t, "last barrier")
