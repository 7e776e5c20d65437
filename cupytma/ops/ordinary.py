"""Regions that ordinary loads and stores work on: which kernels have them, and what these are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.layout import Region

MAX_OUTER_RANK = 31
GRANULE = 16
# From what length on runs are shifted together from aligned granules, by the bytes of the words that they begin and end
# with: below, too much of them is ends (measured on an H200).
LEAST_GRANULE_RUN = {1: 512, 2: 512, 4: 1024, 8: 2048}
# Words that a thread copies one after the other, by their bytes: finding the place of short ones takes longer than
# moving them.
GROUPS = {1: 4, 2: 4, 4: 2, 8: 2, 16: 1}
_PLACES_OUTER_RANK = 4
_MAX_ITEMS = 2**32 - 1

_REGION = np.dtype(
    [
        ("source", "u8"), ("destination", "u8"), ("words", "u8"), ("run", "u8"),
        ("extents", "u8", MAX_OUTER_RANK), ("source_strides", "i8", MAX_OUTER_RANK),
        ("destination_strides", "i8", MAX_OUTER_RANK), ("outer_rank", "i4"), ("word_bytes", "i4"),
    ]
)
_PLACES = np.dtype(
    [
        ("source", "u8"), ("destination", "u8"), ("run", "u8"), ("source_strides", "i8", _PLACES_OUTER_RANK),
        ("destination_strides", "i8", _PLACES_OUTER_RANK), ("extents", "u4", _PLACES_OUTER_RANK), ("items", "u4"),
        ("items_per_run", "u4"),
    ]
)


@dataclass(frozen=True)
class Items:
    """How a region is dealt to threads, one item of a run each.

    Attributes
    ----------
    word : int
        Bytes of an item, or of the words that every run begins and ends with.
    per_run : int
        Items of one run, at most.
    total : int
    in_granules : bool
        Whether items are aligned granules of the destination, which runs begin and end within.
    """

    word: int
    per_run: int
    total: int
    in_granules: bool = False


def items_of(region: Region) -> Items | None:
    """How a region is best dealt to threads; None where there are too many dimensions or items for it."""
    word = word_bytes(region)
    if region.run >= LEAST_GRANULE_RUN.get(word, region.run + 1):
        return dealt(region, word, -(-(region.run + GRANULE - word) // GRANULE), in_granules=True)
    return dealt(region, word, -(-region.run // (word * GROUPS[word])))


def dealt(region: Region, word: int, per_run: int, *, in_granules: bool = False) -> Items | None:
    """Items of a region, some of each run; None where there are too many dimensions or items."""
    total = region.bytes // region.run * per_run
    extents_fit = all(dim.extent <= _MAX_ITEMS for dim in region.outer)
    if len(region.outer) > _PLACES_OUTER_RANK or total > _MAX_ITEMS or not extents_fit:
        return None
    return Items(word, per_run, total, in_granules)


def word_bytes(region: Region) -> int:
    """The longest word, up to 16 bytes, that every address of a region is a multiple of."""
    numbers = [region.source, region.destination, region.run]
    numbers += [s for dim in region.outer for s in (dim.source_stride, dim.destination_stride)]
    return next(word for word in (16, 8, 4, 2, 1) if all(number % word == 0 for number in numbers))


def places_argument(region: Region, items: Items) -> Any:
    """What kernels are told of a region whose items are dealt to threads."""
    argument = np.zeros((), _PLACES)
    argument["source"], argument["destination"], argument["run"] = region.source, region.destination, region.run
    argument["items"], argument["items_per_run"] = items.total, items.per_run
    for i, dimension in enumerate(region.outer):
        argument["extents"][i] = dimension.extent
        argument["source_strides"][i] = dimension.source_stride
        argument["destination_strides"][i] = dimension.destination_stride
    return argument[()]


def region_argument(region: Region | None, word: int | None = None) -> Any:
    """What kernels are told of a region of any rank, in words of some bytes: by default the longest that fit."""
    argument = np.zeros((), _REGION)
    if region is not None:
        if len(region.outer) > MAX_OUTER_RANK:
            raise ArrayError(
                f"{len(region.outer) + 1} dimensions are left after merging; {MAX_OUTER_RANK + 1} is the most"
            )
        word = word or word_bytes(region)
        argument["source"], argument["destination"] = region.source, region.destination
        argument["words"], argument["run"] = region.bytes // word, region.run // word
        argument["outer_rank"], argument["word_bytes"] = len(region.outer), word
        for i, dimension in enumerate(region.outer):
            argument["extents"][i] = dimension.extent
            argument["source_strides"][i] = dimension.source_stride
            argument["destination_strides"][i] = dimension.destination_stride
    return argument[()]
