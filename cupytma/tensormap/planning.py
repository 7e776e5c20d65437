"""Legal boxes for a wanted tile: how many loads, where they start, and how many bytes the barrier waits for."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from cupytma import targets
from cupytma.errors import DescriptorError
from cupytma.limits import MAX_CLUSTER
from cupytma.tensormap.arrays import array_order, integers, merged_parameters
from cupytma.tensormap.parameters import Parameters, Tiled
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.tensormap.tiling import Axis, Box, Tiling, plain, with_more_dimensions
from cupytma.words import counted


@dataclass(frozen=True)
class Load:
    """One load of a plan.

    Attributes
    ----------
    tensor_map : int
        Which of the plan's tensor maps it goes through.
    coordinates : tuple of int
        To be added to the tile's origin, in elements, driver order, in the dimensions of the plan's view.
    shared_offset : int
        To be added to the tile's address in shared memory, in bytes.
    bytes : int
        What the load adds to the mbarrier's transaction count.
    cta : int
        Rank of the block that issues it, in a cluster that shares the tile; else 0.
    """

    tensor_map: int
    coordinates: tuple[int, ...]
    shared_offset: int
    bytes: int
    cta: int = 0


@dataclass(frozen=True)
class BoxPlan:
    """A tile as loads through tensor maps.

    Attributes
    ----------
    tensor_maps : tuple of TensorMap
        One for each size of box: one, unless the tile does not divide evenly.
    loads : tuple of Load
        In the order of their places in shared memory.
    tile : tuple of int
        In elements of the tensor, driver order.
    view : tuple of Axis
        The dimensions of the tensor maps in terms of the tensor's coordinates ``x0``, ``x1``, …: ``(x0, x1)`` for the
        tensor's own, ``(x0 % 64, x1, x0 // 64)`` for rows of one span each and the spans one after another.
    transaction_bytes : int
        What an mbarrier must expect for the whole tile. In a multicast the barrier of every block expects this; a pair
        whose halves both signal the leader's barrier lets that one expect it.
    shared_bytes : int
        Shared memory that the plan takes in each block, the gaps included.
    shared_alignment : int
        Bytes that the tile's address in shared memory must be a multiple of.
    ctas : int
        Blocks that share the tile.
    """

    tensor_maps: tuple[TensorMap, ...]
    loads: tuple[Load, ...]
    tile: tuple[int, ...]
    view: tuple[Axis, ...]
    transaction_bytes: int
    shared_bytes: int
    shared_alignment: int
    ctas: int = 1

    @property
    def bytes_per_cta(self) -> tuple[int, ...]:
        """Bytes that the loads of each block fetch from global memory."""
        fetched = [0] * self.ctas
        for load in self.loads:
            fetched[load.cta] += load.bytes
        return tuple(fetched)

    @property
    def boxes(self) -> tuple[tuple[int, ...], ...]:
        """The box of each tensor map, in elements, driver order."""
        return tuple(p.box_dim for m in self.tensor_maps if isinstance(p := m.decode(), Tiled))

    @property
    def higher_rank(self) -> bool:
        """Whether the tensor maps have more dimensions than the tensor."""
        return len(self.view) > len(self.tile)

    @property
    def origin_multiples(self) -> tuple[int, ...]:
        """What the tile's origin must be a multiple of in each dimension of the tensor, in elements, driver order."""
        first = self.tensor_maps[0].decode()
        multiples = [1] * len(self.tile)
        if not first.slice_bytes:
            multiples[0] = 128 // gcd(128, first.element_bits)
        for axis in self.view:
            multiples[axis.source] = max(multiples[axis.source], axis.divisor)
        return tuple(multiples)

    def at(self, origin: Sequence[int]) -> tuple[tuple[TensorMap, tuple[int, ...], int], ...]:
        """The loads of the tile that starts at an origin.

        Parameters
        ----------
        origin : sequence of int
            In elements of the tensor, driver order.

        Returns
        -------
        tuple of (TensorMap, tuple of int, int)
            Tensor map, start coordinates in driver order, and byte offset in shared memory of each load.

        Raises
        ------
        DescriptorError
            If the origin has the wrong length, or is none that the loads can start from.
        """
        start = tuple(operator.index(x) for x in origin)
        if len(start) != len(self.tile):
            raise DescriptorError(
                f"origin has {counted(len(start), 'entry')}; the tile has {counted(len(self.tile), 'dimension')}"
            )
        for i, (x, multiple) in enumerate(zip(start, self.origin_multiples, strict=True)):
            if x % multiple:
                raise DescriptorError(
                    f"origin[{i}] = {x} is {x % multiple} mod {multiple}: the loads of this plan start on multiples of "
                    f"{multiple} elements of dimension {i} (driver order)"
                )
        base = tuple(axis.coordinate(start[axis.source]) for axis in self.view)
        return tuple(
            (
                self.tensor_maps[load.tensor_map],
                tuple(b + c for b, c in zip(base, load.coordinates, strict=True)),
                load.shared_offset,
            )
            for load in self.loads
        )

    def _repr_html_(self) -> str:
        from cupytma.view.plan_card import plan_card

        return plan_card(self)

    def __str__(self) -> str:
        view = ", ".join(map(str, self.view))
        lines = [
            f"{counted(len(self.loads), 'load')}, {self.transaction_bytes} B for the mbarrier, "
            f"{self.shared_bytes} B of shared memory aligned to {self.shared_alignment} B; view ({view})"
        ]
        if self.ctas > 1:
            lines.append(f"{self.ctas} blocks fetch {', '.join(map(str, self.bytes_per_cta))} B")
        for load in self.loads:
            box = "×".join(map(str, self.boxes[load.tensor_map]))
            by = f", block {load.cta}" if self.ctas > 1 else ""
            lines.append(f"  +{load.coordinates} box {box} → +{load.shared_offset}, {load.bytes} B{by}")
        return "\n".join(lines)


