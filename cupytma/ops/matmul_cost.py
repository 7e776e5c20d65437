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

# What it knows of the kernels there. All are fitted together to times of more than 300 products on an H200, and none of
# the rates alone is what the device reaches: what is said to overlap takes its part of them.
_MEMORY_BYTES = 4.298e12  # a second, from memory
_CACHE_BYTES = 9.102e12  # a second, from L2 into all multiprocessors
_TOGETHER = 0.3571  # of the loads of a from there: blocks of different weights make them at the same time
_LAUNCH = 6.911e-8  # seconds that a launch takes after the one before
_FILLING = 105.1  # cycles until the first stage is there
_PREPARED = 0.2528  # of filling: what is left where loads of weights begin before
_PLACING = 319.3  # cycles that a cluster of more than two blocks takes longer to find its places
_AWAITING = 186.8  # cycles until a buffer that the result is laid out in is free again
_WRITING = 19.21  # cycles for each element of the result that a thread has
_SHARING, _SENDING = 465.7, 0.05528  # cycles for each block that shares a sum, and for each byte that it sends
_STAGE = 24.75  # cycles of a stage beside what is the slowest of it
_STORED = 0.31  # of the bytes that loads write to shared memory: what is in the way of wgmma, which reads there
_LATENCY = 1716  # cycles of a load, which all stages but the one that is multiplied wait for at the same time
# Cycles of a stage for each element that a thread adds in float32, by the sums of a stage that it has room for and the
# parts that one is made in: with one of one the tensor cores wait.
_PROMOTING = {(1, 1): 3.21, (2, 1): 0.09752, (1, 2): 0.262}
_OUTSIDE = 14.13  # cycles of a stage for each row that is loaded from outside of a, if nothing else takes longer
_CLUSTER = 0.1806  # of a stage's time, for each further block that loads are shared with: they wait for one another
_TURNS = 0.7842  # of a stage's time, where consumers take turns at tiles: one multiplies while the other writes
_AGAIN = 0.5799  # of the time of weights from memory, for the part of their loads that other clusters have made as well
# Of the time of memory, for a place without a block beside each one with a block: of two multiprocessors that share a
# way to L2, one that loads alone ends long before the two of another pair, which then do not reach memory's rate.
_UNEVEN = 0.2916
_LAST_WAVE, _MOST_LAST = 0.7981, 0.5  # of that time, for a place without one in the last of several waves; the most
_FOLLOWED = 0.03648  # of what is lost so: what is left where the next product's loads of weights fill it
_OVERLAP = 0.3538  # of what takes less time than the rest, at the same time: what shows nevertheless


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
    kind, instructions = operands.a.type, c.multiplied_rows // INSTRUCTION_ROWS
    multiplied = c.multiplied_rows * c.tile_columns * SPAN_BYTES / kind.bytes / kind.multiply_adds
    # wgmma reads both operands from shared memory, which loads write once; the left one for each part of the columns.
    parts = c.promoted_parts if is_promoted else 1
    passing = instructions * (INSTRUCTION_ROWS * parts + c.tile_columns) + _STORED * (c.tile_rows + c.tile_columns)
    cycles = _STAGE + max(
        multiplied, passing * SPAN_BYTES / _SHARED_BYTES,
        _OUTSIDE * _outside(c, operands),
        _LATENCY / (stages - 1) / neighbours,
    )  # fmt: skip
    if is_promoted:
        cycles += _PROMOTING[max(1, c.stage_sums), parts] * _elements(c)
    cycles *= _TURNS if c.is_ping_pong and waves > 1 else 1
    return cycles * (1 + _CLUSTER * (c.cluster_rows * c.cluster_columns - 1))


def _outside(c: Configuration, operands: Operands) -> float:
    """Rows of a tile that are outside of a, on average, of a block's share."""
    row_tiles, column_tiles = tiles_of(c, operands)
    extent, tiles, parts = c.tile_rows, row_tiles * c.cluster_rows, c.cluster_columns
    if c.is_swapped:
        extent, tiles, parts = c.tile_columns, column_tiles * c.cluster_columns, c.cluster_rows
    return max(0.0, extent - operands.m / max(1, tiles)) / parts


def _loaded(c: Configuration) -> float:
    """Bytes that a block's loads of a stage take from L2: its share of b's, and what counts of its share of a's."""
    shares = c.tile_rows / c.cluster_columns, c.tile_columns / c.cluster_rows
    of_b, of_a = shares if c.is_swapped else shares[::-1]
    return SPAN_BYTES * (of_b + _TOGETHER * of_a)


def _idle(c: Configuration, blocks: int, places: int, multiprocessors: int) -> float:
    """Of the time of memory, what is lost since some places have no block, or have none in the last wave."""
    if blocks > places:
        return _LAST_WAVE * min(_MOST_LAST, -(-blocks // places) * places / blocks - 1)
    # Pairs of multiprocessors get one block each first, then multiprocessors, and then these a further one.
    counts = [multiprocessors // 2, *(multiprocessors * number for number in range(1, c.resident + 1))]
    if c.split >= 4 and c.resident >= 3:  # large clusters crowd on some multiprocessors (measured)
        counts = counts[-1:]
    even = next((count for count in counts if count >= blocks), blocks)
    return _UNEVEN * (even / blocks - 1) if blocks else 0


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
    filling += (c.cluster > 2) * _PLACING * (not is_beside)
    writing = _WRITING * _elements(c) * c.own_columns / c.tile_columns
    writing += _AWAITING * max(0, c.steps(o.result_bytes) - BUFFERS)
    sharing = _SHARING * c.split + _SENDING * c.sent_bytes if c.split > 1 else 0
    last_sharing = sharing * (not is_beside)
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
    idle = _idle(c, blocks, places, multiprocessors) * (_FOLLOWED if is_prepared else 1)
    readers = max(1, column_tiles if c.is_swapped else row_tiles)
    again = _AGAIN * (1 - 1 / readers) * o.n * o.k * kind.bytes
    memory = (size + again) / _MEMORY_BYTES * (1 + idle)
    traffic = blocks / c.split * depth_blocks * _loaded(c) / _CACHE_BYTES
    loading = max(memory, traffic) + (writing + last_sharing) / _CLOCK
    longer, shorter = max(computing, loading), min(computing, loading)
    launch = _LAUNCH * (not is_beside)
    seconds = launch + filling / _CLOCK + longer + _OVERLAP * shorter
    peak = 2 * kind.multiply_adds * multiprocessors * _CLOCK
    floor = max(flops / peak, size / _PEAK_BYTES)
    return Cost(max(seconds, floor), seconds, waves, flops, size, floor)
