"""Rows of parameters as rows of 64-bit words, and those as columns.

Turning whole rows into columns at once costs a fraction of reading one field of all rows after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.tensormap.expressions import RANKS_APART
from cupytma.tensormap.resolving import variables
from cupytma.tensormap.rule import FULL_RANK, MODES, SEQUENCES

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
ROW_WORDS = RECORD.itemsize // WORD_BYTES
# Rows turned at a time: they and their columns stay in the nearest cache.
_ROWS_TURNED = 512

Records = npt.NDArray[np.void]
Words = npt.NDArray[np.uint64]
# Bytes of a field of `RECORD`, and where in the row they begin.
_FIELDS: dict[str, tuple[np.dtype[Any], int]] = {
    name: (field[0], int(field[1])) for name, field in (RECORD.fields or {}).items()
}


def _entries() -> Iterator[tuple[str, int, int]]:
    """Every operand or entry of one, its first byte in the row, and its bytes."""
    for name, field in FIELD_NAMES.items():
        dtype, offset = _FIELDS[field]
        several = [name] if name not in SEQUENCES else variables(name, MODES[0], FULL_RANK)
        if name in SEQUENCES and dtype.shape[0] > len(several):
            several = variables(name, MODES[1], FULL_RANK)
        for i, variable in enumerate(several):
            yield variable, offset + i * dtype.base.itemsize, dtype.base.itemsize


_PLACES = {variable: (offset, size) for variable, offset, size in _entries()}
# Operands of 64 bits; the others have 32.
WIDE = frozenset(variable for variable, (_, size) in _PLACES.items() if size == WORD_BYTES)


class Layout:
    """How rows of a structured type become rows of `RECORD`.

    Parameters
    ----------
    dtype : numpy.dtype
        Structured, with the fields of `RECORD`, of any integers.
    """

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        given = {name: (dtype.fields[name][0], int(dtype.fields[name][1])) for name in _FIELDS} if dtype.fields else {}
        self._same = not dtype.hasobject and all(given[name][0] == _FIELDS[name][0] for name in _FIELDS)
        self._itemsize = dtype.itemsize
        self._runs: list[tuple[int, int, int]] = []  # first byte given, first byte in `RECORD`, bytes
        for name, (field, there) in _FIELDS.items():
            here = given[name][1]
            if self._runs and self._runs[-1][0] - self._runs[-1][1] == here - there:
                first, into, _ = self._runs[-1]
                self._runs[-1] = first, into, here + field.itemsize - first
            else:
                self._runs.append((here, there, field.itemsize))
        self._in_place = self._same and self._runs[0][:2] == (0, 0) and len(self._runs) == 1

    def rows(self, records: Records, memory: Words) -> Words:
        """Rows as rows of words.

        Parameters
        ----------
        records : numpy.ndarray, shape (n,)
        memory : numpy.ndarray of uint64, shape (at least n, `ROW_WORDS`)
            For rows that cannot be read where they are.

        Returns
        -------
        numpy.ndarray of uint64, shape (n, `ROW_WORDS`)
            Part of ``memory``, or a view of the records.
        """
        records = np.ascontiguousarray(records)
        if self._in_place and self._itemsize % WORD_BYTES == 0:
            return records.view(np.uint64).reshape(len(records), -1)[:, :ROW_WORDS]
        found = memory[: len(records)]
        if self._same:
            given = records.view(np.uint8).reshape(len(records), self._itemsize)
            for here, there, size in self._runs:
                found.view(np.uint8)[:, there : there + size] = given[:, here : here + size]
        else:
            own = found.view(RECORD)[:, 0]
            for name in _FIELDS:
                own[name] = _fitting(records[name], RECORD[name].base)
        return found


def _fitting(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Numbers too large for a field as its least and greatest, which no rule allows."""
    if values.dtype.itemsize > dtype.itemsize:
        limits = np.iinfo(dtype)
        values = values.clip(max(limits.min, np.iinfo(values.dtype).min), limits.max)
    return values


def turned(rows: Words, into: Words) -> Words:
    """Rows of words as columns, in the memory given: shape (`ROW_WORDS`, n)."""
    found = into[:, : len(rows)]
    for start in range(0, len(rows), _ROWS_TURNED):
        part = slice(start, start + _ROWS_TURNED)
        found[:, part] = rows[part].T
    return found


def column(words: Words, offset: int, size: int) -> npt.NDArray[Any]:
    """A field of turned rows, not copied: signed integers."""
    word, first = divmod(offset, WORD_BYTES)
    return words[word].view(f"i{size}")[first // size :: WORD_BYTES // size]


def cases(words: Words) -> npt.NDArray[np.int64]:
    """Kind and rank of turned rows as one number, ``kind * RANKS_APART + rank``; ranks beyond count as the last."""
    kinds, ranks = (column(words, _FIELDS[name][1], _FIELDS[name][0].itemsize) for name in ("op", "rank"))
    found = np.minimum(ranks.view(np.uint32), RANKS_APART - 1).astype(np.int64)
    found += kinds.view(np.uint8) * np.int64(RANKS_APART)
    return found


def operand(words: Words, variable: str, memory: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
    """An operand of turned rows: in place where it has 64 bits, else in memory."""
    offset, size = _PLACES[variable]
    found = column(words, offset, size)
    if size == WORD_BYTES:
        return found
    into = memory[: found.shape[0]]
    into[:] = found
    return into


@cache
def layout(dtype: np.dtype[np.void]) -> Layout:
    """The `Layout` of a type, made once."""
    return Layout(dtype)
