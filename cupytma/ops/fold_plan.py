"""How rows of a matrix are added up where a convolution's windows lie: by tensor reductions, or by ordinary additions.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from cupytma.errors import ArrayError
from cupytma.limits import ADDRESS_LIMIT, MAX_BOX, MAX_EXTENT, STRIDE_LIMIT, UNIT
from cupytma.ops.column_plan import (
    MAX_CHANNEL_BYTES,
    MAX_COORDINATE,
    MAX_ELEMENT_STRIDE,
    TILE_BYTES,
    is_dense,
    source_strides,
)
from cupytma.ops.convolution import Convolution
from cupytma.ops.copy_plan import MAX_TILES, even
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap

# The numbers that an element of a type consists of, and the name of the type they are of.
_PARTS = {"complex64": (2, "float32"), "complex128": (2, "float64")}
# As what the unit adds numbers of a type; those without an entry it cannot add.
_ADDED_AS = {
    "float16": DataType.FLOAT16,
    "bfloat16": DataType.BFLOAT16,
    "float32": DataType.FLOAT32,
    "float64": DataType.FLOAT64,
    "int32": DataType.INT32,
    "uint32": DataType.UINT32,
    "int64": DataType.UINT64,  # the same bits; the unit refuses INT64
    "uint64": DataType.UINT64,
}
# The kernel's name of each type of number; integers wrap, so that their sign does not matter.
_NUMBERS = {
    "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float64": "float64",
    **{f"{sign}{bits}": f"uint{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class FoldTilePlan:
    """Columns that are loaded through a tiled map and added to the output through another.

    A tile is some channels of a box of windows, at one tap. In the output's map the windows' stride is the element
    stride. What falls outside the output is cut off by its bounds; coordinates of a reduction may not be negative, so
    that every tap begins at the first window in which it lies inside.

    Attributes
    ----------
    source : TensorMap
        Of the columns: taps and channels, then the windows along W, H, D and the batch.
    destination : TensorMap
        Of the output: channels, W, H, D, batch.
    convolution : Convolution
    channels : int
        Numbers of the channels of a pixel.
    box : tuple of int
        Of windows: numbers of a tile's channels, then W, H, D as far as there are, then the batch.
    """

    source: TensorMap
    destination: TensorMap
    convolution: Convolution
    channels: int
    box: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles along channels, W, H, D and the batch; some are empty at some taps."""
        extents = (self.channels, *self.convolution.outputs[::-1], self.convolution.batch)
        return tuple(-(-extent // box) for extent, box in zip(extents, self.box, strict=True))

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return self.convolution.taps * prod(self.counts)

    def coordinates(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Where each tile that is not empty is loaded and added, in the order the kernel takes them in."""
        found = self.convolution
        for batch, *spatial, channel in product(*(range(count) for count in reversed(self.counts))):
            for tap, position in enumerate(product(*map(range, found.kernel))):
                windows, pixels = [], []
                for i, index in enumerate(spatial):
                    shift = position[i] * found.dilation[i] - found.padding[i][0]
                    window = max(0, -(shift // found.stride[i])) + index * self.box[-2 - i]
                    windows.append(window)
                    pixels.append(shift + window * found.stride[i])
                inside = all(w < n for w, n in zip(windows, found.outputs, strict=True)) and all(
                    p < n for p, n in zip(pixels, found.extents, strict=True)
                )
                if inside:
                    first, image = channel * self.box[0], batch * self.box[-1]
                    yield (tap * self.channels + first, *windows[::-1], image), (first, *pixels[::-1], image)


@dataclass(frozen=True)
class FoldWordPlan:
    """Columns that ordinary loads and additions move, a thread for each number of the output.

    Attributes
    ----------
    source, destination : ArrayView
        The columns, and the output, channels last.
    convolution : Convolution
    number : str
        The type of number: ``float16``, ``bfloat16``, ``float32``, ``float64``, or ``uint`` and bits.
    parts : int
        Numbers of an element.
    reason : str
        The rule that keeps the columns from tensor reductions.
    """

    source: ArrayView
    destination: ArrayView
    convolution: Convolution
    number: str
    parts: int
    reason: str


def plan_col2im(source: ArrayView, destination: ArrayView, found: Convolution) -> FoldTilePlan | FoldWordPlan | None:
    """How columns are added up.

    Parameters
    ----------
    source : ArrayView
        The matrix of columns.
    destination : ArrayView
        The output, channels last.
    found : Convolution

    Returns
    -------
    FoldTilePlan, FoldWordPlan or None
        None where nothing is added: the tile plan adds to zeros, the word plan writes every element itself.

    Raises
    ------
    ArrayError
        If the elements are of no type that can be added, or not at multiples of their length.
    """
    parts, name = _PARTS.get(source.dtype, (1, source.dtype))
    if name not in _NUMBERS:
        raise ArrayError(
            f"columns of {source.dtype} are not added up; {', '.join((*_NUMBERS, *_PARTS))} are: convert them first"
        )
    if source.size == 0 or destination.size == 0:
        return None
    for label, view in (("columns", source), ("output", destination)):
        if any(place % (view.itemsize // parts) for place in (view.address, *view.strides)):
            raise ArrayError(f"the elements of the {label} are not at multiples of their length; copy them first")
    reason = _obstacle(source, destination, found, name)
    plan = None if reason else _tile_plan(source, destination, found, parts, name)
    if plan is not None and plan.tiles <= MAX_TILES:
        return plan
    if plan is not None:
        reason = f"{plan.tiles} tiles are too many for one launch"
    return FoldWordPlan(source, destination, found, _NUMBERS[name], parts, reason)


def _obstacle(source: ArrayView, destination: ArrayView, found: Convolution, name: str) -> str:
    """The rule that keeps columns from tensor reductions; empty when none does."""
    row = found.channels * source.itemsize
    strides = (*source_strides(destination), *_window_strides(source, found))
    checks = (
        (name in _ADDED_AS, f"no tensor reduction adds {name}"),
        (is_dense(destination), "channels do not lie one after the other in the output"),
        (is_dense(source), "the rows of the columns have gaps"),
        (row % UNIT == 0, f"the channels of a pixel are {row} B, which is no multiple of {UNIT} B"),
        (destination.address % UNIT == 0, f"the output's address is {destination.address % UNIT} mod {UNIT} bytes"),
        (source.address % UNIT == 0, f"the columns' address is {source.address % UNIT} mod {UNIT} bytes"),
        (all(s % UNIT == 0 for s in strides), f"a stride of {strides} B is no multiple of {UNIT}"),
        (all(0 <= s < STRIDE_LIMIT for s in strides), f"a stride of {strides} B is outside 0 … 2^40 - 1"),
        (
            max(*found.shape, *found.outputs, 2 * found.columns[1]) < MAX_EXTENT,
            "an extent is 2^31 or above",
        ),
        (max(max(pair) for pair in found.padding) < MAX_COORDINATE, "too much padding for coordinates of 32 bits"),
        (max(source.address, destination.address) < ADDRESS_LIMIT, "an address is 2^57 or above"),
        (
            all(s <= MAX_ELEMENT_STRIDE for s, n in zip(found.stride, found.outputs, strict=True) if n > 1),
            f"a stride of {found.stride} exceeds the largest element stride, {MAX_ELEMENT_STRIDE}",
        ),
    )
    return next((text for holds, text in checks if not holds), "")


def _window_strides(source: ArrayView, found: Convolution) -> tuple[int, ...]:
    """Strides of the columns' rows along W, H, D and the batch, in bytes."""
    row = source.strides[0] if source.shape[0] > 1 else -(-source.shape[1] * source.itemsize // UNIT) * UNIT
    strides = [row]
    for outputs in reversed(found.outputs):
        strides.append(strides[-1] * outputs)
    return tuple(strides)


def _tile_plan(source: ArrayView, destination: ArrayView, found: Convolution, parts: int, name: str) -> FoldTilePlan:
    channels, outputs, size = parts * found.channels, found.outputs[::-1], source.itemsize // parts
    steps = tuple(s if n > 1 else 1 for s, n in zip(found.stride[::-1], outputs, strict=True))
    box = _box(channels, size, (*outputs, found.batch), (*steps, 1))
    data_type = _ADDED_AS[name]
    load = Tiled(
        data_type=data_type,
        global_address=source.address,
        global_dim=(channels * found.taps, *outputs, found.batch),
        global_strides=_window_strides(source, found),
        box_dim=box,
    )
    add = Tiled(
        data_type=data_type,
        global_address=destination.address,
        global_dim=(channels, *found.extents[::-1], found.batch),
        global_strides=source_strides(destination),
        element_strides=(1, *steps, 1),
        box_dim=(box[0], *((n - 1) * step + 1 for n, step in zip(box[1:], (*steps, 1), strict=True))),
    )
    return FoldTilePlan(load.encode(), add.encode(), found, channels, box)


def _box(channels: int, size: int, extents: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """Channels, then windows along W, H, D and the batch, of a tile."""
    unit = UNIT // size
    box = [-(-even(channels, min(MAX_BOX, MAX_CHANNEL_BYTES // size)) // unit) * unit]
    room = TILE_BYTES // (box[0] * size)
    for extent, step in zip(extents, steps, strict=True):
        limit = max(1, min((MAX_BOX - 1) // step + 1, room))
        box.append(even(extent, limit))
        room //= box[-1]
    return tuple(box)
