"""A tensor map as tables: what it describes, where each value is in the bits, and the words."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import Any

from cupytma.errors import DescriptorError
from cupytma.targets import Target
from cupytma.tensormap import TensorMap
from cupytma.tensormap.enums import DriverEnum

from .output import show, table

_WORDS_PER_ROW = 4
_ENCODING = {True: "as seen from a driver", False: "from documentation; not yet seen from a driver"}


def print_card(tensor_map: TensorMap, target: Target | None) -> None:
    """Print everything a tensor map says. Bits without a meaning leave the parameters out.

    Parameters
    ----------
    tensor_map : TensorMap
    target : Target or None
        What it was encoded for, where that is known.
    """
    for title, headings, rows, right in _sections(tensor_map, target):
        show(title, style="bold")
        show(table(headings, rows, right), "")
    words = [f"{word:016x}" for word in tensor_map.words]
    lines = (
        f"  w{first:<3} {'  '.join(words[first : first + _WORDS_PER_ROW])}"
        for first in range(0, len(words), _WORDS_PER_ROW)
    )
    show("Words 0 to 15 of 64 bits, little-endian", style="bold")
    show(*lines)


Section = tuple[str, tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]


def _sections(tensor_map: TensorMap, target: Target | None) -> list[Section]:
    bits: list[tuple[str, ...]] = [
        (field.bits, field.label, _value(field.label, field.value), field.meaning) for field in tensor_map.fields()
    ]
    reserved = tensor_map.reserved_bits
    bits.append((", ".join(reserved) or "all other bits", "reserved", "1" if reserved else "0", ""))
    found: list[Section] = [("Bit fields", ("Bits", "Field", "Value", "Meaning"), bits, ("Value",))]
    with suppress(DescriptorError):  # the caller says which bits have no meaning; the fields are still worth seeing
        found.insert(0, _description(tensor_map, target))
    return found


def _description(tensor_map: TensorMap, target: Target | None) -> Section:
    parameters = tensor_map.decode()
    rows: list[tuple[str, ...]] = [
        (field.name, _shown(field.name, getattr(parameters, field.name))) for field in fields(parameters)
    ]
    rows += [
        ("one load moves", f"{tensor_map.box_bytes} B, the transaction count of its mbarrier"),
        ("shared alignment", f"{tensor_map.shared_alignment} B"),
        ("encoding", _ENCODING[tensor_map.verified]),
    ]
    title = f"Tensor map: {parameters.kind}, rank {parameters.rank}" + (f", for {target}" if target else "")
    return title, ("", ""), rows, ()


def _shown(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) if isinstance(value, DriverEnum) else _value(name, value)


def _value(name: str, value: int) -> str:
    return f"{value:#x}" if name == "global_address" else str(value)
