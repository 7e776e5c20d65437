"""Many tensor maps at once: the rule table and the bit-field table evaluated on numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap.columns import FIELD_NAMES, RECORD, ROWS_TURNED, Layout, Records, layout
from cupytma.tensormap.expressions import CASE, CASES
from cupytma.tensormap.fields import SIZE, WORDS
from cupytma.tensormap.parameters import KINDS, Parameters
from cupytma.tensormap.vectorised import program
from cupytma.tensormap.writing import Program
from cupytma.words import counted

__all__ = ["RECORD", "encode_records", "to_records"]

# Operands that are often the same for many rows.
_OFTEN_CONSTANT = ("data_type", "interleave", "swizzle", "l2_promotion", "oob_fill", "wide_mode")
# Rows reckoned with at once: many enough that numpy's cost per call does not show, few enough for the cache.
_BLOCK = 20 * 512


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
    status = np.empty(len(records), np.int32)
    words = np.zeros((len(records), WORDS), np.int64)
    records = np.ascontiguousarray(records)
    encoder = _Encoder(layout(records.dtype), chosen.name, min(len(records), _BLOCK))
    for start in range(0, len(records), _BLOCK):
        part = slice(start, start + _BLOCK)
        encoder.encode(records[part], status[part], words[part])
    return status, words.view(np.uint8).reshape(-1, SIZE)


class _Encoder:
    """Encodes one block of rows after the other, in the same memory: fresh memory costs more than filling it."""

    def __init__(self, layout: Layout, target: str, most: int) -> None:
        self._layout, self._target = layout, target
        self._rows = np.empty((ROWS_TURNED, layout.words), np.uint64)
        self._turned = np.empty((layout.words, most), np.uint64)
        self._halves = np.empty((2 * layout.words, most), np.int32)
        self._words = np.zeros((WORDS, most), np.int64)
        self._last: Program | None = None  # whose words those are

    def encode(self, records: Records, status: npt.NDArray[np.int32], words: npt.NDArray[np.int64]) -> None:
        """Fill in the status and the words, which are 0, of some rows.

        Raises
        ------
        DescriptorError
            If a kind is none of the three.
        """
        rows = self._layout.turned(records, self._turned, self._rows)
        cases = self._layout.cases(rows)
        if cases.max() >= CASES:
            raise DescriptorError("op must be 0 (tiled), 1 (im2col) or 2 (im2col-wide)")
        alike = bool(np.all(cases == cases[0]))
        found = program(self._target, int(cases[0]) if alike else None)
        if found is None:
            status[:] = 1
            return
        if found is not self._last:
            self._words[:] = 0
            self._last = found
        columns = [
            cases if name == CASE else self._layout.operand(rows, name, count, self._halves)
            for name, count in found.columns
        ]
        if alike:
            columns = [
                _constant(c) if n in _OFTEN_CONSTANT else c for (n, _), c in zip(found.columns, columns, strict=True)
            ]
        packed = self._words[: found.words, : len(status)]
        status[:] = found.run(packed, *columns)
        packed &= status - np.int64(1)
        words[:, : found.words] = packed.T


def _constant(column: Any) -> Any:
    """The number that a column holds throughout, where it does: what follows then costs next to nothing.

    Small ones alone, which no operation takes out of 32 bits.
    """
    first = column[0]
    return int(first) if 0 <= first < 256 and first == column[-1] and np.all(column == first) else column


def _record_problems(records: npt.NDArray[np.void]) -> list[str]:
    """What keeps an array from being rows of `RECORD`."""
    given, problems = dict(records.dtype.fields or {}), []
    if records.ndim != 1:
        problems.append(f"has {counted(records.ndim, 'dimension')}")
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
            for name, field in FIELD_NAMES.items():
                row[field] = operands.get(name, 0)
        except (OverflowError, ValueError) as error:
            raise DescriptorError(f"{p!r} does not fit a record: {error}") from None
    return records
