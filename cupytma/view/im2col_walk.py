"""The walk of an im2col load over the pixels of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cupytma.errors import PictureError
from cupytma.sim.checks import check_offsets
from cupytma.sim.geometry import Geometry, geometry
from cupytma.sim.mapping import TileMap, tile_map
from cupytma.tensormap.enums import OobFill
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.view.drawing import WIDTH, Canvas, Picture, counted
from cupytma.view.plane import Scale, Spans, draw_area, draw_edges, draw_rulers
from cupytma.view.subjects import map_of
from cupytma.view.tile_in_tensor import FILLED, LOADED

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap

_LABEL, _GAP = 36, 34
_LARGEST, _NUMBERED = 30, 14  # pixels of a position at most, and with a number at least
_LOWEST = 10
_MOST_COLUMNS, _MOST_ROWS = 250, 60
_MOST_PLANES = 4
_BASE = "c5 outline dashed"


@dataclass(frozen=True)
class _Pixel:
    """One pixel: its number in the walk, its position along the axes, and whether it is inside the tensor."""

    order: int
    position: tuple[int, ...]
    inside: bool

    @property
    def column(self) -> int:
        """Its position in W."""
        return self.position[0]

    def row(self, plan: Geometry) -> int:
        """Its position in H; 0 where there is none."""
        return self.position[1] if _spatial(plan) > 1 else 0

    def is_before(self, other: _Pixel, plan: Geometry) -> bool:
        """Whether the other is the next of the walk, to the right of it and like it."""
        placed = other.order == self.order + 1 and other.column == self.column + 1 and other.row(plan) == self.row(plan)
        return placed and other.inside == self.inside


@dataclass(frozen=True)
class _Frame:
    """What is drawn of every plane: the first position and one past the last, in W and in H; pixels of a position."""

    left: int
    right: int
    top: int
    bottom: int
    cell: float

    @property
    def tall(self) -> float:
        """Pixels of a position in H: of small ones more, so that single rows can be seen."""
        return max(self.cell, min(_LOWEST, 240 / (self.bottom - self.top)))


def im2col(
    subject: TensorMap | Parameters,
    coordinates: Sequence[int] | None = None,
    offsets: Sequence[int] = (),
    *,
    mode: str | None = None,
) -> Picture:
    """The pixels that an im2col load brings, numbered in the order of the walk, and the box of base pixels.

    Parameters
    ----------
    subject : TensorMap, Im2col or Im2colWide
    coordinates : sequence of int, optional
        Start of the load in elements, driver order: channel, W, H, D, batch. Default: channel 0 of the box's first
        pixel.
    offsets : sequence of int
        In pixels, the fastest spatial dimension first, such as the place within a filter; for ``"im2col::w"`` the halo
        and the offset in W. None given: zeros.
    mode : str, optional
        As `cupytma.sim.load` takes it.

    Returns
    -------
    Picture
        One plane of W and H for every image (and depth) that the walk comes to, four at most.

    Raises
    ------
    PictureError
        If it is no im2col tensor map.
    DescriptorError
        If the parameters cannot be encoded.
    Fault, SimulationError
        As `cupytma.sim.tile_map` does, for example if the start lies outside the box.
    """
    given = map_of(subject)
    parameters = given.decode()
    if isinstance(parameters, Tiled):
        raise PictureError("a tiled map walks over no pixels; `view.tile` draws its box")
    plan = geometry(given, mode)
    start = _first(plan) if coordinates is None else coordinates
    moved = check_offsets(plan, offsets)
    found = tile_map(given, start, offsets=moved, mode=mode)
    fill = "NaN" if parameters.oob_fill == OobFill.NAN_REQUEST_ZERO_FMA else "zero"
    return _picture(plan, found, moved, fill)


def _first(plan: Geometry) -> tuple[int, ...]:
    """The first base pixel of the first image, channel 0."""
    assert plan.walk is not None
    along = [0] * len(plan.axes)
    along[: plan.walk.spatial] = plan.walk.lower
    return tuple(along) if plan.inner_bytes is None else (0, *along)


def _picture(plan: Geometry, found: TileMap, offsets: tuple[int, ...], fill: str) -> Picture:
    pixels = _pixels(plan, found)
    planes = _planes(plan, pixels)
    outside = sum(not pixel.inside for pixel in pixels)
    summary = (
        f"The walk takes {counted(len(pixels), 'pixel')}: {len(pixels) - outside:,} loaded, {outside:,} outside and "
        f"filled with {fill}."
    )
    canvas = Canvas(f"im2col walk of {counted(len(pixels), 'pixel')}", summary)
    moved = f", offsets ({', '.join(map(str, offsets))})" * bool(offsets)
    canvas.text(0, 16, f"{plan.mode} walk of {counted(len(pixels), 'pixel')}{moved}", "heading")
    start = ", ".join(map(str, found.coordinates[0].tolist()))
    down = ", H down" * (_spatial(plan) > 1)
    canvas.text(0, 36, f"W goes to the right{down}. The first element is at ({start}).", "faint")
    frame = _frame(plan, pixels, len(planes))
    y = _draw_planes(canvas, plan, dict(list(planes.items())[:_MOST_PLANES]), frame)
    y = canvas.legend(0, y, [
        (LOADED, "loaded, numbered in order" if frame.cell >= _NUMBERED else "loaded"),
        (f"{FILLED}+c1 hatch", "outside: filled"), ("c7 pale", "image"), (_BASE, "box of base pixels, before offsets"),
    ])  # fmt: skip
    canvas.paragraph(0, y, [summary, *_notes(plan, frame, len(planes))])
    return canvas.picture()


def _pixels(plan: Geometry, found: TileMap) -> list[_Pixel]:
    """Of each pixel its position along the axes, W first and the batch last."""
    per_row = found.shape[-1]
    axes = [axis.dimension for axis in plan.axes]
    positions = found.coordinates[::per_row][:, axes].tolist()
    # A pixel is inside if any of its channels is; those past the last channel are filled for every pixel alike.
    inside: list[bool] = np.any(found.inside.reshape(-1, per_row), axis=1).tolist()
    return [_Pixel(i, tuple(p), ok) for i, (p, ok) in enumerate(zip(positions, inside, strict=True))]


def _spatial(plan: Geometry) -> int:
    """How many of the axes are spatial; after them come the slice, with interleave, and the batch."""
    return len(plan.axes) - 1 - (plan.inner_bytes is None)


def _planes(plan: Geometry, pixels: list[_Pixel]) -> dict[str, list[_Pixel]]:
    """The pixels of every plane of W and H that the walk comes to, by what the plane is called."""
    planar = min(2, _spatial(plan))
    names = ["D"] * (_spatial(plan) > 2) + ["slice"] * (plan.inner_bytes is None) + ["image"]
    planes: dict[str, list[_Pixel]] = {}
    for pixel in pixels:
        rest = zip(names, pixel.position[planar:], strict=True)
        planes.setdefault(", ".join(f"{name} {number}" for name, number in rest), []).append(pixel)
    return planes


def _image(plan: Geometry) -> Spans:
    width = plan.axes[0].extent
    return 0, width, 0, plan.axes[1].extent if _spatial(plan) > 1 else 1


def _box(plan: Geometry) -> Spans:
    """The base pixels in W and H; where H is not walked, all of it."""
    assert plan.walk is not None
    low, high = plan.walk.lower, plan.walk.upper
    down = (low[1], high[1] + 1) if plan.walk.spatial > 1 else _image(plan)[2:]
    return low[0], high[0] + 1, down[0], down[1]


def _frame(plan: Geometry, pixels: list[_Pixel], planes: int) -> _Frame:
    """The image, the box and the pixels; of large ones what lies around the pixels."""
    image, box = _image(plan), _box(plan)
    columns = [pixel.column for pixel in pixels]
    rows = [pixel.row(plan) for pixel in pixels]
    across = _span(columns, (image[0], image[1], box[0], box[1]), _MOST_COLUMNS)
    down = _span(rows, (image[2], image[3], box[2], box[3]), _MOST_ROWS)
    room = WIDTH - _LABEL - 8
    cell = min(_LARGEST, room / (across[1] - across[0]))
    if planes > 1:  # two beside each other, if their numbers can still be read
        half = (room - _GAP - _LABEL) / 2 / (across[1] - across[0])
        cell = min(cell, half) if half >= _NUMBERED else cell
    return _Frame(*across, *down, cell)


def _span(visited: list[int], others: tuple[int, ...], most: int) -> tuple[int, int]:
    first, end = min(visited), max(visited) + 1
    low, high = min(first, *others), max(end, *others)
    if high - low > most:
        low, high = max(low, first - 2), min(high, end + 2)
    return low, min(high, low + most)


def _draw_planes(canvas: Canvas, plan: Geometry, planes: dict[str, list[_Pixel]], frame: _Frame) -> float:
    width = (frame.right - frame.left) * frame.cell + _LABEL + _GAP
    height = (frame.bottom - frame.top) * frame.tall + 54
    beside = max(1, int((WIDTH + _GAP) // width))
    for i, (name, pixels) in enumerate(planes.items()):
        left, top = _LABEL + i % beside * width, 86 + i // beside * height
        x = Scale(frame.left, frame.right, left, frame.cell)
        y = Scale(frame.top, frame.bottom, top, frame.tall)
        canvas.text(left, top - 26, name, "small strong")
        _draw_plane(canvas, plan, pixels, x, y)
    return 96 + -(-len(planes) // beside) * height - 30


def _draw_plane(canvas: Canvas, plan: Geometry, pixels: list[_Pixel], x: Scale, y: Scale) -> None:
    image = _image(plan)
    draw_area(canvas, x, y, image, "the image")
    for run in _runs(plan, pixels):
        _draw_run(canvas, plan, run, x, y)
    draw_edges(canvas, x, y, _box(plan), _BASE)
    columns = (0, image[1] - 1, x.first, x.end - 1)
    draw_rulers(canvas, x, y, columns, (0, image[3] - 1, y.first, y.end - 1))


def _runs(plan: Geometry, pixels: list[_Pixel]) -> list[list[_Pixel]]:
    """Pixels that follow each other in a row, and are alike."""
    runs: list[list[_Pixel]] = []
    for pixel in pixels:
        last = runs[-1][-1] if runs else None
        if last is not None and last.is_before(pixel, plan):
            runs[-1].append(pixel)
        else:
            runs.append([pixel])
    return runs


def _draw_run(canvas: Canvas, plan: Geometry, run: list[_Pixel], x: Scale, y: Scale) -> None:
    first, last, row = run[0], run[-1], run[0].row(plan)
    left, right, top, height = x(first.column), x(last.column + 1), y(row), y(row + 1) - y(row)
    if right <= left or not height:
        return
    what = "loaded" if first.inside else "filled"
    orders, columns = ((a, b) for a, b in ((first.order, last.order), (first.column, last.column)))
    tip = f"{what}: pixels {_range(*orders)} of the walk, W {_range(*columns)}, H {row}"
    canvas.rect(left, top, right - left, height, LOADED if first.inside else FILLED, tip)
    if not first.inside:
        canvas.hatch(left, top, right - left, height, "c1", 6)
    if x.pixels < _NUMBERED:
        return
    canvas.lines([[(x(p.column), top), (x(p.column), top + height)] for p in run[1:]], "line")
    for pixel in run:
        if x.first <= pixel.column < x.end:
            canvas.text(x.middle(pixel.column), top + height / 2 + 4, str(pixel.order), "small middle", room=height)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _notes(plan: Geometry, frame: _Frame, planes: int) -> Iterator[str]:
    walk = plan.walk
    assert walk is not None
    bounds = zip(("W", "H", "D"), walk.lower, walk.upper, strict=False)
    spans = ", ".join(f"{name} {_range(low, high)}" for name, low, high in bounds)
    steps = [axis.step for axis in plan.axes[: walk.spatial]]
    strides = f" in steps of {' × '.join(map(str, steps))}" * any(step > 1 for step in steps)
    yield f"Base pixels: {spans}{strides}. The walk goes along W first, and on at the first base pixel of what is next."
    if planes > _MOST_PLANES:
        yield f"{_MOST_PLANES} of {planes} planes are drawn."
    image, box = _image(plan), _box(plan)
    if frame.left > min(image[0], box[0]) or frame.right < max(image[1], box[1]) or (
        frame.top > min(image[2], box[2]) or frame.bottom < max(image[3], box[3])
    ):
        yield (
            f"Drawn are W {_range(frame.left, frame.right - 1)} and H {_range(frame.top, frame.bottom - 1)}; an area "
            "without an edge goes on beyond that."
        )
