"""How one array is copied to many places: which tiles a cluster of blocks loads once and stores once in each block.

Knows nothing of the GPU: the same plan is carried out by the kernels and by the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from cupytma.errors import ArrayError
from cupytma.limits import MAX_RANK, UNIT
from cupytma.ops.copy_plan import MAX_TILES, CopyPlan, obstacle_of, plan_copy, tile
from cupytma.ops.layout import Dimension, Region, check_overlap, common_region
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap

# Blocks of a cluster; and how many more stores' turns a larger one may take than a smaller, as a part of all.
CLUSTERS = (8, 4, 2, 1)
_MORE_IDLE = 1 / 8


@dataclass(frozen=True)
class MulticastTiles:
    """Tiles that a cluster loads once, for each of its blocks to store to a copy of its own.

    Attributes
    ----------
    source, destination : TensorMap
        Of the same rank and box, with the dimensions of the copies last; of extent 1 in the source.
    global_dim, box_dim : tuple of int
        Of one copy, in words of 8 bytes (dimension 0) and rows, driver order.
    copies : tuple of int
        Extents of the dimensions of the copies, driver order.
    cluster : int
        Blocks of a cluster.
    """

    source: TensorMap
    destination: TensorMap
    global_dim: tuple[int, ...]
    box_dim: tuple[int, ...]
    copies: tuple[int, ...]
    cluster: int

    @property
    def rank(self) -> int:
        """Number of dimensions, those of the copies among them."""
        return len(self.global_dim) + len(self.copies)

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles of one copy along each dimension."""
        return tuple(-(-extent // box) for extent, box in zip(self.global_dim, self.box_dim, strict=True))

    @property
    def tiles(self) -> int:
        """Tiles of one copy."""
        return prod(self.counts)

    @property
    def groups(self) -> int:
        """How many times each tile is loaded: once for as many copies as a cluster has blocks."""
        return -(-prod(self.copies) // self.cluster)

    @property
    def items(self) -> int:
        """Loads in all. Item i is tile ``i // groups``, for the copies from ``i % groups * cluster`` on."""
        return self.tiles * self.groups

    def start(self, tile: int) -> tuple[int, ...]:
        """Start coordinates of a tile in the source."""
        found = []
        for count, box in zip(self.counts, self.box_dim, strict=True):
            tile, position = divmod(tile, count)
            found.append(position * box)
        return (*found, *(0 for _ in self.copies))

    def place(self, tile: int, copy: int) -> tuple[int, ...]:
        """Start coordinates of a tile in one copy."""
        found = []
        for extent in self.copies:
            copy, position = divmod(copy, extent)
            found.append(position)
        return (*self.start(tile)[: len(self.global_dim)], *found)


@dataclass(frozen=True)
class MulticastPlan:
    """A copy to many places.

    Attributes
    ----------
    before : CopyPlan or None
        An ordinary copy that comes first: of the source to the first place, which the others are copied from then, or
        to all places.
    tiles : MulticastTiles or None
    rest : Region or None
        Bytes that no tensor store may write, copied by ordinary loads and stores beside the tiles.
    reason : str
        The rule that keeps source or copies from tensor maps; empty where none does.
    """

    before: CopyPlan | None
    tiles: MulticastTiles | None
    rest: Region | None
    reason: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to copy."""
        return self.before is None and self.tiles is None


def cluster_for(copies: int) -> int:
    """The largest cluster that leaves hardly more of its blocks without a store than another would.

    Examples
    --------
    >>> [cluster_for(copies) for copies in (1, 2, 3, 5, 6, 8, 12, 1001)]
    [1, 2, 4, 2, 2, 8, 4, 8]
    """
    if copies == 1:
        return 1
    slots = {cluster: -(-copies // cluster) * cluster for cluster in CLUSTERS if cluster > 1}
    return next(cluster for cluster in slots if slots[cluster] <= (1 + _MORE_IDLE) * min(slots.values()))


def spread(source: ArrayView, destination: ArrayView) -> ArrayView:
    """The source in the destination's shape: with its leading dimensions, of stride 0.

    Raises
    ------
    ArrayError
        If the last dimensions of the destination are not the source's.
    """
    missing = len(destination.shape) - len(source.shape)
    if missing < 0 or destination.shape[missing:] != source.shape:
        raise ArrayError(
            f"the shapes do not fit: the destination has {destination.shape}, and dimensions before those of the "
            f"source, {source.shape}, are needed: (copies, *source.shape)"
        )
    return replace(
        source, shape=destination.shape, strides=(*(0 for _ in range(missing)), *source.strides)
    )


@lru_cache(maxsize=1024)
def plan_multicast(source: ArrayView, destination: ArrayView) -> MulticastPlan:
    """Plan a copy of one view of device memory to many places.

    Parameters
    ----------
    source : ArrayView
    destination : ArrayView
        Of the source's shape with more dimensions before it.

    Raises
    ------
    ArrayError
        If shapes or types do not fit, or memory overlaps.
    """
    whole = spread(source, destination)
    common_region(whole, destination)  # says whether types differ
    if destination.size == 0:
        return MulticastPlan(None, None, None, "the arrays are empty")
    check_overlap(whole, destination)
    lead = len(destination.shape) - len(source.shape)
    found = _direct(source, destination, lead)
    if isinstance(found, MulticastPlan):
        return found
    ordinary = plan_copy(whole, destination)
    copies, address = _copies(destination, lead)
    if len(copies) != 1:
        return MulticastPlan(ordinary, None, None, found if copies else ordinary.reason)
    # One ordinary copy may make a first place that is easier to read than the source.
    (extent, stride), inner = copies[0], _first(destination, lead)
    first = replace(inner, address=address)
    others = replace(
        inner, address=address + stride, shape=(extent - 1, *inner.shape), strides=(stride, *inner.strides)
    )
    between = _direct(first, others, 1)
    if isinstance(between, str):
        return MulticastPlan(ordinary, None, None, found)
    return replace(between, before=plan_copy(source, first), reason=found)


def _first(destination: ArrayView, lead: int) -> ArrayView:
    return replace(destination, shape=destination.shape[lead:], strides=destination.strides[lead:])


def _direct(source: ArrayView, destination: ArrayView, lead: int) -> MulticastPlan | str:
    """Tiles from the source to all copies; or the rule that forbids them."""
    copies, address = _copies(destination, lead)
    if not copies:
        return "there is one copy"
    region = common_region(source, replace(_first(destination, lead), address=address))
    obstacle = obstacle_of(region) or _obstacle(copies, region)
    if obstacle:
        return obstacle
    one, rest = tile(region)
    if one.rank + len(copies) > MAX_RANK:
        return f"{one.rank + len(copies)} dimensions are left after merging; {MAX_RANK} is the most"
    extents = tuple(extent for extent, _ in copies)
    made = MulticastTiles(
        _extended(one.source, [(1, UNIT) for _ in copies]), _extended(one.destination, copies), one.global_dim,
        one.box_dim, extents, cluster_for(prod(extents)),
    )  # fmt: skip
    if made.items * made.cluster > MAX_TILES:
        return f"{made.items} tiles are too many for one launch"
    if rest is not None:
        rest = replace(rest, outer=(*rest.outer, *(Dimension(extent, 0, stride) for extent, stride in copies)))
    return MulticastPlan(None, made, rest)


def _copies(destination: ArrayView, lead: int) -> tuple[list[tuple[int, int]], int]:
    """Extents and strides of the copies' dimensions, innermost first and merged, and the address of the first copy."""
    address, found = destination.address, list[tuple[int, int]]()
    given = zip(destination.shape[:lead], destination.strides[:lead], strict=True)
    for extent, stride in sorted(given, key=lambda dim: abs(dim[1])):
        if extent == 1:
            continue
        if stride < 0:
            address, stride = address + (extent - 1) * stride, -stride
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = found[-1][0] * extent, found[-1][1]
        else:
            found.append((extent, stride))
    return found, address


def _obstacle(copies: list[tuple[int, int]], region: Region) -> str:
    """The rule that keeps the dimensions of the copies from a tensor map; empty when none does."""
    outer = tuple(Dimension(extent, 0, stride) for extent, stride in copies)
    return obstacle_of(replace(region, outer=outer))


def _extended(tensor_map: TensorMap, dims: list[tuple[int, int]]) -> TensorMap:
    """A map with more dimensions, given by extents and strides, of which a box has one."""
    one = tensor_map.decode()
    assert isinstance(one, Tiled)
    return replace(
        one,
        global_dim=(*one.global_dim, *(extent for extent, _ in dims)),
        global_strides=(*one.global_strides, *(stride for _, stride in dims)),
        box_dim=(*one.box_dim, *(1 for _ in dims)),
        element_strides=(1,) * (len(one.global_dim) + len(dims)),
    ).encode()