def plan_boxes(
    tensor: Any,
    tile: Sequence[int],
    *,
    swizzle: Any = None,
    target: str | targets.Target = targets.DEFAULT_TARGET,
    higher_rank: bool = False,
    multicast: int = 1,
    cta_pair: bool = False,
    coalesce: bool | Sequence[Sequence[int]] = False,
    **options: Any,
) -> BoxPlan:
    """Split a tile of any size into loads with legal boxes that complete on one mbarrier.

    A box has at most 256 elements along a dimension, and under a swizzle at most one span along dimension 0; a longer
    tile is moved by several loads. Together they bring exactly the tile. In shared memory each span (or run of at most
    256 elements) of dimension 0 has all its rows together, one span after another; every box starts on the boundary
    that the swizzle pattern repeats at.

    Parameters
    ----------
    tensor : array, Tiled or TensorMap
        With an array everything is in array order (as `tensor_map` takes it), with parameters or a tensor map
        everything is in driver order; their own box is not looked at.
    tile : sequence of int
        In elements, in the order of `tensor`. Rows (the last axis of an array, dimension 0 of parameters) are a
        multiple of 16 bytes; a tile may be larger than the tensor. With element strides it counts the elements that
        are passed over, as a box does.
    swizzle : Swizzle or str, optional
        Default: that of the parameters; none for an array.
    target : str or Target
        Decides what is legal, and how much shared memory there is. Default ``"sm_90a"``.
    higher_rank : bool
        Whether the tensor maps may have more dimensions than the tensor where that takes fewer loads: a wide tile
        under a swizzle becomes one box of ``(span, rows, spans)``. Coordinates are then those of the view; `BoxPlan.at`
        converts. Possible where tile and tensor are multiples of the span. The places in shared memory are the same.
    multicast : int
        Blocks of a cluster (1 to 16; more than 8 are not portable) that all get the whole tile: each issues its share
        of the loads as multicasts to all. The loads are cut smaller where that makes the shares equal.
    cta_pair : bool
        Whether the two blocks of a pair (``cta_group::2``) hold half of the tile each, cut along its outermost
        dimension of more than one element.
    coalesce : bool or sequence of axis groups
        For arrays; see `tensor_map`. The tile is over the merged dimensions.
    **options
        ``data_type``, ``element_strides``, ``interleave``, ``l2_promotion``, ``oob_fill`` as for `tensor_map`; with
        parameters, these replace theirs.

    Returns
    -------
    BoxPlan
        Everything in driver order.

    Raises
    ------
    DescriptorError
        If there is no legal plan, listing the reasons, in the order of `tensor`.
    ArrayError
        If the object is no array, or its dtype has no tensor-map type.
    TargetError
        If the target is unknown, or has no pairs of blocks where `cta_pair` asks for one.

    Notes
    -----
    The limits are the driver's (driver API); transaction bytes and places in shared memory were measured on an H100.

    Examples
    --------
    >>> parameters = Tiled(data_type="FLOAT16", global_address=0x7F0000000000, global_dim=(4096, 4096), box_dim=(8, 1))
    >>> print(plan_boxes(parameters, (256, 256), swizzle="128B"))
    4 loads, 131072 B for the mbarrier, 131072 B of shared memory aligned to 1024 B; view (x0, x1)
      +(0, 0) box 64×256 → +0, 32768 B
      +(64, 0) box 64×256 → +32768, 32768 B
      +(128, 0) box 64×256 → +65536, 32768 B
      +(192, 0) box 64×256 → +98304, 32768 B
    >>> print(plan_boxes(parameters, (256, 256), swizzle="128B", higher_rank=True))
    1 load, 131072 B for the mbarrier, 131072 B of shared memory aligned to 1024 B; view (x0 % 64, x1, x0 // 64)
      +(0, 0, 0) box 64×256×4 → +0, 131072 B
    """
    chosen = targets.target(target)
    if cta_pair:
        chosen.require(targets.Feature.CTA_GROUP)
    if swizzle is not None:
        options["swizzle"] = swizzle
    parameters, from_array = _parameters(tensor, tile, coalesce, options)
    try:
        _check_sharing(multicast, cta_pair)
        return _plan(plain(parameters, parameters.box_dim), chosen, higher_rank, multicast, cta_pair)
    except DescriptorError as error:
        raise (array_order(error, parameters.rank) if from_array else error) from None


