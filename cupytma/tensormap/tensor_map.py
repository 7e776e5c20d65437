"""The 128-byte tensor map itself."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from math import prod
from typing import Any

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap import checking, codec
from cupytma.tensormap.codec import FieldValue
from cupytma.tensormap.enums import Interleave, Swizzle
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.tensormap.rules import Violation

# The unit reads and writes tiles on 128-byte boundaries of shared memory only (measured on an H100).
_TILE_ALIGNMENT = 128


class TensorMap:
    """A tensor map (``CUtensorMap``): 128 bytes that describe a tensor and the box moved by one instruction.

    Immutable; equal and hashed by its bytes. Made by `Tiled.encode`, `tensor_map` or `TensorMap.from_bytes`.
    """

    __slots__ = ("__dict__", "_data")

    _data: bytes

    def __init__(self, data: bytes) -> None:
        data = bytes(data)
        if len(data) != SIZE:
            raise DescriptorError(f"a tensor map is {SIZE} bytes; got {len(data)}")
        self._data = data

    @classmethod
    def from_bytes(cls, data: Any) -> TensorMap:
        """A tensor map of 128 bytes (anything with the buffer protocol). Nothing is checked but the length.

        Raises
        ------
        DescriptorError
            If there are not 128 of them.
        """
        return cls(bytes(memoryview(data)))

    @classmethod
    def encode(cls, parameters: Parameters, target: str | targets.Target = targets.DEFAULT_TARGET) -> TensorMap:
        """What `Parameters.encode` returns; see there."""
        operands = parameters.operands(targets.target(target))
        broken = checking.violations(operands)
        if broken:
            raise DescriptorError(describe_violations(broken), broken)
        encoded = cls(codec.pack(operands))
        encoded.__dict__["_parameters"] = parameters
        return encoded

    def __bytes__(self) -> bytes:
        return self._data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorMap) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce__(self) -> tuple[type[TensorMap], tuple[bytes]]:
        return TensorMap, (self._data,)

    @cached_property
    def _parameters(self) -> Tiled:
        mode, _, found = codec.unpack(self._data)
        if mode != "tiled":
            raise DescriptorError("w1[0] = 1: this is an im2col tensor map; only tiled ones can be decoded")
        return Tiled(**{field.name: found[field.name] for field in fields(Tiled)})

    def decode(self) -> Tiled:
        """The parameters that the bytes hold.

        Returns
        -------
        Tiled
            Equal to what was encoded.

        Raises
        ------
        DescriptorError
            Naming the bits that make no sense.
        """
        return self._parameters

    @property
    def words(self) -> tuple[int, ...]:
        """The sixteen little-endian 64-bit words."""
        return tuple(int.from_bytes(self._data[i : i + 8], "little") for i in range(0, SIZE, 8))

    def fields(self) -> tuple[FieldValue, ...]:
        """Every field the kind and rank of the map have, in the order of the bits.

        Raises
        ------
        DescriptorError
            If the rank bits make no sense, so that it is unknown which fields there are.
        """
        return codec.field_values(self._data)

    @property
    def reserved_bits(self) -> tuple[str, ...]:
        """Set bits that hold nothing known, such as ``("w1[22]",)``; empty for what the driver writes."""
        return codec.reserved_bits(self._data)

    @property
    def box_bytes(self) -> int:
        """Bytes that one load writes to shared memory, out-of-bounds fill included: the mbarrier's transaction count.

        Measured on an H100: element strides round the count of elements up, dimension 0 ignores its element stride
        unless the layout is interleaved, and an interleaved box takes exactly one slice of channels.
        """
        p = self._parameters
        counts = [-(-box // step) for box, step in zip(p.box_dim, p.element_strides, strict=True)]
        if p.interleave == Interleave.NONE:
            return p.element_bytes * p.box_dim[0] * prod(counts[1:])
        counts[p.rank - 2] = 1
        return (16 if p.interleave == Interleave.B16 else 32) * prod(counts)

    @property
    def shared_alignment(self) -> int:
        """Bytes that the tile in shared memory should be aligned to.

        The unit needs 128; with a swizzle, a tile aligned to the pattern's period (256, 512 or 1024 bytes) is
        swizzled from its own first row on, so that tile-relative index formulas hold.
        """
        swizzle = self._parameters.swizzle
        return max(_TILE_ALIGNMENT, 8 * swizzle.span if swizzle != Swizzle.NONE else 0)

    def __repr__(self) -> str:
        try:
            p = self._parameters
        except DescriptorError as error:
            return f"<TensorMap undecodable: {error}>"
        dims, box = ("×".join(map(str, extents)) for extents in (p.global_dim, p.box_dim))
        extras = "".join(
            f", {name} {value}"
            for name, value in (("swizzle", p.swizzle), ("interleave", p.interleave), ("oob_fill", p.oob_fill))
            if value
        )
        return f"<TensorMap {p.data_type} {dims} at {p.global_address:#x}, box {box}{extras}>"


def describe_violations(broken: tuple[Violation, ...]) -> str:
    """All broken rules as one block of text."""
    if len(broken) == 1:
        return str(broken[0])
    return "\n".join([f"{len(broken)} rules are broken:", *(f"  {violation}" for violation in broken)])
