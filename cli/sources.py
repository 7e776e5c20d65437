"""Bytes from a file or standard input, with errors that say what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

from .failures import Failure

STANDARD_INPUT = "-"
_LARGEST = 1 << 20


def read_standard_input(largest: int = _LARGEST) -> bytes:
    """All of standard input."""
    if sys.stdin is None:
        raise Failure("standard input is closed")
    return _limited(sys.stdin.buffer, name_of(STANDARD_INPUT), largest)


def read_file(path: str, largest: int = _LARGEST) -> bytes:
    """All of a file; ``-`` is standard input.

    Parameters
    ----------
    path : str
    largest : int, optional
        The most bytes that make sense.

    Raises
    ------
    Failure
        If it cannot be read, or is far larger than anything these commands take.
    """
    if path == STANDARD_INPUT:
        return read_standard_input(largest)
    try:
        with Path(path).open("rb") as file:
            return _limited(file, name_of(path), largest)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot read {path!r}: {reason}") from None


def name_of(path: str) -> str:
    """What a source is called in messages."""
    return "standard input" if path == STANDARD_INPUT else repr(path)


def is_path(text: str) -> bool:
    """Whether something of that name exists."""
    return os.path.exists(text)


def as_text(data: bytes) -> str | None:
    """The text that bytes hold, in UTF-8 or, as some shells redirect, UTF-16; None if they hold none."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _limited(file: IO[bytes], name: str, largest: int) -> bytes:
    data = file.read(largest + 1)
    if len(data) > largest:
        what = "; a tensor map or its parameters take far less" if largest == _LARGEST else ""
        raise Failure(f"{name} holds more than {largest >> 20} MiB{what}")
    return data
