"""The tensor map that a command is given, in any form that ``cupytma decode`` reads."""

from __future__ import annotations

import re
import sys

import click

from cupytma.errors import DescriptorError
from cupytma.tensormap import TensorMap

from .failures import Failure
from .sources import STANDARD_INPUT, is_path, read_file

_NAME = re.compile(r"[^\s{},]+")  # what may have been meant as the name of a file
_SHOWN = 40


def read_tensor_map(source: tuple[str, ...]) -> TensorMap:
    """A tensor map from a file, the text itself, perhaps in several arguments, or standard input where there is none.

    Raises
    ------
    DescriptorError, Failure
        If it is none.
    """
    if not source and (sys.stdin is None or sys.stdin.isatty()):  # closed, it is None
        raise click.UsageError("no tensor map; give a file, the text itself, or - for standard input")
    if not source or source == (STANDARD_INPUT,) or (len(source) == 1 and is_path(source[0])):
        return TensorMap.parse(read_file(source[0] if source else STANDARD_INPUT))
    try:
        return TensorMap.parse(" ".join(source))
    except DescriptorError as error:
        if len(source) > 1 or not _NAME.fullmatch(source[0]):
            raise
        name = source[0] if len(source[0]) <= _SHOWN else f"{source[0][:_SHOWN]}…"
        raise Failure(f"there is no file {name!r}, and it is no tensor map: {error}") from None
