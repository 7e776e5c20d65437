"""Many tensor maps at once: the rule table and the bit-field table evaluated on numpy columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap import checking, codec
from cupytma.tensormap.fields import RANKS, SIZE, WORDS
from cupytma.tensormap.parameters import KINDS, Parameters
from cupytma.tensormap.rule import MODES

RECORD = np.dtype(
    [
        ("op", "u1"), ("dtype", "i4"), ("rank", "i4"), ("addr", "u8"), ("dims", "u8", 5), ("strides", "u8", 4),
        ("box", "u4", 5), ("estr", "u4", 5), ("lower", "i4", 3), ("upper", "i4", 3), ("channels", "u4"),
        ("pixels", "u4"), ("interleave", "i4"), ("swizzle", "i4"), ("l2", "i4"), ("oob", "i4"), ("wide_mode", "i4"),
    ]
)
"""One row of `encode_records`. ``op`` is 0 for tiled, 1 for im2col, 2 for im2col-wide; the rest are the parameters in
driver order, entries beyond the rank ignored."""

# Which column an operand comes from.
_SCALARS = {
    "data_type": "dtype", "global_address": "addr", "interleave": "interleave", "swizzle": "swizzle",
    "l2_promotion": "l2", "oob_fill": "oob", "wide_mode": "wide_mode", "channels_per_pixel": "channels",
    "pixels_per_column": "pixels",
}  # fmt: skip
# Column, how many entries it has, how many fewer than the rank are read, and what stands in for the others.
_SEQUENCES = {
    "global_dim": ("dims", 5, 0, 1), "global_strides": ("strides", 4, 1, 0), "box_dim": ("box", 5, 0, 1),
    "element_strides": ("estr", 5, 0, 1), "pixel_box_lower_corner": ("lower", 3, 2, 0),
    "pixel_box_upper_corner": ("upper", 3, 2, 0),
}  # fmt: skip
# Rows per step: the columns of one step stay in the cache, and numpy's cost per call still does not show.
_STEP = 1 << 12
# Ranks are told apart up to here; what lies above is as illegal.
_RANKS_APART = 8

Int64 = npt.NDArray[np.int64]


class _Lookup:
    """A table indexed by a column; numbers outside it take the nearest entry, as in the scalar checker."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = np.array(values, np.int64)

    def __getitem__(self, index: Any) -> Any:
        return self._values.take(index, mode="clip")


_LOOKUPS = {name: _Lookup(values) for name, values in {**checking.LOOKUPS, **codec.LOOKUPS}.items()}


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
    records = np.asarray(records)
    missing = [name for name in RECORD.names or () if name not in (records.dtype.names or ())]
    if missing or records.ndim != 1:
        raise DescriptorError(
            f"encode_records takes a one-dimensional structured array with the fields of cupytma.tensormap.RECORD; "
            f"this one has {records.ndim} dimensions and lacks {', '.join(missing) or 'no field'}"
        )
    kinds = records["op"]
    if np.any((kinds < 0) | (kinds >= len(MODES))):
        raise DescriptorError("op must be 0 (tiled), 1 (im2col) or 2 (im2col-wide)")
    chosen = targets.target(target)
    status = np.ones(len(records), np.int32)
    words = np.zeros((len(records), WORDS), np.uint64)
    for mode, rank, rows in _groups(records):
        for start in range(0, len(rows), _STEP):
            step = rows[start : start + _STEP]
            _encode_rows(records[step], mode, rank, chosen, status, words, step)
    return status, words.view(np.uint8).reshape(-1, SIZE)


class _Everything:
    """All rows, as slices instead of index arrays."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: slice) -> slice:
        return part


def _groups(records: npt.NDArray[np.void]) -> Iterator[tuple[str, int, Any]]:
    """Rows of one kind and rank at a time."""
    if not len(records):
        return
    ranks = np.clip(records["rank"], 0, _RANKS_APART - 1).astype(np.uint8)
    keys = records["op"].astype(np.uint8) * np.uint8(_RANKS_APART) + ranks
    if np.all(keys == keys[0]):
        yield MODES[keys[0] // _RANKS_APART], int(ranks[0]), _Everything(len(records))
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
    status: npt.NDArray[np.int32],
    words: npt.NDArray[np.uint64],
    rows: Any,
) -> None:
    """Fill in the status and words of rows of one kind and rank."""
    layout = checking.layout_of(mode, target)
    if rank not in RANKS[layout]:
        return
    operands = _operands(records, mode, rank, target)
    legal = np.ones(len(records), np.bool_)
    for code in checking.compiled_clauses(mode, rank, target.name):
        legal &= eval(code, _NO_BUILTINS, operands)
    status[rows] = ~legal
    keep = -legal.astype(np.int64)
    for word, code in enumerate(codec.word_expressions(layout, rank)):
        if code is not None:
            words[rows, word] = (eval(code, _NO_BUILTINS, operands) & keep).view(np.uint64)


_NO_BUILTINS: dict[str, Any] = {"__builtins__": {}}


def _operands(records: npt.NDArray[np.void], mode: str, rank: int, target: targets.Target) -> dict[str, Any]:
    """The operands of the rules as columns, derived ones included.

    Unsigned values of 2^63 and above wrap to negative ones here, which break the same rule; products that wrap have a
    factor that breaks its own.
    """
    found: dict[str, Any] = {"mode": mode, "layout": checking.layout_of(mode, target), "rank": rank}
    found.update(checking.target_operands(target))
    for name, column in _SCALARS.items():
        found[name] = records[column].astype(np.int64)
    for name, (column, entries, short, neutral) in _SEQUENCES.items():
        read = 1 if mode == "im2col_wide" and column in ("lower", "upper") else max(0, rank - short)
        values = records[column]
        found[name] = [values[:, i].astype(np.int64) if i < read else neutral for i in range(entries)]
    checking.derive(found, _LOOKUPS)
    return found


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
            for name, (column, *_) in _SEQUENCES.items():
                row[column] = operands.get(name, 0)
        except (OverflowError, ValueError) as error:
            raise DescriptorError(f"{p!r} does not fit a record: {error}") from None
    return records
