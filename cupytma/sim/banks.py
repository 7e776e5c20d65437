"""Bank conflicts of a warp that reads a tile from shared memory, and the swizzle that avoids them.

Shared memory has 32 banks of 4 bytes; a word a bank can give per cycle is given to every thread that asks for it (CUDA
programming guide, "Shared Memory"). Accesses of 8 bytes are served for half a warp at a time, those of 16 bytes for a
quarter, which is a phase here. A phase takes as many wavefronts as the busiest bank has different words to give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import SimulationError
from cupytma.limits import TILE_ALIGNMENT, WARP_THREADS
from cupytma.sim.checks import check_integer, check_shared_place
from cupytma.sim.geometry import Geometry, geometry
from cupytma.sim.modes import FULL_TARGET, MEASURED, one_way, parameters_of
from cupytma.sim.swizzle import swizzle_address
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.targets import target as target_of
from cupytma.tensormap.enums import Swizzle
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.tensormap.rule import Violation
    from cupytma.tensormap.tensor_map import TensorMap

Int64 = npt.NDArray[np.int64]
Access = str | Callable[[int], Sequence[int]] | npt.ArrayLike

BANKS, WORD = 32, 4
_WIDTHS = (1, 2, 4, 8, 16)
_IDLE = -1
# Named patterns: whether threads that follow each other go down the rows, and the bytes each reads by default.
_NAMED: dict[str, tuple[bool, int]] = {"row": (False, 0), "column": (True, 0), "ldmatrix": (True, 16)}


@dataclass(frozen=True)
class BankConflicts:
    """How often the banks make a warp wait that reads a tile.

    Attributes
    ----------
    swizzle : Swizzle
    access : str
        The pattern's name; ``"custom"`` for a function or an array.
    access_bytes : int
        Bytes each thread reads at once.
    requests : int
        Reads of a whole warp.
    phases : int
        Wavefronts that they take without conflicts: 1, 2 or 4 each, by `access_bytes`.
    wavefronts : int
        Wavefronts that they take.
    worst : int
        The most wavefronts of one phase: 1 without conflicts, 8 for an eight-way conflict.
    unswizzled_wavefronts : int
        What they would take with the tile laid out without a swizzle.
    """

    swizzle: Swizzle
    access: str
    access_bytes: int
    requests: int
    phases: int
    wavefronts: int
    worst: int
    unswizzled_wavefronts: int

    @property
    def conflicts(self) -> int:
        """Wavefronts more than without conflicts."""
        return self.wavefronts - self.phases

    @property
    def unswizzled_conflicts(self) -> int:
        """The same without a swizzle."""
        return self.unswizzled_wavefronts - self.phases

    def _repr_html_(self) -> str:
        from cupytma.view.html import printed

        return printed(self)

    def __str__(self) -> str:
        worst = f", {self.worst}-way at worst" * bool(self.conflicts)
        plain = f"; without swizzle {counted(self.unswizzled_conflicts, 'conflict')}" * (self.swizzle != Swizzle.NONE)
        return (
            f"{self.access} reads of {self.access_bytes} B with swizzle {self.swizzle}: "
            f"{counted(self.conflicts, 'conflict')}{worst} (warp reads {self.requests}, wavefronts "
            f"{self.wavefronts}, at best {self.phases}){plain}"
        )


@dataclass(frozen=True)
class SwizzleAdvice:
    """The swizzle with the fewest conflicts for a way of reading a tile.

    Attributes
    ----------
    swizzle : Swizzle
        The recommended one: fewest wavefronts, then the least shared memory, then the shortest pattern.
    results : tuple of BankConflicts
        Every legal swizzle's, in the driver's order.
    illegal : dict of Swizzle to tuple of Violation
        The swizzles that the descriptor cannot have on the target, and why.
    """

    swizzle: Swizzle
    results: tuple[BankConflicts, ...]
    illegal: dict[Swizzle, tuple[Violation, ...]]

    @property
    def best(self) -> BankConflicts:
        """The result of the recommended swizzle."""
        return next(result for result in self.results if result.swizzle == self.swizzle)

    def _repr_html_(self) -> str:
        from cupytma.view.simulation_cards import advice_card

        return advice_card(self)

    def __str__(self) -> str:
        others = ", ".join(f"{r.swizzle} {r.conflicts}" for r in self.results if r.swizzle != self.swizzle)
        refused = ", ".join(f"{swizzle} ({broken[0].rule})" for swizzle, broken in self.illegal.items())
        return (
            f"use swizzle {self.swizzle}: {counted(self.best.conflicts, 'conflict')} of {self.best.access} reads"
            + f"; others: {others}" * bool(others)
            + f"; illegal: {refused}" * bool(refused)
        )


def bank_conflicts(
    tensor_map: TensorMap,
    access_pattern: Access = "column",
    *,
    access_bytes: int | None = None,
    shared_offset: int = 0,
    mode: str | None = None,
) -> BankConflicts:
    """Count the bank conflicts of a warp that reads the tile of one load.

    Parameters
    ----------
    tensor_map : TensorMap
    access_pattern : str, callable or array of int
        Which bytes the 32 threads read in one request:

        - ``"row"``: threads go along the rows, the whole tile read by read;
        - ``"column"``: threads go down the rows of one column, column after column, the whole tile;
        - ``"ldmatrix"``: the same in pieces of 16 bytes, as ``ldmatrix`` reads 8 × 8 matrices of 16-bit elements;
        - a function from the thread's number, 0 to 31, to a tile index;
        - an array of tile indices, shape (threads, rank) for one read or (reads, threads, rank), threads up to 32.

        A tile index is in driver order: the element within a row, then the row along each dimension of the box (im2col:
        the pixel). With interleave dimension 0 of the index is W, and each entry a slice.
    access_bytes : int, optional
        Bytes that each thread reads at once: 1, 2, 4, 8 or 16, a multiple of the element. Default: one element; 16 for
        ``"ldmatrix"`` and for slices.
    shared_offset : int
        Absolute shared address of the tile in bytes, a multiple of 128.
    mode : str, optional
        As for `cupytma.sim.load`.

    Returns
    -------
    BankConflicts

    Raises
    ------
    SimulationError
        For a pattern that there is none of, indices outside the tile, reads that are not aligned to their size, or a
        descriptor that is not simulated.

    Examples
    --------
    >>> import cupytma as tma
    >>> p = tma.Tiled(data_type="FLOAT32", global_address=0, global_dim=(32, 32), box_dim=(32, 32), swizzle="128B")
    >>> print(bank_conflicts(p.encode(), "column", access_bytes=16))
    column reads of 16 B with swizzle 128B: 0 conflicts (warp reads 8, wavefronts 32, at best 32); without swizzle 224 \
