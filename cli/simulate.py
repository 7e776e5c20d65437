"""``cupytma simulate``: what a copy moves, byte for byte, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cupytma.words import counted

from .descriptor_reading import read_described
from .failures import Failure
from .options import Integer, Integers, OutputForm, Source, Within, suggested
from .output import show_json, warn
from .pictures import write_picture
from .simulation_report import DIRECTIONS, facts_of, show_copies

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .simulation import Copy, Operation, Start

    Bytes = npt.NDArray[np.uint8]

_DIMENSIONS = "N,N,…"
_ROWS = 4
_ONE_TILE = ("hex", "elements")  # outputs of a single copy


def _modes() -> tuple[str, ...]:
    from cupytma.sim.modes import MODES

    return MODES


def _operations() -> tuple[str, ...]:
    from cupytma.sim.reductions import OPERATIONS

    return OPERATIONS


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma encode tiled --from-array shape=60,100,dtype=int32,box=8,32 -o hex \\\n"
    "      | cupytma simulate - --at 96,56\n"
    "  cupytma simulate map.bin --at 64,32\n"
    "  cupytma simulate map.bin --at 64,32 --input x.npy -o hex\n"
    "  cupytma simulate map.bin --at 0,0 --direction store --save after.npy\n"
    "  cupytma simulate map.bin --every-box --json"
)
@click.argument("source", nargs=-1, type=Source())
@click.option(
    "--at", "starts", multiple=True, type=Integers(), metavar=_DIMENSIONS,
    help="Start of a copy in elements, dimension 0 first; again for more copies.  [default: 0,0,…]",
)
@click.option("--every-box", is_flag=True, help="Copies that cover the tensor, side by side from element 0.")
@click.option("--rows", type=Integers(), metavar="N,N,N,N", help="Rows of a gather or scatter; --at is the column.")
@click.option(
    "--offsets", type=Integers(), metavar=_DIMENSIONS, default="", help="Of an im2col load, in pixels, W first."
)
@click.option(
    "--mode", metavar="NAME", shell_complete=suggested(_modes),
    help="The instruction's, as PTX spells it.  [default: what the map says]",
)
@click.option(
    "--direction", type=click.Choice(DIRECTIONS), default="load", show_default=True, help="What is simulated."
)
@click.option(
    "--op", default="add", show_default=True, metavar="NAME", shell_complete=suggested(_operations),
    help="Of a reduction.",
)
@click.option(
    "--input", "input_file", type=Source(), metavar="FILE",
    help="The tensor as .npy, shaped as numpy has it: dimension 0 last.",
)
@click.option(
    "--tile", "tile_file", type=Source(), metavar="FILE",
    help="What is stored as .npy: elements, or shared memory's bytes.",
)
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
    "-o", "--output", type=OutputForm(("summary", "elements", "hex", "npy", "json"), "npy"), default="summary",
    show_default=True, help="What to print; npy is --save to standard output.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@click.option(
    "--save", type=Source(), metavar="FILE",
    help="Write shared memory after a load, or the tensor after a store, as .npy.",
)
@click.option("--picture", type=Source(), metavar="FILE", help="Write a picture of the (first) copy as SVG.")
@click.option(
    "--limit", type=Within(0), default=64, show_default=True, help="Lines of elements and bytes; 0 for all."
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
    if output == "npy":
        if save is not None:
            raise click.UsageError("-o npy is --save to standard output; give one of them")
        save = "-"
    _check_streams(source, (input_file, tile_file), (save, picture))
    tensor_map = read_described(source, "no tensor map").tensor_map
    operation = simulation.Operation(tensor_map, **_with_rows(how, rows))
    _check_use(operation, input_file, tile_file, save, output)
    if every_box and (starts or rows):
        raise click.UsageError("--every-box says where copies start; leave --at and --rows out")
    chosen = simulation.every_box(operation) if every_box else _starts(operation, starts, rows)
    if output in _ONE_TILE and len(chosen) > 1:
        raise click.UsageError(f"{output} is of one copy, and there are {len(chosen)}; give one --at")
    if save is not None and not operation.stores and _saved_bytes(operation, len(chosen)) > LARGEST:
        raise Failure("these tiles are more than 1 GiB together; save fewer of them")
    memory, given = _data(operation, input_file, tile_file)
    copies = tuple(simulation.run(operation, chosen, memory, given, save is not None))
    if save is not None:
        _save(operation, copies, memory, save)
    if picture is not None:
        _write_picture(picture, operation, copies)
    if "-" in (save, picture):
        pass  # standard output is a file's
    elif output == "json":
        show_json(facts_of(operation, copies), indent=None)
    else:
        show_copies(operation, copies, output, limit)
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
        raise click.UsageError(f"--rows has {counted(len(rows), 'entry')}; a gather or scatter moves {_ROWS} rows")
    stores = how["direction"] in ("store", "reduce")
    return {**how, "mode": how["mode"] or ("tile::scatter4" if stores else "tile::gather4")}


def _starts(operation: Operation, starts: tuple[Start, ...], rows: tuple[int, ...] | None) -> tuple[Start, ...]:
    if rows is None:
        return starts or ((0,) * operation.parameters.rank,)
    if any(len(start) != 1 for start in starts):
        raise click.UsageError("with --rows, --at is the column alone: one number")
    return tuple((*start, *rows) for start in starts or ((0,),))


def _check_use(
    operation: Operation, input_file: str | None, tile_file: str | None, save: str | None, output: str
) -> None:
    """Refuse options that would have no part in what is simulated."""
    if operation.direction == "prefetch" and (input_file or tile_file or save or output in _ONE_TILE):
        raise click.UsageError("a prefetch brings nothing to look at; leave files, hex and elements out")
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


def _write_picture(path: str, operation: Operation, copies: Sequence[Copy]) -> None:
    """Draw the first copy that does not die."""
    from cupytma import view
    from cupytma.tensormap import Tiled

    start = next((copy.start for copy in copies if copy.fault is None), None)
    if start is None:
        warn("there is no picture of a copy that kills the kernel")
        return
    if isinstance(operation.parameters, Tiled):
        drawn = view.tile(operation.tensor_map, start, mode=operation.load_mode)
    else:
        drawn = view.im2col(operation.tensor_map, start, operation.offsets, mode=operation.load_mode)
    write_picture(path, drawn)
