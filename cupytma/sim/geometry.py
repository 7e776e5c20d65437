"""A tensor map as the unit sees it: rows of bytes on a lattice.

Every copy moves *rows*: runs that are contiguous in global memory and, before the swizzle, in shared memory. Without
interleave a row is the inner extent of the box (or the channels of one pixel); with interleave it is one slice of 16
or 32 bytes. The other dimensions, the *axes*, say where each row stands. This module reduces the descriptors to that
form, so that everything after it treats them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cupytma.errors import SimulationError
from cupytma.sim.faults import NotSimulatedError
from cupytma.tensormap.enums import DataType, Interleave, OobFill, Swizzle

if TYPE_CHECKING:
    from cupytma.tensormap.tensor_map import TensorMap

_PACKED = (DataType.PACKED_16U4_ALIGN8B, DataType.PACKED_16U4_ALIGN16B, DataType.PACKED_16U6_ALIGN16B)
_SLICE_BYTES = {Interleave.B16: 16, Interleave.B32: 32}


class Descriptor(Protocol):
    """What every kind of descriptor says about the tensor. Driver order: dimension 0 moves fastest."""

    @property
    def data_type(self) -> DataType: ...
    @property
    def global_address(self) -> int: ...
    @property
    def global_dim(self) -> tuple[int, ...]: ...
    @property
    def global_strides(self) -> tuple[int, ...]: ...
    @property
    def element_strides(self) -> tuple[int, ...]: ...
    @property
    def interleave(self) -> Interleave: ...
    @property
    def swizzle(self) -> Swizzle: ...
    @property
    def oob_fill(self) -> OobFill: ...
    @property
    def rank(self) -> int: ...
    @property
    def element_bytes(self) -> int: ...


@runtime_checkable
class TiledDescriptor(Descriptor, Protocol):
    """A descriptor whose tile is a box."""

    @property
    def box_dim(self) -> tuple[int, ...]: ...


@runtime_checkable
class Im2colDescriptor(Descriptor, Protocol):
    """A descriptor whose tile is a walk over the pixels of a bounding box."""

    @property
    def pixel_box_lower_corner(self) -> tuple[int, ...]: ...
    @property
    def pixel_box_upper_corner(self) -> tuple[int, ...]: ...
    @property
    def channels_per_pixel(self) -> int: ...
    @property
    def pixels_per_column(self) -> int: ...


@dataclass(frozen=True)
class Axis:
    """One dimension along which rows are placed.

    Attributes
    ----------
    dimension : int
        Its number in driver order.
    extent : int
        Size of the tensor along it, in elements (or slices).
    pitch : int
        Bytes from one position to the next in global memory.
    step : int
        The element stride: positions from one row to the next.
    """

    dimension: int
    extent: int
    pitch: int
    step: int


@dataclass(frozen=True)
class Walk:
    """How an im2col copy walks over pixels.

    Attributes
    ----------
    spatial : int
        The number of spatial axes; they are the first ones.
    lower, upper : tuple of int
        The first and last base position of each spatial axis, both inclusive.
    """

    spatial: int
    lower: tuple[int, ...]
    upper: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Geometry:
    """A descriptor in terms of rows.

    Attributes
    ----------
    data_type, swizzle, oob_fill
        As in the descriptor.
    element_bytes : int
        Bytes of one element.
    address : int
        Global address of the tensor's first byte.
    axes : tuple of Axis
        Where rows stand; the first moves fastest.
    counts : tuple of int
        Rows along each axis (tiled). For im2col one number: the pixels.
    walk : Walk or None
        Set for im2col.
    width : int
        Bytes of a row.
    pitch : int
        Bytes from one row to the next in shared memory before the swizzle.
    inner_bytes : int or None
        Bytes of the tensor's dimension 0; None with interleave, where a row is a slice and is in bounds whole or not
        at all.
    """

    data_type: DataType
    swizzle: Swizzle
    oob_fill: OobFill
    element_bytes: int
    address: int
    axes: tuple[Axis, ...]
    counts: tuple[int, ...]
    walk: Walk | None
    width: int
    pitch: int
    inner_bytes: int | None

    @property
    def rows(self) -> int:
        """The number of rows of one tile."""
        return prod(self.counts)

    @property
    def transaction_bytes(self) -> int:
        """Bytes one copy adds to a transaction count: fill counts, the gaps between rows do not."""
        return self.rows * self.width

    @property
    def unit_bytes(self) -> int:
        """Bytes of what a coordinate of dimension 0 counts: an element, or a slice with interleave."""
        return self.width if self.inner_bytes is None else self.element_bytes

    def split(self, coords: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """The start within a row in elements, and the start along each axis."""
        if self.inner_bytes is None:
            return 0, tuple(coords)
        return coords[0], tuple(coords[1:])


def geometry(tensor_map: TensorMap) -> Geometry:
    """The rows a descriptor moves.

    Raises
    ------
    NotSimulatedError
        For packed element types, the 128B swizzles with larger atoms, and im2col-wide descriptors.
    SimulationError
        If it is no tensor map, or rows or addresses are not multiples of 16 bytes, which no encoder accepts.
    """
    if not hasattr(tensor_map, "decode") or isinstance(tensor_map, bytes):
        raise SimulationError(
            f"tensor_map is a {type(tensor_map).__name__}; pass the TensorMap that `encode()` of parameters or "
            "`TensorMap.from_bytes` returns"
        )
    return _geometry(tensor_map)


@lru_cache(maxsize=256)
def _geometry(tensor_map: TensorMap) -> Geometry:
    parameters = tensor_map.decode()
    _check_covered(parameters)
    interleaved = parameters.interleave != Interleave.NONE
    size = parameters.element_bytes
    counts, walk, inner = _tile(parameters)
    width = _SLICE_BYTES[parameters.interleave] if interleaved else inner * size
    if width % 16 or parameters.global_address % 16 or any(stride % 16 for stride in parameters.global_strides):
        raise SimulationError(
            f"a row of {width} bytes, the address {parameters.global_address:#x} and the strides "
            f"{parameters.global_strides} must be multiples of 16 bytes; encode the descriptor from parameters that "
            "pass `violations()`"
        )
    return Geometry(
        data_type=parameters.data_type,
        swizzle=parameters.swizzle,
        oob_fill=parameters.oob_fill,
        element_bytes=size,
        address=parameters.global_address,
        axes=_axes(parameters),
        counts=counts,
        walk=walk,
        width=width,
        # A slice never pads; a row shorter than the swizzle's span still advances by a whole span (measured).
        pitch=width if interleaved else max(width, parameters.swizzle.span),
        inner_bytes=None if interleaved else parameters.global_dim[0] * size,
    )


def _check_covered(parameters: Descriptor) -> None:
    covered = "simulated are tiled and im2col descriptors of the element types and swizzles of sm_90a"
    if parameters.data_type in _PACKED:
        raise NotSimulatedError(f"element type {parameters.data_type} is not simulated; {covered}")
    if parameters.swizzle > Swizzle.B128:
        raise NotSimulatedError(f"swizzle {parameters.swizzle} is not simulated; {covered}")
    if not isinstance(parameters, (TiledDescriptor, Im2colDescriptor)):
        raise NotSimulatedError(f"{type(parameters).__name__} descriptors are not simulated; {covered}")


def _axes(parameters: Descriptor) -> tuple[Axis, ...]:
    dims, strides, steps = parameters.global_dim, parameters.global_strides, parameters.element_strides
    if parameters.interleave == Interleave.NONE:
        return tuple(Axis(i, dims[i], strides[i - 1], steps[i]) for i in range(1, parameters.rank))
    # The slice is not a dimension: positions of dimension 0 are one slice apart, and the strides begin at dimension 1.
    pitches = (_SLICE_BYTES[parameters.interleave], *strides)
    return tuple(Axis(i, dims[i], pitches[i], steps[i]) for i in range(parameters.rank))


def _tile(parameters: Descriptor) -> tuple[tuple[int, ...], Walk | None, int]:
    """Rows along each axis, the walk of an im2col copy, and the elements of a row without interleave."""
    interleaved = parameters.interleave != Interleave.NONE
    if isinstance(parameters, Im2colDescriptor):
        first = 0 if interleaved else 1
        spatial = parameters.rank - 2
        lower = tuple(parameters.pixel_box_lower_corner[:spatial])
        upper = tuple(
            parameters.global_dim[first + j] + parameters.pixel_box_upper_corner[j] - 1 for j in range(spatial)
        )
        return (parameters.pixels_per_column,), Walk(spatial, lower, upper), parameters.channels_per_pixel
    assert isinstance(parameters, TiledDescriptor)
    box, steps = parameters.box_dim, parameters.element_strides
    extents = [-(-b // e) for b, e in zip(box, steps, strict=True)]
    if not interleaved:
        # The element stride of dimension 0 has no effect: rows are whole (measured).
        return tuple(extents[1:]), None, box[0]
    # A copy takes one slice along the channel dimension, whatever the box says (measured).
    extents[parameters.rank - 2] = 1
    return tuple(extents), None, box[0]
