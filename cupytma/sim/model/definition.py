"""The definition of a tiled copy, element by element in plain loops.

Source: NVIDIA nvFuser, "TMA Modeling In Depth". For learning and for checking; `cupytma.sim.load` and `store` are fast
and exact in what silicon adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import product
from math import prod
from typing import Any

from cupytma.errors import ArrayError
from cupytma.sim.faults import OutOfWindow, SharedOverrun
from cupytma.sim.model.operands import operation, same_rank, vector
from cupytma.words import counted


def tma(
    x: int | Iterable[int],
    sa: Any,
    *,
    ga: Any,
    gs: int | Iterable[int],
    bs: int | Iterable[int],
    gr: int | Iterable[int],
    er: int | Iterable[int],
    op: str,
) -> None:
    """Copy one tile between global and shared memory, as the mathematical model defines it.

    `x` and `sa` are what an instruction says and may change from one to the next; the others are fixed in the tensor
    map, and `op` in the instruction's name. All vectors have one entry per dimension, in driver order (dimension 0
    first and fastest), and count elements; with one dimension an integer will do.

    Parameters
    ----------
    x : sequence of int
        Coordinates of the box's first element in the tensor; negative or far outside allowed.
    sa : list or 1-D array
        Shared memory from the tile's base address on, one entry per element. Changed in place by a load. The tile is
        dense in it, dimension 0 fastest, ``ceil(bs[d] / er[d])`` slots along each dimension.
    ga : list or 1-D array
        Global memory from the tensor's base address on, one entry per element. Changed in place by a store.
    gs : sequence of int
        Global size: the extents of the tensor (`global_dim`).
    bs : sequence of int
        Box size: the extents of the box (`box_dim`). The tile that is moved is smaller where `er` is above 1.
    gr : sequence of int
        Global strides, of dimension 0 too, which is 1 for every tensor map. In elements, where `global_strides` of a
        tensor map are in bytes and begin at dimension 1.
    er : sequence of int
        Element strides: the tile takes every ``er[d]``-th element of the box (`element_strides`).
    op : str
        ``"load"`` copies from `ga` to `sa`, and puts 0 where the tile lies outside the tensor; ``"store"`` copies from
        `sa` to `ga` and skips those places.

    Raises
    ------
    SimulationError
        If a vector is none of 1 to 5 integers, `gs`, `bs` or `er` has an entry below 1, `gr` one below 0, the vectors'
        lengths differ, or `op` is neither.
    SharedOverrun, OutOfWindow
        If `sa` has fewer entries than the tile, or `ga` ends before an element of the tensor that the tile holds.
    ArrayError
        If `sa` or `ga` is not one-dimensional, is read-only and to be changed, or holds elements of another kind than
        the other.

    Notes
    -----
    The model leaves out what `cupytma.sim.load` and `store` do beside: on silicon ``er[0]`` has no effect, a store
    rounds ``gs[0]`` up to whole 16 bytes and dies of a negative coordinate, and a load may fill with NaN and rounds
    TF32 (all measured on an H100). Swizzle, interleave and im2col are outside the model.

    Examples
    --------
    The last rows of a 4 x 6 matrix, every second one, in a box that reaches past its end:

    >>> matrix = list(range(24))
    >>> tile = [-1] * 8
    >>> tma((2, 3), tile, ga=matrix, gs=(4, 6), bs=(4, 4), gr=(1, 4), er=(1, 2), op="load")
    >>> tile
    [14, 15, 0, 0, 22, 23, 0, 0]
    """
    op = operation(op)
    x, gr = vector("x", x), vector("gr", gr, least=0)
    gs, bs, er = vector("gs", gs, least=1), vector("bs", bs, least=1), vector("er", er, least=1)
    same_rank(x=x, gs=gs, bs=bs, gr=gr, er=er)
    _check_memory(sa, ga, op)
    ts = tuple(-(-box // stride) for box, stride in zip(bs, er, strict=True))
    _check_room(len(sa), len(ga), x, ts, gs, gr, er)
    try:
        _copy(x, sa, ga, ts, gs, gr, er, op)
    except (TypeError, ValueError, OverflowError) as error:
        source, target = ("ga", "sa") if op == "load" else ("sa", "ga")
        raise ArrayError(f"an element of {source} does not fit {target}: {error}; give both the same type") from error


def _copy(
    x: tuple[int, ...],
    sa: Any,
    ga: Any,
    ts: tuple[int, ...],
    gs: tuple[int, ...],
    gr: tuple[int, ...],
    er: tuple[int, ...],
    op: str,
) -> None:
    """The definition itself; `ts` is the size of the tile."""
    # `product` moves its last factor fastest, and dimension 0 is the one that shall.
    for place, backwards in enumerate(product(*(range(slots) for slots in reversed(ts)))):
        slot = backwards[::-1]
        element = [start + i * stride for start, i, stride in zip(x, slot, er, strict=True)]
        inside = all(0 <= position < extent for position, extent in zip(element, gs, strict=True))
        address = sum(position * stride for position, stride in zip(element, gr, strict=True))
        if op == "load":
            sa[place] = ga[address] if inside else 0
        elif inside:
            ga[address] = sa[place]


def _check_room(
    shared: int,
    memory: int,
    x: Sequence[int],
    ts: Sequence[int],
    gs: Sequence[int],
    gr: Sequence[int],
    er: Sequence[int],
) -> None:
    """Refuse memories of too few entries, before anything moves."""
    if prod(ts) > shared:
        raise SharedOverrun(
            f"the tile has {' x '.join(map(str, ts))} = {counted(prod(ts), 'slot')} and sa has "
            f"{counted(shared, 'entry')}; make the box smaller or sa larger"
        )
    address = 0
    for start, slots, extent, stride, step in zip(x, ts, gs, gr, er, strict=True):
        last = start + min(slots - 1, (extent - 1 - start) // step) * step
        if last < max(start, 0):
            return  # the tile holds no element of the tensor
        address += last * stride
    if address >= memory:
        raise OutOfWindow(
            f"the tile's last element inside the tensor is ga[{address}] and ga has {counted(memory, 'entry')}; give "
            "the whole tensor, or smaller gs or gr"
        )


def _check_memory(sa: Any, ga: Any, op: str) -> None:
    """Refuse what cannot be indexed as a row of elements, or be changed where it must be."""
    for name, memory, written in (("sa", sa, op == "load"), ("ga", ga, op == "store")):
        unsuited = isinstance(memory, (str, Mapping, Set))
        if unsuited or not hasattr(memory, "__getitem__") or not hasattr(memory, "__len__"):
            raise ArrayError(f"{name} is a {type(memory).__name__}; it must be a list or a one-dimensional array")
        if getattr(memory, "ndim", 1) != 1:
            raise ArrayError(
                f"{name} has {counted(memory.ndim, 'dimension')}; give it as one, for example `{name}.reshape(-1)`"
            )
        if written and not _writable(memory):
            raise ArrayError(f"{name} is a read-only {type(memory).__name__} and the {op} changes it; pass a copy")
    shared_type, memory_type = getattr(sa, "dtype", None), getattr(ga, "dtype", None)
    # numpy takes None for a type of its own in comparisons, hence `is`.
    if shared_type is not None and memory_type is not None and shared_type != memory_type:
        raise ArrayError(f"sa holds {shared_type} and ga {memory_type}; a copy converts nothing: give both one type")


def _writable(memory: Any) -> bool:
    flags = getattr(memory, "flags", None)
    if getattr(memory, "readonly", False) or not getattr(flags, "writeable", True):
        return False
    return hasattr(memory, "__setitem__")
