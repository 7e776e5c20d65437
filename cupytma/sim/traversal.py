"""Which global byte lands at which byte of the tile.

Rules measured on an H100 over random descriptors: every row and element of 1,950 recorded copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from cupytma.errors import SimulationError
from cupytma.limits import SWIZZLE_PERIOD
from cupytma.sim.faults import NotSimulatedError
from cupytma.sim.geometry import Geometry, Walk
from cupytma.sim.swizzle import CHUNK, pattern_of, swizzle_address
from cupytma.tensormap.enums import Swizzle
from cupytma.tensormap.fields import CORNER_BITS

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

# Addresses are summed in int64. A row further than this from the start of the tile would need a tensor larger than
# any address space, and its address would wrap.
_FAR = 2**62


@dataclass(frozen=True, eq=False)
class Traversal:
    """Where the rows of one tile stand in global memory.

    Attributes
    ----------
    origin : int
        Global address of the tile's first byte, in bounds or not.
    offsets : ndarray of int64, shape (rows,)
        Global address of each row's first byte, less `origin`. Rows in the order they have in shared memory.
    inside : ndarray of bool, shape (rows,), or None
        Which rows are in bounds along every axis; None if all are.
    first, last : int
        Bytes ``first`` to ``last - 1`` of a row are in bounds along dimension 0.
    exact_last : int
        `last` by the tensor's extent; smaller than `last` where a store rounds up to whole 16-byte chunks.
    """

    origin: int
    offsets: Int64
    inside: Bool | None
    first: int
    last: int
    exact_last: int


def traverse(plan: Geometry, start: tuple[int, ...], offsets: tuple[int, ...], *, store: bool) -> Traversal:
    """The rows of the tile at checked coordinates `start`.

    Parameters
    ----------
    plan : Geometry
    start : tuple of int
        As the instruction takes them, driver order.
    offsets : tuple of int
        The im2col offsets of a load, first spatial dimension first, not scaled by element strides; or the halo and the
        offset of an ``im2col::w`` one.
    store : bool
        Whether shared memory is the source: then the bound of dimension 0 is rounded up to 16 bytes.
    """
    inner, along = plan.split(start)
    steps = row_steps(plan, start, offsets)
    boxed = plan.walk is None and not plan.is_gathered
    placed = _box_offsets(plan) if boxed else _byte_offsets(plan, steps)
    first, last, exact = _inner_bounds(plan, inner, store=store)
    origin = plan.address + plan.bytes_of(inner)
    origin += sum(c * axis.pitch for c, axis in zip(along, plan.axes, strict=True))
    return Traversal(origin, placed, _inside(plan, along, steps), first, last, exact)


def row_steps(plan: Geometry, start: tuple[int, ...], offsets: tuple[int, ...]) -> Int64:
    """Positions of a tile's rows relative to its first, shape (axes, rows), rows in shared memory order."""
    _, along = plan.split(start)
    if plan.is_gathered:
        return np.array([start[1:]], dtype=np.int64) - start[1]
    if plan.walk is None:
        return _box_steps(plan)
    if plan.walk.is_wide:
        return _wide_steps(plan, plan.walk, along, *offsets)
    return _walk_steps(plan, plan.walk, along, offsets)


