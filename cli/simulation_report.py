"""What is printed of simulated copies: in words and pictures, or as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from cupytma.words import counted

from .output import paragraph, show, show_rows, text_width
from .pictures import show_cells

if TYPE_CHECKING:
    from .simulation import Copy, Operation, Start

DIRECTIONS = {
    "load": "global to shared memory", "store": "shared to global memory",
    "reduce": "shared memory into global memory", "prefetch": "to the L2 cache",
}  # fmt: skip
"""The directions of copies, and what each moves."""

_VALUES_SHOWN = 200
_ROOMY = 70  # columns of text in which matrices show three columns at each side, and tables all they have


def show_copies(operation: Operation, copies: Sequence[Copy], output: str, limit: int) -> None:
    """Print copies: a single one in full, of several a line for each.

    Parameters
    ----------
    operation : Operation
    copies : sequence of Copy
    output : str
        Of a single one: ``"summary"``, ``"hex"`` or ``"elements"``.
    limit : int
        Lines of bytes, elements or copies; 0 for all.
    """
    if len(copies) > 1:
        _show_many(operation, copies, limit)
        return
    (copy,) = copies
    if copy.fault is not None:
        _show_fault(operation, copy)
    elif output == "summary":
        _show_summary(operation, copy)
    elif output == "hex":
        _show_hex(operation, copy, limit)
    else:
        _show_elements(operation, copy, limit)


def _title(operation: Operation) -> str:
    p = operation.parameters
    mode = f", mode {operation.mode}" if operation.mode else ""
    op = f" {operation.op}" if operation.direction == "reduce" else ""
    title = f"{operation.direction.capitalize()}{op} of {p.data_type}, {p.kind}{mode}"
    return f"{title}: {DIRECTIONS[operation.direction]}"


def _place(start: Start) -> str:
    return ", ".join(map(str, start))


def _show_fault(operation: Operation, copy: Copy) -> None:
    show(paragraph(_title(operation)), style="bold")
    show(paragraph(f"at {_place(copy.start)}: the kernel dies, and nothing is moved", 2), style="bold red")
    show(paragraph(str(copy.fault), 2, 2))


def _show_summary(operation: Operation, copy: Copy) -> None:
    from . import box_picture

    assert copy.tile is not None
    show(paragraph(_title(operation)), style="bold")
    show_rows(("", ""), _summary(operation, copy))
    show("")
    p = operation.parameters
    for line in box_picture.box_picture(p, copy.tile, text_width() - 2):
        show_cells(f"  {line}")
    for line in (box_picture.legend(copy.tile, operation.stores), *box_picture.other_dimensions(p, copy.tile)):
        show(paragraph(line, 2))
    if operation.direction != "prefetch":
        show("")
        _show_values(operation, copy)


def _summary(operation: Operation, copy: Copy) -> list[tuple[str, str]]:
    tile, p = copy.tile, operation.parameters
    assert tile is not None
    assert copy.shared is not None
    what = {0: "slices", 1: "elements"}.get(tile.unit_elements, f"groups of {counted(tile.unit_elements, 'element')}")
    rows = [("start", _place(copy.start))]
    if operation.offsets:
        rows.append(("offsets", _place(operation.offsets)))
    if operation.direction == "load":
        rows.append(("transaction", f"{copy.transaction_bytes:,} B, what the mbarrier must expect"))
    if operation.direction != "prefetch":
        first = operation.shared_offset
        rows.append(("shared memory", f"bytes {first} to {copy.shared.size - 1}, swizzle {p.swizzle}"))
    rows.append((what, f"{copy.inside:,} in bounds, {copy.outside:,} out of bounds"))
    if copy.past_rows:
        past = f"{copy.past_rows} B are written after the tensor's rows: 16 B are written whole"
        rows.append(("past the rows", past))
    known = "as measured on hardware" if copy.verified else "from documents; not measured"
    rows.append(("simulated", known))
    return rows


def _show_values(operation: Operation, copy: Copy) -> None:
    import numpy as np

    from .simulation import tile_values

    values = tile_values(copy, operation)
    if values.dtype.kind not in "iu":
        values = values.astype(np.float64)  # printed alike, whatever their precision
    shape = " × ".join(map(str, values.shape))
    held = "is stored" if operation.stores else "arrives"
    rows = values.reshape(-1, values.shape[-1])
    title = f"The tile that {held}, {shape}{' as rows' if values.ndim > 2 else ''}, the swizzle undone"
    show(paragraph(title), style="bold")
    width = text_width() - 2
    edge = 3 if width >= _ROOMY else 2
    text = np.array2string(
        rows, max_line_width=width, threshold=_VALUES_SHOWN, edgeitems=edge, precision=4, suppress_small=True
    )
    show(*(f"  {line}" for line in text.splitlines()))


def _show_limited(lines: Iterable[Any], limit: int, total: int) -> tuple[list[Any], str]:
    """The first of some lines, and what to say of the others."""
    shown = list(lines if not limit else islice(lines, limit))
    left = total - len(shown)
    return shown, f"… and {left} more; --limit 0 prints all" if left > 0 else ""


def _show_hex(operation: Operation, copy: Copy, limit: int) -> None:
    from .shared_memory import hex_lines

    lines = list(hex_lines(copy, operation, text_width()))
    shown, rest = _show_limited(lines, limit, len(lines))
    show(*shown, *([rest] if rest else []))


def _show_elements(operation: Operation, copy: Copy, limit: int) -> None:
    from .shared_memory import element_rows

    shown, rest = _show_limited(element_rows(copy, operation), limit, copy.entries)
    headings = ("byte", "value", "coordinates", "global address")
    columns = len(headings) - (text_width() < _ROOMY)
    show_rows(headings[:columns], [row[:columns] for row in shown], right=headings[:2])
    if rest:
        show(rest)


def _show_many(operation: Operation, copies: Sequence[Copy], limit: int) -> None:
    show(paragraph(_title(operation)), style="bold")
    shown, rest = _show_limited((_row(copy) for copy in copies), limit, len(copies))
    headings = ("start", "bytes", "inside", "outside", "fault")
    faults = [copy for copy in copies if copy.fault is not None]
    columns = len(headings) - (not faults)
    show_rows(headings[:columns], [row[:columns] for row in shown], right=headings[1:4])
    if rest:
        show(rest)
    done = counted(len(copies), "copy")
    if operation.direction == "load":
        done += f", {sum(copy.transaction_bytes for copy in copies):,} B for mbarriers"
    if past := sum(copy.past_rows for copy in copies):
        done += f", {past} B written after the tensor's rows"
    show(paragraph(done))
    if faults:
        show(paragraph(f"{len(faults)} of them kill the kernel; the first:"), style="bold red")
        show(paragraph(str(faults[0].fault), 2, 2))


def _row(copy: Copy) -> tuple[str, ...]:
    if copy.fault is not None:
        return (_place(copy.start), "", "", "", "dies")
    return _place(copy.start), str(copy.bytes), str(copy.inside), str(copy.outside), ""


def facts_of(operation: Operation, copies: Sequence[Copy]) -> dict[str, Any]:
    """Copies as plain values: of a single one the whole tile too."""
    facts: dict[str, Any] = {
        "direction": operation.direction,
        "mode": operation.mode,
        "data_type": str(operation.parameters.data_type),
        "swizzle": str(operation.parameters.swizzle),
        "shared_offset": operation.shared_offset,
        "copies": [_copy_facts(copy) for copy in copies],
    }
    if len(copies) == 1 and copies[0].tile is not None and operation.direction != "prefetch":
        facts["tile"] = _tile_facts(operation, copies[0])
    return facts


def _copy_facts(copy: Copy) -> dict[str, Any]:
    if copy.fault is not None:
        rules = [violation.rule for violation in getattr(copy.fault, "violations", ())]
        fault = {"kind": type(copy.fault).__name__, "message": str(copy.fault), "rules": rules}
        return {"start": copy.start, "fault": fault}
    return {
        "start": copy.start, "fault": None, "transaction_bytes": copy.transaction_bytes, "in_bounds": copy.inside,
        "out_of_bounds": copy.outside, "bytes_past_rows": copy.past_rows, "verified": copy.verified,
    }  # fmt: skip


def _tile_facts(operation: Operation, copy: Copy) -> dict[str, Any]:
    from .shared_memory import plain_values
    from .simulation import tile_values

    tile = copy.tile
    assert tile is not None
    assert copy.shared is not None
    values = tile_values(copy, operation)
    return {
        "shape": values.shape, "values": plain_values(values), "shared": bytes(copy.shared).hex(),
        "entry_elements": tile.unit_elements, "entry_bytes": tile.unit_bytes,
        "shared_byte": tile.shared_byte.tolist(), "coordinates": tile.coordinates.tolist(),
        "inside": tile.inside.tolist(), "global_address": tile.global_address.tolist(),
    }  # fmt: skip
