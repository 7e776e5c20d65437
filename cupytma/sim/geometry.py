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
from typing import Any

from cupytma.errors import SimulationError
from cupytma.sim.faults import NotSimulatedError
from cupytma.targets import DEFAULT_TARGET
from cupytma.tensormap.enums import DataType, Interleave, OobFill, Swizzle
from cupytma.tensormap.fields import CORNER_BITS
from cupytma.tensormap.parameters import Im2col, Im2colWide, Tiled
from cupytma.tensormap.tensor_map import TensorMap, describe_violations

_COVERED = "simulated are tiled and im2col tensor maps of the element types and swizzles of sm_90a"


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
    offset_mask : int
        What is left of an im2col offset: as many bits as a corner has; hardware drops the others (measured).
    width : int
        Bytes of a row.
    pitch : int
        Bytes from one row to the next in shared memory before the swizzle.
    inner_bytes : int or None
        Bytes of the tensor's dimension 0; None with interleave, where a row is a slice and is in bounds whole or not
        at all.
    transaction_bytes : int
        Bytes one copy adds to a transaction count: fill counts, the gaps between rows do not.
    operands : dict
        What the fault rows of the rule table know of the descriptor; not to be changed.
    """

    data_type: DataType
    swizzle: Swizzle
    oob_fill: OobFill
    element_bytes: int
    address: int
    axes: tuple[Axis, ...]
    counts: tuple[int, ...]
    walk: Walk | None
    offset_mask: int
    width: int
    pitch: int
    inner_bytes: int | None
    transaction_bytes: int
    operands: dict[str, Any]

    @property
    def rows(self) -> int:
        """The number of rows of one tile."""
        return prod(self.counts)

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
        If it is no tensor map, or one that no encoder makes.
    DescriptorError
        If its bytes cannot be decoded.
    """
    if not isinstance(tensor_map, TensorMap):
        raise SimulationError(
            f"tensor_map is a {type(tensor_map).__name__}; pass the TensorMap that `encode()` of parameters or "
            "`TensorMap.from_bytes` returns"
        )
    if isinstance(tensor_map.decode(), Im2colWide):  # not in what is cached: the bytes may be those of an Im2col
        raise NotSimulatedError(
            f"an Im2colWide tensor map is not simulated: no H100 has its instruction; {_COVERED}; encode an Im2col"
        )
    return _geometry(tensor_map)


@lru_cache(maxsize=256)
def _geometry(tensor_map: TensorMap) -> Geometry:
    parameters = tensor_map.decode()
    assert not isinstance(parameters, Im2colWide)
    _check_simulated(parameters)
    interleaved = parameters.interleave != Interleave.NONE
    size = parameters.element_bytes
    counts, walk, inner = _tile(parameters)
    width = parameters.slice_bytes or inner * size
    return Geometry(
        data_type=parameters.data_type,
        swizzle=parameters.swizzle,
        oob_fill=parameters.oob_fill,
        element_bytes=size,
        address=parameters.global_address,
        axes=_axes(parameters),
        counts=counts,
        walk=walk,
        offset_mask=(1 << CORNER_BITS.get(parameters.rank, 16)) - 1,
        width=width,
        # A slice never pads; a row shorter than the swizzle's span still advances by a whole span (measured).
        pitch=width if interleaved else max(width, parameters.swizzle.span),
        inner_bytes=None if interleaved else parameters.global_dim[0] * size,
        transaction_bytes=parameters.transaction_bytes,
        operands=parameters.operands(DEFAULT_TARGET),
    )


def _check_simulated(parameters: Tiled | Im2col) -> None:
    if parameters.data_type > DataType.TFLOAT32_FTZ:
        raise NotSimulatedError(f"element type {parameters.data_type} is not simulated; {_COVERED}")
    if parameters.swizzle > Swizzle.B128:
        raise NotSimulatedError(f"swizzle {parameters.swizzle} is not simulated; {_COVERED}")
    broken = parameters.violations(DEFAULT_TARGET)
    if broken:
        raise SimulationError(
            "no encoder makes such a tensor map, and what the unit does with it is unknown: "
            f"{describe_violations(broken)}"
        )


def _axes(parameters: Tiled | Im2col) -> tuple[Axis, ...]:
    dims, strides, steps = parameters.global_dim, parameters.global_strides, parameters.element_strides
    if parameters.interleave == Interleave.NONE:
        return tuple(Axis(i, dims[i], strides[i - 1], steps[i]) for i in range(1, parameters.rank))
    # The slice is not a dimension: positions of dimension 0 are one slice apart, and the strides begin at dimension 1.
    pitches = (parameters.slice_bytes, *strides)
    return tuple(Axis(i, dims[i], pitches[i], steps[i]) for i in range(parameters.rank))


def _tile(parameters: Tiled | Im2col) -> tuple[tuple[int, ...], Walk | None, int]:
    """Rows along each axis, the walk of an im2col copy, and the elements of a row without interleave."""
    interleaved = parameters.interleave != Interleave.NONE
    if isinstance(parameters, Im2col):
        first, lower = 0 if interleaved else 1, parameters.pixel_box_lower_corner
        extents = parameters.global_dim[first:]
        upper = tuple(n + corner - 1 for n, corner in zip(extents, parameters.pixel_box_upper_corner, strict=False))
        return (parameters.pixels_per_column,), Walk(len(lower), lower, upper), parameters.channels_per_pixel
    box, steps = parameters.box_dim, parameters.element_strides
    counts = [-(-b // e) for b, e in zip(box, steps, strict=True)]
    if not interleaved:
        # The element stride of dimension 0 has no effect: rows are whole (measured).
        return tuple(counts[1:]), None, box[0]
    # A copy takes one slice along the channel dimension, whatever the box says (measured).
    counts[parameters.rank - 2] = 1
    return tuple(counts), None, box[0]
