"""How a matrix product is carried out: its tiling, its tensor maps, and what the kernel is told."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np

from cupytma import ptx, targets
from cupytma.errors import TargetError
from cupytma.limits import STRIDE_LIMIT, UNIT
from cupytma.ops.launch_size import LaunchSize
from cupytma.ops.matmul_configuration import (
    INSTRUCTION_ROWS,
    LOADING_REGISTERS,
    MULTIPLYING_REGISTERS,
    SPAN_BYTES,
    Configuration,
    check_configuration,
    round_of,
    stages_of,
    tiles_of,
)
from cupytma.ops.matmul_cost import Cost, cost_of
from cupytma.ops.matmul_operands import Matrix, Operands
from cupytma.ops.matmul_types import RESULT_TYPES
from cupytma.ops.matmul_ways import choose
from cupytma.runtime.compiler import compile
from cupytma.runtime.module import Module
from cupytma.targets import Feature
from cupytma.tensormap.enums import L2Promotion, Swizzle
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap

# Of a, that are worked on together.
_BAND_ROWS = 1024
_PRODUCT = np.dtype(
    [
        *((name, "i4") for name in ("rows", "columns")),
        *((name, "u4") for name in ("depth_blocks", "row_tiles", "column_tiles", "band")),
        *((name, "i8") for name in ("row_stride", "column_stride")),
        ("by_unit", "u4"), ("padding", "u4"),
    ]
)
_NO_MAP = bytes(128)


@dataclass(frozen=True)
class Measured:
    """That a way of tiling was found by measuring.

    Attributes
    ----------
    device : str
        The GPU's name.
    seconds : float
        Of one product, the median.
    is_cold : bool
        Weights were cold in L2.
    """

    device: str
    seconds: float
    is_cold: bool

    def __str__(self) -> str:
        weights = "cold" if self.is_cold else "hot"
        return f"measured on {self.device}: {self.seconds * 1e6:.2f} µs with b {weights} in L2"


@dataclass(frozen=True)
class MatmulPlan:
    """A matrix product, planned.

    Attributes
    ----------
    operands : Operands
    configuration : Configuration
    is_promoted : bool
        Each stage's sum is added in float32.
    is_static : bool
        Loads of b may begin before the kernels before this one have ended.
    multiprocessors : int
        That it was planned for.
    most_bytes : int
        Of shared memory, that a block may have.
    measured : Measured or None
        How the configuration was found; None where by the model, or by the caller.
    """

    operands: Operands
    configuration: Configuration
    is_promoted: bool
    is_static: bool
    multiprocessors: int
    most_bytes: int
    measured: Measured | None = None

    @property
    def begins_before(self) -> bool:
        """Whether loads of b begin before the kernels before this one have ended."""
        return self.is_static and self.configuration.may_begin_before(self.operands.m)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        return not self.operands.out.size

    @property
    def rows(self) -> Matrix:
        """The operand whose rows are those of D: the left one, for the tensor cores."""
        return self.operands.b if self.configuration.is_swapped else self.operands.a

    @property
    def columns(self) -> Matrix:
        """The operand whose rows are the columns of D."""
        return self.operands.a if self.configuration.is_swapped else self.operands.b

    @property
    def stages(self) -> int:
        """Pieces of both operands in flight in a block."""
        return stages_of(self.configuration, self.operands, self.most_bytes, self.has_one_tile, self.begins_before)

    @property
    def depth_blocks(self) -> int:
        """Stages along K."""
        return -(-self.operands.k * self.operands.a.type.bytes // SPAN_BYTES)

    @property
    def tiles(self) -> int:
        """Tiles, of clusters."""
        rows, columns = tiles_of(self.configuration, self.operands)
        return rows * columns

    @property
    def has_one_tile(self) -> bool:
        """Whether each block has one tile, and lays out its result where the stages were."""
        return self.configuration.has_one_tile(self.tiles, self.multiprocessors)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.configuration.shared_bytes(self.stages, self.operands.result_bytes, self.has_one_tile)

    @property
    def band(self) -> int:
        """Clusters' tiles along a that are worked on together, so that L2 serves b's again."""
        c = self.configuration
        of_a = c.tile_columns * c.cluster_columns if c.is_swapped else c.tile_rows * c.cluster_rows
        return max(1, min(tiles_of(c, self.operands)[c.is_swapped], _BAND_ROWS // of_a))

    def tile(self, number: int, rank: int) -> tuple[int, int]:
        """The first row and column of D that a block of a cluster computes of a tile, as the kernel finds them."""
        c = self.configuration
        rows, columns = tiles_of(c, self.operands)
        along, across = (columns, rows) if c.is_swapped else (rows, columns)
        begin, rest = number // (self.band * across) * self.band, number % (self.band * across)
        height = min(self.band, along - begin)
        of_a, of_b = begin + rest % height, rest // height
        row, column = (of_b, of_a) if c.is_swapped else (of_a, of_b)
        rank = 0 if c.split > 1 else rank
        row = row * c.cluster_rows + rank % c.cluster_rows
        return row * c.tile_rows, (column * c.cluster_columns + rank // c.cluster_rows) * c.tile_columns

    @cached_property
    def cost(self) -> Cost:
        """What the model expects."""
        return cost_of(
            self.configuration, self.operands, self.is_promoted, self.multiprocessors, self.is_static
        )

    @cached_property
    def is_stored_by_unit(self) -> bool:
        """Whether tensor stores write the result: all of it, or `columns_by_unit`.

        They round the end of a row up to 16 bytes, and need rows that begin on 16 bytes and are dense.
        """
        out = self.operands.out
        row_stride, column_stride = out.strides
        return (
            (column_stride == out.itemsize or self.operands.n == 1)
            and self.operands.n * out.itemsize % UNIT == 0
            and out.address % UNIT == 0
            and (self.operands.m == 1 or (row_stride % UNIT == 0 and 0 < row_stride < STRIDE_LIMIT))
        )

    @property
    def columns_by_unit(self) -> int:
        """Columns of the result that tensor stores write; of tiles with spare rows those of whole ones."""
        n, c = self.operands.n, self.configuration
        if not self.is_stored_by_unit:
            return 0
        return n // c.tile_rows * c.tile_rows if c.spare_rows else n

    def maps(self) -> tuple[TensorMap, TensorMap, TensorMap]:
        """Of the rows, the columns and the result; zeros where nothing goes through them."""
        c = self.configuration
        none = TensorMap.from_bytes(_NO_MAP)
        loads = none, none
        if self.operands.k:
            loads = (
                _operand_map(self.rows, c.tile_rows // c.cluster_columns),
                _operand_map(self.columns, c.tile_columns // c.cluster_rows),
            )
        return *loads, self._result_map() if self.is_stored_by_unit else none

    def _result_map(self) -> TensorMap:
        o = self.operands
        c, line = self.configuration, self.configuration.line_bytes(o.result_bytes)
        lines = c.step_columns(o.result_bytes) if c.is_swapped else INSTRUCTION_ROWS
        stride = UNIT * -(-o.n * o.result_bytes // UNIT) if o.m == 1 else o.out.strides[0]
        extents: tuple[int, ...] = o.n, o.m
        strides: tuple[int, ...] = (stride,)
        box: tuple[int, ...] = line // o.result_bytes, lines
        if c.spare_rows:  # a tile's rows, whole tiles, and the columns: what is behind a tile's rows is outside
            extents, box = (c.tile_rows, max(1, o.n // c.tile_rows), o.m), (box[0], 1, lines)
            strides = c.tile_rows * o.result_bytes, stride
        return Tiled(
            data_type=RESULT_TYPES[o.result], global_address=o.out.address, global_dim=extents,
            global_strides=strides, box_dim=box,
            swizzle=Swizzle.B128 if line == SPAN_BYTES else Swizzle.B64,
        ).encode()

    def argument(self) -> Any:
        """What the kernel is told beside the maps."""
        o, c = self.operands, self.configuration
        argument = np.zeros((), _PRODUCT)
        argument["rows"], argument["columns"] = self.rows.rows, self.columns.rows
        argument["depth_blocks"] = self.depth_blocks
        argument["row_tiles"], argument["column_tiles"] = tiles_of(c, o)
        argument["band"] = self.band
        argument["row_stride"], argument["column_stride"] = o.out.strides[:: -1 if c.is_swapped else 1]
        argument["by_unit"] = self.is_stored_by_unit
        return argument[()]

    @property
    def size(self) -> LaunchSize:
        """Of the launch. Blocks have one tile each, or take tiles in turn."""
        c = self.configuration
        blocks = 0 if self.has_one_tile else c.resident
        return LaunchSize(self.tiles * c.cluster, blocks, c.threads, self.shared_bytes, self.stages)

    def defines(self) -> dict[str, int | str]:
        """The macros that the kernel is compiled with."""
        c, o = self.configuration, self.operands
        types = self.rows.type, self.columns.type
        parts = c.promoted_parts if self.is_promoted else 1
        multiply = ptx.wgmma_mma_async(
            n=c.tile_columns // parts, a_type=types[0].wgmma, b_type=types[1].wgmma, d_type="f32"
        )
        rows, columns = o.scale_kinds[:: -1 if c.is_swapped else 1]
        return {
            "ROW_SCALES": rows, "COLUMN_SCALES": columns,
            "BIAS_TYPE": o.bias_kind,
            "ROW_BLOCKS": c.row_blocks, "SPARE_ROWS": c.spare_rows,
            "TILE_COLUMNS": c.tile_columns, "COLUMN_PARTS": parts,
            "STEP_COLUMNS": c.step_columns(o.result_bytes),
            "LINE_BYTES": c.line_bytes(o.result_bytes),
            "STAGES": self.stages,
            "CLUSTER": c.cluster, "CLUSTER_ROWS": c.cluster_rows, "CLUSTER_COLUMNS": c.cluster_columns,
            "SPLIT": c.split, "PING_PONG": int(c.is_ping_pong), "SWAPPED": int(c.is_swapped),
            "PROMOTE": c.stage_sums if self.is_promoted else 0, "ROWS_BEFORE": int(self.begins_before),
            "PARCELS": int(c.sends_parcels),
            "ELEMENT_BYTES": types[0].bytes,
            "ROWS_MN_MAJOR": int(self.rows.is_mn_major), "COLUMNS_MN_MAJOR": int(self.columns.is_mn_major),
            "OUT_BYTES": o.result_bytes, "OUT_IS_FLOAT16": int(o.result == "float16"),
            "MULTIPLY": multiply.function_name, "LOADING_REGISTERS": LOADING_REGISTERS,
            "MULTIPLYING_REGISTERS": MULTIPLYING_REGISTERS[c.consumers], "CONSUMERS": c.consumers,
            "RESIDENT": c.resident, "ROUND": round_of(self.depth_blocks // c.split),
            "ONE_TILE": int(self.has_one_tile), "SHARED_BYTES": self.shared_bytes,
        }


def plan_matmul(
    operands: Operands, target: targets.Target, multiprocessors: int, *, configuration: Any = None,
    fast_accumulation: bool = False, static_b: bool = False,
) -> MatmulPlan:
    """How a product is carried out on a GPU.

    Parameters
    ----------
    operands : Operands
    target : Target
    multiprocessors : int
    configuration : Configuration, optional
        Default: the cheapest by the model.
    fast_accumulation, static_b : bool
        As for `cupytma.matmul`.

    Raises
    ------
    TargetError
        If the target has no wgmma.
    ArrayError
        If the product cannot be tiled as asked.
    """
    check_target(target)
    is_promoted = not fast_accumulation and operands.a.type.is_narrow
    if configuration is None:
        chosen = choose(operands, is_promoted, multiprocessors, target.shared_bytes, static_b)
    else:
        chosen = check_configuration(configuration, operands, is_promoted, target.shared_bytes)
    return MatmulPlan(operands, chosen, is_promoted, static_b, multiprocessors, target.shared_bytes)


def check_target(target: targets.Target) -> None:
    """Refuse a target without wgmma."""
    if not target.has(Feature.WGMMA):
        having = ", ".join(name for name, found in targets.TARGETS.items() if found.has(Feature.WGMMA))
        raise TargetError(
            f"{target} has no wgmma, which matmul multiplies with: these kernels are Hopper's ({having}); on {target} "
            "multiply with cuBLAS (cupy.matmul, torch.matmul, torch._scaled_mm)"
        )


def _operand_map(matrix: Matrix, share: int) -> TensorMap:
    """The map of an operand of which a block loads so many rows at a time."""
    depth = SPAN_BYTES // matrix.type.bytes
    extents, box = (matrix.depth, matrix.rows), (depth, share)
    if matrix.is_mn_major:
        extents, box = (matrix.rows, matrix.depth), (INSTRUCTION_ROWS, depth)
    return Tiled(
        data_type=matrix.type.data_type, global_address=matrix.address, global_dim=extents,
        global_strides=(matrix.stride,), box_dim=box, swizzle=Swizzle.B128, l2_promotion=L2Promotion.L2_256B,
    ).encode()


_HEADERS = ("cluster_blocks.cuh", "matmul_registers.cuh", "matmul_tiles.cuh", "matmul_result.cuh", "matmul_sums.cuh")
_CALLED = re.compile(r"\bcupytma::(\w+)")


@cache
def kernel_digest() -> str:
    """A hash of the sources that kernels are compiled from."""
    kernels = import_module("cupytma.kernels")
    texts = [kernels.source(name) for name in ("matmul.cu", *_HEADERS)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@cache
def _module(target: str, defines: tuple[tuple[str, int | str], ...]) -> Module:
    kernels = import_module("cupytma.kernels")  # in a source tree it is where type checkers do not look
    text, headers = kernels.source("matmul.cu"), {name: kernels.source(name) for name in _HEADERS}
    macros = dict(defines)
    # The many shapes of wgmma take long to read: the header has what is called, and the one shape.
    called = {name for part in (text, *headers.values()) for name in _CALLED.findall(part)}
    names = sorted(called - {"MULTIPLY"} | {str(macros["MULTIPLY"])})
    headers["cupytma.cuh"] = ptx.header(target, only=names)
    return compile(text, target, defines=macros, headers=headers)


def matmul_module(target: str, defines: Mapping[str, int | str]) -> Module:
    """The kernel of one configuration.

    Parameters
    ----------
    target : str
    defines : mapping
        Of `MatmulPlan.defines`.
    """
    return _module(target, tuple(sorted(defines.items())))
