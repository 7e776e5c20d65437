"""``cupytma simulate``: what a copy moves, byte for byte, without a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from .failures import Failure
from .map_source import read_tensor_map
from .options import Integer, Integers
from .output import show, table, text_width
from .pictures import show_cells, show_wrapped, write_picture

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .simulation import Copy, Operation, Start

    Bytes = npt.NDArray[np.uint8]

_DIMENSIONS = "N,N,…"
_ROWS = 4
_VALUES_SHOWN = 200
_ROOMY = 70  # columns in which a matrix shows three columns at each side
_DIRECTIONS = {
    "load": "global to shared memory", "store": "shared to global memory",
    "reduce": "shared memory into global memory", "prefetch": "to the L2 cache",
}  # fmt: skip


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma simulate map.bin --at 64,32\n"
    "  cupytma simulate map.bin --at 64,32 --input x.npy -o hex\n"
    "  cupytma simulate map.bin --at 0,0 --direction store --save after.npy\n"
    "  cupytma simulate map.bin --every-box --json"
)
@click.argument("source", nargs=-1)
@click.option(
    "--at", "starts", multiple=True, type=Integers(), metavar=_DIMENSIONS,
    help="Start of a copy in elements, dimension 0 first; again for more copies.  [default: 0,0,…]",
)
@click.option("--every-box", is_flag=True, help="Copies that cover the tensor, side by side from element 0.")
@click.option("--rows", type=Integers(), metavar="N,N,N,N", help="Rows of a gather or scatter; --at is the column.")
@click.option(
    "--offsets", type=Integers(), metavar=_DIMENSIONS, default="", help="Of an im2col load, in pixels, W first."
)
@click.option("--mode", metavar="NAME", help="The instruction's, as PTX spells it.  [default: what the map says]")
@click.option(
    "--direction", type=click.Choice(tuple(_DIRECTIONS)), default="load", show_default=True, help="What is simulated."
)
@click.option("--op", default="add", show_default=True, metavar="NAME", help="Of a reduction.")
@click.option(
    "--input", "input_file", metavar="FILE", help="The tensor as .npy, shaped as numpy has it: dimension 0 last."
)
@click.option("--tile", "tile_file", metavar="FILE", help="What is stored as .npy: elements, or shared memory's bytes.")
@click.option(
    "--data", type=click.Choice(("index", "random", "zeros")), default="index", show_default=True,
    help="Elements where no file gives them: each its own number, or random.",
)
@click.option("--seed", type=Integer(), default="0", show_default=True, metavar="N", help="Of random elements.")
@click.option(
    "--shared-offset", type=Integer(), default="0", show_default=True, metavar="N",
    help="Of the tile in shared memory, in bytes.",
)
@click.option(
    "-o", "--output", type=click.Choice(("summary", "elements", "hex", "npy", "json")), default="summary",
    show_default=True, help="What to print; npy is --save to standard output.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@click.option("--save", metavar="FILE", help="Write shared memory after a load, or the tensor after a store, as .npy.")
@click.option("--picture", metavar="FILE", help="Write a picture of the (first) copy as SVG.")
@click.option(
    "--limit", type=click.IntRange(0), default=64, show_default=True, help="Lines of elements and bytes; 0 for all."
)
def simulate(
    source: tuple[str, ...],
    starts: tuple[Start, ...],
    every_box: bool,
    rows: tuple[int, ...] | None,
    output: str,
    as_json: bool,
    input_file: str | None,
    tile_file: str | None,
    save: str | None,
    picture: str | None,
    limit: int,
    **how: Any,
) -> None:
    """Simulate copies of a tensor map, byte for byte, as the hardware makes them.

    SOURCE is a tensor map as `cupytma decode` reads it. Coordinates are in driver order: dimension 0 first and fastest.
    Files may be - for standard input or output. The exit code is 1 if a copy would kill the kernel.
    """
    from . import simulation
    from .array_files import LARGEST

    output = "json" if as_json else output
    if output == "npy" and save is None:
        save = "-"
    _check_streams(source, (input_file, tile_file), (save, picture))
    tensor_map = read_tensor_map(source)
    operation = simulation.Operation(tensor_map, **_with_rows(how, rows))
    _check_use(operation, input_file, tile_file, save)
    chosen = simulation.every_box(operation) if every_box else _starts(operation, starts, rows)
    if every_box and (starts or rows):
        raise click.UsageError("--every-box says where copies start; leave --at and --rows out")
    if save is not None and not operation.stores and _saved_bytes(operation, len(chosen)) > LARGEST:
        raise Failure("these tiles are more than 1 GiB together; save fewer of them")
    memory, given = _data(operation, input_file, tile_file)
    copies = tuple(simulation.run(operation, chosen, memory, given, save is not None))
    if save is not None:
        _save(operation, copies, memory, save)
    if picture is not None:
        drawn = next((copy for copy in copies if copy.fault is None), None)
        if drawn is not None:
            _write_picture(picture, operation, drawn.start)
        else:
            click.echo("Warning: there is no picture of a copy that kills the kernel", err=True)
    if "-" in (save, picture):
        pass  # standard output is a file's
    elif output == "json":
        click.echo(json.dumps(_facts(operation, copies)))
    else:
        _show(operation, copies, output, limit)
    if any(copy.fault for copy in copies):
        raise click.exceptions.Exit(1)


class _Died(Failure):
    """A copy that kills the kernel where something else was asked for than to be told so."""

    exit_code = 1


def _saved_bytes(operation: Operation, copies: int) -> int:
    return copies * (operation.shared_offset + operation.parameters.tile_bytes)


def _check_streams(source: tuple[str, ...], read: Sequence[str | None], written: Sequence[str | None]) -> None:
    if [*source, *read].count("-") > 1 or (not source and "-" in read):
        raise click.UsageError("standard input can hold one thing; give files for the others")
    if written.count("-") > 1:
        raise click.UsageError("standard output can hold one thing; give files for the others")


def _with_rows(how: dict[str, Any], rows: tuple[int, ...] | None) -> dict[str, Any]:
    """The operands, with the mode that the rows of a gather or scatter ask for."""
    if rows is None:
        return how
    if len(rows) != _ROWS:
        raise click.UsageError(f"--rows has {len(rows)} entries; a gather or scatter moves {_ROWS} rows")
    stores = how["direction"] in ("store", "reduce")
    return {**how, "mode": how["mode"] or ("tile::scatter4" if stores else "tile::gather4")}


def _starts(operation: Operation, starts: tuple[Start, ...], rows: tuple[int, ...] | None) -> tuple[Start, ...]:
    if rows is None:
        return starts or ((0,) * operation.parameters.rank,)
    if any(len(start) != 1 for start in starts):
        raise click.UsageError("with --rows, --at is the column alone: one number")
    return tuple((*start, *rows) for start in starts or ((0,),))


def _check_use(operation: Operation, input_file: str | None, tile_file: str | None, save: str | None) -> None:
    """Refuse options that would have no part in what is simulated."""
    if operation.direction == "prefetch" and (input_file or tile_file or save):
        raise click.UsageError("a prefetch brings nothing to look at; leave --input, --tile and --save out")
    if tile_file and not operation.stores:
        raise click.UsageError("--tile is what a store or reduction takes from shared memory; a load brings it")
    if operation.offsets and operation.stores:
        raise click.UsageError("--offsets are for im2col loads; no store takes them")
    if operation.direction == "reduce" and operation.mode not in (None, "tile"):
        raise click.UsageError(f"a reduction has mode tile alone here, not {operation.mode}")


def _data(
    operation: Operation, input_file: str | None, tile_file: str | None
) -> tuple[Bytes | None, npt.NDArray[Any] | None]:
    """Global memory, or None where elements are generated as they are loaded; and the tile that is stored, if given."""
    from .array_files import read_array
    from .sources import name_of
    from .tensor_memory import layout_of

    layout = layout_of(operation.parameters)
    given = None if tile_file is None else read_array(tile_file)
    if input_file is not None:
        return layout.memory_of(read_array(input_file), name_of(input_file)), given
    return (layout.empty() if operation.stores else None), given


def _save(operation: Operation, copies: Sequence[Copy], memory: Bytes | None, path: str) -> None:
    import numpy as np

    from .array_files import write_array
    from .tensor_memory import layout_of

    if operation.stores:
        assert memory is not None
        saved = np.ascontiguousarray(layout_of(operation.parameters).view(memory))
    else:
        images = [copy.shared for copy in copies if copy.shared is not None]
        if not images:
            raise _Died(f"there is nothing to save, the kernel dies: {copies[0].fault}")
        empty = np.zeros_like(images[0])
        saved = np.stack([empty if copy.shared is None else copy.shared for copy in copies])
        saved = saved[0] if len(copies) == 1 else saved
    write_array(path, saved)


def _write_picture(path: str, operation: Operation, start: Start) -> None:
    from cupytma import view
    from cupytma.tensormap import Tiled

    if isinstance(operation.parameters, Tiled):
        drawn = view.tile(operation.tensor_map, start, mode=operation.load_mode)
    else:
        drawn = view.im2col(operation.tensor_map, start, operation.offsets, mode=operation.load_mode)
    write_picture(path, drawn)


def _show(operation: Operation, copies: Sequence[Copy], output: str, limit: int) -> None:
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
    return f"{title}: {_DIRECTIONS[operation.direction]}"


def _place(start: Start) -> str:
    return ", ".join(map(str, start))


def _show_fault(operation: Operation, copy: Copy) -> None:
    show_wrapped(_title(operation), style="bold")
    show_wrapped(f"at {_place(copy.start)}: the kernel dies, and nothing is moved", "  ", "bold red")
    show_wrapped(str(copy.fault), "  ", hang="  ")


def _show_summary(operation: Operation, copy: Copy) -> None:
    from . import box_picture

    assert copy.tile is not None
    show_wrapped(_title(operation), style="bold")
    show(table(("", ""), _summary(operation, copy)), "")
    p = operation.parameters
    for line in box_picture.box_picture(p, copy.tile, text_width() - 2):
        show_cells(f"  {line}")
    for line in (box_picture.legend(copy.tile, operation.stores), *box_picture.other_dimensions(p, copy.tile)):
        show_wrapped(line, "  ")
    if operation.direction != "prefetch":
        show("")
        _show_values(operation, copy)


def _summary(operation: Operation, copy: Copy) -> list[tuple[str, str]]:
    tile, p = copy.tile, operation.parameters
    assert tile is not None
    assert copy.shared is not None
    what = {0: "slices", 1: "elements"}.get(tile.unit_elements, f"groups of {tile.unit_elements} elements")
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
    show_wrapped(title, style="bold")
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
    headings = ("shared byte", "value", "coordinates", "global address")
    show(table(headings, shown, right=headings[:2]), *([rest] if rest else []))


def _show_many(operation: Operation, copies: Sequence[Copy], limit: int) -> None:
    show_wrapped(_title(operation), style="bold")
    shown, rest = _show_limited((_row(copy) for copy in copies), limit, len(copies))
    headings = ("start", "bytes", "in bounds", "out of bounds", "fault")
    faults = [copy for copy in copies if copy.fault is not None]
    columns = len(headings) - (not faults)
    show(table(headings[:columns], [row[:columns] for row in shown], right=headings[1:4]), *([rest] if rest else []))
    done = f"{len(copies)} copies"
    if operation.direction == "load":
        done += f", {sum(copy.transaction_bytes for copy in copies):,} B for mbarriers"
    if past := sum(copy.past_rows for copy in copies):
        done += f", {past} B written after the tensor's rows"
    show_wrapped(done)
    if faults:
        show_wrapped(f"{len(faults)} of them kill the kernel; the first:", style="bold red")
        show_wrapped(str(faults[0].fault), "  ", hang="  ")


def _row(copy: Copy) -> tuple[str, ...]:
    if copy.fault is not None:
        return (_place(copy.start), "", "", "", type(copy.fault).__name__)
    return _place(copy.start), str(copy.bytes), str(copy.inside), str(copy.outside), ""


def _facts(operation: Operation, copies: Sequence[Copy]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "direction": operation.direction,
        "mode": operation.mode,
        "data_type": str(operation.parameters.data_type),
        "swizzle": str(operation.parameters.swizzle),
        "shared_offset": operation.shared_offset,
        "copies": [_copy_facts(copy) for copy in copies],
    }
    if len(copies) == 1 and copies[0].tile is not None:
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
