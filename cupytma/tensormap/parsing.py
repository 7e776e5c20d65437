"""The 128 bytes of a tensor map from whatever shows them: hex, C, JSON, a debugger, the debug line, raw bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cupytma.errors import DescriptorError
from cupytma.tensormap.debug_line import LABEL, read_debug_line
from cupytma.tensormap.fields import SIZE, WORDS
from cupytma.words import counted

# How many numbers make a tensor map, and the bytes of each.
_WIDTHS = {SIZE // width: width for width in (8, 4, 2, 1)}
_EXPECTED = "a tensor map is 128 bytes: 256 hex digits, or 16 numbers of 64 bits (32 of 32, 64 of 16, 128 of 8)"
_LONGEST_NUMBER = 72  # a 64-bit number in binary, with room for its prefix and sign
_SHOWN = 24

# Each of these looks at a character a few times at most, whatever the text: it comes from anywhere.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_MEMBER_NAME = re.compile(r"\.?\b[A-Za-z_]\w*\s*=")
_REPEATED = re.compile(r"\b(\w+)\s*<repeats (\d{1,3}) times>")
_SEPARATORS = re.compile(r"[\s,;{}()\[\]]+")
_INTEGER_SUFFIX = re.compile(r"(?<=[0-9a-fA-F])[uUlL]+$")
_ADDRESS_COLUMN = re.compile(r"^[^:\n]*:", re.MULTILINE)
_PROMPT = re.compile(r"^[ \t]*\((cuda-)?gdb\).*$", re.MULTILINE)
_HEX = re.compile(r"[0-9a-fA-F]+")


def parse_tensor_map(source: str | bytes | bytearray | memoryview) -> bytes:
    """The 128 bytes that a text shows, or that raw bytes are; see `TensorMap.parse`.

    Raises
    ------
    DescriptorError
        If the source is none of the formats, or too long or short.
    """
    if isinstance(source, str):
        return _from_text(source)
    data = bytes(source)
    text = text_of(data)
    if not data or (text is None and len(data) != SIZE):
        raise DescriptorError(f"{len(data)} bytes of binary data; {_EXPECTED}" if data else f"no input; {_EXPECTED}")
    try:
        return data if text is None else _from_text(text)
    except DescriptorError:
        if len(data) == SIZE:
            return data  # raw bytes that happen to be characters
        raise


def text_of(data: bytes) -> str | None:
    """The text that bytes hold, in UTF-8 or, as some shells redirect, UTF-16; None if they hold none."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def bytes_of_document(document: Any) -> bytes:
    """The 128 bytes of a mapping with ``bytes`` (hex) or ``words`` (16 numbers or their hex), or both.

    Raises
    ------
    DescriptorError
        If it has neither, or they differ, or are none.
    """
    if not isinstance(document, Mapping):
        raise DescriptorError("a tensor map as JSON is an object with \"bytes\" or \"words\"")
    found = [
        read(document[key]) for key, read in (("bytes", _from_hex), ("words", _from_listed)) if document.get(key)
    ]
    if not found:
        raise DescriptorError(
            'this JSON has neither "bytes" nor "words"; parameters become a tensor map by '
            "`Parameters.from_dict(…).encode()` or `cupytma encode tiled --from`"
        )
    if found[0] != found[-1]:
        raise DescriptorError('"bytes" and "words" of this JSON differ')
    return found[0]


def document_of(text: str | bytes) -> Any:
    """What JSON text holds.

    Raises
    ------
    DescriptorError
        If it is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DescriptorError(f"this is no JSON: {error}") from None


def _from_text(text: str) -> bytes:
    text = _PROMPT.sub("", text).strip()
    if not text:
        raise DescriptorError(f"no input; {_EXPECTED}")
    read = next(reader for belongs, reader in _READERS if belongs(text))
    return read(text)


def _from_json(text: str) -> bytes:
    return bytes_of_document(document_of(text))


def _from_listed(words: Any) -> bytes:
    if not isinstance(words, (list, tuple)):
        raise DescriptorError(f'"words" is a list of {WORDS} numbers')
    return _from_numbers([str(word) for word in words])


def _from_c(text: str) -> bytes:
    text = _COMMENT.sub(" ", text)
    if "{" in text:
        text = text[text.index("{") :]
    text = _MEMBER_NAME.sub(" ", text)
    text = _REPEATED.sub(lambda found: ", ".join([found[1]] * int(found[2])), text, count=SIZE)
    return _from_numbers([_INTEGER_SUFFIX.sub("", token) for token in _SEPARATORS.split(text) if token])


def _from_dump(text: str) -> bytes:
    return _from_numbers(_ADDRESS_COLUMN.sub("", text).split())


def _from_hex(text: Any) -> bytes:
    tokens = str(text).split()
    if len(tokens) > 1 and all(token[:2] in ("0x", "0X") and len(token) <= 18 for token in tokens):
        return _from_numbers(tokens)
    digits = [token[2:] if token[:2] in ("0x", "0X") else token for token in tokens]
    for token in digits:
        if not _HEX.fullmatch(token):
            raise DescriptorError(f"{_shortened(token)} is no hex; {_EXPECTED}")
    joined = "".join(digits)
    if len(joined) != 2 * SIZE:
        raise DescriptorError(f"{counted(len(joined), 'hex digit')}; {_EXPECTED}")
    return bytes.fromhex(joined)


def _from_numbers(tokens: Sequence[str]) -> bytes:
    numbers = [_number(token) for token in tokens]
    width = _WIDTHS.get(len(numbers))
    if width is None:
        raise DescriptorError(f"{counted(len(numbers), 'number')}; {_EXPECTED}")
    for token, number in zip(tokens, numbers, strict=True):
        if not 0 <= number < 1 << (8 * width):
            raise DescriptorError(
                f"{_shortened(token)} is no unsigned number of {8 * width} bits, and there are {len(numbers)} of them"
            )
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _number(token: str) -> int:
    """An integer in decimal, or as Python and C write other bases."""
    try:
        if len(token) > _LONGEST_NUMBER or not token.isascii():
            raise ValueError
        return int(token, 10 if token.lstrip("+-").isdigit() else 0)
    except ValueError:
        raise DescriptorError(f"{_shortened(token)} is no integer; {_EXPECTED}") from None


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


# Tried in turn; hex is what remains.
_READERS: tuple[tuple[Callable[[str], bool], Callable[[str], bytes]], ...] = (
    (lambda text: LABEL in text, read_debug_line),
    (lambda text: text.startswith("{") and '"' in text, _from_json),
    (lambda text: "{" in text or "," in text, _from_c),
    (lambda text: ":" in text, _from_dump),
    (lambda text: True, _from_hex),
)
