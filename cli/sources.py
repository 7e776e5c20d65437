"""Bytes from a file or standard input, with errors that say what to do."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .failures import Failure

STANDARD_INPUT = "-"
_LARGEST = 1 << 20


def read_standard_input(largest: int = _LARGEST) -> bytes:
    """All of standard input."""
    return read_file(STANDARD_INPUT, largest)


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
    with opened(path) as file:
        return limited(file, name_of(path), largest)


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file, or standard input for ``-``, for reading bytes.

    Raises
    ------
    Failure
        If it cannot be opened or read.
    """
    if path == STANDARD_INPUT and sys.stdin is None:
        raise Failure("standard input is closed")
    try:
        if path == STANDARD_INPUT:
            yield sys.stdin.buffer
            return
        with Path(path).open("rb") as file:
            if _is_endless(path, file):
                raise Failure(f"{name_of(path)} is a device, which may have no end; pipe what is wanted of it to -")
            yield file
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot read {name_of(path)}: {reason}") from None


def _is_endless(path: str, file: IO[bytes]) -> bool:
    """Whether a file is a device such as /dev/zero; neither a terminal nor the null device."""
    is_device = stat.S_ISCHR(os.fstat(file.fileno()).st_mode)
    return is_device and not file.isatty() and not os.path.samefile(path, os.devnull)


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


def is_ptx(text: str) -> bool:
    """Whether a text is a module of PTX, which names its version and target."""
    return ".version" in text and ".target" in text


def limited(file: IO[bytes], name: str, largest: int) -> bytes:
    """All that is left of a file.

    Raises
    ------
    Failure
        If that is more than makes sense.
    """
    data = file.read(largest + 1)
    if len(data) > largest:
        what = "; a tensor map or its parameters take far less" if largest == _LARGEST else ""
        raise Failure(f"{name} holds more than {largest >> 20} MiB{what}")
    return data