def _inner_bounds(plan: Geometry, inner: int, *, store: bool) -> tuple[int, int, int]:
    """Global bytes of a row in bounds along dimension 0: first, one past the last, and the last without rounding."""
    if plan.inner_bytes is None:
        return 0, plan.global_width, plan.global_width
    start = plan.bytes_of(inner)
    first = min(max(0, -start), plan.global_width)
    exact = min(max(plan.inner_bytes - start, first), plan.global_width)
    if not store:
        return first, exact, exact
    whole = -(-plan.inner_bytes // CHUNK) * CHUNK
    return first, min(max(whole - start, first), plan.global_width), exact


def _inside(plan: Geometry, along: tuple[int, ...], steps: Int64) -> Bool | None:
    """Rows in bounds along every axis, or None if all rows are."""
    inside: Bool | None = None
    for axis, start, step in zip(plan.axes, along, steps, strict=True):
        lowest, highest = start + int(step.min()), start + int(step.max())
        if lowest >= 0 and highest < axis.extent:
            continue
        here = (step >= -start) & (step < axis.extent - start)
        inside = here if inside is None else inside & here
    return inside


@lru_cache(maxsize=64)
def _box_steps(plan: Geometry) -> Int64:
    """Positions of a box's rows relative to its start, shape (axes, rows); the first axis moves fastest."""
    grid = np.indices(plan.counts[::-1], dtype=np.int64)[::-1].reshape(len(plan.counts), plan.rows)
    strides = np.array([axis.step for axis in plan.axes], dtype=np.int64)[:, None]
    return _frozen(np.ascontiguousarray(grid * strides))


@lru_cache(maxsize=64)
def _box_offsets(plan: Geometry) -> Int64:
    return _frozen(_byte_offsets(plan, _box_steps(plan)))


def _byte_offsets(plan: Geometry, steps: Int64) -> Int64:
    """Byte distance in global memory of each row from the first."""
    if sum(int(np.abs(step).max()) * axis.pitch for step, axis in zip(steps, plan.axes, strict=True)) >= _FAR:
        raise SimulationError("the tile's rows lie more than 2^62 bytes apart, which no address space holds")
    pitches = np.array([axis.pitch for axis in plan.axes], dtype=np.int64)
    total: Int64 = pitches @ steps if len(pitches) else np.zeros(steps.shape[1], dtype=np.int64)
    return total


def _walk_steps(plan: Geometry, walk: Walk, along: tuple[int, ...], offsets: tuple[int, ...]) -> Int64:
    """Positions of the pixels of an im2col walk relative to its start, shape (axes, pixels).

    The walk works like an odometer: each spatial axis counts from its start to its upper bound and then begins again
    at its lower bound, which moves the next axis by one step. The batch is moved by the last of them and never wraps.
    With interleave the channel slice is an axis too; it stays where it is.
    """
    offsets = _kept_offsets(offsets)
    moves = np.arange(plan.rows, dtype=np.int64)
    steps = np.zeros((len(along), plan.rows), dtype=np.int64)
    for i in range(walk.spatial):
        step, lower, upper = plan.axes[i].step, walk.lower[i], walk.upper[i]
        before_wrap = (upper - along[i]) // step + 1
        cycle = (upper - lower) // step + 1
        since = moves - before_wrap
        wrapped = since >= 0
        steps[i] = np.where(wrapped, lower - along[i] + since % cycle * step, moves * step)
        if i < len(offsets):
            steps[i] += offsets[i]
        moves = np.where(wrapped, since // cycle + 1, 0)
    steps[-1] = moves * plan.axes[-1].step
    return steps


def _kept_offsets(offsets: tuple[int, ...]) -> tuple[int, ...]:
    """What an instruction keeps of im2col offsets: as many bits of each as a corner of the rank has.

    The assembler packs them into 16 bits. For rank 4 it takes the low byte of each; for rank 5 it adds the offsets up,
    shifted, so that what is too large for one goes into the next (its machine code, and measured on an H200).
    """
    if not offsets:
        return offsets
    rank = len(offsets) + 2
    width = CORNER_BITS[rank]
    mask = (1 << width) - 1
    if rank < 5:
        return tuple(offset & mask for offset in offsets)
    packed = sum(offset << width * i for i, offset in enumerate(offsets))
    return tuple(packed >> width * i & mask for i in range(len(offsets)))


def _wide_steps(plan: Geometry, walk: Walk, along: tuple[int, ...], halo: int = 0, offset: int = 0) -> Int64:
    """Positions of the pixels of an ``im2col::w`` walk relative to its start, shape (axes, pixels).

    W counts from its start to its upper bound and then from its lower bound on, each time in the next image of the
    batch; H and D stay. The halo pixels go on in W after the last pixel of each run, without wrapping. The offset moves
    the box, and with it everything.

    Not measured. The PTX ISA shows one halo for a whole im2col::w load, but calls it that of an image's end; where the
    walk comes past more than one end the two could differ, and it is refused.
    """
    step, lower, upper = plan.axes[0].step, walk.lower[0], walk.upper[0]
    runs = plan.rows // (walk.run + halo)
    order = np.arange(runs * walk.run, dtype=np.int64)
    since = order - ((upper - along[0]) // step + 1)
    cycle = (upper - lower) // step + 1
    wrapped = since >= 0
    across = np.where(wrapped, lower - along[0] + since % cycle * step, order * step)
    images = np.where(wrapped, since // cycle + 1, 0)
    if halo and runs == 1 and images[-1]:
        raise NotSimulatedError(
            f"a halo of {halo} pixels with a walk over {images[-1] + 1} images: the documents leave open where it "
            "goes; load the pixels of one image at a time"
        )
    steps = np.zeros((len(along), runs, walk.run + halo), dtype=np.int64)
    steps[0, :, : walk.run] = across.reshape(runs, walk.run)
    steps[0, :, walk.run :] = across.reshape(runs, walk.run)[:, -1:] + step * np.arange(1, halo + 1, dtype=np.int64)
    steps[0] += offset
    steps[-1, :, : walk.run] = images.reshape(runs, walk.run)
    steps[-1, :, walk.run :] = images.reshape(runs, walk.run)[:, -1:]
    return steps.reshape(len(along), plan.rows)


@lru_cache(maxsize=128)
def shared_chunks(rows: int, width: int, pitch: int, swizzle: Swizzle, phase: int) -> Int64:
    """Where each chunk of a tile lies in shared memory.

    Parameters
    ----------
    rows, width, pitch : int
        Rows of `width` bytes, `pitch` bytes apart before the swizzle.
    swizzle : Swizzle
        Its pattern says how long a chunk is: 16 bytes, or 8.
    phase : int
        The tile's absolute shared address modulo 1024, a multiple of 128.

    Returns
    -------
    ndarray of int64, shape (chunks,)
        Chunk index relative to the tile's base, row after row.
    """
    unit = pattern_of(swizzle).unit
    linear = np.add.outer(np.arange(rows, dtype=np.int64) * pitch, np.arange(0, width, unit, dtype=np.int64))
    placed = swizzle_address(linear.ravel() + phase, swizzle) - phase
    return _frozen(placed // unit)


def chunks_of(plan: Geometry, shared_offset: int) -> Int64:
    """`shared_chunks` of a tile of `plan` whose base lies at `shared_offset`."""
    phase = 0 if plan.swizzle == Swizzle.NONE else shared_offset % SWIZZLE_PERIOD
    return shared_chunks(plan.rows, plan.width, plan.pitch, plan.swizzle, phase)


def shared_extent(plan: Geometry, shared_offset: int) -> int:
    """Bytes from the tile's base to the end of the last chunk it occupies."""
    if plan.swizzle == Swizzle.NONE:
        return plan.rows * plan.width
    phase = shared_offset % SWIZZLE_PERIOD
    return _extent(plan.rows, plan.width, plan.pitch, plan.swizzle, phase)


@lru_cache(maxsize=128)
def _extent(rows: int, width: int, pitch: int, swizzle: Swizzle, phase: int) -> int:
    return (int(shared_chunks(rows, width, pitch, swizzle, phase).max()) + 1) * pattern_of(swizzle).unit


def _frozen(array: Int64) -> Int64:
    """Cached arrays are shared between calls, so none may be changed."""
    array.setflags(write=False)
    return array
