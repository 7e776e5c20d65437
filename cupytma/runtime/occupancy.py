"""How many blocks of a kernel a device runs at once, and grids made from it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from cupytma.errors import LaunchError
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown, whole, wholes
from cupytma.runtime.submission import Refused, check, configuration, driver_api

if TYPE_CHECKING:
    from cupytma.runtime.launch_shape import LaunchShape
    from cupytma.runtime.submission import Function

Extents = int | Sequence[int]


class Occupancy:
    """What can be asked about a kernel on the current device. Part of `Kernel`."""

    name: str

    if TYPE_CHECKING:

        def shape(self, grid: Any, block: Any, shared_bytes: int = 0, cluster: Any = None) -> LaunchShape: ...
        def function(self) -> Function: ...
        def failed(self, error: Exception, shape: LaunchShape) -> Exception: ...

    def max_active_blocks(self, block: Extents, shared_bytes: int = 0) -> int:
        """Blocks that one multiprocessor runs at once; 0 if not one fits.

        Parameters
        ----------
        block, shared_bytes
            As for a launch.

        Raises
        ------
        LaunchError
            If the shape is impossible.
        """
        shape, function = self.shape(1, block, shared_bytes), self.function()
        function.allow(shape)
        found = cupy().cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.handle, prod(shape.block), shape.shared_bytes
        )
        return int(found)

    def max_active_clusters(self, block: Extents, cluster: Extents, shared_bytes: int = 0) -> int:
        """Clusters that the whole device runs at once (``cuOccupancyMaxActiveClusters``); 0 if not one fits.

        Parameters
        ----------
        block, cluster, shared_bytes
            As for a launch. For a kernel with ``__cluster_dims__``, those.

        Raises
        ------
        LaunchError
            If the shape is impossible, or the driver refuses it.
        """
        shape, function = self.shape(cluster, block, shared_bytes, cluster), self.function()
        function.allow(shape)
        driver = driver_api()
        try:
            status, found = driver.cuOccupancyMaxActiveClusters(
                driver.CUfunction(function.handle), configuration(shape, 0)
            )
            check(status, "cuOccupancyMaxActiveClusters")
        except Refused as refused:
            raise self.failed(refused, shape) from None
        return int(found)

    def persistent_grid(
        self, block: Extents, shared_bytes: int = 0, *, cluster: Extents | None = None, tiles: int | None = None
    ) -> int:
        """Blocks of a grid that runs all at once, along x: what a kernel that loops over tiles is launched with.

        Parameters
        ----------
        block, shared_bytes
            As for a launch.
        cluster : int or sequence of int, optional
            The grid is then a whole number of clusters along x.
        tiles : int, optional
            No more blocks than this are needed, rounded up to whole clusters.

        Raises
        ------
        LaunchError
            If not one block or cluster fits a multiprocessor, or ``tiles`` is no positive whole number.
        """
        if cluster is None:
            tied, resident = 1, self.max_active_blocks(block, shared_bytes) * multiprocessors()
        else:
            extents = self.shape(cluster, block, shared_bytes, cluster).grid
            if prod(extents[1:]) != 1:
                raise LaunchError(f"cluster = {shown(cluster)}: a grid along x alone takes a cluster along x alone")
            tied = extents[0]
            resident = self.max_active_clusters(block, cluster, shared_bytes) * tied
        if resident == 0:
            raise LaunchError(
                f"not one block of {self.name} fits a multiprocessor with block {block} and {shared_bytes} B of "
                "dynamic shared memory: give it less of either, or fewer registers"
            )
        if tiles is None:
            return resident
        try:
            needed = whole(tiles)
        except TypeError:
            needed = 0
        if needed < 1:
            raise LaunchError(f"tiles = {shown(tiles)}: a positive whole number is needed")
        return min(resident, -(-needed // tied) * tied)


def multiprocessors(device: int | None = None) -> int:
    """Multiprocessors of a device, by default the current one."""
    return int(cupy().cuda.Device(device).attributes["MultiProcessorCount"])


def grid_of(extents: Extents, tile: Extents) -> tuple[int, ...]:
    """How many tiles cover extents, along each dimension: a grid with one block for each tile.

    Parameters
    ----------
    extents, tile : int or sequence of int
        In the same order, x first for a grid.

    Raises
    ------
    LaunchError
        If they differ in length, or are no positive whole numbers.

    Examples
    --------
    >>> grid_of((1000, 64), (128, 32))
    (8, 2)
    """
    try:
        sizes, steps = wholes(extents), wholes(tile)
    except TypeError:
        sizes, steps = (), (1,)
    if len(sizes) != len(steps) or not all(n >= 1 for n in (*sizes, *steps)):
        raise LaunchError(
            f"extents = {shown(extents)} and tile = {shown(tile)}: as many positive whole numbers each are needed"
        )
    return tuple(-(-size // step) for size, step in zip(sizes, steps, strict=True))
