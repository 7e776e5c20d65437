"""What a way of tiling a matrix product is, and whether a product can be tiled so."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from cupytma.errors import ArrayError
from cupytma.limits import (
    MAX_BOX,
    PORTABLE_CLUSTER,
    RESERVED_SHARED_BYTES,
    SWIZZLE_PERIOD,
    WARP_THREADS,
    WARPGROUP_THREADS,
)
from cupytma.ops.matmul_operands import Operands
from cupytma.runtime.given import shown
from cupytma.words import counted

SPAN_BYTES = 128  # along K, of a stage: what one swizzled box is wide
INSTRUCTION_ROWS = 64  # of the left matrix of wgmma
BUFFERS = 2  # in which a consumer lays out what tensor stores write
_MOST_STAGES = 12  # more made no difference on average (measured)
# Of blocks without a cluster, where loads of b begin before the work before has ended: products took 2 % less on
# average than with 12 stages, from 5 % less to 3 % more (measured).
_MOST_STAGES_BEFORE = 15
# Bytes of the stages beside the one that is multiplied, of blocks without a cluster: with more in flight products took
# up to 7 % longer (measured); and of blocks that share a sum and load what those of other sums load too: up to 20 %.
_MOST_BESIDE, _MOST_BESIDE_AGAIN = 180 << 10, 128 << 10
# Of a, up to which loads of b begin before the work before has ended, where that is allowed: with more, products mostly
# took longer so (measured: with 128 rows up to 6 %).
MOST_ROWS_BEFORE = 64
# Of a tile whose sum is shared, up to which threads send the numbers that they have; parcels of more are sent whole
# (measured: with 8 columns that takes 1 to 8 % of the product longer, with 24 and more mostly less, up to 17 %).
MOST_SINGLE_COLUMNS = 16
MOST_ROUND = 16  # stages whose sums are added in float32 while the tensor cores go on
_BARRIER_BYTES = 8
# Of a thread that loads and of one that multiplies, by how many warpgroups multiply, where a block has a multiprocessor
# for itself. All of a block's come from what its threads may have each: 168 of 384, 255 of 256.
LOADING_REGISTERS = 40
MULTIPLYING_REGISTERS = {1: 248, 2: 232}
_REGISTERS, _SCHEDULERS = 65536, 4  # of a multiprocessor
_MOST_REGISTERS = 255  # of a thread
_OTHER_REGISTERS = 40  # that a thread needs beside its sums


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
    spare_rows : int
        That a tile has fewer than its warpgroups multiply, a multiple of 8: tiles of a product's own height give every
        multiprocessor a part of the same size. What they multiply beside them is not written.
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
    spare_rows: int = 0

    @property
    def group_rows(self) -> int:
        """Rows that a warpgroup multiplies."""
        return self.row_blocks * INSTRUCTION_ROWS

    @property
    def multiplied_rows(self) -> int:
        """Rows that are multiplied for a tile, spare ones included."""
        return self.group_rows * (1 if self.is_ping_pong else self.consumers)

    @property
    def tile_rows(self) -> int:
        """Rows of a tile."""
        return self.multiplied_rows - self.spare_rows

    @property
    def threads(self) -> int:
        """Of a block: those that multiply, and a warp that loads or, for its registers, a whole warpgroup."""
        return self.consumers * WARPGROUP_THREADS + (WARPGROUP_THREADS if self.resident == 1 else WARP_THREADS)

    @property
    def registers(self) -> int:
        """That a thread which multiplies may have: warps of all resident blocks share those of four schedulers."""
        if self.resident == 1:
            return MULTIPLYING_REGISTERS[self.consumers]
        warps = -(-self.threads * self.resident // (WARP_THREADS * _SCHEDULERS))  # of one scheduler
        return min(_MOST_REGISTERS, _REGISTERS // _SCHEDULERS // (WARP_THREADS * warps) // 8 * 8)

    @property
    def sums(self) -> int:
        """That a thread which multiplies has room for, each of as many numbers as it has of a tile."""
        return (self.registers - _OTHER_REGISTERS) // (self.row_blocks * self.tile_columns // 2)

    @property
    def stage_sums(self) -> int:
        """Of those, that are of one stage, where they are added in float32: one is made while another is added."""
        return min(2, self.sums - 1)

    def may_begin_before(self, m: int) -> bool:
        """Whether loads of b begin before the kernels before have ended, where that is allowed.

        If it has the rows, for few rows of a. As columns they gain nothing: they take from what the work before still
        loads (measured).

        Parameters
        ----------
        m : int
            Rows of a.
        """
        return self.is_swapped and m <= MOST_ROWS_BEFORE

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

    @property
    def own_columns(self) -> int:
        """Columns of a tile that a block finishes; the last of those that share its sum may have fewer, or none."""
        return -(-self.tile_columns // 8 // self.split) * 8

    @property
    def sends_parcels(self) -> bool:
        """Whether blocks that share a sum lay out what they send one another, and the copy engine brings it."""
        return self.split > 1 and self.tile_columns > MOST_SINGLE_COLUMNS

    @property
    def sent_bytes(self) -> int:
        """That the others of the blocks that share a sum send each of them at most, and it sends them."""
        return (self.split - 1) * self.own_columns * self.tile_rows * 4

    def line_bytes(self, result_bytes: int) -> int:
        """Of the result, that lie together in shared memory: half a line where a tile is no wider."""
        wide = self.is_swapped or self.tile_columns * result_bytes >= SPAN_BYTES
        return SPAN_BYTES if wide else SPAN_BYTES // 2

    def step_columns(self, result_bytes: int) -> int:
        """Columns that are laid out in shared memory at a time.

        Whole lines of the result; of the transposed one as many as a box takes and divide what each block finishes.
        """
        line = self.line_bytes(result_bytes) // result_bytes
        if not self.is_swapped:
            return line
        whole = gcd(self.own_columns, self.tile_columns)
        return next(step for step in range(min(whole, line), 0, -8) if whole % step == 0)

    def buffer_bytes(self, result_bytes: int) -> int:
        """Of all buffers in which the result is laid out."""
        return self.consumers * BUFFERS * INSTRUCTION_ROWS * self.step_columns(result_bytes) * result_bytes

    def has_one_tile(self, tiles: int, multiprocessors: int) -> bool:
        """Whether each block has one tile of so many clusters' tiles: then it is laid out where the stages were."""
        return self.split > 1 or tiles * self.cluster <= multiprocessors * self.resident

    def shared_bytes(self, stages: int, result_bytes: int, has_one_tile: bool) -> int:
        """Dynamic shared memory of a block; the kernel's source says what lies where, and checks it."""
        beside = self.sent_bytes if self.split > 1 else 0 if has_one_tile else self.buffer_bytes(result_bytes)
        barriers = (2 * stages + self.consumers + 1) * _BARRIER_BYTES
        behind = max(0, self.spare_rows - self.tile_columns) * SPAN_BYTES
        return stages * self.stage_bytes + beside + barriers + behind + SWIZZLE_PERIOD

    def least_stages(self, result_bytes: int, has_one_tile: bool) -> int:
        """Two, or as many as have room for what is laid out where they were, if a block has one tile."""
        later = self.buffer_bytes(result_bytes) if has_one_tile else 0
        later += self.sent_bytes if self.sends_parcels else 0
        return max(2, -(-later // self.stage_bytes))

    def steps(self, result_bytes: int) -> int:
        """In which a warpgroup lays out what its block finishes of a tile."""
        return self.row_blocks * -(-self.own_columns // self.step_columns(result_bytes))

    def __str__(self) -> str:
        rows, columns = self.tile_rows, self.tile_columns
        together = "one warpgroup" if self.consumers == 1 else "cooperative"
        if self.spare_rows >= INSTRUCTION_ROWS:  # of tiles as high, others have fewer
            together += f" for {self.multiplied_rows} rows"
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


_LEGAL: dict[str, tuple[int, ...]] = {
    "row_blocks": (1, 2, 4),
    "tile_columns": tuple(range(8, 257, 8)),
    **dict.fromkeys(("cluster_rows", "cluster_columns"), (1, 2, 4, 8)),
    "split": tuple(range(1, 9)),
    **dict.fromkeys(("is_ping_pong", "is_swapped"), (False, True)),
    "consumers": (1, 2),
    "resident": (1, 2, 3, 4),
    "spare_rows": tuple(range(0, 256, 8)),
}


def _illegal(configuration: Configuration) -> str:
    """What no configuration may be."""
    for name, legal in _LEGAL.items():
        value = getattr(configuration, name)
        if type(value) is not type(legal[0]) or value not in legal:
            return f"{name} = {shown(value)} is none of {', '.join(map(str, legal))}"
    if configuration.spare_rows >= configuration.group_rows:
        return f"{configuration.spare_rows} spare rows leave a warpgroup none of its {configuration.group_rows}"
    return ""


def _problem_with_spare_rows(c: Configuration, operands: Operands) -> str:
    """Why tiles cannot be so low; empty where they can."""
    if not c.spare_rows:
        return ""
    if not c.is_swapped or c.is_ping_pong or c.split > 1:
        return "spare rows are left out of swapped, cooperative tiles that have all of K"
    return "spare rows need a b whose columns lie along K in memory" if operands.b.is_mn_major else ""


def problem_with(configuration: Configuration, operands: Operands, is_promoted: bool, most_bytes: int) -> str:
    """Why a product cannot be tiled in a way; empty where it can."""
    c = configuration
    if problem := _illegal(c):
        return problem
    if c.sums < 1 + is_promoted:
        return f"a thread has no registers for {1 + is_promoted} × {c.row_blocks * c.tile_columns // 2} accumulators"
    if c.is_ping_pong and c.consumers == 1:
        return "one warpgroup takes no turns"
    if problem := _problem_with_spare_rows(c, operands):
        return problem
    if c.cluster > PORTABLE_CLUSTER:
        return f"{c.cluster} blocks are more than a cluster has, {PORTABLE_CLUSTER}"
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
    shares_sum = c.split > 1  # else blocks with several tiles have the fewest stages
    stages = stages_of(c, operands, most_bytes, shares_sum)
    least = c.least_stages(operands.result_bytes, shares_sum)
    if stages < least:
        later = ", where sums and results are laid out," if least > 2 else ""
        return f"{counted(least, 'stage')}{later} do not fit into shared memory"
    return ""


def round_of(depth_blocks: int) -> int:
    """Stages of a round, of so many along K: rounds are waited for at their end, and stages that fill none at once."""
    return min(range(MOST_ROUND, 1, -2), key=lambda stages: depth_blocks // stages + depth_blocks % stages)


def tiles_of(configuration: Configuration, operands: Operands) -> tuple[int, int]:
    """Rows and columns of clusters' tiles."""
    c = configuration
    rows, columns = (operands.n, operands.m) if c.is_swapped else (operands.m, operands.n)
    return -(-rows // (c.tile_rows * c.cluster_rows)), -(-columns // (c.tile_columns * c.cluster_columns))


def stages_of(
    configuration: Configuration, operands: Operands, most_bytes: int, has_one_tile: bool, begins_before: bool = False
) -> int:
    """Pieces of both operands in flight in a block.

    As many as fit into its part of shared memory, or fewer if products were faster so; but not less than
    `Configuration.least_stages`.

    Parameters
    ----------
    configuration : Configuration
    operands : Operands
    most_bytes : int
        Of shared memory that one block may have.
    has_one_tile : bool
        As `Configuration.has_one_tile` says.
    begins_before : bool
        Loads of b begin before the work before has ended.
    """
    c, reserved = configuration, RESERVED_SHARED_BYTES
    part = most_bytes if c.resident == 1 else (most_bytes + reserved) // c.resident - reserved
    fixed = c.shared_bytes(0, operands.result_bytes, has_one_tile)
    fitting = (part - fixed) // (c.stage_bytes + 2 * _BARRIER_BYTES)
    if c.split > 1 and tiles_of(c, operands)[1] > 1:
        fastest = min(_MOST_STAGES, 1 + _MOST_BESIDE_AGAIN // c.stage_bytes)
    elif c.cluster > 1:
        fastest = _MOST_STAGES
    else:
        fastest = _MOST_STAGES_BEFORE if begins_before else min(_MOST_STAGES, 1 + _MOST_BESIDE // c.stage_bytes)
    return min(fitting, max(fastest, c.least_stages(operands.result_bytes, has_one_tile)))


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
