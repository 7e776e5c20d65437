"""How rows of a table are taken or given by index: in which stages of bulk copies, or by ordinary loads and stores.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from cupytma.errors import ArrayError
from cupytma.limits import MAX_BOX, MAX_EXTENT, STRIDE_LIMIT, TILE_ALIGNMENT, UNIT
from cupytma.ops.layout import check_overlap, share_memory
from cupytma.ops.reduction_plan import element_type
from cupytma.runtime.given import shown
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap

GATHER, SCATTER, SCATTER_ADD = "gather", "scatter", "scatter_add"
MODES = ("raise", "clip")
# Bytes of rows that a block moves, about; longer rows are cut into pieces of at most `STAGE_BYTES`. A block for each
# group of a few rows is faster than few blocks with many in flight (measured on an H200; see copy_plan).
GROUP_BYTES = 2 * 1024
STAGE_BYTES = 4 * 1024
ROWS_PER_STAGE = 32  # one for each thread of a warp
QUAD = 4  # rows of gather4 and scatter4
# Shorter rows are left to ordinary loads and stores: there would be more instructions than the unit takes in the time.
LEAST_BULK_BYTES = 256
_PIECE_ALIGNMENT = 2048  # bytes of the longest box of a tensor reduction, 256 elements of 8 bytes
_INDEX_TYPES = {"int32": 4, "int64": 8}


@dataclass(frozen=True)
class RowStages:
    """How rows fill the stages of shared memory.

    Attributes
    ----------
    rows_per_stage : int
        1 to 32.
    pieces : int
        Of one row; more than 1 where a row is longer than a stage.
    piece_bytes : int
        Of each but the last; the row's where it is one piece.
    slot_bytes : int
        From one row to the next in a stage.
    box_bytes : int
        Of one tensor reduction; 0 for copies.
    """

    rows_per_stage: int
    pieces: int
    piece_bytes: int
    slot_bytes: int
    box_bytes: int = 0

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage, a multiple of 128."""
        return _rounded(self.rows_per_stage * self.slot_bytes, TILE_ALIGNMENT)


