"""The bits of a tensor map: one table that the encoders, the decoder and the documentation read.

The 128 bytes are sixteen little-endian 64-bit words. Positions were read off an H100's driver (580.159) and, for the
element formats and swizzle atoms that driver refuses, off the assembler's expansion of ``tensormap.replace``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from cupytma.tensormap.enums import DataType, Swizzle

WORDS = 16
SIZE = 8 * WORDS
# How the bits are laid out. "im2col_wide" is the layout of targets that document it, with one 16-bit corner on each
# side; on an H100 the wide encoder was seen to write "im2col".
LAYOUTS = ("tiled", "im2col", "im2col_wide")
RANKS = {"tiled": (1, 2, 3, 4, 5), "im2col": (3, 4, 5), "im2col_wide": (3, 4, 5)}
# Bits of one corner, by rank; all corners of a side share 16 bits.
CORNER_BITS = {3: 16, 4: 8, 5: 5}


@dataclass(frozen=True)
class DataTypeRow:
    """How one element type is sized and stored.

    Attributes
    ----------
    element_bits : int
        Bits of one element in global memory.
    element_format : int
        The code in word 1, bits 10:7.
    tf32 : bool
        Whether word 1, bit 16 is set: loads round to TF32.
    gap_bits : int
        Bits of gap after one element in shared memory, on average (driver API: 16 elements of the ALIGN16B types take
        16 bytes there).
    """

    element_bits: int
    element_format: int
    tf32: bool = False
    gap_bits: int = 0

    @property
    def shared_bits(self) -> int:
        """Bits that one element takes in shared memory, its share of the gaps included."""
        return self.element_bits + self.gap_bits


DATA_TYPES: dict[DataType, DataTypeRow] = {
    DataType.UINT8: DataTypeRow(8, 0),
    DataType.UINT16: DataTypeRow(16, 1),
    DataType.UINT32: DataTypeRow(32, 2),
    DataType.INT32: DataTypeRow(32, 3),
    DataType.UINT64: DataTypeRow(64, 4),
    DataType.INT64: DataTypeRow(64, 5),
    DataType.FLOAT16: DataTypeRow(16, 6),
    DataType.FLOAT32: DataTypeRow(32, 7),
    DataType.FLOAT64: DataTypeRow(64, 9),
    DataType.BFLOAT16: DataTypeRow(16, 10),
    DataType.FLOAT32_FTZ: DataTypeRow(32, 8),
    DataType.TFLOAT32: DataTypeRow(32, 7, tf32=True),
    DataType.TFLOAT32_FTZ: DataTypeRow(32, 8, tf32=True),
    DataType.PACKED_16U4_ALIGN8B: DataTypeRow(4, 11),
    DataType.PACKED_16U4_ALIGN16B: DataTypeRow(4, 12, gap_bits=4),
    DataType.PACKED_16U6_ALIGN16B: DataTypeRow(6, 13, gap_bits=2),
}


# Elements of dimension 0 that a box of an ALIGN16B type has, no more and no fewer (driver API).
PACKED_ROW = 128


@dataclass(frozen=True)
class SwizzleRow:
    """How one swizzle is stored, and the shared alignment the driver records for it in bytes."""

    swizzle_mode: int
    swizzle_atomicity: int
    recorded_alignment: int


SWIZZLES: dict[Swizzle, SwizzleRow] = {
    Swizzle.NONE: SwizzleRow(0, 0, 16),
    Swizzle.B32: SwizzleRow(1, 0, 256),
    Swizzle.B64: SwizzleRow(2, 0, 512),
    Swizzle.B128: SwizzleRow(3, 0, 1024),
    Swizzle.B128_ATOM_32B: SwizzleRow(3, 1, 1024),
    Swizzle.B128_ATOM_32B_FLIP_8B: SwizzleRow(3, 2, 1024),
    Swizzle.B128_ATOM_64B: SwizzleRow(3, 3, 1024),
}


@dataclass(frozen=True)
class BitField:
    """A run of bits in one word and the value it holds.

    A value may be spread over several rows of the same name and index; the stored bits are
    ``((value - bias) >> shift) & (2**width - 1)``.

    Attributes
    ----------
    name : str
        The parameter, as the driver API spells it.
    index : int or None
        The dimension, stride or corner it belongs to.
    word, low, width : int
        Word 0…15, lowest bit in it, number of bits.
    shift, bias : int
        See above.
    signed : bool
        Two's complement.
    layouts : tuple of str
        Which layouts have it.
    ranks : tuple of int
        For which ranks it is present; elsewhere the bits are zero.
    form : str
        The form in words, for documentation.
    """

    name: str
    index: int | None
    word: int
    low: int
    width: int
    shift: int = 0
    bias: int = 0
    signed: bool = False
    layouts: tuple[str, ...] = LAYOUTS
    ranks: tuple[int, ...] = (1, 2, 3, 4, 5)
    form: str = "as is"

    @property
    def label(self) -> str:
        """The name with its index, such as ``global_dim[1]``."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"

    @property
    def bits(self) -> str:
        """The place as the documentation writes it, such as ``w4[63:32]``."""
        high = self.low + self.width - 1
        return f"w{self.word}[{high}:{self.low}]" if self.width > 1 else f"w{self.word}[{self.low}]"

    @property
    def mask(self) -> int:
        """The field's bits set, in place within its word."""
        return ((1 << self.width) - 1) << self.low


