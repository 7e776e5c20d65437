"""Transpositions of many matrices of different shapes at once, with tensor maps that the device makes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError
from cupytma.limits import ADDRESS_LIMIT, MAX_EXTENT, STRIDE_LIMIT, SWIZZLE_PERIOD, UNIT, WARP_THREADS
from cupytma.ops.copy_launches import TURN_BLOCKS_PER_MULTIPROCESSOR, TURN_THREADS, compiled
from cupytma.ops.group_calls import PairOperation, turned
from cupytma.ops.groups import (
    GROUP_BYTES,
    INTEGERS,
    SETUP_THREADS,
    Part,
    PreparedGroups,
    Workspace,
    check_pairs,
    common_device,
    integers_argument,
)
from cupytma.ops.recent import Recent
from cupytma.ops.transposition import SHAPES, SPAN, tile_map
from cupytma.runtime.compiler import Module, current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.plan import Plan
from cupytma.runtime.streams import as_cupy, wait_for
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.tensor_map import TensorMap

MATRIX = np.dtype(
    [
        ("source", "u8"), ("destination", "u8"), ("rows", "u8"), ("columns", "u8"), ("source_row", "i8"),
        ("source_column", "i8"), ("destination_row", "i8"), ("destination_column", "i8"), ("is_mapped", "u8"),
    ]
)
_recent = Recent()


def grouped_transpose(sources: Any, destinations: Any = None, *, shapes: Any = None, stream: Any = None) -> list[Any]:
    """Transpose many matrices on the GPU, each into an array of its own, bit for bit.

    Matrices whose rows are dense, with addresses and strides that are multiples of 16 bytes, move through tensor maps
    that the device makes itself; others, and the ends of rows within a 16-byte unit, by ordinary loads and stores.

    Parameters
    ----------
    sources : list of array
        CuPy arrays, torch tensors, or anything with ``__cuda_array_interface__``, of two dimensions, any strides, and
        elements of 1, 2, 4, 8 or 16 bytes.
    destinations : list of array, optional
        As many, of the dtypes of their sources and the shapes the other way round. Default: new C-contiguous arrays.
    shapes : array of int, shape (arrays, 2), optional
        Rows and columns of the leading part of each source to transpose. In device memory nothing waits for them; then
        all elements have one size, and the destinations may be larger.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    list of array
        The destinations. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        As for `grouped_copy`.

    Notes
    -----
    What `grouped_copy` says of CUDA graphs holds here too.
    """
    return _transpose(sources, destinations, shapes, stream)


def _prepare(
    sources: Sequence[ArrayView], destinations: Sequence[ArrayView], shapes: Any, handle: int
) -> PreparedGroups:
    """Launches for the matrices of each element size."""
    device = common_device((*sources, *destinations))
    for i, (source, destination) in enumerate(zip(sources, destinations, strict=True)):
        _check(i, source, destination, shapes is not None)
    sizes = sorted({source.itemsize for source in sources})
    if shapes is not None and len(sizes) > 1:
        raise ArrayError(f"elements have {sizes} B; with shapes on the device all have one size: call it for each")
    check_pairs(sources, destinations)
    parts = []
    with cupy().cuda.Device(device):
        stream = as_cupy(handle)
        for view in (*sources, *destinations):
            if view.stream is not None:
                wait_for(view.stream, stream)
        for size in sizes:
            chosen = [i for i, source in enumerate(sources) if source.itemsize == size]
            matrices = _matrices([sources[i] for i in chosen], [destinations[i] for i in chosen])
            integers = np.zeros((), INTEGERS)[()]
            if shapes is not None:
                integers = integers_argument(shapes, "shapes", (len(sources), 2), device, stream)
            parts.append(_part(matrices, size, integers, handle))
    return PreparedGroups(device, parts, shapes is not None)


_transpose = PairOperation(_recent, _prepare, is_turned=True)


def _check(position: int, source: ArrayView, destination: ArrayView, is_capacity: bool) -> None:
    where = f"sources[{position}] and destinations[{position}]"
    wanted = turned(source, position).shape
    if len(destination.shape) != 2 or (destination.shape != wanted and not is_capacity):
        raise ArrayError(f"{where}: a source of {source.shape} goes to a destination of {wanted}, not "
                         f"{destination.shape}")  # fmt: skip
    if source.dtype != destination.dtype or source.itemsize != destination.itemsize:
        raise ArrayError(f"{where} are of {source.dtype} and {destination.dtype}; view or convert one of them first")
    if source.itemsize not in SHAPES:
        raise ArrayError(f"{where}: elements of {source.itemsize} B; those of {', '.join(map(str, SHAPES))} B can be")
    if destination.read_only and destination.size:
        raise ArrayError(f"destinations[{position}] is read-only; write to an array that may be written")
    numbers = (source.address, destination.address, *source.strides, *destination.strides)
    if source.size and any(number % source.itemsize for number in numbers):
        raise ArrayError(f"{where}: elements are not at multiples of their {source.itemsize} B; copy them first")


def _matrices(sources: Sequence[ArrayView], destinations: Sequence[ArrayView]) -> npt.NDArray[np.void]:
    rows = []
    for source, destination in zip(sources, destinations, strict=True):
        row_count, column_count = (min(s, d) for s, d in zip(source.shape, destination.shape[::-1], strict=True))
        rows.append((
            source.address, destination.address, row_count, column_count, *source.strides, *destination.strides,
            int(_is_mapped(source, destination)),
        ))  # fmt: skip
    return np.array(rows, MATRIX)


def _is_mapped(source: ArrayView, destination: ArrayView) -> bool:
    """Whether tensor maps may describe both, as far as it does not depend on the extents."""
    pitches = [view.strides[0] if view.shape[0] > 1 else UNIT for view in (source, destination)]
    return (
        all(view.strides[1] == view.itemsize or view.shape[1] <= 1 for view in (source, destination))
        and all(view.address % UNIT == 0 and view.address < ADDRESS_LIMIT for view in (source, destination))
        and all(pitch % UNIT == 0 and 0 <= pitch < STRIDE_LIMIT for pitch in pitches)
        and max(*source.shape, *destination.shape) * max(1, source.itemsize // 8) <= MAX_EXTENT
    )


def _part(matrices: npt.NDArray[np.void], size: int, integers: Any, handle: int) -> Part:
    workspace = Workspace("grouped_transpose", len(matrices), handle, matrices)
    shape, made = SHAPES[size], module(str(current_target()), size)
    seeds = seed(size, shape.square_rows), seed(size, shape.square_columns)
    settling = made.kernel("settle_transposes").plan(
        workspace.setup_blocks, SETUP_THREADS, (workspace.work[()], workspace.descriptions, integers, *seeds),
        stream=handle,
    )  # fmt: skip
    mapped = matrices["is_mapped"] != 0
    total = int((matrices["rows"].astype(float) * matrices["columns"].astype(float) * size).sum())
    square = SPAN // size
    tile_bytes = shape.square_rows * shape.square_columns * square * SPAN
    moving: list[Plan] = []
    if mapped.any():
        moving.append(made.kernel("transpose_groups").plan(
            workspace.tile_blocks(total + len(matrices) * tile_bytes, tile_bytes, shape.blocks),
            shape.threads + WARP_THREADS, (workspace.work[()],),
            shared_bytes=(shape.stages + shape.outputs) * tile_bytes + SWIZZLE_PERIOD, stream=handle,
        ))  # fmt: skip
    if integers["data"] or not mapped.all() or (matrices["rows"] * np.uint64(size) % np.uint64(UNIT) != 0).any():
        moving.append(made.kernel("turn_groups").plan(
            workspace.tile_blocks(total + len(matrices) * 4096, 4096, TURN_BLOCKS_PER_MULTIPROCESSOR), TURN_THREADS,
            (workspace.work[()],), stream=handle,
        ))  # fmt: skip
    return Part(workspace, settling, moving)


@cache
def seed(size: int, squares: int) -> TensorMap:
    """What the maps of one side are made from, for elements of a size and tiles of as many squares."""
    return tile_map(size, squares * (SPAN // size))


@cache
def module(target: str, size: int) -> Module:
    """The kernels for elements of a size."""
    shape = SHAPES[size]
    return compiled(
        "grouped_transpose.cu", target, ELEMENT_BYTES=size, SQUARE_ROWS=shape.square_rows,
        SQUARE_COLUMNS=shape.square_columns, STAGES=shape.stages, OUTPUTS=shape.outputs, THREADS=shape.threads,
        GROUP_BYTES=GROUP_BYTES,
    )  # fmt: skip
