"""The walk of an im2col load over the pixels of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cupytma.errors import PictureError
from cupytma.sim.geometry import Geometry, geometry
from cupytma.sim.mapping import TileMap, tile_map
from cupytma.tensormap.enums import OobFill
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.view.drawing import WIDTH, Canvas, Picture, counted, text_width
from cupytma.view.subjects import map_of

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap

_LABEL, _GAP = 36, 34
_MOST_CELL, _LEAST_CELL = 30, 11
_MOST_SIDE = 60
_MOST_IMAGES = 4


@dataclass(frozen=True)
class _Pixel:
    """One pixel of the walk: its place in the walk, its position, and whether it is inside the tensor."""

    order: int
    position: tuple[int, ...]
    inside: bool


@dataclass(frozen=True)
class _Image:
    """The pixels of the walk that lie in one plane.

    Attributes
    ----------
    name : str
        Which plane.
    pixels : list of _Pixel
        Positions in W and H.
    """

    name: str
    pixels: list[_Pixel]


@dataclass(frozen=True)
class _Frame:
    """What is drawn of every plane: the first position and one past the last, in W and in H."""

    left: int
    right: int
    top: int
    bottom: int
    cell: float

    def x(self, column: float) -> float:
        """Pixels from the plane's left border."""
        return (min(max(column, self.left), self.right) - self.left) * self.cell

    def y(self, row: float) -> float:
        """Pixels from the plane's upper border."""
        return (min(max(row, self.top), self.bottom) - self.top) * self.cell


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
    found = tile_map(given, start, offsets=offsets, mode=mode)
    fill = "NaN" if parameters.oob_fill == OobFill.NAN_REQUEST_ZERO_FMA else "zero"
    return _picture(plan, found, tuple(offsets), fill)


def _first(plan: Geometry) -> tuple[int, ...]:
    """The first base pixel of the first image, channel 0."""
    assert plan.walk is not None
    along = [0] * len(plan.axes)
    along[: plan.walk.spatial] = plan.walk.lower
    return tuple(along) if plan.inner_bytes is None else (0, *along)


def _picture(plan: Geometry, found: TileMap, offsets: tuple[int, ...], fill: str) -> Picture:
    pixels = _pixels(plan, found)
    images = _images(plan, pixels)
    outside = sum(not pixel.inside for pixel in pixels)
    summary = (
        f"The walk takes {counted(len(pixels), 'pixel')}: {len(pixels) - outside:,} are loaded, {outside:,} lie outside "
        f"and are filled with {fill}."
    )
    start = ", ".join(map(str, found.coordinates[0].tolist()))
    canvas = Canvas(f"im2col walk of {counted(len(pixels), 'pixel')}", summary)
    heading = f"{plan.mode} walk of {counted(len(pixels), 'pixel')}" + f", offsets ({', '.join(map(str, offsets))})" * bool(offsets)
    canvas.text(0, 16, heading, "heading")
    canvas.text(0, 36, f"First element read: ({start}). W goes to the right, H down; numbers say the order.", "faint")
    frame = _frame(plan, pixels, len(images))
    y = _draw_images(canvas, plan, images[:_MOST_IMAGES], frame)
    y = canvas.legend(0, y + 8, [
        ("c0 tint", "loaded"), ("c1 tint+c1 hatch", "outside: filled"), ("c7 pale", "image"),
        ("c5 edge dashed", "box of base pixels, before offsets"),
    ])  # fmt: skip
    notes = [summary, *_bounds(plan)]
    if len(images) > _MOST_IMAGES:
        notes.append(f"{_MOST_IMAGES} of {len(images)} planes are drawn.")
    canvas.paragraph(0, y, notes)
    return canvas.picture()


def _pixels(plan: Geometry, found: TileMap) -> list[_Pixel]:
    """Of each pixel the first entry: its position along the axes, W first and the batch last."""
    per_row = found.shape[-1]
    axes = [axis.dimension for axis in plan.axes]
    positions = found.coordinates[::per_row][:, axes].tolist()
    # A pixel is inside if any of its channels is; those past the last channel are filled for every pixel alike.
    inside: list[bool] = np.any(found.inside.reshape(-1, per_row), axis=1).tolist()
    return [_Pixel(i, tuple(p), ok) for i, (p, ok) in enumerate(zip(positions, inside, strict=True))]


def _planar(plan: Geometry) -> int:
    """How many of the axes are drawn: W, and H where there is one."""
    spatial = len(plan.axes) - 1 - (plan.inner_bytes is None)
    return min(2, spatial)


def _images(plan: Geometry, pixels: list[_Pixel]) -> list[_Image]:
    planar = _planar(plan)
    planes: dict[tuple[int, ...], list[_Pixel]] = {}
    for pixel in pixels:
        planes.setdefault(pixel.position[planar:], []).append(pixel)
    return [_Image(_name(plan, rest), members) for rest, members in planes.items()]


def _name(plan: Geometry, rest: tuple[int, ...]) -> str:
    """Depth, slice and image of a plane."""
    depth = len(plan.axes) - 1 - (plan.inner_bytes is None) > 2
    names = ["D"] * depth + ["slice"] * (plan.inner_bytes is None) + ["image"]
    return ", ".join(f"{name} {number}" for name, number in zip(names, rest, strict=True))


def _extents(plan: Geometry) -> tuple[int, int]:
    extents = [axis.extent for axis in plan.axes[: _planar(plan)]]
    return extents[0], (*extents, 1)[1]


