"""What the recordings leave open about the TMA unit, asked of the GPU at hand: prints a table and saves every answer.

    python tests/golden/record_open_questions.py --out FOLDER

Writes random_cases.npz (fresh random copies, as `cupytma record` makes them), open_questions.npz (copies with the bytes
they worked on; see `save`) and open_questions.json (the answers that are no copies of that kind). Takes two or three
minutes. Each copy that may kill a kernel runs in a process of its own, and no kernel waits for ever.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cupytma.errors import CompileError, CupytmaError
from cupytma.ptx.reductions import REDUCTIONS
from cupytma.record import forms, hardware
from cupytma.record.drawing import draw_cases
from cupytma.record.prediction import disagreements, predict, tensor_map
from cupytma.record.recording import (
    COMPLETED,
    DIED,
    IM2COL_LOAD,
    IM2COL_STORE,
    REDUCTION,
    SHARED_BYTES,
    TILED_LOAD,
    TILED_STORE,
    UNWRITTEN,
    Bytes,
    Case,
    Observation,
    Recording,
    load_image,
    memory_contents,
)
from cupytma.record.unit import Buffer, KernelDied, Unit
from cupytma.runtime import compile, current_target
from cupytma.sim.reductions import measured_reductions
from cupytma.tensormap import DataType, Im2col, Tiled

SEED = 20261128
PROCESSES = 8
OUTCOMES = {COMPLETED: "completed", DIED: "DIED", 0: "never completed"}


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


# --- answers of the trials --------------------------------------------------------------------------------------------


def run_trial(unit: Unit, trial: Trial) -> Observation:
    memory, source = trial.contents()
    return hardware.observe(unit, trial.case, memory, source=source, target=current_target())


def verdict(trial: Trial, seen: Observation) -> str:
    """The answer in words, with what the simulator says."""
    answer = OUTCOMES[seen.outcome] + (f" ({seen.error.partition(':')[0]})" if seen.error else "")
    try:
        predicted = predict(trial.case, *trial.contents())
    except CupytmaError as error:
        if seen.outcome == COMPLETED and not trial.case.is_load:
            return f"{answer}, {len(seen.changes()[0])} bytes changed; the simulator refuses: {type(error).__name__}"
        return f"{answer}; the simulator refuses: {type(error).__name__}"
    if predicted.outcome != seen.outcome:
        return f"{answer}; THE SIMULATOR {OUTCOMES[predicted.outcome]}"
    if seen.outcome == DIED:
        foretold = seen.error.startswith(predicted.error)
        return f"{answer}, as simulated" if foretold else f"{answer}; THE SIMULATOR {predicted.error}"
    if trial.case.is_load and predicted.transaction_bytes != seen.transaction_bytes:
        return f"{answer}, {seen.transaction_bytes} B counted; THE SIMULATOR {predicted.transaction_bytes} B"
    same = np.array_equal(seen.image, predicted.image)
    if same:
        return f"{answer}, bytes as simulated"
    places, _ = seen.changes() if not trial.case.is_load else (np.empty(0), None)
    return f"{answer}, OTHER BYTES THAN SIMULATED ({len(places) or len(seen.image)} against {len(predicted.image)})"


def save(path: Path, trials: list[Trial], seen: list[Observation], about: dict[str, str]) -> None:
    """A recording's columns, with question, label, and for each case the bytes that replace those of the seed."""
    Recording(tuple(t.case for t in trials), tuple(seen), SEED, about).save(path)
    with np.load(path) as file:
        columns = dict(file)
    columns["questions"] = np.array([t.question for t in trials])
    columns["labels"] = np.array([t.label for t in trials])
    columns["patches"] = np.concatenate([part for t in trials for part in (t.memory, t.tile)])
    columns["patch_bytes"] = np.array([(len(t.memory), len(t.tile)) for t in trials], np.int64)
    np.savez_compressed(path, **columns)


# --- questions with kernels of their own ------------------------------------------------------------------------------

Row = tuple[str, str, str]
_TILE = Case(TILED_LOAD, tiled("FLOAT32", (64, 64), (32, 16), swizzle="128B"), (32, 8))


def _expected(case: Case) -> tuple[Bytes, int]:
    predicted = predict(case, *memory_contents(SEED))
    return predicted.image, predicted.transaction_bytes


def _attempt(row: tuple[str, str], work: Callable[[], str]) -> Row:
    try:
        return (*row, work())
    except KernelDied as death:
        return (*row, f"DIED ({str(death).partition(':')[0]})")


def _loaded(read: dict[str, Bytes], case: Case) -> str:
    completed, counted, low, high, _ = read["answer"].view("<u4")[:5].tolist()
    image, moved = _expected(case)
    same = np.array_equal(load_image(read["image"][:SHARED_BYTES], case.shared_offset), image)
    return (
        f"map at {high << 32 | low:#x} ({low % 128} mod 128): {'completed' if completed else 'never completed'}, "
        f"{counted} B counted of {moved}, bytes {'right' if same else 'WRONG'}"
    )