def _parameters(tensor: Any, tile: Sequence[int], coalesce: Any, options: dict[str, Any]) -> tuple[Tiled, bool]:
    """The tensor as parameters whose box is the whole tile, and whether it was given in array order."""
    if isinstance(tensor, TensorMap):
        tensor = tensor.decode()
    if not isinstance(tensor, Parameters):
        return merged_parameters(tensor, tile, coalesce=coalesce, box_name="tile", **options)[0], True
    if not isinstance(tensor, Tiled):
        raise DescriptorError(
            f"{type(tensor).__name__} loads walk over pixels and have no box: load channels_per_pixel and "
            "pixels_per_column several times, each with its own start"
        )
    wanted = integers("tile", tile)
    if len(wanted) != tensor.rank:
        raise DescriptorError(
            f"tile has {counted(len(wanted), 'entry')}; the tensor has {counted(tensor.rank, 'dimension')}"
        )
    return replace(tensor, box_dim=wanted, **options), False


def _check_sharing(multicast: int, cta_pair: bool) -> None:
    if not 1 <= multicast <= MAX_CLUSTER:
        raise DescriptorError(f"multicast = {multicast} blocks; a cluster has 1 to {MAX_CLUSTER}")
    if cta_pair and multicast > 1:
        raise DescriptorError("a tile is either multicast or split over a pair of blocks: plan each block's half alone")


def _plan(tiling: Tiling, target: targets.Target, higher_rank: bool, multicast: int, cta_pair: bool) -> BoxPlan:
    whole = tiling
    if cta_pair and min(tiling.tile) > 0:
        tiling = replace(tiling, tile=_half(tiling))
    _check(tiling, target)
    if higher_rank:
        tiling = with_more_dimensions(tiling)
    plan = _multicast(tiling, multicast, target) if multicast > 1 else _placed(tiling, tiling.boxes(), target)
    if plan.shared_bytes > target.shared_bytes:
        raise DescriptorError(_too_large(plan.shared_bytes, target))
    return _paired(plan, whole.tile, tiling.source_tile) if cta_pair else plan


def _check(tiling: Tiling, target: targets.Target) -> None:
    """Refuse what no split of the tile can mend, naming everything at once."""
    tile, p = tiling.tile, tiling.parameters
    problems = [f"tile[{i}] = {extent}; 1 is the least" for i, extent in enumerate(tile) if extent < 1]
    row_bits = tile[0] * p.shared_bits
    if row_bits % 128:
        unit = tiling.quanta[0]
        problems.append(
            f"rows of the tile, tile[0] = {tile[0]}, are {row_bits / 8:g} B, no multiple of 16 bytes: use "
            f"{-(-tile[0] // unit) * unit}; a tile may be larger than the tensor"
        )
    box = tuple(max(1, min(extent, limit)) for extent, limit in zip(tile, tiling.limits, strict=True))
    broken = tuple(v for v in replace(p, box_dim=box).violations(target) if not (problems and v.rule.startswith("box")))
    if not problems and not broken and (needed := tiling.shared_bytes(tile)) > target.shared_bytes:
        problems.append(_too_large(needed, target))
    if problems or broken:
        raise DescriptorError("\n".join([*problems, *map(str, broken)]), broken)


