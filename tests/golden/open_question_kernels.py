"""Open questions about the TMA unit that take kernels of their own: each yields its answers in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from open_question_trials import SEED, pixels, starts, tiled

from cupytma.errors import CompileError
from cupytma.record import hardware
from cupytma.record.prediction import predict, tensor_map
from cupytma.record.recording import (
    IM2COL_LOAD,
    SHARED_BYTES,
    TILED_LOAD,
    TILED_STORE,
    UNWRITTEN,
    Bytes,
    Case,
    load_image,
    memory_contents,
)
from cupytma.record.unit import Buffer, KernelDied, Unit
from cupytma.runtime import compile
from cupytma.tensormap import Im2col

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
