"""A tensor map as the unit sees it: rows of bytes on a lattice.

Every copy moves *rows*: runs that are contiguous in global memory and, before the swizzle, in shared memory. Without
interleave a row is the inner extent of the box (or the channels of one pixel); with interleave it is one slice of 16
or 32 bytes. The other dimensions, the *axes*, say where each row stands. This module reduces the descriptors to that
form, so that everything after it treats them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from cupytma.errors import SimulationError
from cupytma.sim.faults import NotSimulatedError
from cupytma.sim.modes import FULL_TARGET, GATHER4, SCATTER4, WIDE_128, mode_of, parameters_of
from cupytma.targets import DEFAULT_TARGET
from cupytma.tensormap.enums import DataType, Interleave, OobFill, Swizzle
from cupytma.tensormap.parameters import Im2col, Im2colWide, Tiled
from cupytma.tensormap.tensor_map import TensorMap, describe_violations

GATHERED = 4
"""Rows of one gather or scatter."""

GROUP = 16
"""Elements that a packed type keeps together."""

_WIDE_128_PIXELS, _WIDE_128_RUN = 128, 32


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
        The number of spatial axes that are walked; they are the first ones. Of ``im2col::w`` W alone.
    lower, upper : tuple of int
        The first and last base position of each of them, both inclusive.
    run : int
        Pixels after which ``im2col::w`` and ``im2col::w::128`` load their halo; 0 for im2col.
    """

    spatial: int
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    run: int = 0

    @property
    def is_wide(self) -> bool:
        """Whether the instruction's offsets are a halo and an offset in W."""
        return self.run > 0


