"""A tile within its tensor, in characters: what is read, what lies outside, two dimensions of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cupytma.sim import TileMap

    from .tensor_memory import AnyParameters

    Int64 = npt.NDArray[np.int64]

INSIDE, OUTSIDE, TENSOR, NOTHING = "#", "x", ".", " "
_HEIGHT = 16
_RUNS = 4  # parts of an axis that are drawn apart


@dataclass(frozen=True)
class _Axis:
    """One dimension on a line of cells.

    Attributes
    ----------
    dimension : int
        Driver order.
    edges : tuple of int
        Where cells begin, in elements, and where the last one ends.
    exact : bool
        Whether every cell is as many elements.
    marks : tuple of int
        Elements whose numbers are written beside the picture.
    extent : int
        Of the tensor.
    """

    dimension: int
    edges: tuple[int, ...]
    exact: bool
    marks: tuple[int, ...]
    extent: int

    def cells(self, coordinates: Int64) -> Int64:
        """The cells that elements are in."""
        import numpy as np

        found: Int64 = np.searchsorted(np.array(self.edges), coordinates, side="right") - 1
        return found

    @property
    def in_tensor(self) -> tuple[bool, ...]:
        """Of each cell, whether it is within the tensor."""
        return tuple(0 <= edge < self.extent for edge in self.edges[:-1])


def box_picture(parameters: AnyParameters, tile: TileMap, width: int) -> list[str]:
    """Lines of a picture of one tile within its tensor.

    Parameters
    ----------
    parameters : Tiled, Im2col or Im2colWide
    tile : TileMap
    width : int
        Characters that a line may have.
    """
    across, down = drawn_dimensions(parameters)
    unit = max(1, tile.unit_elements) if across == 0 else 1
    extents = parameters.global_dim
    x = tile.coordinates[:, across] // unit
    y = tile.coordinates[:, down] if down is not None else 0 * x
    vertical = _axis(-1 if down is None else down, y, 1 if down is None else extents[down], _HEIGHT)
    label = max(len(str(mark)) for mark in vertical.marks) + 1 if down is not None else 0
    last_mark = len(str(max(extents[across], int(x.max()) * unit)))
    horizontal = _axis(across, x, -(-extents[across] // unit), max(8, width - label - last_mark))
    grid = [[TENSOR if v and h else NOTHING for h in horizontal.in_tensor] for v in vertical.in_tensor]
    for state, chosen in ((OUTSIDE, ~tile.inside), (INSIDE, tile.inside)):
        rows, columns = vertical.cells(y[chosen]), horizontal.cells(x[chosen])
        for row, column in set(zip(rows.tolist(), columns.tolist(), strict=True)):
            grid[row][column] = state
    return [
        _heading(horizontal, vertical),
        " " * label + _ruler(horizontal, unit),
        *(f"{_row_label(vertical, i):>{label - 1}} {''.join(row)}".rstrip() if label else "".join(row)
          for i, row in enumerate(grid)),
    ]  # fmt: skip


def drawn_dimensions(parameters: AnyParameters) -> tuple[int, int | None]:
    """The dimensions drawn across and down, driver order: those that move fastest; of im2col W and H, or the batch."""
    from cupytma.tensormap import Tiled

    rank = parameters.rank
    first = 0 if isinstance(parameters, Tiled) or parameters.slice_bytes else 1
    spatial = rank - 2
    if isinstance(parameters, Tiled):
        return 0, 1 if rank > 1 else None
    return first, first + 1 if spatial > 1 else rank - 1


def legend(tile: TileMap, stores: bool) -> str:
    """What the characters mean, of those that a picture may have."""
    outside = "out of bounds, not written" if stores else "out of bounds, filled"
    parts = [f"{INSIDE} moved", f"{OUTSIDE} {outside}"] if not tile.inside.all() else [f"{INSIDE} moved"]
    return "   ".join([*parts, f"{TENSOR} the tensor's other elements"])


def other_dimensions(parameters: AnyParameters, tile: TileMap) -> list[str]:
    """What the tile has of the dimensions that are not drawn, in words."""
    drawn = drawn_dimensions(parameters)
    found = []
    for dimension, extent in enumerate(parameters.global_dim):
        if dimension in drawn:
            continue
        coordinates = tile.coordinates[:, dimension]
        first, last = int(coordinates.min()), int(coordinates.max())
        if not dimension:
            last += max(1, tile.unit_elements) - 1
        span = f"{first}" if first == last else f"{first} to {last}"
        outside = "" if first >= 0 and last < extent else ": partly out of bounds"
        if last < 0 or first >= extent:
            outside = ": out of bounds"
        found.append(f"dimension {dimension}: {span} of 0 to {extent - 1}{outside}")
    return found


def _axis(dimension: int, coordinates: Int64, extent: int, room: int) -> _Axis:
    runs = _runs(coordinates)
    marks = tuple(sorted({0, extent, *(edge for run in runs for edge in run)}))
    length = marks[-1] - marks[0]
    if length <= room:
        return _Axis(dimension, tuple(range(marks[0], marks[-1] + 1)), True, marks, extent)
    spans = [end - begin for begin, end in pairwise(marks)]
    cells = [max(min(span, 2 if room > 2 * len(spans) else 1), span * room // length) for span in spans]
    while sum(cells) > room and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    edges = [begin + span * i // n for begin, span, n in zip(marks, spans, cells, strict=False) for i in range(n)]
    exact = len({b - a for a, b in zip(edges, [*edges[1:], marks[-1]], strict=True)}) == 1
    return _Axis(dimension, (*edges, marks[-1]), exact, marks, extent)


def _runs(coordinates: Int64) -> list[tuple[int, int]]:
    """The parts of an axis that a tile has, begin and end; all as one where there are too many."""
    import numpy as np

    used = np.unique(coordinates)
    breaks = np.flatnonzero(np.diff(used) > 1)
    if len(breaks) >= _RUNS:
        return [(int(used[0]), int(used[-1]) + 1)]
    begins, ends = used[np.r_[0, breaks + 1]], used[np.r_[breaks, len(used) - 1]] + 1
    return [(int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)]


def _heading(horizontal: _Axis, vertical: _Axis) -> str:
    parts = [f"dimension {horizontal.dimension} across"]
    if vertical.dimension >= 0:
        parts.append(f"dimension {vertical.dimension} down")
    if not (horizontal.exact and vertical.exact):
        parts.append("not to scale")
    return ", ".join(parts)


def _ruler(axis: _Axis, unit: int) -> str:
    """Numbers of elements above the cells they begin, as many as there is room for; those further left first."""
    line = ""
    for mark in axis.marks:
        place = axis.edges.index(mark)
        if place >= len(line) + bool(line):
            line = f"{line:<{place}}{mark * unit}"
    return line


def _row_label(axis: _Axis, row: int) -> str:
    edge = axis.edges[row]
    return str(edge) if edge in axis.marks else ""

