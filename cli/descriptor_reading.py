"""A tensor map from what the command line names: a file, standard input, or the text itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from cupytma.errors import DescriptorError
from cupytma.tensormap import TensorMap

from .address_names import AddressName, parse_address, without_name
from .failures import Failure
from .output import shortened
from .sources import STANDARD_INPUT, as_text, is_path, name_of, read_file

# What may have been meant as the name of a file.
_NAME = re.compile(r"[^\s{},]+")
_BYTES = 128


@dataclass(frozen=True)
class Described:
    """A tensor map, and the name that stands for its address, which is 0 in its bytes; "" for none."""

    tensor_map: TensorMap
    address_name: str = ""


def one_source(source: tuple[str, ...], what: str = "nothing to decode") -> str:
    """The first source; without one standard input, unless that is a terminal.

    Raises
    ------
    UsageError
        If there is neither; it says ``what``, and what to give.
    """
    if source:
        return source[0]
    if sys.stdin is None or sys.stdin.isatty():  # closed, it is None
        raise click.UsageError(f"{what}; give a file, the text itself, or - for standard input")
    return STANDARD_INPUT


def read_described(source: tuple[str, ...], what: str = "nothing to decode") -> Described:
    """The tensor map that arguments name or show.

    Parameters
    ----------
    source : tuple of str
        A file, ``-``, or the text, perhaps in several arguments; standard input if empty.
    what : str
        What to say where there is neither.

    Raises
    ------
    Failure
        If there is none.
    """
    source = source or (one_source(source, what),)
    if len(source) == 1 and (source[0] == STANDARD_INPUT or is_path(source[0])):
        return _of_file(source[0])
    try:
        return _of_text(" ".join(source))
    except DescriptorError as error:
        if len(source) > 1 or not _NAME.fullmatch(source[0]):
            raise
        raise Failure(f"there is no file {shortened(source[0])!r}, and it is no tensor map: {error}") from None


def _of_file(path: str) -> Described:
    return described_in(read_file(path))


def described_in(data: bytes) -> Described:
    """The tensor map that all bytes of a file show.

    Raises
    ------
    DescriptorError, Failure
        If there is none.
    """
    text = as_text(data)
    try:
        return Described(TensorMap.parse(data)) if text is None else _of_text(text, data)
    except DescriptorError as error:
        if text is None and len(data) > _BYTES:
            raise Failure(f"{error}; --offset N takes one out of a dump, and --search finds them") from None
        raise


def _of_text(text: str, data: bytes | None = None) -> Described:
    without, name = without_name(text)
    source = without if name or data is None else data
    return Described(TensorMap.parse(source), name or _name_in_document(text))


def _name_in_document(text: str) -> str:
    """The name that JSON of this command has for the address."""
    if not text.lstrip().startswith("{") or '"parameters"' not in text:
        return ""
    try:
        document: Any = json.loads(text)
        address = document["parameters"]["global_address"]
        name = parse_address(address) if isinstance(address, str) else 0
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(document, Mapping) and isinstance(name, AddressName) else ""


def described_at(path: str, offset: int | None) -> Described:
    """The tensor map of one argument, or at an offset of the file that it names.

    Raises
    ------
    Failure
        If there is none.
    """
    if offset is None:
        return read_described((path,))
    from .dumps import read_at

    if path != STANDARD_INPUT and not is_path(path):
        raise Failure(f"there is no file {shortened(path)!r}; an offset counts bytes of a file")
    return Described(read_at(path, offset))


def label_of(source: str) -> str:
    """What an argument is called where its map is shown."""
    return name_of(source) if source == STANDARD_INPUT or is_path(source) else f"the text {shortened(source)!r}"
