"""``cupytma tile``: how boxes cover a tensor, and what of them lies outside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from cupytma.errors import DescriptorError
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap import DataType, Interleave, Swizzle, TensorMap, Tiled
from cupytma.words import counted

from .covering import Covering, covering_of, whole_tiles
from .descriptor_reading import read_described
from .failures import Failure, violations_text
from .options import Integers, Member, Source, TargetName
from .output import paragraph, show, show_json, show_rows, text_width
from .pictures import show_cells, write_picture

if TYPE_CHECKING:
    from cupytma.sim import TileMap
    from cupytma.sim.model import Dimension

_DIMENSIONS = "N,N,…"
_CHUNK = 16


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma tile --data-type FLOAT16 --global-dim 1000,500 --box-dim 64,32\n"
    "  cupytma tile map.bin\n"
    "  cupytma tile map.bin --at 960,480 --picture tile.svg"
)
@click.argument("source", nargs=-1, type=Source())
@click.option("--data-type", type=Member(DataType), metavar="TYPE", help="Of the elements.")
@click.option("--global-dim", type=Integers(), metavar=_DIMENSIONS, help="Extents in elements, dimension 0 first.")
@click.option(
    "--global-strides", type=Integers(), metavar=_DIMENSIONS, help="In bytes, of dimensions 1 and up.  [default: dense]"
)
@click.option("--box-dim", type=Integers(), metavar=_DIMENSIONS, help="Extents of the box in elements.")
@click.option("--element-strides", type=Integers(), metavar=_DIMENSIONS, help="Take every n-th element.  [default: 1]")
@click.option("--interleave", type=Member(Interleave), metavar="NAME", help="NONE, 16B or 32B.")
@click.option("--swizzle", type=Member(Swizzle), metavar="NAME", help="Decides what shared memory a tile takes.")
@click.option("--target", type=TargetName(), default=str(DEFAULT_TARGET), show_default=True, help="Whose rules hold.")
@click.option("--at", type=Integers(), metavar=_DIMENSIONS, help="Draw the one box that starts here.")
@click.option("--store", is_flag=True, help="Say what stores of the boxes write.")
@click.option(
    "--picture", type=Source(), metavar="FILE", help="Write a picture of the box at --at as SVG.  [the last one]"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tile(
    source: tuple[str, ...],
    target: Target,
    at: tuple[int, ...] | None,
    store: bool,
    picture: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show how boxes side by side cover a tensor, and what of them lies outside.

    The tensor is that of a tensor map, SOURCE as `cupytma decode` reads it, or of options. Coordinates are in driver
    order: dimension 0 first and fastest.
    """
    from cupytma import sim

    tensor_map = _tensor_map(source, {name: value for name, value in given.items() if value is not None}, target)
    found = None if at is None else sim.tile_map(tensor_map, at)  # before anything is shown, as it may refuse
    covering = covering_of(tensor_map)
    last = tuple(d.box * (d.boxes - 1) for d in covering.dimensions)
    if picture is not None:
        from cupytma import view

        write_picture(picture, view.tile(tensor_map, last if at is None else at))
        if picture == "-":
            return
    if as_json:
        show_json(_facts(covering, store))
        return
    _show(covering, store)
    show("")
    if at is None or found is None:
        _show_covering(covering)
    else:
        _show_box(tensor_map, at, found)


def _tensor_map(source: tuple[str, ...], given: dict[str, Any], target: Target) -> TensorMap:
    if given and source:
        raise click.UsageError("a tensor map says all of this itself; give it, or options")
    if not given:
        if not source and (sys.stdin is None or sys.stdin.isatty()):
            raise click.UsageError("nothing to tile; give a tensor map, or --data-type, --global-dim and --box-dim")
        return read_described(source).tensor_map
    missing = [f"--{name.replace('_', '-')}" for name in ("data_type", "global_dim", "box_dim") if name not in given]
    if missing:
        raise click.UsageError(f"missing {', '.join(missing)}")
    try:
        return Tiled(global_address=0, **given).encode(target)
    except DescriptorError as error:
        if not error.violations:
            raise
        raise Failure(violations_text(f"no tensor map for {target} has such boxes", error.violations)) from None


def _show(covering: Covering, store: bool) -> None:
    p = covering.parameters
    unit = f"slices of {p.slice_bytes} B" if p.slice_bytes else str(p.data_type)
    show(paragraph(f"A tensor of {_product(p.global_dim)} {unit} in boxes of {_product(p.box_dim)}"), style="bold")
    headings = ("dimension", *(str(number) for number in range(len(covering.dimensions))))
    show_rows(headings, _rows(covering), right=headings[1:])
    show("")
    show_rows(("", ""), _totals(covering, store))


