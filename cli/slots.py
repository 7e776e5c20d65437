"""``cupytma slots``: the eight slots of a tensor map, and what the device writes in them."""

from __future__ import annotations

from typing import Any

import click

from cupytma.targets import TARGETS, Feature, Target
from cupytma.tensormap import MUTATORS, Mutator, Slot, TensorMap
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import SLOT_ALIGNMENT

from .descriptor_reading import read_described
from .options import Source, TargetName
from .output import kept_together, paragraph, show, show_json

# Its rank bits mean nothing, so that its slots are those of every kind and rank.
_OF_EVERY_KIND = TensorMap(b"\xff" * SIZE)
_LAYOUT_OF_MEMORY = (
    f"In memory a slot for a whole map is {SIZE} bytes, aligned to {SLOT_ALIGNMENT}: the payload above is its first "
    "half. Of the maps that are appended to a kernel's parameters, pointers to slots that the device makes maps in "
    "(CUtensorMap*) come first, then the maps of the host (const __grid_constant__ CUtensorMap)."
)


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma slots\n"
    "  cupytma slots map.bin\n"
    "  cupytma encode tiled --from map.toml -o hex | cupytma slots - --json"
)
@click.argument("source", nargs=-1, type=Source())
@click.option("--target", type=TargetName(), help="Whose tensormap.replace; by default that of every target.")
@click.option("--json", "as_document", is_flag=True, help="Print them as JSON.")
def slots(source: tuple[str, ...], target: Target | None, as_document: bool) -> None:
    """Show the slots of a tensor map, and what the device writes.

    The first 64 bytes are seen as eight slots of 64 bits, as tile compilers name them; beside each name stands what the
    bits really hold. With a SOURCE (in any form that `cupytma decode` reads) the slots of that map; without, those of
    every kind, and the fields that tensormap.replace writes.
    """
    found = (read_described(source).tensor_map if source else _OF_EVERY_KIND).slots()
    fields = [mutator for mutator in MUTATORS.values() if _is_on(mutator, target)]
    if as_document:
        rows = [_slot_document(slot, bool(source)) for slot in found]
        show_json({"slots": rows, "replace_fields": [_field_document(mutator, target) for mutator in fields]})
        return
    show("Slots: the first 64 bytes", style="bold")
    for slot in found:
        _print_slot(slot, bool(source))
    if source:
        return
    show("\nFields of tensormap.replace" + (f" on {target}" if target else ""), style="bold")
    if not fields:
        having = ", ".join(t.name for t in TARGETS.values() if t.has(Feature.TENSORMAP_REPLACE))
        show(paragraph(f"none: {target} has no tensormap.replace; targets that do: {having}", 2, 2))
    else:
        for mutator in fields:
            _print_field(mutator, target)
    show("", paragraph(_LAYOUT_OF_MEMORY))


def _print_slot(slot: Slot, has_value: bool) -> None:
    value = f"  {slot.value:#018x}" if has_value else ""
    show(paragraph(f"+{slot.offset:<3} {slot.name}{value}", 2, 5))
    lines = [
        slot.meaning,
        *([f"holds: {', '.join(map(kept_together, slot.holds))}"] if slot.holds else []),
        *([f"written by: {', '.join(slot.mutators)}"] if slot.mutators else []),
        *(f"differs: {entry}" for entry in slot.differences),
    ]
    show(*(paragraph(line, 7, 2) for line in lines))


def _print_field(mutator: Mutator, target: Target | None) -> None:
    ordinals = f", ordinal 0 to {mutator.ordinals - 1}" if mutator.ordinals else ""
    places = dict.fromkeys(place.bits for i in range(mutator.ordinals or 1) for place in mutator.places(i))
    having, all_having = (
        [name for name, other in TARGETS.items() if has(other)]
        for has in (lambda other: _is_on(mutator, other), lambda other: other.has(Feature.TENSORMAP_REPLACE))
    )
    parameter = f" ({mutator.parameter})" if mutator.parameter != mutator.field else ""
    show(paragraph(f"{mutator.field}{parameter}: {_operand(mutator, target)}{ordinals}", 2, 2))
    show(paragraph(f"writes: {', '.join(places)}", 7, 2))
    if target is None and having != all_having:
        show(paragraph(f"on: {', '.join(having)}", 7, 2))


def _is_on(mutator: Mutator, target: Target | None) -> bool:
    """Whether a target's tensormap.replace has a field."""
    if target is None:
        return True
    return target.has(Feature.TENSORMAP_REPLACE) and (not mutator.choices or mutator.limit(target) > 0)


def _operand(mutator: Mutator, target: Target | None) -> str:
    if mutator.choices:
        count = len(mutator.choices) if target is None else mutator.limit(target)
        return f"immediate 0 to {count - 1}"
    return f".b{mutator.operand_bits}" + (f", {mutator.parameter} - {mutator.offset}" if mutator.offset else "")


def _slot_document(slot: Slot, has_value: bool) -> dict[str, Any]:
    return {
        "slot": slot.name, "offset": slot.offset, "value": f"{slot.value:#018x}" if has_value else None,
        "meaning": slot.meaning, "holds": list(slot.holds), "written_by": list(slot.mutators),
        "documented_as_written_by": list(slot.documented_mutators), "differences": list(slot.differences),
    }  # fmt: skip


def _field_document(mutator: Mutator, target: Target | None) -> dict[str, Any]:
    return {
        "field": mutator.field, "parameter": mutator.parameter, "operand": _operand(mutator, target),
        "ordinals": mutator.ordinals,
        "writes": [[place.bits for place in mutator.places(i)] for i in range(mutator.ordinals or 1)],
        "targets": [name for name, other in TARGETS.items() if _is_on(mutator, other)],
    }  # fmt: skip
