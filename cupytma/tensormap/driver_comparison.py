"""Our encoders beside the driver's, on the same rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import DescriptorError
from cupytma.targets import Target
from cupytma.tensormap.driver import ARGUMENTS, DriverError, Encoders, describe_answer
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.parameters import KINDS, Parameters
from cupytma.tensormap.random_records import KIND_NUMBERS, random_records
from cupytma.tensormap.records import encode_records
from cupytma.tensormap.tensor_map import TensorMap

# Few enough that a driver which fails is noticed at once.
_STEP = 20_000
_ROOM = 8
_SHOWN = 20

# Which column an argument comes from, and which entry of it where the driver takes one.
_COLUMNS: dict[str, tuple[str, int | None]] = {
    "data_type": ("dtype", None),
    "rank": ("rank", None),
    "global_address": ("addr", None),
    "global_dim": ("dims", None),
    "global_strides": ("strides", None),
    "box_dim": ("box", None),
    "element_strides": ("estr", None),
    "pixel_box_lower_corner": ("lower", None),
    "pixel_box_upper_corner": ("upper", None),
    "pixel_box_lower_corner_width": ("lower", 0),
    "pixel_box_upper_corner_width": ("upper", 0),
    "channels_per_pixel": ("channels", None),
    "pixels_per_column": ("pixels", None),
    "interleave": ("interleave", None),
    "swizzle": ("swizzle", None),
    "l2_promotion": ("l2", None),
    "oob_fill": ("oob", None),
    "wide_mode": ("wide_mode", None),
}
Records = npt.NDArray[np.void]
Status = npt.NDArray[np.int32]
Payload = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Disagreement:
    """One row on which the driver and `encode_records` differ.

    Attributes
    ----------
    row : int
        Its number.
    kind : str
        ``"tiled"``, ``"im2col"`` or ``"im2col_wide"``.
    driver, ours : int
        The answers: 0 accepted, 1 refused.
    difference : str
        The rules that refuse it here alone, or the 64-bit words that differ.
    parameters : str
        What was encoded.
    """

    row: int
    kind: str
    driver: int
    ours: int
    difference: str
    parameters: str


@dataclass(frozen=True)
class DriverComparison:
    """What `verify_against_driver` found.

    Attributes
    ----------
    rows : int
        Parameters compared.
    accepted : int
        How many of them the driver accepted.
    disagreements : tuple of Disagreement
        Every row that differs in return code or, where both accept, in a byte.
    target : str
        What was encoded for.
    driver_version : str
        Newest CUDA version that the driver supports, such as ``"13.0"``.
    seconds : float
        That the driver's answers took.
    """

    rows: int
    accepted: int
    disagreements: tuple[Disagreement, ...]
    target: str
    driver_version: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether driver and rules agree on every row."""
        return not self.disagreements

    def __str__(self) -> str:
        head = (
            f"{len(self.disagreements)} of {self.rows} disagree with the driver (CUDA {self.driver_version}, "
            f"{self.target}; {self.accepted} accepted, {self.seconds:.1f} s)"
        )
        shown = [tuple(f.name for f in fields(Disagreement))]
        shown += [tuple(str(getattr(d, f.name)) for f in fields(d)) for d in self.disagreements[:_SHOWN]]
        if self.ok:
            return head
        widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]) - 1)] + [0]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown]
        left = len(self.disagreements) - _SHOWN
        return "\n".join([head, *lines, *([f"… and {left} more"] if left > 0 else [])])


def compare(encoders: Encoders, n: int, seed: int, modes: tuple[str, ...], target: Target) -> DriverComparison:
    """Random rows through the driver and through `encode_records`; see `verify_against_driver`."""
    records = random_records(n, seed, modes)
    start = time.perf_counter()
    answers = [driver_records(encoders, records[i : i + _STEP]) for i in range(0, n, _STEP)]
    seconds = time.perf_counter() - start
    theirs = np.concatenate([a[0] for a in answers]), np.concatenate([a[1] for a in answers])
    ours = encode_records(records, target)
    differs = (theirs[0] != ours[0]) | ((theirs[0] == 0) & (ours[0] == 0) & (theirs[1] != ours[1]).any(axis=1))
    version = int(encoders.ask("cuDriverGetVersion"))
    return DriverComparison(
        rows=n,
        accepted=int(np.count_nonzero(theirs[0] == 0)),
        disagreements=tuple(_disagreement(int(i), records, theirs, ours, target) for i in np.flatnonzero(differs)),
        target=str(target),
        driver_version=f"{version // 1000}.{version % 1000 // 10}",
        seconds=seconds,
    )


