"""Copies that answer what the first recordings leave open about the TMA unit, question by question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cupytma.ptx.reductions import REDUCTIONS
from cupytma.record.drawing import draw_cases
from cupytma.record.recording import (
    IM2COL_LOAD,
    IM2COL_STORE,
    REDUCTION,
    TILED_LOAD,
    TILED_STORE,
    Bytes,
    Case,
    memory_contents,
)
from cupytma.sim.reductions import measured_reductions
from cupytma.tensormap import DataType, Im2col, Tiled

SEED = 20261128


@dataclass(frozen=True)
class Trial:
    """A case on bytes of its own: `memory` lies at the tensor's address, `tile` at the case's shared offset."""

    question: str
    label: str
    case: Case
    memory: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    tile: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))

    def contents(self) -> tuple[Bytes, Bytes]:
        memory, source = (part.copy() for part in memory_contents(SEED))
        place = self.case.parameters.global_address
        memory[place : place + len(self.memory)] = self.memory
        source[self.case.shared_offset : self.case.shared_offset + len(self.tile)] = self.tile
        return memory, source


def tiled(data_type: str, dims: tuple[int, ...], box: tuple[int, ...], **changes: Any) -> Tiled:
    return Tiled(data_type=data_type, global_address=4096, global_dim=dims, box_dim=box, **changes)


def flat(values: Any, dtype: str) -> Bytes:
    return np.ascontiguousarray(values, dtype=dtype).reshape(-1).view(np.uint8)


# --- (a) inc and dec where the old value is at, below or above the limit ---------------------------------------------


def inc_and_dec() -> Iterator[Trial]:
    edges = [0, 1, 2, 5, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1]
    old, new = (grid.reshape(-1) for grid in np.meshgrid(edges, edges))
    count = len(old) // 4 * 4 + 4
    old, new = np.resize(old, count), np.resize(new, count)
    for op in ("inc", "dec"):
        case = Case(REDUCTION, tiled("UINT32", (count,), (count,)), (0,), reduction=op)
        yield Trial("a: inc, dec at the limit", op, case, flat(old, "<u4"), flat(new, "<u4"))


# --- (b) points of the tensor that lie on the same memory ------------------------------------------------------------

_DTYPES = {"FLOAT32": "<f4", "FLOAT32_FTZ": "<f4", "FLOAT16": "<f2", "UINT32": "<u4", "BFLOAT16": "<u2"}


def _rounding_values(data_type: str, count: int, random: np.random.Generator) -> Bytes:
    """Values whose sum depends on the order."""
    if data_type == "BFLOAT16":
        single = (random.standard_normal(count) * 2.0 ** random.integers(-8, 9, count)).astype("<f4")
        return flat(single.view("<u4") >> 16, "<u2")
    if data_type == "UINT32":
        return flat(random.integers(0, 40, count), "<u4")
    return flat(random.standard_normal(count) * 2.0 ** random.integers(-8, 9, count), _DTYPES[data_type])


def overlaps() -> Iterator[Trial]:
    shapes = {
        "16 points × 32 rows, stride 0": ((16, 32), (0,), (16, 32)),
        "64 points × 64 rows, stride 0": ((64, 64), (0,), (64, 64)),
        "32 points × 16 rows, stride 16 B": ((32, 16), (16,), (32, 16)),
        "16 points × 4 × 8, strides 0": ((16, 4, 8), (0, 0), (16, 4, 8)),
        "16 points × 4 × 8, strides 64 and 0": ((16, 4, 8), (64, 0), (16, 4, 8)),
    }
    for number, (shape, (dims, strides, box)) in enumerate(shapes.items()):
        for data_type, op in (
            ("FLOAT32", "add"), ("FLOAT32_FTZ", "add"), ("FLOAT16", "add"), ("BFLOAT16", "add"), ("UINT32", "inc"),
            ("UINT32", "dec"), ("UINT32", "add"), ("UINT32", "xor"), ("FLOAT16", "min"),
        ):  # fmt: skip
            random = np.random.default_rng((SEED, number, DataType.of(data_type)))
            parameters = tiled(data_type, dims, box, global_strides=strides)
            values = _rounding_values(data_type, int(np.prod(box)), random)
            for repeat in range(3):
                case = Case(REDUCTION, parameters, (0,) * len(dims), reduction=op)
                yield Trial("b: overlapping reduction", f"{data_type} {op}, {shape}, try {repeat}", case, tile=values)
        for repeat in range(3):
            case = Case(TILED_STORE, tiled("UINT32", dims, box, global_strides=strides), (0,) * len(dims))
            yield Trial("b: overlapping store", f"{shape}, try {repeat}", case)


# --- (c) im2col with interleave on stores, im2col reductions ----------------------------------------------------------


def im2col_writes() -> Iterator[Trial]:
    for question, wanted in (
        ("c: interleaved im2col store", lambda c: c.kind == IM2COL_STORE and c.parameters.interleave),
        ("c: im2col reduction", lambda c: c.kind == REDUCTION and isinstance(c.parameters, Im2col)),
    ):
        for number, case in enumerate(draw_cases(40, SEED, wanted=wanted)):
            yield Trial(question, f"{number}, interleave {case.parameters.interleave}", case)


# --- (h) what kills a kernel ------------------------------------------------------------------------------------------


def starts() -> Iterator[Trial]:
    matrix, cube = tiled("FLOAT32", (64, 64), (16, 8)), tiled("FLOAT16", (64, 16, 8), (16, 4, 2))
    sliced = tiled("FLOAT16", (8, 6, 4, 3), (8, 2, 1, 2), global_strides=(128, 1024, 4096), interleave="16B")
    for kind, name in ((TILED_LOAD, "load"), (TILED_STORE, "store"), (REDUCTION, "reduction")):
        for label, p, coords in (
            ("fine", matrix, (16, 8)),
            ("inner start 4 B off", matrix, (17, 8)),
            ("inner start 8 B off", matrix, (2, 8)),
            ("inner start −16 B", matrix, (-4, 8)),
            ("inner start −4 B", matrix, (-1, 8)),
            ("start −1 in dimension 1", matrix, (0, -1)),
            ("start −1 in dimension 2", cube, (0, 0, -1)),
            ("start −8 in dimension 1, all of the box outside", matrix, (0, -8)),
            ("interleaved, start −1 in dimension 0", sliced, (-1, 0, 0, 0)),
            ("interleaved, start −1 in the slices", sliced, (0, 0, -1, 0)),
            ("start beyond the end", matrix, (0, 64)),
            ("start at 2^31 − 1 in dimension 1", matrix, (0, 2**31 - 1)),
            ("inner start at 2^31 − 4", matrix, (2**31 - 4, 0)),
            ("start at −2^31 in dimension 1", matrix, (0, -(2**31))),
        ):
            yield Trial("h: start coordinates", f"{name}: {label}", Case(kind, p, coords))
        for off in (16, 32, 64, 112):
            for swizzle in ("NONE", "128B"):
                case = Case(kind, replace(matrix, swizzle=swizzle), (0, 0), shared_offset=256 + off)
                yield Trial("h: shared alignment", f"{name}: tile {off} mod 128, swizzle {swizzle}", case)


def pixels() -> Iterator[Trial]:
    common: dict[str, Any] = {
        "data_type": "FLOAT16", "global_address": 4096, "channels_per_pixel": 16, "pixels_per_column": 20,
    }  # fmt: skip
    image = Im2col(
        **common, global_dim=(32, 9, 7, 3), pixel_box_lower_corner=(-1, -1), pixel_box_upper_corner=(-1, -1)
    )
    inner = Im2col(**common, global_dim=(32, 9, 7, 3), pixel_box_lower_corner=(0, 0), pixel_box_upper_corner=(-2, -2))
    for label, coords, offsets in (
        ("fine", (0, -1, -1, 0), (2, 2)), ("W below", (0, -2, 0, 0), ()), ("W above", (0, 8, 0, 0), ()),
        ("H below", (0, 0, -2, 0), ()), ("H above", (0, 0, 6, 0), ()), ("batch −1", (0, 0, 0, -1), ()),
        ("batch beyond", (0, 0, 0, 3), ()), ("channel −16", (-16, 0, 0, 0), ()), ("channel 8", (8, 0, 0, 0), ()),
        ("channel 1", (1, 0, 0, 0), ()), ("offsets 65535", (0, 0, 0, 0), (65535, 65535)),
        ("offsets 32768", (0, 0, 0, 0), (32768, 0)),
    ):  # fmt: skip
        yield Trial("h: im2col starts", f"load: {label}", Case(IM2COL_LOAD, image, coords, offsets))
    for label, p, coords in (
        ("fine", inner, (0, 0, 0, 0)), ("W above", inner, (0, 7, 0, 0)), ("W −1", inner, (0, -1, 0, 0)),
        ("batch −1", inner, (0, 0, 0, -1)), ("channel −16", inner, (-16, 0, 0, 0)),
        ("batch beyond", inner, (0, 0, 0, 3)),
        ("lower corner −1", image, (0, 0, 0, 0)),
        ("lower corner 1", replace(inner, pixel_box_lower_corner=(1, 0)), (0, 1, 0, 0)),
    ):  # fmt: skip
        yield Trial("h: im2col starts", f"store: {label}", Case(IM2COL_STORE, p, coords))


def other_reductions() -> Iterator[Trial]:
    """Types and operations that no recording has."""
    for data_type in DataType:
        if data_type > DataType.TFLOAT32_FTZ:
            continue
        for op in REDUCTIONS:
            if op not in measured_reductions(data_type):
                case = Case(REDUCTION, tiled(data_type.name, (64, 4), (16, 4)), (16, 0), reduction=op)
                yield Trial("types and operations not recorded", f"{data_type} {op}", case)


def added_floats() -> Iterator[Trial]:
    """Sums at the edges: infinities, NaNs of every kind, denormals, overflow, ties."""
    for data_type, size, mantissa in (
        ("FLOAT64", 8, 52), ("TFLOAT32", 4, 23), ("TFLOAT32_FTZ", 4, 23), ("FLOAT32", 4, 23), ("FLOAT32_FTZ", 4, 23),
        ("FLOAT16", 2, 10), ("BFLOAT16", 2, 7),
    ):  # fmt: skip
        bits, one = 8 * size, 1 << mantissa
        infinity = (1 << (bits - 1)) - one
        half = (infinity >> 1) // one * one
        magnitudes = [
            0, 1, 2, one - 1, one, one + 1, 2 * one - 1, half, half + 1, half - one * mantissa, infinity - 1, infinity,
            infinity + 1, infinity + one // 2, infinity + one // 2 + 5, infinity + one - 1,
        ]
        edges = [sign << (bits - 1) | magnitude for sign in (0, 1) for magnitude in magnitudes]
        old, new = (grid.reshape(-1) for grid in np.meshgrid(np.array(edges, np.uint64), np.array(edges, np.uint64)))
        case = Case(REDUCTION, tiled(data_type, (256, len(old) // 256), (256, len(old) // 256)), (0, 0))
        yield Trial("add at the edges", data_type, case, flat(old, f"<u{size}"), flat(new, f"<u{size}"))


def large_offsets() -> Iterator[Trial]:
    """im2col offsets at and beyond the ranges that the PTX ISA gives: 16, 8 or 5 bits by rank."""
    for rank in (3, 4, 5):
        dims = (*(16, 300, 40, 3)[: rank - 1], 2)
        for interleave, shift in (("NONE", 0), ("16B", 1)):
            sizes = dims if not shift else (*dims[1:-1], 2, dims[-1])
            p = Im2col(
                data_type="FLOAT16", global_address=4096, global_dim=sizes, interleave=interleave,
                global_strides=_packed_strides(sizes, 16 if shift else 2),
                pixel_box_lower_corner=(-4,) * (rank - 2), pixel_box_upper_corner=(-4,) * (rank - 2),
                channels_per_pixel=16, pixels_per_column=24,
            )  # fmt: skip
            start = (0, *(-2,) * (rank - 2), 0) if not shift else (*(-2,) * (rank - 2), 1, 0)
            for value in (0, 3, 17, 31, 32, 35, 127, 128, 130, 200, 255, 256, 259, 40000, 65535):
                for place in range(rank - 2):
                    offsets = tuple(value * (i == place) for i in range(rank - 2))
                    case = Case(IM2COL_LOAD, p, start, offsets)
                    label = f"rank {rank}, interleave {interleave}, {offsets}"
                    yield Trial("im2col offsets beyond their bits", label, case)


def _packed_strides(dims: tuple[int, ...], unit: int) -> tuple[int, ...]:
    strides = [dims[0] * unit]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent)
    return tuple(-(-stride // 16) * 16 for stride in strides)


def store_corners() -> Iterator[Trial]:
    """im2col stores with lower corners other than 0, that the walk comes back to and that it does not."""
    common: dict[str, Any] = {
        "data_type": "FLOAT16", "global_address": 4096, "global_dim": (32, 9, 7, 3), "channels_per_pixel": 16,
        "pixel_box_upper_corner": (-1, 0),
    }  # fmt: skip
    for lower in ((0, 0), (1, 0), (0, 1), (2, 3), (-1, 0), (0, -1), (-1, 1), (1, -1)):
        for pixels in (1, 2, 40):
            p = Im2col(**common, pixel_box_lower_corner=lower, pixels_per_column=pixels)
            for kind in (IM2COL_STORE, REDUCTION):
                case = Case(kind, p, (0, 2, 3, 0))
                yield Trial("im2col writes by lower corner", f"kind {kind}, lower {lower}, {pixels} pixels", case)


TRIALS: tuple[Callable[[], Iterator[Trial]], ...] = (
    inc_and_dec, overlaps, im2col_writes, starts, pixels, other_reductions, added_floats, large_offsets, store_corners,
)  # fmt: skip
