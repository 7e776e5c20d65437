"""How a pipeline kernel works on given arrays: the tiles, the way each array goes, the stages, the bytes.

Knows nothing of the GPU: the same plan is carried out by the kernel and by the simulator.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from cupytma.errors import ArrayError, DescriptorError, PipelineError
from cupytma.limits import RESERVED_SHARED_BYTES, TILE_ALIGNMENT, UNIT, WARP_THREADS
from cupytma.pipeline.declarations import Declaration, Declared
from cupytma.pipeline.layout import Layout, check_rank, common_layout
from cupytma.pipeline.tiles import Pieces, Shaping, choose_box, given_box
from cupytma.targets import Target
from cupytma.tensormap.arrays import ArrayView
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

OUTPUT_STAGES = 2
MAX_STAGES = 64
_USUAL_STAGES = 8
_OTHER_BYTES = 1024  # of each block, for barriers and what is combined
_WORDS = {8: DataType.UINT64, 4: DataType.UINT32, 2: DataType.UINT16, 1: DataType.UINT8}
_SMALLEST_BOX = (1,) * 4
_MOST = 2**31 - 1  # a tile's number, and the coordinates of its elements


@dataclass(frozen=True)
class Options:
    """What a caller may choose.

    Attributes
    ----------
    box : tuple of int or None
        Array order; None for one that fits the arrays.
    stages : int or None
        None for as many as there is room for, up to 8.
    threads : int
        Of the consumer.
    blocks : int
        Of one multiprocessor.
    tile_bytes : int
        About how many bytes a tile of the array with the largest elements has, where `box` is None.
    """

    box: tuple[int, ...] | None = None
    stages: int | None = None
    threads: int = 256
    blocks: int = 2
    tile_bytes: int = 8192


@dataclass(frozen=True)
class Way:
    """How one array's tiles come to shared memory, or leave it.

    Attributes
    ----------
    mapped : bool
        Through a tensor map.
    inner : int
        Elements along dimension 0 that one instruction moves.
    pack : int
        Elements that are one of the tensor map's.
    ordinary : bool
        Whether ordinary loads or stores move anything: all, or of a mapped output the ends of rows.
    """

    mapped: bool
    inner: int
    pack: int
    ordinary: bool


@dataclass(frozen=True)
class Variant:
    """All that the source of a kernel depends on, beside the declaration.

    Attributes
    ----------
    box : tuple of int
        Elements of a tile, driver order.
    ways : tuple of Way
        Of the inputs and outputs.
    stages, threads, blocks : int
    group : int
        Threads that work on a row together, where `each` is ``"row"``.
    by_row : bool
        Whether each warp has rows of its own, which it reduces. What has one row only is reduced by all.
    shared_bytes : int
        Of the tiles.
    """

    box: tuple[int, ...]
    ways: tuple[Way, ...]
    stages: int
    threads: int
    blocks: int
    group: int
    by_row: bool
    shared_bytes: int

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.box)


@dataclass(frozen=True)
class PipelinePlan:
    """How a pipeline kernel works on given arrays. Printed, it says so in words.

    Attributes
    ----------
    declaration : Declaration
    layout : Layout
    variant : Variant
    maps : tuple of TensorMap or None
        Of each input and output; None where no tensor map takes it.
    reasons : tuple of str
        Why, for each; empty where one does.
    stored : tuple of int
        Elements of a row of each output that tensor stores write.
    run : int
        Tiles along dimension 0 that a block takes one after the other.
    """

    declaration: Declaration
    layout: Layout
    variant: Variant
    maps: tuple[TensorMap | None, ...]
    reasons: tuple[str, ...]
    stored: tuple[int, ...]
    run: int = 1

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each dimension, driver order."""
        return tuple(-(-extent // box) for extent, box in zip(self.layout.extents, self.variant.box, strict=True))

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return prod(self.counts)

    @property
    def parts(self) -> int:
        """Runs along dimension 0."""
        return -(-self.counts[0] // self.run)

    @property
    def runs(self) -> int:
        """Runs in all: blocks beyond that many have nothing to do."""
        return self.parts * prod(self.counts[1:])

    @property
    def rows(self) -> int:
        """Results of each accumulator."""
        return prod(self.layout.extents[1:]) if self.variant.by_row else 1

    def parts_of(self, grid: int) -> int:
        """What is left to be combined for each result by a grid of so many blocks."""
        if not self.declaration.accumulators:
            return 1
        return self.parts if self.variant.by_row else grid

    @property
    def loaded_bytes(self) -> int:
        """Bytes that are announced for each stage of the ring."""
        variant = self.variant
        ways = zip(self.declaration.inputs, variant.ways, strict=False)
        return sum(declared.type.itemsize * prod(variant.box) for declared, way in ways if way.mapped)

    def for_blocks(self, resident: int) -> PipelinePlan:
        """The plan with rows cut into as many runs as keep so many blocks busy, where rows are combined."""
        if not self.variant.by_row:
            return self
        parts = min(self.counts[0], max(1, resident // prod(self.counts[1:])))
        return replace(self, run=-(-self.counts[0] // parts))

    def _repr_html_(self) -> str:
        from cupytma.view.html import printed

        return printed(self)

    def __str__(self) -> str:
        variant = self.variant
        ring = f"{counted(variant.stages, 'stage')} of {self.loaded_bytes} B, " if self.loaded_bytes else ""
        lines = [
            f"{self.declaration.name}: {counted(self.tiles, 'tile')} of {variant.box[::-1]} elements, {ring}"
            f"{variant.shared_bytes} B of shared memory in a block"
        ]
        for position, (declared, way) in enumerate(zip(self.declaration.arrays, variant.ways, strict=True)):
            moved = "loads" if position < len(self.declaration.inputs) else "stores"
            text = f"tensor {moved}" if way.mapped else f"ordinary {moved}, because {self.reasons[position]}"
            if way.mapped and way.ordinary:
                text += ", and ordinary stores of row ends within a 16-byte unit"
            lines += textwrap.wrap(f"  {declared}: {text}", 110, subsequent_indent="    ")
        return "\n".join(lines)


def plan_pipeline(
    declaration: Declaration,
    inputs: Sequence[ArrayView],
    results: Sequence[ArrayView],
    options: Options,
    target: Target,
) -> PipelinePlan:
    """Plan a pipeline kernel for arrays that `check_arrays` has accepted and that are not empty.

    Raises
    ------
    PipelineError
        If a box does not fit the arrays, or the stages not the shared memory.
    ArrayError
        If the arrays have too many dimensions, or too many tiles.
    """
    layout = common_layout(declaration, inputs, results, as_they_are=options.box is not None)
    views = [*inputs, *results][: len(declaration.arrays)]
    sources = [_source(layout, position, view) for position, view in enumerate(views)]
    packs = [_pack(declared, source, position >= len(inputs)) for position, (declared, source) in enumerate(
        zip(declaration.arrays, sources, strict=True)
    )]
    reasons = [
        _obstacle(source, declared, pack, position >= len(inputs), target)
        for position, (declared, source, pack) in enumerate(zip(declaration.arrays, sources, packs, strict=True))
    ]
    pieces = [
        Pieces(declared.type.itemsize, None if reason else pack)
        for declared, pack, reason in zip(declaration.arrays, packs, reasons, strict=True)
    ]
    shaping = Shaping(
        layout.extents, tuple(pieces), declaration.each, _by_row(declaration, layout.extents), options.threads
    )
    if options.box is None:
        box = choose_box(shaping, options.tile_bytes)
    else:
        check_rank(layout.shape, options.box)
        box = given_box(shaping, options.box[::-1])
    return _assembled(declaration, layout, sources, packs, reasons, box, shaping.piece(box[0]), options, target)


def _by_row(declaration: Declaration, extents: Sequence[int]) -> bool:
    return declaration.reduces_rows and len(extents) > 1


@dataclass(frozen=True)
class _Source:
    """One array along the common dimensions, driver order."""

    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]


def _source(layout: Layout, position: int, view: ArrayView) -> _Source:
    strides = tuple(dim.strides[position] for dim in layout.dimensions)
    return _Source(view.address + layout.offsets[position], layout.extents, strides)


def _row_bytes(declared: Declared, source: _Source, stored: bool) -> int:
    """Bytes of a row that a tensor map describes: stores round a row's end up to 16 bytes, so none may end within."""
    whole = source.extents[0] * declared.type.itemsize
    return whole // UNIT * UNIT if stored else whole


def _pack(declared: Declared, source: _Source, stored: bool) -> int:
    """Elements in one of the longest words that a row of the tensor map consists of: boxes hold 256 words of a row."""
    row = _row_bytes(declared, source, stored)
    word = next(word for word in _WORDS if row % word == 0 or word == declared.type.itemsize)
    return max(1, word // declared.type.itemsize)


def _obstacle(source: _Source, declared: Declared, pack: int, stored: bool, target: Target) -> str:
    """The rule that keeps an array from tensor maps; empty if there is none."""
    if source.extents[0] > 1 and source.strides[0] != declared.type.itemsize:
        return f"its elements do not lie together along the last dimension (they are {source.strides[0]} B apart)"
    if any(stride < 0 for stride in source.strides[1:]):
        return "a stride is negative, and a tensor map has none"
    if not _row_bytes(declared, source, stored):
        return f"its rows of {source.extents[0] * declared.type.itemsize} B are shorter than the 16 B that stores write"
    word = pack * declared.type.itemsize
    box = (UNIT // word, *_SMALLEST_BOX[: len(source.extents) - 1])
    try:
        violations = _parameters(source, declared, pack, stored, box).violations(target)
    except DescriptorError as error:
        return str(error)
    return "; ".join(violation.message for violation in violations)


def _parameters(source: _Source, declared: Declared, pack: int, stored: bool, box: tuple[int, ...]) -> Tiled:
    word = pack * declared.type.itemsize
    return Tiled(
        data_type=_WORDS[word], global_address=source.address,
        global_dim=(_row_bytes(declared, source, stored) // word, *source.extents[1:]),
        global_strides=source.strides[1:], box_dim=box,
    )


def _assembled(
    declaration: Declaration, layout: Layout, sources: Sequence[_Source], packs: Sequence[int], reasons: Sequence[str],
    box: tuple[int, ...], piece: int, options: Options, target: Target,
) -> PipelinePlan:
    ways, stored = [], []
    for position, (declared, source) in enumerate(zip(declaration.arrays, sources, strict=True)):
        is_output, mapped = position >= len(declaration.inputs), not reasons[position]
        written = _row_bytes(declared, source, is_output) // declared.type.itemsize if mapped else 0
        ends = is_output and written < layout.extents[0]
        ways.append(Way(mapped, piece, packs[position], ends or not mapped))
        if is_output:
            stored.append(written)
    stages, shared_bytes = _stages(declaration, ways, box, options, target)
    maps = tuple(
        _map(declared, source, way, position >= len(declaration.inputs), box, target)
        for position, (declared, source, way) in enumerate(zip(declaration.arrays, sources, ways, strict=True))
    )
    row = box[0] * max(declared.type.itemsize for declared in declaration.arrays)
    warps = options.threads // WARP_THREADS
    alone = declaration.each == "row" and prod(box[1:]) >= warps and row <= 4096
    variant = Variant(
        box, tuple(ways), stages, options.threads, options.blocks, WARP_THREADS if alone else options.threads,
        _by_row(declaration, box), shared_bytes,
    )
    plan = PipelinePlan(declaration, layout, variant, maps, tuple(reasons), tuple(stored))
    _check_counters(plan)
    return plan


def _check_counters(plan: PipelinePlan) -> None:
    """Refuse arrays whose tiles the kernel cannot count, or whose coordinates are no numbers of 32 bits."""
    extent, box = plan.layout.extents[0], plan.variant.box[0]
    if plan.counts[0] * box > _MOST:
        raise ArrayError(
            f"an extent of {extent} is too large for tiles of {box} elements, the last of which ends at "
            f"{plan.counts[0] * box}: coordinates are signed 32-bit numbers; call the kernel for parts of the arrays"
        )
    if plan.tiles > _MOST:
        raise ArrayError(
            f"the arrays are {plan.tiles} tiles of {plan.variant.box[::-1]} elements, and a kernel counts {_MOST} at "
            "most: call it for parts of the arrays, or give larger tiles (tile_bytes, or box)"
        )


def _map(
    declared: Declared, source: _Source, way: Way, stored: bool, box: tuple[int, ...], target: Target
) -> TensorMap | None:
    """One array's tensor map, whose box is the tile or a piece of one of its rows."""
    if not way.mapped:
        return None
    outer = box[1:] if way.inner == box[0] else (1,) * (len(box) - 1)
    return _parameters(source, declared, way.pack, stored, (way.inner // way.pack, *outer)).encode(target)


def tile_bytes(declared: Declared, box: Sequence[int]) -> int:
    """Shared memory of one tile of an array, in bytes."""
    return -(-declared.type.itemsize * prod(box) // TILE_ALIGNMENT) * TILE_ALIGNMENT


def _stages(
    declaration: Declaration, ways: Sequence[Way], box: tuple[int, ...], options: Options, target: Target
) -> tuple[int, int]:
    """Stages of the ring, and the shared memory of all tiles in bytes."""
    inputs = list(zip(declaration.inputs, ways, strict=False))
    stage = sum(tile_bytes(declared, box) for declared, way in inputs if way.mapped)
    fixed = sum(tile_bytes(declared, box) for declared, way in inputs if not way.mapped)
    fixed += OUTPUT_STAGES * sum(tile_bytes(declared, box) for declared in declaration.outputs)
    most = target.shared_bytes - _OTHER_BYTES - TILE_ALIGNMENT
    stages = options.stages
    if stages is None:
        shared = (target.shared_bytes + RESERVED_SHARED_BYTES) // options.blocks
        shared -= RESERVED_SHARED_BYTES + _OTHER_BYTES + TILE_ALIGNMENT
        stages = min(_USUAL_STAGES, (shared - fixed) // stage) if stage else 1
        if stages < 2:
            stages = max(1, min(2, (most - fixed) // stage)) if stage else 1
    total = fixed + stages * stage
    if total > most:
        raise PipelineError(
            f"{counted(stages, 'stage')} of {stage} B and {fixed} B of other tiles are {total} B of shared memory, and "
            f"a block on {target} has {most} B for them: {_smaller(declaration, options)}"
        )
    return stages, total


def _smaller(declaration: Declaration, options: Options) -> str:
    if options.box is not None or options.stages is not None:
        return f"give fewer stages or a smaller box (stages = {options.stages}, box = {options.box})"
    if declaration.each == "row":
        return "a whole row must fit a tile; use shorter rows"
    return "give a smaller tile_bytes"