def descriptor_places(unit: Unit) -> Iterator[Row]:
    question = "d: where the descriptor lies"

    def load(kernel: str, first: tuple[Any, ...], writes: dict[str, Bytes]) -> str:
        operands = (*first, hardware.copy_operands(_TILE, _expected(_TILE)[1]), Buffer("image"), Buffer("answer"))
        read = unit.run(
            kernel, operands, shared_bytes=hardware.SHARED_LAUNCH_BYTES, writes=writes, reads=("image", "answer")
        )
        return _loaded(read, _TILE)

    def parameter() -> str:
        return load("record_load", (tensor_map(_TILE, unit.addresses["memory"]),), {})

    def behind() -> str:
        return load("record_load_behind", (bytes(64), tensor_map(_TILE, unit.addresses["memory"])), {})

    def in_memory(offset: int) -> str:
        maps = np.zeros(1024, np.uint8)
        maps[offset : offset + 128] = np.frombuffer(bytes(tensor_map(_TILE, unit.addresses["memory"])), np.uint8)
        return load("record_load_global", (Buffer("maps", offset),), {"maps": maps})

    yield _attempt((question, "first kernel parameter"), parameter)
    yield _attempt((question, "kernel parameter behind 64 bytes of others"), behind)
    for offset in (0, 64, 128, 192, 32, 16, 8, 96):
        yield _attempt((question, f"global memory, {offset} mod 128"), lambda offset=offset: in_memory(offset % 256))


def multicasts(unit: Unit) -> Iterator[Row]:
    image_case = Case(
        IM2COL_LOAD,
        Im2col(
            data_type="FLOAT16", global_address=4096, global_dim=(32, 9, 7, 3), pixel_box_lower_corner=(-1, -1),
            pixel_box_upper_corner=(-1, -1), channels_per_pixel=32, pixels_per_column=40, swizzle="64B",
        ),
        (0, 2, 1, 0), (1, 2), 256,
    )  # fmt: skip

    def multicast(case: Case, mask: int) -> str:
        m = tensor_map(case, unit.addresses["memory"])
        read = unit.run(
            "record_multicast", (m, hardware.copy_operands(case, 0, mask), Buffer("image"), Buffer("answer")), grid=2,
            shared_bytes=hardware.SHARED_LAUNCH_BYTES, reads=("image", "answer"),
        )  # fmt: skip
        image, moved = _expected(case)
        parts = []
        for block, counted in enumerate(read["answer"].view("<u4")[:2].tolist()):
            array = read["image"][block * SHARED_BYTES : (block + 1) * SHARED_BYTES]
            found = load_image(array, case.shared_offset)
            bytes_ = "tile" if np.array_equal(found, image) else "nothing" if not len(found) else "OTHER BYTES"
            before = "" if (array[: case.shared_offset] == UNWRITTEN).all() else ", AND BEFORE THE TILE"
            parts.append(f"block {block}: {bytes_}{before}, {counted} B counted of {moved}")
        return "; ".join(parts)

    for name, case in (
        ("tile at 0", _TILE), ("tile at 1152", replace(_TILE, shared_offset=1152)), ("im2col at 256", image_case),
        ("tile half outside the tensor", replace(_TILE, coords=(48, 60))),
    ):  # fmt: skip
        for mask in (0b011, 0b001, 0b010) if case is not _TILE else (0b011, 0b001, 0b010, 0b000, 0b100, 0b111):
            row = "f: multicast from block 0 of 2", f"{name}, mask {mask:03b}"
            yield _attempt(row, lambda case=case, mask=mask: multicast(case, mask))


def window_ends(unit: Unit) -> Iterator[Row]:
    load = Case(TILED_LOAD, tiled("FLOAT32", (64, 64), (64, 8)), (0, 0))  # 2 KiB
    store = replace(load, kind=TILED_STORE)

    def at_end(case: Case, distance: int, shared: int) -> str:
        m, operands = tensor_map(case, unit.addresses["memory"]), hardware.copy_operands(case)
        if not case.is_load:
            read = unit.run(
                "record_store_at_end", (m, operands, distance, Buffer("answer")),
                shared_bytes=shared, reads=("answer", "memory"),
            )  # fmt: skip
            before, _ = memory_contents(SEED)
            end = int(read["answer"].view("<u4")[1])
            changed = np.flatnonzero(read["memory"] != before)
            tail = np.unique(read["memory"][4096 + max(distance, 0) : 4096 + 2048])[:4].tolist()
            return f"completed; shared memory ends at {end:#x}; {len(changed)} bytes changed, beyond the end {tail}"
        read = unit.run(
            "record_load_at_end", (m, operands, distance, Buffer("image"), Buffer("answer")),
            shared_bytes=shared, reads=("answer", "image"),
        )  # fmt: skip
        counted, end = read["answer"].view("<u4")[:2].tolist()
        image, _ = _expected(case)
        inside = read["image"][:1024]
        want = np.full(1024, UNWRITTEN, np.uint8)
        part = image[max(0, distance - 1024) : distance]
        want[max(0, 1024 - distance) :] = part
        right = "right" if np.array_equal(inside, want) else "WRONG"
        return f"completed; shared memory ends at {end:#x}; {counted} B counted of 2048; the last KiB is {right}"

    for shared in (16384, 16384 + 16, 16384 + 144, 227 * 1024):
        for distance in (2048 - 128, 1024, 128, 0) if shared % 128 == 0 else (2048 - 128 + 16, 16):
            for name, case in (("load", load), ("store", store)):
                label = f"{name}: {shared} B, the tile ends {2048 - distance} B after it"
                row = "g: tile past the window", label
                yield _attempt(row, lambda case=case, distance=distance, shared=shared: at_end(case, distance, shared))