def _too_large(needed: int, target: targets.Target) -> str:
    return (
        f"the tile takes {needed} B of shared memory and a block on {target} has {target.shared_bytes} B at most: use "
        "a smaller tile"
    )


def _placed(tiling: Tiling, boxes: Sequence[Box], target: targets.Target, ctas: Sequence[int] = ()) -> BoxPlan:
    """Boxes one after another in shared memory."""
    maps: dict[tuple[int, ...], TensorMap] = {}
    loads, end = [], 0
    for i, box in enumerate(boxes):
        if box.extent not in maps:
            maps[box.extent] = replace(tiling.parameters, box_dim=box.extent).encode(target)
        place = -(-end // tiling.period) * tiling.period
        size = maps[box.extent].box_bytes
        loads.append(Load(list(maps).index(box.extent), box.start, place, size, ctas[i] if ctas else 0))
        end = place + tiling.shared_bytes(box.extent)
    return BoxPlan(
        tensor_maps=tuple(maps.values()),
        loads=tuple(loads),
        tile=tiling.source_tile,
        view=tiling.axes,
        transaction_bytes=sum(load.bytes for load in loads),
        shared_bytes=end,
        shared_alignment=tiling.period,
        ctas=max(ctas, default=0) + 1,
    )


def _multicast(tiling: Tiling, count: int, target: targets.Target) -> BoxPlan:
    """The plan whose loads fall into equal shares, with the fewest loads; as equal as possible where none does."""
    boxes = tiling.boxes()
    whole = _placed(tiling, boxes, target)
    if len(boxes) % count == 0:
        shares = [i * count // len(boxes) for i in range(len(boxes))]
        plan = _placed(tiling, boxes, target, shares)
        if len(set(plan.bytes_per_cta)) == 1:
            return plan
    cut = []
    for dimension in reversed(range(len(tiling.tile))):
        extent, left = divmod(tiling.tile[dimension], count)
        if left == 0 and extent % tiling.quanta[dimension] == 0:
            boxes = tiling.boxes(count, dimension)
            plan = _placed(tiling, boxes, target, [box.start[dimension] // extent for box in boxes])
            # Parts of dimension 0 shorter than a span would leave gaps in every row.
            if plan.shared_bytes <= (target.shared_bytes if dimension else whole.shared_bytes):
                cut.append(plan)
    if not cut:
        return _dealt(whole, count)
    return min(cut, key=lambda plan: (plan.shared_bytes, len(plan.loads)))


def _dealt(plan: BoxPlan, count: int) -> BoxPlan:
    """A plan with its loads dealt out, the largest first, each to the block that has the least."""
    loads, fetched = list(plan.loads), [0] * count
    for i in sorted(range(len(loads)), key=lambda i: -loads[i].bytes):
        cta = fetched.index(min(fetched))
        fetched[cta] += loads[i].bytes
        loads[i] = replace(loads[i], cta=cta)
    return replace(plan, loads=tuple(loads), ctas=count)


def _half(tiling: Tiling) -> tuple[int, ...]:
    """The first block's half of a tile; the other's brings as many elements, be it some shorter."""
    tile, dimension = tiling.tile, _outermost(tiling.tile)
    step = tiling.quanta[dimension]
    count = -(-tile[dimension] // step)
    if count % 2:
        steps = f" in steps of {step}" if step > 1 else ""
        raise DescriptorError(
            f"a pair of blocks halves the tile's outermost dimension, and tile[{dimension}] = {tile[dimension]}{steps} "
            f"has an odd number of parts, {count}"
        )
    return tuple(count // 2 * step if i == dimension else extent for i, extent in enumerate(tile))


def _outermost(tile: tuple[int, ...]) -> int:
    return max((i for i, extent in enumerate(tile) if extent > 1), default=0)


def _paired(plan: BoxPlan, tile: tuple[int, ...], half: tuple[int, ...]) -> BoxPlan:
    """The plan of one half carried out by both blocks, each in its own shared memory."""
    dimension = _outermost(tile)
    shift = [axis.coordinate(half[dimension]) if axis.source == dimension else 0 for axis in plan.view]
    other = tuple(
        replace(load, cta=1, coordinates=tuple(c + s for c, s in zip(load.coordinates, shift, strict=True)))
        for load in plan.loads
    )
    return replace(
        plan, loads=plan.loads + other, tile=tile, ctas=2, transaction_bytes=2 * plan.transaction_bytes
    )
