"""One tile within its tensor: what is loaded, and what lies outside and is filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from cupytma.errors import PictureError
from cupytma.sim.geometry import geometry
from cupytma.sim.mapping import Bool, Int64, TileMap, tile_map
from cupytma.tensormap.enums import OobFill
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.view.drawing import WIDTH, Canvas, Picture, counted
from cupytma.view.subjects import map_of

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap

LOADED, FILLED, TENSOR = "c0 tint", "c1 tint", "c7 pale"
"""Classes of what is loaded, of what is filled, and of the tensor."""

_LABEL = 64
_TOP = 66
_AREA = WIDTH - _LABEL - 40, 360
_CELL = 26  # a position is this large at most, in pixels
_GRID = 7  # and has lines around it from this on
_MOST_RUNS = 300


@dataclass(frozen=True)
class _Plane:
    """The tile in the two dimensions that are drawn.

    Attributes
    ----------
    columns, rows : ndarray of int64
        Tensor coordinates of the entries along each.
    inside : ndarray of bool, shape (rows, columns)
    extents : (int, int)
        Of the tensor.
    entry : int
        Positions of dimension 0 that one entry covers.
    """

    columns: Int64
    rows: Int64
    inside: Bool
    extents: tuple[int, int]
    entry: int

    @property
    def hull(self) -> tuple[int, int, int, int]:
        """First and one past the last position in each dimension: left, right, top, bottom."""
        left, right = int(self.columns.min()), int(self.columns.max()) + self.entry
        return left, right, int(self.rows.min()), int(self.rows.max()) + 1


@dataclass(frozen=True)
class _Scale:
    """Positions of one dimension in pixels; only those from `first` to `end` are drawn."""

    first: int
    end: int
    origin: float
    pixels: float

    def __call__(self, position: float) -> float:
        """Where a position begins; those that are not drawn, at the border."""
        return self.origin + (min(max(position, self.first), self.end) - self.first) * self.pixels


def tile(
    subject: TensorMap | Parameters,
    coordinates: Sequence[int] | None = None,
    *,
    mode: str | None = None,
) -> Picture:
    """A tile within its tensor, in the two innermost dimensions; the others are told in words.

    Parameters
    ----------
    subject : TensorMap or Tiled
    coordinates : sequence of int, optional
        Start of the tile in elements, driver order; may be negative. Default: the tensor's first element. For
        ``"tile::gather4"`` the column and four rows.
    mode : str, optional
        As `cupytma.sim.load` takes it.

    Returns
    -------
    Picture
        Elements that a load reads, and those that it fills, which are hatched too. With interleave one cell is a
        slice, of packed types 16 elements.

    Raises
    ------
    PictureError
        If it is no tiled tensor map.
    DescriptorError
        If the parameters cannot be encoded.
    Fault, SimulationError
        As `cupytma.sim.tile_map` does: a load from such coordinates kills the kernel, or no instruction carries them.
    """
    given = map_of(subject)
    parameters = given.decode()
    if not isinstance(parameters, Tiled):
        raise PictureError(f"a {parameters.kind} map has no box; `view.im2col` draws its pixels")
    plan = geometry(given, mode)
    start = (0,) * plan.coordinates if coordinates is None else coordinates
    found = tile_map(given, start, mode=mode)
    plane, told = _plane(parameters, found)
    return _picture(parameters, plane, found, told)


def _plane(parameters: Tiled, found: TileMap) -> tuple[_Plane, list[str]]:
    """The first plane of the tile that has anything inside, and what is to be said of the other dimensions."""
    rank = parameters.rank
    two = 1 if rank == 1 else 2
    shape = found.shape if len(found.shape) == rank else (*found.shape[:-1], *(1,) * (rank - len(found.shape)), found.shape[-1])
    across = shape[-1]
    # With interleave the tile is one slice along dimension rank - 2, whichever rank that is.
    coordinates = found.coordinates.reshape(*_planes(shape, two), across, rank)
    inside = found.inside.reshape(coordinates.shape[:-1])
    flat = inside.reshape(len(inside), -1).any(axis=1)
    chosen = int(flat.argmax())
    here = coordinates[chosen]
    rows = here[:, 0, 1] if two == 2 else np.zeros(1, np.int64)
    extents = (parameters.global_dim[0], parameters.global_dim[1] if two == 2 else 1)
    plane = _Plane(here[0, :, 0], rows, inside[chosen], extents, max(1, found.unit_elements))
    return plane, list(_others(parameters, found, here[0, 0].tolist()))


def _planes(shape: tuple[int, ...], two: int) -> tuple[int, int]:
    rows = shape[-2] if two == 2 else 1
    return int(np.prod(shape[:-1], dtype=np.int64)) // rows, rows


def _others(parameters: Tiled, found: TileMap, drawn: list[int]) -> Iterator[str]:
    """What the dimensions that are not drawn are like."""
    for dimension in range(2, parameters.rank):
        positions = np.unique(found.coordinates[:, dimension])
        extent = parameters.global_dim[dimension]
        outside = int(((positions < 0) | (positions >= extent)).sum())
        spread = f"{positions[0]}" if len(positions) == 1 else f"{positions[0]} to {positions[-1]}"
        step = parameters.element_strides[dimension]
        yield (
            f"Dimension {dimension}: {counted(len(positions), 'position')} ({spread}"
            + f", every {step}" * (step > 1 and len(positions) > 1)
            + f") of extent {extent}, {outside} outside; drawn is {drawn[dimension]}."
        )


def _picture(parameters: Tiled, plane: _Plane, found: TileMap, told: list[str]) -> Picture:
    entry = {0: "slice", 1: "element"}.get(found.unit_elements, f"group of {found.unit_elements} elements")
    many = entry.replace("group", "groups", 1) if entry.startswith("group") else ""
    fill = "NaN" if parameters.oob_fill == OobFill.NAN_REQUEST_ZERO_FMA else "zero"
    read = int(found.inside.sum())
    numbers = (
        f"The tile has {counted(len(found.inside), entry, many)}: {read:,} are loaded, "
        f"{len(found.inside) - read:,} lie outside and are filled with {fill}."
    )
    start = ", ".join(map(str, found.coordinates[0].tolist()))
    canvas = Canvas(f"Tile at ({start}) of a tensor of {_sizes(parameters.global_dim)}", numbers)
    box, dims = _sizes(parameters.box_dim), _sizes(parameters.global_dim)
    canvas.text(0, 16, f"Box {box} at ({start}) of a tensor of {dims} {parameters.data_type}", "heading", room=WIDTH)
    canvas.text(0, 36, "Dimension 0 goes to the right, dimension 1 down.", "faint")
    left, right, top, bottom = plane.hull
    pixels = _pixels(plane)
    x = _Scale(*_shown(left, right, plane.extents[0], _AREA[0] / pixels), _LABEL, pixels)
    y = _Scale(*_shown(top, bottom, plane.extents[1], _AREA[1] / pixels), _TOP, pixels)
    _draw_tensor(canvas, plane, x, y)
    _draw_tile(canvas, plane, x, y)
    _draw_rulers(canvas, plane, x, y)
    return _with_notes(canvas, parameters, numbers, told, plane, x, y)


def _sizes(extents: Sequence[int]) -> str:
    return " × ".join(map(str, extents))


def _pixels(plane: _Plane) -> float:
    """Size of a position: as large as fits with the whole tensor, but with a tile that can be seen."""
    left, right, top, bottom = plane.hull
    whole = min(
        _AREA[0] / (max(right, plane.extents[0]) - min(left, 0)),
        _AREA[1] / (max(bottom, plane.extents[1]) - min(top, 0)),
    )
    # At least a third of the area for the tile, and never more than all of it.
    close = min(_AREA[0] / (right - left), _AREA[1] / (bottom - top))
    return min(_CELL, max(whole, min(0.4 * close, 12)))


def _shown(first: int, end: int, extent: int, room: float) -> tuple[int, int]:
    """The positions that are drawn: all if they fit, else those around the tile."""
    low, high = min(first, 0), max(end, extent)
    if high - low <= room + 1e-6:
        return low, high
    spare = max(int(room) - (end - first), 2)
    begin = max(low, first - spare // 2)
    finish = min(high, begin + (end - first) + spare)
    return max(low, min(begin, finish - (end - first) - spare)), finish


def _draw_tensor(canvas: Canvas, plane: _Plane, x: _Scale, y: _Scale) -> None:
    columns, rows = plane.extents
    left, right, top, bottom = x(0), x(columns), y(0), y(rows)
    if right <= left or bottom <= top:
        return
    canvas.rect(left, top, right - left, bottom - top, "c7 pale", "the tensor")
    if x.pixels >= _GRID:
        first, last = max(0, x.first), min(columns, x.end)
        grid = [[(x(c), top), (x(c), bottom)] for c in range(first + 1, last)]
        first, last = max(0, y.first), min(rows, y.end)
        canvas.lines([*grid, *([(left, y(r)), (right, y(r))] for r in range(first + 1, last))], "line")
    # The tensor's own edges; where it goes on there is none.
    edges = [((0, 0), (0, rows)), ((columns, 0), (columns, rows)), ((0, 0), (columns, 0)), ((0, rows), (columns, rows))]
    for (c1, r1), (c2, r2) in edges:
        if x.first <= c1 and c2 <= x.end if c1 == c2 else y.first <= r1 and r2 <= y.end:
            canvas.line(x(c1), y(r1), x(c2), y(r2), "edge")


def _draw_tile(canvas: Canvas, plane: _Plane, x: _Scale, y: _Scale) -> None:
    for rows, columns, inside in _runs(plane):
        left, right = x(columns[0]), x(columns[1])
        top, bottom = y(rows[0]), y(rows[1])
        what = "loaded" if inside else "filled"
        tip = f"{what}: {_range(columns)} of dimension 0, {_range(rows)} of dimension 1"
        canvas.rect(left, top, right - left, bottom - top, LOADED if inside else FILLED, tip)
        if not inside:
            canvas.hatch(left, top, right - left, bottom - top, "c1")
    left, right, top, bottom = plane.hull
    canvas.rect(x(left), y(top), x(right) - x(left), y(bottom) - y(top), "edge dashed")


def _range(positions: tuple[int, int]) -> str:
    first, last = positions[0], positions[1] - 1
    return str(first) if first == last else f"{first} to {last}"


def _runs(plane: _Plane) -> list[tuple[tuple[int, int], tuple[int, int], bool]]:
    """The tile as rectangles: rows, columns (first, one past the last), and whether they are inside."""
    steps = np.diff(plane.rows)
    dense = bool((steps == 1).all())
    found = []
    numbered = list(enumerate(plane.rows.tolist()))
    for _, group in groupby(numbered, key=lambda pair: (plane.inside[pair[0]].tobytes(), 0 if dense else pair[0])):
        members = list(group)
        rows = members[0][1], members[-1][1] + 1
        line = plane.inside[members[0][0]].tolist()
        for inside, run in groupby(zip(plane.columns.tolist(), line, strict=True), key=lambda pair: pair[1]):
            columns = [column for column, _ in run]
            found.append((rows, (columns[0], columns[-1] + plane.entry), bool(inside)))
    return found[:_MOST_RUNS]


def _draw_rulers(canvas: Canvas, plane: _Plane, x: _Scale, y: _Scale) -> None:
    left, right, top, bottom = plane.hull
    placed: list[float] = []
    for position in (left, right - 1, 0, plane.extents[0] - 1, x.first, x.end - 1):
        middle = (x(position) + x(position + 1)) / 2
        if x.first <= position < x.end and all(abs(middle - other) > 44 for other in placed):
            placed.append(middle)
            canvas.text(middle, _TOP - 8, str(position), "small middle")
    placed = []
    for position in (top, bottom - 1, 0, plane.extents[1] - 1, y.first, y.end - 1):
        middle = (y(position) + y(position + 1)) / 2
        if y.first <= position < y.end and all(abs(middle - other) > 12 for other in placed):
            placed.append(middle)
            canvas.text(_LABEL - 8, middle + 4, str(position), "small end")


def _with_notes(
    canvas: Canvas, parameters: Tiled, numbers: str, told: list[str], plane: _Plane, x: _Scale, y: _Scale
) -> Picture:
    bottom = y(y.end) + 26
    entries = [(LOADED, "loaded"), ("c1 tint+c1 hatch", "outside: filled"), (TENSOR, "tensor"), ("edge dashed", "box")]
    bottom = canvas.legend(0, bottom, entries)
    strides = parameters.element_strides
    notes = [numbers, *told]
    if any(step > 1 for step in strides):
        notes.append(f"Element strides {_sizes(strides)}: of dimension 1 and above every n-th position is taken.")
    if len(_runs(plane)) == _MOST_RUNS:
        notes.append(f"Only the first {_MOST_RUNS} rows of the tile are drawn.")
    low, high = min(plane.hull[0], 0), max(plane.hull[1], plane.extents[0])
    if (x.first, x.end) != (low, high) or (y.first, y.end) != (min(plane.hull[2], 0), max(plane.hull[3], plane.extents[1])):
        notes.append("The tensor goes on beyond the picture where it has no edge.")
    canvas.paragraph(0, bottom, notes)
    return canvas.picture()
