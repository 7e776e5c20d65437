"""The bit-field table, derived once more from what the assembler expands ``tensormap.replace`` to."""

from __future__ import annotations

import random
from functools import cache

import pytest
from sass_interpreter import Machine, expansions, nvdisasm

from cupytma.tensormap import FIELDS, TensorMap

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvdisasm (pip install nvidia-cuda-nvdisasm)")

# Field, ordinals, width of the value, and the parameter of the bit-field table whose bits it writes.
BY_REGISTER = [
    ("global_address", [None], 64, "global_address"),
    ("rank", [None], 32, "rank"),
    ("box_dim", range(5), 32, "box_dim"),
    ("global_dim", range(5), 32, "global_dim"),
    ("global_stride", range(4), 64, "global_strides"),
    ("element_stride", range(5), 32, "element_strides"),
]
# Field, its immediates by target, and the names it may write.
BY_IMMEDIATE = [
    ("elemtype", {"sm_90a": 13, "sm_100a": 16}, ("element_format", "tf32")),
    ("interleave_layout", {"sm_90a": 3, "sm_100a": 3}, ("interleave",)),
    ("swizzle_mode", {"sm_90a": 4, "sm_100a": 4}, ("swizzle_mode",)),
    ("swizzle_atomicity", {"sm_90a": 0, "sm_100a": 4}, ("swizzle_atomicity",)),
    ("fill_mode", {"sm_90a": 2, "sm_100a": 2}, ("oob_fill",)),
]
SWIZZLE_96B = 1 << (64 + 22)  # written as zero by swizzle_mode and part of no field of these targets


# The bit that drivers before 595 set wrongly. Up to CUDA 13.0 it is cleared with the swizzle's atom, in 13.5 with the
# address.
DEFECT = 1 << (64 + 21)


def instruction(field: str, ordinal: int | None, width: int, operand: str = "%1") -> str:
    middle = "" if ordinal is None else f"{ordinal}, "
    return f"tensormap.replace.tile.{field}.shared::cta.b1024.b{width} [%0], {middle}{operand};"


@cache
def expansion(target: str, *wanted: str | int | None) -> tuple[str, ...]:
    """The machine code of one instruction; all of a target's are compiled together."""
    every = [
        instruction(field, ordinal, width) for field, ordinals, width, _ in BY_REGISTER for ordinal in ordinals
    ]
    every += [
        instruction(field, None, 32, str(value)) for field, counts, _ in BY_IMMEDIATE for value in range(counts[target])
    ]
    return expansions(tuple(every), target)[instruction(*wanted)]  # type: ignore[arg-type]


def table_bits(name: str, index: int | None) -> int:
    """All bits of a parameter in the table, as a 1024-bit integer."""
    bits = 0
    for field in FIELDS:
        if field.name == name and field.index == index:
            bits |= field.mask << (64 * field.word)
    return bits


def changed_bits(lines: tuple[str, ...], width: int, target: str, values: list[int]) -> int:
    """The bits that some value leaves different from memory of zeros or of ones."""
    bits = 0
    for value in values:
        for memory in (bytes(128), b"\xff" * 128):
            after = Machine(memory, value, width == 64, target).run(lines)
            bits |= int.from_bytes(after, "little") ^ int.from_bytes(memory, "little")
    return bits


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("field", "ordinals", "width", "name"), BY_REGISTER, ids=lambda v: str(v))
def test_positions_of_values_are_the_tables(
    field: str, ordinals: list[int | None], width: int, name: str, target: str
) -> None:
    rows = [row for row in FIELDS if row.name == name]
    for ordinal in ordinals:
        lines = expansion(target, field, ordinal, width)
        # Every value below 2^width, less the bias, is reached from these by the masks and shifts there are.
        values = [0, (1 << width) - 1, *(1 << bit for bit in range(width))]
        assert changed_bits(lines, width, target, values) & ~DEFECT == table_bits(name, ordinal)
        for value in values:
            after = int.from_bytes(Machine(bytes(128), value, width == 64, target).run(lines), "little")
            for row in rows:
                if row.index == ordinal:
                    bias = 0 if name == "rank" else row.bias  # the instruction takes rank - 1
                    stored = (((value - bias) % (1 << width)) >> row.shift) & ((1 << row.width) - 1)
                    assert after >> (64 * row.word + row.low) & ((1 << row.width) - 1) == stored


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("field", "counts", "names"), BY_IMMEDIATE, ids=lambda v: v if isinstance(v, str) else "")
def test_positions_of_choices_are_the_tables(
    field: str, counts: dict[str, int], names: tuple[str, ...], target: str
) -> None:
    written = 0
    for value in range(counts[target]):
        lines = expansion(target, field, None, 32, str(value))
        written |= changed_bits(lines, 32, target, [0])
    allowed = 0
    for name in names:
        allowed |= table_bits(name, None)
    assert written & ~(SWIZZLE_96B if field == "swizzle_mode" else 0) & ~DEFECT == (allowed if counts[target] else 0)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_replace_raw_does_what_the_expansion_does(target: str) -> None:
    generator = random.Random(1)
    cases: list[tuple[str, int | None, int, int | None]] = [
        (field, ordinal, width, None) for field, ordinals, width, _ in BY_REGISTER for ordinal in ordinals
    ]
    cases += [(field, None, 32, value) for field, counts, _ in BY_IMMEDIATE for value in range(counts[target])]
    for field, ordinal, width, immediate in cases:
        operand = "%1" if immediate is None else str(immediate)
        lines = expansion(target, field, ordinal, width, operand)
        for _ in range(5):
            memory, value = generator.randbytes(128), generator.getrandbits(width)
            expected = Machine(memory, value, width == 64, target).run(lines)
            given = value if immediate is None else immediate
            replaced = TensorMap.from_bytes(memory).replace_raw(field, given, ordinal=ordinal or 0, target=target)
            difference = int.from_bytes(bytes(replaced), "little") ^ int.from_bytes(expected, "little")
            assert difference & ~DEFECT == 0, (field, ordinal, given)
