"""``tensormap.replace`` on bytes: what each of its eleven fields does to a tensor map.

One table, `MUTATORS`, says what the instruction's operand means; where the bits are is said by the bit-field table.
The instruction is no more than shifts and masks over the first 64 bytes: it subtracts what the table subtracts, drops
the bits that do not fit, checks nothing, and leaves words 8 and 9 as they were.

Sources: recordings of the instruction on an H100, and its expansion by the assembler for sm_90a, sm_100a, sm_103a and
sm_120a (NVRTC 12.9), which also says what the assembler refuses.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cupytma.errors import EmissionError
from cupytma.targets import DEFAULT_TARGET, Feature, Target
from cupytma.targets import target as target_of
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.fields import DATA_TYPES, FIELDS, SIZE, BitField

# The numbers of `elemtype`, which are PTX's and not the driver's.
ELEMENT_TYPES: tuple[DataType, ...] = (
    DataType.UINT8,
    DataType.UINT16,
    DataType.UINT32,
    DataType.INT32,
    DataType.UINT64,
    DataType.INT64,
    DataType.FLOAT16,
    DataType.FLOAT32,
    DataType.FLOAT32_FTZ,
    DataType.FLOAT64,
    DataType.BFLOAT16,
    DataType.TFLOAT32,
    DataType.TFLOAT32_FTZ,
    DataType.PACKED_16U4_ALIGN8B,
    DataType.PACKED_16U4_ALIGN16B,
    DataType.PACKED_16U6_ALIGN16B,
)
_ORDINALS = 5

# Bits that the instruction writes and no parameter has. The last two are what the pattern of the strides gives for a
# fifth one, which no tensor map has: the high half of word 3, where the high bits of all strides are.
_ONLY_REPLACED = (
    BitField("swizzle_mode", None, 1, 22, 1, shift=2, form="the 96B mode, sm_103a"),
    BitField("global_strides", 4, 3, 32, 32, shift=4),
    BitField("global_strides", 4, 3, 48, 4, shift=36),
)


class Step(NamedTuple):
    """One ``tensormap.replace``: the field as PTX spells it, the ordinal (0 where it has none), the operand."""

    field: str
    ordinal: int
    value: Any


class Choice(NamedTuple):
    """What one immediate writes, by the names of the bit-field table, and what the target needs for it."""

    bits: Mapping[str, int]
    feature: Feature | None = None


@dataclass(frozen=True)
class Mutator:
    """One field of ``tensormap.replace.tile``.

    Attributes
    ----------
    field : str
        As PTX spells it.
    parameter : str
        The parameter it belongs to, as the driver API spells it.
    writes : tuple of str
        Names in the bit-field table.
    operand_bits : int
        How much of the operand is looked at.
    ordinals : int
        Entries there are; 0 where the instruction takes no ordinal.
    offset : int
        What the parameter is more than the operand.
    choices : tuple of Choice
        For an immediate: what each writes, from 0 up. Empty where the operand is a register.
    """

    field: str
    parameter: str
    writes: tuple[str, ...]
    operand_bits: int = 32
    ordinals: int = 0
    offset: int = 0
    choices: tuple[Choice, ...] = ()

    def places(self, ordinal: int = 0) -> tuple[BitField, ...]:
        """The bits that the instruction writes, in the order of writing."""
        index = ordinal if self.ordinals else None
        return tuple(p for name in self.writes for p in _PLACES[name, index])

    def limit(self, target: Target) -> int:
        """How many immediates the assembler takes on a target."""
        return sum(choice.feature is None or target.has(choice.feature) for choice in self.choices)


def _places() -> dict[tuple[str, int | None], tuple[BitField, ...]]:
    found: dict[tuple[str, int | None], tuple[BitField, ...]] = {}
    for place in (*FIELDS, *_ONLY_REPLACED):
        key = (place.name, place.index)
        found[key] = (*found.get(key, ()), place)
    return found


_PLACES = _places()


def _element_type(member: DataType) -> Choice:
    """The TF32 flag is set by the two types that have it and cleared by none."""
    row = DATA_TYPES[member]
    bits = {"element_format": row.element_format, **({"tf32": 1} if row.tf32 else {})}
    return Choice(bits, Feature.PACKED_TYPES if member > DataType.TFLOAT32_FTZ else None)


def _numbered(name: str, count: int) -> tuple[Choice, ...]:
    return tuple(Choice({name: value}) for value in range(count))


MUTATORS: dict[str, Mutator] = {
    mutator.field: mutator
    for mutator in (
        Mutator("global_address", "global_address", ("global_address",), operand_bits=64),
        Mutator("rank", "rank", ("rank",), offset=1),
        Mutator("box_dim", "box_dim", ("box_dim",), ordinals=_ORDINALS),
        Mutator("global_dim", "global_dim", ("global_dim",), ordinals=_ORDINALS),
        Mutator("global_stride", "global_strides", ("global_strides",), operand_bits=64, ordinals=_ORDINALS),
        Mutator("element_stride", "element_strides", ("element_strides",), ordinals=_ORDINALS),
        Mutator(
            "elemtype", "data_type", ("element_format", "tf32"), choices=tuple(map(_element_type, ELEMENT_TYPES))
        ),
        Mutator("interleave_layout", "interleave", ("interleave",), choices=_numbered("interleave", 3)),
        Mutator(
            "swizzle_mode", "swizzle", ("swizzle_mode",),
            choices=(*_numbered("swizzle_mode", 4), Choice({"swizzle_mode": 4}, Feature.SWIZZLE_96B)),
        ),
        Mutator(
            "swizzle_atomicity", "swizzle", ("swizzle_atomicity", "driver_defect"),
            choices=tuple(
                Choice({"swizzle_atomicity": value, "driver_defect": 0}, Feature.SWIZZLE_ATOMICITY)
                for value in range(4)
            ),
        ),
        Mutator("fill_mode", "oob_fill", ("oob_fill",), choices=_numbered("oob_fill", 2)),
    )
}
"""What ``tensormap.replace`` writes, by the name of its field."""


def replaced_raw(
    data: bytes, field: str, value: Any, ordinal: int = 0, target: str | Target = DEFAULT_TARGET
) -> bytes:
    """The bytes after one ``tensormap.replace``; see `TensorMap.replace_raw`."""
    mutator = _mutator(field, target_of(target))
    _check_ordinal(mutator, ordinal)
    try:
        number = operator.index(value)
    except TypeError:
        raise EmissionError(f"tensormap.replace {field}: {value!r} is no integer") from None
    bits = int.from_bytes(data, "little")
    for place, stored in _stored(mutator, number, ordinal, target_of(target)):
        low = 64 * place.word + place.low
        bits = bits & ~(place.mask << (64 * place.word)) | stored << low
    return bits.to_bytes(SIZE, "little")


def applied(data: bytes, steps: Iterable[Step], target: str | Target = DEFAULT_TARGET) -> bytes:
    """The bytes after a sequence of ``tensormap.replace``."""
    for step in steps:
        data = replaced_raw(data, step.field, step.value, step.ordinal, target)
    return data


def without_driver_defect(data: bytes) -> bytes:
    """The bytes with the bit cleared that drivers before 595 set wrongly; see `TensorMap.apply_workaround`."""
    bits = int.from_bytes(data, "little")
    for place in _PLACES["driver_defect", None]:
        bits &= ~(place.mask << (64 * place.word))
    return bits.to_bytes(SIZE, "little")


def _mutator(field: str, target: Target) -> Mutator:
    found = MUTATORS.get(field)
    if found is None:
        raise EmissionError(f"tensormap.replace has no field {field!r}; it has {', '.join(MUTATORS)}")
    target.require(Feature.TENSORMAP_REPLACE)
    return found


def _check_ordinal(mutator: Mutator, ordinal: Any) -> None:
    if mutator.ordinals and ordinal not in range(mutator.ordinals):
        raise EmissionError(
            f"tensormap.replace {mutator.field}: ordinal {ordinal!r} is outside 0…{mutator.ordinals - 1}"
        )


def _stored(mutator: Mutator, number: int, ordinal: int, target: Target) -> list[tuple[BitField, int]]:
    """What the instruction puts where."""
    if mutator.choices:
        bits = _choice(mutator, number, target).bits
        return [(place, _form(place, bits[place.name])) for place in mutator.places() if place.name in bits]
    value = (number & ((1 << mutator.operand_bits) - 1)) + mutator.offset
    return [(place, _form(place, value)) for place in mutator.places(ordinal)]


def _form(place: BitField, value: int) -> int:
    return ((value - place.bias) >> place.shift) & ((1 << place.width) - 1)


def _choice(mutator: Mutator, number: int, target: Target) -> Choice:
    if not 0 <= number < len(mutator.choices):
        raise EmissionError(
            f"tensormap.replace {mutator.field}: immediate {number} is outside 0…{mutator.limit(target) - 1} on "
            f"{target}"
        )
    choice = mutator.choices[number]
    if choice.feature is not None:
        target.require(choice.feature)
    return choice
