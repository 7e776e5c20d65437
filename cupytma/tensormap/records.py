"""Many tensor maps at once: the rule table and the bit-field table evaluated on numpy columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap import checking, codec
from cupytma.tensormap.fields import RANKS, SIZE, WORDS
from cupytma.tensormap.parameters import KINDS, Parameters
from cupytma.tensormap.rule import FULL_RANK, IM2COL, MODES, SEQUENCES

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

# Which column an operand comes from.
_SCALARS = {
    "data_type": "dtype", "global_address": "addr", "interleave": "interleave", "swizzle": "swizzle",
    "l2_promotion": "l2", "oob_fill": "oob", "wide_mode": "wide_mode", "channels_per_pixel": "channels",
    "pixels_per_column": "pixels",
}  # fmt: skip
_COLUMNS = {
    "global_dim": "dims", "global_strides": "strides", "box_dim": "box", "element_strides": "estr",
    "pixel_box_lower_corner": "lower", "pixel_box_upper_corner": "upper",
}  # fmt: skip
# The kinds that read what not all of them read.
_READ_BY = {
    "wide_mode": ("im2col_wide",), "channels_per_pixel": IM2COL, "pixels_per_column": IM2COL, "box_dim": ("tiled",),
    "pixel_box_lower_corner": IM2COL, "pixel_box_upper_corner": IM2COL,
}  # fmt: skip
_ENUMERATIONS = ("data_type", "interleave", "swizzle", "l2_promotion", "oob_fill", "wide_mode")
# Rows per step: the columns of one step stay in the cache, and numpy's cost per call still does not show.
_STEP = 1 << 13
_ROWS_AT_HAND = 1 << 10
# Ranks are told apart up to here; what lies above is as illegal.
_RANKS_APART = 8

Int64 = npt.NDArray[np.int64]


class _Lookup:
    """A table indexed by a column; numbers outside it take the nearest entry, as in the scalar checker."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = np.array(values, np.int64)

    def __getitem__(self, index: Any) -> Any:
        return self._values.take(index, mode="clip")


def _quotient(dividend: Any, divisor: Any) -> Any:
    """Exact for what the rules admit, 256 over 8 at most; in single precision it is many times faster than integers."""
    if isinstance(divisor, int):
        return dividend // (divisor or 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = dividend.astype(np.float32) / np.maximum(divisor, 1).astype(np.float32)
    return ratio.astype(np.int64)


_LOOKUPS: dict[str, Any] = {name: _Lookup(values) for name, values in {**checking.LOOKUPS, **codec.LOOKUPS}.items()}
_LOOKUPS["quotient"] = _quotient


