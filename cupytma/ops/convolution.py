"""The windows of a convolution: which pixels each output sees. Knows nothing of arrays' memory."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from cupytma.errors import ArrayError
from cupytma.runtime.given import shown
from cupytma.words import counted

# Where an array of each layout has its batch, its spatial dimensions and its channels.
LAYOUTS = {
    "NWC": (0, 1, 2),
    "NHWC": (0, 1, 2, 3),
    "NDHWC": (0, 1, 2, 3, 4),
    "NCW": (0, 2, 1),
    "NCHW": (0, 2, 3, 1),
    "NCDHW": (0, 2, 3, 4, 1),
}


@dataclass(frozen=True)
class Convolution:
    """A convolution's geometry; spatial dimensions in array order, (D, H, W) as far as there are.

    Attributes
    ----------
    batch, channels : int
    extents : tuple of int
        Pixels of the input along each spatial dimension.
    kernel, stride, dilation : tuple of int
        In pixels, each at least 1.
    padding : tuple of tuple of int
        Pixels of zeros before and after each spatial dimension.
    """

    batch: int
    channels: int
    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    @property
    def outputs(self) -> tuple[int, ...]:
        """Pixels of the output along each spatial dimension."""
        return tuple(
            (extent + before + after - dilation * (kernel - 1) - 1) // stride + 1
            for extent, kernel, stride, (before, after), dilation in zip(
                self.extents, self.kernel, self.stride, self.padding, self.dilation, strict=True
            )
        )

    @property
    def pixels(self) -> int:
        """Pixels of the output, of all images: the rows of the matrix of columns."""
        return self.batch * prod(self.outputs)

    @property
    def taps(self) -> int:
        """Pixels that each output sees."""
        return prod(self.kernel)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the input, channels last."""
        return (self.batch, *self.extents, self.channels)

    @property
    def columns(self) -> tuple[int, int]:
        """Shape of the matrix of columns."""
        return self.pixels, self.taps * self.channels


def convolution(
    shape: Sequence[int], kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> Convolution:
    """A convolution over an input of a shape, channels last; other operands as for `cupytma.im2col`.

    Raises
    ------
    ArrayError
        If an operand has no value for each spatial dimension, is out of range, or no window fits the padded input.
    """
    batch, *extents, channels = shape
    spatial = len(extents)
    found = Convolution(
        batch, channels, tuple(extents), _each("kernel_size", kernel_size, spatial, 1),
        _each("stride", stride, spatial, 1), _paddings(padding, spatial), _each("dilation", dilation, spatial, 1),
    )  # fmt: skip
    for i, outputs in enumerate(found.outputs):
        if outputs < 1:
            (before, after), reach = found.padding[i], found.dilation[i] * (found.kernel[i] - 1) + 1
            raise ArrayError(
                f"no window fits spatial dimension {i}: a kernel of {found.kernel[i]} with dilation "
                f"{found.dilation[i]} reaches over {reach} pixels, and there are {before} + {extents[i]} + {after} "
                "with the padding; use a smaller kernel or more padding"
            )
    return found


def spatial_axes(layout: Any, rank: int) -> tuple[int, ...]:
    """The axes of an array of a layout in the order batch, spatial dimensions, channels.

    Parameters
    ----------
    layout : str
        One of `LAYOUTS`. The names for two spatial dimensions, ``"NHWC"`` and ``"NCHW"``, stand for channels last and
        channels first at every rank.
    rank : int
        Dimensions of the array.

    Raises
    ------
    ArrayError
        If there is no such layout, or it has another number of dimensions.
    """
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise ArrayError(f"layout = {shown(layout)}: the layouts are {', '.join(LAYOUTS)}")
    if not 3 <= rank <= 5:
        raise ArrayError(
            f"the array has {counted(rank, 'dimension')}; a batch, one to three spatial dimensions and channels are "
            "needed, 3 to 5"
        )
    if layout in ("NHWC", "NCHW"):
        layout = next(name for name in LAYOUTS if len(name) == rank and name.endswith("C") == layout.endswith("C"))
    if len(layout) != rank:
        raise ArrayError(f"layout = {shown(layout)} has {counted(len(layout), 'dimension')}, and the array has {rank}")
    return LAYOUTS[layout]


def _each(name: str, value: Any, spatial: int, least: int) -> tuple[int, ...]:
    """An integer for each spatial dimension, from one for all or a sequence."""
    try:
        found = tuple(map(operator.index, value)) if isinstance(value, Sequence) else (operator.index(value),) * spatial
    except TypeError:
        raise ArrayError(f"{name} = {shown(value)}: expected an integer, or one for each spatial dimension") from None
    if len(found) != spatial:
        raise ArrayError(
            f"{name} = {shown(value)} has {counted(len(found), 'entry')}; there are {spatial} spatial dimensions"
        )
    for number in found:
        if not least <= number < 2**31:
            raise ArrayError(f"{name} = {shown(value)}: {shown(number)} is outside {least} … 2^31 - 1")
    return found


def _paddings(value: Any, spatial: int) -> tuple[tuple[int, int], ...]:
    """Padding before and after each spatial dimension."""
    if isinstance(value, Sequence) and any(isinstance(entry, Sequence) for entry in value):
        if len(value) != spatial:
            raise ArrayError(
                f"padding = {shown(value)} has {counted(len(value), 'entry')}; there are {spatial} spatial dimensions"
            )
        pairs = [_each("padding", entry, 2, 0) for entry in value]
        return tuple((before, after) for before, after in pairs)
    return tuple((number, number) for number in _each("padding", value, spatial, 0))
