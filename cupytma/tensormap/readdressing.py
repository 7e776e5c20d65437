"""What re-addressing a tensor map needs to know, found once for all maps that differ in the address alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupytma.targets import DEFAULT_TARGET

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import AnyParameters

# The address is the whole of word 0, below 2^57.
ADDRESS_BYTES = 8
_ADDRESS_BITS = 57


class Readdressed:
    """What a map and those re-addressed from it have in common.

    Attributes
    ----------
    forbidden : int
        The bits that no legal address has, sign included.
    rest : bytes
        All but the address.
    parameters : Tiled, Im2col or Im2colWide
        Of the first of them: they may say more than the bytes do.
    """

    __slots__ = ("forbidden", "parameters", "rest")

    def __init__(self, data: bytes, parameters: AnyParameters) -> None:
        alignment: int = parameters.operands(DEFAULT_TARGET)["alignment"]
        self.forbidden = -1 << _ADDRESS_BITS | (alignment - 1)
        self.rest = data[ADDRESS_BYTES:]
        self.parameters = parameters
