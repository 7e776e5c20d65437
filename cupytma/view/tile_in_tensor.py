"""One tile within its tensor: what is loaded, and what lies outside and is filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from cupytma.errors import PictureError
from cupytma.sim.checks import check_coordinates
from cupytma.sim.geometry import Geometry, geometry
from cupytma.sim.mapping import Bool, Int64, TileMap, tile_map
from cupytma.tensormap.enums import OobFill
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.view.drawing import WIDTH, Canvas, Picture, counted
from cupytma.view.plane import Scale, Spans, draw_area, draw_edges, draw_rulers
from cupytma.view.subjects import map_of

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap

LOADED, FILLED = "c0 tint plain", "c1 tint plain"
"""Classes of what is loaded, and of what lies outside and is filled."""

_LABEL, _TOP = 64, 66
_AREA = WIDTH - _LABEL - 40, 360
_LARGEST, _SMALLEST = 26, 12  # pixels of a position; smaller where the tile is large
_SHARE = 0.4  # of the area that a tile takes up at least, in one of the dimensions, if its tensor is large
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
    gathered : bool
        Whether each row was chosen by itself.
    """

    columns: Int64
    rows: Int64
    inside: Bool
    extents: tuple[int, int]
    entry: int
    gathered: bool

    @property
    def hull(self) -> Spans:
        """What the tile reaches over."""
        left, right = int(self.columns.min()), int(self.columns.max()) + self.entry
        return left, right, int(self.rows.min()), int(self.rows.max()) + 1


@dataclass(frozen=True)
class _Run:
    """Neighbours that are all inside, or all outside."""

    spans: Spans
    inside: bool

    @property
    def tip(self) -> str:
        """What is said of it."""
        what = "loaded" if self.inside else "filled"
        across, down = (_range(self.spans[i], self.spans[i + 1] - 1) for i in (0, 2))
        return f"{what}: dimension 0 {across}, dimension 1 {down}"