def prefetches(unit: Unit) -> Iterator[Row]:
    def prefetch(case: Case) -> str:
        m = tensor_map(case, unit.addresses["memory"])
        unit.run("record_prefetch", (m, hardware.copy_operands(case), Buffer("answer")), block=1)
        return "completed"

    chosen = {"load: fine", "load: inner start 4 B off", "load: inner start −4 B", "load: start −1 in dimension 1"}
    for trial in (*starts(), *pixels()):
        if trial.label in chosen or (trial.case.kind == IM2COL_LOAD):
            yield _attempt(("h: prefetch", trial.label.replace("load", "prefetch")), lambda c=trial.case: prefetch(c))


def im2col_wide() -> Iterator[Row]:
    """Whether the instruction exists: the assembler's word, target by target."""
    source = """
    extern "C" __global__ void k(const void* map, unsigned shared, unsigned barrier, unsigned short a)
    {{ asm volatile("{text}" :: "l"(map), "r"(shared), "r"(barrier), "h"(a) : "memory"); }}
    """
    tail = ".mbarrier::complete_tx::bytes [%1], [%0, {{0, 0, 0}}], [%2], {{%3, %3}};"
    for space in ("shared::cluster", "shared::cta"):
        for mode in ("im2col::w", "im2col::w::128"):
            for target in ("sm_90", "sm_90a", "sm_100a", "sm_120a"):
                text = f"cp.async.bulk.tensor.3d.{space}.global.{mode}{tail}".format()
                try:
                    compile(source.format(text=text), target)
                    answer = "assembles"
                except CompileError as error:
                    answer = "refused: " + " ".join(
                        line.strip() for line in error.log.splitlines() if "error" in line or "requires" in line
                    )[:220]
                yield "e: im2col::w", f"{target}, {mode} to {space}", answer


# --- all of it --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the answers")
    parser.add_argument("--cases", type=int, default=1000, help="random copies")
    parser.add_argument("--faults", type=int, default=40, help="random copies that should die")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    target, (memory, source) = current_target(), memory_contents(SEED)
    forms.kernels(target)

    recording = hardware.record_random(arguments.cases, arguments.faults, SEED, processes=PROCESSES)
    recording.save(arguments.out / "random_cases.npz")
    wrong = list(disagreements(recording))
    print(*(f"{name}: {value}" for name, value in recording.about.items()), sep="\n")
    seconds = time.monotonic() - began
    print(f"random copies: {len(recording.cases)}, {len(wrong)} disagree [{seconds:.0f} s]", flush=True)
    print(*wrong[:20], sep="\n")

    local, units = threading.local(), []

    def with_unit(work: Callable[[Unit], Any]) -> Any:
        if not hasattr(local, "unit"):
            local.unit = hardware.new_unit(target, memory, source)
            units.append(local.unit)
        return work(local.unit)

    trials = [trial for ask in TRIALS for trial in ask()]
    with ThreadPoolExecutor(PROCESSES) as pool:
        seen = list(pool.map(lambda trial: with_unit(lambda unit: run_trial(unit, trial)), trials))
        for number, (trial, one) in enumerate(zip(trials, seen, strict=True)):
            if one.outcome == DIED and "THE SIMULATOR" in verdict(trial, one):  # not another process's doing?
                seen[number] = pool.submit(with_unit, lambda unit, trial=trial: run_trial(unit, trial)).result()
        save(arguments.out / "open_questions.npz", trials, seen, recording.about)
        print(f"{len(trials)} copies of open questions [{time.monotonic() - began:.0f} s]", flush=True)
        asks = descriptor_places, prefetches, multicasts, window_ends
        answers = [pool.submit(with_unit, lambda unit, ask=ask: list(ask(unit))) for ask in asks]
        rows: list[Row] = [row for answer in answers for row in answer.result()]
    for unit in units:
        unit.close()
    rows += im2col_wide()
    copies = [(t.question, t.label, verdict(t, s)) for t, s in zip(trials, seen, strict=True)]
    for question, label, answer in sorted((*rows, *copies), key=lambda row: row[0]):
        print(f"{question:<34} {label:<62} {answer}")
    report = {"about": recording.about, "answers": rows}
    (arguments.out / "open_questions.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
