"""What a tensor map describes, as the driver's encoders take it.

Everything is in driver order: dimension 0 moves fastest.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.tensormap import checking
from cupytma.tensormap.enums import DataType, DriverEnum, Interleave, L2Promotion, OobFill, Swizzle, WideMode
from cupytma.tensormap.formats import DictForms
from cupytma.tensormap.rule import FULL_RANK, SEQUENCES
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.tensormap.rule import Violation
    from cupytma.tensormap.tensor_map import TensorMap

_ENUMS: dict[str, type[DriverEnum]] = {
    "data_type": DataType,
    "interleave": Interleave,
    "swizzle": Swizzle,
    "l2_promotion": L2Promotion,
    "oob_fill": OobFill,
    "mode": WideMode,
}


@dataclass(frozen=True, kw_only=True)
class Parameters(DictForms, ABC):
    """What every kind of tensor map has. Use `Tiled`, `Im2col` or `Im2colWide`.

    Parameters
    ----------
    data_type : DataType, str, int, or dtype
        A member, its name, its driver number, or a numpy, ml_dtypes or torch dtype.
    global_address : int
        Of element (0, …, 0), in bytes; a multiple of 16.
    global_dim : sequence of int
        Extents in elements, dimension 0 fastest; 1 to 5 of them (im2col 3 to 5), each up to 2^32.
    global_strides : sequence of int, optional
        Distance in bytes between neighbours in dimensions 1…rank−1; multiples of 16 below 2^40. Dimension 0 is dense.
        Default: rows that follow one another without padding.
    element_strides : sequence of int, optional
        Take every n-th element of a dimension, 1 to 8. Default: 1.
    interleave : Interleave or str
        Default NONE.
    swizzle : Swizzle or str
        Default NONE.
    l2_promotion : L2Promotion or str
        Default NONE.
    oob_fill : OobFill or str
        Default NONE, which fills with zeros.

    Raises
    ------
    DescriptorError
        If an operand is no integer, a name is unknown, or the sequences' lengths do not fit one another. Whether the
        values are legal is said by `violations` and `encode`.
    """

    kind: ClassVar[str]

    data_type: DataType
    global_address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...] = None  # type: ignore[assignment]  # filled in below
    element_strides: tuple[int, ...] = None  # type: ignore[assignment]
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    oob_fill: OobFill = OobFill.NONE

    def __post_init__(self) -> None:
        if self._is_normal():
            return
        problems: list[str] = []
        for name, value in self._normalised(problems).items():
            object.__setattr__(self, name, value)
        if problems:
            raise DescriptorError("; ".join(problems))

    def _is_normal(self) -> bool:
        """Whether every operand already is what it becomes, so that nothing is left to do; for speed."""
        given = self.__dict__
        enumerations, numbers, sequences = _shape_of(type(self))
        for name, enumeration in enumerations:
            if type(given[name]) is not enumeration:
                return False
        for name in numbers:
            if type(given[name]) is not int:
                return False
        rank = len(given["global_dim"]) if type(given["global_dim"]) is tuple else -1
        for name, short in sequences:
            value = given[name]
            if type(value) is not tuple or len(value) != rank - short or rank < 1:
                return False
            for entry in value:
                if type(entry) is not int:
                    return False
        return True

    def _normalised(self, problems: list[str]) -> dict[str, Any]:
        """Every operand as an enumeration member, an integer or a tuple of integers."""
        found: dict[str, Any] = {}
        for field in fields(self):
            value, name = getattr(self, field.name), field.name
            try:
                if name in _ENUMS:
                    found[name] = _member(_ENUMS[name], value)
                elif name in SEQUENCES:
                    found[name] = None if value is None else _integers(value)
                else:
                    found[name] = operator.index(value)
            except (TypeError, ValueError) as error:
                problems.append(str(error) if name in _ENUMS else f"{name} = {value!r}: {error}")
        if not problems:
            self._fill_defaults(found)
            problems += _length_problems(found)
        return found

    @staticmethod
    def _fill_defaults(found: dict[str, Any]) -> None:
        dims = found["global_dim"]
        if found["element_strides"] is None:
            found["element_strides"] = (1,) * len(dims)
        if found["global_strides"] is None:
            bits, strides = checking.SCALAR_LOOKUPS["ELEMENT_BITS"][found["data_type"]], []
            for extent in dims[:-1]:
                bits *= extent
                strides.append(bits // 8)
            found["global_strides"] = tuple(strides)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.global_dim)

    @property
    def element_bits(self) -> int:
        """Bits of one element in global memory."""
        return int(checking.SCALAR_LOOKUPS["ELEMENT_BITS"][self.data_type])

    @property
    def element_bytes(self) -> int:
        """Bytes of one element.

        Raises
        ------
        DescriptorError
            For the packed types, whose elements are 4 or 6 bits; use `element_bits`.
        """
        if self.element_bits % 8:
            raise DescriptorError(f"an element of {self.data_type} has {self.element_bits} bits; use element_bits")
        return self.element_bits // 8

    @property
    def shared_bits(self) -> int:
        """Bits that one element takes in shared memory, its share of the gaps of packed types included."""
        return int(checking.SCALAR_LOOKUPS["SHARED_BITS"][self.data_type])

    @property
    def slice_bytes(self) -> int:
        """Bytes of one slice of channels of an interleaved layout; 0 without interleave."""
        return (0, 16, 32)[self.interleave]

    @property
    @abstractmethod
    def transaction_bytes(self) -> int:
        """Bytes that one load brings to shared memory, out-of-bounds fill included; what an mbarrier must expect."""

    @property
    def tile_bytes(self) -> int:
        """Bytes of shared memory from the first to the last that one load writes.

        With a swizzle, rows shorter than its span advance by a whole span; gaps of packed types count.
        """
        moved = self.transaction_bytes * self.shared_bits // self.element_bits
        row = self._row_bytes
        return moved if self.slice_bytes else moved // row * max(row, self.swizzle.span)

    @property
    @abstractmethod
    def _row_bytes(self) -> int:
        """Bytes of one row of the tile in shared memory, without interleave."""

    def operands(self, target: targets.Target) -> dict[str, Any]:
        """The operands of the rules, derived ones included, for one target."""
        found: dict[str, Any] = {
            "rank": self.rank,
            **checking.target_operands(target),
        }
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in SEQUENCES:
                short, neutral = SEQUENCES[field.name]
                value = value + (neutral,) * (FULL_RANK - short - len(value))
            found[field.name] = value
        found.update(self._own_operands(), mode=self.kind, layout=checking.layout_of(self.kind, target))
        checking.derive(found)
        return found

    def _own_operands(self) -> dict[str, Any]:
        """Operands that are no field of this class, or are named otherwise there."""
        return {"wide_mode": 0}

    def _repr_html_(self) -> str:
        from cupytma.view.card import card

        return card(self)

    def violations(self, target: str | targets.Target = targets.DEFAULT_TARGET) -> tuple[Violation, ...]:
        """Every rule the parameters break on a target; empty when the driver would accept them.

        Parameters
        ----------
        target : str or Target
            Default ``"sm_90a"``.

        Raises
        ------
        TargetError
            If the target is unknown or has no Tensor Memory Accelerator.
        """
        return checking.violations(self.operands(targets.target(target)))

    def warnings(self, target: str | targets.Target = targets.DEFAULT_TARGET) -> tuple[Violation, ...]:
        """What is legal and surprising about the parameters on a target: each has severity ``"warning"``.

        Parameters
        ----------
        target : str or Target
            Default ``"sm_90a"``.

        Raises
        ------
        TargetError
            If the target is unknown or has no Tensor Memory Accelerator.
        """
        operands = self.operands(targets.target(target))
        if checking.violations(operands):
            return ()  # what is refused needs no caution, and may be too odd to reason about
        operands["tile_bytes"] = self.tile_bytes
        checking.add_layout(operands)
        return checking.violations(operands, "warning")

    def faults(
        self, coordinates: Sequence[int], *, shared_address: int = 0, store: bool = False
    ) -> tuple[Violation, ...]:
        """Why a copy with these operands would kill the kernel; empty when it would not. Measured on an H100.

        Parameters
        ----------
        coordinates : sequence of int
            Start of the copy in driver order, one for each dimension, in elements.
        shared_address : int
            Of the tile in shared memory, in bytes.
        store : bool
            Whether the copy is a store or a reduction.

        Raises
        ------
        DescriptorError
            If there is not one coordinate for each dimension.
        """
        given = tuple(operator.index(coordinate) for coordinate in coordinates)
        if len(given) != self.rank:
            raise DescriptorError(
                f"{counted(len(given), 'coordinate')} for rank {self.rank}; give one for each dimension"
            )
        operands = self.operands(targets.DEFAULT_TARGET)
        spatial = given[1 if self.interleave == Interleave.NONE else 0 :] + (0,) * FULL_RANK
        operands.update(
            coordinates=given + (0,) * (FULL_RANK - len(given)), pixel_start=spatial[:3],
            shared_address=shared_address, store=int(store),
        )
        return checking.violations(operands, "fault")

    def encode(
        self, target: str | targets.Target = targets.DEFAULT_TARGET, *, backend: str = "tables"
    ) -> TensorMap:
        """The 128-byte tensor map, byte for byte as the driver makes it. Needs no GPU.

        Parameters
        ----------
        target : str or Target
            Default ``"sm_90a"``. The driver knows its own device, and takes no target.
        backend : str
            ``"tables"`` encodes from this package's tables; ``"driver"`` asks the installed driver through cuda-python,
            which needs a GPU.

        Raises
        ------
        DescriptorError
            Naming every broken rule; or if the backend is unknown.
        TargetError
            If the target is unknown or has no Tensor Memory Accelerator.
        NoDeviceError
            With ``backend="driver"``, if there is no driver or no GPU.
        DriverError
            With ``backend="driver"``, if the driver reports a fault that is not about the parameters.
        """
        if backend == "driver":
            from cupytma.tensormap import driver

            return driver.encode(self)
        if backend != "tables":
            raise DescriptorError(f"unknown backend {backend!r}; there are 'tables' and 'driver'")
        from cupytma.tensormap.tensor_map import TensorMap

        return TensorMap.encode(self, target)


@dataclass(frozen=True, kw_only=True)
class Tiled(Parameters):
    """A tensor that is moved in boxes, as ``cuTensorMapEncodeTiled`` takes it. All in driver order.

    Its other parameters are those of `Parameters`.

    Parameters
    ----------
    box_dim : sequence of int
        Extents of the box one instruction moves, in elements, 1 to 256 each; the innermost row is a multiple of
        16 bytes.

    Examples
    --------
    >>> parameters = Tiled(data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(1024, 512),
    ...                    global_strides=(2048,), box_dim=(64, 32), swizzle="128B")
    >>> parameters.violations(target="sm_90a")
    ()
    >>> parameters.encode(target="sm_90a").box_bytes
    4096
    """

    kind: ClassVar[str] = "tiled"

    box_dim: tuple[int, ...]

    @property
    def _row_bytes(self) -> int:
        return self.box_dim[0] * self.shared_bits // 8

    @property
    def transaction_bytes(self) -> int:
        """Bytes that one load brings to shared memory, out-of-bounds fill included; what an mbarrier must expect.

        Measured on an H100: element strides round the count of elements up, dimension 0 ignores its element stride
        unless the layout is interleaved, and an interleaved box takes exactly one slice of channels. Of the packed
        types the packed bits count and not the gaps between them (as kernels of CUTLASS reckon; not measured).
        """
        counts = [-(-box // step) for box, step in zip(self.box_dim, self.element_strides, strict=True)]
        if self.interleave == Interleave.NONE:
            return self.element_bits * self.box_dim[0] * prod(counts[1:]) // 8
        counts[self.rank - 2] = 1
        return self.slice_bytes * prod(counts)


@dataclass(frozen=True, kw_only=True)
class Im2col(Parameters):
    """A tensor of pixels that is walked as a convolution does, as ``cuTensorMapEncodeIm2col`` takes it.

    All in driver order: channels, then W, H, D as far as there are, then the batch. With interleave, W, H, D come
    first, then the slices of channels, then the batch. Its other parameters are those of `Parameters`.

    Parameters
    ----------
    pixel_box_lower_corner, pixel_box_upper_corner : sequence of int
        Offsets in pixels of the box of start pixels from the tensor's first and last pixel, one for each spatial
        dimension, W first. 16 bits each for rank 3, 8 for rank 4, 5 for rank 5.
    channels_per_pixel : int
        Elements of the channel dimension that one load brings, 1 to 256; a multiple of 16 bytes.
    pixels_per_column : int
        Pixels that one load brings, 1 to 1024.
    """

    kind: ClassVar[str] = "im2col"

    pixel_box_lower_corner: tuple[int, ...]
    pixel_box_upper_corner: tuple[int, ...]
    channels_per_pixel: int
    pixels_per_column: int

    @property
    def _row_bytes(self) -> int:
        return self.channels_per_pixel * self.shared_bits // 8

    @property
    def transaction_bytes(self) -> int:
        """Bytes that one load brings to shared memory, out-of-bounds fill included; what an mbarrier must expect."""
        pixel = self.slice_bytes or self.element_bits * self.channels_per_pixel // 8
        return pixel * self.pixels_per_column


@dataclass(frozen=True, kw_only=True)
class Im2colWide(Parameters):
    """A tensor of pixels that is walked along W alone, as ``cuTensorMapEncodeIm2colWide`` takes it. In driver order.

    Documented for compute capability 10.0 and newer. There is one corner on each side, in W, of 16 bits. For
    ``sm_90a`` the encoding is the one an H100's driver was seen to make: that of `Im2col` with the other corners 0.
    Its other parameters are those of `Parameters`.

    Parameters
    ----------
    pixel_box_lower_corner_width, pixel_box_upper_corner_width : int
        Offsets in pixels of the first and last start pixel in W.
    channels_per_pixel : int
        Elements of the channel dimension that one load brings, 1 to 256; a multiple of 16 bytes.
    pixels_per_column : int
        Pixels that one load brings, 1 to 1024; in mode W128 the unit takes 128 instead.
    mode : WideMode or str
        ``"W"`` or ``"W128"``. The tensor map does not hold it; the instruction does.
    """

    kind: ClassVar[str] = "im2col_wide"

    pixel_box_lower_corner_width: int
    pixel_box_upper_corner_width: int
    channels_per_pixel: int
    pixels_per_column: int
    mode: WideMode = WideMode.W

    @property
    def _row_bytes(self) -> int:
        return self.channels_per_pixel * self.shared_bits // 8

    def _own_operands(self) -> dict[str, Any]:
        return {
            "wide_mode": self.mode,
            "pixel_box_lower_corner": (self.pixel_box_lower_corner_width, 0, 0),
            "pixel_box_upper_corner": (self.pixel_box_upper_corner_width, 0, 0),
        }

    @property
    def transaction_bytes(self) -> int:
        """Bytes that one load brings to shared memory without a halo (driver API; not measured)."""
        pixel = self.slice_bytes or self.element_bits * self.channels_per_pixel // 8
        return pixel * (128 if self.mode == WideMode.W128 else self.pixels_per_column)


KINDS: dict[str, type[Parameters]] = {cls.kind: cls for cls in (Tiled, Im2col, Im2colWide)}


@cache
def _shape_of(
    cls: type[Parameters],
) -> tuple[list[tuple[str, type[DriverEnum]]], list[str], list[tuple[str, int]]]:
    """The fields of a kind that are enumerations, numbers, and sequences (with how many fewer than the rank)."""
    names = [field.name for field in fields(cls)]
    return (
        [(name, _ENUMS[name]) for name in names if name in _ENUMS],
        [name for name in names if name not in _ENUMS and name not in SEQUENCES],
        [(name, SEQUENCES[name][0]) for name in names if name in SEQUENCES],
    )


def _member(enumeration: type[DriverEnum], value: Any) -> Any:
    """A member; an unknown number is kept, for the rules to report beside the others."""
    try:
        return enumeration.of(value)
    except ValueError:
        if isinstance(value, bool):
            raise
        try:
            return operator.index(value)
        except TypeError:
            pass
        raise


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)):
        raise TypeError("expected a sequence of integers")
    return tuple(operator.index(entry) for entry in value)


def _length_problems(found: dict[str, Any]) -> list[str]:
    rank = len(found["global_dim"])
    return [
        f"{name} has {counted(len(value), 'entry')}, and rank {rank} (the length of global_dim) needs "
        f"{max(rank - short, 0)}"
        for name, (short, _) in SEQUENCES.items()
        if (value := found.get(name)) is not None and len(value) != max(rank - short, 0)
    ]
