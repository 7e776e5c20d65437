"""Why a tiling is correct or not, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cupytma.limits import MAX_BOX
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.sim.model.tiling import Correctness, Dimension


def reasons(tiling: Correctness) -> tuple[str, ...]:
    """The sentences, dimension by dimension, then what to do."""
    numbered = list(enumerate(tiling.dimensions))
    found = list(tiling.notes)
    for number, dimension in numbered:
        found += (f"dimension {number}: {sentence}" for sentence in _about(dimension, tiling.op))
    if not found:
        found.append("boxes and element strides divide everything: there are no holes")
    if tiling.unfilled_holes:
        found += _numbers(tiling)
    if tiling.overwritten:
        found.append(
            f"{tiling.overwritten} elements outside the tensor are overwritten; store through a map whose innermost "
            "extent is cut to whole 16 bytes and write the rest with ordinary stores, or own the padding"
        )
    longest = None if tiling.data_type is None else MAX_BOX
    for number, dimension in numbered:
        if dimension.unfilled_holes:
            found.append(f"dimension {number}: {_remedy(dimension, tiling.op, longest)}")
    return tuple(found)


def _about(d: Dimension, op: str) -> Iterator[str]:
    """What happens along one dimension; nothing where everything divides."""
    if d.unfilled_holes:
        fate = "holds an element of the next box instead of the fill"
        if op == "store":
            fate = "is written to an element of the next box, which a tile of that box writes too, in no promised order"
        yield (
            f"element stride {d.element_stride} does not divide box {d.box}: tiles of {d.tile} reach over {d.reach} "
            f"positions, {d.reach - d.box} past their box, and the box is shorter than the extent {d.extent}; holes "
            f"inside the tensor: {d.unfilled_holes} of {counted(d.slots, 'slot')}, each {fate}"
        )
    outside = d.slots - d.inside
    if outside:
        fate = "each holds the fill" if op == "load" else "not written"
        if d.overwritten:
            fate += f" but for the {d.overwritten} that complete the last 16 bytes of a row"
        yield (
            f"{counted(d.boxes, 'box')} of {d.box} over the extent {d.extent}; holes outside the tensor: {outside} of "
            f"{counted(d.slots, 'slot')}, {fate}"
        )


def _numbers(tiling: Correctness) -> Iterator[str]:
    if len(tiling.dimensions) > 1:
        what = "hold data" if tiling.op == "load" else "are written"
        yield f"all dimensions together: {tiling.unfilled_holes} of {tiling.slots} slots are holes that {what}"
    if tiling.op == "load":
        how = "a guard can make it strongly so" if tiling.strong_achievable else "no guard can make it strongly so"
        yield f"nothing outside the tensor is read, so it is weakly correct; {how}"


def _remedy(d: Dimension, op: str, longest: int | None) -> str:
    """What to change, for a dimension with unfilled holes; boxes may be as long as `longest`."""
    multiple = d.box // d.element_stride * d.element_stride
    boxes = [box for box in (multiple, multiple + d.element_stride) if box and box <= (longest or box)]
    change = f"make the box a multiple of {d.element_stride} ({' or '.join(map(str, boxes))})"
    if d.level < 3:
        target = "load it from -box_dim, where the unit fills all of it" if op == "load" else "do not store it"
        return f"a tile that starts {d.box} or more past the start of its box holds no element: {target}; or {change}"
    if d.extent <= (longest or d.extent):
        change += f", or at least {d.extent}"
    return (
        f"{d.element_stride} < {d.box} < {d.extent} and {d.element_stride} does not divide {d.box}, so some tiles hold "
        f"both elements and such slots; {change}"
    )
