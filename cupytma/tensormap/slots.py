"""The eight-slot view of a tensor map's first 64 bytes, beside the recorded bits.

The view is the founding document's: what a tile compiler's emitter shows of the payload, named and placed by inference
("eight-slot logical view, not eight-slot byte layout", it says itself). What the words really hold, and which
``tensormap.replace`` writes which word, is read off the bit-field table and the table of mutators.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupytma.errors import DescriptorError
from cupytma.listed import Listed
from cupytma.tensormap import codec
from cupytma.tensormap.fields import FIELDS, BitField, fields_of
from cupytma.tensormap.mutation import MUTATORS, Mutator


@dataclass(frozen=True)
class _Documented:
    """A row of the document's table: its words, and the fields and mutators they stand for.

    ``unrecorded`` is what the document puts there and no bits were seen to hold.
    """

    name: str
    meaning: str
    fields: tuple[str, ...] = ()
    mutators: tuple[str, ...] = ()
    unrecorded: str = ""


_DOCUMENT: tuple[_Documented, ...] = (
    _Documented(
        "tensor_base_ptr", "Base address of the logical tensor", ("global_address",), ("global_address",)
    ),
    _Documented(
        "fmt_dim_stride_packed", "Format plus packed dimension lanes", ("element_format", "tf32", "global_dim"),
        ("global_dim",),
    ),
    _Documented(
        "box_size_packed", "Tile box extents and paired-CTA layout bits", ("box_dim",), (),
        "paired-CTA layout: no bits of it were recorded",
    ),
    _Documented(
        "elem_stride_packed", "Packed global-stride lanes", ("global_strides",), ("global_stride",)
    ),
    _Documented(
        "load_mode_packed", "Tiled / im2col / multicast mode fields", ("is_im2col",), (),
        "multicast: said by the instruction, not by the tensor map",
    ),
    _Documented(
        "interleave_fill", "Interleave and out-of-bounds fill behavior", ("interleave", "oob_fill")
    ),
    _Documented("l2_sector_promo", "L2 sector-promotion policy", ("l2_promotion",)),
    _Documented("reserved_future", "Reserved payload slot"),
)


@dataclass(frozen=True)
class Slot:
    """One 64-bit slot of the payload.

    Attributes
    ----------
    name : str
        The document's name for it.
    offset : int
        In bytes.
    value : int
        The word.
    meaning : str
        What the document says it means.
    holds : tuple of str
        What the word really holds in a tensor map of this kind and rank, each as ``"global_dim[0] w4[31:0]"``.
    mutators : tuple of str
        The ``tensormap.replace`` fields that really write the word, ``"global_stride[3]"`` where only some entries do.
    documented_mutators : tuple of str
        Those that the document says write it.
    differences : tuple of str
        Where the document's view and the recorded bits part. Empty where they agree.
    """

    name: str
    offset: int
    value: int
    meaning: str
    holds: tuple[str, ...]
    mutators: tuple[str, ...]
    documented_mutators: tuple[str, ...]
    differences: tuple[str, ...]

    def _repr_html_(self) -> str:
        from cupytma.view.html import printed

        return printed(self)

    def __str__(self) -> str:
        lines = [f"+{self.offset:<3} {self.name:<22} {self.value:#018x}  {self.meaning}"]
        for head, entries in (
            ("holds", self.holds), ("written by", self.mutators), ("differs", self.differences)
        ):
            lines += [f"     {head}: {', '.join(entries)}"] if head != "differs" and entries else []
            lines += [f"     {head}: {entry}" for entry in entries] if head == "differs" else []
        return "\n".join(lines)


def slots_of(data: bytes) -> tuple[Slot, ...]:
    """The eight slots of 128 bytes; see `TensorMap.slots`."""
    fields = _fields(data)
    return Listed(_slot(word, documented, data, fields) for word, documented in enumerate(_DOCUMENT))


def _fields(data: bytes) -> tuple[BitField, ...]:
    """What the map's kind and rank have; everything there is where these make no sense."""
    try:
        return fields_of(*codec.layout_and_rank(int.from_bytes(data, "little")))
    except DescriptorError:
        return FIELDS


def _slot(word: int, documented: _Documented, data: bytes, fields: tuple[BitField, ...]) -> Slot:
    offset = 8 * word
    return Slot(
        documented.name, offset, int.from_bytes(data[offset : offset + 8], "little"), documented.meaning,
        tuple(f"{field.label} {field.bits}" for field in fields if field.word == word),
        tuple(name for mutator in MUTATORS.values() if (name := _written(mutator, word))),
        documented.mutators,
        tuple(_differences(word, documented, fields)),
    )


def _written(mutator: Mutator, word: int) -> str:
    """The mutator's name if it writes the word, with the ordinals that do unless all of them do."""
    ordinals = range(mutator.ordinals or 1)
    writing = [i for i in ordinals if any(place.word == word for place in mutator.places(i))]
    if not writing:
        return ""
    return mutator.field if len(writing) == len(ordinals) else f"{mutator.field}[{', '.join(map(str, writing))}]"


def _differences(word: int, documented: _Documented, fields: tuple[BitField, ...]) -> list[str]:
    claimed = [field for field in fields if field.name in documented.fields]
    elsewhere = [f"{field.label} at {field.bits}" for field in claimed if field.word != word]
    unclaimed = [field.label for field in fields if field.word == word and field.name not in documented.fields]
    wrongly = [
        name for name in documented.mutators if not _written(MUTATORS[name], word)
    ]
    unsaid = [
        mutator.field for mutator in MUTATORS.values()
        if _written(mutator, word) and mutator.field not in documented.mutators
    ]
    rows = (
        ("recorded elsewhere", elsewhere),
        ("recorded here and not in the document", list(dict.fromkeys(unclaimed))),
        ("does not write this word", wrongly),
        ("writes this word, unsaid by the document", unsaid),
        ("recorded nowhere", [documented.unrecorded] if documented.unrecorded else []),
    )
    return [f"{what}: {', '.join(entries)}" for what, entries in rows if entries]
