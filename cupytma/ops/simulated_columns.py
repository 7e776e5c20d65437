"""Columns of convolutions on the simulator: the tiles of the GPU's plans, on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupytma import sim
from cupytma.ops.column_plan import ColumnTilePlan, ColumnWordPlan, plan_im2col
from cupytma.ops.convolution import convolution, spatial_axes
from cupytma.ops.convolution_columns import check_pair
from cupytma.ops.fold_plan import FoldTilePlan, FoldWordPlan, plan_col2im
from cupytma.ops.layout import permuted_view
from cupytma.ops.simulated_copy import memory_at, span_of
from cupytma.tensormap.arrays import ArrayView, view_of

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


def simulate_im2col(
    x: Any, out: Any, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, layout: str = "NHWC"
) -> Any:
    """`cupytma.im2col` as a GPU does it, tile by tile through the simulator.

    Parameters
    ----------
    x, out : numpy.ndarray
        They may not overlap.
    kernel_size, stride, padding, dilation, layout
        As for `cupytma.im2col`.

    Returns
    -------
    numpy.ndarray
        ``out``.

    Raises
    ------
    ArrayError
        As `cupytma.im2col`.
    """
    axes = spatial_axes(layout, len(view_of(x).shape))
    source, destination = permuted_view(view_of(x), axes), view_of(out)
    found = convolution(source.shape, kernel_size, stride, padding, dilation)
    check_pair(source, destination, destination, found)
    plan = plan_im2col(source, destination, found)
    if isinstance(plan, ColumnTilePlan):
        column_tiles(plan, span_of(x), span_of(out))
    elif plan is not None:
        _column_words(plan)
    return out


def simulate_col2im(
    columns: Any, out: Any, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    layout: str = "NHWC",
) -> Any:  # fmt: skip
    """`cupytma.col2im` as a GPU does it, tile by tile through the simulator.

    Parameters
    ----------
    columns, out : numpy.ndarray
        They may not overlap; what ``out`` holds is replaced.
    kernel_size, stride, padding, dilation, layout
        As for `cupytma.col2im`.

    Returns
    -------
    numpy.ndarray
        ``out``.

    Raises
    ------
    ArrayError
        As `cupytma.col2im`.
    """
    axes = spatial_axes(layout, len(view_of(out).shape))
    source, destination = view_of(columns), permuted_view(view_of(out), axes)
    found = convolution(destination.shape, kernel_size, stride, padding, dilation)
    check_pair(source, destination, source, found)
    plan = plan_col2im(source, destination, found)
    if isinstance(plan, FoldWordPlan):
        _fold_words(plan, columns, out.transpose(axes))
        return out
    out[...] = 0
    if plan is not None:
        _fold_tiles(plan, span_of(columns), span_of(out))
    return out


def column_tiles(plan: ColumnTilePlan, source: tuple[Bytes, int], destination: tuple[Bytes, int]) -> None:
    """Carry out a plan on the memory of two arrays, given as bytes and the address of the first."""
    load_bytes = plan.source.box_bytes
    for tap, channel, pixel in plan.coordinates():
        shared = np.full(plan.taps * load_bytes, 0xA5, np.uint8)
        start = (channel, *plan.pixel(pixel))
        for i in range(min(plan.taps, plan.convolution.taps - tap)):
            sim.load(
                plan.source, start, memory=source[0], base=source[1], shared=shared, shared_offset=i * load_bytes,
                offsets=plan.offsets(tap + i),
            )
        sim.store(
            plan.destination, (channel, pixel, tap), memory=destination[0], base=destination[1], shared=shared
        )


def _column_words(plan: ColumnWordPlan) -> None:
    """What each thread does with its words, for all words of a tap at once."""
    found, word = plan.convolution, plan.word_bytes
    parts = max(1, plan.parts)
    elements, halves = np.divmod(np.arange(plan.words), parts)
    channel = elements * plan.channel_strides[0] + halves * word
    target = elements * plan.channel_strides[1] + halves * word
    outputs = np.indices((found.batch, *found.outputs)).reshape(1 + len(found.outputs), -1)
    reading = _Places(plan.source, word)
    writing = _Places(plan.destination, word)
    for tap, position in enumerate(np.ndindex(*found.kernel)):
        inside, start = np.ones(found.pixels, bool), outputs[0] * plan.source.strides[0]
        for i, offset in enumerate(position):
            at = outputs[1 + i] * found.stride[i] - found.padding[i][0] + offset * found.dilation[i]
            inside &= (at >= 0) & (at < found.extents[i])
            start = start + at * plan.source.strides[1 + i]
        values = np.zeros((found.pixels, plan.words), f"V{word}")
        values[inside] = reading.get(np.add.outer(start[inside], channel))
        rows = np.arange(found.pixels) * plan.destination.strides[0] + tap * plan.tap_stride
        writing.put(np.add.outer(rows, target), values)


class _Places:
    """Words of host memory by their distance from a view's address."""

    def __init__(self, view: ArrayView, word: int) -> None:
        steps = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)] if view.size else []
        low = sum(step for step in steps if step < 0)
        size = sum(step for step in steps if step > 0) + view.itemsize - low if view.size else 0
        self.low, self.word = low, word
        self.bytes = memory_at(view.address + low, (size,), (1,)) if size else np.zeros(0, np.uint8)

    def get(self, places: Any) -> Any:
        found = self.bytes[np.add.outer(places - self.low, np.arange(self.word))]
        return np.ascontiguousarray(found).view(f"V{self.word}")[..., 0]

    def put(self, places: Any, values: Any) -> None:
        words = np.ascontiguousarray(values)[..., None].view(np.uint8)
        self.bytes[np.add.outer(places - self.low, np.arange(self.word))] = words


def _fold_tiles(plan: FoldTilePlan, source: tuple[Bytes, int], destination: tuple[Bytes, int]) -> None:
    shared = np.empty(plan.source.box_bytes, np.uint8)
    for start, target in plan.coordinates():
        sim.load(plan.source, start, memory=source[0], base=source[1], shared=shared)
        sim.reduce(
            plan.destination, "add", target, memory=destination[0], base=destination[1], shared=shared
        )


def _fold_words(plan: FoldWordPlan, columns: Any, out: Any) -> None:
    """What the threads do, for all pixels of the output at once: gather, in the order of the taps."""
    found = plan.convolution
    wide = np.float32 if plan.number in ("float16", "bfloat16") else out.dtype
    total = np.zeros(out.shape, wide)
    windows = columns.reshape(found.batch, *found.outputs, found.taps, found.channels)
    for tap, position in enumerate(np.ndindex(*found.kernel)):
        index, keep = [np.arange(found.batch)], [np.ones(found.batch, bool)]
        for i, offset in enumerate(position):
            distance = np.arange(found.extents[i]) + found.padding[i][0] - offset * found.dilation[i]
            window, left = np.divmod(distance, found.stride[i])
            keep.append((distance >= 0) & (left == 0) & (window < found.outputs[i]))
            index.append(window)
        chosen = np.ix_(*(kept.nonzero()[0] for kept in keep))
        taken = np.ix_(*(i[kept] for i, kept in zip(index, keep, strict=True)))
        total[chosen] += windows[..., tap, :][taken].astype(wide)
    out[...] = total.astype(out.dtype)
