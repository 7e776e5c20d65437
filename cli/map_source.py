"""The tensor map that a command is given, in any form that ``cupytma decode`` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .decode import _read

if TYPE_CHECKING:
    from cupytma.tensormap import TensorMap


def read_tensor_map(source: tuple[str, ...]) -> TensorMap:
    """A tensor map from a file, standard input or the text itself.

    Raises
    ------
    DescriptorError, Failure
        If it is none.
    """
    return _read(source)
