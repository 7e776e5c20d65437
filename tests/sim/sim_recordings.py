"""The copies recorded on an H100, as arguments for the simulator. See `cupytma.record.recording` for the format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from cupytma import record
from cupytma.record.recording import (
    COMPLETED,
    DIED,
    IM2COL_LOAD,
    IM2COL_STORE,
    NEVER_COMPLETED,
    REDUCTION,
    SHARED_BYTES,
    TILED_LOAD,
    TILED_STORE,
    UNWRITTEN,
    Bytes,
)
from cupytma.tensormap import Interleave, TensorMap

BASE = 0x7F0000000000  # any address does that keeps the alignment of the recorder's allocation


@dataclass(frozen=True)
class Case:
    """One recorded operation."""

    number: int
    case: record.Case
    seen: record.Observation

    @cached_property
    def tensor_map(self) -> TensorMap:
        p = self.case.parameters
        return replace(p, global_address=BASE + p.global_address).encode()

    @property
    def interleaved(self) -> bool:
        return self.case.parameters.interleave != Interleave.NONE


@cache
def recording(name: str = "hardware_cases.npz") -> tuple[tuple[Case, ...], Bytes, Bytes]:
    """Every case, the bytes global memory held, and the bytes shared memory held before stores and reductions."""
    read = record.read(Path(__file__).parents[1] / "golden" / name)
    pairs = zip(read.cases, read.observations, strict=True)
    return tuple(Case(number, case, seen) for number, (case, seen) in enumerate(pairs)), *read.contents


__all__ = [
    "BASE", "COMPLETED", "DIED", "IM2COL_LOAD", "IM2COL_STORE", "NEVER_COMPLETED", "REDUCTION", "SHARED_BYTES",
    "TILED_LOAD", "TILED_STORE", "UNWRITTEN", "Bytes", "Case", "recording",
]
