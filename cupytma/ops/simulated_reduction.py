"""A reduction on the simulator: the tiles of the GPU's plan, on numpy arrays."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from cupytma import sim
from cupytma.ops.copy_plan import TilePlan
from cupytma.ops.layout import Region
from cupytma.ops.reduction_plan import check_atomic, element_type, plan_reduction
from cupytma.ops.simulated_copy import Bytes, memory_at, span_of
from cupytma.sim.reductions import Reduction, combine, reduction
from cupytma.tensormap.arrays import view_of


def simulate_reduction(operation: str, destination: Any, source: Any, *, atomic: bool = False) -> Any:
    """Reduce one numpy array into another as `cupytma.reduce_add` and its kin do it on a GPU, tile by tile.

    Parameters
    ----------
    operation : str
        ``"add"``, ``"min"``, ``"max"``, ``"and"``, ``"or"``, ``"xor"``, ``"inc"`` or ``"dec"``.
    destination, source : numpy.ndarray
        As for `cupytma.reduce_add`.
    atomic : bool
        As for `cupytma.reduce_add`.

    Returns
    -------
    numpy.ndarray
        The destination.

    Raises
    ------
    ArrayError
        As `cupytma.reduce_add`.
    """
    check_atomic(atomic)
    view = view_of(source)
    plan = plan_reduction(operation, view, view_of(destination), atomic)
    if plan.tiles is not None:
        _reduce_tiles(operation, plan.tiles, span_of(source), span_of(destination))
    if plan.rest is not None:
        chosen = reduction(element_type(operation, view.dtype), operation)
        _reduce_rest(chosen, plan.rest, view.itemsize)
    return destination


def _reduce_tiles(
    operation: str, tiles: TilePlan, source: tuple[Bytes, int], destination: tuple[Bytes, int]
) -> None:
    shared = np.empty(tiles.source.box_bytes, np.uint8)
    for coordinates in tiles.coordinates():
        sim.load(tiles.source, coordinates, memory=source[0], base=source[1], shared=shared)
        sim.reduce(
            tiles.destination, operation, coordinates, memory=destination[0], base=destination[1], shared=shared
        )


def _reduce_rest(chosen: Reduction, rest: Region, itemsize: int) -> None:
    """Each run in its turn along dimensions in which the destination stays in place, innermost first, as the kernel
    counts them; all others at once."""
    turns = [dim for dim in reversed(rest.outer) if dim.destination_stride == 0]
    outer = [dim for dim in reversed(rest.outer) if dim.destination_stride]
    shape = (*(dim.extent for dim in outer), rest.run)
    place = memory_at(rest.destination, shape, (*(dim.destination_stride for dim in outer), 1))
    for index in product(*(range(dim.extent) for dim in turns)):
        shift = sum(i * dim.source_stride for i, dim in zip(index, turns, strict=True))
        taken = memory_at(rest.source + shift, shape, (*(dim.source_stride for dim in outer), 1))
        place[...] = combine(chosen, np.ascontiguousarray(place), np.ascontiguousarray(taken))