def _rows(covering: Covering) -> list[tuple[str, ...]]:
    """What is to say of each dimension."""
    d = covering.dimensions
    rows: list[tuple[str, list[int]]] = [
        ("extent", [one.extent for one in d]),
        ("box", [one.box for one in d]),
        ("element stride", [one.element_stride for one in d]),
        ("tiles", list(covering.tiles)),
        ("whole tiles", [whole_tiles(one) for one in d]),
        ("the last has", [_last_inside(one) for one in d]),
        ("and outside", [one.tile - _last_inside(one) for one in d]),
    ]
    if all(one.element_stride == 1 for one in d):
        del rows[2]
    return [(name, *map(str, numbers)) for name, numbers in rows]


def _last_inside(d: Dimension) -> int:
    """Slots inside the tensor of the first tile of the last box."""
    start = d.box * (d.boxes - 1)
    return min(d.tile, -(-(d.extent - start) // d.element_stride))


def _totals(covering: Covering, store: bool) -> list[tuple[str, str]]:
    c, p = covering, covering.parameters
    ragged = c.copies - c.whole_copies
    verb = "store" if store else "load"
    rows = [
        (f"{verb}s", f"{c.copies:,}, {f'{ragged:,} of which reach out of bounds' if ragged else 'all in bounds'}"),
        (f"one {verb}", f"{c.transaction_bytes:,} B, in {p.tile_bytes:,} B of shared memory"),
        (f"all {verb}s", f"{c.bytes:,} B, for {c.tensor_bytes:,} B of the tensor"),
        ("wasted", _wasted(c, store)),
    ]
    if store and (past := _past_rows(c)):
        rows.append(("past the rows", f"{past} B are written after each of the tensor's rows: 16 B are written whole"))
    return rows


def _wasted(c: Covering, store: bool) -> str:
    if not c.wasted_share:
        return "nothing: boxes and tensor end together"
    what = "not written" if store else "filled"
    text = f"{100 * c.wasted_share:.1f} %: {c.filled_bytes:,} B are out of bounds and {what}"
    if c.repeated_bytes:
        text += f", {c.repeated_bytes:,} B are of the next box (its element stride does not divide the box)"
    return text


def _past_rows(covering: Covering) -> int:
    """Bytes past the end of a row that stores write (measured)."""
    p = covering.parameters
    return 0 if p.slice_bytes else -(p.global_dim[0] * p.element_bits // 8) % _CHUNK


def _show_covering(covering: Covering) -> None:
    from .covering_picture import covering_picture, legend

    dimensions = covering.dimensions
    show(f"dimension 0 across{', dimension 1 down' if len(dimensions) > 1 else ''}", style="bold")
    lines = covering_picture(dimensions, text_width() - 2)
    for line in lines:
        show_cells(f"  {line}")
    more = "".join(f"; {counted(d.boxes, 'time')} along dimension {i + 2}" for i, d in enumerate(dimensions[2:]))
    show(paragraph(legend(lines) + more, 2))


def _show_box(tensor_map: TensorMap, at: tuple[int, ...], found: TileMap) -> None:
    from . import box_picture

    parameters = tensor_map.decode()
    inside = int(found.inside.sum())
    title = f"The box at {_product(at, ', ')}: {inside:,} in bounds, {len(found.inside) - inside:,} outside"
    show(paragraph(title), style="bold")
    for line in box_picture.box_picture(parameters, found, text_width() - 2):
        show_cells(f"  {line}")
    for line in (box_picture.legend(found, False), *box_picture.other_dimensions(parameters, found)):
        show(paragraph(line, 2))


def _product(numbers: tuple[int, ...], sign: str = " × ") -> str:
    return sign.join(map(str, numbers))


def _facts(covering: Covering, store: bool) -> dict[str, Any]:
    p = covering.parameters
    return {
        "data_type": str(p.data_type),
        "global_dim": p.global_dim,
        "box_dim": p.box_dim,
        "dimensions": [_dimension_facts(d) for d in covering.dimensions],
        "copies": covering.copies,
        "whole_copies": covering.whole_copies,
        "transaction_bytes": covering.transaction_bytes,
        "shared_bytes": p.tile_bytes,
        "bytes": covering.bytes,
        "tensor_bytes": covering.tensor_bytes,
        "out_of_bounds_bytes": covering.filled_bytes,
        "repeated_bytes": covering.repeated_bytes,
        "wasted_share": covering.wasted_share,
        "bytes_past_each_row": _past_rows(covering) if store else 0,
    }


def _dimension_facts(d: Dimension) -> dict[str, int]:
    return {
        "extent": d.extent, "box": d.box, "element_stride": d.element_stride, "boxes": d.boxes,
        "tiles": d.boxes * d.element_stride, "whole_tiles": whole_tiles(d), "slots": d.tile,
        "last_in_bounds": _last_inside(d),
    }  # fmt: skip
