"""The schedule of a matrix product as a program for the simulator: a ring in each block, clusters, tiles and sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError
from cupytma.ops.matmul_configuration import BUFFERS, INSTRUCTION_ROWS, SPAN_BYTES, Configuration
from cupytma.ops.matmul_operands import Matrix, check_operands
from cupytma.ops.matmul_plan import MatmulPlan, plan_matmul
from cupytma.ops.program_parts import Body, declare_memory, meet, places_of
from cupytma.sim.program import Program, ProgramArray, Thread
from cupytma.sim.program.errors import check_range
from cupytma.targets import DEFAULT_TARGET
from cupytma.tensormap.arrays import view_of

_SHARING_BARRIER = 3  # of all threads that multiply
Numbers = npt.NDArray[np.float32]
Offsets = npt.NDArray[np.int64]


def matmul_program(
    a: Any, b: Any, out: Any, *, configuration: Configuration | None = None, multiprocessors: int = 2,
    stages: int | None = None, static_b: bool = False,
) -> Program:
    """What `cupytma.matmul` launches, as a program that the simulator runs under many schedules.

    One thread of each block stands for the warp that loads, and one for each warpgroup that multiplies. Products are
    made of what ordinary loads read from shared memory, where the matrix descriptors of wgmma would find it.

    Parameters
    ----------
    a, b, out : numpy.ndarray
        As for `cupytma.matmul`.
    configuration : Configuration, optional
        Default: the cheapest by the model, on an H100.
    multiprocessors : int
        Blocks that run at once; clusters beyond them take their tiles later.
    stages : int
        Pieces in flight in a block, at least `Configuration.least_stages`. Default: as many as the kernel has.
    static_b : bool
        Loads of b begin first, as `Configuration.may_begin_before` says.

    Returns
    -------
    Program
        Its arrays are the bytes from the first to the last of each array, ``a``, ``b`` and ``out``.

    Raises
    ------
    ArrayError
        As `cupytma.matmul`; or if ``out`` is empty, for which nothing is launched.
    """
    operands = check_operands(view_of(a), view_of(b), view_of(out), tf32=True)
    plan = plan_matmul(
        operands, DEFAULT_TARGET, 132, configuration=configuration, static_b=static_b, fast_accumulation=True
    )
    if plan.is_empty:
        raise ArrayError("out is empty, and nothing is launched for it")
    plan = replace(plan, multiprocessors=check_range("multiprocessors", multiprocessors, 1, 2**20))
    c, cluster = plan.configuration, plan.configuration.cluster
    least = c.least_stages(operands.result_bytes, plan.has_one_tile)
    ring = plan.stages if stages is None else check_range("stages", stages, least, 64)
    clusters = plan.tiles if plan.has_one_tile else min(plan.tiles, max(1, multiprocessors // cluster))
    program = Program("matmul", blocks=clusters * cluster, cluster=cluster)
    memory = declare_memory(program, a=a, b=b, out=out)
    _Schedule(program, plan, ring, (np.asarray(a).dtype, np.asarray(b).dtype), np.asarray(out).dtype, memory[2]).add()
    return program


def element_offsets(rows: int, depth: int, size: int, is_mn_major: bool) -> Offsets:
    """Where wgmma finds the elements of an operand's part of a stage, in bytes from its start, which 1024 divides.

    K-major: rows of 128 bytes. MN-major: groups of 64 elements, a line of 128 bytes for each place along K. Under the
    128B swizzle bits 4 to 6 are changed by bits 7 to 9.

    Returns
    -------
    numpy.ndarray
        Of shape (rows, depth).

    Notes
    -----
    Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
    """
    row, k = np.meshgrid(np.arange(rows), np.arange(depth), indexing="ij")
    if is_mn_major:
        linear = row // INSTRUCTION_ROWS * depth * SPAN_BYTES + k * SPAN_BYTES + row % INSTRUCTION_ROWS * size
    else:
        linear = row * SPAN_BYTES + k * size
    return _swizzled(linear.astype(np.int64), SPAN_BYTES)


def _swizzled(linear: Offsets, span: int) -> Offsets:
    """Where the swizzle of 64 or 128 bytes puts them."""
    return linear ^ ((linear >> 7 & (span // 16 - 1)) << 4)


class _Schedule:
    """The threads of the kernel."""

    def __init__(
        self, program: Program, plan: MatmulPlan, stages: int, types: tuple[Any, Any], result: Any, out: ProgramArray
    ) -> None:
        self.program, self.plan, self.stages, self.out, self.result = program, plan, stages, out, result
        self.configuration = c = plan.configuration
        self.types = types[::-1] if c.is_swapped else types
        self.rows_map, self.columns_map, self.out_map = plan.maps()
        # Whole repetitions of the swizzle come first, so that each begins on one.
        self.rows = [program.shared_array(f"rows[{i}]", c.tile_rows * SPAN_BYTES) for i in range(stages)]
        self.columns = [program.shared_array(f"columns[{i}]", c.tile_columns * SPAN_BYTES) for i in range(stages)]
        self.step = c.step_columns(plan.operands.result_bytes)
        # With one tile, parcels and its result are laid out where the stages were.
        later = 0
        self.sent: list[list[ProgramArray]] = []
        self.partial: list[list[ProgramArray]] = []
        if c.split > 1:
            self.partial = self.parcels("partial", stages * c.stage_bytes)
        if c.sends_parcels:
            self.sent = self.parcels("sent", 0)
            later = c.sent_bytes
        size = INSTRUCTION_ROWS * self.step * plan.operands.result_bytes
        self.buffers = [
            [
                program.shared_array(
                    f"buffer[{group}][{i}]", size,
                    offset=later + (group * BUFFERS + i) * size if plan.has_one_tile else None,
                )
                for i in range(BUFFERS)
            ]
            for group in range(c.consumers)
        ]  # fmt: skip
        self.full, self.empty = program.mbarriers("full", stages), program.mbarriers("empty", stages)
        self.turn, self.summed = program.mbarriers("turn", c.consumers), program.mbarrier("partial")
        self.sharers = 1 if c.split > 1 else c.cluster_rows + c.cluster_columns - 1
        self.meets_before_writing = plan.has_one_tile and c.consumers > 1 and not c.is_ping_pong

    def add(self) -> None:
        """Give the program its roles."""
        self.program.role(self.loader, name="loader")
        self.program.role(self.consumer, name="consumer", threads=self.configuration.consumers)

    def meet_first(self, t: Thread) -> Body:
        if t.cluster > 1:
            yield from meet(t, "first barrier")
        else:
            yield t.syncthreads().named("first barrier")

    def tiles(self, t: Thread) -> list[tuple[int, int]]:
        """The first row and column of D of each tile of a block."""
        return [self.plan.tile(n, t.rank) for n in range(t.block // t.cluster, self.plan.tiles, t.blocks // t.cluster)]

    def depth(self, t: Thread) -> range:
        blocks, split = self.plan.depth_blocks, self.configuration.split
        return range(blocks * t.rank // split, blocks * (t.rank + 1) // split) if split > 1 else range(blocks)

    def loader(self, t: Thread) -> Body:
        c = self.configuration
        for stage in range(self.stages):
            yield t.mbarrier_init(self.full[stage], 1)
            yield t.mbarrier_init(self.empty[stage], (1 if c.is_ping_pong else c.consumers) * self.sharers)
        for group in range(c.consumers):
            yield t.mbarrier_init(self.turn[group], 1)
        yield t.mbarrier_init(self.summed, 1 if c.sends_parcels else max(1, (c.split - 1) * c.consumers))
        yield t.fence_mbarrier_init().named("init fence")
        if c.sends_parcels:
            own = int((self.owners() == t.rank).sum())
            expected = (c.split - 1) * own * c.tile_rows * 4
            yield t.mbarrier_arrive_expect_tx(self.summed, expected).named("announce the parts")
        yield from self.meet_first(t)
        tiles, depth = self.tiles(t), self.depth(t)
        work = [(tile, block) for tile in tiles for block in depth]
        started = min(self.stages, len(depth)) if self.plan.begins_before else 0
        for number in range(started):
            yield from self.announce(t, number)
            yield from self.load_rows(t, number, *work[number])
        for number, (tile, block) in enumerate(work):
            if number >= started:
                wait = t.mbarrier_wait_parity(
                    self.empty[number % self.stages], (number // self.stages + 1) % 2, scope="cluster"
                )
                yield wait.named("wait for an empty stage")
                yield from self.announce(t, number)
                yield from self.load_rows(t, number, tile, block)
            yield from self.load_columns(t, number, tile, block)
        if c.sends_parcels:
            yield from meet(t, "last barrier")

    def announce(self, t: Thread, number: int) -> Body:
        bytes_of_stage = self.configuration.stage_bytes
        yield t.mbarrier_arrive_expect_tx(self.full[number % self.stages], bytes_of_stage).named("announce")

    def load_rows(self, t: Thread, number: int, tile: tuple[int, int], block: int) -> Body:
        c, (row, column) = self.configuration, self.place(t)
        sharing = [row + c.cluster_rows * i for i in range(c.cluster_columns)]
        return self.load(
            t, number, block, (self.plan.rows, self.rows_map, self.rows), (tile[0], c.tile_rows), column, sharing
        )

    def load_columns(self, t: Thread, number: int, tile: tuple[int, int], block: int) -> Body:
        c, (row, column) = self.configuration, self.place(t)
        sharing = [i + c.cluster_rows * column for i in range(c.cluster_rows)]
        return self.load(
            t, number, block, (self.plan.columns, self.columns_map, self.columns), (tile[1], c.tile_columns), row,
            sharing,
        )  # fmt: skip

    def place(self, t: Thread) -> tuple[int, int]:
        """The block's row and column of the cluster, whose blocks share loads."""
        c = self.configuration
        rank = 0 if c.split > 1 else t.rank
        return rank % c.cluster_rows, rank // c.cluster_rows

    def load(
        self, t: Thread, number: int, block: int, operand: tuple[Matrix, Any, list[ProgramArray]],
        extent_of_tile: tuple[int, int], part: int, sharing: list[int],
    ) -> Body:  # fmt: skip
        """This block's share of one operand."""
        stage, (matrix, tensor_map, stages), (start, extent) = number % self.stages, operand, extent_of_tile
        shared, parts = stages[stage], len(sharing)
        share, depth = extent // parts, SPAN_BYTES // matrix.type.bytes * block
        box = INSTRUCTION_ROWS if matrix.is_mn_major else share
        mask = sum(1 << other for other in sharing) if parts > 1 else None
        for place in range(part * share, (part + 1) * share, box):
            at = (start + place, depth) if matrix.is_mn_major else (depth, start + place)
            piece = shared[place * SPAN_BYTES : (place + box) * SPAN_BYTES]
            yield t.tensor_load(piece, tensor_map, at, self.full[stage], cta_mask=mask)

    def consumer(self, t: Thread) -> Body:
        yield from self.meet_first(t)
        c, group, depth = self.configuration, t.index, self.depth(t)
        first = 0 if c.is_ping_pong else group * c.group_rows
        sent = 0
        tiles = self.tiles(t)
        for number, (row, column) in enumerate(tiles):
            if c.is_ping_pong and number % c.consumers != group:
                continue
            if c.is_ping_pong:
                parity = number // c.consumers % 2 ^ (group == 0)
                yield t.mbarrier_wait_parity(self.turn[group], parity).named("wait for the turn")
            total = np.zeros((c.group_rows, c.tile_columns), np.float32)
            for index in range(number * len(depth), (number + 1) * len(depth)):
                yield from self.add_stage(t, index, first, total, index + self.stages < len(tiles) * len(depth))
            if c.is_ping_pong:
                yield t.mbarrier_arrive(self.turn[1 - group]).named("pass the turn")
            if c.split > 1:
                yield from self.add_parts(t, total)
            elif self.meets_before_writing:
                yield t.barrier_sync(_SHARING_BARRIER, c.consumers).named("meet before writing")
            sent = yield from self.write(t, total, (row, first), column, sent)
        yield t.bulk_wait_group(0, read=True).named("wait for the stores")
        if c.sends_parcels:
            yield t.barrier_cluster_wait().named("last barrier")

    def add_stage(self, t: Thread, index: int, first: int, total: Numbers, is_loaded_again: bool) -> Body:
        stage = index % self.stages
        wait = t.mbarrier_wait_parity(self.full[stage], index // self.stages % 2, scope="cluster")
        yield wait.named("wait for a full stage")
        rows = yield t.read_shared(self.rows[stage])
        columns = yield t.read_shared(self.columns[stage])
        sharing = self.sharing(t)
        for rank in sharing if is_loaded_again or len(sharing) == 1 else ():  # other blocks may have ended
            yield t.mbarrier_arrive(self.empty[stage].mapa(rank), scope="cluster").named("release the stage")
        c = self.configuration
        left = _elements(rows, self.types[0], c.tile_rows, self.plan.rows)[first : first + len(total)]
        right = _elements(columns, self.types[1], c.tile_columns, self.plan.columns)
        total[: len(left)] += left @ right.T  # others are not written

    def sharing(self, t: Thread) -> list[int]:
        """The blocks whose loads a stage of this block is filled by."""
        c = self.configuration
        if c.split > 1:
            return [t.rank]
        row, column = t.rank % c.cluster_rows, t.rank // c.cluster_rows
        same_column = [i + c.cluster_rows * column for i in range(c.cluster_rows)]
        return same_column + [row + c.cluster_rows * i for i in range(c.cluster_columns) if i != column]

    def owners(self) -> Offsets:
        """The block, of those that share a sum, that finishes each column of a tile."""
        c = self.configuration
        return np.arange(c.tile_columns) // c.own_columns

    def add_parts(self, t: Thread, total: Numbers) -> Body:
        """Send the others their columns, and add up what they send of this block's."""
        c, owners = self.configuration, self.owners()
        own = np.flatnonzero(owners == t.rank)
        others = [(rank, np.flatnonzero(owners == rank)) for rank in range(c.split) if rank != t.rank]
        parts = {rank: total[:, columns].T for rank, columns in others if columns.size}
        yield t.barrier_sync(_SHARING_BARRIER, c.consumers).named("meet before sending")
        yield from self.send_parcels(t, parts) if c.sends_parcels else self.send_numbers(t, parts)
        if own.size:
            yield t.mbarrier_wait_parity(self.summed, 0, scope="cluster").named("wait for the parts")
        if c.sends_parcels:
            yield t.barrier_cluster_arrive().named("tell that they have come")
        whole = np.zeros((len(total), own.size), np.float32)
        for rank in range(c.split if own.size else 0):
            if rank == t.rank:
                whole += total[:, own]
            else:
                part = yield t.read_shared(self.partial[t.index][_place(rank, t.rank)][: own.size])
                whole += part.T
        total[:, own] = whole

    def send_parcels(self, t: Thread, parts: dict[int, Any]) -> Body:
        """Lay out columns for other blocks where the stages were, from where the copy engine brings them."""
        parcels = {rank: self.sent[t.index][_place(rank, t.rank)][: len(part)] for rank, part in parts.items()}
        for rank, parcel in parcels.items():
            yield t.write_shared(parcel, parts[rank])
        yield t.fence_proxy_async(space="shared::cta").named("proxy fence before sending")
        for rank, parcel in parcels.items():
            yield t.bulk_copy(self.sent_to(t, rank, len(parts[rank])), parcel, self.summed.mapa(rank)).named("send")

    def send_numbers(self, t: Thread, parts: dict[int, Any]) -> Body:
        """Write columns into other blocks' shared memory, as stores that tell an mbarrier of their bytes do."""
        for rank, part in parts.items():
            yield t.write_shared(self.sent_to(t, rank, len(part)), part)
            yield t.mbarrier_arrive(self.summed.mapa(rank), scope="cluster").named("tell of the part")

    def sent_to(self, t: Thread, rank: int, columns: int) -> ProgramArray:
        """Where another block has what this one sends it."""
        return self.partial[t.index][_place(t.rank, rank)].mapa(rank)[:columns]

    def parcels(self, name: str, offset: int) -> list[list[ProgramArray]]:
        """What each warpgroup sends each other block of a tile's sum, or gets from it: columns, one after the other."""
        c = self.configuration
        shape = c.own_columns, c.group_rows
        size = shape[0] * shape[1] * 4
        return [
            [
                self.program.shared_array(
                    f"{name}[{group}][{i}]", shape, np.float32, offset=offset + (i * c.consumers + group) * size
                )
                for i in range(c.split - 1)
            ]
            for group in range(c.consumers)
        ]

    def write(self, t: Thread, total: Numbers, rows: tuple[int, int], column: int, sent: int) -> Any:
        """Lay out and write 64 rows of a tile at a time, a step of columns after the other; returns how many were sent.

        `rows` are the tile's first, and the first of it that is written here.
        """
        c, plan = self.configuration, self.plan
        (tile, first), width = rows, c.line_bytes(plan.operands.result_bytes) // plan.operands.result_bytes
        by_unit = tile < plan.columns_by_unit if c.spare_rows else plan.is_stored_by_unit
        for block in range(first, first + len(total), INSTRUCTION_ROWS):
            for number in range(-(-c.tile_columns // self.step)):
                if c.split > 1 and number * self.step // c.own_columns != t.rank:
                    continue
                step = min(number * self.step, c.tile_columns - self.step)
                values = total[block - first :][:INSTRUCTION_ROWS, step : step + self.step].astype(self.result)
                lines = values.T if c.is_swapped else values
                at = (column + step, tile + block)  # along a row of the result, and across
                if c.is_swapped:
                    at = at[1], at[0]
                if not by_unit:
                    inside = lines[:, : max(0, c.tile_rows - block)] if c.spare_rows else lines
                    yield from self.write_elements(t, inside, at)
                    continue
                buffer = self.buffers[t.index][sent % BUFFERS]
                sent += 1
                yield t.bulk_wait_group(BUFFERS - 1, read=True).named("wait for the buffer")
                yield t.write_shared(buffer, self.laid(lines))
                yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
                size = len(lines) * c.line_bytes(plan.operands.result_bytes)
                for number_of_box, along in enumerate(range(0, lines.shape[1], width)):
                    piece = buffer[number_of_box * size :][:size]
                    if not c.spare_rows:
                        yield t.tensor_store(self.out_map, (at[0] + along, at[1]), piece)
                    elif block + along < c.tile_rows:
                        yield t.tensor_store(self.out_map, (block + along, tile // c.tile_rows, at[1]), piece)
                yield t.bulk_commit_group().named("commit")
        return sent

    def laid(self, lines: Any) -> npt.NDArray[np.uint8]:
        """Lines of the result as they lie in a buffer: boxes of a line's width, swizzled."""
        size = self.plan.operands.result_bytes
        line = self.configuration.line_bytes(size)
        width = line // size
        boxes = np.concatenate([lines[:, i : i + width] for i in range(0, lines.shape[1], width)])
        linear = np.ascontiguousarray(boxes).view(np.uint8).reshape(-1)
        found = np.empty_like(linear)
        found[_swizzled(np.arange(linear.size), line)] = linear
        return found

    def write_elements(self, t: Thread, lines: Any, at: tuple[int, int]) -> Body:
        """Ordinary stores of the elements that lie within the result."""
        o = self.plan.operands
        along, across = max(0, min(lines.shape[1], o.n - at[0])), max(0, min(lines.shape[0], o.m - at[1]))
        if along and across:
            start = o.out.address - self.out.address + at[1] * o.out.strides[0] + at[0] * o.out.strides[1]
            places = places_of(start, o.result_bytes, [(along, o.out.strides[1]), (across, o.out.strides[0])])
            bytes_of_lines = np.ascontiguousarray(lines[:across, :along]).view(np.uint8).reshape(places.shape)
            yield t.write_global(self.out[places], bytes_of_lines)


def _place(other: int, rank: int) -> int:
    """Of another block among those that are not block `rank`."""
    return other - (other > rank)


def _elements(shared: npt.NDArray[np.uint8], dtype: Any, rows: int, matrix: Matrix) -> Numbers:
    """The elements of an operand's part of a stage, as wgmma finds them."""
    size = matrix.type.bytes
    offsets = element_offsets(rows, SPAN_BYTES // size, size, matrix.is_mn_major)
    held = shared[offsets[..., None] + np.arange(size)]
    found: Numbers = np.ascontiguousarray(held).view(dtype)[..., 0].astype(np.float32)
    return found
