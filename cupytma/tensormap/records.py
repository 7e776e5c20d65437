"""Many tensor maps at once: the rule table and the bit-field table evaluated on numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap.columns import Field, Layout, Reading, Records, Words, layout, turned
from cupytma.tensormap.fields import SIZE, WORDS
from cupytma.tensormap.parameters import KINDS, Parameters
from cupytma.tensormap.resolving import variables
from cupytma.tensormap.rule import FULL_RANK, MODES, SEQUENCES
from cupytma.tensormap.vectorised import Program, program

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
_FIELDS = {
    "data_type": "dtype", "global_address": "addr", "interleave": "interleave", "swizzle": "swizzle",
    "l2_promotion": "l2", "oob_fill": "oob", "wide_mode": "wide_mode", "channels_per_pixel": "channels",
    "pixels_per_column": "pixels", "global_dim": "dims", "global_strides": "strides", "box_dim": "box",
    "element_strides": "estr", "pixel_box_lower_corner": "lower", "pixel_box_upper_corner": "upper",
}  # fmt: skip
_PLACES: dict[str, Field] = {
    variable: (field, i if name in SEQUENCES else None)
    for name, field in _FIELDS.items()
    for kind in MODES
    for i, variable in enumerate(variables(name, kind, FULL_RANK))
}
# Operands that are often the same for many rows.
_OFTEN_CONSTANT = frozenset(
    variable
    for name in ("data_type", "interleave", "swizzle", "l2_promotion", "oob_fill", "wide_mode", "element_strides")
    for variable in variables(name, MODES[0], FULL_RANK)
)
# Rows reckoned with at once: many enough that numpy's cost per call does not show, few enough for the cache. Twice as
# many are at most.
_BLOCK = 1 << 13
# Ranks are told apart up to here; what lies above is as illegal.
_RANKS_APART = 8


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
    problems = _record_problems(records)
    if problems:
        raise DescriptorError(
            "encode_records takes a one-dimensional structured array with the fields of cupytma.tensormap.RECORD; this "
            f"one {', '.join(problems)}"
        )
    chosen = targets.target(target)
    status = np.ones(len(records), np.int32)
    words = np.zeros((len(records), WORDS), np.int64)
    encoder = _Encoder(layout(records.dtype, RECORD.names or ()), chosen.name, status, words)
    for start in range(0, len(records), _BLOCK):
        encoder.take(records[start : start + _BLOCK], start)
    encoder.finish()
    return status, words.view(np.uint8).reshape(-1, SIZE)


class _Group:
    """Rows of one kind and rank that wait until they are many."""

    def __init__(self, words: int) -> None:
        self.rows = np.empty((2 * _BLOCK, words), np.uint64)
        self.numbers = np.empty(2 * _BLOCK, np.intp)
        self.count = 0


class _Encoder:
    """Encodes one block of rows after the other, in the same memory: fresh memory costs more than filling it."""

    def __init__(
        self, layout: Layout, target: str, status: npt.NDArray[np.int32], words: npt.NDArray[np.int64]
    ) -> None:
        self._layout, self._target = layout, target
        self._status, self._words = status, words
        self._block = np.empty((min(len(status), _BLOCK), layout.words), np.uint64)
        self._turned = np.empty((layout.words, min(len(status), 2 * _BLOCK)), np.uint64)
        self._columns = np.empty((len(_PLACES), self._turned.shape[1]), np.int64)
        self._kind_and_rank = layout.reading([("op", None), ("rank", None)])
        self._readings: dict[Program, Reading] = {}
        self._waiting: dict[int, _Group] = {}

    def take(self, records: Records, first: int) -> None:
        """Encode some rows, or let them wait for others of their kind and rank.

        Raises
        ------
        DescriptorError
            If a kind is none of the three.
        """
        rows = self._layout.rows(records, self._block)
        kinds, ranks = self._kind_and_rank.columns_of_rows(rows)
        if np.any((kinds < 0) | (kinds >= len(MODES))):
            raise DescriptorError("op must be 0 (tiled), 1 (im2col) or 2 (im2col-wide)")
        keys = (kinds * _RANKS_APART + ranks.clip(0, _RANKS_APART - 1)).astype(np.uint8)
        counts = np.bincount(keys)
        if counts[keys[0]] == len(keys):
            self._encode(int(keys[0]), rows, slice(first, first + len(rows)))
            return
        if rows.base is not self._block:  # one row after the other into the cache, from where they are picked
            self._block[: len(rows)] = rows
            rows = self._block[: len(rows)]
        order = np.argsort(keys, kind="stable")
        end = 0
        for key, count in enumerate(counts):
            end += count
            if count:
                self._wait(key, rows, order[end - count : end], first)

    def _wait(self, key: int, rows: Words, chosen: npt.NDArray[np.intp], first: int) -> None:
        if key not in self._waiting:
            self._waiting[key] = _Group(self._layout.words)
        group = self._waiting[key]
        room = slice(group.count, group.count + len(chosen))
        rows.take(chosen, axis=0, out=group.rows[room], mode="clip")
        np.add(chosen, first, out=group.numbers[room])
        group.count += len(chosen)
        if group.count >= _BLOCK:
            self._release(key, group)

    def _release(self, key: int, group: _Group) -> None:
        self._encode(key, group.rows[: group.count], group.numbers[: group.count])
        group.count = 0

    def finish(self) -> None:
        """Encode what still waits."""
        for key, group in self._waiting.items():
            if group.count:
                self._release(key, group)

    def _encode(self, key: int, rows: Words, numbers: Any) -> None:
        """Fill in the status, which is 1, and the words, which are 0, of rows of one kind and rank."""
        found = program(MODES[key // _RANKS_APART], key % _RANKS_APART, self._target)
        if found is None:
            return
        if found not in self._readings:
            self._readings[found] = self._layout.reading([_PLACES[name] for name in found.columns])
        columns = self._readings[found].columns(turned(rows, self._turned), self._columns)
        operands = [
            _constant(column) if name in _OFTEN_CONSTANT else column
            for name, column in zip(found.columns, columns, strict=True)
        ]
        refused, values = found.run(*operands)
        self._status[numbers] = refused
        for word, value in zip(found.words, values, strict=True):
            self._words[:, word][numbers] = value
        wrong = np.flatnonzero(refused)
        if len(wrong):
            self._words[numbers.start + wrong if isinstance(numbers, slice) else numbers[wrong]] = 0


def _constant(column: Any) -> Any:
    """The number that a column holds throughout, where it does: what follows then costs next to nothing.

    Small ones alone, which no operation takes out of 64 bits.
    """
    first = column[0]
    return int(first) if 0 <= first < 256 and first == column[-1] and np.all(column == first) else column


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
            for name, field in _FIELDS.items():
                row[field] = operands.get(name, 0)
        except (OverflowError, ValueError) as error:
            raise DescriptorError(f"{p!r} does not fit a record: {error}") from None
    return records
