"""The 128 bytes of a tensor map from whatever shows them: hex, C, JSON, a debugger, raw bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from cupytma.tensormap import TensorMap
from cupytma.tensormap.fields import SIZE, WORDS

from .failures import Failure
from .options import parse_integer
from .sources import as_text

# How many numbers make a tensor map, and the bytes of each.
_WIDTHS = {SIZE // width: width for width in (8, 4, 2, 1)}
_EXPECTED = "a tensor map is 128 bytes: 256 hex digits, or 16 numbers of 64 bits (32 of 32, 64 of 16, 128 of 8)"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MEMBER_NAME = re.compile(r"\.?[A-Za-z_]\w*\s*=")
_REPEATED = re.compile(r"(\w+)\s*<repeats (\d{1,3}) times>")
_SEPARATORS = re.compile(r"[\s,;{}()\[\]]+")
_INTEGER_SUFFIX = re.compile(r"(?<=[0-9a-fA-F])[uUlL]+$")
_ADDRESS_COLUMN = re.compile(r"^[^:\n]*:", re.MULTILINE)
_PROMPT = re.compile(r"^\s*\((cuda-)?gdb\).*$", re.MULTILINE)
_HEX = re.compile(r"[0-9a-fA-F]+")


def parse_tensor_map(data: bytes) -> TensorMap:
    """A tensor map from the content of a file.

    Raises
    ------
    Failure
        If the content is none of the formats, or too long or short.
    """
    text = as_text(data)
    if text is not None and data:
        return parse_tensor_map_text(text)
    if len(data) != SIZE:
        raise Failure(f"{len(data)} bytes of binary data; a tensor map is {SIZE}" if data else f"no input; {_EXPECTED}")
    return TensorMap(data)


def parse_tensor_map_text(text: str) -> TensorMap:
    """A tensor map from text: JSON of ours, a C initialiser, a debugger's dump of memory, or hex.

    Raises
    ------
    Failure
        If the text is none of these, or too long or short.
    """
    text = _PROMPT.sub("", text).strip()
    if not text:
        raise Failure(f"no input; {_EXPECTED}")
    read = next(reader for belongs, reader in _READERS if belongs(text))
    try:
        return TensorMap(read(text))
    except ValueError as error:
        raise Failure(str(error)) from None


def _from_json(text: str) -> bytes:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this looks like JSON and is none: {error}") from None
    found = [
        read(document[key]) for key, read in (("bytes", _from_digits), ("words", _from_listed)) if document.get(key)
    ]
    if not found:
        raise ValueError(
            'this JSON has neither "bytes" nor "words"; parameters become a tensor map by `cupytma encode tiled --from`'
        )
    if found[0] != found[-1]:
        raise ValueError('"bytes" and "words" of this JSON differ')
    return found[0]


def _from_digits(digits: object) -> bytes:
    if not isinstance(digits, str):
        raise ValueError(f'"bytes" is a string of {2 * SIZE} hex digits')
    return _from_hex(digits)


def _from_listed(words: object) -> bytes:
    if not isinstance(words, list):
        raise ValueError(f'"words" is a list of {WORDS} numbers')
    return _from_numbers([str(word) for word in words])


def _from_c(text: str) -> bytes:
    text = _COMMENT.sub(" ", text)
    if "{" in text:
        text = text[text.index("{") :]
    text = _REPEATED.sub(lambda found: ", ".join([found[1]] * int(found[2])), _MEMBER_NAME.sub(" ", text))
    return _from_numbers([_INTEGER_SUFFIX.sub("", token) for token in _SEPARATORS.split(text) if token])


def _from_dump(text: str) -> bytes:
    return _from_numbers(_ADDRESS_COLUMN.sub("", text).split())


def _from_hex(text: str) -> bytes:
    tokens = text.split()
    if len(tokens) > 1 and all(token[:2] in ("0x", "0X") and len(token) <= 18 for token in tokens):
        return _from_numbers(tokens)
    digits = [token[2:] if token[:2] in ("0x", "0X") else token for token in tokens]
    for token in digits:
        if not _HEX.fullmatch(token):
            raise ValueError(f"{_shortened(token)!r} is no hex; {_EXPECTED}")
    joined = "".join(digits)
    if len(joined) != 2 * SIZE:
        raise ValueError(f"{len(joined)} hex digits; {_EXPECTED}")
    return bytes.fromhex(joined)


def _from_numbers(tokens: Sequence[str]) -> bytes:
    numbers = [parse_integer(token) for token in tokens]
    width = _WIDTHS.get(len(numbers))
    if width is None:
        raise ValueError(f"{len(numbers)} number{'s'[: len(numbers) != 1]}; {_EXPECTED}")
    for token, number in zip(tokens, numbers, strict=True):
        if not 0 <= number < 1 << (8 * width):
            raise ValueError(f"{token} is no unsigned number of {8 * width} bits, and there are {len(numbers)} of them")
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _shortened(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:24]}…"


# Tried in turn; hex is what remains.
_READERS: tuple[tuple[Callable[[str], bool], Callable[[str], bytes]], ...] = (
    (lambda text: text.startswith("{") and '"' in text, _from_json),
    (lambda text: "{" in text or "," in text, _from_c),
    (lambda text: ":" in text, _from_dump),
    (lambda text: True, _from_hex),
)
