"""The bit fields of a tensor map, word by word, drawn from the bit-field table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupytma.errors import PictureError
from cupytma.tensormap.codec import FieldValue, layout_and_rank
from cupytma.tensormap.fields import LAYOUTS, RANKS, WORDS, BitField, fields_of
from cupytma.view.drawing import HUES, WIDTH, Canvas, Picture, text_width
from cupytma.view.subjects import map_of

if TYPE_CHECKING:
    from cupytma.tensormap.parameters import Parameters
    from cupytma.tensormap.tensor_map import TensorMap

_LABEL = 32
_BIT = 12
_ROW, _GAP = 30, 8
_RULER = (63, 56, 48, 40, 32, 24, 16, 8, 0)
_COLUMNS = 2


@dataclass(frozen=True)
class _Drawn:
    """A run of bits and what is said of it."""

    field: BitField
    value: str
    hue: str
    number: int = 0

    @property
    def name(self) -> str:
        """The field, with its value."""
        return f"{self.field.label} = {self.value}" if self.value else self.field.label

    @property
    def tip(self) -> str:
        """Everything about it."""
        return f"{self.field.bits} {self.name} ({self.field.form})"


def bit_fields(
    tensor_map: TensorMap | Parameters | None = None, *, layout: str = "tiled", rank: int = 5
) -> Picture:
    """The 128 bytes of a tensor map as a map of bit fields; the highest bit of each word is on the left.

    Parameters
    ----------
    tensor_map : TensorMap or Parameters, optional
        Drawn with its values. Without one the fields alone are drawn.
    layout : str
        Which fields there are, where no map says it: ``"tiled"``, ``"im2col"`` or ``"im2col_wide"``.
    rank : int
        The same.

    Returns
    -------
    Picture

    Raises
    ------
    PictureError
        For a layout or rank that there is none of, or a map that is none.
    DescriptorError
        If the rank bits of the map make no sense, or its parameters cannot be encoded.
    """
    if tensor_map is None:
        _check_layout(layout, rank)
        return _picture(layout, rank, {})
    given = map_of(tensor_map)
    layout, rank = layout_and_rank(int.from_bytes(bytes(given), "little"))
    return _picture(layout, rank, {field.label: _value(field) for field in given.fields()}, given.reserved_bits)


def _value(field: FieldValue) -> str:
    number = f"{field.value:#x}" if field.label == "global_address" else str(field.value)
    return f"{number} ({field.meaning})" if field.meaning else number


def _check_layout(layout: str, rank: int) -> None:
    if layout not in LAYOUTS:
        raise PictureError(f"layout is {layout!r}; it must be one of {', '.join(map(repr, LAYOUTS))}")
    if isinstance(rank, bool) or rank not in RANKS[layout]:
        raise PictureError(f"rank is {rank!r}; a {layout} tensor map has one of {', '.join(map(str, RANKS[layout]))}")


def _picture(layout: str, rank: int, values: dict[str, str], reserved: tuple[str, ...] = ()) -> Picture:
    rows = list(_rows(layout, rank, values))
    canvas = Canvas(
        f"Bit fields of a tensor map: {layout}, rank {rank}",
        "; ".join(drawn.tip for row in rows for drawn in row),
    )
    canvas.text(0, 16, f"Tensor map, {layout}, rank {rank}: 16 words of 64 bits", "heading")
    y = 40.0
    for bit in _RULER:
        canvas.text(_LABEL + (63 - bit + 0.5) * _BIT, y, str(bit), "small faint middle")
    y += 6
    used = [word for word in range(WORDS) if rows[word] or any(place.startswith(f"w{word}[") for place in reserved)]
    for word in range(used[-1] + 1):
        _draw_word(canvas, word, rows[word], reserved, y)
        y += _ROW + _GAP
    if used[-1] < WORDS - 1:
        canvas.text(_LABEL, y + 12, f"w{used[-1] + 1} to w{WORDS - 1}: nothing, all bits 0", "small faint")
        y += 20
    _draw_legend(canvas, [drawn for row in rows for drawn in row if drawn.number], reserved, y + 22)
    return canvas.picture()


def _rows(layout: str, rank: int, values: dict[str, str]) -> Iterator[list[_Drawn]]:
    """The fields of each word, those too narrow for their text with a number."""
    fields = fields_of(layout, rank)
    names = list(dict.fromkeys(field.name for field in fields))
    hues = {name: HUES[i % (len(HUES) - 1)] for i, name in enumerate(names)}
    number = 0
    for word in range(WORDS):
        row = []
        for field in sorted((f for f in fields if f.word == word), key=lambda f: f.low):
            drawn = _Drawn(field, values.get(field.label, ""), hues[field.name])
            if text_width(drawn.name) > field.width * _BIT - 8:
                number += 1
                drawn = _Drawn(field, drawn.value, drawn.hue, number)
            row.append(drawn)
        yield row


def _draw_word(canvas: Canvas, word: int, row: list[_Drawn], reserved: tuple[str, ...], y: float) -> None:
    canvas.text(_LABEL - 8, y + 19, f"w{word}", "end")
    canvas.rect(_LABEL, y, 64 * _BIT, _ROW, "line")
    for drawn in row:
        field = drawn.field
        x, width = _LABEL + (64 - field.low - field.width) * _BIT, field.width * _BIT
        canvas.rect(x + 0.5, y + 0.5, width - 1, _ROW - 1, f"{drawn.hue} tint", drawn.tip)
        if drawn.number and width >= text_width(f"{drawn.number} {field.label}", "small") + 6:
            canvas.text(x + width / 2, y + 19, f"{drawn.number} {field.label}", "small middle", tip=drawn.tip)
        elif drawn.number:
            canvas.text(x + width / 2, y + 19, str(drawn.number), "small middle", tip=drawn.tip)
        else:
            canvas.text(x + width / 2, y + 19, drawn.name, "middle", tip=drawn.tip)
    for place in reserved:
        name, bit = place[1:-1].split("[")
        if int(name) == word:
            x = _LABEL + (63 - int(bit)) * _BIT
            canvas.rect(x + 0.5, y + 0.5, _BIT - 1, _ROW - 1, "c5", f"{place} is set and holds nothing known")


def _draw_legend(canvas: Canvas, numbered: list[_Drawn], reserved: tuple[str, ...], y: float) -> None:
    """What the numbers stand for, in columns."""
    width = (WIDTH - _LABEL) / _COLUMNS
    lines = -(-len(numbered) // _COLUMNS)
    for i, drawn in enumerate(numbered):
        x, top = _LABEL + i // lines * width, y + i % lines * 18
        canvas.rect(x, top - 11, 22, 14, f"{drawn.hue} tint")
        canvas.text(x + 11, top, str(drawn.number), "small middle")
        canvas.text(x + 28, top, drawn.field.bits, "small faint")
        form = f", {drawn.field.form}" * (drawn.field.shift > 0)  # one of several places of a value
        canvas.text(x + 28 + 66, top, drawn.name + form, room=width - 100, tip=drawn.tip)
    y += lines * 18
    if reserved:
        canvas.rect(_LABEL, y - 11, 22, 14, "c5")
        canvas.text(_LABEL + 28, y, f"set, and holds nothing known: {', '.join(reserved)}", room=WIDTH - _LABEL - 28)
