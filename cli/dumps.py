"""Tensor maps inside something larger: a core file, the parameters of a kernel, what a debugger prints of memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import IO, TYPE_CHECKING, Any

from cupytma.errors import DescriptorError
from cupytma.targets import TARGETS
from cupytma.tensormap import TensorMap
from cupytma.tensormap.fields import LAYOUTS, RANKS, SIZE, SWIZZLES, WORDS, known_bits

from .failures import Failure
from .progress import PATIENCE, progress_bar
from .sources import as_text, limited, name_of, opened

if TYPE_CHECKING:
    import numpy.typing as npt

# Has every feature that a tensor map can use: what is illegal here is illegal everywhere.
MOST_PERMISSIVE = TARGETS["sm_100a"]

_LARGEST_TEXT = 1 << 24
_SEARCHING = "MiB searched"
_HEAD, _PIECE = 1 << 12, 1 << 23
_PRINTED = frozenset(range(0x20, 0x7F)) | frozenset(b"\t\r\n")
_WORD = 8
# A row as gdb prints memory: an address, perhaps a symbol, a colon.
_ADDRESS_COLUMN = re.compile(r"^[ \t]*(?:0x)?[0-9a-fA-F]+(?:[ \t]*<[^>\n]*>)?:", re.MULTILINE)
_PROMPT = re.compile(r"^[ \t]*\((?:cuda-)?gdb\).*$", re.MULTILINE)
_DIGITS = (2, 4, 8, 16)

_ALIGNMENT_WORD = 9
_ALIGNMENTS = sorted({row.recorded_alignment for row in SWIZZLES.values()})
_UNKNOWN = ~reduce(or_, (known_bits(layout, rank) for layout in LAYOUTS for rank in RANKS[layout]))
# Bits that are zero in every tensor map, by word; those with the most of them first.
_ZERO_BITS = sorted(
    ((word, mask) for word in range(WORDS) if (mask := _UNKNOWN >> 64 * word & (1 << 64) - 1)),
    key=lambda row: -row[1].bit_count(),
)


@dataclass(frozen=True)
class Found:
    """A tensor map in a dump.

    Attributes
    ----------
    offset : int
        In bytes from the beginning.
    tensor_map : TensorMap
    as_encoded : bool
        Whether all 128 bytes are as an encoder writes them. If not, words 8 and 9, which the hardware does not read,
        say otherwise: the map was made or changed on a device.
    """

    offset: int
    tensor_map: TensorMap
    as_encoded: bool


def read_at(path: str, offset: int) -> TensorMap:
    """The tensor map at an offset of a file, or of standard input.

    Parameters
    ----------
    path : str
        Raw bytes; or text as a debugger prints memory, or hex, whose bytes are counted.
    offset : int
        In bytes.

    Raises
    ------
    Failure
        If there are not 128 bytes.
    """
    if offset < 0:
        raise Failure(f"--offset {offset}: an offset counts bytes from the beginning, from 0 up")
    with opened(path) as file:
        head = file.read(_HEAD)
        if _is_text(head):
            data = _shown(head, file, name_of(path))[offset : offset + SIZE]
        else:
            data = _bytes_at(file, head, offset)
    if len(data) < SIZE:
        raise Failure(
            f"{name_of(path)} ends before the 128 bytes of a tensor map at offset {offset} ({offset:#x}); --search "
            "finds the tensor maps that it holds"
        )
    return TensorMap(data)


def search(path: str) -> list[Found]:
    """The tensor maps in a file or standard input that start on a multiple of 8 bytes.

    A map that no encoder would make is none; neither is one whose address is null unless words 8 and 9 are as an
    encoder writes them: zeros would look like it.

    Raises
    ------
    Failure
        If the file cannot be read.
    """
    with opened(path) as file:
        head = file.read(_HEAD)
        if _is_text(head):
            found = list(_found_in(_shown(head, file, name_of(path)), 0))
        else:
            found = list(_found_in_pieces(file, head))
    taken = [row.offset for row in found if row.as_encoded]
    # The second half of one map, and what follows it, may look like another.
    return [row for row in found if row.as_encoded or not any(abs(row.offset - offset) < SIZE for offset in taken)]


def _shown(head: bytes, file: IO[bytes], name: str) -> bytes:
    """The bytes that a file shows which begins as a text does; its own where it turns out to be none."""
    data = head + limited(file, name, _LARGEST_TEXT)
    text = as_text(data)
    return data if text is None else bytes_of_text(text, name)


def bytes_of_text(text: str, name: str) -> bytes:
    """The bytes that a text shows, in the order of memory: numbers with ``0x``, of 1, 2, 4 or 8 bytes, or plain hex.

    Raises
    ------
    Failure
        If it shows something else.
    """
    text = _ADDRESS_COLUMN.sub(" ", _PROMPT.sub(" ", text))
    found = bytearray()
    for token in text.split():
        digits = token[2:] if token[:2] in ("0x", "0X") else token
        try:
            value = bytes.fromhex(digits)
            if digits is not token and len(digits) not in _DIGITS:
                raise ValueError
        except ValueError:
            raise Failure(
                f"{name} has {token[:24]!r}, and a text with an offset is hex, or memory as x/64gx prints it; make raw "
                "bytes of other dumps"
            ) from None
        found += value if digits is token else value[::-1]
    return bytes(found)


def _is_text(head: bytes) -> bool:
    """Whether a file begins as a text does; its last character may be cut."""
    return bool(head) and all(byte in _PRINTED for byte in head[:_HEAD])


def _bytes_at(file: IO[bytes], head: bytes, offset: int) -> bytes:
    """The bytes of a map at an offset of a file of which the head has been read; fewer where it ends."""
    if offset + SIZE <= len(head):
        return head[offset : offset + SIZE]
    if file.seekable():
        try:
            file.seek(offset)
        except (OSError, OverflowError, ValueError):  # no file is as long
            return b""
        return file.read(SIZE)
    left = offset - len(head)
    while left > 0 and (piece := file.read(min(left, _PIECE))):
        left -= len(piece)
    return b"" if left > 0 else head[offset:] + file.read(SIZE - len(head[offset:]))


def _found_in_pieces(file: IO[bytes], head: bytes) -> Iterator[Found]:
    """What is found piece by piece; a map that lies across two pieces is found in the second."""
    total = _size_of(file)
    start, data = 0, head + file.read(_PIECE)
    with progress_bar(None if total is None else total >> 20, _SEARCHING, PATIENCE) as report:
        while len(data) >= SIZE:
            yield from _found_in(data, start)
            done = (len(data) - SIZE) // _WORD * _WORD + _WORD
            start, data = start + done, data[done:] + file.read(_PIECE)
            report(start >> 20, _SEARCHING)


def _size_of(file: IO[bytes]) -> int | None:
    """The bytes of a file; None where it is a pipe or the like."""
    try:
        return os.fstat(file.fileno()).st_size or None
    except OSError:
        return None


def _found_in(data: bytes, start: int) -> Iterator[Found]:
    for offset in _candidates(data):
        tensor_map = TensorMap(data[offset : offset + SIZE])
        try:
            parameters = tensor_map.decode()
            if tensor_map.reserved_bits or parameters.violations(MOST_PERMISSIVE):
                continue
        except DescriptorError:
            continue
        as_encoded = bytes(parameters.encode(MOST_PERMISSIVE)) == bytes(tensor_map)
        if as_encoded or parameters.global_address:
            yield Found(start + offset, tensor_map, as_encoded)


def _candidates(data: bytes) -> list[int]:
    """Offsets at which the bits that every tensor map has at zero are, and word 9 is as an encoder or a zeroed slot."""
    import numpy as np

    words: npt.NDArray[Any] = np.frombuffer(data, "<u8", count=len(data) // _WORD)
    count = len(words) - WORDS + 1
    if count <= 0:
        return []
    alignment = words[_ALIGNMENT_WORD:][:count]
    wanted = (alignment == 0) & (words[:count] != 0)
    for known in _ALIGNMENTS:
        wanted |= alignment == known
    places = np.flatnonzero(wanted)
    for word, mask in _ZERO_BITS:
        places = places[(words[places + word] & np.uint64(mask)) == 0]
    return [int(place) * _WORD for place in places]
