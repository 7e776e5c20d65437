"""The ways in which a matrix product can be tiled, and a model of what each costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from cupytma.errors import ArrayError
from cupytma.ops.matmul_operands import Operands
from cupytma.runtime.given import shown
from cupytma.tensormap.tiling import MAX_BOX
from cupytma.words import counted

SPAN_BYTES = 128  # along K, of a stage: what one swizzled box is wide
INSTRUCTION_ROWS = 64  # of the left matrix of wgmma
PATTERN_BYTES = 1024  # after which the 128B swizzle begins again
WARPGROUP_THREADS, WARP_THREADS = 128, 32
BUFFERS = 2  # in which a consumer lays out what tensor stores write
MOST_STAGES = 12
MOST_ROUND = 16  # stages whose sums are added in float32 while the tensor cores go on
_BARRIER_BYTES = 8
RESERVED_BYTES = 1024  # of shared memory, for each block, which a multiprocessor keeps (CUDA C++ Programming Guide)
# Of a thread that loads and of one that multiplies, by how many warpgroups multiply, where a block has a multiprocessor
# for itself. All of a block's come from what its threads may have each: 168 of 384, 255 of 256.
LOADING_REGISTERS = 40
MULTIPLYING_REGISTERS = {1: 248, 2: 232}
_REGISTERS = 65536  # of a multiprocessor
_OTHER_REGISTERS = 40  # that a thread needs beside its sums

# What the model knows of a device, an H200 SXM under load; an H100 has the same but 3.35 of 4.8e12 bytes a second of
# memory. A plan knows no more of its device than its multiprocessors, so this stands for both: on an H100 products with
# few rows take longer than is said here.
_CLOCK = 1.78e9  # cycles a second
_MEMORY_BYTES = 4.25e12  # a second, from memory
_CACHE_BYTES = 12.8e12  # a second, from L2 into all multiprocessors
_LOAD_BYTES = 72  # a cycle, into one multiprocessor
_SHARED_BYTES = 128  # a cycle, of one multiprocessor's shared memory, written or read
_CLUSTERED = 10 / 11  # of the multiprocessors, that clusters of more than two blocks find places on

# What it knows of the kernels. All are fitted to times of 130 products on an H200, with _CLOCK and the first three of
# the bytes above.
_LAUNCH = 0.73e-6  # seconds that a launch takes after the one before
_FILLING = 600  # cycles until the first stage is there
_PREPARED = 0.5  # of filling, and of a shared sum: what is left where loads of weights begin before
_WRITING = 25  # cycles, for each element of the result that a thread has
_SHARING, _SENDING = 520, 44  # cycles for each block that shares a sum, and for each element that a thread has of it
# Cycles of a stage for each element that a thread adds in float32, by how many sums, or parts of one, the tensor cores
# have room for: with one they wait.
_PROMOTING = {1: 1.32, 2: 0.27}
_OUTSIDE = 2.7  # cycles of a stage for each row that is loaded from outside of an operand
_CLUSTER = 0.11  # of a stage's time, for each further block that loads are shared with: they wait for one another
_AGAIN_BYTES = 13.3e12  # a second, of weights that more blocks than one load, beside what comes from memory
_IDLE = 0.19  # of the time of memory, for a multiprocessor without a block beside each one with a block
_OVERLAP = 0.04  # of what takes less time than the rest, at the same time: what shows nevertheless


@dataclass(frozen=True, order=True)
class Configuration:
    """A way of tiling a product.

    Attributes
    ----------
    row_blocks : int
        Of 64 rows each, that one warpgroup multiplies.
    tile_columns : int
        Columns of a tile: n of wgmma.
    cluster_rows, cluster_columns : int
        Tiles that a cluster works on at the same time, whose blocks load for one another.
    split : int
        Blocks, a cluster, that each add up a part of K of one tile.
    is_ping_pong : bool
        The two warpgroups work on a tile each, in turn; else on one together.
    is_swapped : bool
        The rows are those of b transposed, and the columns those of a.
    consumers : int
        Warpgroups that multiply.
    resident : int
        Blocks for which a multiprocessor has room: those of the next product can begin while this one ends.
    """

    row_blocks: int = 1
    tile_columns: int = 128
    cluster_rows: int = 1
    cluster_columns: int = 1
    split: int = 1
    is_ping_pong: bool = False
    is_swapped: bool = False
    consumers: int = 2
    resident: int = 1

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return self.row_blocks * INSTRUCTION_ROWS * (1 if self.is_ping_pong else self.consumers)

    @property
    def threads(self) -> int:
        """Of a block: those that multiply, and a warp that loads or, for its registers, a whole warpgroup."""
        return self.consumers * WARPGROUP_THREADS + (WARPGROUP_THREADS if self.resident == 1 else WARP_THREADS)

    @property
    def sums(self) -> int:
        """That a thread which multiplies has room for, each of as many numbers as it has of a tile."""
        registers = MULTIPLYING_REGISTERS[self.consumers]
        if self.resident > 1:
            registers = min(255, _REGISTERS // (self.threads * self.resident) // 8 * 8)
        return (registers - _OTHER_REGISTERS) // (self.row_blocks * self.tile_columns // 2)

    @property
    def stage_sums(self) -> int:
        """Of those, that are of one stage, where they are added in float32: one is made while another is added."""
        return min(2, self.sums - 1)

    @property
    def promoted_parts(self) -> int:
        """Into which the columns are divided where each stage's sum is added in float32.

        Two where there is room for one sum of all of them: one part's is made while the other's is added.
        """
        return 2 if self.stage_sums == 1 and self.tile_columns % 16 == 0 else 1

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.cluster_rows * self.cluster_columns * self.split

    @property
    def stage_bytes(self) -> int:
        """Of both operands, in shared memory."""
        return (self.tile_rows + self.tile_columns) * SPAN_BYTES

    def line_bytes(self, result_bytes: int) -> int:
        """Of the result, that lie together in shared memory: half a line where a tile is no wider."""
        wide = self.is_swapped or self.tile_columns * result_bytes >= SPAN_BYTES
        return SPAN_BYTES if wide else SPAN_BYTES // 2

    def step_columns(self, result_bytes: int) -> int:
        """Columns that are laid out in shared memory at a time.

        Whole lines of the result; of the transposed one as many as a box takes and divide a tile's, or eight.
        """
        line = self.line_bytes(result_bytes) // result_bytes
        if not self.is_swapped:
            return line
        most = 8 if self.split > 1 else min(self.tile_columns, line)
        return next(step for step in range(most, 0, -8) if self.tile_columns % step == 0)

    def shared_bytes(self, stages: int, result_bytes: int) -> int:
        """Dynamic shared memory of a block; the kernel's source says what lies where, and checks it."""
        buffers = self.consumers * BUFFERS * INSTRUCTION_ROWS * self.step_columns(result_bytes) * result_bytes
        own_octets = -(-self.tile_columns // 8 // self.split)
        partial = self.split * own_octets * self.tile_rows * 8 * 4 if self.split > 1 else 0
        barriers = (2 * stages + self.consumers + 1) * _BARRIER_BYTES
        return stages * self.stage_bytes + buffers + partial + barriers + PATTERN_BYTES

    def stages(self, result_bytes: int, most_bytes: int) -> int:
        """As many as fit into a block's part of so much shared memory, at most `MOST_STAGES`."""
        fixed = self.shared_bytes(0, result_bytes)
        part = most_bytes if self.resident == 1 else (most_bytes + RESERVED_BYTES) // self.resident - RESERVED_BYTES
        return min(MOST_STAGES, (part - fixed) // (self.stage_bytes + 2 * _BARRIER_BYTES))

    def __str__(self) -> str:
        rows, columns = self.tile_rows, self.tile_columns
        together = "one warpgroup" if self.consumers == 1 else "cooperative"
        words = [f"tiles of {rows} × {columns}", "ping-pong" if self.is_ping_pong else together]
        if self.cluster_rows * self.cluster_columns > 1:
            words.append(f"clusters of {self.cluster_rows} × {self.cluster_columns}")
        if self.split > 1:
            words.append(f"K split among {counted(self.split, 'block')}")
        if self.resident > 1:
            words.append(f"{counted(self.resident, 'block')} a multiprocessor")
        if self.is_swapped:
            words.append("operands swapped")
        return ", ".join(words)


# Ways that were the fastest of some measured product or within 1 % of it, and what is like them.
_FEW_ROWS = (
    # The weights' rows, 64 at a time, and as many columns as a has rows. One cluster adds up a tile.
    *(
        Configuration(1, columns, split=split, is_swapped=True, consumers=1)
        for columns in (8, 16, 32, 64, 128)
        for split in (1, 2)
    ),
    # With static_b: the next product's blocks have room beside this one's, and load.
    *(
        Configuration(1, columns, split=split, is_swapped=True, consumers=1, resident=3)
        for columns in (8, 16, 32)
        for split in (4, 8)
    ),
    # Many weights: 128 of their rows at a time.
    *(
        Configuration(1, columns, split=split, is_swapped=True, resident=resident)
        for columns in (8, 16)
        for split, resident in ((1, 1), (2, 1), (4, 2))
    ),
)
# Small tiles, so that there is one for each multiprocessor, of 64 or 128 rows of a.
_SOME_ROWS = (
    *(Configuration(rows, columns, consumers=1) for rows, columns in ((1, 32), (1, 64), (2, 64), (1, 128))),
    *(Configuration(1, 32, consumers=consumers, resident=2) for consumers in (1, 2)),
    Configuration(1, 32),
    Configuration(2, 32, consumers=1),
)
_MANY_ROWS = (
    # 128 or 256 rows: the most products for each byte from shared memory, and with promotion what registers hold.
    *(Configuration(1, columns) for columns in (64, 96, 112, 128, 144, 160, 176, 192, 224, 256)),
    *(Configuration(2, columns) for columns in (64, 96, 112, 128)),
    # Pairs that load for one another.
    *(Configuration(1, columns, 2) for columns in (128, 192, 256)),
    Configuration(1, 256, 1, 2),
    Configuration(2, 128, 2),
    # Several tiles of a short K for each block: one is written while the next is multiplied.
    *(Configuration(rows, columns, is_ping_pong=True) for rows, columns in ((2, 64), (1, 128), (2, 128))),
    # With static_b: what is loaded before are rows.
    Configuration(1, 128, is_swapped=True),
)
CONFIGURATIONS = _SOME_ROWS + _FEW_ROWS + _MANY_ROWS  # of equals the one that is not swapped was the faster
_LEGAL: dict[str, tuple[int, ...]] = {
    "row_blocks": (1, 2, 4),
    "tile_columns": tuple(range(8, 257, 8)),
    **dict.fromkeys(("cluster_rows", "cluster_columns"), (1, 2, 4, 8)),
    "split": tuple(range(1, 9)),
    **dict.fromkeys(("is_ping_pong", "is_swapped"), (False, True)),
    "consumers": (1, 2),
    "resident": (1, 2, 3, 4),
}
_FITTED_WAVES = 4  # for which tiles are made as wide as fills them
_MOST_CLUSTER = 8  # blocks of a cluster, on every device


def _illegal(configuration: Configuration) -> str:
    """What no configuration may be."""
    for name, legal in _LEGAL.items():
        value = getattr(configuration, name)
        if type(value) is not type(legal[0]) or value not in legal:
            return f"{name} = {shown(value)} is none of {', '.join(map(str, legal))}"
    return ""


def problem_with(configuration: Configuration, operands: Operands, is_promoted: bool, most_bytes: int) -> str:
    """Why a product cannot be tiled in a way; empty where it can."""
    c = configuration
    if problem := _illegal(c):
        return problem
    if c.sums < 1 + is_promoted:
        return f"a thread has no registers for {1 + is_promoted} × {c.row_blocks * c.tile_columns // 2} accumulators"
    if c.is_ping_pong and c.consumers == 1:
        return "one warpgroup takes no turns"
    if c.cluster > _MOST_CLUSTER:
        return f"{c.cluster} blocks are more than a cluster has, {_MOST_CLUSTER}"
    if c.split > 1 and (c.is_ping_pong or c.cluster != c.split or not c.is_swapped):
        return "K is split in swapped, cooperative tiles without other clusters"
    if not c.is_swapped and c.tile_columns * operands.result_bytes < (line := c.line_bytes(operands.result_bytes)):
        return f"rows of the result's tile are shorter than the {line} B that are written at a time"
    rows, columns = (operands.b, operands.a) if c.is_swapped else (operands.a, operands.b)
    for matrix, extent, parts in ((rows, c.tile_rows, c.cluster_columns), (columns, c.tile_columns, c.cluster_rows)):
        if extent % (parts * (INSTRUCTION_ROWS if matrix.is_mn_major else 8)):
            return f"{extent} rows of an operand cannot be loaded in {parts} parts"
        if not matrix.is_mn_major and extent > parts * MAX_BOX:
            return f"{extent // parts} rows of an operand are more than a box has, {MAX_BOX}"
    if c.stages(operands.result_bytes, most_bytes) < 2:
        return "two stages do not fit into shared memory"
    return ""


def round_of(depth_blocks: int) -> int:
    """Stages of a round, of so many along K: rounds are waited for at their end, and stages that fill none at once."""
    return min(range(MOST_ROUND, 1, -2), key=lambda stages: depth_blocks // stages + depth_blocks % stages)


def tiles_of(configuration: Configuration, operands: Operands) -> tuple[int, int]:
    """Rows and columns of clusters' tiles."""
    c = configuration
    rows, columns = (operands.n, operands.m) if c.is_swapped else (operands.m, operands.n)
    return -(-rows // (c.tile_rows * c.cluster_rows)), -(-columns // (c.tile_columns * c.cluster_columns))


@dataclass(frozen=True)
class Cost:
    """What the model expects of a product.

    Attributes
    ----------
    seconds : float
    waves : int
        Rounds of tiles that are worked on at the same time.
    flops : int
        Of the product: two for each of M × N × K.
    bytes : int
        Of the operands and the result, each once.
    floor_seconds : float
        What it takes at least: the larger of what its flops take at the tensor cores' rate, and its bytes at memory's.
    """

    seconds: float
    waves: int
    flops: int
    bytes: int
    floor_seconds: float


def _stage_cycles(c: Configuration, operands: Operands, is_promoted: bool) -> float:
    """Of one block, alone on a multiprocessor: whatever is the slowest of the tensor cores, shared memory and loads."""
    kind, instructions = operands.a.type, c.tile_rows // INSTRUCTION_ROWS
    rows, columns = (operands.n, operands.m) if c.is_swapped else (operands.m, operands.n)
    row_tiles, column_tiles = tiles_of(c, operands)
    multiplied = c.tile_rows * c.tile_columns * SPAN_BYTES / kind.bytes / kind.multiply_adds
    # wgmma reads both operands from shared memory, which loads write once; the left one for each part of the columns.
    parts = c.promoted_parts if is_promoted else 1
    passing = instructions * (INSTRUCTION_ROWS * parts + c.tile_columns) + c.tile_rows + c.tile_columns
    outside = [
        max(0.0, extent - whole / max(1, tiles)) / parts
        for extent, whole, tiles, parts in (
            (c.tile_rows, rows, row_tiles * c.cluster_rows, c.cluster_columns),
            (c.tile_columns, columns, column_tiles * c.cluster_columns, c.cluster_rows),
        )
    ]
    cycles = max(
        multiplied, passing * SPAN_BYTES / _SHARED_BYTES, _loaded(c) / _LOAD_BYTES + _OUTSIDE * sum(outside)
    )
    if is_promoted:
        cycles += _PROMOTING[max(parts, c.stage_sums)] * _elements(c)
    return cycles * (1 + _CLUSTER * (c.cluster_rows * c.cluster_columns - 1))


def _loaded(c: Configuration) -> float:
    """Bytes that a block loads for a stage, its share of what a cluster shares."""
    return SPAN_BYTES * (c.tile_rows / c.cluster_columns + c.tile_columns / c.cluster_rows)


def _elements(c: Configuration) -> int:
    """Of a tile, that a thread has."""
    return c.row_blocks * c.tile_columns // 2


def cost_of(
    configuration: Configuration, operands: Operands, is_promoted: bool, multiprocessors: int, is_static: bool = False
) -> Cost:
    """What a product costs, by the model, where b is cold in L2.

    Parameters
    ----------
    configuration : Configuration
    operands : Operands
    is_promoted : bool
        Each stage's sum is added in float32.
    multiprocessors : int
    is_static : bool
        Loads of b begin before the kernel before this one has ended.
    """
    c, o, kind = configuration, operands, operands.a.type
    row_tiles, column_tiles = tiles_of(c, o)
    blocks = row_tiles * column_tiles * c.cluster
    usable = multiprocessors if c.cluster <= 2 else int(multiprocessors * _CLUSTERED)
    places = max(1, usable * c.resident // c.cluster) * c.cluster
    waves = -(-blocks // places)
    # Of the blocks of a wave, on one multiprocessor.
    neighbours = min(max(c.resident, -(-c.cluster // multiprocessors)), -(-blocks // multiprocessors))
    depth_blocks = -(-o.k * kind.bytes // SPAN_BYTES)
    # Weights are loaded first where they are the rows.
    is_prepared = is_static and c.is_swapped
    filling = _FILLING * (_PREPARED if is_prepared else 1)
    writing = _WRITING * _elements(c) / c.split
    sharing = _SHARING * c.split + _SENDING * _elements(c) if c.split > 1 else 0
    last_sharing = sharing * (_PREPARED if is_prepared and c.resident > 1 else 1)
    # Blocks that share a sum have one tile each, and fill their stages in every wave; others go on loading.
    multiplying = waves * -(-depth_blocks // c.split) * neighbours * _stage_cycles(c, o, is_promoted)
    ending = max(0, waves - 1) * (sharing + (_FILLING if c.split > 1 else 0)) + last_sharing
    ending += writing * (1 if c.is_ping_pong else waves)
    computing = (multiplying + ending) / _CLOCK

    flops = 2 * o.m * o.n * o.k
    size = (o.m + o.n) * o.k * kind.bytes + o.m * o.n * o.result_bytes
    # In several waves, loads of the next product's weights are in the place of those that are missing in the last.
    idle = 0 if not blocks or (is_prepared and waves > 1) else waves * places / blocks - 1
    readers = column_tiles * c.cluster_columns if c.is_swapped else row_tiles * c.cluster_rows
    again = o.n * o.k * kind.bytes * max(0, readers - 1) / _AGAIN_BYTES
    memory = size / _MEMORY_BYTES * (1 + _IDLE * idle) + again
    traffic = blocks / c.split * depth_blocks * _loaded(c) / _CACHE_BYTES
    loading = max(memory, traffic) + (writing + last_sharing) / _CLOCK
    longer, shorter = max(computing, loading), min(computing, loading)
    seconds = _LAUNCH + filling / _CLOCK + longer + _OVERLAP * shorter
    peak = 2 * kind.multiply_adds * multiprocessors * _CLOCK
    return Cost(seconds, waves, flops, size, max(flops / peak, size / _MEMORY_BYTES))


def _fitted(operands: Operands, multiprocessors: int) -> Iterator[Configuration]:
    """Ways that are as wide as a product asks for.

    So wide that tiles of one wave, or a few, are as many as the multiprocessors; or as a has rows, or half of them.
    """
    for row_blocks, consumers, is_swapped in product((1, 2), (2, 1), (False, True)):
        rows, columns = (operands.n, operands.m) if is_swapped else (operands.m, operands.n)
        row_tiles = -(-rows // (row_blocks * consumers * INSTRUCTION_ROWS))
        for waves in range(1, _FITTED_WAVES + 1):
            if at_once := multiprocessors * waves // max(1, row_tiles):
                yield Configuration(row_blocks, _width(columns, at_once), is_swapped=is_swapped, consumers=consumers)
    for tiles, split in product((1, 2), (1, 2, 3)):
        width = _width(operands.m, tiles)
        yield Configuration(1, width, split=split, is_swapped=True, consumers=1)
        yield Configuration(1, width, split=split + 1, is_swapped=True, consumers=1, resident=3)


def _width(columns: int, tiles: int) -> int:
    """Of so many tiles for so many columns: a multiple of eight."""
    return 8 * -(-columns // (8 * tiles))


def possible(
    operands: Operands, is_promoted: bool, most_bytes: int, multiprocessors: int
) -> Iterator[Configuration]:
    """The table's ways of tiling a product, and those that are as wide as it asks for."""
    ways = dict.fromkeys((*CONFIGURATIONS, *_fitted(operands, multiprocessors)))
    return (c for c in ways if not problem_with(c, operands, is_promoted, most_bytes))


def choose(
    operands: Operands, is_promoted: bool, multiprocessors: int, most_bytes: int, is_static: bool = False
) -> Configuration:
    """The cheapest way by the model; of equals the first in the table."""
    return min(
        possible(operands, is_promoted, most_bytes, multiprocessors),
        key=lambda c: cost_of(c, operands, is_promoted, multiprocessors, is_static).seconds,
    )


def check_configuration(
    configuration: object, operands: Operands, is_promoted: bool, most_bytes: int
) -> Configuration:
    """A way of tiling that a caller asks for.

    Raises
    ------
    ArrayError
        If it is none, or not for this product.
    """
    if not isinstance(configuration, Configuration):
        raise ArrayError(
            f"configuration = {shown(configuration)} is no Configuration of cupytma.ops.matmul_configuration"
        )
    if problem := _illegal(configuration):  # which has no words of its own
        raise ArrayError(f"configuration: {problem}")
    if problem := problem_with(configuration, operands, is_promoted, most_bytes):
        raise ArrayError(f"this product cannot be made in {configuration}: {problem}")
    return configuration
