"""Every measured mode in plain Python, point by point and byte by byte, straight from the measured rules.

Shares no code with the package: it reads only the parameters. Sums of floats are exact fractions, rounded once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

SIZES = {
    "UINT8": 1, "UINT16": 2, "UINT32": 4, "INT32": 4, "UINT64": 8, "INT64": 8, "FLOAT16": 2, "BFLOAT16": 2,
    "FLOAT32": 4, "FLOAT32_FTZ": 4, "TFLOAT32": 4, "TFLOAT32_FTZ": 4, "FLOAT64": 8,
}  # fmt: skip
# Bits of exponent and mantissa, and the NaN of a sum; float64 passes NaNs through.
_FLOATS: dict[str, tuple[int, int, int | None]] = {
    "FLOAT16": (5, 10, 0x7FFF), "BFLOAT16": (8, 7, 0x7FFF), "FLOAT64": (11, 52, None),
    **dict.fromkeys(("FLOAT32", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ"), (8, 23, 0x7FFFFFFF)),
}  # fmt: skip
Position = tuple[int, ...]


def rows(p: Any, coords: Position, offsets: Position) -> Iterator[list[Position]]:
    """Tensor coordinates of what each row of the tile holds: elements, or with interleave one slice."""
    n, e, slices = len(p.global_dim), p.element_strides, int(p.interleave) > 0
    if hasattr(p, "box_dim"):
        counts = [-(-b // s) for b, s in zip(p.box_dim, e, strict=True)]
        if slices:
            counts[n - 2] = 1
        moved = counts if slices else counts[1:]
        for steps in itertools.product(*map(range, reversed(moved))):
            g = steps[::-1] if slices else (0, *steps[::-1])
            start = tuple(c + k * s for c, k, s in zip(coords, g, e, strict=True))
            yield [start] if slices else [(start[0] + k, *start[1:]) for k in range(p.box_dim[0])]
        return
    first = 0 if slices else 1
    base = list(coords)
    for _ in range(p.pixels_per_column):
        x = list(base)
        for j, offset in enumerate(offsets):
            x[first + j] += offset
        yield [tuple(x)] if slices else [(x[0] + k, *x[1:]) for k in range(p.channels_per_pixel)]
        for j, (lower, upper) in enumerate(zip(p.pixel_box_lower_corner, p.pixel_box_upper_corner, strict=True)):
            base[first + j] += e[first + j]
            if base[first + j] <= p.global_dim[first + j] + upper - 1:
                break
            base[first + j] = lower
        else:
            base[n - 1] += e[n - 1]


def points(p: Any, coords: Position, offsets: Position, place: int) -> Iterator[tuple[Position, int, list[int]]]:
    """Tensor coordinates, global address and the shared place of each byte, for every point in the tile's order."""
    unit = (0, 16, 32)[int(p.interleave)] or SIZES[p.data_type.name]
    mode, strides = int(p.swizzle), (unit, *p.global_strides)
    for number, row in enumerate(rows(p, coords, offsets)):
        width = len(row) * unit
        pitch = width if int(p.interleave) else max(width, (0, 32, 64, 128)[mode])
        for k, x in enumerate(row):
            linear = [place + number * pitch + k * unit + byte for byte in range(unit)]
            address = p.global_address + sum(c * stride for c, stride in zip(x, strides, strict=True))
            yield x, address, [a ^ ((a >> 7) % 2**mode << 4) for a in linear]


def load(p: Any, coords: Position, offsets: Position, memory: bytes, base: int, shared: bytearray, place: int) -> int:
    """Changes `shared`; returns the transaction bytes."""
    moved = 0
    for x, address, places in points(p, coords, offsets, place):
        size = len(places)
        value = (b"\xf7\x7f" * 16)[:size] if int(p.oob_fill) else bytes(size)
        if all(0 <= c < extent for c, extent in zip(x, p.global_dim, strict=True)):
            value = memory[address - base : address - base + size]
            assert len(value) == size
            if p.data_type.name.startswith("TFLOAT32"):
                value = b"".join(_tf32(value[i : i + 4]) for i in range(0, size, 4))
        for at, byte in zip(places, value, strict=True):
            shared[at] = byte
        moved += size
    return moved


