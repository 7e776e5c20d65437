"""A copy to many places on the simulator: the tiles of the GPU's plan, on numpy arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from cupytma import sim
from cupytma.ops.multicast_plan import plan_multicast
from cupytma.ops.simulated_copy import copy_rest, simulate_plan, span_of
from cupytma.tensormap.arrays import view_of


def simulate_multicast_copy(source: Any, destination: Any) -> Any:
    """Copy one numpy array to many places as `cupytma.multicast_copy` does it on a GPU, tile by tile.

    Parameters
    ----------
    source, destination : numpy.ndarray
        As for `cupytma.multicast_copy`.

    Returns
    -------
    numpy.ndarray
        The destination.

    Raises
    ------
    ArrayError
        As `cupytma.multicast_copy`.
    """
    plan = plan_multicast(view_of(source), view_of(destination))
    if plan.is_empty:
        return destination
    there, here = span_of(destination), span_of(source)
    if plan.before is not None:
        simulate_plan(plan.before, here, there)
        here = there
    tiles = plan.tiles
    if tiles is not None:
        shared = np.empty(tiles.source.box_bytes, np.uint8)
        for tile in range(tiles.tiles):
            sim.load(tiles.source, tiles.start(tile), memory=here[0], base=here[1], shared=shared)
            for copy in range(prod(tiles.copies)):
                place = tiles.place(tile, copy)
                sim.store(tiles.destination, place, memory=there[0], base=there[1], shared=shared)
    if plan.rest is not None:
        copy_rest(plan.rest)
    return destination
