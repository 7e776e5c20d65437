"""How the windows of a convolution become rows of a matrix: through im2col tensor maps, or word by word.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from cupytma.limits import ADDRESS_LIMIT, MAX_EXTENT, STRIDE_LIMIT, UNIT
from cupytma.ops.convolution import Convolution
from cupytma.ops.copy_plan import MAX_TILES, WORD, even
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.fields import CORNER_BITS
from cupytma.tensormap.parameters import Im2col, Tiled
from cupytma.tensormap.tensor_map import TensorMap

# A tile, and how many of them a launch should have before they are made smaller to get as many.
TILE_BYTES = 16 * 1024
LEAST_TILE_BYTES = 2 * 1024
ENOUGH_TILES = 512
MAX_CHANNEL_BYTES = 512  # of one pixel in a tile
_MAX_PIXELS = 256
_MAX_TAPS = 256
_PIXEL_STEP = 8  # pixels of 16 bytes and more that keep each tap of a tile at a multiple of 128 bytes
_LINE = 128
MAX_ELEMENT_STRIDE = 8
MAX_COORDINATE = 2**30


@dataclass(frozen=True)
class ColumnTilePlan:
    """Columns that are loaded through an im2col map and stored through a tiled one.

    A tile is some channels of some output pixels, at some taps: one load for each tap, and one store.

    Attributes
    ----------
    source : TensorMap
        im2col, of the input: channels, W, H, D, batch.
    destination : TensorMap
        Tiled, of the columns: channels, output pixels, taps. Channels are counted in words of 8 bytes in both.
    convolution : Convolution
    channel_words, pixels, taps : int
        Extents of a tile.
    """

    source: TensorMap
    destination: TensorMap
    convolution: Convolution
    channel_words: int
    pixels: int
    taps: int
    row_words: int

    @property
    def counts(self) -> tuple[int, int, int]:
        """Tiles along taps, channels and pixels."""
        return (
            -(-self.convolution.taps // self.taps), -(-self.row_words // self.channel_words),
            -(-self.convolution.pixels // self.pixels),
        )  # fmt: skip

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return prod(self.counts)

    @property
    def origin(self) -> tuple[int, ...]:
        """The pixel that the first output's first tap sees, W first."""
        return tuple(-before for before, _ in reversed(self.convolution.padding))

    def pixel(self, number: int) -> tuple[int, ...]:
        """Where the first tap of an output pixel lies, W first, then the image."""
        found = []
        sizes = zip(reversed(self.convolution.outputs), self.origin, reversed(self.convolution.stride), strict=True)
        for outputs, origin, stride in sizes:
            number, position = divmod(number, outputs)
            found.append(origin + position * stride)
        return (*found, number)

    def offsets(self, tap: int) -> tuple[int, ...]:
        """How far a tap lies from the first, in pixels, W first."""
        found = []
        steps = zip(reversed(self.convolution.kernel), reversed(self.convolution.dilation), strict=True)
        for kernel, dilation in steps:
            tap, position = divmod(tap, kernel)
            found.append(position * dilation)
        return tuple(found)

    def coordinates(self) -> Iterator[tuple[int, int, int]]:
        """First tap, channel (in words) and output pixel of every tile, in the order the kernel takes them in."""
        tap_count, channel_count, pixel_count = self.counts
        for pixel in range(pixel_count):
            for channel in range(channel_count):
                for tap in range(tap_count):
                    yield tap * self.taps, channel * self.channel_words, pixel * self.pixels


@dataclass(frozen=True)
class ColumnWordPlan:
    """Columns that ordinary loads and stores move.

    Attributes
    ----------
    source, destination : ArrayView
        The input, channels last, and the columns.
    convolution : Convolution
    word_bytes, words : int
        Bytes that are moved at once, and how many make the channels of a pixel.
    parts : int
        Words of an element; 0 where elements lie one after the other, and words need not be parts of them.
    reason : str
        The rule that keeps the columns from tensor maps.
    """

    source: ArrayView
    destination: ArrayView
    convolution: Convolution
    word_bytes: int
    words: int
    parts: int
    reason: str

    @property
    def channel_strides(self) -> tuple[int, int]:
        """Distance of a pixel's channels in the input and in the columns, in bytes; of its words where these follow."""
        return (self.word_bytes,) * 2 if self.parts == 0 else (self.source.strides[-1], self.destination.strides[-1])

    @property
    def tap_stride(self) -> int:
        """Distance of neighbouring taps in the columns, in bytes."""
        return self.convolution.channels * (self.destination.strides[-1] if self.parts else self.source.itemsize)


