"""Many tensor maps at once: the rule table and the bit-field table evaluated on numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap.columns import ROWS_TURNED, Field, Layout, Reading, Records, Words, groups, layout
from cupytma.tensormap.fields import SIZE, WORDS, WORDS_USED
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
_OFTEN_CONSTANT = tuple(
    variable
    for name in ("data_type", "interleave", "swizzle", "l2_promotion", "oob_fill", "wide_mode", "element_strides")
    for variable in variables(name, MODES[0], FULL_RANK)
)
# Rows turned into columns at once: many, so that every kind and rank among them has enough of its own for numpy's cost
# per call not to show; and rows reckoned with at once: few, so that what they need stays in the cache.
_BLOCK = 1 << 16
_STEP = 1 << 13
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
    encoder = _Encoder(layout(records.dtype, RECORD.names or ()), chosen.name, min(len(records), _BLOCK))
    for start in range(0, len(records), _BLOCK):
        block = slice(start, start + _BLOCK)
        encoder.encode(records[block], status[block], words[block])
    return status, words.view(np.uint8).reshape(-1, SIZE)


class _Encoder:
    """Encodes one block of rows after the other, in the same memory: fresh memory costs more than filling it."""

    def __init__(self, layout: Layout, target: str, rows: int) -> None:
        self._layout, self._target = layout, target
        self._block = np.empty((layout.words, rows), np.uint64)
        self._picked = np.empty((layout.words, min(rows, _STEP)), np.uint64)
        self._columns = np.empty((len(_PLACES), min(rows, _STEP)), np.int64)
        self._words = np.empty((WORDS_USED, rows), np.int64)
        self._reading: dict[Program, tuple[Reading, list[bool]]] = {}
        self._kind_and_rank = layout.reading([("op", None), ("rank", None)])

    def encode(self, records: Records, status: npt.NDArray[np.int32], words: npt.NDArray[np.int64]) -> None:
        """Fill in the status, which is 1, and the words of some rows."""
        block = self._layout.turned(records, self._block)
        columns = self._words[:, : len(records)]
        for key, rows in groups(self._keys(block)):
            found = program(MODES[key // _RANKS_APART], key % _RANKS_APART, self._target)
            if found is None:
                continue
            for start in range(0, len(records) if rows is None else len(rows), _STEP):
                step = slice(start, start + _STEP) if rows is None else rows[start : start + _STEP]
                refused, values = found.run(*self._operands(found, block, step))
                status[step] = refused
                for column, value in zip(columns, values, strict=True):
                    column[step] = value
        for start in range(0, len(records), ROWS_TURNED):
            part = slice(start, start + ROWS_TURNED)
            words[part, :WORDS_USED] = columns[:, part].T
        words[np.flatnonzero(status)] = 0

    def _keys(self, block: Words) -> npt.NDArray[np.uint8]:
        """One number for kind and rank."""
        memory = np.empty((2, block.shape[1]), np.int64)
        kinds, ranks = self._kind_and_rank.columns(block, slice(None), self._picked, memory)
        if np.any((kinds < 0) | (kinds >= len(MODES))):
            raise DescriptorError("op must be 0 (tiled), 1 (im2col) or 2 (im2col-wide)")
        keys: npt.NDArray[np.uint8] = (kinds * _RANKS_APART + ranks.clip(0, _RANKS_APART - 1)).astype(np.uint8)
        return keys

    def _operands(self, program: Program, block: Words, step: Any) -> list[Any]:
        """The columns that a program takes, of some rows."""
        if program not in self._reading:
            places = [_PLACES[name] for name in program.columns]
            self._reading[program] = self._layout.reading(places), [name in _OFTEN_CONSTANT for name in program.columns]
        reading, often_constant = self._reading[program]
        columns = reading.columns(block, step, self._picked, self._columns)
        return [_constant(c) if often else c for c, often in zip(columns, often_constant, strict=True)]


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