def driver_records(encoders: Encoders, records: Records) -> tuple[Status, Payload]:
    """What the driver makes of rows: `encode_records` by the driver.

    Parameters
    ----------
    encoders : Encoders
    records : numpy.ndarray, shape (n,)
        With the fields of `RECORD`.

    Returns
    -------
    status : numpy.ndarray of int32, shape (n,)
        The driver's answers, 0 or 1.
    payload : numpy.ndarray of uint8, shape (n, 128)
        Zeros where refused.

    Raises
    ------
    DriverError
        If the driver answers anything but 0 or 1.
    """
    status = np.ones(len(records), np.int32)
    payload = np.zeros((len(records), SIZE), np.uint8)
    for kind, number in KIND_NUMBERS.items():
        rows = np.flatnonzero(records["op"] == number)
        if not len(rows):
            continue
        buffer = np.zeros((len(rows) + 1) * SIZE, np.uint8)
        first = -buffer.ctypes.data % 64
        places = range(buffer.ctypes.data + first, buffer.ctypes.data + first + len(rows) * SIZE, SIZE)
        kept, arguments = _arguments(kind, records[rows])
        answers = np.fromiter(map(encoders.function(kind), places, *arguments), np.int32, len(rows))
        del kept
        other = np.flatnonzero((answers != 0) & (answers != 1))
        if len(other):
            raise DriverError(describe_answer(int(answers[other[0]])), int(answers[other[0]]))
        status[rows] = answers
        payload[rows] = buffer[first : first + len(rows) * SIZE].reshape(-1, SIZE)
        payload[rows[answers != 0]] = 0
    return status, payload


def _arguments(kind: str, records: Records) -> tuple[list[npt.NDArray[Any]], list[Any]]:
    """The columns of an encoder's arguments: values, or addresses into arrays, which are returned to be kept alive."""
    kept, columns = [], []
    for name in ARGUMENTS[kind]:
        column, entry = _COLUMNS[name]
        values = records[column] if entry is None else records[column][:, entry]
        if values.ndim == 1:
            columns.append(values.tolist())
            continue
        wide = np.zeros((len(records), _ROOM), values.dtype)
        wide[:, : values.shape[1]] = values
        kept.append(wide)
        columns.append(range(wide.ctypes.data, wide.ctypes.data + wide.nbytes, wide.strides[0]))
    return kept, columns


def parameters_of(record: Any) -> Parameters:
    """A row of `RECORD` as parameters, whether legal or not.

    Raises
    ------
    DescriptorError
        If the row is of no kind, or its rank is negative or above 5, for which it has no extents.
    """
    kind = next((kind for kind, number in KIND_NUMBERS.items() if number == record["op"]), None)
    if kind is None:
        raise DescriptorError(f"a row of kind {record['op']}; there are {', '.join(map(str, KIND_NUMBERS.values()))}")
    rank = int(record["rank"])
    if not 0 <= rank <= 5:
        raise DescriptorError(f"a row holds 5 dimensions and none of rank {rank}")
    lengths = {"dims": rank, "strides": max(0, rank - 1), "box": rank, "estr": rank}
    found: dict[str, Any] = {}
    for field in fields(KINDS[kind]):
        column, entry = _COLUMNS["wide_mode" if field.name == "mode" else field.name]
        value = record[column] if entry is None else record[column][entry]
        if np.ndim(value):
            found[field.name] = tuple(value[: lengths.get(column, max(0, rank - 2))].tolist())
        else:
            found[field.name] = int(value)
    return KINDS[kind](**found)


def _disagreement(
    row: int, records: Records, theirs: tuple[Status, Payload], ours: tuple[Status, Payload], target: Target
) -> Disagreement:
    kind = next(kind for kind, number in KIND_NUMBERS.items() if number == records[row]["op"])
    try:
        parameters = parameters_of(records[row])
    except DescriptorError as error:
        return Disagreement(row, kind, int(theirs[0][row]), int(ours[0][row]), str(error), str(records[row]))
    if ours[0][row]:
        difference = ", ".join(dict.fromkeys(v.rule for v in parameters.violations(target)))
    elif theirs[0][row]:
        difference = "no rule is broken"
    else:
        words = zip(*(TensorMap(bytes(made[1][row])).words for made in (theirs, ours)), strict=True)
        difference = ", ".join(f"w{i} {a:#x} ≠ {b:#x}" for i, (a, b) in enumerate(words) if a != b)
    return Disagreement(row, kind, int(theirs[0][row]), int(ours[0][row]), difference, repr(parameters))
