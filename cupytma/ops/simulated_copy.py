"""A copy on the simulator: the tiles of the GPU's plan, on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupytma import sim
from cupytma.limits import UNIT
from cupytma.ops.copy_plan import CopyPlan, TilePlan, plan_copy
from cupytma.ops.layout import Region
from cupytma.ops.transposition import SPAN, TransposePlan
from cupytma.tensormap.arrays import view_of

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


def simulate_copy(source: Any, destination: Any) -> Any:
    """Copy one numpy array to another as `cupytma.copy` does it on a GPU, tile by tile through the simulator.

    Parameters
    ----------
    source, destination : numpy.ndarray
        Of the same shape and dtype, of any strides; they may not overlap.

    Returns
    -------
    numpy.ndarray
        The destination.

    Raises
    ------
    ArrayError
        As `cupytma.copy`.
    """
    simulate_plan(plan_copy(view_of(source), view_of(destination)), span_of(source), span_of(destination))
    return destination


def simulate_plan(plan: CopyPlan, source: tuple[Bytes, int], destination: tuple[Bytes, int]) -> None:
    """Carry out a copy's plan.

    Parameters
    ----------
    plan : CopyPlan
    source, destination : tuple of numpy.ndarray and int
        Memory that holds each array, and the address of its first byte.
    """
    if isinstance(plan.turned, TransposePlan):
        _transpose_tiles(plan.turned, source, destination)
    elif plan.turned is not None:
        copy_rest(plan.turned.region)
    if plan.bulk is not None:  # its chunks are no more than pieces of one run
        copy_rest(Region(plan.bulk.source, plan.bulk.destination, plan.bulk.bytes, ()))
    if plan.tiles is not None:
        _copy_tiles(plan.tiles, source, destination)
    if plan.rest is not None:
        copy_rest(plan.rest)


def _copy_tiles(tiles: TilePlan, source: tuple[Bytes, int], destination: tuple[Bytes, int]) -> None:
    shared = np.empty(tiles.source.box_bytes, np.uint8)
    for coordinates in tiles.coordinates():
        sim.load(tiles.source, coordinates, memory=source[0], base=source[1], shared=shared)
        sim.store(tiles.destination, coordinates, memory=destination[0], base=destination[1], shared=shared)


def _transpose_tiles(plan: TransposePlan, source: tuple[Bytes, int], destination: tuple[Bytes, int]) -> None:
    shape, square, words = plan.shape, plan.square, plan.words
    turn = turned_bytes(plan)
    for row, column, outer in plan.coordinates():
        tile, result = np.empty(plan.tile_bytes, np.uint8), np.empty(plan.tile_bytes, np.uint8)
        load_bytes, store_bytes = plan.source.box_bytes, plan.destination.box_bytes
        for i in range(shape.square_columns):
            sim.load(
                plan.source, ((column + i * square) * words, row, *outer), memory=source[0], base=source[1],
                shared=tile, shared_offset=i * load_bytes,
            )
        result[turn[1]] = tile[turn[0]]
        for i in range(shape.square_rows):
            sim.store(
                plan.destination, ((row + i * square) * words, column, *outer), memory=destination[0],
                base=destination[1], shared=result, shared_offset=i * store_bytes,
            )


def turned_bytes(plan: TransposePlan) -> tuple[Any, Any]:
    """Which byte of a loaded tile becomes which byte of a stored one, both as they lie in shared memory, swizzled.

    Returns
    -------
    source, destination : numpy.ndarray of int
        Offsets of every byte of every element.
    """
    rows, columns = plan.tile
    row, column, byte = np.ogrid[:rows, :columns, : plan.element_bytes]
    return (
        _place(row, column * plan.element_bytes + byte, plan.source.box_bytes),
        _place(column, row * plan.element_bytes + byte, plan.destination.box_bytes),
    )


def _place(row: Any, byte: Any, box_bytes: int) -> Any:
    """Where a byte of a row lies in boxes of 128-byte rows, one after the other, with the 128B swizzle."""
    offset = byte // SPAN * box_bytes + row * SPAN + byte % SPAN
    return offset ^ (row % 8) * UNIT


def copy_rest(rest: Region) -> None:
    """Copy what no tensor map may move."""
    shape = (*(dim.extent for dim in reversed(rest.outer)), rest.run)
    source = (*(dim.source_stride for dim in reversed(rest.outer)), 1)
    destination = (*(dim.destination_stride for dim in reversed(rest.outer)), 1)
    memory_at(rest.destination, shape, destination)[...] = memory_at(rest.source, shape, source)


def span_of(array: Any) -> tuple[Bytes, int]:
    """The memory from an array's first byte to its last as bytes, and the address of the first."""
    view = view_of(array)
    steps = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
    low = view.address + sum(step for step in steps if step < 0)
    high = view.address + sum(step for step in steps if step > 0) + view.itemsize
    return memory_at(low, (high - low,), (1,)), low


class _Memory:
    """Host memory by address, for numpy to wrap."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "data": (address, False), "shape": shape, "strides": strides,
        }


def memory_at(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Host memory as bytes in a shape; whoever asks keeps it alive."""
    return np.asarray(_Memory(address, shape, strides))
