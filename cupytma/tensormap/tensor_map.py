"""The 128-byte tensor map itself."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any, TypeAlias

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap import checking, codec
from cupytma.tensormap.codec import FieldValue
from cupytma.tensormap.enums import DataType, Swizzle
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.parameters import Im2col, Im2colWide, Parameters, Tiled
from cupytma.tensormap.rule import Violation

# The unit reads and writes tiles on 128-byte boundaries of shared memory only (measured on an H100).
_TILE_ALIGNMENT = 128

AnyParameters: TypeAlias = "Tiled | Im2col | Im2colWide"


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
    def _parameters(self) -> AnyParameters:
        layout, _, found = codec.unpack(self._data)
        kind = Im2col if layout == "im2col" else Tiled
        return kind(**{field.name: found[field.name] for field in fields(kind)})

    def decode(self) -> AnyParameters:
        """The parameters that the bytes hold.

        Returns
        -------
        Tiled or Im2col
            Equal to what was encoded, up to what the format does not hold: an im2col-wide map reads as `Im2col` (its
            W corners with the others 0), without its mode; on targets that document im2col-wide its corners have
            16 bits, which `Im2col` of rank 4 and 5 reads as several corners. A map fresh from `Parameters.encode`
            remembers its parameters and returns those.

        Raises
        ------
        DescriptorError
            Naming the bits that make no sense. Bits that hold nothing known are no error: see `reserved_bits`.
        """
        return self._parameters

    @property
    def verified(self) -> bool:
        """Whether an encoding like this was observed from a driver, rather than derived from documentation alone.

        False for packed element types, the 128B swizzles with a larger atom, and what `Im2colWide` made for a target
        that documents it.
        """
        p = self._parameters
        if isinstance(p, Im2colWide):
            return self._data == bytes(p.encode()) if not p.violations() else False
        return p.data_type <= DataType.TFLOAT32_FTZ and p.swizzle <= Swizzle.B128

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

        See `Tiled.transaction_bytes`; not the driver's own count in word 8, which rounds down where the unit rounds
        up.
        """
        return self._parameters.transaction_bytes

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
        dims = "×".join(map(str, p.global_dim))
        box = f"box {'×'.join(map(str, p.box_dim))}" if isinstance(p, Tiled) else f"im2col {_columns(p)}"
        extras = "".join(
            f", {name} {value}"
            for name, value in (("swizzle", p.swizzle), ("interleave", p.interleave), ("oob_fill", p.oob_fill))
            if value
        )
        return f"<TensorMap {p.data_type} {dims} at {p.global_address:#x}, {box}{extras}>"


def _columns(p: Im2col | Im2colWide) -> str:
    return f"{p.channels_per_pixel} channels × {p.pixels_per_column} pixels"


def describe_violations(broken: tuple[Violation, ...]) -> str:
    """All broken rules as one block of text."""
    if len(broken) == 1:
        return str(broken[0])
    return "\n".join([f"{len(broken)} rules are broken:", *(f"  {violation}" for violation in broken)])
