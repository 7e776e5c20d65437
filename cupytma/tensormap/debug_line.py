"""The debug line of the founding document: ``DESC_TMA512: 0x…`` with words of 64 bits after it.

NVIDIA's tile compiler prints four of the eight words of the payload (the format is in its strings); here all eight, or
all sixteen of the tensor map, can be printed and any of the three read.
"""

from __future__ import annotations

import re

from cupytma.errors import DescriptorError
from cupytma.targets import TARGETS
from cupytma.tensormap import codec
from cupytma.tensormap.fields import FIELDS, SIZE, WORDS
from cupytma.words import counted

LABEL = "DESC_TMA512"
PAYLOAD_WORDS = 8
_PRINTED_WORDS = 4
_COUNTS = (_PRINTED_WORDS, PAYLOAD_WORDS, WORDS)
_WORD = r"(?:0[xX])?[0-9a-fA-F]{1,16}(?:[ \t,;.\r]+|$)"
_LINE = re.compile(rf"{LABEL}[ \t]*:?[ \t]*(?P<words>(?:{_WORD})+)", re.MULTILINE)
# Words 8 and 9 do not depend on what a target adds, so that any target that has everything will do.
_TARGET = TARGETS["sm_100a"]


def write_debug_line(words: tuple[int, ...], count: int = PAYLOAD_WORDS) -> str:
    """The line with the first ``count`` words: 4, 8 or 16.

    Raises
    ------
    DescriptorError
        For any other count.
    """
    if count not in _COUNTS:
        raise DescriptorError(f"a {LABEL} line has 4 words, 8 or 16; {count} were asked for")
    return f"{LABEL}: 0x" + " ".join(f"{word:016x}" for word in words[:count])


def read_debug_line(text: str, template: bytes | None = None) -> bytes:
    """The 128 bytes of a line with 16 words, or 8; or 4, if a template gives the rest.

    After 8 words, words 8 and 9 are what the encoders record for such a map (the hardware does not read them), and the
    others zero. A line may stand among others; the first is read.

    Raises
    ------
    DescriptorError
        If there is no such line, or its words do not make a tensor map; the message says what the missing ones hold.
    """
    found = _LINE.search(text)
    if found is None:
        raise DescriptorError(f"no {LABEL} line: it reads {LABEL}: 0x… with 4, 8 or 16 words of 16 hex digits")
    words = [int(word, 16) for word in re.findall(r"[0-9a-fA-F]+", re.sub(r"0[xX]", "", found["words"]))]
    if len(words) not in _COUNTS:
        raise DescriptorError(f"{LABEL} with {counted(len(words), 'word')}; it has 4, 8 or 16 of them")
    data = b"".join(word.to_bytes(8, "little") for word in words)
    if template is not None:
        return data + template[len(data) :]
    if len(words) == _PRINTED_WORDS:
        raise DescriptorError(
            f"{LABEL} with {_PRINTED_WORDS} words: words {_PRINTED_WORDS}…{PAYLOAD_WORDS - 1} are missing, which hold "
            f"{', '.join(_missing(words))}; give the tensor map that they come from as template"
        )
    return _with_records(data.ljust(SIZE, b"\0")) if len(words) == PAYLOAD_WORDS else data


def _missing(words: list[int]) -> tuple[str, ...]:
    """Names of what the words after the printed ones hold in a map of this kind."""
    kind = next(field for field in FIELDS if field.name == "is_im2col")
    layout = "im2col" if words[kind.word] & kind.mask else "tiled"
    absent = range(_PRINTED_WORDS, PAYLOAD_WORDS)
    return tuple(dict.fromkeys(f.name for f in FIELDS if f.word in absent and layout in f.layouts))


def _with_records(data: bytes) -> bytes:
    """The bytes with the words that encoders record for software; as they are where no encoder would make them."""
    from cupytma.tensormap.tensor_map import TensorMap

    try:
        parameters = TensorMap(data).decode()
    except DescriptorError:
        return data
    end = 8 * PAYLOAD_WORDS
    return data[:end] + codec.pack(parameters.operands(_TARGET))[end:]