def plan_im2col(
    source: ArrayView, destination: ArrayView, found: Convolution
) -> ColumnTilePlan | ColumnWordPlan | None:
    """How columns are made.

    Parameters
    ----------
    source : ArrayView
        The input, channels last.
    destination : ArrayView
        The matrix of columns.
    found : Convolution

    Returns
    -------
    ColumnTilePlan, ColumnWordPlan or None
        None where the matrix is empty.
    """
    if destination.size == 0:
        return None
    reason = _layout_obstacle(source, destination, found) or _walk_obstacle(found)
    if reason:
        return word_plan(source, destination, found, reason)
    plan = _tile_plan(source, destination, found)
    if plan.tiles > MAX_TILES:
        return word_plan(source, destination, found, f"{plan.tiles} tiles are too many for one launch")
    return plan


def word_plan(source: ArrayView, destination: ArrayView, found: Convolution, reason: str) -> ColumnWordPlan:
    """The plan that moves words, of the longest that every place is a multiple of."""
    row, dense = found.channels * source.itemsize, is_dense(source) and is_dense(destination)
    numbers = [source.address, destination.address, row if dense else source.itemsize]
    for view in (source, destination):
        pairs = list(zip(view.strides, view.shape, strict=True))
        numbers += [stride for stride, extent in (pairs[:-1] if dense else pairs) if extent > 1]
    word = next(size for size in (16, 8, 4, 2, 1) if all(number % size == 0 for number in numbers))
    return ColumnWordPlan(
        source, destination, found, word, row // word, 0 if dense else source.itemsize // word, reason
    )


def is_dense(view: ArrayView) -> bool:
    """Whether the elements of the last dimension lie one after the other."""
    return view.shape[-1] == 1 or view.strides[-1] == view.itemsize


