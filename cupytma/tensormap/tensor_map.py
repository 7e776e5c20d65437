"""The 128-byte tensor map itself."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.limits import TILE_ALIGNMENT
from cupytma.listed import Listed
from cupytma.tensormap import checking, codec
from cupytma.tensormap.codec import FieldValue
from cupytma.tensormap.difference import FieldDifference, differences
from cupytma.tensormap.enums import Swizzle
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.formats import TextForms
from cupytma.tensormap.interop import Interop
from cupytma.tensormap.parameters import Im2col, Im2colWide, Parameters, Tiled
from cupytma.tensormap.readdressing import ADDRESS_BYTES, Readdressed
from cupytma.tensormap.rule import Violation
from cupytma.tensormap.specialised import encoder
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.tensormap.slots import Slot

_pack_address = struct.Struct("<Q").pack
# Looked up once, because `with_address` is measured in nanoseconds.
_index, _new = operator.index, object.__new__

# What a map may know beyond its bytes, and copies of it too.
_REMEMBERED = ("_parameters", "_axes", "_on_host")
_DRIVER_DEFECT = (
    "w1[21] is set, as drivers before 595 do on Blackwell for some tensors below 128 KB; copies through the map may be "
    "wrong",
    "use `apply_workaround()`, or encode here",
)

AnyParameters: TypeAlias = "Tiled | Im2col | Im2colWide"


class TensorMap(TextForms, Interop):
    """A tensor map (``CUtensorMap``): 128 bytes that describe a tensor and the box moved by one instruction.

    Immutable; equal and hashed by its bytes. Made by `Tiled.encode`, `tensor_map` or `TensorMap.from_bytes`.
    """

    __slots__ = ("__dict__", "_address", "_joined", "_readdressed")

    # The bytes. A map that `with_address` made has an address instead, and is joined when the bytes are asked for.
    _joined: bytes | None
    _address: int
    _readdressed: Readdressed | None

    def __init__(self, data: bytes) -> None:
        data = _bytes_of(data)
        if len(data) != SIZE:
            raise DescriptorError(f"a tensor map is {SIZE} bytes; got {len(data)}")
        self._joined = data
        self._readdressed = None

    @classmethod
    def from_bytes(cls, data: Any) -> TensorMap:
        """A tensor map of 128 bytes (anything with the buffer protocol). Nothing is checked but the length.

        Raises
        ------
        DescriptorError
            If there are not 128 of them, or none at all.
        """
        return cls(data)

    @classmethod
    def encode(cls, parameters: Parameters, target: str | targets.Target = targets.DEFAULT_TARGET) -> TensorMap:
        """What `Parameters.encode` returns; see there."""
        chosen = target if isinstance(target, targets.Target) else targets.target(target)
        specialised = encoder(parameters.kind, len(parameters.global_dim), chosen.name)
        data = specialised(parameters.__dict__) if specialised is not None else None
        if data is not None:
            return cls._of(data, parameters)
        operands = parameters.operands(chosen)
        broken = checking.violations(operands)
        if broken:
            raise DescriptorError(describe_violations(broken), broken)
        return cls._of(codec.pack(operands), parameters)

    @classmethod
    def _of(cls, data: bytes, parameters: Parameters) -> TensorMap:
        """A map that remembers the parameters it holds."""
        made = _new(cls)
        made._joined, made._readdressed = data, None
        made.__dict__["_parameters"] = parameters
        return made

    @property
    def _data(self) -> bytes:
        data = self._joined
        if data is None:
            assert self._readdressed is not None
            data = self._joined = _pack_address(self._address) + self._readdressed.rest
        return data

    def __bytes__(self) -> bytes:
        return self._data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorMap) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __copy__(self) -> TensorMap:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorMap:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        remembered = {name: self.__dict__[name] for name in _REMEMBERED if name in self.__dict__}
        return _restored, (self._data, remembered)

    @cached_property
    def _parameters(self) -> AnyParameters:
        if self._readdressed is not None:
            address = int.from_bytes(self._data[:ADDRESS_BYTES], "little")
            return replace(self._readdressed.parameters, global_address=address)
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
            16 bits, which `Im2col` of rank 4 and 5 reads as several corners, and in mode W128 its pixels read as 128.
            Words 8 and 9, w1[21] and the reserved bits are in no parameter: see `fields`, `warnings` and
            `reserved_bits`. A map from `Parameters.encode`, its copies and what `with_address` makes of it remember
            the parameters and return those.

        Raises
        ------
        DescriptorError
            Naming the bits that make no sense. Bits that hold nothing known are no error: see `reserved_bits`.
        """
        return self._parameters

    @property
    def verified(self) -> bool:
        """Whether a driver was observed to write exactly such bytes: an H100's, for what it accepts.

        False for packed element types, the 128B swizzles with a larger atom, what `Im2colWide` made for a target that
        documents it, and for bytes that the encoder does not make, such as maps changed in place.
        """
        try:
            p = self._parameters
            return self._data == bytes(p.encode())
        except DescriptorError:
            return False

    @property
    def axes(self) -> tuple[tuple[int, ...], ...] | None:
        """The array's axes that each dimension stands for, in array order; None for a map not made from an array."""
        found: tuple[tuple[int, ...], ...] | None = self.__dict__.get("_axes")
        return found

    @property
    def source(self) -> Any:
        """The array that `tensor_map` made the map of, kept alive by it; None for other maps.

        Maps with another address have none, and none is pickled.
        """
        return self.__dict__.get("_source")

    @property
    def on_host(self) -> bool:
        """Whether the map is known to describe host memory, which no GPU may be given it for."""
        return bool(self.__dict__.get("_on_host", False))

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
        return max(TILE_ALIGNMENT, 8 * swizzle.span if swizzle != Swizzle.NONE else 0)

    def with_address(self, address: int) -> TensorMap:
        """The same map of a tensor that lies elsewhere; byte for byte a re-encoding, at a fraction of the cost.

        Parameters
        ----------
        address : int
            Of element (0, …, 0), in bytes.

        Raises
        ------
        DescriptorError
            If the address breaks a rule: its alignment (16 or 32 bytes), or below 2^57; or if the bytes cannot be
            decoded, so that it is unknown which alignment they need.
        """
        common = self._readdressed
        if common is None:
            common = self._readdressed = Readdressed(self._data, self._parameters)
        moved = _new(TensorMap)
        moved._readdressed, moved._joined = common, None
        try:
            if address & common.forbidden:
                self._refuse_address(address)
            moved._address = address
        except (TypeError, OverflowError):  # no integer, or one of numpy's that does not mix with Python's
            try:
                return self.with_address(_index(address))
            except TypeError as error:
                raise DescriptorError(f"global_address = {address!r}: {error}") from None
        return moved

    def _refuse_address(self, address: int) -> None:
        broken = replace(self._parameters, global_address=address).violations()
        broken = tuple(violation for violation in broken if violation.rule.startswith("address"))
        raise DescriptorError(describe_violations(broken), broken)

    def replace_raw(
        self, field: str, value: int, ordinal: int = 0, target: str | targets.Target = targets.DEFAULT_TARGET
    ) -> TensorMap:
        """What one ``tensormap.replace.tile.<field>`` makes of the bytes, checked no more than the assembler checks it.

        Exact on every recording of the instruction on an H100, silent truncations included: extents, box and strides
        lose the bits that do not fit, 1 is subtracted from 0 too, ``global_stride`` drops the low 4 bits, ``elemtype``
        never clears the TF32 flag (w1[16]), ``swizzle_mode`` writes w1[22] too, ``swizzle_atomicity`` clears w1[21].
        Assemblers differ in w1[21], the bit of the driver defect: up to CUDA 13.0 ``swizzle_atomicity`` clears it, as
        here; that of 13.5 leaves it alone there and clears it with ``global_address``. Words 8 and 9 are never touched,
        so they may no longer fit the map; the hardware does not read them. ``global_stride`` takes ordinal 4, which no
        tensor map has: as the assembler expands it, it overwrites w3[63:32] and with it the high bits of every stride.

        Parameters
        ----------
        field : str
            global_address, rank, box_dim, global_dim, global_stride, element_stride, elemtype, interleave_layout,
            swizzle_mode, swizzle_atomicity, fill_mode.
        value : int
            As PTX takes it: rank less 1; extents and element strides themselves; strides in bytes; `elemtype` in PTX's
            numbering, which differs from the driver's from 8 on.
        ordinal : int
            The dimension for box_dim, global_dim and element_stride; for global_stride the dimension less 1.
        target : str or Target
            Says which fields and immediates there are. Default ``"sm_90a"``.

        Raises
        ------
        EmissionError
            For what the assembler refuses: an unknown field, an ordinal outside 0…4, an immediate out of range.
        TargetError
            If the target lacks the instruction, the field or the immediate.
        """
        from cupytma.tensormap.mutation import replaced_raw

        return TensorMap(replaced_raw(self._data, field, value, ordinal, target))

    def replace(self, *, target: str | targets.Target = targets.DEFAULT_TARGET, **changes: Any) -> TensorMap:
        """The map after ``tensormap.replace`` of one or more fields, checked as an encoder checks.

        The parameters are decoded, changed and judged by all rules at once, then written as the instruction writes
        them. The first 64 bytes are those of a fresh encoding; words 8 and 9, where encoders record the box's bytes
        and alignment and which the hardware does not read, stay as they were. `box_bytes` and `shared_alignment` of the
        result are computed from the fields, and are thus right.

        Parameters
        ----------
        target : str or Target
            Whose rules hold. Default ``"sm_90a"``.
        **changes
            ``global_address``, ``rank``, ``data_type``, ``interleave``, ``swizzle``, ``oob_fill`` as in `Tiled`;
            ``global_dim``, ``global_strides`` (bytes, of dimensions 1…), ``box_dim``, ``element_strides`` as a whole
            sequence in driver order, or ``{index: value}`` for some entries. With a larger ``rank``, dimensions that
            are added have extent, box and element stride 1 unless given.

        Raises
        ------
        DescriptorError
            Naming every broken rule; or if the instruction cannot make the change: it has no field for
            ``l2_promotion`` and im2col parameters, and cannot turn a TF32 type into another.
        TargetError
            If the target has no ``tensormap.replace``.

        Examples
        --------
        >>> tensor_map.replace(global_address=0x7F0000001000, global_dim={1: 300})
        <TensorMap FLOAT16 1024×300 at 0x7f0000001000, box 64×32, swizzle 128B>
        """
        from cupytma.tensormap.replacement import replaced

        return self._of(*replaced(self, changes, targets.target(target)))

    def rebind(
        self,
        address: int,
        extents: Sequence[int],
        strides: Sequence[int],
        *,
        general: bool = False,
        target: str | targets.Target = targets.DEFAULT_TARGET,
        **changes: Any,
    ) -> TensorMap:
        """The map of another tensor, as a kernel rebinds it: address, extents, then strides; 2·rank replacements.

        The order is that of `cupytma.tensormap.rebind_steps`. Checked as `replace` is.

        Parameters
        ----------
        address : int
            Of element (0, …, 0), in bytes.
        extents : sequence of int
            In elements, driver order.
        strides : sequence of int
            In bytes, of dimensions 1…rank−1.
        general : bool
            Also take im2col maps, another rank and further changes, for which the device path has no emission.
        target : str or Target
            Whose rules hold. Default ``"sm_90a"``.
        **changes
            As `replace` takes them; with ``general`` alone.

        Raises
        ------
        DescriptorError
            Naming every broken rule; or for what is host-born, unless ``general``: im2col maps, another rank, box,
            swizzle, fill, type or interleave.
        """
        from cupytma.tensormap.replacement import rebound

        return self._of(*rebound(self, address, extents, strides, general, changes, targets.target(target)))

    def warnings(self, target: str | targets.Target = targets.DEFAULT_TARGET) -> tuple[Violation, ...]:
        """What is legal and surprising about the map: `Parameters.warnings`, and what only the bytes show.

        Raises
        ------
        DescriptorError
            If the bytes cannot be decoded.
        """
        found = self._parameters.warnings(target)
        if not codec.has_driver_defect(self._data):
            return found
        return Listed((*found, Violation("driver-defect", *_DRIVER_DEFECT, severity="warning")))

    def apply_workaround(self) -> TensorMap:
        """The map with w1[21] cleared: NVIDIA's workaround for drivers before 595 on Blackwell.

        For maps that such a driver encoded of a tensor whose allocation is under 128 KB and that is not dense and
        non-overlapping (release notes of driver 595). Maps encoded here never have the bit set.
        """
        from cupytma.tensormap.mutation import without_driver_defect

        cleared = TensorMap(without_driver_defect(self._data))
        if "_parameters" in self.__dict__:
            cleared.__dict__["_parameters"] = self._parameters
        return cleared

    def diff(self, other: TensorMap) -> tuple[FieldDifference, ...]:
        """The fields in which this map and another differ, in the order of the bits; empty exactly if they are equal.

        Reserved bits and words 8 and 9 count. A field that only one of the kinds or ranks has is None in the other; if
        a rank makes no sense, whole words are compared.
        """
        return differences(self._data, bytes(other))

    def slots(self) -> tuple[Slot, ...]:
        """The first 64 bytes as the eight named slots of the founding document, beside what the bits really hold.

        Returns
        -------
        tuple of Slot
            Print one for name, word, fields, the mutators that write it, and where the document differs.
        """
        from cupytma.tensormap.slots import slots_of

        return slots_of(self._data)

    def _repr_html_(self) -> str:
        from cupytma.view.card import card

        return card(self)

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
        defect = ", w1[21] set (see warnings)" if codec.has_driver_defect(self._data) else ""
        return f"<TensorMap {p.data_type} {dims} at {p.global_address:#x}, {box}{extras}{defect}>"


def _bytes_of(data: Any) -> bytes:
    """The bytes of an object that has some; a number has none, though Python would make so many zeros of it."""
    try:
        return bytes(data) if hasattr(data, "__bytes__") else bytes(memoryview(data))
    except (TypeError, ValueError, BufferError) as error:
        raise DescriptorError(f"{type(data).__name__} holds no bytes of a tensor map: {error}") from None


def _restored(data: bytes, remembered: dict[str, Any]) -> TensorMap:
    """A copy, with what the map knew beyond its bytes."""
    made = TensorMap(data)
    made.__dict__.update(remembered)
    return made


def _columns(p: Im2col | Im2colWide) -> str:
    return f"{counted(p.channels_per_pixel, 'channel')} × {counted(p.pixels_per_column, 'pixel')}"


def describe_violations(broken: tuple[Violation, ...]) -> str:
    """All broken rules as one block of text."""
    if len(broken) == 1:
        return str(broken[0])
    return "\n".join([f"{len(broken)} rules are broken:", *(f"  {violation}" for violation in broken)])