@dataclass(frozen=True, eq=False)
class Geometry:
    """A descriptor in terms of rows.

    Attributes
    ----------
    mode : str
        The instruction's.
    data_type, swizzle, oob_fill
        As in the descriptor.
    element_bits : int
        Bits of one element in global memory.
    address : int
        Global address of the tensor's first byte.
    axes : tuple of Axis
        Where rows stand; the first moves fastest.
    counts : tuple of int
        Rows along each axis (tiled). For im2col one number: the pixels.
    walk : Walk or None
        Set for im2col.
    width : int
        Bytes of a row in shared memory, the gaps of packed types included.
    global_width : int
        Bytes of a row in global memory.
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

    mode: str
    data_type: DataType
    swizzle: Swizzle
    oob_fill: OobFill
    element_bits: int
    address: int
    axes: tuple[Axis, ...]
    counts: tuple[int, ...]
    walk: Walk | None
    width: int
    global_width: int
    pitch: int
    inner_bytes: int | None
    transaction_bytes: int
    operands: dict[str, Any]

    @property
    def rows(self) -> int:
        """The number of rows of one tile."""
        return prod(self.counts)

    @property
    def coordinates(self) -> int:
        """How many coordinates the instruction takes."""
        return 1 + GATHERED if self.is_gathered else int(self.operands["rank"])

    @property
    def is_gathered(self) -> bool:
        """Whether each row has a coordinate of its own."""
        return self.mode in (GATHER4, SCATTER4)

    @property
    def has_gaps(self) -> bool:
        """Whether elements take more room in shared memory than in global memory."""
        return self.width != self.global_width

    def group_bytes(self) -> tuple[int, int]:
        """Bytes of a group of packed elements in global and in shared memory."""
        groups = self.global_width * 8 // (GROUP * self.element_bits)
        return self.global_width // groups, self.width // groups

    def bytes_of(self, elements: int) -> int:
        """Bytes that whole elements of dimension 0 take in global memory."""
        return elements * self.element_bits // 8

    def split(self, coords: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """The start within a row in elements, and the start of the first row along each axis."""
        if self.inner_bytes is None:
            return 0, tuple(coords)
        return coords[0], tuple(coords[1 : 1 + len(self.axes)])

    def with_halo(self, halo: int) -> Geometry:
        """The same with the halo pixels of an im2col::w load, which the instruction says."""
        return _with_halo(self, halo) if halo else self


def geometry(tensor_map: TensorMap, mode: str | None = None, *, store: bool = False) -> Geometry:
    """The rows a descriptor moves.

    Parameters
    ----------
    tensor_map : TensorMap
    mode : str, optional
        The instruction's; default: what the tensor map says.
    store : bool
        Whether shared memory is the source.

    Raises
    ------
    NotSimulatedError
        For what no document describes.
    SimulationError
        If it is no tensor map, one that no encoder makes, or the instruction has no such mode.
    DescriptorError
        If its bytes cannot be decoded.
    """
    chosen = mode_of(tensor_map, mode, store=store)
    return _geometry(tensor_map, tensor_map.decode().kind, chosen)


# Mode and kind are part of what is remembered: the bytes of an im2col-wide map may be those of an im2col one.
@lru_cache(maxsize=256)
def _geometry(tensor_map: TensorMap, kind: str, mode: str) -> Geometry:
    parameters = parameters_of(tensor_map, mode)
    target = FULL_TARGET if parameters.violations(DEFAULT_TARGET) else DEFAULT_TARGET
    _check_simulated(parameters)
    interleaved = parameters.interleave != Interleave.NONE
    counts, walk, inner = _tile(parameters, mode)
    width = parameters.slice_bytes or inner * parameters.shared_bits // 8
    rows = prod(counts)
    global_width = parameters.slice_bytes or inner * parameters.element_bits // 8
    return Geometry(
        mode=mode,
        data_type=parameters.data_type,
        swizzle=parameters.swizzle,
        oob_fill=parameters.oob_fill,
        element_bits=parameters.element_bits,
        address=parameters.global_address,
        axes=_axes(parameters),
        counts=counts,
        walk=walk,
        width=width,
        global_width=global_width,
        # A slice never pads; a row shorter than the swizzle's span still advances by a whole span (measured).
        pitch=width if interleaved else max(width, parameters.swizzle.span),
        inner_bytes=None if interleaved else parameters.global_dim[0] * parameters.element_bits // 8,
        # Of packed types the packed bytes count (not measured; as published kernels reckon).
        transaction_bytes=rows * global_width,
        operands=parameters.operands(target),
    )


@lru_cache(maxsize=64)
def _with_halo(plan: Geometry, halo: int) -> Geometry:
    assert plan.walk is not None
    rows = plan.rows + halo * (plan.rows // plan.walk.run)
    return replace(plan, counts=(rows,), transaction_bytes=rows * plan.global_width)


def _check_simulated(parameters: Tiled | Im2col | Im2colWide) -> None:
    if parameters.data_type > DataType.TFLOAT32_FTZ and parameters.interleave != Interleave.NONE:
        raise NotSimulatedError(
            f"element type {parameters.data_type} with interleave {parameters.interleave} is not simulated: no "
            "document says how its slices are packed; use interleave NONE"
        )
    broken = parameters.violations(FULL_TARGET)
    if broken:
        raise SimulationError(
            "no encoder makes such a tensor map, and what the unit does with it is unknown: "
            f"{describe_violations(broken)}"
        )


def _axes(parameters: Tiled | Im2col | Im2colWide) -> tuple[Axis, ...]:
    dims, strides, steps = parameters.global_dim, parameters.global_strides, parameters.element_strides
    if parameters.interleave == Interleave.NONE:
        return tuple(Axis(i, dims[i], strides[i - 1], steps[i]) for i in range(1, parameters.rank))
    # The slice is not a dimension: positions of dimension 0 are one slice apart, and the strides begin at dimension 1.
    pitches = (parameters.slice_bytes, *strides)
    return tuple(Axis(i, dims[i], pitches[i], steps[i]) for i in range(parameters.rank))


def _tile(parameters: Tiled | Im2col | Im2colWide, mode: str) -> tuple[tuple[int, ...], Walk | None, int]:
    """Rows along each axis, the walk of an im2col copy, and the elements of a row without interleave."""
    interleaved = parameters.interleave != Interleave.NONE
    if isinstance(parameters, Im2colWide):
        return _wide_tile(parameters, mode)
    if isinstance(parameters, Im2col):
        first, lower = 0 if interleaved else 1, parameters.pixel_box_lower_corner
        extents = parameters.global_dim[first:]
        upper = tuple(n + corner - 1 for n, corner in zip(extents, parameters.pixel_box_upper_corner, strict=False))
        return (parameters.pixels_per_column,), Walk(len(lower), lower, upper), parameters.channels_per_pixel
    if mode in (GATHER4, SCATTER4):
        return (GATHERED,), None, parameters.box_dim[0]
    box, steps = parameters.box_dim, parameters.element_strides
    counts = [-(-b // e) for b, e in zip(box, steps, strict=True)]
    if not interleaved:
        # The element stride of dimension 0 has no effect: rows are whole (measured).
        return tuple(counts[1:]), None, box[0]
    # A copy takes one slice along the channel dimension, whatever the box says (measured).
    counts[parameters.rank - 2] = 1
    return tuple(counts), None, box[0]


def _wide_tile(parameters: Im2colWide, mode: str) -> tuple[tuple[int, ...], Walk, int]:
    """PTX ISA, "im2col::w and im2col::w::128 modes": only W is walked; the pixel box is one pixel in H and D."""
    if parameters.interleave != Interleave.NONE:
        raise NotSimulatedError(f"mode {mode} has no interleaved layout; use interleave NONE")
    pixels, run = (_WIDE_128_PIXELS, _WIDE_128_RUN) if mode == WIDE_128 else (parameters.pixels_per_column,) * 2
    upper = parameters.global_dim[1] + parameters.pixel_box_upper_corner_width - 1
    walk = Walk(1, (parameters.pixel_box_lower_corner_width,), (upper,), run)
    return (pixels,), walk, parameters.channels_per_pixel
