"""Random parameters, legal and illegal, that put every rule to the test near its limits.

Rows begin as legal ones; then a few operands of some of them are moved to a value at or just beyond a limit, so that
most refused rows are refused for one reason alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import DescriptorError
from cupytma.limits import MULTIPROCESSOR_SHARED_BYTES
from cupytma.tensormap.checking import LOOKUPS
from cupytma.tensormap.records import RECORD
from cupytma.tensormap.rule import MODES

KIND_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(MODES)}
_SHARE = {"tiled": 0.6, "im2col": 0.25, "im2col_wide": 0.15}
# How many operands of a row are moved to a limit, by probability.
_MOVED = (0.45, 0.4, 0.15)

Records = npt.NDArray[np.void]
Random = np.random.Generator


def _around(*limits: int) -> list[int]:
    """Limits with their neighbours, and with their neighbours in steps of 16 and 32."""
    found = {limit + step for limit in limits for step in (-32, -16, -1, 0, 1, 16, 32)}
    return sorted(value for value in found if 0 <= value < 2**64)


_ADDRESSES = [0, 16, 32, *_around(2**32, 2**56, 2**57), 2**60, 2**63, 2**64 - 32]
_DIMS = [0, 1, 2, *_around(2**31, 2**32), 2**33, 2**40, 2**63, 2**64 - 1]
_STRIDES = [0, 1, 8, 16, 32, 48, *_around(2**32, 2**36, 2**40), 2**44, 2**63, 2**64 - 256]
_BOX = [0, 1, 255, 256, 257, 512, 65535, 2**31, 2**32 - 1]
_STEPS = [0, 1, 2, 7, 8, 9, 16, 255, 2**32 - 1]
_CHANNELS = [0, 1, 8, 15, 16, 128, 255, 256, 257, 272, 2**31, 2**32 - 1]
_PIXELS = [0, 1, 128, 1023, 1024, 1025, 65535, 2**31, 2**32 - 1]
# Corners are 16, 8 or 5 bits, by rank.
_CORNERS = [side * limit + step for limit in (0, 16, 128, 32768) for side in (-1, 1) for step in (-1, 0, 1)]
_OFFSETS = [1, 2, 4, 8, 16, 17, 24, 31, 48]


def random_records(n: int, seed: int = 0, modes: Sequence[str] = MODES) -> Records:
    """Rows for `encode_records`, about two thirds of them legal on sm_90a.

    Parameters
    ----------
    n : int
    seed : int
        The same rows for the same seed.
    modes : sequence of str
        Kinds of tensor map: ``"tiled"``, ``"im2col"``, ``"im2col_wide"``.

    Returns
    -------
    numpy.ndarray of `RECORD`, shape (n,)
        Entries beyond the rank are random too: nothing may read them.

    Raises
    ------
    DescriptorError
        If a kind is unknown.
    """
    unknown = [mode for mode in modes if mode not in KIND_NUMBERS]
    if unknown or not modes:
        raise DescriptorError(f"modes = {tuple(modes)}; choose from {', '.join(KIND_NUMBERS)}")
    random = np.random.default_rng(seed)
    records = _legal(random, n, modes)
    moved = random.choice(len(_MOVED), n, p=_MOVED)
    for count in range(1, len(_MOVED)):
        rows = np.flatnonzero(moved >= count)
        which = random.choice(len(_MOVES), len(rows), p=_WEIGHTS)
        for number, (_, move) in enumerate(_MOVES):
            chosen = rows[which == number]
            if len(chosen):
                part = records[chosen]
                move(random, part)
                records[chosen] = part
    return records


def _legal(random: Random, n: int, modes: Sequence[str]) -> Records:
    """Rows that break no rule, or rarely."""
    records = np.zeros(n, RECORD)
    shares = np.array([_SHARE[mode] for mode in modes])
    records["op"] = random.choice([KIND_NUMBERS[mode] for mode in modes], n, p=shares / shares.sum())
    tiled = records["op"] == 0
    records["dtype"] = random.integers(0, 13, n)
    records["rank"] = np.where(tiled, random.integers(1, 6, n), random.integers(3, 6, n))
    records["interleave"] = np.where(records["rank"] >= 3, random.choice(3, n, p=(0.7, 0.15, 0.15)), 0)
    records["swizzle"] = random.integers(0, 4, n)
    records["l2"] = random.integers(0, 4, n)
    records["oob"] = np.where((records["dtype"] >= 6), random.integers(0, 2, n), 0)
    records["wide_mode"] = random.integers(0, 2, n)
    records["addr"] = _log_uniform(random, n, 57) // 32 * 32
    records["dims"] = _log_uniform(random, (n, 5), 20)
    records["strides"] = _log_uniform(random, (n, 4), 40) // 32 * 32
    records["estr"] = np.where(random.random((n, 5)) < 0.7, 1, random.integers(1, 9, (n, 5)))
    _legal_boxes(random, records)
    _legal_corners(random, records)
    return records


def _legal_boxes(random: Random, records: Records) -> None:
    n = len(records)
    size = np.take(LOOKUPS["ELEMENT_BITS"], records["dtype"]) // 8
    spans = np.where(records["interleave"] == 0, np.take((256, 32, 64, 128), records["swizzle"]), 256 * size)
    longest = np.minimum(256 * size, spans) // 16
    inner = 16 * random.integers(1, longest + 1) // size
    records["channels"] = inner
    records["box"][:, 0] = inner
    room = MULTIPROCESSOR_SHARED_BYTES // (inner * size)
    records["pixels"] = np.maximum(1, np.minimum(_log_uniform(random, n, 10), room))
    for i in range(1, 5):
        extent = np.maximum(1, np.minimum(_log_uniform(random, n, 8), room))
        records["box"][:, i] = extent
        room = np.where(i < records["rank"], room // extent, room)


def _legal_corners(random: Random, records: Records) -> None:
    records["lower"] = random.integers(-8, 8, (len(records), 3))
    records["upper"] = random.integers(-8, 8, (len(records), 3))


def _log_uniform(random: Random, shape: Any, bits: int) -> Any:
    """Integers from 1 to 2^bits - 1, of every length alike."""
    return np.minimum(2.0 ** (random.random(shape) * bits), 2.0**bits - 1).astype(np.uint64)


def _entry(records: Records, random: Random, short: int = 0, most: int = 5) -> tuple[Any, Any]:
    """For each row one index that its rank has."""
    count = np.clip(records["rank"] - short, 1, most)
    return np.arange(len(records)), random.integers(0, count)


Move = Callable[[Random, Records], None]


def _scalar(column: str, values: Sequence[int]) -> Move:
    def move(random: Random, records: Records) -> None:
        records[column] = random.choice(np.array(values, RECORD[column].base), len(records))

    return move


def _one_of(column: str, values: Sequence[int], short: int = 0, most: int = 5) -> Move:
    def move(random: Random, records: Records) -> None:
        kind = RECORD[column].base
        fitting = [value for value in values if np.iinfo(kind).min <= value <= np.iinfo(kind).max]
        records[column][_entry(records, random, short, most)] = random.choice(np.array(fitting, kind), len(records))

    return move


def _address_offset(random: Random, records: Records) -> None:
    records["addr"] += random.choice(np.array(_OFFSETS, np.uint64), len(records))


def _stride_offset(random: Random, records: Records) -> None:
    records["strides"][_entry(records, random, 1, 4)] += random.choice(np.array(_OFFSETS, np.uint64), len(records))


def _inner(random: Random, records: Records) -> None:
    """Rows at the swizzle's span and around it, and such as are no multiple of 16 bytes."""
    size = np.take(LOOKUPS["ELEMENT_BITS"], records["dtype"], mode="clip") // 8
    bytes_ = random.choice([8, 16, 24, 32, 48, 64, 72, 80, 128, 136, 144, 256], len(records))
    records["box"][:, 0] = records["channels"] = np.maximum(1, bytes_ // np.maximum(1, size))


def _box_bytes(random: Random, records: Records) -> None:
    """Boxes of about as many bytes as there may be."""
    size = np.take(LOOKUPS["ELEMENT_BITS"], records["dtype"], mode="clip") // 8
    records["estr"] = np.where(random.random(len(records)) < 0.7, 1, records["estr"].T).T
    inner = np.maximum(1, size * records["channels"].astype(np.int64))
    records["pixels"] = np.clip(MULTIPROCESSOR_SHARED_BYTES // inner + random.integers(-1, 3, len(records)), 1, 2048)
    taken = np.maximum(1, size * records["box"][:, 0].astype(np.int64) // np.maximum(1, records["estr"][:, 0]))
    last = np.clip(records["rank"], 2, 5) - 1
    for i in range(1, 5):
        here, left = records["estr"][:, i].astype(np.int64), MULTIPROCESSOR_SHARED_BYTES // np.maximum(1, taken)
        extent = np.where(i == last, left + random.integers(-1, 2, len(records)), np.minimum(left, 64)) * here
        records["box"][:, i] = np.clip(extent, 1, 256)
        taken *= np.where(i <= last, np.maximum(1, records["box"][:, i] // np.maximum(1, here)), 1)


def _empty_pixel_box(random: Random, records: Records) -> None:
    """Corners between which there is hardly a pixel."""
    rows, j = _entry(records, random, 2, 3)
    dimension = np.minimum(j + (records["interleave"] == 0), 4)
    large = random.random(len(records)) < 0.2
    wrapping = random.choice([2**31 - 1, 2**31, 2**32 - 1], len(records))
    extent = np.where(large, wrapping, random.integers(1, 16, len(records)))
    records["dims"][rows, dimension] = extent
    gap = random.integers(-1, 3, len(records)) - np.where(large, 0, extent)
    records["upper"][rows, j] = records["lower"][rows, j] + gap


# How often each is taken, and what it does to a copy of the rows.
_MOVES: tuple[tuple[float, Move], ...] = (
    (1, _scalar("dtype", [-1, 12, 13, 14, 15, 16, 2**31 - 1])),
    (1, _scalar("rank", [0, 1, 2, 3, 5, 6, 7])),
    (1, _scalar("interleave", [-1, 1, 2, 3])),
    (1, _scalar("swizzle", [-1, 3, 4, 5, 6, 7])),
    (0.5, _scalar("l2", [-1, 0, 3, 4])),
    (1, _scalar("oob", [-1, 1, 1, 2])),
    (0.5, _scalar("wide_mode", [-1, 0, 1, 2])),
    (1, _scalar("addr", _ADDRESSES)),
    (1, _address_offset),
    (2, _one_of("dims", _DIMS)),
    (1, _one_of("strides", _STRIDES, 1, 4)),
    (1, _stride_offset),
    (1, _one_of("estr", _STEPS)),
    (2, _one_of("box", _BOX)),
    (1, _scalar("channels", _CHANNELS)),
    (1, _scalar("pixels", _PIXELS)),
    (2, _inner),
    (2, _box_bytes),
    (1, _one_of("lower", _CORNERS, 2, 3)),
    (1, _one_of("upper", _CORNERS, 2, 3)),
    (2, _empty_pixel_box),
)
_WEIGHTS = np.array([weight for weight, _ in _MOVES]) / sum(weight for weight, _ in _MOVES)
