"""``cupytma diff``: the fields in which two tensor maps differ."""

from __future__ import annotations

import click

from cupytma.errors import DescriptorError
from cupytma.tensormap import FieldDifference
from cupytma.tensormap.debug_line import PAYLOAD_WORDS
from cupytma.tensormap.fields import WORDS

from .descriptor_reading import Described, described_at, label_of
from .failures import Failure
from .options import Integer, Source
from .output import paragraph, remark, show, show_json, show_rows
from .sources import STANDARD_INPUT

# The hardware reads the words before these (measured on an H100).
_UNREAD = tuple(f"w{word}[" for word in range(PAYLOAD_WORDS, WORDS))
_SAME, _DIFFERENT = 0, 1
_HEADS = ("A", "B")


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma diff before.bin after.bin\n"
    "  cupytma encode tiled --from map.toml -o hex | cupytma diff - dump.txt\n"
    "  cupytma diff map.json core.1234 --offset-b 0x1c80 --payload"
)
@click.argument("a", type=Source())
@click.argument("b", type=Source())
@click.option("--offset-a", type=Integer(), metavar="N", help="Where the map is in the file A, in bytes.")
@click.option("--offset-b", type=Integer(), metavar="N", help="Where the map is in the file B, in bytes.")
@click.option("--payload", is_flag=True, help="Compare the first 64 bytes alone: what the hardware reads.")
@click.option("--json", "as_document", is_flag=True, help="Print the differences as JSON.")
def diff(a: str, b: str, offset_a: int | None, offset_b: int | None, payload: bool, as_document: bool) -> None:
    """Name the fields in which two tensor maps differ.

    A and B are each a file, - for standard input (one of them), or the text itself in one argument, in every form that
    `cupytma decode` reads. Exit code 0: they are the same; 1: they differ; 2: one cannot be read.
    """
    if a == b == STANDARD_INPUT:
        raise click.UsageError("standard input holds one of the two maps; give a file for the other")
    one, other = _read("A", a, offset_a), _read("B", b, offset_b)
    found = [
        difference for difference in one.tensor_map.diff(other.tensor_map)
        if not (payload and difference.bits.startswith(_UNREAD))
    ]
    if one.address_name or other.address_name:
        named = (f"{head} is {read.address_name or 'none'}" for head, read in zip(_HEADS, (one, other), strict=True))
        remark(f"a name for an address is not compared, its bytes are 0: the name in {', in '.join(named)}")
    if as_document:
        show_json({"same": not found, "differences": [_document(difference) for difference in found]})
    elif found:
        _print(found, (label_of(a), label_of(b)))
    raise click.exceptions.Exit(_DIFFERENT if found else _SAME)


def _read(name: str, source: str, offset: int | None) -> Described:
    try:
        return described_at(source, offset)
    except (DescriptorError, Failure) as error:
        raise Failure(f"{name}: {error}") from None


def _document(difference: FieldDifference) -> dict[str, object]:
    return {
        "field": difference.label, "bits": difference.bits,
        "a": difference.value, "b": difference.other,
        "a_meaning": difference.meaning, "b_meaning": difference.other_meaning,
    }  # fmt: skip


def _print(found: list[FieldDifference], names: tuple[str, ...]) -> None:
    for head, name in zip(_HEADS, names, strict=True):
        show(paragraph(f"{head}: {name}", 0, 3))
    rows = [(row.label, row.bits, *row.shown) for row in found]
    show_rows(("Field", "Bits", *_HEADS), rows, prose=("Bits", *_HEADS))
