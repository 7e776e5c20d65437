"""What may stand in the place of an operand in PTX text, as the assembler has it.

Measured with ptxas 13.0 and NVRTC 12.9. The assembler cuts a number that is too wide for its operand, and takes counts
of arrivals beyond what the PTX ISA's "Contents of the mbarrier object" has; those are refused.
"""

from __future__ import annotations

import math
import re
import struct

from cupytma.errors import EmissionError
from cupytma.ptx.checks import shown
from cupytma.ptx.instruction import spoken_range
from cupytma.ptx.operands import Operand

_NUMBER = re.compile(r"-?[.0-9][\w.+-]*")
INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|(?P<oct>0[0-7]+)|0|[1-9][0-9]*)[uU]?")
_FLOAT = re.compile(
    r"0(?:[fF](?P<single>[0-9a-fA-F]{8})|[dD](?P<double>[0-9a-fA-F]{16}))"
    r"|-?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
)
_OFFSET = re.compile(r".+[+-]")
_BITS = {"b16": 16, "u16": 16, "b32": 32, "u32": 32, "s32": 32, "b64": 64, "u64": 64}
_MOST_DIGITS = 100


def number(name: str, text: str) -> int:
    """The value of an integer literal of PTX, where a leading zero means octal.

    Raises
    ------
    EmissionError
        If it is none.
    """
    literal = INTEGER.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    if literal is None:
        raise EmissionError(f"{name}={shown(text)} is no integer that PTX could take")
    return int(text.rstrip("uU"), 8 if literal["oct"] else 0)


def refuse_operand(operand: Operand, text: str, *, has_coordinates: bool) -> None:
    """Refuse what the assembler does not take in an operand's place.

    Raises
    ------
    EmissionError
        For an offset to a tensor map beside coordinates, a number where a register must be, a number of another kind,
        and one that is out of range.
    """
    if has_coordinates and _OFFSET.match(text):
        raise EmissionError(
            f"{operand.name}={shown(text)}: an address beside coordinates takes no offset; add it to a register before"
        )
    if operand.is_output and text.startswith("!"):
        raise EmissionError(f"{operand.name}={shown(text)} is negated; an output is a register")
    if operand.is_immediate or operand.space or not _NUMBER.fullmatch(text):
        return
    if operand.is_output or operand.packed:
        raise EmissionError(f"{operand.name}={shown(text)} is a number; only a register can be here")
    if operand.type == "f32":
        _fraction(operand.name, text)
        return
    value = number(operand.name, text)
    if operand.literals is not None and value not in operand.literals:
        raise EmissionError(f"{operand.name}={shown(text)} is out of range; legal: {spoken_range(operand.literals)}")


def unfit(operand: Operand, text: str) -> list[str]:
    """A note on a number that the assembler cuts to the operand's width without a word."""
    width = _BITS.get(operand.type)
    if width is None or operand.is_immediate or operand.space or not _NUMBER.fullmatch(text):
        return []
    fits = -(1 << (width - 1)) <= number(operand.name, text) < 1 << width
    return [] if fits else [f"{operand.name} has {width} bits, to which the assembler cuts {text}"]


def _fraction(name: str, text: str) -> None:
    """Refuse what is no fraction: the only float that the family reads is createpolicy's."""
    literal = _FLOAT.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    if literal is None:
        raise EmissionError(f"{name}={shown(text)} is no float that PTX could take; write 0.5 or 0f3F000000")
    bits = bytes.fromhex(literal["single"] or literal["double"] or "")
    value = struct.unpack(">f" if literal["single"] else ">d", bits)[0] if bits else float(text)
    if math.isnan(value) or not 0 < value <= 1:
        raise EmissionError(f"{name}={shown(text)} is out of range; legal: above 0, up to 1.0")
