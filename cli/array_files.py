"""Arrays in .npy files, from a file or a pipe. Pickles are never loaded."""

from __future__ import annotations

import io
import sys
import warnings
from typing import TYPE_CHECKING, Any

from .failures import Failure
from .sources import STANDARD_INPUT, name_of, read_file

if TYPE_CHECKING:
    import numpy.typing as npt

LARGEST = 1 << 30
"""Bytes of the largest array that is read or made."""

_MAGIC, _ZIP, _PICKLE = b"\x93NUMPY", b"PK", b"\x80"
_HEADER = 1 << 16
_HINT = "save one array with numpy.save(file, array)"


def read_array(path: str) -> npt.NDArray[Any]:
    """The array in a .npy file; ``-`` is standard input. Little-endian, C-contiguous.

    Raises
    ------
    Failure
        If it cannot be read, or holds anything but an array of numbers or of plain bytes.
    """
    import numpy as np

    data, name = read_file(path, LARGEST + _HEADER), name_of(path)
    if not data.startswith(_MAGIC):
        raise Failure(f"{name} {_what_it_is(data)}; {_HINT}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers of old versions
            array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # numpy's parser of headers lets errors of Python's own tokenizer out, and others
        raise Failure(f"{name} is no array that can be read: {_first_line(error)}; {_HINT}") from None
    if array.dtype.hasobject or array.dtype.kind not in "biufcV" or array.dtype.names is not None:
        raise Failure(f"{name} holds elements of dtype {array.dtype}; they must be numbers, or bytes of a fixed length")
    if not array.size:
        raise Failure(f"{name} holds an empty array, of shape {array.shape}")
    packed = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    found: npt.NDArray[Any] = packed.reshape(array.shape)  # an array without dimensions has got one
    return found


def write_array(path: str, array: npt.NDArray[Any]) -> None:
    """Write a .npy file; ``-`` is standard output.

    Raises
    ------
    Failure
        If it cannot be written.
    """
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    write_bytes(path, buffer.getvalue())


def write_bytes(path: str, data: bytes) -> None:
    """Write a file; ``-`` is standard output, as long as that is no terminal.

    Raises
    ------
    Failure
        If it cannot be written.
    """
    if path == STANDARD_INPUT:
        if sys.stdout.isatty():
            raise Failure("raw bytes would garble the terminal; send them to a file (> file) or a pipe")
        sys.stdout.buffer.write(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"cannot write {path!r}: {reason}") from None


def _what_it_is(data: bytes) -> str:
    if not data:
        return "is empty"
    if data.startswith(_ZIP):
        return "is an archive (.npz), and one array is needed"
    if data.startswith(_PICKLE):
        return "looks like a pickle, which is never loaded"
    return "is no .npy file"


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"