_IM2COL = ("im2col", "im2col_wide")


def _ranks_above(index: int) -> tuple[int, ...]:
    return tuple(rank for rank in range(1, 6) if rank > index)


def _minus_one(
    name: str, index: int | None, word: int, low: int, width: int, layouts: tuple[str, ...] = LAYOUTS
) -> BitField:
    """A field that stores its value less one, present in the ranks that have its dimension."""
    return BitField(
        name, index, word, low, width, bias=1, layouts=layouts, ranks=_ranks_above(index or 0), form="minus 1"
    )


def _corner(side: str, index: int, low: int, width: int, layout: str, ranks: tuple[int, ...]) -> BitField:
    return BitField(side, index, 7, low, width, signed=True, layouts=(layout,), ranks=ranks, form="two's complement")


def _rows() -> Iterator[BitField]:
    yield BitField("global_address", None, 0, 0, 64)
    yield BitField("is_im2col", None, 1, 0, 1, form="0 tiled, 1 im2col")
    yield _minus_one("rank", None, 1, 4, 3)
    yield BitField("element_format", None, 1, 7, 4, form="code of the data type")
    yield BitField("interleave", None, 1, 11, 2)
    yield BitField("swizzle_mode", None, 1, 13, 2, form="0 none, 1 32B, 2 64B, 3 128B")
    yield BitField("oob_fill", None, 1, 15, 1)
    yield BitField("tf32", None, 1, 16, 1, form="1 for TFLOAT32 and TFLOAT32_FTZ")
    yield BitField("l2_promotion", None, 1, 17, 2)
    yield BitField("swizzle_atomicity", None, 1, 19, 2, form="0 16B, 1 32B, 2 32B with 8B flip, 3 64B")
    yield BitField("driver_defect", None, 1, 21, 1, form="set wrongly by drivers before 595 on Blackwell")
    for i, (word, low) in enumerate(((1, 32), (2, 0), (2, 32), (3, 0))):
        ranks = _ranks_above(i + 1)
        yield BitField("global_strides", i, word, low, 32, shift=4, ranks=ranks, form="bytes >> 4, low 32 bits")
        yield BitField("global_strides", i, 3, 32 + 4 * i, 4, shift=36, ranks=ranks, form="bytes >> 36")
    for i, (word, low) in enumerate(((4, 0), (4, 32), (5, 0), (5, 32), (6, 0))):
        yield _minus_one("global_dim", i, word, low, 32)
    for i in range(5):
        yield _minus_one("element_strides", i, 6, 32 + 3 * i, 3)
    for i, (word, low) in enumerate(((6, 56), (7, 0), (7, 8), (7, 16), (7, 24))):
        yield _minus_one("box_dim", i, word, low, 8, layouts=("tiled",))
    yield _minus_one("channels_per_pixel", None, 6, 56, 8, layouts=_IM2COL)
    for side, low in (("pixel_box_lower_corner", 0), ("pixel_box_upper_corner", 16)):
        for rank, width in CORNER_BITS.items():
            for i in range(rank - 2):
                yield _corner(side, i, low + width * i, width, "im2col", (rank,))
        yield _corner(side, 0, low, 16, "im2col_wide", RANKS["im2col_wide"])
    yield _minus_one("pixels_per_column", None, 7, 32, 10, layouts=_IM2COL)
    yield BitField("recorded_box_bytes", None, 8, 0, 64, form="bytes; not read by the hardware")
    yield BitField("recorded_alignment", None, 9, 0, 64, form="bytes; not read by the hardware")


FIELDS: tuple[BitField, ...] = tuple(_rows())
"""Every bit field of every kind and rank, in the order in which they are described."""


@cache
def fields_of(layout: str, rank: int) -> tuple[BitField, ...]:
    """The rows that a tensor map of a layout and rank has."""
    return tuple(f for f in FIELDS if layout in f.layouts and rank in f.ranks)


@cache
def known_bits(layout: str, rank: int) -> int:
    """The bits that hold something in a tensor map of a layout and rank, as a 1024-bit integer."""
    bits = 0
    for field in fields_of(layout, rank):
        bits |= field.mask << (64 * field.word)
    return bits


def extract(value: int, layout: str, rank: int) -> dict[tuple[str, int | None], int]:
    """Every field's value from a tensor map read as a 1024-bit little-endian integer.

    Returns
    -------
    dict
        From (name, index) to value, biases and shifts undone.
    """
    found: dict[tuple[str, int | None], int] = {}
    for field in fields_of(layout, rank):
        stored = (value >> (64 * field.word + field.low)) & ((1 << field.width) - 1)
        if field.signed and stored >> (field.width - 1):
            stored -= 1 << field.width
        key = (field.name, field.index)
        found[key] = found.get(key, 0) + (stored << field.shift) + field.bias
    return found