def encode_records(
    records: npt.NDArray[np.void], target: str | targets.Target = targets.DEFAULT_TARGET
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Check and encode many tensor maps.

    Parameters
    ----------
    records : numpy.ndarray
        One-dimensional, structured, with the fields of `RECORD`; other fields are ignored.
    target : str or Target
        Default ``"sm_90a"``.

    Returns
    -------
    status : numpy.ndarray of int32, shape (n,)
        0 where the driver would accept the row, else 1 (``CUDA_ERROR_INVALID_VALUE``).
    payload : numpy.ndarray of uint8, shape (n, 128)
        The tensor maps; zeros where rejected.

    Raises
    ------
    DescriptorError
        If a field is missing, or ``op`` is none of 0, 1 and 2.
    TargetError
        If the target is unknown or has no Tensor Memory Accelerator.
    """
    records = np.ascontiguousarray(records)
    problems = _record_problems(records)
    if problems:
        raise DescriptorError(
            "encode_records takes a one-dimensional structured array with the fields of cupytma.tensormap.RECORD; this "
            f"one {', '.join(problems)}"
        )
    kinds = np.ascontiguousarray(records["op"])  # once: every look at a field of all rows reads all their memory
    if np.any((kinds < 0) | (kinds >= len(MODES))):
        raise DescriptorError("op must be 0 (tiled), 1 (im2col) or 2 (im2col-wide)")
    chosen = targets.target(target)
    status = np.ones(len(records), np.int32)
    words = np.zeros((len(records), WORDS), np.uint64)
    columns = _Columns(min(len(records), _STEP))
    for mode, rank, rows in _groups(kinds, records["rank"]):
        columns.words[:] = 0
        for start in range(0, len(rows), _STEP):
            step = rows[start : start + _STEP]
            part = _take(records, step, columns)
            if isinstance(step, slice):  # straight into place
                refused = _encode_rows(part, mode, rank, chosen, columns, words[step])
                status[step] = refused
                if refused.any():
                    words[step][refused] = 0
            else:
                block = columns.words[: len(step)]
                refused = _encode_rows(part, mode, rank, chosen, columns, block)
                status[step] = refused
                rows_of = _as_rows(block)
                if refused.any():
                    step, rows_of = step[~refused], rows_of[~refused]
                _as_rows(words)[step] = rows_of
    return status, words.view(np.uint8).reshape(-1, SIZE)


def _as_rows(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.void]:
    """Words as one item a row, which numpy picks and places twice as fast as rows of an array."""
    rows: npt.NDArray[np.void] = words.view(f"V{SIZE}")[:, 0]
    return rows


def _record_problems(records: npt.NDArray[np.void]) -> list[str]:
    """What keeps an array from being rows of `RECORD`."""
    given, problems = dict(records.dtype.fields or {}), []
    if records.ndim != 1:
        problems.append(f"has {records.ndim} dimensions")
    for name, (wanted, *_) in dict(RECORD.fields or {}).items():
        if name not in given:
            problems.append(f"lacks {name}")
        elif given[name][0].shape != wanted.shape or given[name][0].base.kind not in "iu":
            problems.append(f"has {name} of {given[name][0]} and not of integers, shape {wanted.shape}")
    return problems


def _take(records: npt.NDArray[np.void], rows: Any, columns: _Columns) -> npt.NDArray[np.void]:
    """Some of the rows, placed so that numpy reads their fields fast: aligned, and copied as whole rows."""
    layout = _aligned_layout(records.dtype)
    if layout is None:
        return np.asarray(records[rows])
    shift, dtype = layout
    if shift == 0 and dtype.itemsize == records.itemsize and isinstance(rows, slice):
        return np.asarray(records[rows])
    data = records.view(np.uint8).reshape(len(records), records.itemsize)
    if isinstance(rows, slice):
        data = data[rows]
    elif shift == 0 and dtype.itemsize == records.itemsize:
        aligned_rows = columns.rows(len(rows), dtype.itemsize)
        found: npt.NDArray[np.void] = data.take(rows, axis=0, out=aligned_rows, mode="clip").view(dtype)[:, 0]
        return found
    else:
        data = data.take(rows, axis=0)
    placed = columns.rows(len(data), dtype.itemsize)
    placed[:, shift : shift + records.itemsize] = data
    aligned: npt.NDArray[np.void] = placed.view(dtype)[:, 0]
    return aligned


@cache
def _aligned_layout(dtype: np.dtype[np.void]) -> tuple[int, np.dtype[np.void]] | None:
    """How many bytes to move a row of packed fields by, and into which row, so that every field is aligned."""
    names, layout = RECORD.names or (), dict(dtype.fields or {})
    fields: list[tuple[np.dtype[Any], int]] = [(layout[name][0], layout[name][1]) for name in names]
    for shift in range(8):
        if all((offset + shift) % field.base.itemsize == 0 for field, offset in fields):
            size = -(-(dtype.itemsize + shift) // 8) * 8
            return shift, np.dtype(
                {
                    "names": names, "formats": [field for field, _ in fields],
                    "offsets": [offset + shift for _, offset in fields], "itemsize": size,
                }
            )  # fmt: skip
    return None


class _Everything:
    """All rows, as slices instead of index arrays."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: slice) -> slice:
        return part


def _groups(kinds: npt.NDArray[Any], ranks: npt.NDArray[Any]) -> Iterator[tuple[str, int, Any]]:
    """Rows of one kind and rank at a time."""
    if not len(kinds):
        return
    ranks = np.clip(ranks, 0, _RANKS_APART - 1).astype(np.uint8)
    keys = kinds.astype(np.uint8) * np.uint8(_RANKS_APART) + ranks
    if np.all(keys == keys[0]):
        yield MODES[keys[0] // _RANKS_APART], int(ranks[0]), _Everything(len(kinds))
        return
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    for rows in np.split(order, bounds):
        key = int(keys[rows[0]])
        yield MODES[key // _RANKS_APART], key % _RANKS_APART, rows


def _encode_rows(
    records: npt.NDArray[np.void],
    mode: str,
    rank: int,
    target: targets.Target,
    columns: _Columns,
    words: npt.NDArray[np.uint64],
) -> npt.NDArray[np.bool_]:
    """Which of the rows, all of one kind and rank, are refused. The words filled in mean nothing for those."""
    layout = checking.layout_of(mode, target)
    if rank not in RANKS[layout]:
        return np.ones(len(records), np.bool_)
    operands = _operands(records, mode, rank, target, columns)
    legal = np.ones(len(records), np.bool_)
    for clause in checking.compiled_clauses(mode, rank, target.name):
        legal &= eval(clause, _NO_BUILTINS, operands)
    for word, code in enumerate(codec.word_expressions(layout, rank)):
        if code is not None:
            words[:, word] = np.asarray(eval(code, _NO_BUILTINS, operands), np.int64).view(np.uint64)
    return ~legal


_NO_BUILTINS: dict[str, Any] = {"__builtins__": {}}


class _Columns:
    """Memory for the columns of one step, used again by the next: fresh memory costs more than filling it."""

    def __init__(self, rows: int) -> None:
        count = len(_SCALARS) + sum(FULL_RANK - short for short, _ in SEQUENCES.values())
        self._memory = np.empty((count, rows), np.int64)
        self._pending: list[tuple[Int64, npt.NDArray[Any]]] = []
        self._rows = np.empty(0, np.uint8)
        self.words = np.empty((rows, WORDS), np.uint64)

    def rows(self, count: int, size: int) -> npt.NDArray[np.uint8]:
        """Room for rows of some bytes each."""
        if len(self._rows) < count * size:
            self._rows = np.empty(count * size, np.uint8)
        return self._rows[: count * size].reshape(count, size)

    def add(self, values: npt.NDArray[Any]) -> Int64:
        """A column for these values, which `fill` puts into it."""
        column = self._memory[len(self._pending), : len(values)]
        self._pending.append((column, values))
        return column

    def fill(self) -> None:
        """Copy the values of all columns added since the last time: some rows of all, while those rows are at hand."""
        rows = len(self._pending[0][0])
        for start in range(0, rows, _ROWS_AT_HAND):
            part = slice(start, start + _ROWS_AT_HAND)
            for column, values in self._pending:
                np.copyto(column[part], values[part], casting="unsafe")
        self._pending.clear()


def _operands(
    records: npt.NDArray[np.void], mode: str, rank: int, target: targets.Target, columns: _Columns
) -> dict[str, Any]:
    """The operands of the rules as columns, derived ones included.

    Unsigned values of 2^63 and above wrap to negative ones here, which break the same rule; products that wrap have a
    factor that breaks its own.
    """
    found: dict[str, Any] = {"mode": mode, "layout": checking.layout_of(mode, target), "rank": rank}
    found.update(checking.target_operands(target))
    for name, column in _SCALARS.items():
        found[name] = columns.add(records[column]) if mode in _READ_BY.get(name, MODES) else 0
    for name, (short, neutral) in SEQUENCES.items():
        column, entries = _COLUMNS[name], FULL_RANK - short
        if mode not in _READ_BY.get(name, MODES):
            found[name] = [neutral] * entries
            continue
        read = 1 if mode == "im2col_wide" and column in ("lower", "upper") else max(0, rank - short)
        values = records[column]
        found[name] = [columns.add(values[:, i]) if i < read else neutral for i in range(entries)]
    columns.fill()
    found.update({name: _constant(found[name]) for name in _ENUMERATIONS})
    found["element_strides"] = [_constant(column) for column in found["element_strides"]]
    checking.derive(found, _LOOKUPS)
    return found


def _constant(column: Any) -> Any:
    """The number that a column holds throughout, where it does: what follows then costs next to nothing."""
    if isinstance(column, int) or not len(column) or column[0] != column[-1] or np.any(column != column[0]):
        return column
    return int(column[0])


def to_records(parameters: Sequence[Parameters]) -> npt.NDArray[np.void]:
    """Rows for `encode_records` of parameters whose values fit its columns.

    Raises
    ------
    DescriptorError
        If a value does not fit its column, such as a negative extent or a rank above 5.
    """
    records = np.zeros(len(parameters), RECORD)
    kinds = list(KINDS)
    for row, p in zip(records, parameters, strict=True):
        operands = p.operands(targets.DEFAULT_TARGET)
        row["op"], row["rank"] = kinds.index(p.kind), p.rank
        try:
            for name, column in _SCALARS.items():
                row[column] = operands.get(name, 0)
            for name, column in _COLUMNS.items():
                row[column] = operands.get(name, 0)
        except (OverflowError, ValueError) as error:
            raise DescriptorError(f"{p!r} does not fit a record: {error}") from None
    return records
