"""``cupytma decode``: what the bytes of a tensor map say."""

from __future__ import annotations

import click

from cupytma.errors import DescriptorError
from cupytma.targets import Target
from cupytma.tensormap import TensorMap, Violation
from cupytma.words import counted

from .descriptor_reading import Described, described_at, one_source, read_described
from .descriptor_writing import WRITERS, document_of, output_options, print_violations_as_json
from .dumps import MOST_PERMISSIVE, Found, search
from .failures import Failure, violations_text
from .options import Integer, Source, TargetName
from .output import paragraph, show, show_json, show_rows, warn
from .sources import name_of

_DEFECT = "driver-defect"
_CHANGED = "; made or changed on a device: words 8 and 9 are not as an encoder writes them"


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma encode tiled --from-array shape=60,100,dtype=int32,box=8,32 -o hex \\\n"
    "      | cupytma decode -\n"
    "  cupytma decode map.bin\n"
    "  cuda-gdb -p 1234 -batch -ex 'x/16gx &map' | cupytma decode - --json\n"
    "  cupytma decode core.1234 --search\n"
    "  cupytma decode parameters.bin --offset 0x40"
)
@click.argument("source", nargs=-1, type=Source())
@click.option("--target", type=TargetName(), help="Check against its rules; by default the rules of every target.")
@click.option("--offset", type=Integer(), metavar="N", help="Where the map is in the file, in bytes: a core, a dump.")
@click.option("--search", "is_search", is_flag=True, help="List the maps that the file holds, with their offsets.")
@output_options
def decode(source: tuple[str, ...], target: Target | None, offset: int | None, is_search: bool, output: str) -> None:
    """Read a tensor map and name every field.

    SOURCE is a file, - for standard input, or the text itself: hex in memory order (spaces and line breaks do not
    matter), 16 words of 64 bits as a debugger's x/16gx prints them, a C initialiser, or JSON as `cupytma encode`
    prints it. A file may also hold the 128 raw bytes; with --offset or --search, any number of them, raw or as x/…gx
    prints them. Exit code 2 if no driver would make the map, 1 if --search finds none.
    """
    if offset is None and not is_search:
        _decode(read_described(source), target, output)
        return
    if offset is not None and is_search:
        raise click.UsageError("--offset says where the map is, and --search looks for it; give one of them")
    if len(source) > 1:
        raise click.UsageError("--offset and --search are for one file, or - for standard input")
    path = one_source(source)
    if is_search:
        _print_found(search(path), path, output)
    else:
        _decode(described_at(path, offset), target, output)


def _decode(described: Described, target: Target | None, output: str) -> None:
    tensor_map = described.tensor_map
    try:
        broken = tensor_map.decode().violations(target or MOST_PERMISSIVE)
    except DescriptorError as error:
        if output == "table":
            _print_what_is_known(tensor_map)
        raise Failure(str(error)) from None
    if broken and output == "json":
        print_violations_as_json(broken)
    else:
        WRITERS[output](tensor_map, target, described.address_name)
    _warn(tensor_map, output)
    if broken:
        raise Failure(
            violations_text(
                f"no driver would make this{f' for {target}' if target else ''}", broken,
                lambda violation: _place(tensor_map, violation),
            )
        )


def _warn(tensor_map: TensorMap, output: str) -> None:
    """Say on stderr what is odd about the bits, whatever form they are printed in."""
    if tensor_map.reserved_bits:
        bits = ", ".join(tensor_map.reserved_bits)
        warn(f"bits are set that mean nothing known: {bits}")
    if output == "table":
        return  # which has all warnings
    for warning in (w for w in tensor_map.warnings() if w.rule == _DEFECT):
        warn(f"{warning.message}; {warning.fix}")


def _print_found(found: list[Found], path: str, output: str) -> None:
    if output == "json":
        documents = [
            {"offset": row.offset, "as_encoded": row.as_encoded, **document_of(row.tensor_map, None)} for row in found
        ]
        show_json(documents)
    elif output == "table" and found:
        rows = [(f"{row.offset:#x}", _summary(row)) for row in found]
        show_rows(("Offset", "Tensor map"), rows, prose=("Tensor map",))
        show(paragraph(f"{counted(len(found), 'tensor map')} in {name_of(path)}"))
    else:
        for row in found:
            WRITERS[output](row.tensor_map, None, "")
    if not found:
        click.echo(paragraph(f"no tensor map found in {name_of(path)}, on multiples of 8 bytes"), err=True)
        raise click.exceptions.Exit(1)


def _summary(row: Found) -> str:
    return repr(row.tensor_map).removeprefix("<TensorMap ").removesuffix(">") + ("" if row.as_encoded else _CHANGED)


def _print_what_is_known(tensor_map: TensorMap) -> None:
    try:
        tensor_map.fields()
    except DescriptorError:
        return  # without a rank it is unknown which fields there are
    WRITERS["table"](tensor_map, None, "")


def _place(tensor_map: TensorMap, violation: Violation) -> str:
    """The bits of the fields that a violation speaks of."""
    return ", ".join(field.bits for field in tensor_map.fields() if field.label in violation.message)