def write(p: Any, op: str, coords: Position, memory: bytearray, base: int, shared: bytes, place: int) -> None:
    """A store, or a reduction of name `op`; changes `memory`."""
    size = SIZES[p.data_type.name]
    for x, address, places in points(p, coords, (), place):
        inner = x[0] if int(p.interleave) else x[0] * size // 16 * 16 / size  # a chunk whole if its first byte is in
        if not all(0 <= c < extent for c, extent in zip((inner, *x[1:]), p.global_dim, strict=True)):
            continue
        at, new = address - base, bytes(shared[place] for place in places)
        old = bytes(memory[at : at + len(new)])
        assert at >= 0
        assert len(old) == len(new)
        pieces = range(0, len(new), size)
        if op != "store":
            new = b"".join(reduced(p.data_type.name, op, old[i : i + size], new[i : i + size]) for i in pieces)
        memory[at : at + len(new)] = new


def reduced(data_type: str, op: str, old: bytes, new: bytes) -> bytes:
    """One element of the destination after a reduction."""
    size, a, b = len(old), int.from_bytes(old, "little"), int.from_bytes(new, "little")
    if data_type in _FLOATS:
        result = _added(data_type, a, b) if op == "add" else _picked(data_type, op, a, b)
        return result.to_bytes(size, "little")
    if data_type.startswith("INT"):
        a, b = (int.from_bytes(part, "little", signed=True) for part in (old, new))
    results = {
        "add": a + b, "min": min(a, b), "max": max(a, b), "and": a & b, "or": a | b, "xor": a ^ b,
        "inc": 0 if a >= b else a + 1, "dec": b if a == 0 or a > b else a - 1,
    }  # fmt: skip
    return (results[op] % 2 ** (8 * size)).to_bytes(size, "little")


def _picked(data_type: str, op: str, a: int, b: int) -> int:
    infinity = {"FLOAT16": 0x7C00, "BFLOAT16": 0x7F80}[data_type]
    numbers = [bits for bits in (a, b) if bits & 0x7FFF <= infinity]
    order = {bits: -1 - (bits & 0x7FFF) if bits & 0x8000 else bits for bits in numbers}
    return (min if op == "min" else max)(numbers, key=order.__getitem__) if numbers else 0x7FFF


def _added(data_type: str, a: int, b: int) -> int:
    exponent_bits, mantissa, nan = _FLOATS[data_type]
    sign, top, flushes = 1 << (exponent_bits + mantissa), (1 << exponent_bits) - 1, data_type.endswith("FTZ")

    def flushed(bits: int) -> int:
        return bits & sign if flushes and not bits >> mantissa & top else bits

    infinity = top << mantissa
    a, b = flushed(a), flushed(b)
    nans = [bits for bits in (b, a) if bits & (sign - 1) > infinity]
    infinities = {bits for bits in (a, b) if bits & (sign - 1) == infinity}
    if nans or len(infinities) > 1:
        return nan if nan is not None else nans[0] if nans else 0xFFF8000000000000
    if infinities:
        return infinities.pop()
    bias = (1 << (exponent_bits - 1)) - 1

    def value(bits: int) -> Fraction:
        exponent, low = bits >> mantissa & top, bits & ((1 << mantissa) - 1)
        magnitude = (low + (1 << mantissa if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - bias - mantissa)
        return -magnitude if bits & sign else magnitude

    total = value(a) + value(b)
    if not total:
        return a & b & sign
    exponent = max(abs(total).numerator.bit_length() - total.denominator.bit_length(), 1 - bias)
    while exponent > 1 - bias and abs(total) < Fraction(2) ** exponent:
        exponent -= 1
    units = round(abs(total) / Fraction(2) ** (exponent - mantissa))  # ties to even; a carry moves the exponent
    bits = min(((exponent + bias - 1) << mantissa) + units, infinity)
    return flushed(bits | (sign if total < 0 else 0))


def _tf32(value: bytes) -> bytes:
    bits = int.from_bytes(value, "little")
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000
    return (0x7FFFE000 if bits & 0x7FFFFFFF > 0x7F800000 else rounded).to_bytes(4, "little")
