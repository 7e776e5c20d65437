"""Rows of GPU arrays taken and given by index, through bulk copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from cupytma import targets
from cupytma.errors import ArrayError
from cupytma.limits import MAX_GRID, TILE_ALIGNMENT, WARP_THREADS
from cupytma.ops.array_copy import check_devices, empty, move, place_in_words
from cupytma.ops.copy_launches import compiled
from cupytma.ops.index_errors import raise_noted, record_address, tag_of
from cupytma.ops.launch_size import MAX_THREADS, LaunchSize
from cupytma.ops.layout import check_addresses
from cupytma.ops.prepared import Memory, Prepared, span_bytes
from cupytma.ops.rows_plan import GATHER, SCATTER, SCATTER_ADD, RowsPlan, check_mode, check_rows, plan_rows
from cupytma.ops.short_way import short_ways
from cupytma.runtime.compiler import Module, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.plan import Plan, Template
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.tensor_map import TensorMap

# What the ring of a block holds where it has several stages' worth of rows; a launch has a block for each.
ROW_STAGES = 2
_WORD_THREADS = 256
_ROWS = np.dtype(
    [
        *((name, "u8") for name in ("source", "destination", "index", "failure", "rows", "table_rows", "row_bytes")),
        *((name, "u8") for name in ("items", "words", "words_per_row")),
        *((name, "i8") for name in ("source_stride", "destination_stride", "index_stride")), ("tag", "u8"),
        *((name, "u4") for name in ("index_bytes", "clips", "rows_per_stage", "pieces", "piece_bytes", "slot_bytes")),
        *((name, "u4") for name in ("box_bytes", "element_bytes", "quads", "unused")),
    ]
)
# What a launch is given the addresses of, in this order.
_POINTERS = ("source", "destination", "index")


def gather_rows(x: Any, index: Any, out: Any = None, *, mode: str = "raise", stream: Any = None) -> Any:
    """Rows of an array by index, as ``x[index]``: row i of the result is row ``index[i]`` of ``x``.

    Rows that begin at multiples of 16 bytes and are 256 bytes or a longer multiple of 16 bytes move by bulk copies, up
    to 32 of them in a block, as many as make 2 KiB; others by ordinary loads and stores. On GPUs with
    ``tile::gather4`` (compute capability 10.0 and above) four rows of at most 2 KiB that are multiples of 32 bytes move
    at a time; that has been compiled and simulated, and not run on hardware.

    Parameters
    ----------
    x : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any dtype and at least one
        dimension; all dimensions but the first are contiguous, and the first has any stride.
    index : array
        On the same device, of one dimension, int32 or int64, of any stride. Rows are numbered from 0; negative numbers
        count no rows from the end.
    out : array, optional
        Of shape ``(len(index), *x.shape[1:])``, rows contiguous, the same dtype and device; it overlaps neither ``x``
        nor ``index``. Default: a new C-contiguous array of the caller's kind.
    mode : str
        ``"raise"``: an index out of range is an error. It is found on the GPU, so the call has returned by then: no
        memory outside the arrays is read or written, that row of ``out`` keeps what it held, all others are moved, and
        a later call on the device, or `cupytma.check_indices`, raises `RowIndexError` (it says how exactly).
        ``"clip"``: numbers below 0 mean row 0, those past the end the last row.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``out``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If an array is in host memory, shapes, dtypes or devices do not fit, rows are not contiguous, memory overlaps,
        or ``x`` has no rows to take.
    RowIndexError
        If the kernel of an earlier call on the device has met an index out of range; this call does nothing.
    """
    cupy()
    if out is None:
        out = empty(x, (*_shape(index), *_shape(x)[1:]), stream)
    _move(GATHER, mode, x, out, index, stream)
    return out


def scatter_rows(dst: Any, index: Any, src: Any, *, mode: str = "raise", stream: Any = None) -> Any:
    """Rows of an array replaced by index, as ``dst[index] = src``: row i of ``src`` goes to row ``index[i]``.

    How rows move, and which may, is as for `gather_rows` (four at a time by ``tile::scatter4``, on compute capability
    10.0, 10.3 and 11.0, not run on hardware either). Where an index repeats it is not defined which row stays, nor that
    it is one row whole.

    Parameters
    ----------
    dst : array
        Of any dtype and at least one dimension; rows contiguous. Written in place.
    index : array
        As for `gather_rows`.
    src : array
        Of shape ``(len(index), *dst.shape[1:])``, rows contiguous, the same dtype and device.
    mode, stream
        As for `gather_rows`; with ``"raise"`` a row whose index is out of range is written nowhere.

    Returns
    -------
    array
        ``dst``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError, ArrayError, RowIndexError
        As for `gather_rows`.
    """
    cupy()
    _move(SCATTER, mode, src, dst, index, stream)
    return dst


def scatter_add_rows(dst: Any, index: Any, src: Any, *, mode: str = "raise", stream: Any = None) -> Any:
    """Rows added by index, as ``numpy.add.at(dst, index, src)``: row i of ``src`` is added to row ``index[i]``.

    Rows of whole 16-byte units at multiples of 16 bytes are added by tensor reductions, others by ordinary atomic
    instructions with the same arithmetic, that of `reduce_add`. Where an index repeats every row is added, in an order
    that is not defined; floating-point sums round after each.

    Parameters
    ----------
    dst : array
        int32, uint32, int64, uint64, float16, bfloat16, float32 or float64, of at least one dimension; rows
        contiguous. Added to in place.
    index, src, mode, stream
        As for `scatter_rows`.

    Returns
    -------
    array
        ``dst``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError, ArrayError, RowIndexError
        As for `gather_rows`; also ArrayError for other dtypes.
    """
    cupy()
    _move(SCATTER_ADD, mode, src, dst, index, stream)
    return dst


def _shape(array: Any) -> tuple[int, ...]:
    is_known = array.__class__ in short_ways
    return tuple(array.shape) if is_known else view_of(array).shape


@dataclass(frozen=True)
class PreparedRows:
    """Rows moved between any arrays of the layouts that this was prepared for.

    Attributes
    ----------
    operation : str
    template : Template or None
        Given the addresses of source, destination and index; None where there is nothing to move.
    views : tuple of ArrayView
        The three layouts; their addresses mean nothing.
    spans : tuple of tuple of int
        How far each reaches below and above its address, in bytes.
    """

    operation: str
    template: Template | None
    views: tuple[ArrayView, ArrayView, ArrayView]
    spans: tuple[tuple[int, int], ...]

    def at(self, source: int, destination: int, index: int) -> tuple[Callable[[int], None], ...]:
        """What launches between three addresses, between which rows were moved before."""
        device, template = int(self.views[0].device or 0), self.template

        def check(_: int) -> None:
            raise_noted(device)

        return (check,) if template is None else (check, template.at(source, destination, index))

    def launch(self, handle: int, source: int, destination: int, index: int) -> None:
        """Move rows between three addresses, in a stream.

        Raises
        ------
        ArrayError
            If the arrays overlap, or one has elements and no memory.
        RowIndexError
            If an earlier kernel has met an index out of range.
        """
        raise_noted(int(self.views[0].device or 0))
        if self.template is None:
            return
        if not (source and destination and index):
            names = "the source", "the destination", "index"
            check_addresses(self.views, (source, destination, index), names)
        low, high = destination + self.spans[1][0], destination + self.spans[1][1]
        for address, (below, above) in ((source, self.spans[0]), (index, self.spans[2])):
            if address + below < high and low < address + above:
                placed = zip(self.views, (source, destination, index), strict=True)
                check_rows(self.operation, *(replace(view, address=address) for view, address in placed))
                break
        self.template(handle, source, destination, index)


_prepared: Memory[Prepared] = Memory()


def _move(operation: str, mode: str, source: Any, destination: Any, index: Any, stream: Any) -> None:
    move(source, (operation, mode), destination, stream, _prepare, index)


def _prepare(
    source: ArrayView, what: tuple[str, str], destination: ArrayView, index: ArrayView | None = None
) -> Prepared:
    operation, mode = what
    if index is None:
        raise ArrayError("index = None: an array of int32 or int64 is needed, with a number of a row for each row")
    check_mode(mode)
    check_devices(source, destination)
    if index.device != source.device:
        raise ArrayError(
            f"the index is {place_in_words(index)}, and the arrays are on device {source.device}: move it there"
        )
    views = source, destination, index

    def build() -> PreparedRows:
        launch = _launch(operation, mode, views, int(source.device or 0))
        return PreparedRows(operation, launch, views, tuple(map(span_bytes, views)))

    return _prepared.once(what, views, build)


def _launch(operation: str, mode: str, views: tuple[ArrayView, ArrayView, ArrayView], device: int) -> Template | None:
    target = current_target()
    plan = plan_on(operation, views, target)
    if plan.is_empty:
        return None
    argument = rows_argument(plan, mode == "clip", tuple(view.address for view in views))
    argument["failure"] = record_address(device)
    argument["tag"] = tag_of((f"{operation}_rows", plan.table_rows))
    module = rows_module(str(target), plan.data_type)
    arguments: tuple[Any, ...] = (argument[()],)
    if plan.stages is None:
        name = f"{operation}_words" + (f"_{plan.word_bytes}" if plan.data_type is None else "")
    else:
        name = f"{operation}_rows"
        arguments = *arguments, plan.tensor_map or TensorMap.from_bytes(bytes(128))
    launch = rows_size(plan).plan(module.kernel(name), arguments, device)
    return launch.template(_places(launch, plan))


def plan_on(
    operation: str, views: tuple[ArrayView, ArrayView, ArrayView], target: targets.Target
) -> RowsPlan:
    """How rows are moved on a device of a target."""
    return plan_rows(operation, *views, quads=takes_quads(operation, target))


def rows_size(plan: RowsPlan) -> LaunchSize:
    """Of a launch that moves rows: blocks of one warp for bulk copies."""
    if plan.stages is None:
        return LaunchSize(min(-(-plan.words // _WORD_THREADS), MAX_THREADS // _WORD_THREADS), 0, _WORD_THREADS)
    stages = ROW_STAGES if plan.items > MAX_GRID[0] else 1
    shared = stages * plan.stages.stage_bytes + TILE_ALIGNMENT
    return LaunchSize(min(plan.items, MAX_GRID[0]), 0, WARP_THREADS, shared)


def _places(launch: Plan, plan: RowsPlan) -> list[tuple[int, int, int]]:
    """Where the addresses stand in a launch's parameters."""
    fields = dict(_ROWS.fields or {})
    places = [(int(fields[name][1]), which, 0) for which, name in enumerate(_POINTERS)]
    if plan.tensor_map is not None:
        places.append((launch.kernel.signature.parameters[1].offset, int(plan.operation != GATHER), 0))
    return places


