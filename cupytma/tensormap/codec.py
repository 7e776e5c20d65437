"""Parameters to 128 bytes and back, both through the bit-field table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from cupytma.errors import DescriptorError
from cupytma.tensormap.enums import DataType, Interleave, L2Promotion, OobFill, Swizzle
from cupytma.tensormap.fields import (
    DATA_TYPES,
    FIELDS,
    RANKS,
    SIZE,
    SWIZZLES,
    BitField,
    extract,
    fields_of,
    known_bits,
)

# Operands of the bit fields that are looked up by data type or swizzle, as expressions of the tables below.
_LOOKED_UP = {
    "element_format": "ELEMENT_FORMAT[data_type]",
    "tf32": "TF32[data_type]",
    "swizzle_mode": "SWIZZLE_MODE[swizzle]",
    "swizzle_atomicity": "SWIZZLE_ATOMICITY[swizzle]",
    "recorded_alignment": "RECORDED_ALIGNMENT[swizzle]",
}
LOOKUPS: dict[str, tuple[int, ...]] = {
    "ELEMENT_FORMAT": tuple(DATA_TYPES[t].element_format if t in DATA_TYPES else 0 for t in DataType),
    "TF32": tuple(int(DATA_TYPES[t].tf32) if t in DATA_TYPES else 0 for t in DataType),
    "SWIZZLE_MODE": tuple(SWIZZLES[s].swizzle_mode for s in Swizzle),
    "SWIZZLE_ATOMICITY": tuple(SWIZZLES[s].swizzle_atomicity for s in Swizzle),
    "RECORDED_ALIGNMENT": tuple(SWIZZLES[s].recorded_alignment for s in Swizzle),
}
_DATA_TYPE_OF_CODE = {(row.element_format, int(row.tf32)): member for member, row in DATA_TYPES.items()}
_SWIZZLE_OF_CODE = {(row.swizzle_mode, row.swizzle_atomicity): member for member, row in SWIZZLES.items()}


def value_text(field: BitField, layout: str) -> str:
    """The expression for what a field holds, over the operands of the rules, before it is cut to the field's width.

    Empty for bits left at zero.
    """
    if field.name == "is_im2col":
        return f"{int(layout != 'tiled')}"
    if field.name == "driver_defect":
        return ""
    value = _LOOKED_UP.get(field.name, field.label)
    if field.bias:
        value = f"({value} - {field.bias})"
    if field.shift:
        value = f"({value} >> {field.shift})"
    return value


def _stored(field: BitField, layout: str) -> str:
    """The expression for a field's bits in place, over the operands of the rules; empty for bits left at zero."""
    value = value_text(field, layout)
    if not value or field.name == "is_im2col":
        return value
    if field.width < 64:
        value = f"({value} & {(1 << field.width) - 1:#x})"
    return f"({value} << {field.low})" if field.low else value


def word_text(layout: str, rank: int, word: int) -> str:
    """The expression for one word over the operands of the rules; empty where the word is always zero."""
    terms = (_stored(field, layout) for field in fields_of(layout, rank) if field.word == word)
    return " | ".join(term for term in terms if term)


@cache
def _packer(layout: str, rank: int) -> CodeType:
    """One compiled expression for the whole map as an integer."""
    terms = [
        f"({stored} << {64 * field.word})" for field in fields_of(layout, rank) if (stored := _stored(field, layout))
    ]
    return compile(" | ".join(terms), f"<{layout} tensor map of rank {rank}>", "eval")


def pack(operands: Mapping[str, Any]) -> bytes:
    """The 128 bytes of checked operands (`Parameters.operands`)."""
    code = _packer(operands["layout"], operands["rank"])
    value: int = eval(code, {"__builtins__": {}, **LOOKUPS}, operands)
    return value.to_bytes(SIZE, "little")


def layout_and_rank(value: int) -> tuple[str, int]:
    """Layout ("tiled" or "im2col") and rank of a tensor map read as a little-endian integer.

    Raises
    ------
    DescriptorError
        If the rank bits name no rank that the kind has.
    """
    word = value >> 64
    layout, rank = ("im2col" if word & 1 else "tiled"), ((word >> 4) & 7) + 1
    if rank not in RANKS[layout]:
        legal = f"{RANKS[layout][0]}…{RANKS[layout][-1]}"
        raise DescriptorError(f"w1[6:4] = {rank - 1} means rank {rank}; a {layout} tensor map has rank {legal}")
    return layout, rank


