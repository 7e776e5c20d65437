"""Rows of parameters as rows of 64-bit words, and those as columns.

Turning whole rows into columns at once costs a fraction of reading one field of all rows after another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.tensormap.expressions import RANKS_APART

RECORD = np.dtype(
    [
        ("op", "u1"), ("dtype", "i4"), ("rank", "i4"), ("addr", "u8"), ("dims", "u8", 5), ("strides", "u8", 4),
        ("box", "u4", 5), ("estr", "u4", 5), ("lower", "i4", 3), ("upper", "i4", 3), ("channels", "u4"),
        ("pixels", "u4"), ("interleave", "i4"), ("swizzle", "i4"), ("l2", "i4"), ("oob", "i4"), ("wide_mode", "i4"),
    ],
    align=True,
)
"""One row of `encode_records`. ``op`` is 0 for tiled, 1 for im2col, 2 for im2col-wide; the rest are the parameters in
driver order, entries beyond the rank ignored."""

# The field of `RECORD` that an operand comes from.
FIELD_NAMES = {
    "data_type": "dtype", "global_address": "addr", "interleave": "interleave", "swizzle": "swizzle",
    "l2_promotion": "l2", "oob_fill": "oob", "wide_mode": "wide_mode", "channels_per_pixel": "channels",
    "pixels_per_column": "pixels", "global_dim": "dims", "global_strides": "strides", "box_dim": "box",
    "element_strides": "estr", "pixel_box_lower_corner": "lower", "pixel_box_upper_corner": "upper",
}  # fmt: skip
WORD_BYTES = 8
# Rows turned at a time: they and their columns stay in the nearest cache.
ROWS_TURNED = 512
# Rows whose fields lie further apart are gathered field by field.
_MOST_BYTES = 4 * RECORD.itemsize

Records = npt.NDArray[np.void]
Words = npt.NDArray[np.uint64]
# The type of a field of `RECORD`, and its first byte.
_FIELDS: dict[str, tuple[np.dtype[Any], int]] = {
    name: (field[0], int(field[1])) for name, field in (RECORD.fields or {}).items()
}


# Operands of 64 bits; the others have 32.
WIDE = frozenset(name for name, field in FIELD_NAMES.items() if _FIELDS[field][0].base.itemsize == WORD_BYTES)


class Layout:
    """Where the parameters come to lie in rows of words.

    Parameters
    ----------
    dtype : numpy.dtype
        Structured, with the fields of `RECORD`, of any integers.

    Attributes
    ----------
    words : int
        Words of one row.
    """

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        fields = dict(dtype.fields or {})
        offsets = {name: int(fields[name][1]) for name in _FIELDS}
        end = max(offset + _FIELDS[name][0].itemsize for name, offset in offsets.items())
        alike = (
            not dtype.hasobject
            and end <= _MOST_BYTES
            and all(fields[name][0] == field for name, (field, _) in _FIELDS.items())
        )
        # All that may stand before a row for its fields to be aligned.
        shifts = [s for s in range(WORD_BYTES) if alike and _all_aligned({n: o + s for n, o in offsets.items()})]
        self._shift = shifts[0] if shifts else None
        if self._shift is None:  # field by field
            dtype, offsets = RECORD, {name: offset for name, (_, offset) in _FIELDS.items()}
        self._offsets = {name: offset + (self._shift or 0) for name, offset in offsets.items()}
        end = max(offset + _FIELDS[name][0].itemsize for name, offset in self._offsets.items())
        self.words = -(-end // WORD_BYTES)
        self._in_place = self._shift == 0 and dtype.itemsize % WORD_BYTES == 0
        # The bytes to copy, in the rows given and in rows of words.
        copied = [(f"V{end - (self._shift or 0)}", offset) for offset in (0, self._shift or 0)]
        sizes = dtype.itemsize, self.words * WORD_BYTES
        self._given, self._own = (
            np.dtype({"names": ["all"], "formats": [form], "offsets": [offset], "itemsize": size})
            for (form, offset), size in zip(copied, sizes, strict=True)
        )

    def turned(self, records: Records, into: Words, memory: Words) -> Words:
        """Rows as columns of words.

        Parameters
        ----------
        records : numpy.ndarray, shape (n,)
        into : numpy.ndarray of uint64, shape (`words`, at least n)
            Memory for them.
        memory : numpy.ndarray of uint64, shape (`ROWS_TURNED`, `words`)
            For rows that cannot be read where they are.

        Returns
        -------
        numpy.ndarray of uint64, shape (`words`, n)
            Part of ``into``.
        """
        found = into[:, : len(records)]
        rows = self._reader(records, memory)
        for start in range(0, len(records), ROWS_TURNED):
            found[:, start : start + ROWS_TURNED] = rows(slice(start, start + ROWS_TURNED)).T
        return found

    def _reader(self, records: Records, memory: Words) -> Callable[[slice], Words]:
        """What gives some of the rows as words: where they are, or copied into memory."""
        if self._in_place:
            words: Words = records.view(np.uint64).reshape(len(records), -1)[:, : self.words]
            return lambda part: words[part]
        if self._shift is None:
            given, copied = records, memory.view(RECORD)[:, 0]
            copy = _copy_fields
        else:
            given, copied = records.view(self._given)["all"], memory.view(self._own)[:, 0]["all"]
            copy = _copy

        def rows(part: slice) -> Words:
            several = given[part]
            copy(copied[: len(several)], several)
            return memory[: len(several)]

        return rows

    def cases(self, words: Words) -> npt.NDArray[np.int64]:
        """Kind and rank as one number, ``kind * RANKS_APART + rank``; ranks beyond count as the last."""
        found = np.minimum(self._column(words, "rank").view(np.uint32), RANKS_APART - 1).astype(np.int64)
        found += self._column(words, "op").view(np.uint8) * np.int64(RANKS_APART)
        return found

    def operand(self, words: Words, name: str, count: int, halves: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """A parameter of all rows: in place where it has 64 bits, else in memory.

        Parameters
        ----------
        words : numpy.ndarray of uint64, shape (`words`, n)
        name : str
        count : int
            How many entries of a sequence, or 0 for a parameter that is none.
        halves : numpy.ndarray of int32, shape (2 * `words`, at least n)
            Memory.

        Returns
        -------
        numpy.ndarray of int64 or int32, shape (n,) or (count, n)
        """
        field, n = FIELD_NAMES[name], words.shape[1]
        if name in WIDE:
            word = self._offsets[field] // WORD_BYTES
            return words[word].view(np.int64) if not count else words[word : word + count].view(np.int64)
        half = self._offsets[field] * 2 // WORD_BYTES
        if not count:
            halves[half, :n] = self._column(words, field)
            return halves[half, :n]
        first, last = half // 2, -(-(half + count) // 2)
        given = words[first:last].view(np.int32).reshape(last - first, n, 2)
        halves[2 * first : 2 * last].reshape(last - first, 2, -1)[:, :, :n] = given.transpose(0, 2, 1)
        return halves[half : half + count, :n]

    def _column(self, words: Words, field: str) -> npt.NDArray[Any]:
        """A field where it lies: signed."""
        size = _FIELDS[field][0].itemsize
        word, first = divmod(self._offsets[field], WORD_BYTES)
        column: npt.NDArray[Any] = words[word].view(f"i{size}")[first // size :: WORD_BYTES // size]
        return column


def _all_aligned(offsets: dict[str, int]) -> bool:
    return all(offset % _FIELDS[name][0].base.itemsize == 0 for name, offset in offsets.items())


def _copy(into: Records, given: Records) -> None:
    into[:] = given


def _copy_fields(into: Records, given: Records) -> None:
    for name, (field, _) in _FIELDS.items():
        into[name] = _fitting(given[name], field.base)


def _fitting(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Numbers too large for a field as its least and greatest, which no rule allows."""
    if values.dtype.itemsize > dtype.itemsize:
        limits = np.iinfo(dtype)
        values = values.clip(max(limits.min, np.iinfo(values.dtype).min), limits.max)
    return values


@cache
def layout(dtype: np.dtype[np.void]) -> Layout:
    """The `Layout` of a type, made once."""
    return Layout(dtype)