@dataclass(frozen=True)
class RowsPlan:
    """Rows that are taken from a table or given to it.

    Attributes
    ----------
    operation : str
        ``"gather"``, ``"scatter"`` or ``"scatter_add"``.
    rows, table_rows : int
        Of the index, and of the table.
    row_bytes : int
    source_stride, destination_stride, index_stride : int
        From one row, or index, to the next, in bytes.
    index_bytes : int
        Of one index.
    stages : RowStages or None
        Where bulk copies move the rows.
    word_bytes : int
        Else the length of the words that ordinary loads and stores move; for sums, of the elements.
    data_type : DataType or None
        Of sums.
    tensor_map : TensorMap or None
        Of the table: for tensor reductions, and where rows move four at a time.
    quads : bool
        Whether rows move four at a time (``tile::gather4``, ``tile::scatter4``).
    reason : str
        What keeps the rows from bulk copies; empty where these move them.
    """

    operation: str
    rows: int
    table_rows: int
    row_bytes: int
    source_stride: int
    destination_stride: int
    index_stride: int
    index_bytes: int
    stages: RowStages | None
    word_bytes: int
    data_type: DataType | None = None
    tensor_map: TensorMap | None = None
    quads: bool = False
    reason: str = ""

    @property
    def items(self) -> int:
        """Stages to be filled."""
        if self.stages is None:
            return 0
        return -(-self.rows // self.stages.rows_per_stage) * self.stages.pieces

    @property
    def words(self) -> int:
        """Of all rows that are moved."""
        return self.rows * self.row_bytes // self.word_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to move."""
        return self.rows * self.row_bytes == 0

    @property
    def verified(self) -> bool:
        """Whether the instructions that move the rows have been measured on hardware; those of four rows have not."""
        return not self.quads


@lru_cache(maxsize=1024)
def plan_rows(
    operation: str,
    source: ArrayView,
    destination: ArrayView,
    index: ArrayView,
    *,
    quads: bool = False,
) -> RowsPlan:
    """Plan the way of rows from one view of device memory to another.

    Parameters
    ----------
    operation : str
        ``"gather"``: row ``index[i]`` of the source becomes row i of the destination. ``"scatter"``: row i of the
        source becomes row ``index[i]`` of the destination. ``"scatter_add"``: it is added to it.
    source, destination, index : ArrayView
    quads : bool
        Whether the target has ``tile::gather4``, or for a scatter ``tile::scatter4``.

    Raises
    ------
    ArrayError
        If shapes or types do not fit, rows are not contiguous, elements of the destination overlap one another, or the
        arrays overlap.
    """
    _check_arrays(operation, source, destination, index)
    table = source if operation == GATHER else destination
    data_type = element_type("add", source.dtype) if operation == SCATTER_ADD else None
    plan = RowsPlan(
        operation,
        rows=index.shape[0],
        table_rows=table.shape[0],
        row_bytes=prod(table.shape[1:]) * table.itemsize,
        source_stride=source.strides[0],
        destination_stride=destination.strides[0],
        index_stride=index.strides[0],
        index_bytes=index.itemsize,
        stages=None,
        word_bytes=table.itemsize,
        data_type=data_type,
    )
    if plan.is_empty:
        return replace(plan, reason="the arrays are empty")
    if plan.table_rows == 0:
        raise ArrayError(f"the table of shape {table.shape} has no rows, and the index has {plan.rows}")
    check_rows(operation, source, destination, index)
    word = _word_bytes(plan, source, destination)
    if data_type is None:
        plan = replace(plan, word_bytes=word)
    elif word < table.itemsize:
        raise ArrayError(
            f"the {table.dtype} elements do not all lie at multiples of their {table.itemsize} B: copy the arrays to "
            "memory of their own first"
        )
    if obstacle := _obstacle(plan, word):
        return replace(plan, reason=obstacle)
    return _staged(plan, table, quads and _takes_quads(plan))


def check_mode(mode: object) -> None:
    """Refuse what is no way to treat an index out of range.

    Raises
    ------
    ArrayError
        If it is none of `MODES`.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise ArrayError(
            f"mode = {shown(mode)}: an index out of range is an error with \"raise\", or moved with \"clip\""
        )


def check_rows(operation: str, source: ArrayView, destination: ArrayView, index: ArrayView) -> None:
    """Refuse arrays that overlap.

    Raises
    ------
    ArrayError
        If rows of the destination overlap one another, or the destination overlaps another array.
    """
    check_overlap(destination, destination)
    for name, other in (("source", source), ("index", index)):
        if other.size and share_memory(other, destination):
            raise ArrayError(
                f"the {name} and the destination overlap in memory, and rows would be read after they were written: "
                f"use a copy of the {name}"
            )


def _check_arrays(operation: str, source: ArrayView, destination: ArrayView, index: ArrayView) -> None:
    if index.dtype not in _INDEX_TYPES:
        raise ArrayError(f"the index has dtype {index.dtype}; convert it to int32 or int64")
    if len(index.shape) != 1:
        raise ArrayError(f"the index has shape {index.shape}; it must have one dimension: use index.reshape(-1)")
    if source.dtype == "object":
        raise ArrayError("arrays of objects hold references, and a copy of bits would not count them; use numpy")
    if source.dtype != destination.dtype or source.itemsize != destination.itemsize:
        raise ArrayError(f"the types differ: source {source.dtype}, destination {destination.dtype}; convert one first")
    for name, view in (("source", source), ("destination", destination)):
        if not view.shape:
            raise ArrayError(f"the {name} has no dimensions; its first must be that of its rows")
        _check_rows_are_contiguous(name, view)
    dense = destination if operation == GATHER else source
    if dense.shape[0] != index.shape[0] or source.shape[1:] != destination.shape[1:]:
        raise ArrayError(
            f"the shapes do not fit: source {source.shape}, destination {destination.shape}, index {index.shape}; the "
            f"{'destination' if operation == GATHER else 'source'} must have one row for each index, of the other's "
            "shape"
        )
    if destination.read_only and destination.size:
        raise ArrayError("the destination is read-only; use an array that may be written")
    if index.shape[0] and index.address % index.itemsize + index.strides[0] % index.itemsize:
        raise ArrayError(f"the index's elements do not lie at multiples of their {index.itemsize} B: copy it first")


def _check_rows_are_contiguous(name: str, view: ArrayView) -> None:
    expected = view.itemsize
    for extent, stride in zip(reversed(view.shape[1:]), reversed(view.strides[1:]), strict=True):
        if extent > 1 and stride != expected and view.size:
            raise ArrayError(
                f"the {name}'s rows are not contiguous (shape {view.shape}, strides {view.strides} B): all dimensions "
                "but the first must follow one another in memory; copy it to a contiguous array with cupytma.copy"
            )
        expected *= extent


def _word_bytes(plan: RowsPlan, source: ArrayView, destination: ArrayView) -> int:
    """The longest word, up to 16 bytes, that every row begins and ends with."""
    numbers = [source.address, destination.address, plan.row_bytes]
    numbers += [view.strides[0] for view in (source, destination) if view.shape[0] > 1]
    return next(word for word in (16, 8, 4, 2, 1) if all(number % word == 0 for number in numbers))


def _obstacle(plan: RowsPlan, word: int) -> str:
    """What keeps the rows from bulk copies; empty when nothing does."""
    if word < UNIT:
        return f"rows begin and end at multiples of {word} B, and bulk copies move units of {UNIT} B"
    if plan.operation == SCATTER_ADD:
        if plan.table_rows > MAX_EXTENT:
            return "the table has more than 2^31 rows, and coordinates of a tensor reduction are signed 32-bit numbers"
        if plan.row_bytes // plan.word_bytes > MAX_EXTENT:
            return "rows have more than 2^31 elements, and coordinates of a tensor reduction are signed 32-bit numbers"
        if plan.table_rows > 1 and not 0 <= plan.destination_stride < STRIDE_LIMIT:
            return f"the stride of {plan.destination_stride} B is outside 0 … 2^40 - 1"
    elif plan.row_bytes < LEAST_BULK_BYTES:
        return f"rows of {plan.row_bytes} B are too short; bulk copies are used from {LEAST_BULK_BYTES} B"
    return ""


def _takes_quads(plan: RowsPlan) -> bool:
    """Whether four rows fit into one box, from an address that a box may have."""
    stride = plan.source_stride if plan.operation == GATHER else plan.destination_stride
    return (
        plan.operation != SCATTER_ADD
        and plan.row_bytes <= MAX_BOX * 8
        and QUAD * plan.row_bytes % TILE_ALIGNMENT == 0
        and QUAD <= plan.table_rows <= MAX_EXTENT
        and 0 <= stride < STRIDE_LIMIT
    )


def _staged(plan: RowsPlan, table: ArrayView, quads: bool) -> RowsPlan:
    """The plan with its stages, and a map of the table where there is need of one."""
    box = 0
    if plan.data_type is not None:
        boxes = -(-plan.row_bytes // (MAX_BOX * table.itemsize))
        even = -(-plan.row_bytes // boxes)
        box = plan.row_bytes if plan.row_bytes < TILE_ALIGNMENT else _rounded(even, TILE_ALIGNMENT)
    slot = _rounded(plan.row_bytes, box) if box >= TILE_ALIGNMENT else max(plan.row_bytes, TILE_ALIGNMENT * bool(box))
    if slot <= STAGE_BYTES:
        rows = min(ROWS_PER_STAGE, max(1, GROUP_BYTES // slot), plan.rows)
        if quads:
            rows = -(-rows // QUAD) * QUAD
        stages = RowStages(rows, 1, plan.row_bytes, slot, box)
    else:
        pieces = -(-plan.row_bytes // STAGE_BYTES)
        piece = _rounded(-(-plan.row_bytes // pieces), _PIECE_ALIGNMENT)
        box = box and MAX_BOX * table.itemsize
        stages = RowStages(1, -(-plan.row_bytes // piece), piece, piece, box)
        quads = False
    word = DataType.UINT64 if quads else plan.data_type
    tensor_map = None
    if word is not None:
        size = 8 if quads else table.itemsize
        tensor_map = Tiled(
            data_type=word,
            global_address=table.address,
            global_dim=(plan.row_bytes // size, plan.table_rows),
            global_strides=(table.strides[0] if plan.table_rows > 1 else plan.row_bytes,),
            box_dim=((plan.row_bytes if quads else stages.box_bytes) // size, 1),
        ).encode()
    return replace(plan, stages=stages, tensor_map=tensor_map, quads=quads)


def _rounded(number: int, unit: int) -> int:
    return -(-number // unit) * unit
