"""A tensor map as a card for notebooks: self-contained HTML, at home in light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from html import escape
from typing import Any

from cupytma.errors import DescriptorError
from cupytma.targets import DEFAULT_TARGET, Target, target
from cupytma.tensormap.enums import DriverEnum
from cupytma.tensormap.parameters import Parameters
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.view.html import folded, framed, note, table

_WORDS_PER_LINE = 4


def card(tensor_map: TensorMap | Parameters, for_target: str | Target = DEFAULT_TARGET) -> str:
    """HTML of everything a tensor map says: parameters, bytes of a load, warnings, fields with their bits, words.

    Parameters
    ----------
    tensor_map : TensorMap or Parameters
        Any 128 bytes; what cannot be decoded is said and shown as words. Parameters are shown with the rules that they
        break, if any, and without fields and words.
    for_target : str or Target
        Whose rules the warnings are of. Default ``"sm_90a"``.
    """
    chosen = target(for_target)
    if isinstance(tensor_map, Parameters):
        rows = [("one load moves", f"{tensor_map.transaction_bytes} bytes")] * (not tensor_map.violations(chosen))
        return framed(_parameters("Parameters", tensor_map, rows, chosen))
    parts = [*_summary(tensor_map, chosen), *_field_table(tensor_map), _words(tensor_map)]
    return framed(parts)


def _summary(tensor_map: TensorMap, for_target: Target) -> Iterable[str]:
    try:
        parameters = tensor_map.decode()
    except DescriptorError as error:
        return "<strong>Tensor map, undecodable</strong>", note(str(error), bad=True)
    rows = [
        ("one load moves", f"{tensor_map.box_bytes} bytes"),
        ("shared alignment", f"{tensor_map.shared_alignment} bytes"),
    ]
    return _parameters("Tensor map", parameters, rows, for_target)


def _parameters(what: str, parameters: Any, rows: list[tuple[str, str]], for_target: Target) -> Iterable[str]:
    """Title, parameters with further rows, and what is wrong with them or surprising."""
    named = [(field.name, _shown(field.name, getattr(parameters, field.name))) for field in fields(parameters)]
    broken = parameters.violations(for_target)
    notes = [
        *(note(str(violation), bad=True) for violation in broken),
        *(note(str(warning)) for warning in parameters.warnings(for_target)),
    ]
    title = f"{what}: {parameters.kind}, rank {parameters.rank}, {parameters.data_type}"
    return f"<strong>{escape(title)}</strong>", table((), [*named, *rows]), *notes


def _field_table(tensor_map: TensorMap) -> Iterable[str]:
    try:
        found = tensor_map.fields()
    except DescriptorError:
        return ()  # without a rank it is unknown which fields there are
    rows = [(f.bits, f.label, _shown(f.label, f.value), f.meaning) for f in found]
    rows += [(bit, "reserved", "1", "") for bit in tensor_map.reserved_bits]
    return (folded(f"Bit fields ({len(rows)})", table(("Bits", "Field", "Value", "Meaning"), rows)),)


def _words(tensor_map: TensorMap) -> str:
    words = [f"{word:016x}" for word in tensor_map.words]
    lines = (
        f"w{i:<3} {' '.join(words[i : i + _WORDS_PER_LINE])}" for i in range(0, len(words), _WORDS_PER_LINE)
    )
    return folded("Words", f"<pre>{'&#10;'.join(lines)}</pre>")


def _shown(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:#x}" if name == "global_address" and not isinstance(value, DriverEnum) else str(value)
