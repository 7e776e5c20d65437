"""Copies as a GPU did them: what a recording holds, and the file it lives in.

One window of global memory and one array of shared memory, both filled anew for every case. The bytes of global memory
are the first draw of ``numpy.random.default_rng(seed)``, the tiles of stores and reductions the bytes that follow;
loads find shared memory filled with 0xCD. Addresses in a recording count from the window, which is aligned to 1024
bytes, and shared offsets from the array, which is too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from cupytma.errors import SimulationError
from cupytma.ptx.reductions import REDUCTIONS
from cupytma.tensormap.driver_comparison import parameters_of
from cupytma.tensormap.parameters import Im2col, Parameters
from cupytma.tensormap.records import RECORD, to_records

Bytes = npt.NDArray[np.uint8]

GLOBAL_BYTES = 1 << 20
SHARED_BYTES = 1 << 15
UNWRITTEN = 0xCD


class Kind(NamedTuple):
    """One kind of operation: its name, whether shared memory is its destination, and its mode, if it is always one."""

    name: str
    is_load: bool
    mode: str | None = None


KINDS = (
    Kind("tiled load", True, "tile"),
    Kind("im2col load", True, "im2col"),
    Kind("tiled store", False, "tile"),
    Kind("im2col store", False, "im2col_no_offs"),
    Kind("reduction", False),
    Kind("gather load", True, "tile::gather4"),
    Kind("scatter store", False, "tile::scatter4"),
    Kind("im2col::w load", True, "im2col::w"),
    Kind("im2col::w::128 load", True, "im2col::w::128"),
)
(
    TILED_LOAD, IM2COL_LOAD, TILED_STORE, IM2COL_STORE, REDUCTION, GATHER_LOAD, SCATTER_STORE, WIDE_LOAD, WIDE_128_LOAD,
) = range(len(KINDS))  # fmt: skip
NEVER_COMPLETED, COMPLETED, DIED = range(3)

_Columns = list[Any]
_RECORD: _Columns = [(name, *(RECORD[name].subdtype or (RECORD[name],))) for name in RECORD.names or ()]
# One row per case. The image of a load is shared memory from the tile's base on; that of a store or reduction lists the
# bytes of global memory that changed: their offsets as little-endian uint32, then their new values.
ROW = np.dtype(
    [
        ("rec", _RECORD), ("kind", "u1"), ("redop", "u1"), ("coords", "<i4", 5), ("offsets", "<u2", 3),
        ("smem_off", "<u4"), ("tx", "<u4"), ("done", "u1"), ("img_at", "<u8"), ("img_len", "<u4"),
    ]
)  # fmt: skip
_COLUMNS = ("cases", "images", "seed")


@dataclass(frozen=True)
class Case:
    """One operation, before it is known what it does.

    Attributes
    ----------
    kind : int
        An index of `KINDS`.
    parameters : Parameters
        Of the tensor map; ``global_address`` counts from the window.
    coords : tuple of int
        In elements, driver order; of a gather or scatter the column and four rows.
    offsets : tuple of int
        Of an im2col load, in pixels, W first; of an im2col::w load the halo and the offset.
    shared_offset : int
        Where the tile starts in the shared array, in bytes.
    reduction : str
        ``"add"``, …; of use to reductions alone.
    """

    kind: int
    parameters: Parameters
    coords: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    shared_offset: int = 0
    reduction: str = REDUCTIONS[0]

    @property
    def is_load(self) -> bool:
        """Whether shared memory is the destination."""
        return KINDS[self.kind].is_load

    @property
    def mode(self) -> str:
        """The instruction's mode."""
        return KINDS[self.kind].mode or ("im2col_no_offs" if isinstance(self.parameters, Im2col) else "tile")

    def __str__(self) -> str:
        name = KINDS[self.kind].name
        what = f"{name} {self.reduction}" if self.kind == REDUCTION else name
        offsets = f", offsets {self.offsets}" if self.offsets else ""
        return f"{what} at {self.coords}{offsets}, shared byte {self.shared_offset}: {self.parameters!r}"


@dataclass(frozen=True, eq=False)
class Observation:
    """What one operation did.

    Attributes
    ----------
    outcome : int
        ``COMPLETED``; ``DIED`` if the kernel did; ``NEVER_COMPLETED`` if the barrier waited in vain.
    transaction_bytes : int
        What the barrier was to expect, and where it was counted what a load added to it.
    image : ndarray of uint8
        See `ROW`; without the bytes at its end that a load left as they were.
    error : str
        What the driver said of a kernel that died.
    """

    outcome: int
    transaction_bytes: int = 0
    image: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    error: str = ""

    def changes(self) -> tuple[npt.NDArray[np.int64], Bytes]:
        """Places and new values of the bytes that a store or reduction changed."""
        count = len(self.image) // 5
        return self.image[: 4 * count].view("<u4").astype(np.int64), self.image[4 * count :]


def load_image(shared: Bytes, shared_offset: int) -> Bytes:
    """The image of a load: shared memory from the tile's base on, up to the last byte that is not `UNWRITTEN`."""
    tile = shared[shared_offset:]
    written = np.flatnonzero(tile != UNWRITTEN)
    image: Bytes = tile[: written[-1] + 1 if len(written) else 0].copy()
    return image


def write_image(before: Bytes, after: Bytes) -> Bytes:
    """The image of a store or reduction: the bytes of global memory that changed."""
    places = np.flatnonzero(before != after)
    return np.concatenate([places.astype("<u4").view(np.uint8), after[places]])