def _box(plan: Geometry) -> tuple[int, int, int, int]:
    """The base pixels in W and H: first and one past the last; H of what is not walked there is the image's."""
    assert plan.walk is not None
    low, high = plan.walk.lower, plan.walk.upper
    across = low[0], high[0] + 1
    down = (low[1], high[1] + 1) if plan.walk.spatial > 1 else (0, _extents(plan)[1])
    return (*across, *down)


def _frame(plan: Geometry, pixels: list[_Pixel], images: int) -> _Frame:
    """What is drawn: the image, the box and the pixels; where that is too much, what is around the pixels."""
    width, height = _extents(plan)
    box = _box(plan)
    columns = [p.position[0] for p in pixels]
    rows = [p.position[1] if _planar(plan) > 1 else 0 for p in pixels]
    spans = []
    for first, last, corner, end, extent in (
        (min(columns), max(columns) + 1, box[0], box[1], width), (min(rows), max(rows) + 1, box[2], box[3], height),
    ):  # fmt: skip
        low, high = min(0, first, corner), max(extent, last, end)
        if high - low > _MOST_SIDE:
            low, high = max(low, first - 2), min(high, last + 2)
        if high - low > _MOST_SIDE:
            high = low + _MOST_SIDE
        spans.append((low, high))
    (left, right), (top, bottom) = spans
    room = WIDTH - _LABEL - 8
    cell = min(_MOST_CELL, room / (right - left))
    if images > 1:  # two beside each other, if the cells stay large enough
        half = (room - _GAP - _LABEL) / 2 / (right - left)
        cell = min(cell, half) if half >= _LEAST_CELL else cell
    return _Frame(left, right, top, bottom, cell)


def _draw_images(canvas: Canvas, plan: Geometry, images: list[_Image], frame: _Frame) -> float:
    width = frame.x(frame.right) + _LABEL + _GAP
    height = frame.y(frame.bottom) + 54
    beside = max(1, int((WIDTH + _GAP) // width))
    for i, image in enumerate(images):
        _draw_image(canvas, plan, image, frame, _LABEL + i % beside * width, 86 + i // beside * height)
    return 86 + -(-len(images) // beside) * height - 30


def _draw_image(canvas: Canvas, plan: Geometry, image: _Image, frame: _Frame, x: float, y: float) -> None:
    columns, rows = _extents(plan)
    canvas.text(x, y - 26, image.name, "small strong")
    left, right, top, bottom = x + frame.x(0), x + frame.x(columns), y + frame.y(0), y + frame.y(rows)
    if right > left and bottom > top:
        canvas.rect(left, top, right - left, bottom - top, "c7 pale", "the image")
        grid = [[(x + frame.x(c), top), (x + frame.x(c), bottom)] for c in range(max(0, frame.left), min(columns, frame.right) + 1)]
        grid += [[(left, y + frame.y(r)), (right, y + frame.y(r))] for r in range(max(0, frame.top), min(rows, frame.bottom) + 1)]
        canvas.lines(grid, "line")
    for pixel in image.pixels:
        _draw_pixel(canvas, plan, pixel, frame, x, y)
    low, high, first, last = _box(plan)
    canvas.rect(
        x + frame.x(low), y + frame.y(first), frame.x(high) - frame.x(low), frame.y(last) - frame.y(first),
        "c5 edge dashed",
    )  # fmt: skip
    for column in sorted({frame.left, 0, columns - 1, frame.right - 1}):
        canvas.text(x + frame.x(column) + frame.cell / 2, y - 6, str(column), "small middle faint")
    for row in sorted({frame.top, 0, rows - 1, frame.bottom - 1}):
        canvas.text(x - 6, y + frame.y(row) + frame.cell / 2 + 4, str(row), "small end faint")


def _draw_pixel(canvas: Canvas, plan: Geometry, pixel: _Pixel, frame: _Frame, x: float, y: float) -> None:
    column, row = pixel.position[0], pixel.position[1] if _planar(plan) > 1 else 0
    if not (frame.left <= column < frame.right and frame.top <= row < frame.bottom):
        return
    left, top, cell = x + frame.x(column), y + frame.y(row), frame.cell
    what = "loaded" if pixel.inside else "filled"
    tip = f"pixel {pixel.order} of the walk: W {column}, H {row}, {what}"
    canvas.rect(left + 0.5, top + 0.5, cell - 1, cell - 1, "c0 tint" if pixel.inside else "c1 tint", tip)
    if not pixel.inside:
        canvas.hatch(left + 0.5, top + 0.5, cell - 1, cell - 1, "c1", 6)
    label = str(pixel.order)
    if text_width(label, "small") <= cell:
        canvas.text(left + cell / 2, top + cell / 2 + 4, label, "small middle")


def _bounds(plan: Geometry) -> Iterator[str]:
    walk = plan.walk
    assert walk is not None
    names = ("W", "H", "D")
    spans = ", ".join(
        f"{name} {low} to {high}" for name, low, high in zip(names, walk.lower, walk.upper, strict=False)
    )
    steps = [axis.step for axis in plan.axes[: walk.spatial]]
    strides = f" in steps of {' × '.join(map(str, steps))}" if np.max(steps) > 1 else ""
    yield f"Base pixels: {spans}{strides}; after the last of a row the walk goes on at the first of the next."
