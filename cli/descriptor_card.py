"""A tensor map as tables: what it describes, where each value is in the bits, and the words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any

from cupytma.errors import DescriptorError
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap import TensorMap, Violation
from cupytma.tensormap.enums import DriverEnum

from .output import paragraph, show, show_rows, text_width

_WORDS_PER_ROW = (4, 2, 1)
_WORD_WIDTH = 18  # 16 digits and what is between two words
_ENCODING = {True: "as seen from a driver", False: "from documentation; not yet seen from a driver"}
_ADDRESS, _NULL_ADDRESS = "global_address", "null-address"


def print_card(tensor_map: TensorMap, target: Target | None, address_name: str = "") -> None:
    """Print everything a tensor map says. Bits without a meaning leave the parameters out.

    Parameters
    ----------
    tensor_map : TensorMap
    target : Target or None
        What it was encoded for, where that is known.
    address_name : str, optional
        What stands for the address, which is 0 in the bytes.
    """
    for title, headings, rows, right, prose in _sections(tensor_map, target, address_name):
        show(title, style="bold")
        show_rows(headings, rows, right, prose)
        show("")
    show("Words 0 to 15 of 64 bits, little-endian", style="bold")
    show(*_word_lines(tensor_map))
    _print_warnings([w for w in _warnings(tensor_map, target) if not (address_name and w.rule == _NULL_ADDRESS)])


Section = tuple[str, tuple[str, ...], list[tuple[str, ...]], tuple[str, ...], tuple[str, ...]]


def _sections(tensor_map: TensorMap, target: Target | None, address_name: str) -> list[Section]:
    bits: list[tuple[str, ...]] = [
        (
            field.bits, field.label, _value(field.label, field.value),
            f"to be {address_name}" if address_name and field.label == _ADDRESS else field.meaning,
        )
        for field in tensor_map.fields()
    ]  # fmt: skip
    reserved = tensor_map.reserved_bits
    bits.append((", ".join(reserved) or "all other bits", "reserved", "1" if reserved else "0", ""))
    headings = ("Bits", "Field", "Value", "Meaning")
    found: list[Section] = [("Bit fields", headings, bits, ("Value",), ("Bits",))]
    with suppress(DescriptorError):  # the caller says which bits have no meaning; the fields are still worth seeing
        found.insert(0, _description(tensor_map, target, address_name))
    return found


def _description(tensor_map: TensorMap, target: Target | None, address_name: str) -> Section:
    parameters = tensor_map.decode()
    rows: list[tuple[str, ...]] = [
        (field.name, _shown(field.name, getattr(parameters, field.name))) for field in fields(parameters)
    ]
    if address_name:
        rows = [(name, f"{address_name}, filled in later" if name == _ADDRESS else value) for name, value in rows]
    rows += [
        ("one load moves", f"{tensor_map.box_bytes} B, the transaction count of its mbarrier"),
        ("shared alignment", f"{tensor_map.shared_alignment} B"),
        ("encoding", _ENCODING[tensor_map.verified]),
    ]
    kind = parameters.kind.replace("_", "-")
    title = f"Tensor map: {kind}, rank {parameters.rank}" + (f", for {target}" if target else "")
    return title, ("", ""), rows, (), ()


def _warnings(tensor_map: TensorMap, target: Target | None) -> tuple[Violation, ...]:
    try:
        return tensor_map.warnings(target or DEFAULT_TARGET)
    except DescriptorError:
        return ()


def _print_warnings(warnings: list[Violation]) -> None:
    if warnings:
        show("\nWarnings: legal and surprising", style="bold")
    for warning in warnings:
        show(f"  {warning.rule}", paragraph(warning.message, 4), paragraph(f"fix: {warning.fix}", 4, 5))


def _word_lines(tensor_map: TensorMap) -> Iterator[str]:
    words = [f"{word:016x}" for word in tensor_map.words]
    width = text_width() - 7 + 2  # what is before the first word, and not behind the last
    count = next((n for n in _WORDS_PER_ROW if n * _WORD_WIDTH <= width), 1)
    for first in range(0, len(words), count):
        yield f"  w{first:<3} {'  '.join(words[first : first + count])}"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) if isinstance(value, DriverEnum) else _value(name, value)


def _value(name: str, value: int) -> str:
    return f"{value:#x}" if name == _ADDRESS else str(value)