@dataclass(frozen=True, eq=False)
class Recording:
    """Cases, and what hardware did with each.

    Attributes
    ----------
    cases : tuple of Case
    observations : tuple of Observation
        One for each case.
    seed : int
        Of the bytes that memory held.
    about : dict of str
        The card, driver and CUDA versions, and what made the recording; empty where unknown. ``"counted"`` is there
        if the transaction bytes were counted on the hardware.
    """

    cases: tuple[Case, ...]
    observations: tuple[Observation, ...]
    seed: int
    about: dict[str, str] = field(default_factory=dict)

    @cached_property
    def contents(self) -> tuple[Bytes, Bytes]:
        """What the window of global memory held, and shared memory before stores and reductions; read-only."""
        return memory_contents(self.seed)

    def save(self, path: str | Path) -> None:
        """Write the recording to a file, in numpy's ``.npz`` format."""
        rows = np.zeros(len(self.cases), ROW)
        images, place = [], 0
        records = to_records([case.parameters for case in self.cases])
        for row, record, case, seen in zip(rows, records, self.cases, self.observations, strict=True):
            for name in RECORD.names or ():
                row["rec"][name] = record[name]
            row["kind"], row["redop"] = case.kind, REDUCTIONS.index(case.reduction)
            row["coords"][: len(case.coords)], row["offsets"][: len(case.offsets)] = case.coords, case.offsets
            row["smem_off"], row["tx"], row["done"] = case.shared_offset, seen.transaction_bytes, seen.outcome
            row["img_at"], row["img_len"] = place, len(seen.image)
            images.append(seen.image)
            place += len(seen.image)
        columns = {
            "cases": rows,
            "images": np.concatenate(images) if images else np.empty(0, np.uint8),
            "seed": np.int64(self.seed),
            "errors": np.array([seen.error for seen in self.observations], dtype=np.str_),
            "about": np.array(list(self.about.items()), dtype=np.str_).reshape(-1, 2),
        }
        with open(path, "wb") as file:  # under exactly this name; numpy might append to it
            np.savez_compressed(file, **columns)


def memory_contents(seed: int) -> tuple[Bytes, Bytes]:
    """The bytes that the window of global memory holds, and those of the tiles of stores and reductions."""
    stream = np.random.default_rng(seed)
    memory = np.frombuffer(stream.bytes(GLOBAL_BYTES), dtype=np.uint8)
    return memory, np.frombuffer(stream.bytes(SHARED_BYTES), dtype=np.uint8)


def read(path: str | Path) -> Recording:
    """A recording from its file.

    Raises
    ------
    SimulationError
        If the file cannot be read, or is none.
    """
    try:
        file = np.load(path, allow_pickle=False)
    except OSError as error:
        raise SimulationError(f"{path} cannot be read: {error.strerror or error}") from error
    except TypeError:
        raise SimulationError(f"path is {path!r}; it must be the path of a file") from None
    except (ValueError, EOFError, BadZipFile) as error:
        raise SimulationError(f"{path} is no recording of copies: it is no .npz file") from error
    missing = [name for name in _COLUMNS if name not in getattr(file, "files", ())]
    if missing:
        raise SimulationError(f"{path} is no recording of copies: it lacks {', '.join(missing)}")
    try:
        with file:
            return _recording(file)
    except (ArithmeticError, LookupError, TypeError, ValueError, OSError, BadZipFile, zlib.error) as error:
        raise SimulationError(f"{path} is no recording of copies, or a damaged one: {error}") from error


def _recording(file: Any) -> Recording:
    """The recording in an open file; whatever is wrong with its columns raises something."""
    rows, images, seed = (file[name] for name in _COLUMNS)
    errors = file["errors"].tolist() if "errors" in file else [""] * len(rows)
    about = {str(name): str(value) for name, value in file["about"].tolist()} if "about" in file else {}
    missing = [name for name in ROW.names or () if name not in (rows.dtype.names or ())]
    if missing:
        raise ValueError(f"its rows lack {', '.join(missing)}")
    if images.dtype != np.uint8 or images.ndim != 1 or rows.ndim != 1 or int(seed) < 0:
        raise ValueError("its images are no bytes, its rows no list, or its seed is negative")
    places, lengths = rows["img_at"].astype(np.int64), rows["img_len"].astype(np.int64)
    if ((places < 0) | (lengths < 0) | (places > images.size - lengths)).any():
        raise ValueError("an image lies outside the column of images")
    cases = tuple(_case(row) for row in rows)
    seen = (_observation(case, row, images, error) for case, row, error in zip(cases, rows, errors, strict=True))
    return Recording(cases, tuple(seen), int(seed), about)


def _case(row: Any) -> Case:
    parameters, kind = parameters_of(row["rec"]), int(row["kind"])
    rank = parameters.rank
    coordinates = 5 if kind in (GATHER_LOAD, SCATTER_STORE) else rank
    offsets = {IM2COL_LOAD: rank - 2, WIDE_LOAD: 2, WIDE_128_LOAD: 2}.get(kind, 0)
    return Case(
        kind=kind,
        parameters=parameters,
        coords=tuple(row["coords"][:coordinates].tolist()),
        offsets=tuple(row["offsets"][:offsets].tolist()),
        shared_offset=int(row["smem_off"]),
        reduction=REDUCTIONS[row["redop"]],
    )


def _observation(case: Case, row: Any, images: Bytes, error: str) -> Observation:
    place = int(row["img_at"])
    image = images[place : place + int(row["img_len"])]
    return Observation(int(row["done"]), int(row["tx"]), load_image(image, 0) if case.is_load else image, error)
