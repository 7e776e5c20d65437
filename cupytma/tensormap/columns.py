"""Rows of parameters as rows of 64-bit words, and those as columns.

Turning whole rows into columns at once costs a fraction of reading one field of all rows after another, and rows of
words are picked by kind and rank in one copy each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

WORD_BYTES = 8
# Rows turned at a time: they and their columns stay in the nearest cache.
_ROWS_TURNED = 512

Records = npt.NDArray[np.void]
Words = npt.NDArray[np.uint64]
Column = npt.NDArray[np.int64]
Field = tuple[str, int | None]


class Layout:
    """Where the fields of a structured type come to lie once each is aligned.

    Parameters
    ----------
    dtype : numpy.dtype
        Structured.
    names : sequence of str
        The fields to read: integers, or one-dimensional arrays of integers.

    Attributes
    ----------
    words : int
        Words of one row.
    """

    def __init__(self, dtype: np.dtype[np.void], names: Sequence[str]) -> None:
        given = dict(dtype.fields or {})
        fields = {name: (given[name][0], int(given[name][1])) for name in names}
        native = all(field.base.isnative for field, _ in fields.values()) and not dtype.hasobject
        shifts = [shift for shift in range(WORD_BYTES) if native and _all_aligned(fields, shift)]
        self._names = tuple(names)
        self._shift = shifts[0] if shifts else None
        self._itemsize = dtype.itemsize
        if self._shift is None:  # field by field, into a type of our own
            formats = [field.newbyteorder("=") for field, _ in fields.values()]
            self._own = np.dtype({"names": list(names), "formats": formats}, align=True)
            self._itemsize = self._own.itemsize
            placed: Any = self._own.fields
            fields = {name: (placed[name][0], placed[name][1]) for name in names}
        shift = self._shift or 0
        self._places = {name: (field.base, offset + shift) for name, (field, offset) in fields.items()}
        self._end = max(offset + field.itemsize for field, offset in fields.values())
        self.words = -(-(self._end + shift) // WORD_BYTES)

    def rows(self, records: Records, memory: Words) -> Words:
        """Rows as rows of words.

        Parameters
        ----------
        records : numpy.ndarray, shape (n,)
        memory : numpy.ndarray of uint64, shape (at least n, `words`)
            For rows that cannot be read where they are.

        Returns
        -------
        numpy.ndarray of uint64, shape (n, `words`)
            Part of ``memory``, or a view of the records.
        """
        records = np.ascontiguousarray(records)
        if self._shift is None:
            own = np.empty(len(records), self._own)
            for name in self._names:
                own[name] = records[name]
            records = own
        if self._shift in (0, None) and self._itemsize % WORD_BYTES == 0:
            return records.view(np.uint64).reshape(len(records), -1)[:, : self.words]
        found, shift = memory[: len(records)], self._shift or 0
        data = records.view(np.uint8).reshape(len(records), self._itemsize)
        found.view(np.uint8)[:, shift : shift + self._end] = data[:, : self._end]
        return found

    def reading(self, fields: Sequence[Field]) -> Reading:
        """How to read some fields, or entries of fields."""
        words, parts = [], []
        for name, entry in fields:
            base, offset = self._places[name]
            word, first = divmod(offset + (entry or 0) * base.itemsize, WORD_BYTES)
            if word not in words:
                words.append(word)
            part = slice(first // base.itemsize, None, WORD_BYTES // base.itemsize)
            parts.append((words.index(word), base, part))
        return Reading(words, parts)


class Reading:
    """Some columns of rows of words."""

    def __init__(self, words: Sequence[int], parts: Sequence[tuple[int, np.dtype[Any], slice]]) -> None:
        self._words = words
        self._parts = parts

    def columns(self, turned: Words, memory: npt.NDArray[np.int64]) -> list[Column]:
        """The columns of turned rows: in place where a field fills its word, else in memory."""
        found = []
        words = [turned[word] for word in self._words]
        for (number, base, part), column in zip(self._parts, memory, strict=False):
            if base.itemsize == WORD_BYTES:
                found.append(words[number].view(np.int64))
            else:
                column = column[: turned.shape[1]]
                np.copyto(column, words[number].view(base)[part], casting="unsafe")
                found.append(column)
        return found

    def columns_of_rows(self, rows: Words) -> list[Column]:
        """The same of rows that are not turned, for few fields."""
        found = []
        for number, base, part in self._parts:
            word = self._words[number]
            first = word * WORD_BYTES // base.itemsize + (part.start or 0)
            found.append(rows.view(base)[:, first].astype(np.int64))
        return found


def turned(rows: Words, into: Words) -> Words:
    """Rows of words as columns, in the memory given: shape (words, rows)."""
    found = into[:, : len(rows)]
    for start in range(0, len(rows), _ROWS_TURNED):
        part = slice(start, start + _ROWS_TURNED)
        found[:, part] = rows[part].T
    return found


def _all_aligned(fields: dict[str, tuple[np.dtype[Any], int]], shift: int) -> bool:
    return all((offset + shift) % field.base.itemsize == 0 for field, offset in fields.values())


@cache
def layout(dtype: np.dtype[np.void], names: tuple[str, ...]) -> Layout:
    """The `Layout` of a type, made once."""
    return Layout(dtype, names)
