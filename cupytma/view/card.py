"""A tensor map as a card for notebooks: self-contained HTML, at home in light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from typing import Any

from cupytma.errors import DescriptorError
from cupytma.targets import DEFAULT_TARGET, Target, target
from cupytma.tensormap.enums import DriverEnum
from cupytma.tensormap.tensor_map import TensorMap

# Colours are the page's own, thinned out, so that the card suits any theme; nothing is loaded and nothing runs.
_STYLE = """
.cupytma-card{display:inline-block;max-width:100%;font:13px/1.45 system-ui,sans-serif;color:inherit;
border:1px solid color-mix(in srgb,currentColor 25%,transparent);border-radius:6px;padding:.6em .9em}
.cupytma-card table{border-collapse:collapse;margin:.3em 0;color:inherit;background:none}
.cupytma-card td,.cupytma-card th{text-align:left;padding:.1em 1em .1em 0;border:0;background:none;color:inherit;
vertical-align:top}
.cupytma-card th{font-weight:600;opacity:.7}
.cupytma-card td{font-variant-numeric:tabular-nums}
.cupytma-card code,.cupytma-card pre{font-family:ui-monospace,monospace;background:none;color:inherit;margin:.2em 0}
.cupytma-card summary{cursor:pointer;opacity:.8}
.cupytma-card .note{border-left:3px solid #b8860b;padding-left:.6em;margin:.3em 0}
.cupytma-card .bad{border-left-color:#c0392b}
"""
_WORDS_PER_LINE = 4


def card(tensor_map: TensorMap, for_target: str | Target = DEFAULT_TARGET) -> str:
    """HTML of everything a tensor map says: parameters, bytes of a load, warnings, fields with their bits, words.

    Parameters
    ----------
    tensor_map : TensorMap
        Any 128 bytes; what cannot be decoded is said and shown as words.
    for_target : str or Target
        Whose rules the warnings are of. Default ``"sm_90a"``.
    """
    parts = [*_summary(tensor_map, target(for_target)), *_field_table(tensor_map), _words(tensor_map)]
    return f'<div class="cupytma-card"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _summary(tensor_map: TensorMap, for_target: Target) -> Iterable[str]:
    try:
        parameters = tensor_map.decode()
    except DescriptorError as error:
        return "<strong>Tensor map, undecodable</strong>", _note(str(error), bad=True)
    rows = [(field.name, _shown(field.name, getattr(parameters, field.name))) for field in fields(parameters)]
    rows += [
        ("one load moves", f"{tensor_map.box_bytes} bytes"),
        ("shared alignment", f"{tensor_map.shared_alignment} bytes"),
    ]
    notes = [
        *(_note(str(broken), bad=True) for broken in parameters.violations(for_target)),
        *(_note(str(warning)) for warning in parameters.warnings(for_target)),
    ]
    title = f"Tensor map: {parameters.kind}, rank {parameters.rank}, {parameters.data_type}"
    return f"<strong>{escape(title)}</strong>", _table((), rows), *notes


def _field_table(tensor_map: TensorMap) -> Iterable[str]:
    try:
        found = tensor_map.fields()
    except DescriptorError:
        return ()  # without a rank it is unknown which fields there are
    rows = [(f.bits, f.label, _shown(f.label, f.value), f.meaning) for f in found]
    rows += [(bit, "reserved", "1", "") for bit in tensor_map.reserved_bits]
    return (_folded(f"Bit fields ({len(rows)})", _table(("Bits", "Field", "Value", "Meaning"), rows)),)


def _words(tensor_map: TensorMap) -> str:
    words = [f"{word:016x}" for word in tensor_map.words]
    lines = (
        f"w{i:<3} {' '.join(words[i : i + _WORDS_PER_LINE])}" for i in range(0, len(words), _WORDS_PER_LINE)
    )
    return _folded("Words", f"<pre>{'&#10;'.join(lines)}</pre>")


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = f"<tr>{''.join(f'<th>{escape(heading)}</th>' for heading in headings)}</tr>" if headings else ""
    return f"<table>{head}{''.join(map(_row, rows))}</table>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _note(text: str, bad: bool = False) -> str:
    return f'<div class="note{" bad" if bad else ""}">{escape(text)}</div>'


def _shown(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:#x}" if name == "global_address" and not isinstance(value, DriverEnum) else str(value)
