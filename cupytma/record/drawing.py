"""Random cases: legal tensor maps of every kind and shape, and copies with them, from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cupytma.errors import CupytmaError
from cupytma.record.prediction import predict
from cupytma.record.recording import (
    DIED,
    GLOBAL_BYTES,
    IM2COL_LOAD,
    IM2COL_STORE,
    LOADS,
    REDUCTION,
    SHARED_BYTES,
    TILED_LOAD,
    TILED_STORE,
    Case,
    memory_contents,
)
from cupytma.sim.reductions import measured_reductions
from cupytma.tensormap.checking import SCALAR_LOOKUPS
from cupytma.tensormap.enums import DataType, Swizzle
from cupytma.tensormap.parameters import Im2col, Parameters, Tiled

Random = np.random.Generator

_SHARES = {TILED_LOAD: 0.4, IM2COL_LOAD: 0.2, TILED_STORE: 0.15, IM2COL_STORE: 0.1, REDUCTION: 0.15}
_TYPES = tuple(member for member in DataType if member <= DataType.TFLOAT32_FTZ)
_REDUCTIONS = tuple((member, op) for member in _TYPES for op in measured_reductions(member))
# The largest extent of a dimension, by rank, so that most tensors fit the window.
_LARGEST = {1: 4096, 2: 128, 3: 32, 4: 12, 5: 7}


def draw_cases(
    count: int, seed: int, *, wanted: Callable[[Case], bool] = lambda _: True, unmeasured: bool = False
) -> tuple[Case, ...]:
    """Cases that no rule known to the simulator forbids.

    Parameters
    ----------
    count : int
    seed : int
        The same cases for the same seed.
    wanted : callable, optional
        Says which cases to keep.
    unmeasured : bool
        Whether to draw also what no recording has: interleaved im2col stores, and im2col reductions.
    """
    drawn = filter(wanted, _drawn(seed, dies=False, unmeasured=unmeasured))
    return tuple(case for _, case in zip(range(count), drawn, strict=False))


def draw_faults(count: int, seed: int) -> tuple[Case, ...]:
    """Cases that the simulator says kill the kernel; parameters as for `draw_cases`."""
    return tuple(case for _, case in zip(range(count), _drawn(seed, dies=True), strict=False))


def _drawn(seed: int, *, dies: bool, unmeasured: bool = False) -> Iterator[Case]:
    random = np.random.default_rng((seed, int(dies)))
    memory, source = memory_contents(seed)
    kinds, shares = list(_SHARES), list(_SHARES.values())
    while True:
        case = _case(random, int(random.choice(kinds, p=shares)), unmeasured=unmeasured)
        if case is None:
            continue
        if dies:
            case = random.choice(np.array(_SPOILERS, dtype=object))(random, case)
        try:
            predicted = predict(case, memory, source)
        except CupytmaError:  # it leaves the window or the shared array, or is not simulated
            continue
        if (predicted.outcome == DIED) == dies:
            yield case


def _case(random: Random, kind: int, *, unmeasured: bool) -> Case | None:
    """A case whose tensor lies within the window; None if this draw gave none."""
    store = kind not in LOADS
    types, reduction = _TYPES, "add"
    if kind == REDUCTION:
        data_type, reduction = _REDUCTIONS[int(random.integers(len(_REDUCTIONS)))]
        types = (data_type,)
    parameters: Parameters
    if kind in (IM2COL_LOAD, IM2COL_STORE) or (kind == REDUCTION and unmeasured):
        parameters = _im2col(random, types, store=store, interleaved=unmeasured or not store)
    else:
        parameters = _tiled(random, types, store=store)
    room = GLOBAL_BYTES - _reach(parameters) - 16
    place = 128 * int(random.integers(0, 16))
    if room < 0 or place + parameters.tile_bytes > SHARED_BYTES or parameters.violations():
        return None
    step = parameters.slice_bytes or 16
    return Case(
        kind=kind,
        parameters=replace(parameters, global_address=int(random.integers(0, room // step + 1)) * step),
        coords=_coords(random, parameters, store=store),
        offsets=_offsets(random, parameters) if kind == IM2COL_LOAD else (),
        shared_offset=place,
        reduction=reduction,
    )


def _reach(p: Parameters) -> int:
    """Bytes from the tensor's first to its last, the 16-byte rounding of stores included."""
    inner = p.global_dim[0] * (p.slice_bytes or p.element_bytes)
    return -(-inner // 16) * 16 + sum((n - 1) * s for n, s in zip(p.global_dim[1:], p.global_strides, strict=True))


def _shape(
    random: Random, rank: int, types: tuple[DataType, ...], *, store: bool, interleaved: bool = True
) -> tuple[dict[str, Any], int]:
    """What tiled and im2col parameters share, and the elements of an innermost row of the box."""
    data_type = types[int(random.integers(len(types)))]
    size = int(SCALAR_LOOKUPS["ELEMENT_BITS"][data_type]) // 8
    interleave = int(random.choice(3, p=(0.76, 0.12, 0.12))) if rank >= 3 and interleaved else 0
    swizzle = Swizzle(int(random.integers(4)))
    longest = swizzle.span if swizzle.span and not interleave else min(256 * size, 512)
    row = int(random.integers(1, longest // 16 + 1)) * 16 // size
    dims = [int(n) for n in random.integers(1, _LARGEST[rank] + 1, rank)]
    if not interleave:
        dims[0] = int(random.integers(1, max(2, 3 * row)))
    shape = {
        "data_type": data_type,
        "global_address": 0,
        "global_dim": tuple(dims),
        "global_strides": _strides(random, dims, (0, 16, 32)[interleave] or size, 32 if interleave == 2 else 16, store),
        "element_strides": tuple(int(e) for e in np.where(random.random(rank) < 0.7, 1, random.integers(1, 9, rank))),
        "interleave": interleave,
        "swizzle": swizzle,
        "l2_promotion": int(random.integers(4)),
        "oob_fill": int(random.integers(2)) if data_type >= DataType.FLOAT16 else 0,
    }
    return shape, row


def _strides(random: Random, dims: list[int], unit: int, step: int, store: bool) -> tuple[int, ...]:
    """Bytes; sometimes any, of rows that overlap, but not where rows are written: their order is not promised."""
    if not store and random.random() < 0.15:
        return tuple(step * int(n) for n in random.integers(0, 64, len(dims) - 1))
    strides, reach = [], unit * dims[0]
    for extent in dims[1:]:
        stride = -(-reach // step) * step + step * int(random.integers(0, 4))
        strides.append(stride)
        reach = stride * extent
    return tuple(strides)


def _tiled(random: Random, types: tuple[DataType, ...], *, store: bool) -> Tiled:
    rank = int(random.integers(1, 6))
    shape, row = _shape(random, rank, types, store=store)
    box = [row] + [1] * (rank - 1)
    rows = int(2.0 ** random.uniform(0, 8))
    for i in random.permutation(np.arange(1, rank)):
        box[i] = int(random.integers(1, rows + 1))
        rows //= box[i]
    steps = shape["element_strides"]
    box = [box[0], *(min(256, b * e - int(random.integers(e))) for b, e in zip(box[1:], steps[1:], strict=True))]
    return Tiled(**shape, box_dim=tuple(box))


def _im2col(random: Random, types: tuple[DataType, ...], *, store: bool, interleaved: bool) -> Im2col:
    rank = int(random.integers(3, 6))
    shape, row = _shape(random, rank, types, store=store, interleaved=interleaved)
    spatial = rank - 2
    lower = (0,) * spatial if store else tuple(int(c) for c in random.integers(-3, 4, spatial))
    return Im2col(
        **shape,
        pixel_box_lower_corner=lower,
        pixel_box_upper_corner=tuple(int(c) for c in random.integers(-3, 1 if store else 4, spatial)),
        channels_per_pixel=row,
        pixels_per_column=int(2.0 ** random.uniform(0, 8)),
    )


def _coords(random: Random, p: Parameters, *, store: bool) -> tuple[int, ...]:
    """A start near the tensor, or in the pixel box of an im2col copy."""
    coords = []
    for i, extent in enumerate(p.global_dim):
        low = 0 if store else -8
        coords.append(int(random.integers(low, extent + (2 if i else 1))))
    first = 0 if p.slice_bytes else 1
    if isinstance(p, Im2col):
        for i, (lower, upper) in enumerate(zip(p.pixel_box_lower_corner, p.pixel_box_upper_corner, strict=True)):
            coords[first + i] = int(random.integers(lower, max(lower + 1, p.global_dim[first + i] + upper)))
    if first:
        step = 16 // p.element_bytes
        coords[0] = coords[0] // step * step
    return tuple(coords)


def _offsets(random: Random, p: Parameters) -> tuple[int, ...]:
    return tuple(int(offset) for offset in random.integers(0, 4, p.rank - 2))


def _misplaced(random: Random, case: Case) -> Case:
    return replace(case, shared_offset=case.shared_offset + 16 * int(random.integers(1, 8)))


def _off_by_an_element(random: Random, case: Case) -> Case:
    return replace(case, coords=(case.coords[0] + 1, *case.coords[1:]))


def _moved(random: Random, case: Case) -> Case:
    """One coordinate far outside: below 0 for a store, or out of the pixel box."""
    at = int(random.integers(len(case.coords)))
    coords = list(case.coords)
    coords[at] += int(random.choice((-64, 64)))
    return replace(case, coords=tuple(coords))


def _lower_corner(random: Random, case: Case) -> Case:
    if not isinstance(case.parameters, Im2col):
        return _moved(random, case)
    corner = tuple(int(c) for c in random.integers(-1, 2, len(case.parameters.pixel_box_lower_corner)))
    return replace(case, parameters=replace(case.parameters, pixel_box_lower_corner=corner))


_SPOILERS: tuple[Callable[[Random, Case], Case], ...] = (_misplaced, _off_by_an_element, _moved, _lower_corner)
