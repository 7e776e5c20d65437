"""Random cases: legal tensor maps of every kind and shape, and copies with them, from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from cupytma.errors import CupytmaError
from cupytma.record.forms import has_load, has_store
from cupytma.record.prediction import predict
from cupytma.record.recording import (
    COMPLETED,
    DIED,
    GATHER_LOAD,
    GLOBAL_BYTES,
    IM2COL_LOAD,
    IM2COL_STORE,
    KINDS,
    REDUCTION,
    SCATTER_STORE,
    SHARED_BYTES,
    TILED_LOAD,
    TILED_STORE,
    WIDE_128_LOAD,
    WIDE_LOAD,
    Case,
    memory_contents,
)
from cupytma.sim.faults import NotSimulatedError
from cupytma.sim.reductions import measured_reductions
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.tensormap.checking import SCALAR_LOOKUPS, target_operands
from cupytma.tensormap.enums import DataType, Swizzle, WideMode
from cupytma.tensormap.parameters import Im2col, Im2colWide, Parameters, Tiled

Random = np.random.Generator

_REDUCTIONS = tuple((member, op) for member in DataType for op in measured_reductions(member))

_SHARES = {
    TILED_LOAD: 0.4, IM2COL_LOAD: 0.2, TILED_STORE: 0.15, IM2COL_STORE: 0.1, REDUCTION: 0.15, GATHER_LOAD: 0.1,
    SCATTER_STORE: 0.08, WIDE_LOAD: 0.1, WIDE_128_LOAD: 0.08,
}  # fmt: skip
_IM2COL_REDUCTIONS = 0.2
_LARGEST_HALO = 3
_HALO_ROOM = 4 * _LARGEST_HALO * 128
# The largest extent of a dimension, by rank, so that most tensors fit the window.
_LARGEST = {1: 4096, 2: 128, 3: 32, 4: 12, 5: 7}


def draw_cases(
    count: int, seed: int, *, target: Target = DEFAULT_TARGET, wanted: Callable[[Case], bool] = lambda _: True
) -> tuple[Case, ...]:
    """Cases that no rule known to the simulator forbids; some of them may be such as no document describes.

    Parameters
    ----------
    count : int
    seed : int
        The same cases for the same seed and target.
    target : Target
        Whose modes, types and swizzles are drawn.
    wanted : callable, optional
        Says which cases to keep.
    """
    drawn = filter(wanted, _drawn(seed, target, dies=False))
    return tuple(case for _, case in zip(range(count), drawn, strict=False))


def draw_faults(count: int, seed: int, *, target: Target = DEFAULT_TARGET) -> tuple[Case, ...]:
    """Cases that the simulator says kill the kernel; parameters as for `draw_cases`."""
    return tuple(case for _, case in zip(range(count), _drawn(seed, target, dies=True), strict=False))


@dataclass(frozen=True)
class _Choice:
    """What a target has to choose from."""

    target: Target
    kinds: tuple[int, ...]
    types: tuple[DataType, ...]
    swizzles: int

    @classmethod
    def of(cls, target: Target) -> _Choice:
        operands = target_operands(target)
        kinds = tuple(
            number
            for number, kind in enumerate(KINDS)
            if kind.mode is None or (has_load if kind.is_load else has_store)(kind.mode, target)
        )
        return cls(target, kinds, tuple(DataType)[: operands["data_types"]], operands["swizzles"])


def _drawn(seed: int, target: Target, *, dies: bool) -> Iterator[Case]:
    random = np.random.default_rng((seed, int(dies)))
    memory, source = memory_contents(seed)
    choice = _Choice.of(target)
    shares = np.array([_SHARES[kind] for kind in choice.kinds])
    while True:
        case = _case(random, choice, int(random.choice(choice.kinds, p=shares / shares.sum())))
        if case is None:
            continue
        if dies:
            case = random.choice(np.array(_SPOILERS, dtype=object))(random, case)
        try:
            outcome = predict(case, memory, source).outcome
        except NotSimulatedError:
            outcome = COMPLETED  # a recording will tell
        except CupytmaError:  # it leaves the window or the shared array
            continue
        if (outcome == DIED) == dies:
            yield case


def _case(random: Random, choice: _Choice, kind: int) -> Case | None:
    """A case whose tensor lies within the window; None if this draw gave none."""
    types, reduction, store = choice.types, "add", not KINDS[kind].is_load
    im2col = kind in (IM2COL_LOAD, IM2COL_STORE)
    if kind == REDUCTION:
        data_type, reduction = _REDUCTIONS[int(random.integers(len(_REDUCTIONS)))]
        types, im2col = (data_type,), random.random() < _IM2COL_REDUCTIONS
    shape = _Shape(random, types, choice.swizzles, store)
    parameters: Parameters
    if kind in (WIDE_LOAD, WIDE_128_LOAD):
        parameters = _wide(shape, kind)
    else:
        gathered = kind in (GATHER_LOAD, SCATTER_STORE)
        parameters = _im2col(shape) if im2col else _gathered(shape) if gathered else _tiled(shape)
    room = GLOBAL_BYTES - _reach(parameters) - 16
    place = 128 * int(random.integers(0, 16))
    tile_bytes = parameters.tile_bytes + _HALO_ROOM * isinstance(parameters, Im2colWide)
    if room < 0 or place + tile_bytes > SHARED_BYTES or parameters.violations(choice.target):
        return None
    return Case(
        kind=kind,
        parameters=replace(parameters, global_address=_address(random, room, shape.alignment)),
        coords=_coords(random, parameters, kind, store=store),
        offsets=_offsets(random, parameters, kind),
        shared_offset=place,
        reduction=reduction,
    )


def _address(random: Random, room: int, alignment: int) -> int:
    return int(random.integers(0, room // alignment + 1)) * alignment


def _reach(p: Parameters) -> int:
    """Bytes from the tensor's first to its last, the 16-byte rounding of stores included."""
    inner = p.global_dim[0] * p.slice_bytes or p.global_dim[0] * p.element_bits // 8
    return -(-inner // 16) * 16 + sum((n - 1) * s for n, s in zip(p.global_dim[1:], p.global_strides, strict=True))


class _Shape:
    """What all parameters share, drawn once the rank is known."""

    def __init__(self, random: Random, types: tuple[DataType, ...], swizzles: int, store: bool) -> None:
        self.random, self.store = random, store
        self.data_type = types[int(random.integers(len(types)))]
        self.swizzle = Swizzle(int(random.integers(swizzles)))
        self.bits = int(SCALAR_LOOKUPS["ELEMENT_BITS"][self.data_type])
        self.shared_bits = int(SCALAR_LOOKUPS["SHARED_BITS"][self.data_type])
        self.packed = self.data_type > DataType.TFLOAT32_FTZ
        self.alignment = 32 if self.data_type > DataType.PACKED_16U4_ALIGN8B else 16

    def draw(self, rank: int, *, interleaved: bool = True) -> tuple[dict[str, Any], int]:
        """The parameters, and the elements of an innermost row of the box."""
        random = self.random
        may = rank >= 3 and interleaved and not self.packed
        interleave = int(random.choice(3, p=(0.76, 0.12, 0.12))) if may else 0
        if interleave == 2:
            self.alignment = 32
        longest = self.swizzle.span if self.swizzle.span and not interleave else min(256 * self.shared_bits // 8, 512)
        row = int(random.integers(1, longest // 16 + 1)) * 128 // self.shared_bits
        dims = [int(n) for n in random.integers(1, _LARGEST[rank] + 1, rank)]
        if self.packed:
            row = 128 if self.alignment == 32 else min(row, 256)
            dims[0] = 128 * int(random.integers(1, 4))
        elif not interleave:
            dims[0] = int(random.integers(1, max(2, 3 * row)))
        inner = dims[0] * (0, 16, 32)[interleave] or dims[0] * self.bits // 8
        steps = np.where(random.random(rank) < 0.7, 1, random.integers(1, 9, rank))
        parameters = {
            "data_type": self.data_type,
            "global_address": 0,
            "global_dim": tuple(dims),
            "global_strides": _strides(random, dims, inner, self.alignment, self.store),
            "element_strides": tuple(int(e) for e in steps),
            "interleave": interleave,
            "swizzle": self.swizzle,
            "l2_promotion": int(random.integers(4)),
            "oob_fill": int(random.integers(2)) if DataType.FLOAT16 <= self.data_type <= DataType.TFLOAT32_FTZ else 0,
        }
        return parameters, row


def _strides(random: Random, dims: list[int], inner: int, step: int, store: bool) -> tuple[int, ...]:
    """Bytes; sometimes any, of rows that overlap, but not where rows are written: their order is not promised."""
    if not store and random.random() < 0.15:
        return tuple(step * int(n) for n in random.integers(0, 64, len(dims) - 1))
    strides, reach = [], inner
    for extent in dims[1:]:
        stride = -(-reach // step) * step + step * int(random.integers(0, 4))
        strides.append(stride)
        reach = stride * extent
    return tuple(strides)


def _tiled(shape: _Shape) -> Tiled:
    random, rank = shape.random, int(shape.random.integers(1, 6))
    parameters, row = shape.draw(rank)
    box = [row] + [1] * (rank - 1)
    rows = int(2.0 ** random.uniform(0, 8))
    for i in random.permutation(np.arange(1, rank)):
        box[i] = int(random.integers(1, rows + 1))
        rows //= box[i]
    steps = parameters["element_strides"]
    box = [box[0], *(min(256, b * e - int(random.integers(e))) for b, e in zip(box[1:], steps[1:], strict=True))]
    return Tiled(**parameters, box_dim=tuple(box))


def _gathered(shape: _Shape) -> Tiled:
    parameters, row = shape.draw(2)
    return Tiled(**parameters, box_dim=(row, 1))


def _im2col(shape: _Shape) -> Im2col:
    random, rank = shape.random, int(shape.random.integers(3, 6))
    parameters, row = shape.draw(rank)
    spatial = rank - 2
    return Im2col(
        **parameters,
        pixel_box_lower_corner=tuple(int(c) for c in random.integers(0 if shape.store else -3, 4, spatial)),
        pixel_box_upper_corner=tuple(int(c) for c in random.integers(-3, 1 if shape.store else 4, spatial)),
        channels_per_pixel=row,
        pixels_per_column=int(2.0 ** random.uniform(0, 8)),
    )


def _wide(shape: _Shape, kind: int) -> Im2colWide:
    random = shape.random
    parameters, row = shape.draw(int(random.integers(3, 6)), interleaved=False)
    return Im2colWide(
        **parameters,
        pixel_box_lower_corner_width=int(random.integers(-3, 4)),
        pixel_box_upper_corner_width=int(random.integers(-3, 4)),
        channels_per_pixel=row,
        pixels_per_column=int(2.0 ** random.uniform(0, 8)),
        mode=WideMode.W128 if kind == WIDE_128_LOAD else WideMode.W,
    )


def _coords(random: Random, p: Parameters, kind: int, *, store: bool) -> tuple[int, ...]:
    """A start near the tensor, or in the pixel box of an im2col copy."""
    low = 0 if store else -8
    coords = [int(random.integers(low, extent + (2 if i else 1))) for i, extent in enumerate(p.global_dim)]
    if kind in (GATHER_LOAD, SCATTER_STORE):
        # Four rows that are written are four different ones: which stays of two is not promised.
        rows = random.permutation(np.arange(low, p.global_dim[1] + 6))[:4]
        coords[1:] = rows.tolist() if store else [int(n) for n in random.integers(low, p.global_dim[1] + 2, 4)]
    first = 0 if p.slice_bytes else 1
    if isinstance(p, Im2col):
        for i, (lower, upper) in enumerate(zip(p.pixel_box_lower_corner, p.pixel_box_upper_corner, strict=True)):
            coords[first + i] = int(random.integers(lower, max(lower + 1, p.global_dim[first + i] + upper)))
    if isinstance(p, Im2colWide):
        lower, last = p.pixel_box_lower_corner_width, p.global_dim[1] + p.pixel_box_upper_corner_width
        coords[1] = int(random.integers(lower - 4, max(lower - 3, last)))
    if first:
        step = 128 // gcd(128, p.element_bits)
        coords[0] = coords[0] // step * step
    return tuple(coords)


def _offsets(random: Random, p: Parameters, kind: int) -> tuple[int, ...]:
    if kind == IM2COL_LOAD:
        return tuple(int(offset) for offset in random.integers(0, 4, p.rank - 2))
    if kind in (WIDE_LOAD, WIDE_128_LOAD):
        return (int(random.integers(0, _LARGEST_HALO + 1)), int(random.integers(0, 6)))
    return ()


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
