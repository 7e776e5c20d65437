"""Gathers and scatters of rows on the simulator: the stages of the GPU's plan, on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupytma import sim
from cupytma.errors import SimulationError
from cupytma.limits import UNIT
from cupytma.ops.index_errors import out_of_range
from cupytma.ops.rows_plan import GATHER, QUAD, SCATTER, SCATTER_ADD, RowsPlan, check_mode, plan_rows
from cupytma.ops.simulated_copy import Bytes, memory_at, span_of
from cupytma.sim.reductions import combine, reduction
from cupytma.tensormap.arrays import view_of


def simulate_gather_rows(x: Any, index: Any, out: Any = None, *, mode: str = "raise", quads: bool = False) -> Any:
    """Take rows of a numpy array by index as `cupytma.gather_rows` does it on a GPU, stage by stage.

    Parameters
    ----------
    x, index, out, mode
        As for `cupytma.gather_rows`, numpy arrays.
    quads : bool
        As on GPUs with ``tile::gather4``, whose behaviour is known from documents alone.

    Returns
    -------
    numpy.ndarray
        ``out``.

    Raises
    ------
    ArrayError
        As `cupytma.gather_rows`.
    RowIndexError
        For an index out of range, once all other rows have been moved.
    """
    if out is None:
        out = np.empty((*view_of(index).shape, *view_of(x).shape[1:]), x.dtype)
    _simulate(GATHER, mode, x, out, index, quads)
    return out


def simulate_scatter_rows(dst: Any, index: Any, src: Any, *, mode: str = "raise", quads: bool = False) -> Any:
    """Replace rows of a numpy array by index as `cupytma.scatter_rows` does it; see `simulate_gather_rows`."""
    _simulate(SCATTER, mode, src, dst, index, quads)
    return dst


def simulate_scatter_add_rows(dst: Any, index: Any, src: Any, *, mode: str = "raise") -> Any:
    """Add rows of a numpy array by index as `cupytma.scatter_add_rows` does it; see `simulate_gather_rows`."""
    _simulate(SCATTER_ADD, mode, src, dst, index, False)
    return dst


def _simulate(operation: str, mode: str, source: Any, destination: Any, index: Any, quads: bool) -> None:
    check_mode(mode)
    plan = plan_rows(operation, view_of(source), view_of(destination), view_of(index), quads=quads)
    if plan.is_empty:
        return
    chosen = np.asarray(index, np.int64)
    wrong = (chosen < 0) | (chosen >= plan.table_rows)
    rows = np.where(wrong, np.clip(chosen, 0, plan.table_rows - 1) if mode == "clip" else -1, chosen)
    mover = _Stages(plan, source, destination) if plan.stages is not None else _Words(plan, source, destination)
    mover.move(rows)
    if mode == "raise" and wrong.any():
        position = int(np.flatnonzero(wrong)[0])
        raise out_of_range(f"{operation}_rows", plan.table_rows, position, int(chosen[position]))


class _Words:
    """Rows by ordinary loads and stores."""

    def __init__(self, plan: RowsPlan, source: Any, destination: Any) -> None:
        self.plan = plan
        self.source, self.destination = view_of(source).address, view_of(destination).address

    def move(self, rows: Any) -> None:
        plan = self.plan
        for position, row in enumerate(rows.tolist()):
            if row < 0:
                continue
            taken, given = (row, position) if plan.operation == GATHER else (position, row)
            new = memory_at(self.source + taken * plan.source_stride, (plan.row_bytes,), (1,))
            place = memory_at(self.destination + given * plan.destination_stride, (plan.row_bytes,), (1,))
            place[:] = new if plan.data_type is None else combine(reduction(plan.data_type, "add"), place.copy(), new)


class _Stages:
    """Rows by bulk copies, a stage at a time."""

    def __init__(self, plan: RowsPlan, source: Any, destination: Any) -> None:
        if plan.stages is None:
            raise SimulationError("the plan has no stages; ordinary loads and stores move its rows")
        self.plan, self.stages = plan, plan.stages
        self.gathers = plan.operation == GATHER
        self.addresses = view_of(source).address, view_of(destination).address
        self.table: tuple[Bytes, int] = span_of(source if self.gathers else destination)
        dense_stride = plan.destination_stride if self.gathers else plan.source_stride
        self.together = dense_stride == plan.row_bytes == self.stages.slot_bytes
        self.shared = np.empty(self.stages.stage_bytes, np.uint8)

    def move(self, rows: Any) -> None:
        plan, stages = self.plan, self.stages
        for item in range(plan.items):
            group, piece = divmod(item, stages.pieces)
            first, offset = group * stages.rows_per_stage, piece * stages.piece_bytes
            chosen = rows[first : first + stages.rows_per_stage]
            bytes_ = min(stages.piece_bytes, plan.row_bytes - offset)
            self.shared[:] = 0xEE  # what an earlier stage has left
            self._load(first, chosen, offset, bytes_)
            self._store(first, chosen, offset, bytes_)

    def _load(self, first: int, chosen: Any, offset: int, count: int) -> None:
        if not self.gathers and self.together:
            self._bulk_load(0, first, offset, len(chosen) * count)
            return
        moved = self._quads(chosen) if self.gathers else set()
        for lane in sorted(moved)[::QUAD]:
            rows = (int(row) for row in chosen[lane : lane + QUAD])
            sim.load(
                self._map(), (0, *rows), memory=self.table[0], base=self.table[1], shared=self.shared,
                shared_offset=lane * self.stages.slot_bytes, mode="tile::gather4",
            )
        for lane, row in enumerate(chosen.tolist()):
            if row >= 0 and lane not in moved:
                self._bulk_load(lane, row if self.gathers else first + lane, offset, count)

    def _store(self, first: int, chosen: Any, offset: int, count: int) -> None:
        if self.plan.operation == SCATTER_ADD:
            self._add(chosen, offset, count)
            return
        if self.gathers and self.together and (chosen >= 0).all():
            self._bulk_store(0, first, offset, len(chosen) * count)
            return
        moved = set() if self.gathers else self._quads(chosen)
        for lane in sorted(moved)[::QUAD]:
            rows = (int(row) for row in chosen[lane : lane + QUAD])
            sim.store(
                self._map(), (0, *rows), memory=self.table[0], base=self.table[1], shared=self.shared,
                shared_offset=lane * self.stages.slot_bytes, mode="tile::scatter4",
            )
        for lane, row in enumerate(chosen.tolist()):
            if row >= 0 and lane not in moved:
                self._bulk_store(lane, first + lane if self.gathers else row, offset, count)

    def _add(self, chosen: Any, offset: int, count: int) -> None:
        for lane, row in enumerate(chosen.tolist()):
            for box in range(0, count, self.stages.box_bytes) if row >= 0 else ():
                sim.reduce(
                    self._map(), "add", ((offset + box) // self.plan.word_bytes, row), memory=self.table[0],
                    base=self.table[1], shared=self.shared, shared_offset=lane * self.stages.slot_bytes + box,
                )

    def _quads(self, chosen: Any) -> set[int]:
        """The lanes whose rows move four at a time: aligned groups of four without an index out of range."""
        if not self.plan.quads:
            return set()
        starts = range(0, len(chosen) - QUAD + 1, QUAD)
        whole = [start for start in starts if (chosen[start : start + QUAD] >= 0).all()]
        return {start + i for start in whole for i in range(QUAD)}

    def _map(self) -> Any:
        return self.plan.tensor_map

    def _bulk_load(self, lane: int, row: int, offset: int, count: int) -> None:
        address = self.addresses[0] + row * self.plan.source_stride + offset
        self._slot(lane, address, count)[:] = memory_at(address, (count,), (1,))

    def _bulk_store(self, lane: int, row: int, offset: int, count: int) -> None:
        address = self.addresses[1] + row * self.plan.destination_stride + offset
        memory_at(address, (count,), (1,))[:] = self._slot(lane, address, count)

    def _slot(self, lane: int, address: int, count: int) -> Bytes:
        """A row's bytes in shared memory, for a bulk copy from or to an address."""
        start = lane * self.stages.slot_bytes
        if any(number % UNIT for number in (start, address, count)):
            raise sim.MisalignedAddress(f"a bulk copy of {count} B at {address:#x}, {start} B into a stage")
        part: Bytes = self.shared[start : start + count]
        if part.size != count:
            raise sim.SharedOverrun(f"{count} B from {start} B into a stage of {self.shared.size} B")
        return part