def rows_argument(plan: RowsPlan, clips: bool, addresses: tuple[int, ...]) -> Any:
    """What kernels are told of a plan.

    Parameters
    ----------
    plan : RowsPlan
    clips : bool
        Whether an index out of range means the nearest row.
    addresses : tuple of int
        Of source, destination and index.
    """
    argument = np.zeros((), _ROWS)
    for name, address in zip(_POINTERS, addresses, strict=True):
        argument[name] = address
    for name in (
        "rows", "table_rows", "row_bytes", "items", "source_stride", "destination_stride", "index_stride",
        "index_bytes", "quads",
    ):
        argument[name] = getattr(plan, name)
    argument["clips"] = clips
    argument["words_per_row"] = plan.row_bytes // plan.word_bytes
    argument["words"] = plan.words
    argument["element_bytes"] = plan.word_bytes
    if plan.stages is not None:
        for name in ("rows_per_stage", "pieces", "piece_bytes", "slot_bytes", "box_bytes"):
            argument[name] = getattr(plan.stages, name)
    return argument


def takes_quads(operation: str, target: targets.Target) -> bool:
    """Whether a target moves four rows at a time."""
    needed = targets.Feature.GATHER4_TO_CTA if operation == GATHER else targets.Feature.CTA_GROUP
    return operation != SCATTER_ADD and target.has(needed)


@cache
def rows_module(target: str, data_type: DataType | None) -> Module:
    """The kernels that gather and scatter rows, or those that add rows of elements of a type."""
    chosen = targets.target(target)
    adds: dict[str, str] = {} if data_type is None else {"ELEMENT": data_type.name}
    return compiled(
        "rows.cu", target, STAGES=ROW_STAGES, GATHER4=int(takes_quads(GATHER, chosen)),
        SCATTER4=int(takes_quads(SCATTER, chosen)), **adds,
    )