def tile(
    subject: TensorMap | Parameters, coordinates: Sequence[int] | None = None, *, mode: str | None = None
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
        Elements that a load reads, and those that it fills, which are hatched too. With interleave one position is a
        slice.

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
        raise PictureError(f"an {parameters.kind} map has no box; `view.im2col` draws its pixels")
    plan = geometry(given, mode)
    start = check_coordinates(plan, (0,) * plan.coordinates if coordinates is None else coordinates)
    found = tile_map(given, start, mode=mode)
    plane, others = _plane(parameters, plan, found)
    return _picture(parameters, start, plane, found, others)


def _plane(parameters: Tiled, plan: Geometry, found: TileMap) -> tuple[_Plane, list[str]]:
    """The first plane of the tile that has anything inside, and what is to be said of the other dimensions."""
    rank, flat = parameters.rank, parameters.rank == 1
    # With interleave the positions are rows of one entry each, and the first of their dimensions goes across.
    shape = found.shape if plan.inner_bytes is not None else found.shape[:-1]
    down, across = (1 if flat else shape[-2]), shape[-1]
    planes = prod(shape) // (down * across)
    coordinates = found.coordinates.reshape(planes, down, across, rank)
    inside = found.inside.reshape(planes, down, across)
    chosen = int(inside.any(axis=(1, 2)).argmax())
    here = coordinates[chosen]
    rows = np.zeros(1, np.int64) if flat else here[:, 0, 1]
    extents = parameters.global_dim[0], 1 if flat else parameters.global_dim[1]
    plane = _Plane(here[0, :, 0], rows, inside[chosen], extents, max(1, found.unit_elements), plan.is_gathered)
    return plane, list(_others(parameters, found, here[0, 0].tolist()))


def _others(parameters: Tiled, found: TileMap, drawn: list[int]) -> Iterator[str]:
    """What the dimensions that are not drawn are like."""
    for dimension in range(2, parameters.rank):
        positions = np.unique(found.coordinates[:, dimension])
        extent, step = parameters.global_dim[dimension], parameters.element_strides[dimension]
        outside = int(((positions < 0) | (positions >= extent)).sum())
        every = f", every {step}" * (step > 1 and len(positions) > 1)
        yield (
            f"Dimension {dimension}, of extent {extent}: {counted(len(positions), 'position')} of the tile "
            f"({_range(int(positions[0]), int(positions[-1]))}{every}), {outside} outside; drawn is {drawn[dimension]}."
        )


def _picture(
    parameters: Tiled, start: tuple[int, ...], plane: _Plane, found: TileMap, others: list[str]
) -> Picture:
    dims, place = _sizes(parameters.global_dim), ", ".join(map(str, start))
    summary = _summary(parameters, found)
    canvas = Canvas(f"Tile at ({place}) of a tensor of {dims}", " ".join((summary, *others)))
    heading = f"Box {_sizes(parameters.box_dim)} at ({place}) of a tensor of {dims} {parameters.data_type}"
    canvas.text(0, 16, heading, "heading", room=WIDTH)
    down = ", dimension 1 down" * (parameters.rank > 1)
    canvas.text(0, 36, f"Dimension 0 goes to the right{down}; numbers are positions in the tensor.", "faint")
    x, y = _scales(plane)
    draw_area(canvas, x, y, (0, plane.extents[0], 0, plane.extents[1]), "the tensor")
    runs = _runs(plane)
    _draw_tile(canvas, plane, runs[:_MOST_RUNS], x, y)
    left, right, top, bottom = plane.hull
    rows = plane.rows.tolist() if plane.gathered else [top, bottom - 1]
    draw_rulers(
        canvas, x, y, (left, right - 1, 0, plane.extents[0] - 1, x.first, x.end - 1),
        (*rows, 0, plane.extents[1] - 1, y.first, y.end - 1),
    )  # fmt: skip
    bottom_line = canvas.legend(0, y(y.end) + 26, [
        (LOADED, "loaded"), (f"{FILLED}+c1 hatch", "outside: filled"), ("c7 pale", "tensor"), ("edge dashed", "box"),
    ])  # fmt: skip
    canvas.paragraph(0, bottom_line, [summary, *others, *_notes(parameters, plane, x, y, len(runs))])
    return canvas.picture()


def _summary(parameters: Tiled, found: TileMap) -> str:
    size = found.unit_elements
    packed = f"group of {size} elements", f"groups of {size} elements"
    one, many = {0: ("slice", ""), 1: ("element", "")}.get(size, packed)
    fill = "NaN" if parameters.oob_fill == OobFill.NAN_REQUEST_ZERO_FMA else "zero"
    read = int(found.inside.sum())
    return (
        f"The tile has {counted(len(found.inside), one, many)}: {read:,} loaded, {len(found.inside) - read:,} outside "
        f"and filled with {fill}."
    )


def _sizes(extents: Sequence[int]) -> str:
    return " × ".join(map(str, extents))


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _scales(plane: _Plane) -> tuple[Scale, Scale]:
    """As large as fits with the whole tensor; of a large one a part, so that the tile can be seen."""
    left, right, top, bottom = plane.hull
    spans = ((left, right, plane.extents[0]), (top, bottom, plane.extents[1]))
    whole = min(room / (max(end, n) - min(first, 0)) for room, (first, end, n) in zip(_AREA, spans, strict=True))
    close = min(room / (end - first) for room, (first, end, _) in zip(_AREA, spans, strict=True))
    pixels = min(_LARGEST, max(whole, min(_SHARE * close, _SMALLEST)))
    tall = max(pixels, _LARGEST) if spans[1] == (0, 1, 1) else pixels  # a single row
    across = Scale(*_shown(*spans[0], _AREA[0] / pixels), _LABEL, pixels)
    return across, Scale(*_shown(*spans[1], _AREA[1] / tall), _TOP, tall)


def _shown(first: int, end: int, extent: int, room: float) -> tuple[int, int]:
    """The positions that are drawn: all if they fit, else the tile and half of its size around it."""
    low, high = min(first, 0), max(end, extent)
    if high - low <= room + 1e-6:
        return low, high
    margin = min(max((end - first) // 2, 4), max(1, int(room - (end - first)) // 2))
    return max(low, first - margin), min(high, end + margin)


def _draw_tile(canvas: Canvas, plane: _Plane, runs: list[_Run], x: Scale, y: Scale) -> None:
    for run in runs:
        first, end, top, bottom = run.spans
        area = x(first), y(top), x(end) - x(first), y(bottom) - y(top)
        canvas.rect(*area, LOADED if run.inside else FILLED, run.tip)
        if not run.inside:
            canvas.hatch(*area, "c1")
    left, right, top, bottom = plane.hull
    for first, last in [(row, row + 1) for row in plane.rows.tolist()] if plane.gathered else [(top, bottom)]:
        draw_edges(canvas, x, y, (left, right, first, last), "edge dashed")


def _runs(plane: _Plane) -> list[_Run]:
    """The tile as rectangles, from its first row on."""
    apart = bool((np.diff(plane.rows) != 1).any())
    found = []
    lines = list(enumerate(plane.rows.tolist()))
    for _, group in groupby(lines, key=lambda line: (plane.inside[line[0]].tobytes(), apart and line[0])):
        members = list(group)
        top, bottom = members[0][1], members[-1][1] + 1
        marks = plane.inside[members[0][0]].tolist()
        for inside, run in groupby(zip(plane.columns.tolist(), marks, strict=True), key=lambda pair: pair[1]):
            columns = [column for column, _ in run]
            found.append(_Run((columns[0], columns[-1] + plane.entry, top, bottom), bool(inside)))
    return found


def _notes(parameters: Tiled, plane: _Plane, x: Scale, y: Scale, runs: int) -> Iterator[str]:
    if any(step > 1 for step in parameters.element_strides):
        yield (
            f"Element strides {_sizes(parameters.element_strides)}: from dimension 1 on, of n positions one is taken; "
            "without interleave the stride of dimension 0 has no effect."
        )
    if runs > _MOST_RUNS:
        yield f"Of the tile {_MOST_RUNS} of {runs} runs are drawn."
    columns, rows = plane.extents
    visible = x.first < columns and y.first < rows and x.end > 0 and y.end > 0
    if not visible:
        yield "The tensor is too far from the tile to be in the picture."
    elif x.first > 0 or y.first > 0 or x.end < columns or y.end < rows:
        yield "Where the tensor has no edge in the picture, it goes on beyond it."