def unpack(data: bytes) -> tuple[str, int, dict[str, Any]]:
    """Kind, rank and operands of 128 bytes.

    Returns
    -------
    layout : str
    rank : int
    operands : dict
        By the names of the bit-field table, sequences as tuples, with ``data_type`` and ``swizzle`` looked up.

    Raises
    ------
    DescriptorError
        Naming the bits that make no sense.
    """
    value = int.from_bytes(data, "little")
    layout, rank = layout_and_rank(value)
    found: dict[str, Any] = {}
    for (name, index), number in extract(value, layout, rank).items():
        if index is None:
            found[name] = number
        else:
            found[name] = (*found.get(name, ()), number)
    found.setdefault("global_strides", ())
    problems = []
    code = (found["element_format"], found["tf32"])
    if code in _DATA_TYPE_OF_CODE:
        found["data_type"] = _DATA_TYPE_OF_CODE[code]
    else:
        problems.append(f"w1[10:7] = {code[0]} with w1[16] = {code[1]} is no element format")
    code = (found["swizzle_mode"], found["swizzle_atomicity"])
    if code in _SWIZZLE_OF_CODE:
        found["swizzle"] = _SWIZZLE_OF_CODE[code]
    else:
        problems.append(f"w1[14:13] = {code[0]} with w1[20:19] = {code[1]} is no swizzle")
    if found["interleave"] > 2:
        problems.append(f"w1[12:11] = {found['interleave']} is no interleave")
    if problems:
        raise DescriptorError("; ".join(problems))
    return layout, rank, found


@dataclass(frozen=True)
class FieldValue:
    """One field of a tensor map with what it holds.

    Attributes
    ----------
    label : str
        Such as ``"global_dim[1]"``.
    bits : str
        Where it is, such as ``"w4[63:32]"``; several places joined by ``" + "``.
    value : int
        Biases and shifts undone, in the unit of the parameter.
    meaning : str
        The member's name where the value is one of an enumeration, else empty.
    """

    label: str
    bits: str
    value: int
    meaning: str = ""


def field_values(data: bytes) -> tuple[FieldValue, ...]:
    """Every field of 128 bytes whose kind and rank are legal, in the order of the bits."""
    value = int.from_bytes(data, "little")
    layout, rank = layout_and_rank(value)
    values = extract(value, layout, rank)
    places: dict[tuple[str, int | None], list[BitField]] = {}
    for field in fields_of(layout, rank):
        places.setdefault((field.name, field.index), []).append(field)
    return tuple(
        FieldValue(
            fields[0].label, " + ".join(f.bits for f in fields), values[key], _meaning(fields[0].name, values[key])
        )
        for key, fields in places.items()
    )


_DRIVER_DEFECT = tuple(field for field in FIELDS if field.name == "driver_defect")
# What the values of a field mean, where they are of an enumeration.
MEANINGS: dict[str, dict[int, str]] = {
    "is_im2col": {0: "tiled", 1: "im2col"},
    "element_format": {row.element_format: str(member) for member, row in DATA_TYPES.items() if not row.tf32},
    "interleave": {int(member): str(member) for member in Interleave},
    "swizzle_mode": {row.swizzle_mode: str(member) for member, row in SWIZZLES.items() if not row.swizzle_atomicity},
    "oob_fill": {int(member): str(member) for member in OobFill},
    "l2_promotion": {int(member): str(member) for member in L2Promotion},
}


def _meaning(name: str, value: int) -> str:
    return MEANINGS[name].get(value, "unknown") if name in MEANINGS else ""


def has_driver_defect(data: bytes) -> bool:
    """Whether the bit is set that drivers before 595 set wrongly on Blackwell."""
    return any(
        int.from_bytes(data[8 * field.word : 8 * field.word + 8], "little") & field.mask for field in _DRIVER_DEFECT
    )


def reserved_bits(data: bytes) -> tuple[str, ...]:
    """The set bits that hold nothing known, each as ``w1[22]``, for bytes whose kind and rank are legal."""
    value = int.from_bytes(data, "little")
    unknown = value & ~known_bits(*layout_and_rank(value))
    return tuple(f"w{bit // 64}[{bit % 64}]" for bit in range(8 * SIZE) if unknown >> bit & 1)
