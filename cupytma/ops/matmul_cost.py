"""A model of what a matrix product costs in each way of tiling it."""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.ops.matmul_configuration import (
    BUFFERS,
    INSTRUCTION_ROWS,
    SPAN_BYTES,
    Configuration,
    stages_of,
    tiles_of,
)
from cupytma.ops.matmul_operands import Operands
from cupytma.targets import target

# What the model knows of a device, an H200 SXM under load; an H100 has the same but 3.35 of 4.8e12 bytes a second of
# memory. A plan knows no more of its device than its multiprocessors, so this stands for both: on an H100 products with
# few rows take longer than is said here.
_CLOCK = 1.8e9  # cycles a second
_PEAK_BYTES = 4.55e12  # a second, from memory, at most
_SHARED_BYTES = 128  # a cycle, of one multiprocessor's shared memory, written or read
_CLUSTERED = 10 / 11  # of the multiprocessors, that clusters of more than two blocks find places on
_MOST_BYTES = target("sm_90a").shared_bytes

# What it knows of the kernels there. All are fitted together to times of 206 products on an H200, and none of the
# rates alone is what the device reaches: what is said to overlap takes its part of them.
_MEMORY_BYTES = 4.150e12  # a second, from memory
_CACHE_BYTES = 8.514e12  # a second, from L2 into all multiprocessors
_TOGETHER = 0.3166  # of the loads of a from there: blocks of different weights make them at the same time
_LAUNCH = 4.641e-7  # seconds that a launch takes after the one before
_FILLING = 512.9  # cycles until the first stage is there
_PREPARED = 0.5492  # of filling: what is left where loads of weights begin before
_PLACING = 1033  # cycles that a cluster of more than two blocks takes longer to find its places
_BESIDE = 0.001421  # of a launch, placing and a shared sum: what is left where the next product's blocks have room
_AWAITING = 157.6  # cycles until a buffer that the result is laid out in is free again
_WRITING = 21.38  # cycles for each element of the result that a thread has
_SWAPPED = 1.01  # of that, where operands are swapped: of equal tiles those were mostly the slower
_SHARING, _SENDING = 416.4, 0.01738  # cycles for each block that shares a sum, and for each byte that it sends
_STAGE = 47.02  # cycles of a stage beside what is the slowest of it
_STORED = 0.3333  # of the bytes that loads write to shared memory: what is in the way of wgmma, which reads there
_LATENCY = 1858  # cycles of a load, which all stages but the one that is multiplied wait for at the same time
# Cycles of a stage for each element that a thread adds in float32, by the sums of a stage that it has room for and the
# parts that one is made in: with one of one the tensor cores wait.
_PROMOTING = {(1, 1): 1.002, (2, 1): 0.08587, (1, 2): 0.2982}
# Cycles of a stage for each row that is loaded from outside of a, and from outside of b by the last tile's blocks, if
# nothing else takes longer.
_OUTSIDE, _BEYOND = 14.78, 10.18
_CLUSTER = 0.1241  # of a stage's time, for each further block that loads are shared with: they wait for one another
_TURNS = 0.8471  # of a stage's time, where consumers take turns at tiles: one multiplies while the other writes
_AGAIN = 0.2955  # of the time of weights from memory, for the part of their loads that other clusters have made as well
_IDLE = 0.01631  # of the time of memory, for a multiprocessor without a block beside each one with a block
_OVERLAP = 0.2094  # of what takes less time than the rest, at the same time: what shows nevertheless


@dataclass(frozen=True)
class Cost:
    """What the model expects of a product.

    Attributes
    ----------
    seconds : float
    ranked_seconds : float
        By which ways are compared: the model's own figure, which may be less than the floor where memory is the limit.
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
    ranked_seconds: float
    waves: int
    flops: int
    bytes: int
    floor_seconds: float


def _stage_cycles(
    c: Configuration, operands: Operands, is_promoted: bool, neighbours: int, waves: int, stages: int
) -> float:
    """Of one block, in turn with its neighbours on a multiprocessor.

    Whatever is the slowest of the tensor cores, shared memory, rows that are outside and how long each load takes.
    """
    kind, instructions = operands.a.type, c.tile_rows // INSTRUCTION_ROWS
    multiplied = c.tile_rows * c.tile_columns * SPAN_BYTES / kind.bytes / kind.multiply_adds
    # wgmma reads both operands from shared memory, which loads write once; the left one for each part of the columns.
    parts = c.promoted_parts if is_promoted else 1
    passing = instructions * (INSTRUCTION_ROWS * parts + c.tile_columns) + _STORED * (c.tile_rows + c.tile_columns)
    cycles = _STAGE + max(
        multiplied, passing * SPAN_BYTES / _SHARED_BYTES,
        _OUTSIDE * _outside(c, operands) + _BEYOND * _beyond(c, operands) / max(1, waves),
        _LATENCY / (stages - 1) / neighbours,
    )  # fmt: skip
    if is_promoted:
        cycles += _PROMOTING[max(1, c.stage_sums), parts] * _elements(c)
    cycles *= _TURNS if c.is_ping_pong and waves > 1 else 1
    return cycles * (1 + _CLUSTER * (c.cluster_rows * c.cluster_columns - 1))


def _side(c: Configuration, operands: Operands, is_rows: bool) -> tuple[int, int, int]:
    """Of the rows of D or its columns: a tile's, how many tiles there are, and the shares that they are loaded in."""
    row_tiles, column_tiles = tiles_of(c, operands)
    if is_rows:
        return c.tile_rows, row_tiles * c.cluster_rows, c.cluster_columns
    return c.tile_columns, column_tiles * c.cluster_columns, c.cluster_rows