conflicts
    """
    plan = geometry(tensor_map, mode)
    place = _checked_place(shared_offset)
    unit = _unit_bytes(plan)
    name, width = _named(access_pattern, access_bytes, unit)
    bytes_in_tile = _named_reads(plan, name, width) if name in _NAMED else _custom_reads(plan, access_pattern, unit)
    _check_reads(plan, bytes_in_tile, width)
    idle = bytes_in_tile == _IDLE
    row, column = np.divmod(np.where(idle, 0, bytes_in_tile), plan.width)
    counts = []
    for swizzle, pitch in ((plan.swizzle, plan.pitch), (Swizzle.NONE, plan.width)):
        address = swizzle_address(row * pitch + column + place, swizzle) // width * width
        counts.append(_wavefronts(np.where(idle, _IDLE, address), width))
    swizzled, plain = counts
    return BankConflicts(
        plan.swizzle, name, width, len(bytes_in_tile), int((swizzled > 0).sum()), int(swizzled.sum()),
        int(swizzled.max(initial=0)), int(plain.sum()),
    )  # fmt: skip


def best_swizzle(
    tensor_map: TensorMap,
    access_pattern: Access = "column",
    *,
    access_bytes: int | None = None,
    shared_offset: int = 0,
    mode: str | None = None,
    target: str | Target | None = None,
) -> SwizzleAdvice:
    """The swizzle with the fewest bank conflicts among those that the descriptor can have.

    Parameters
    ----------
    tensor_map : TensorMap
        Its own swizzle does not matter.
    access_pattern, access_bytes, shared_offset, mode
        As for `bank_conflicts`.
    target : str or Target, optional
        Whose swizzles are considered. Default: ``"sm_90a"``, or ``"sm_100a"`` for what that lacks.

    Returns
    -------
    SwizzleAdvice

    Raises
    ------
    SimulationError
        As for `bank_conflicts`; also if the descriptor is legal with no swizzle of the target.
    TargetError
        If the target is unknown.
    """
    mode = geometry(tensor_map, mode).mode
    given = parameters_of(tensor_map, mode)
    candidates = {swizzle: replace(given, swizzle=swizzle) for swizzle in Swizzle}
    if target is not None:
        chosen = target_of(target)
    else:
        legal_there = mode in MEASURED and any(not p.violations(DEFAULT_TARGET) for p in candidates.values())
        chosen = DEFAULT_TARGET if legal_there else FULL_TARGET
    broken = {swizzle: p.violations(chosen) for swizzle, p in candidates.items()}
    legal = [swizzle for swizzle in Swizzle if not broken[swizzle] and not one_way(candidates[swizzle], store=False)]
    if not legal:
        raise SimulationError(f"no swizzle makes this descriptor legal on {chosen}: {broken[given.swizzle][0].message}")
    results = tuple(
        bank_conflicts(
            candidates[swizzle].encode(chosen), access_pattern, access_bytes=access_bytes, shared_offset=shared_offset,
            mode=mode,
        )
        for swizzle in legal
    )
    best = min(results, key=lambda r: (r.wavefronts, candidates[r.swizzle].tile_bytes, r.swizzle.span, r.swizzle))
    absent = [s for s in Swizzle if broken[s] and not any(v.rule == "swizzle" for v in broken[s])]
    return SwizzleAdvice(best.swizzle, results, {swizzle: broken[swizzle] for swizzle in absent})



def _checked_place(shared_offset: int) -> int:
    place = check_shared_place(shared_offset)
    if place % TILE_ALIGNMENT:
        off = f"{place % TILE_ALIGNMENT} mod {TILE_ALIGNMENT}"
        raise SimulationError(f"shared_offset is {place}, {off}; a tile starts at 0 mod {TILE_ALIGNMENT}")
    return place


def _unit_bytes(plan: Geometry) -> int:
    """Bytes of what an index of dimension 0 counts: an element, a group of packed ones, or a slice."""
    if plan.inner_bytes is None:
        return plan.width
    return plan.group_bytes()[1] if plan.element_bits % 8 else plan.element_bits // 8


def _named(access_pattern: Access, access_bytes: int | None, unit: int) -> tuple[str, int]:
    """The pattern's name, and the bytes of one access."""
    name = access_pattern if isinstance(access_pattern, str) else "custom"
    if isinstance(access_pattern, str) and name not in _NAMED:
        raise SimulationError(
            f"there is no access pattern {name!r}; give one of {', '.join(map(repr, _NAMED))}, a function of the "
            "thread, or an array of tile indices"
        )
    fixed = _NAMED.get(name, (False, 0))[1]
    width = min(unit, 16) if access_bytes is None else check_integer("access_bytes", access_bytes)
    if fixed and access_bytes is None:
        width = fixed
    if width not in _WIDTHS or (fixed and width != fixed):
        legal = (fixed,) if fixed else _WIDTHS
        raise SimulationError(f"access_bytes is {width}; a thread reads {', '.join(map(str, legal))} bytes at once")
    if width % min(unit, 16):
        raise SimulationError(f"access_bytes is {width}, no multiple of the {unit} bytes of an element")
    return name, width


