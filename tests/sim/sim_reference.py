"""Tiled copies without interleave, byte by byte in plain Python, straight from the measured rules.

Shares no code with the package: it reads only the parameters. Slow; for small tiles.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

_SIZES = {
    "UINT8": 1, "UINT16": 2, "UINT32": 4, "INT32": 4, "UINT64": 8, "INT64": 8, "FLOAT16": 2, "BFLOAT16": 2,
    "FLOAT32": 4, "FLOAT32_FTZ": 4, "TFLOAT32": 4, "TFLOAT32_FTZ": 4, "FLOAT64": 8,
}  # fmt: skip


def elements(p: Any, coords: tuple[int, ...], shared_offset: int) -> Iterator[tuple[tuple[int, ...], int, list[int]]]:
    """Tensor coordinates, global address, and the shared place of each byte, for every element of the tile."""
    size = _SIZES[p.data_type.name]
    mode = int(p.swizzle)
    counts = [p.box_dim[0]] + [(b + e - 1) // e for b, e in zip(p.box_dim[1:], p.element_strides[1:], strict=True)]
    pitch = max(counts[0] * size, (0, 32, 64, 128)[mode])
    row_counts = counts[1:]
    for row, outer in enumerate(itertools.product(*(range(n) for n in reversed(row_counts)))):
        outer = outer[::-1]
        for g in range(counts[0]):
            along = zip(coords[1:], outer, p.element_strides[1:], strict=True)
            x = (coords[0] + g, *(c + k * e for c, k, e in along))
            address = p.global_address + x[0] * size
            for position, stride in zip(x[1:], p.global_strides, strict=True):
                address += position * stride
            places = []
            for byte in range(size):
                linear = shared_offset + row * pitch + g * size + byte
                places.append(linear ^ ((linear >> 7) % 2**mode << 4))
            yield x, address, places


def inside(p: Any, x: tuple[int, ...]) -> bool:
    return all(0 <= position < extent for position, extent in zip(x, p.global_dim, strict=True))


def load(p: Any, coords: tuple[int, ...], memory: bytes, base: int, shared: bytearray, shared_offset: int = 0) -> int:
    moved = 0
    for x, address, places in elements(p, coords, shared_offset):
        size = len(places)
        if inside(p, x):
            value = memory[address - base : address - base + size]
            assert len(value) == size
            if p.data_type.name.startswith("TFLOAT32"):
                value = _tf32(value)
        elif int(p.oob_fill):
            value = (b"\xf7\x7f" * 4)[:size]
        else:
            value = bytes(size)
        for place, byte in zip(places, value, strict=True):
            shared[place] = byte
        moved += size
    return moved


def store(p: Any, coords: tuple[int, ...], memory: bytearray, base: int, shared: bytes, shared_offset: int = 0) -> None:
    for x, address, places in elements(p, coords, shared_offset):
        size = len(places)
        chunk_start = x[0] * size // 16 * 16 // size
        if inside(p, (chunk_start, *x[1:])):
            for byte, place in enumerate(places):
                memory[address - base + byte] = shared[place]


def _tf32(value: bytes) -> bytes:
    (word,) = struct.unpack("<I", value)
    (number,) = struct.unpack("<f", value)
    if number != number:
        return struct.pack("<I", 0x7FFFE000)
    low, kept = word % 2**13, word - word % 2**13
    if low > 2**12 or (low == 2**12 and (kept >> 13) % 2):
        kept += 2**13
    return struct.pack("<I", kept)


def random_bytes(count: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