def _outside(c: Configuration, operands: Operands) -> float:
    """Rows of a tile that are outside of a, on average, of a block's share."""
    extent, tiles, parts = _side(c, operands, is_rows=not c.is_swapped)
    return max(0.0, extent - operands.m / max(1, tiles)) / parts


def _beyond(c: Configuration, operands: Operands) -> float:
    """Rows of the last tile that are outside of b, of a block's share."""
    extent, tiles, parts = _side(c, operands, is_rows=c.is_swapped)
    return min(extent, tiles * extent - operands.n) / parts if tiles else 0


def _loaded(c: Configuration) -> float:
    """Bytes that a block's loads of a stage take from L2: its share of b's, and what counts of its share of a's."""
    shares = c.tile_rows / c.cluster_columns, c.tile_columns / c.cluster_rows
    of_b, of_a = shares if c.is_swapped else shares[::-1]
    return SPAN_BYTES * (of_b + _TOGETHER * of_a)


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
        Loads of b may begin before the kernel before this one has ended, as `Configuration.may_begin_before` says.
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
    is_prepared = is_static and c.may_begin_before(o.m)
    # The next product's blocks have room, if a fifth of the places is left.
    is_beside = is_prepared and c.resident > 1 and 5 * blocks <= 4 * places
    filling = _FILLING * (_PREPARED if is_prepared else 1)
    filling += (c.cluster > 2) * _PLACING * (_BESIDE if is_beside else 1)
    writing = _WRITING * (_SWAPPED if c.is_swapped else 1) * _elements(c) * c.own_columns / c.tile_columns
    writing += _AWAITING * max(0, c.steps(o.result_bytes) - BUFFERS)
    sharing = _SHARING * c.split + _SENDING * c.sent_bytes if c.split > 1 else 0
    last_sharing = sharing * (_BESIDE if is_beside else 1)
    # Blocks that share a sum have one tile each, and fill their stages in every wave; others go on loading.
    has_one_tile = c.has_one_tile(row_tiles * column_tiles, multiprocessors)
    stages = max(2, stages_of(c, o, _MOST_BYTES, has_one_tile, is_prepared))
    stage_cycles = _stage_cycles(c, o, is_promoted, max(1, neighbours), waves, stages)
    multiplying = waves * -(-depth_blocks // c.split) * neighbours * stage_cycles
    ending = max(0, waves - 1) * (sharing + (_FILLING if c.split > 1 else 0)) + last_sharing
    ending += writing * (1 if c.is_ping_pong else waves)
    computing = (multiplying + ending) / _CLOCK

    flops = 2 * o.m * o.n * o.k
    size = (o.m + o.n) * o.k * kind.bytes + o.m * o.n * o.result_bytes
    idle = waves * places / blocks - 1 if blocks else 0
    readers = max(1, column_tiles if c.is_swapped else row_tiles)
    again = _AGAIN * (1 - 1 / readers) * o.n * o.k * kind.bytes
    memory = (size + again) / _MEMORY_BYTES * (1 + _IDLE * idle)
    traffic = blocks / c.split * depth_blocks * _loaded(c) / _CACHE_BYTES
    loading = max(memory, traffic) + (writing + last_sharing) / _CLOCK
    longer, shorter = max(computing, loading), min(computing, loading)
    launch = _LAUNCH * (_BESIDE if is_beside else 1)
    seconds = launch + filling / _CLOCK + longer + _OVERLAP * shorter
    peak = 2 * kind.multiply_adds * multiprocessors * _CLOCK
    floor = max(flops / peak, size / _PEAK_BYTES)
    return Cost(max(seconds, floor), seconds, waves, flops, size, floor)
