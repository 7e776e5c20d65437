"""How two tensor maps differ, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cupytma.errors import DescriptorError
from cupytma.tensormap import codec
from cupytma.tensormap.codec import FieldValue

RESERVED = "reserved"


@dataclass(frozen=True)
class FieldDifference:
    """One field in which two tensor maps differ.

    Attributes
    ----------
    label : str
        Such as ``"global_dim[1]"``; ``"reserved"`` for a bit that holds nothing known; ``"word"`` where a map's rank
        makes no sense, so that its fields are unknown.
    bits : str
        Where it is, such as ``"w4[63:32]"``.
    value, other : int or None
        Biases and shifts undone, in the unit of the parameter. None where a map of that kind and rank has no such
        field.
    meaning, other_meaning : str
        The members' names where the values are of an enumeration.
    """

    label: str
    bits: str
    value: int | None
    other: int | None
    meaning: str = ""
    other_meaning: str = ""

    def __str__(self) -> str:
        return f"{self.label} ({self.bits}): {' → '.join(self.shown)}"

    @property
    def shown(self) -> tuple[str, str]:
        """Both values as people read them, such as ``("3 (128B)", "absent")``."""
        return self._shown(self.value, self.meaning), self._shown(self.other, self.other_meaning)

    def _shown(self, value: int | None, meaning: str) -> str:
        if value is None:
            return "absent"
        number = f"{value:#x}" if self.label in ("global_address", "word") else str(value)
        return f"{number} ({meaning})" if meaning else number


def differences(data: bytes, other: bytes) -> tuple[FieldDifference, ...]:
    """The fields, reserved bits and recorded words in which two times 128 bytes differ; see `TensorMap.diff`."""
    try:
        ours, theirs = _held(data), _held(other)
    except DescriptorError:
        return _word_differences(data, other)
    found = []
    for key in dict.fromkeys((*ours, *theirs)):
        one, two = ours.get(key), theirs.get(key)
        a, b = (None if field is None else field.value for field in (one, two))
        if a != b:
            found.append(FieldDifference(*key, a, b, one.meaning if one else "", two.meaning if two else ""))
    return (*found, *_reserved_differences(data, other))


def _held(data: bytes) -> dict[tuple[str, str], FieldValue]:
    """Every field by label and place."""
    return {(field.label, field.bits): field for field in codec.field_values(data)}


def _reserved_differences(data: bytes, other: bytes) -> Iterator[FieldDifference]:
    """Bits that hold nothing known in at least one of the maps that has them set."""
    reserved = dict.fromkeys((*codec.reserved_bits(data), *codec.reserved_bits(other)))
    for place in reserved:
        word, bit = map(int, place[1:-1].split("["))
        a, b = (int.from_bytes(d[8 * word : 8 * word + 8], "little") >> bit & 1 for d in (data, other))
        if a != b:
            yield FieldDifference(RESERVED, place, a, b)


def _word_differences(data: bytes, other: bytes) -> tuple[FieldDifference, ...]:
    pairs = ((i // 8, data[i : i + 8], other[i : i + 8]) for i in range(0, len(data), 8))
    return tuple(
        FieldDifference("word", f"w{word}[63:0]", int.from_bytes(a, "little"), int.from_bytes(b, "little"))
        for word, a, b in pairs
        if a != b
    )
