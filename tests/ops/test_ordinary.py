"""Ordinary loads and stores: the kernels' index arithmetic as numpy, against numpy's own copies and sums.

`threads` and what follows say in numpy what kernels/places.cuh, words.cu, granules.cu and reduce.cu say in CUDA C++,
given the same bytes of arguments.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma.ops.copy_launches import item_size
from cupytma.ops.layout import Dimension, Region, common_region
from cupytma.ops.ordinary import (
    GRANULE,
    GROUPS,
    Items,
    dealt,
    items_of,
    places_argument,
    region_argument,
    word_bytes,
)
from cupytma.ops.reduction_plan import owned_parts, plan_reduction
from cupytma.tensormap.arrays import view_of

GUARD = 64
DTYPES = ("u1", "u2", "u4", "u8", "c16")
# Runs of so many bytes go in granules if they are not of whole ones, and runs of so few never.
LONG, SHORT = 2048, 63


class Memory:
    """Bytes by address; notes which were read and how often each was written."""

    def __init__(self, buffer: np.ndarray) -> None:
        self.bytes, self.start = buffer, buffer.ctypes.data
        self.reads, self.writes = np.zeros(buffer.size, bool), np.zeros(buffer.size, int)

    def _places(self, address: int, size: int) -> slice:
        assert address % size == 0, "words lie at multiples of their size"
        first = address - self.start
        assert 0 <= first <= self.bytes.size - size
        return slice(first, first + size)

    def load(self, address: int, size: int) -> np.ndarray:
        places = self._places(address, size)
        self.reads[places] = True
        return self.bytes[places].copy()

    def store(self, address: int, value: np.ndarray) -> None:
        places = self._places(address, value.size)
        self.writes[places] += 1
        self.bytes[places] = value


def threads(places: Any, outer: int, grid: int, block: int):
    """Of each thread that has an item: where its run begins in both arrays, and the item's number (places.cuh)."""
    index = np.arange(grid * block, dtype=np.uint32)
    index = index[index < places["items"]]
    source = np.full(index.size, places["source"], np.int64)
    destination = np.full(index.size, places["destination"], np.int64)
    item = index
    if outer:
        above = index // places["items_per_run"]
        item = index - above * places["items_per_run"]
        for dimension in range(outer):
            extent = places["extents"][dimension]
            rest = above // extent if dimension + 1 < outer else np.zeros_like(above)
            position = (above - rest * extent).astype(np.int64)
            source += position * places["source_strides"][dimension]
            destination += position * places["destination_strides"][dimension]
            above = rest
    return zip(source.tolist(), destination.tolist(), item.tolist(), strict=True)


def copy_words(region: Region, items: Items, memory: tuple[Memory, Memory]) -> None:
    """words.cu."""
    places, size, group = places_argument(region, items), item_size(items), GROUPS[items.word]
    for source, destination, item in threads(places, len(region.outer), size.grid(132), size.threads):
        first = item * group
        left = int(places["run"]) // items.word - first
        words = [memory[0].load(source + (first + i) * items.word, items.word) for i in range(min(group, left))]
        for i, word in enumerate(words):
            memory[1].store(destination + (first + i) * items.word, word)


def shifted(low: np.ndarray, high: np.ndarray, shift: int) -> np.ndarray:
    """16 bytes from one of 32, in words of four bytes (granules.cu)."""
    words = np.concatenate([low, high]).view(np.uint32)
    for step in (2, 1):
        if shift // 4 & step:
            words[: 8 - step] = words[step:].copy()
    pairs = words[:4].astype(np.uint64) | words[1:5].astype(np.uint64) << np.uint64(32)
    return (pairs >> np.uint64(shift % 4 * 8)).astype(np.uint32).view(np.uint8)


def copy_granules(region: Region, items: Items, memory: tuple[Memory, Memory]) -> None:
    """granules.cu."""
    places, size, run = places_argument(region, items), item_size(items), region.run
    for source, destination, item in threads(places, len(region.outer), size.grid(132), size.threads):
        first = item * GRANULE - destination % GRANULE
        shift = (source + first) % GRANULE
        low = first - shift
        if low >= 0 and first >= 0 and (first + GRANULE if shift == 0 else low + 2 * GRANULE) <= run:
            value = memory[0].load(source + low, GRANULE)
            if shift:
                value = shifted(value, memory[0].load(source + low + GRANULE, GRANULE), shift)
            memory[1].store(destination + first, value)
            continue
        for byte in range(max(first, 0), min(first + GRANULE, run), items.word):
            memory[1].store(destination + byte, memory[0].load(source + byte, items.word))


