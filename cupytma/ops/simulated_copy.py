"""A copy on the simulator: the tiles of the GPU's plan, on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupytma import sim
from cupytma.ops.copy_plan import TilePlan, plan_copy
from cupytma.ops.layout import Region
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
    plan = plan_copy(view_of(source), view_of(destination))
    if plan.tiles is not None:
        _copy_tiles(plan.tiles, span_of(source), span_of(destination))
    if plan.rest is not None:
        _copy_rest(plan.rest)
    return destination


def _copy_tiles(tiles: TilePlan, source: tuple[Bytes, int], destination: tuple[Bytes, int]) -> None:
    shared = np.empty(tiles.source.box_bytes, np.uint8)
    for coordinates in tiles.coordinates():
        sim.load(tiles.source, coordinates, memory=source[0], base=source[1], shared=shared)
        sim.store(tiles.destination, coordinates, memory=destination[0], base=destination[1], shared=shared)


def _copy_rest(rest: Region) -> None:
    shape = (*(dim.extent for dim in reversed(rest.outer)), rest.run)
    source = (*(dim.source_stride for dim in reversed(rest.outer)), 1)
    destination = (*(dim.destination_stride for dim in reversed(rest.outer)), 1)
    _memory(rest.destination, shape, destination)[...] = _memory(rest.source, shape, source)


def span_of(array: Any) -> tuple[Bytes, int]:
    """The memory from an array's first byte to its last as bytes, and the address of the first."""
    view = view_of(array)
    steps = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
    low = view.address + sum(step for step in steps if step < 0)
    high = view.address + sum(step for step in steps if step > 0) + view.itemsize
    return _memory(low, (high - low,), (1,)), low


class _Memory:
    """Host memory by address, for numpy to wrap."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "data": (address, False), "shape": shape, "strides": strides,
        }


def _memory(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return np.asarray(_Memory(address, shape, strides))
