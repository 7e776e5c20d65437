"""``cupytma layout``: which bits of a tensor map hold what."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from cupytma.tensormap import FIELDS, BitField
from cupytma.tensormap.codec import MEANINGS
from cupytma.tensormap.fields import CORNER_BITS, LAYOUTS, RANKS

from .failures import Failure
from .options import Within, starting
from .output import kept_together, paragraph, show, show_json, show_rows

KINDS = tuple(layout.replace("_", "-") for layout in LAYOUTS)
_MOST_DIMENSIONS = 5
_AS_IS = "as is"
_SIDE_BITS = CORNER_BITS[3]  # of all corners of one side


class FieldWord(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """The name of a field, or of a word."""

    name = "field"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = dict.fromkeys(field.name for field in FIELDS)
        return starting((*names, *dict.fromkeys(f"w{field.word}" for field in FIELDS)), incomplete)


@click.command(
    epilog="\b\nExamples:\n"
    "  cupytma layout --kind im2col --rank 4\n"
    "  cupytma layout w1\n"
    "  cupytma layout global_strides --json"
)
@click.argument("words", nargs=-1, type=FieldWord(), metavar="[FIELD|WORD]...")
@click.option("--kind", type=click.Choice(KINDS), help="Those that one kind of tensor map has.")
@click.option("--rank", type=Within(1, _MOST_DIMENSIONS), help="Those that maps of one rank have.")
@click.option("--json", "as_document", is_flag=True, help="Print them as JSON.")
def layout(words: tuple[str, ...], kind: str | None, rank: int | None, as_document: bool) -> None:
    """Show which bits of a tensor map hold what.

    The 128 bytes are 16 little-endian words of 64 bits, w0 to w15; w1[6:4] are bits 6 to 4 of word 1. Give names of
    fields, such as swizzle_mode, or words, such as w1, to see those alone.
    """
    name = None if kind is None else kind.replace("-", "_")
    if rank is not None and name is not None and rank not in RANKS[name]:
        raise click.UsageError(f"a tensor map of kind {kind} has rank {RANKS[name][0]} to {RANKS[name][-1]}")
    found = [
        field for field in FIELDS
        if (name is None or name in field.layouts) and (rank is None or rank in _ranks(field, name))
        and (not words or any(_is_named(field, word) for word in words))
    ]
    if not found:
        names = ", ".join(dict.fromkeys(field.name for field in FIELDS))
        raise Failure(f"no field is called {' or '.join(words)[:60]!r} there; there are w0 to w15 and {names}")
    if as_document:
        show_json([_document(field) for field in found])
        return
    groups = dict.fromkeys(field.layouts for field in found)
    for layouts in groups:
        if name is None:
            show(_title(layouts), style="bold")
        rows = [
            (field.bits, str(field.width), field.label, _span(_ranks(field, name)), _encoding(field))
            for field in sorted(found, key=_order)
            if field.layouts == layouts or name is not None
        ]
        show_rows(("Bits", "Width", "Field", "Ranks", "Encoding"), rows, right=("Width",), prose=("Encoding",))
        show("")
        if name is not None:
            break
    show(paragraph("All other bits are 0. The hardware reads words 0 to 7; 8 and 9 are records of the encoder."))


def _is_named(field: BitField, word: str) -> bool:
    """Whether a word names a field: w1, swizzle_mode, global_dim[1], or a part of a name."""
    text = word.lower().replace("-", "_")
    return text == f"w{field.word}" or (not _is_word(text) and text in field.label)


def _is_word(text: str) -> bool:
    return text[:1] == "w" and text[1:].isdigit()


def _title(layouts: tuple[str, ...]) -> str:
    if len(layouts) == len(LAYOUTS):
        return "Every kind"
    return " and ".join(kind.replace("_", "-") for kind in layouts)


def _order(field: BitField) -> tuple[Any, ...]:
    """In the order of the bits; the corners of a side, which share bits, rank by rank."""
    side, ranks = (field.low // _SIDE_BITS * _SIDE_BITS, field.ranks) if field.signed else (field.low, ())
    return field.word, side, ranks, field.low


def _ranks(field: BitField, kind: str | None) -> tuple[int, ...]:
    """The ranks of maps that have a field, of one kind or of all that have it."""
    kinds = field.layouts if kind is None else (kind,)
    return tuple(rank for rank in field.ranks if any(rank in RANKS[layout] for layout in kinds))


def _span(ranks: tuple[int, ...]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


def _encoding(field: BitField) -> str:
    """How a value becomes bits: the form, and the codes where it has no other words for them."""
    codes = ", ".join(kept_together(f"{number} {name}") for number, name in sorted(_codes(field).items()))
    if not codes or field.form[:1].isdigit():
        return field.form
    return codes if field.form == _AS_IS else f"{field.form}: {codes}"


def _codes(field: BitField) -> dict[int, str]:
    return MEANINGS.get(field.name, {})


def _document(field: BitField) -> dict[str, Any]:
    return {
        "field": field.label, "name": field.name, "index": field.index, "bits": field.bits,
        "word": field.word, "low": field.low, "width": field.width,
        "shift": field.shift, "bias": field.bias, "signed": field.signed, "encoding": field.form,
        "codes": {name: number for number, name in _codes(field).items()},
        "kinds": [kind.replace("_", "-") for kind in field.layouts], "ranks": list(_ranks(field, None)),
    }  # fmt: skip
