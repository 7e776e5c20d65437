"""The copies of a whole grid, checked before it is launched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupytma.errors import SimulationError
from cupytma.limits import MAX_GRID
from cupytma.listed import Listed
from cupytma.sim.checks import check_coordinates, check_entries, check_integer, check_offsets, check_operands
from cupytma.sim.faults import Fault
from cupytma.sim.geometry import geometry
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap


@dataclass(frozen=True)
class GridFault:
    """A copy that would kill the kernel.

    Attributes
    ----------
    block : tuple of int
        The block that makes it: x, y and z.
    coordinates : tuple of int
        Where it would start, in elements, driver order.
    fault : Fault
        What would happen, and why.
    """

    block: tuple[int, int, int]
    coordinates: tuple[int, ...]
    fault: Fault

    def _repr_html_(self) -> str:
        from cupytma.view.html import printed

        return printed(self)

    def __str__(self) -> str:
        return f"block {self.block} at {self.coordinates}: {self.fault}"


def grid_faults(
    tensor_map: TensorMap,
    coordinates: Callable[[int, int, int], Sequence[int]],
    grid: int | Sequence[int],
    *,
    shared_offset: int = 0,
    offsets: Sequence[int] = (),
    store: bool = False,
    mode: str | None = None,
) -> tuple[GridFault, ...]:
    """Which blocks of a grid would die of their copy: the rules on coordinates, for every block.

    Parameters
    ----------
    tensor_map : TensorMap
    coordinates : callable
        From a block's x, y and z to the start of its copy, in elements, driver order.
    grid : int or sequence of int
        Blocks of the grid, x first, up to three; each of them is checked, some 100,000 in a second.
    shared_offset, offsets, mode
        As for `cupytma.sim.load`.
    store : bool
        Whether the copies are stores or reductions.

    Returns
    -------
    tuple of GridFault
        In the order of the blocks, x fastest; empty if none would die.

    Raises
    ------
    SimulationError
        If an operand is none the instruction takes; the message names the block.

    Examples
    --------
    >>> import cupytma as tma
    >>> m = tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(1304,), box_dim=(64,)).encode()
    >>> [str(found.block) for found in grid_faults(m, lambda x, y, z: (x // 9 * 130,), 10)]
    ['(9, 0, 0)']
    """
    if not callable(coordinates):
        raise SimulationError(f"coordinates is {coordinates!r}; it must be a function of a block's x, y and z")
    if not isinstance(store, bool):
        raise SimulationError(f"store is {store!r}; it must be True or False")
    plan = geometry(tensor_map, mode, store=store)
    offsets = check_offsets(plan, offsets)
    found = []
    for z, y, x in itertools.product(*(range(n) for n in reversed(_extents(grid)))):
        given = coordinates(x, y, z)
        try:
            start = check_coordinates(plan, given)
            check_operands(plan, start, offsets, shared_offset, store=store)
        except Fault as fault:
            found.append(GridFault((x, y, z), start, fault))
        except SimulationError as error:
            raise SimulationError(f"block {(x, y, z)}: {error}") from None
    return Listed(found)


def _extents(grid: int | Sequence[int]) -> tuple[int, int, int]:
    given = (grid,) if not isinstance(grid, Iterable) else check_entries("grid", grid, "one to three extents")
    extents = tuple(check_integer("an extent of the grid", extent) for extent in given)
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise SimulationError(f"grid is {grid!r}; it must be one to three extents of 1 or above")
    for axis, extent, most in zip("xyz", extents, MAX_GRID, strict=False):
        if extent > most:
            raise SimulationError(f"grid has {counted(extent, 'block')} along {axis}; a launch has {most} at most")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