def _named_reads(plan: Geometry, name: str, width: int) -> Int64:
    """Bytes of the tile before the swizzle, without gaps between rows, shape (reads, 32)."""
    if plan.width % width:
        raise SimulationError(f"rows of {plan.width} bytes are not read in pieces of {width}")
    places = np.arange(plan.rows * plan.width // width, dtype=np.int64).reshape(plan.rows, -1) * width
    return _in_warps((places.T if _NAMED[name][0] else places).ravel())


def _in_warps(places: Int64) -> Int64:
    padded = np.full(-(-len(places) // WARP_THREADS) * WARP_THREADS, _IDLE, dtype=np.int64)
    padded[: len(places)] = places
    return padded.reshape(-1, WARP_THREADS)


def _custom_reads(plan: Geometry, access_pattern: Any, unit: int) -> Int64:
    """As `_named_reads`, of a function or an array of tile indices."""
    given = [access_pattern(thread) for thread in range(WARP_THREADS)] if callable(access_pattern) else access_pattern
    try:
        indices = np.asarray(given)
        if indices.dtype.kind not in "iu" or not indices.size:
            raise ValueError
    except ValueError:
        raise SimulationError(
            "an access pattern gives one tile index for each thread, as whole numbers in driver order"
        ) from None
    extents = (plan.width // unit, *plan.counts) if plan.inner_bytes is not None else plan.counts
    indices = indices[None] if indices.ndim == 2 else indices
    if indices.ndim != 3 or indices.shape[2] != len(extents) or indices.shape[1] > WARP_THREADS:
        raise SimulationError(
            f"the tile indices have shape {np.shape(given)}; they need (threads, {len(extents)}) or (reads, threads, "
            f"{len(extents)}), and 32 threads at most"
        )
    outside = (indices < 0) | (indices >= np.array(extents))
    if outside.any():
        wrong = indices[outside.any(axis=2)][0].tolist()
        raise SimulationError(f"tile index {wrong} is outside the tile of {extents}, driver order")
    indices = indices.astype(np.int64)
    inner = indices[..., 0] * unit if plan.inner_bytes is not None else 0
    rows = indices[..., 1:] if plan.inner_bytes is not None else indices
    steps = np.cumprod((1, *plan.counts[:-1]), dtype=np.int64) if plan.counts else np.zeros(0, np.int64)
    places = rows @ steps * plan.width + inner
    padded = np.full((len(places), WARP_THREADS), _IDLE, dtype=np.int64)
    padded[:, : places.shape[1]] = places
    return padded


def _check_reads(plan: Geometry, places: Int64, width: int) -> None:
    within = places % plan.width
    wrong = (places != _IDLE) & ((within % width != 0) | (within + width > plan.width))
    if wrong.any():
        raise SimulationError(
            f"a read of {width} bytes at byte {int(within[wrong][0])} of a row of {plan.width} bytes is not aligned to "
            "its size, or leaves the row"
        )


def _wavefronts(addresses: Int64, width: int) -> Int64:
    """Wavefronts of each phase; 0 for one in which no thread reads."""
    threads = WARP_THREADS * min(WORD, width) // width
    phases = addresses.reshape(-1, threads)
    words = np.repeat(phases[..., None], max(1, width // WORD), axis=2) // WORD
    words += np.arange(words.shape[2])
    words = np.where(phases[..., None] == _IDLE, _IDLE, words).reshape(len(phases), -1)
    words.sort(axis=1)
    new = np.ones_like(words, dtype=np.bool_)
    new[:, 1:] = words[:, 1:] != words[:, :-1]  # a word that several threads read is given once
    new &= words != _IDLE
    counts = np.zeros((len(phases), BANKS), dtype=np.int64)
    np.add.at(counts, (np.nonzero(new)[0], words[new] % BANKS), 1)
    most: Int64 = counts.max(axis=1)
    return most