def source_strides(view: ArrayView) -> tuple[int, ...]:
    """Strides in bytes of all dimensions but the last, in driver order; one that any map may have for extents of 1."""
    row = -(-view.shape[-1] * view.itemsize // UNIT) * UNIT
    pairs = zip(reversed(view.strides[:-1]), reversed(view.shape[:-1]), strict=True)
    return tuple(stride if extent > 1 else row for stride, extent in pairs)


def _layout_obstacle(source: ArrayView, destination: ArrayView, found: Convolution) -> str:
    """The rule by which the arrays' places keep them from tensor maps; empty when none does."""
    row = found.channels * source.itemsize
    strides = (*source_strides(source), destination.strides[0] if found.pixels > 1 else 0)
    checks = (
        (source.size > 0, "the input is empty"),
        (is_dense(source), f"channels are {source.strides[-1]} B apart in the input, and elements {source.itemsize} B"),
        (destination.shape[1] == 1 or destination.strides[1] == source.itemsize, "the rows of the columns have gaps"),
        (row % UNIT == 0, f"the channels of a pixel are {row} B, which is no multiple of {UNIT} B"),
        (source.address % UNIT == 0, f"the input's address is {source.address % UNIT} mod {UNIT} bytes"),
        (destination.address % UNIT == 0, f"the columns' address is {destination.address % UNIT} mod {UNIT} bytes"),
        (all(s % UNIT == 0 for s in strides), f"a stride of {strides} B is no multiple of {UNIT}"),
        (all(0 <= s < STRIDE_LIMIT for s in strides), f"a stride of {strides} B is outside 0 … 2^40 - 1"),
        (max(*source.shape, found.pixels, row // WORD) < MAX_EXTENT, "an extent is 2^31 or above"),
        (max(source.address, destination.address) < ADDRESS_LIMIT, "an address is 2^57 or above"),
    )
    return next((text for holds, text in checks if not holds), "")


def _walk_obstacle(found: Convolution) -> str:
    """The rule by which an im2col walk cannot take a convolution's windows; empty when it can."""
    rank = len(found.extents) + 2
    limit, most = 1 << (CORNER_BITS[rank] - 1), (1 << CORNER_BITS[rank]) - 1
    for i, (kernel, dilation) in enumerate(zip(found.kernel, found.dilation, strict=True)):
        if found.outputs[i] > 1 and found.stride[i] > MAX_ELEMENT_STRIDE:
            return f"stride {found.stride[i]} exceeds the largest element stride, {MAX_ELEMENT_STRIDE}"
        if dilation * (kernel - 1) > most:
            return f"a tap {dilation * (kernel - 1)} pixels from the first exceeds the largest offset, {most}"
        if found.padding[i][0] > MAX_COORDINATE or found.padding[i][1] > MAX_COORDINATE:
            return f"padding of {max(found.padding[i])} pixels is too much for coordinates of 32 bits"
    for name, corner in zip(("lower", "upper"), pixel_box(found), strict=True):
        for value in corner:
            if not -limit <= value < limit:
                return f"a {name} corner of {value} is outside {-limit} … {limit - 1}, the range of rank {rank}"
    return ""


def _element_strides(found: Convolution) -> tuple[int, ...]:
    """Strides of the walk, W first; where there is one output only, none is taken."""
    return tuple(
        stride if outputs > 1 else 1 for stride, outputs in zip(found.stride[::-1], found.outputs[::-1], strict=True)
    )


def pixel_box(found: Convolution) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lower and upper corner of the box of pixels that first taps see, W first.

    The walk stops at the last pixel that is not above the upper corner, which leaves a stride's length to choose from:
    the corner nearest to 0 is taken, since few bits hold it.
    """
    lower, upper = [], []
    for extent, outputs, (before, _), step in zip(
        reversed(found.extents), reversed(found.outputs), reversed(found.padding), _element_strides(found), strict=True
    ):
        least = -before + (outputs - 1) * step - extent + 1
        lower.append(-before)
        upper.append(min(max(least, 0), least + step - 1))
    return tuple(lower), tuple(upper)


def _tile_plan(source: ArrayView, destination: ArrayView, found: Convolution) -> ColumnTilePlan:
    row = found.channels * source.itemsize
    channels, pixels, taps = _tile(row, found)
    lower, upper = pixel_box(found)
    load = Im2col(
        data_type=DataType.UINT64,
        global_address=source.address,
        global_dim=(row // WORD, *found.extents[::-1], found.batch),
        global_strides=source_strides(source),
        element_strides=(1, *_element_strides(found), 1),
        pixel_box_lower_corner=lower,
        pixel_box_upper_corner=upper,
        channels_per_pixel=channels // WORD,
        pixels_per_column=pixels,
    )
    store = Tiled(
        data_type=DataType.UINT64,
        global_address=destination.address,
        global_dim=(row // WORD, found.pixels, found.taps),
        global_strides=(destination.strides[0] if found.pixels > 1 else row, row),
        box_dim=(channels // WORD, pixels, taps),
    )
    return ColumnTilePlan(load.encode(), store.encode(), found, channels // WORD, pixels, taps, row // WORD)


def _tile(row: int, found: Convolution) -> tuple[int, int, int]:
    """Bytes of channels, pixels and taps of a tile."""
    room = TILE_BYTES
    while True:
        channels, pixels, taps = _tile_of(room, row, found)
        tiles = -(-row // channels) * -(-found.pixels // pixels) * -(-found.taps // taps)
        if tiles >= ENOUGH_TILES or room <= LEAST_TILE_BYTES:
            return channels, pixels, taps
        room //= 2


def _tile_of(room: int, row: int, found: Convolution) -> tuple[int, int, int]:
    channels = row if row <= MAX_CHANNEL_BYTES else -(-even(row, MAX_CHANNEL_BYTES) // _LINE) * _LINE
    most = min(_MAX_PIXELS, room // channels // _PIXEL_STEP * _PIXEL_STEP)
    pixels = max(_PIXEL_STEP, min(most, -(-found.pixels // _PIXEL_STEP) * _PIXEL_STEP))
    return channels, pixels, even(found.taps, min(_MAX_TAPS, max(1, room // (channels * pixels))))
