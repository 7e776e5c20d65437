"""The schedule of gathers and scatters as a program for the simulator: a warp of each block and its stages."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.limits import MAX_GRID
from cupytma.ops.rows import ROW_STAGES
from cupytma.ops.rows_plan import GATHER, SCATTER_ADD, RowsPlan, RowStages, plan_rows
from cupytma.ops.simulated_copy import span_of
from cupytma.sim.program import Operation, Program, ProgramArray, Thread
from cupytma.sim.program.errors import check_range
from cupytma.tensormap.arrays import view_of

Body = Generator[Operation, Any, None]


def rows_program(
    operation: str, source: Any, destination: Any, index: Any, *, blocks: int = 2, stages: int = ROW_STAGES
) -> Program:
    """What `cupytma.gather_rows` and its kin launch for bulk copies, as a program run under many schedules.

    Stages are dealt to the blocks in turn. Each thread of a block's warp moves one row of a stage; rows that lie
    together move by one copy of the first thread. Indices out of range leave their rows out.

    Parameters
    ----------
    operation : str
        ``"gather"``, ``"scatter"`` or ``"scatter_add"``.
    source, destination, index : numpy.ndarray
        As `cupytma.ops.plan_rows` takes their views.
    blocks : int
        Of the grid; no more than there are stages to fill are used.
    stages : int
        In flight in a block, at least 2.

    Returns
    -------
    Program
        Its arrays are the bytes from the first to the last of each array, ``source`` and ``destination``.

    Raises
    ------
    ArrayError
        If the rows are moved by ordinary loads and stores, or not at all; for the rest as `cupytma.gather_rows`.
    ProgramError
        For numbers of blocks or stages that make no launch.
    """
    check_range("blocks", blocks, 1, MAX_GRID[0])
    check_range("stages", stages, 2, 64)
    plan = plan_rows(operation, view_of(source), view_of(destination), view_of(index))
    if plan.stages is None:
        raise ArrayError(f"no bulk copies move these rows, and there is no schedule of them: {plan.reason}")
    program = Program(f"{operation}_rows", blocks=min(blocks, plan.items))
    arrays = []
    for name, array in (("source", source), ("destination", destination)):
        memory, low = span_of(array)
        arrays.append((program.global_array(name, memory, address=low), view_of(array).address - low))
    chosen = np.asarray(index, np.int64)
    chosen = np.where((chosen >= 0) & (chosen < plan.table_rows), chosen, -1)
    _Schedule(program, plan, plan.stages, arrays, chosen, stages).add()
    return program


class _Schedule:
    """The warp of the kernel ``move_rows``, each thread a thread of the model."""

    def __init__(
        self, program: Program, plan: RowsPlan, shape: RowStages, arrays: list[tuple[ProgramArray, int]], chosen: Any,
        stages: int,
    ) -> None:
        self.program, self.plan, self.shape, self.chosen, self.stages = program, plan, shape, chosen, stages
        (self.source, self.source_start), (self.destination, self.destination_start) = arrays
        self.gathers = plan.operation == GATHER
        dense_stride = plan.destination_stride if self.gathers else plan.source_stride
        self.together = dense_stride == plan.row_bytes == shape.slot_bytes
        self.ring = [program.shared_array(f"stage[{i}]", shape.stage_bytes) for i in range(stages)]
        self.loaded = program.mbarriers("loaded", stages)

    def add(self) -> None:
        """Give the program its one role."""

        @self.program.role(threads=self.shape.rows_per_stage)
        def mover(t: Thread) -> Body:
            count = len(range(t.block, self.plan.items, t.blocks))
            if t.index == 0:
                for barrier in self.loaded:
                    yield t.mbarrier_init(barrier, 1)
                yield t.fence_mbarrier_init().named("init fence")
            yield t.syncwarp().named("barriers are ready")
            for number in range(min(self.stages - 1, count)):
                yield from self.load(t, number)
            for number in range(count):
                barrier = self.loaded[number % self.stages]
                yield t.mbarrier_wait_parity(barrier, number // self.stages % 2).named("wait for the load")
                yield from self.store(t, number)
                yield t.bulk_commit_group().named("commit")
                if number + self.stages - 1 < count:
                    yield t.bulk_wait_group(1, read=True).named("wait for the stage")
                    yield from self.load(t, number + self.stages - 1)
            yield t.bulk_wait_group(0, read=True).named("wait for the stores")

    def item(self, t: Thread, number: int) -> tuple[int, int, int, Any]:
        """First row, offset in the row, bytes, and the rows of the table that a stage has."""
        group, piece = divmod(t.block + number * t.blocks, self.shape.pieces)
        first, offset = group * self.shape.rows_per_stage, piece * self.shape.piece_bytes
        count = min(self.shape.piece_bytes, self.plan.row_bytes - offset)
        return first, offset, count, self.chosen[first : first + self.shape.rows_per_stage]

    def load(self, t: Thread, number: int) -> Body:
        first, offset, count, rows = self.item(t, number)
        at_once = not self.gathers and self.together
        barrier = self.loaded[number % self.stages]
        if t.index == 0:
            moved = len(rows) if at_once else int((rows >= 0).sum())
            yield t.mbarrier_arrive_expect_tx(barrier, moved * count).named("announce")
        yield t.syncwarp().named("all have waited")
        if at_once:
            if t.index == 0:
                yield self.bulk_load(t, number, first, offset, len(rows) * count)
        elif t.index < len(rows) and rows[t.index] >= 0:
            row = int(rows[t.index]) if self.gathers else first + t.index
            yield self.bulk_load(t, number, row, offset, count)

    def store(self, t: Thread, number: int) -> Body:
        first, offset, count, rows = self.item(t, number)
        is_moved = t.index < len(rows) and rows[t.index] >= 0
        if self.plan.operation == SCATTER_ADD:
            for box in range(0, count, self.shape.box_bytes) if is_moved else ():
                at = (offset + box) // self.plan.word_bytes, int(rows[t.index])
                start = t.index * self.shape.slot_bytes + box
                end = start + self.shape.box_bytes
                yield t.tensor_reduce("add", self._map(), at, self.ring[number % self.stages][start:end])
        elif self.gathers and self.together and (rows >= 0).all():
            if t.index == 0:
                yield self.bulk_store(t, number, first, offset, len(rows) * count)
        elif is_moved:
            row = first + t.index if self.gathers else int(rows[t.index])
            yield self.bulk_store(t, number, row, offset, count)

    def _map(self) -> Any:
        return self.plan.tensor_map

    def bulk_load(self, t: Thread, number: int, row: int, offset: int, count: int) -> Operation:
        start = self.source_start + row * self.plan.source_stride + offset
        slot = t.index * self.shape.slot_bytes
        stage = number % self.stages
        return t.bulk_copy(
            self.ring[stage][slot : slot + count], self.source[start : start + count], self.loaded[stage]
        )

    def bulk_store(self, t: Thread, number: int, row: int, offset: int, count: int) -> Operation:
        start = self.destination_start + row * self.plan.destination_stride + offset
        slot = t.index * self.shape.slot_bytes
        return t.bulk_copy(
            self.destination[start : start + count], self.ring[number % self.stages][slot : slot + count]
        )