def placed(shape, dtype: str, paddings, offset: int) -> tuple[np.ndarray, np.ndarray]:
    """A random array in a larger buffer, some elements after each dimension, some bytes off a granule; the buffer."""
    itemsize = np.dtype(dtype).itemsize
    strides, step = [], itemsize
    for extent, padding in zip(reversed(shape), reversed(paddings), strict=True):
        strides.insert(0, step)
        step *= extent + padding
    buffer = np.random.default_rng(step).integers(0, 256, step + 2 * GUARD + 32, dtype=np.uint8)
    start = -buffer.ctypes.data % 16 + GUARD + offset
    return np.ndarray(shape, dtype, buffer, start, tuple(strides)), buffer


def touched(array: np.ndarray, buffer: np.ndarray) -> np.ndarray:
    """Which bytes of a buffer are an array's elements."""
    found = np.zeros(buffer.size, np.uint8)
    offset = array.ctypes.data - buffer.ctypes.data
    np.ndarray(array.shape, f"V{array.itemsize}", found, offset, array.strides)[...] = np.void(b"\1" * array.itemsize)
    return found.astype(bool)


def check(source: np.ndarray, destination: np.ndarray, buffers: tuple[np.ndarray, np.ndarray]) -> Items | None:
    """The kernel that has a region gives the destination the source's bits, once, and touches nothing else."""
    region = common_region(view_of(source), view_of(destination))
    items = items_of(region)
    if items is None:
        assert len(region.outer) > 4
        return None
    expected, own = source.tobytes(), touched(destination, buffers[1])
    untouched = buffers[1][~own].copy()
    memory = Memory(buffers[0]), Memory(buffers[1])
    (copy_granules if items.in_granules else copy_words)(region, items, memory)
    assert destination.tobytes() == expected
    np.testing.assert_array_equal(memory[1].writes, own)
    np.testing.assert_array_equal(memory[0].reads, touched(source, buffers[0]))
    np.testing.assert_array_equal(buffers[1][~own], untouched)
    return items


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_every_element_is_copied_by_one_thread_and_nothing_else_is_read_or_written(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 5])) for _ in range(rank - 1))
    dtype, arrays = data.draw(st.sampled_from(DTYPES)), []
    lengths = [1, 2, 3, 7, 15, 16, 33, 100]
    if prod(shape) < 16:
        lengths += [(LONG + extra) // np.dtype(dtype).itemsize for extra in (0, 8, 13, 24)]
    shape = *shape, data.draw(st.sampled_from(lengths))
    for _ in range(2):
        paddings = tuple(data.draw(st.sampled_from([0, 0, 1, 2, 8, 13])) for _ in range(rank))
        arrays.append(placed(shape, dtype, paddings, data.draw(st.integers(0, 15))))
    (source, first), (destination, second) = arrays
    if data.draw(st.booleans()):
        axes = data.draw(st.permutations(range(rank)))
        source, destination = source.transpose(axes), destination.transpose(axes)
    flips = tuple(slice(None, None, data.draw(st.sampled_from([1, -1]))) for _ in range(rank))
    check(source[flips], destination, (first, second))


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("run", [LONG, LONG + 8, LONG + 104])
def test_runs_from_and_to_any_offset_are_shifted_together(dtype: str, run: int) -> None:
    size, seen = np.dtype(dtype).itemsize, set()
    for offset in range(0, 16, size):
        for other in range(0, 16, size):
            source, first = placed((2, run // size), dtype, (0, 24 // size), offset)
            destination, second = placed((2, run // size), dtype, (0, 40 // size), other)
            items = check(source, destination, (first, second))
            seen.add(items.in_granules)
            assert items.in_granules == (items.word < GRANULE)
    assert True in seen


def test_shifting_takes_16_bytes_from_any_of_32() -> None:
    both = np.arange(32, dtype=np.uint8)
    for shift in range(1, 16):
        np.testing.assert_array_equal(shifted(both[:16], both[16:], shift), both[shift : shift + 16])


@given(
    run=st.integers(1, 2 * LONG), offsets=st.tuples(st.integers(0, 31), st.integers(0, 31)),
    extents=st.lists(st.integers(1, 9), max_size=4),
)  # fmt: skip
def test_items_are_enough_for_every_run_and_hardly_more(run: int, offsets, extents) -> None:
    outer = tuple(Dimension(extent, 1 << 10 * i + 8, 1 << 10 * i + 8) for i, extent in enumerate(extents, 1))
    region = Region(offsets[0] + (1 << 40), offsets[1] + (1 << 50), run, outer)
    items = items_of(region)
    assert items.total == items.per_run * region.bytes // run
    assert all(number % items.word == 0 for number in (region.source, region.destination, run))
    assert not items.in_granules or (items.word < GRANULE and run > SHORT)
    assert items.in_granules or items.word == GRANULE or run < LONG
    if items.in_granules:
        needed = -(-(region.destination % GRANULE + run) // GRANULE)
    else:
        needed = -(-run // (items.word * GROUPS[items.word]))
    assert needed <= items.per_run <= needed + items.in_granules
    size = item_size(items)
    assert (size.grid(132) - 1) * size.threads < items.total <= size.grid(132) * size.threads
    assert size.grid(132) == size.grid(1), "a thread for each item, however many multiprocessors"


REGION = Region(1 << 40, 1 << 50, 32, tuple(Dimension(2, 64 << 8 * i, 128 << 8 * i) for i in range(4)))


def test_what_threads_cannot_be_told_of_is_left_to_the_kernel_for_any_rank() -> None:
    per_run = -(-2 // GROUPS[16])
    assert items_of(REGION) == Items(16, per_run, 16 * per_run)
    for wrong in (
        replace(REGION, outer=(*REGION.outer, Dimension(2, 1 << 38, 1 << 38))),
        replace(REGION, outer=(Dimension(2**32, 0, 64),)),
        replace(REGION, run=2**36),
    ):
        assert items_of(wrong) is None
    assert items_of(replace(REGION, run=2**32 + 1, outer=())) == Items(1, 2**28 + 1, 2**28 + 1, in_granules=True)
    assert dealt(REGION, 16, (2**32 - 1) // 16) is not None
    assert dealt(REGION, 16, 2**32 // 16) is None


@pytest.mark.parametrize("word", [1, 2, 4, 8, 16, 32])
def test_words_are_as_long_as_every_address_and_stride_allows(word: int) -> None:
    for name in ("source", "destination", "run"):
        assert word_bytes(replace(REGION, **{name: getattr(REGION, name) + word})) == min(word, 16)
    for step in (Dimension(2, 64 + word, 64), Dimension(2, 64, -64 - word)):
        assert word_bytes(replace(REGION, outer=(step,))) == min(word, 16)


def test_kernels_are_told_bytes_and_those_for_any_rank_words() -> None:
    places, told = places_argument(REGION, items_of(REGION)), region_argument(REGION)
    assert (places["run"], places["items"] / places["items_per_run"]) == (32, 16)
    assert (told["run"], told["words"], told["word_bytes"], told["outer_rank"]) == (2, 32, 16, 4)
    for one in (places, told):
        assert (one["source"], one["destination"]) == (1 << 40, 1 << 50)
        assert list(one["extents"][:4]) == [2] * 4
        assert list(one["source_strides"][:4]) == [64 << 8 * i for i in range(4)]
        assert list(one["destination_strides"][:4]) == [128 << 8 * i for i in range(4)]
    assert not region_argument(None)["words"]


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_every_element_is_reduced_by_one_thread_that_takes_all_parts(data: st.DataObject) -> None:
    """reduce.cu: one vector of the destination for a thread."""
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 5, 8, 12])) for _ in range(rank))
    parts = data.draw(st.sampled_from([None, 1, 2, 5, 8]))
    dtype, arrays = data.draw(st.sampled_from(["u4", "u8"])), []
    for extents in ((parts, *shape) if parts else shape, shape):
        paddings = tuple(data.draw(st.sampled_from([0, 0, 1, 4])) for _ in extents)
        arrays.append(placed(extents, dtype, paddings, data.draw(st.sampled_from([0, 8]))))
    (source, first), (destination, second) = arrays
    plan = plan_reduction("add", view_of(source), view_of(destination))
    found = owned_parts(plan, source.itemsize)
    if found is None:
        assert plan.tiles is not None or len(plan.rest.outer) > 4
        return
    memory = Memory(first), Memory(second)
    expected = destination + (source.sum(0, dtype=dtype) if parts else source)
    own = touched(destination, second)
    size, places = item_size(found.items), places_argument(found.region, found.items)
    word = found.items.word
    for start, end, item in threads(places, len(found.region.outer), size.grid(132), size.threads):
        total = memory[1].load(end + item * word, word).view(dtype)
        for part in range(found.count):
            total = total + memory[0].load(start + item * word + part * found.stride, word).view(dtype)
        memory[1].store(end + item * word, total.view(np.uint8))
    np.testing.assert_array_equal(destination, expected)
    np.testing.assert_array_equal(memory[1].writes, own)
    np.testing.assert_array_equal(memory[0].reads, touched(source, first))
