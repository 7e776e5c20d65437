"""``cupytma swizzle``: what a swizzle does to a tile, what it costs to read, and which one to take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from cupytma.errors import CupytmaError, DescriptorError
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap import DataType, Swizzle, Tiled
from cupytma.tensormap.rule import FULL_RANK
from cupytma.words import counted

from .failures import Failure, violations_text
from .options import Integer, Integers, Member, Source, TargetName, Within
from .output import paragraph, show, show_json, show_rows, text_width
from .pictures import write_picture
from .swizzle_picture import ROWS, address_formula, chunk_formula, places, swizzle_picture

if TYPE_CHECKING:
    from cupytma.sim import BankConflicts, SwizzleAdvice

_ACCESSES = {
    "row": "threads along the rows",
    "column": "threads down the rows",
    "ldmatrix": "8 rows of 16 B, as ldmatrix reads",
}
_LINE = 128
_DEFAULT_ROWS = 64
_LARGEST_ROWS = 32
_WIDEST_READ = 16


@dataclass(frozen=True)
class _Question:
    """A tile and a way of reading it."""

    parameters: Tiled
    access: str
    access_bytes: int | None
    shared_offset: int
    target: Target

    @property
    def reading(self) -> dict[str, Any]:
        """What the simulator's functions take."""
        return {"access_bytes": self.access_bytes, "shared_offset": self.shared_offset}


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma swizzle 128B\n"
    "  cupytma swizzle --data-type FLOAT32 --box-dim 32,64 --access column\n"
    "  cupytma swizzle 64B --picture swizzle.svg"
)
@click.argument("name", metavar="[SWIZZLE]", required=False, type=Member(Swizzle))
@click.option(
    "--data-type", type=Member(DataType), default="FLOAT16", show_default=True, metavar="TYPE", help="Of the elements."
)
@click.option(
    "--box-dim", type=Integers(), metavar="N,N,…",
    help="The tile in elements, dimension 0 first.  [default: a span of the swizzle by 64 rows]",
)
@click.option(
    "--access", type=click.Choice(tuple(_ACCESSES)), default="column", show_default=True,
    help="How a warp reads the tile: " + "; ".join(f"{name}, {what}" for name, what in _ACCESSES.items()) + ".",
)
@click.option(
    "--access-bytes", type=Integer(), metavar="N",
    help="Of each thread at once: 1, 2, 4, 8 or 16.  [default: an element]",
)
@click.option(
    "--shared-offset", type=Integer(), default="0", show_default=True, metavar="N",
    help="Address of the tile in shared memory, in bytes.",
)
@click.option(
    "--target", type=TargetName(), default=str(DEFAULT_TARGET), show_default=True, help="Whose swizzles are considered."
)
@click.option("--rows", type=Within(1, _LARGEST_ROWS), default=ROWS, show_default=True, help="Of the picture.")
@click.option("--picture", type=Source(), metavar="FILE", help="Write the picture as SVG; - is standard output.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def swizzle(
    name: Swizzle | int | None,
    data_type: DataType | int,
    box_dim: tuple[int, ...] | None,
    access: str,
    access_bytes: int | None,
    shared_offset: int,
    target: Target,
    rows: int,
    picture: str | None,
    as_json: bool,
) -> None:
    """Draw a swizzle, give its index formula, count bank conflicts, and recommend one.

    Without SWIZZLE the recommended one is shown. The tile is BOX-DIM elements in shared memory, as one load brings it;
    conflicts are counted of a warp that reads all of it.
    """
    asked = _member(name, Swizzle)
    parameters = _tile(_member(data_type, DataType), box_dim, asked)
    question = _Question(parameters, access, access_bytes, shared_offset, target)
    advice = _advice(question)
    chosen = advice.swizzle if asked is None else asked
    if chosen in advice.illegal or all(result.swizzle != chosen for result in advice.results):
        raise _refusal(question, chosen)
    if picture is not None:
        from cupytma import view

        size = max(1, question.parameters.element_bits // 8)
        write_picture(picture, view.swizzle(chosen, element_size=size, rows=rows, base=question.shared_offset))
        if picture == "-":
            return
    if as_json:
        show_json(_facts(question, chosen, advice, rows))
    else:
        _show(question, chosen, advice, rows)


def _member(value: Any, enumeration: Any) -> Any:
    """A member, where a number was given; numbers that have none are refused."""
    try:
        return None if value is None else enumeration.of(value)
    except ValueError as error:
        raise Failure(str(error)) from None


def _tile(data_type: DataType, box: tuple[int, ...] | None, swizzle: Swizzle | None) -> Tiled:
    """Parameters of a tensor that is one tile."""
    if box is None:
        span = (swizzle.span if swizzle else 0) or _LINE
        one = Tiled(data_type=data_type, global_address=0, global_dim=(1,), box_dim=(1,))
        box = (8 * span // one.shared_bits, _DEFAULT_ROWS)
    if not 1 <= len(box) <= FULL_RANK or min(box) < 1:
        raise Failure(f"--box-dim is {box}; a box has 1 to {FULL_RANK} extents of 1 or above")
    return Tiled(data_type=data_type, global_address=0, global_dim=box, box_dim=box)


def _advice(question: _Question) -> SwizzleAdvice:
    """What the simulator recommends; where nothing is legal, every broken rule."""
    from cupytma import sim

    p = question.parameters
    broken = p.violations(question.target)
    if broken:
        raise Failure(violations_text(f"no load brings such a tile on {question.target}", broken))
    encoded = p.encode(question.target)
    return sim.best_swizzle(encoded, question.access, target=question.target, **question.reading)


def _refusal(question: _Question, chosen: Swizzle) -> Failure:
    broken = replace(question.parameters, swizzle=chosen).violations(question.target)
    if not broken:
        return Failure(f"swizzle {chosen} is documented for stores of {question.parameters.data_type} alone")
    return Failure(violations_text(f"this tile cannot have swizzle {chosen} on {question.target}", broken))


def _conflicts(question: _Question, swizzle: Swizzle, access: str) -> BankConflicts | None:
    """What reading the tile costs; None where it cannot be read like that."""
    from cupytma import sim

    encoded = replace(question.parameters, swizzle=swizzle).encode(question.target)
    own = question.access_bytes if access == question.access else None
    try:
        return sim.bank_conflicts(encoded, access, access_bytes=own, shared_offset=question.shared_offset)
    except CupytmaError:
        if access == question.access:
            raise
        return None


def _narrower(question: _Question, advice: SwizzleAdvice) -> str:
    """A way out where rows are longer than the spans of swizzles that have fewer conflicts; empty if there is none."""
    from cupytma import sim

    p = question.parameters
    if not advice.best.conflicts:
        return ""
    for swizzle in sorted(Swizzle, key=lambda s: -s.span):
        elements = 8 * swizzle.span // p.shared_bits
        if not 0 < elements < p.box_dim[0]:
            continue
        narrow = replace(p, box_dim=(elements, *p.box_dim[1:]), swizzle=swizzle)
        try:
            found = sim.bank_conflicts(narrow.encode(question.target), question.access, **question.reading)
        except DescriptorError:
            continue
        if found.conflicts < advice.best.conflicts / -(-p.box_dim[0] // elements):
            return (
                f"A box of {elements} elements in dimension 0 ({swizzle.span} B) may have swizzle {swizzle}: "
                f"{_counted(found)}. A wider tile is several such boxes; cupytma.plan_boxes says where they go."
            )
    return ""


def _wider_reads(question: _Question, advice: SwizzleAdvice) -> str:
    """The same where threads read 16 bytes at once; empty if that does not help."""
    best = advice.best
    if not best.conflicts or best.access_bytes >= _WIDEST_READ:
        return ""
    try:
        wide = _advice(replace(question, access_bytes=_WIDEST_READ)).best
    except CupytmaError:
        return ""
    if wide.conflicts >= best.conflicts:
        return ""
    return f"Reads of {_WIDEST_READ} B (--access-bytes {_WIDEST_READ}) have {_counted(wide)} with {wide.swizzle}."


def _counted(found: BankConflicts) -> str:
    conflicts = counted(found.conflicts, "conflict", spec=",")
    return f"{conflicts}, {found.worst}-way at worst" if found.conflicts else "no conflicts"


def _show(question: _Question, chosen: Swizzle, advice: SwizzleAdvice, rows: int) -> None:
    from cupytma.sim.swizzle import pattern_of

    width = text_width()
    title = f"Swizzle {chosen}: row:chunk in each 16 bytes of shared memory, 128 bytes a line"
    show(paragraph(title), style="bold")
    show(*swizzle_picture(chosen, rows, question.shared_offset, width), "")
    show("Index formulas, in C", style="bold")
    formulas = [("byte at a", address_formula(chosen)), ("chunk of a row", chunk_formula(chosen))]
    show_rows(("", ""), formulas)
    note = "a: absolute shared address, without the swizzle. chunk: 16 bytes, of a tile at a multiple of 1024."
    if pattern_of(chosen).flips:
        note += " ': in this line the 8-byte halves of every chunk have changed places."
    show(paragraph(note, 2))
    show("")
    p = question.parameters
    title = f"Bank conflicts of a {' × '.join(map(str, p.box_dim))} tile of {p.data_type}, read whole by one warp"
    show(paragraph(title), style="bold")
    headings = ("swizzle", *_ACCESSES, "bytes")
    show_rows(headings, [_row(question, result.swizzle) for result in advice.results], right=headings[1:])
    for refused, broken in advice.illegal.items():
        show(paragraph(f"{refused} cannot be had: {broken[0].message}", 2, 2))
    show("")
    show(paragraph(_recommendation(question, advice)), style="bold")
    for way_out in (_narrower(question, advice), _wider_reads(question, advice)):
        if way_out:
            show(paragraph(way_out))


def _row(question: _Question, swizzle: Swizzle) -> tuple[str, ...]:
    found = [_conflicts(question, swizzle, access) for access in _ACCESSES]
    tile_bytes = replace(question.parameters, swizzle=swizzle).tile_bytes
    return str(swizzle), *("-" if one is None else f"{one.conflicts:,}" for one in found), f"{tile_bytes:,}"


def _recommendation(question: _Question, advice: SwizzleAdvice) -> str:
    return f"Use {advice.swizzle} for {question.access} reads of {advice.best.access_bytes} B: {_counted(advice.best)}."


def _facts(question: _Question, chosen: Swizzle, advice: SwizzleAdvice, rows: int) -> dict[str, Any]:
    p = question.parameters
    return {
        "swizzle": str(chosen),
        "address_formula": address_formula(chosen),
        "chunk_formula": chunk_formula(chosen),
        "lines": places(chosen, rows, question.shared_offset),
        "data_type": str(p.data_type),
        "box_dim": p.box_dim,
        "access": question.access,
        "access_bytes": advice.best.access_bytes,
        "shared_offset": question.shared_offset,
        "target": str(question.target),
        "recommended": str(advice.swizzle),
        "conflicts": [_conflict_facts(result) for result in advice.results],
        "illegal": {str(s): [violation.message for violation in broken] for s, broken in advice.illegal.items()},
    }


def _conflict_facts(found: BankConflicts) -> dict[str, Any]:
    return {
        "swizzle": str(found.swizzle), "conflicts": found.conflicts, "wavefronts": found.wavefronts,
        "fewest_wavefronts": found.phases, "worst": found.worst, "requests": found.requests,
    }  # fmt: skip
