"""A pipeline kernel's schedule as a program for the simulator: the same tiles, stages, barriers and bytes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from cupytma.errors import ArrayError, PipelineError
from cupytma.limits import MAX_GRID
from cupytma.ops.simulated_copy import span_of
from cupytma.pipeline.declarations import Declared, ElementType
from cupytma.pipeline.layout import broadcast_shape, result_shape
from cupytma.pipeline.plan import OUTPUT_STAGES, PipelinePlan
from cupytma.runtime.given import shown
from cupytma.sim.program import Operation, Program, ProgramArray, Thread
from cupytma.sim.program.errors import check_range
from cupytma.targets import DEFAULT_TARGET
from cupytma.targets import target as target_of
from cupytma.tensormap.arrays import view_of
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.pipeline.kernel import PipelineKernel

Body = Generator[Operation, Any, None]
Array = Any
# The consumer's warps, as threads of the model.
_CONSUMERS = 2
_BARRIER = 1


def pipeline_program(
    kernel: PipelineKernel, inputs: Sequence[Any], out: Sequence[Any] | None, scalars: Mapping[str, Any],
    reference: Callable[..., Any], blocks: int,
) -> Program:
    """Make the program; as `PipelineKernel.program`."""
    declaration = kernel.declaration
    check_range("blocks", blocks, 1, MAX_GRID[0])
    if not callable(reference):
        raise PipelineError("reference is no function; it does with numpy tiles what the consumer's code does")
    for found in declaration.accumulators:
        if not found.combination.ufunc:
            raise PipelineError(
                f"{found.name} is combined by a C++ expression, which has no equal in numpy; use one of the names that "
                "reduce= knows"
            )
    views = [view_of(array) for array in inputs]
    if out is None:
        shape = broadcast_shape(declaration.inputs, views)
        out = [
            np.zeros(result_shape(declaration, shape, position), numpy_type(declared.type.name))
            for position, declared in enumerate(declaration.results)
        ]
    results = [view_of(array) for array in out]
    for declared, view in zip((*declaration.inputs, *declaration.results), (*views, *results), strict=True):
        if view.device is not None:
            raise ArrayError(f"{declared.name} is on a GPU; a program takes numpy arrays")
    plan = kernel.plan_views(views, results, target_of(DEFAULT_TARGET)).for_blocks(blocks)
    return _Model(plan, [*inputs, *out], [scalars[s.name] for s in declaration.scalars], reference, blocks).program


def numpy_type(name: str) -> np.dtype[Any]:
    """numpy's type for a dtype, also those that ml_dtypes has."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found


@dataclass(frozen=True)
class _Tile:
    """One tile: its first element, driver order, and its place in its run."""

    start: tuple[int, ...]
    begins_run: bool
    ends_run: bool
    part: int


class _Model:
    def __init__(
        self, plan: PipelinePlan, arrays: Sequence[Any], scalars: Sequence[Any], reference: Callable[..., Any],
        blocks: int,
    ) -> None:
        self.plan = plan
        self.declaration = plan.declaration
        self.scalars = scalars
        self.reference = reference
        self.box = plan.variant.box
        self.inner, self.rows = self.box[0], prod(self.box[1:])
        self.grid = min(blocks, plan.runs)
        self.program = Program(self.declaration.name, blocks=self.grid)
        self.memory = self._declare_memory(arrays)
        self._declare_shared()
        self._coordinates = self._all_coordinates()
        self.program.role(self._consumer, name="consumer", threads=_CONSUMERS)
        if self.stages:
            self.program.role(self._producer, name="producer")
        self._declare_partial()

    # Memory.

    def _declare_memory(self, arrays: Sequence[Any]) -> list[tuple[ProgramArray, int]]:
        """The memory of every array with the place of its first element there; arrays that overlap share theirs."""
        declared = (*self.declaration.inputs, *self.declaration.results)
        spans = [span_of(array) for array in arrays]
        order = sorted(range(len(spans)), key=lambda number: spans[number][1])
        groups: list[list[int]] = []
        end = 0
        for number in order:
            held, low = spans[number]
            if groups and low < end:
                groups[-1].append(number)
            else:
                groups.append([number])
            end = max(end, low + held.size)
        found: dict[int, tuple[ProgramArray, int]] = {}
        for group in groups:
            low = spans[group[0]][1]
            whole = np.zeros(max(spans[n][1] + spans[n][0].size for n in group) - low, np.uint8)
            for n in group:
                held, address = spans[n]
                whole[address - low : address - low + held.size] = held
            memory = self.program.global_array(declared[min(group)].name, whole, address=low)
            found |= {n: (memory, view_of(arrays[n]).address + self.plan.layout.offsets[n] - low) for n in group}
        return [found[number] for number in range(len(spans))]

    def _declare_shared(self) -> None:
        variant, inputs, elements = self.plan.variant, self.declaration.inputs, prod(self.box)
        mapped = [n for n, way in enumerate(variant.ways[: len(inputs)]) if way.mapped]
        self.stages = variant.stages if mapped else 0
        shared = self.program.shared_array
        self.ring = [
            {n: shared(f"stage[{s}].{inputs[n].name}", elements * inputs[n].type.itemsize) for n in mapped}
            for s in range(self.stages)
        ]
        self.copied = {
            n: shared(f"tile of {entry.name}", elements * entry.type.itemsize)
            for n, entry in enumerate(inputs)
            if n not in mapped
        }
        self.outputs = [
            [shared(f"outputs[{s}].{d.name}", elements * d.type.itemsize) for d in self.declaration.outputs]
            for s in range(OUTPUT_STAGES)
        ]
        self.full = self.program.mbarriers("full", self.stages)
        self.empty = self.program.mbarriers("empty", self.stages)

    def _declare_partial(self) -> None:
        found, plan = self.declaration.accumulators, self.plan
        parts = plan.parts_of(self.grid)
        self.partial: list[ProgramArray] = []
        if not found:
            return
        kinds = [_value_type(each.type) for each in found]
        if not self.plan.variant.by_row:
            self.exchanged = [
                self.program.shared_array(f"exchanged {each.name}", _CONSUMERS, kind)
                for each, kind in zip(found, kinds, strict=True)
            ]
        if parts > 1:
            self.partial = [
                self.program.global_array(f"partial {each.name}", np.zeros((parts, plan.rows), kind))
                for each, kind in zip(found, kinds, strict=True)
            ]
            self.program.role(self._combiner, name="combiner", blocks=[0], kernel=1)

    # Tiles.

    def _all_coordinates(self) -> Any:
        """Coordinates of every element of a tile from its start, driver order, a column each."""
        return np.indices(self.box[::-1]).reshape(len(self.box), -1)[::-1]

    def _tiles(self, block: int) -> Iterator[_Tile]:
        plan = self.plan
        for number in range(block, plan.runs, self.grid):
            outer, part = divmod(number, plan.parts)
            start = [0] * len(self.box)
            for dimension in range(1, len(self.box)):
                outer, position = divmod(outer, plan.counts[dimension])
                start[dimension] = position * self.box[dimension]
            length = min(plan.run, plan.counts[0] - part * plan.run)
            for position in range(length):
                start[0] = (part * plan.run + position) * self.inner
                yield _Tile(tuple(start), position == 0, position + 1 == length, part)

    def _boxes(self, tile: _Tile, position: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Of one array: where each instruction's box begins in the tensor, and in the tile, in elements."""
        way = self.plan.variant.ways[position]
        steps = [0] if way.inner == self.inner else range(0, prod(self.box), way.inner)
        for element in steps:
            at = [start + int(step) for start, step in zip(tile.start, self._coordinates[:, element], strict=True)]
            yield (at[0] // way.pack, *at[1:]), element

    def _inside(self, tile: _Tile, part: slice) -> tuple[Any, Any]:
        """Coordinates of some elements of a tile, and which of them are the arrays'."""
        at = self._coordinates[:, part] + np.array(tile.start)[:, None]
        return at, (at < np.array(self.plan.layout.extents)[:, None]).all(axis=0)

    def _places(self, number: int, at: Any, itemsize: int) -> Any:
        """Bytes of elements of an array in its memory, a row for each element."""
        strides = np.array([dim.strides[number] for dim in self.plan.layout.dimensions])
        first = self.memory[number][1] + strides @ at
        return first[:, None] + np.arange(itemsize)

    # Roles.

    def _producer(self, t: Thread) -> Body:
        yield t.syncthreads().named("init barrier")
        for index, tile in enumerate(self._tiles(t.block)):
            turn, stage = divmod(index, self.stages)
            yield t.mbarrier_wait_parity(self.empty[stage], (turn + 1) % 2).named("wait for an empty stage")
            yield t.mbarrier_arrive_expect_tx(self.full[stage], self.plan.loaded_bytes).named("announce")
            for number, place in self.ring[stage].items():
                itemsize = self.declaration.inputs[number].type.itemsize
                for at, element in self._boxes(tile, number):
                    tensor_map = self.plan.maps[number]
                    assert tensor_map is not None
                    yield t.tensor_load(place[element * itemsize :], tensor_map, at, self.full[stage])

    def _consumer(self, t: Thread) -> Body:
        if self.stages:
            if t.index == 0:
                for stage in range(self.stages):
                    yield t.mbarrier_init(self.full[stage], 1)
                    yield t.mbarrier_init(self.empty[stage], _CONSUMERS)
                yield t.fence_mbarrier_init().named("init fence")
            yield t.syncthreads().named("init barrier")
        part = self._share(t.index)
        found: list[Any] = []
        for index, tile in enumerate(self._tiles(t.block)):
            if not found or (self.plan.variant.by_row and tile.begins_run):
                found = self._fresh()
            tiles: dict[int, Any] = {}
            if self.stages:
                turn, stage = divmod(index, self.stages)
                yield t.mbarrier_wait_parity(self.full[stage], turn % 2).named("wait for a full stage")
            yield from self._copy_in(t, tile)
            places = {**(self.ring[index % self.stages] if self.stages else {}), **self.copied}
            for number, declared in enumerate(self.declaration.inputs):
                size = declared.type.itemsize
                if part.start < part.stop:
                    held = yield t.read_shared(places[number][part.start * size : part.stop * size])
                    tiles[number] = held.view(numpy_type(declared.type.name))
            made = self._consumed(tiles, tile, part, found) if tiles else []
            outputs = self.outputs[index % OUTPUT_STAGES]
            for place, values in zip(outputs, made, strict=False):
                size = values.dtype.itemsize
                yield t.write_shared(place[part.start * size : part.stop * size], values.view(np.uint8))
            if self.stages:
                yield t.mbarrier_arrive(self.empty[index % self.stages]).named("release the stage")
            if outputs:
                yield from self._store(t, tile, outputs)
            if self.plan.variant.by_row and tile.ends_run:
                yield from self._deliver_rows(t, tile, part, found)
        if self.declaration.outputs and t.index == 0:
            yield t.bulk_wait_group(0).named("wait for the stores")
        if self.declaration.accumulators and not self.plan.variant.by_row:
            yield from self._deliver_all(t, found or self._fresh())

    def _share(self, index: int) -> slice:
        """The elements of a tile that a thread has: whole rows where rows matter."""
        elements = prod(self.box)
        if self.declaration.each == "tile" or (self.rows == 1 and self._by_rows):
            return slice(0, elements if index == 0 else 0)
        middle = self.rows // 2 * self.inner if self.rows > 1 else elements // 2
        return slice(0, middle) if index == 0 else slice(middle, elements)

    @property
    def _by_rows(self) -> bool:
        return self.declaration.each == "row" or self.plan.variant.by_row

    def _copy_in(self, t: Thread, tile: _Tile) -> Body:
        if not self.copied:
            return
        half = prod(self.box) // 2
        part = slice(0, half) if t.index == 0 else slice(half, prod(self.box))
        yield t.barrier_sync(_BARRIER, _CONSUMERS).named("tile has been read")
        for number, place in self.copied.items():
            size = self.declaration.inputs[number].type.itemsize
            at, inside = self._inside(tile, part)
            values = np.zeros((at.shape[1], size), np.uint8)
            if inside.any():
                places = self._places(number, at[:, inside], size)
                values[inside] = yield t.read_global(self.memory[number][0][places])
            yield t.write_shared(place[part.start * size : part.stop * size], values.reshape(-1))
        yield t.barrier_sync(_BARRIER, _CONSUMERS).named("tile has come")

    def _store(self, t: Thread, tile: _Tile, outputs: Sequence[ProgramArray]) -> Body:
        yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
        if t.index == 0:
            yield t.bulk_wait_group(OUTPUT_STAGES - 2, read=True).named("wait for the output stage")
        yield t.barrier_sync(_BARRIER, _CONSUMERS).named("outputs' barrier")
        first = len(self.declaration.inputs)
        if t.index == 0:
            for number, (declared, place) in enumerate(zip(self.declaration.outputs, outputs, strict=True), first):
                tensor_map = self.plan.maps[number]
                if tensor_map is not None:
                    for at, element in self._boxes(tile, number):
                        yield t.tensor_store(tensor_map, at, place[element * declared.type.itemsize :])
            yield t.bulk_commit_group().named("commit")
        for number, place in enumerate(outputs):
            if self.plan.variant.ways[first + number].ordinary:
                yield from self._copy_out(t, tile, number, place)

    def _copy_out(self, t: Thread, tile: _Tile, output: int, place: ProgramArray) -> Body:
        size, number = self.declaration.outputs[output].type.itemsize, len(self.declaration.inputs) + output
        at, inside = self._inside(tile, slice(None))
        chosen = np.flatnonzero(inside & (at[0] >= self.plan.stored[output]))[t.index :: _CONSUMERS]
        if chosen.size:
            values = yield t.read_shared(place[chosen[:, None] * size + np.arange(size)])
            yield t.write_global(self.memory[number][0][self._places(number, at[:, chosen], size)], values)

    # What is done with tiles.

    def _fresh(self) -> list[Any]:
        """For each accumulator nothing yet, for each row of a tile or for all."""
        return [[None] * self.rows for _ in self.declaration.accumulators]

    def _consumed(self, tiles: Mapping[int, Any], tile: _Tile, part: slice, found: list[Any]) -> list[Any]:
        """The outputs' elements of a part of a tile; what is reduced is added to what was found."""
        length = self.plan.layout.extents[0]
        shape: tuple[int, ...] = (part.stop - part.start,)
        if self._by_rows:
            shape = (-1, self.inner)
        elif self.declaration.each == "tile":
            shape = self.box[::-1]
        given = [tiles[number].reshape(shape) for number in range(len(tiles))]
        if self.declaration.each == "row":
            given = [values[:, :length] for values in given]
        with np.errstate(all="ignore"):
            made = self.reference(*given, *self.scalars)
            made = list(made) if isinstance(made, (tuple, list)) else [made]
            if len(made) != len(self.declaration.results):
                raise PipelineError(
                    f"reference returned {counted(len(made), 'array')}; the results are "
                    f"{', '.join(map(str, self.declaration.results))}"
                )
            _, inside = self._inside(tile, part)
            count = len(self.declaration.outputs)
            for held, values, entry in zip(found, made[count:], self.declaration.accumulators, strict=True):
                ufunc = getattr(np, entry.combination.ufunc)
                values = _numbers(values, entry.declared).astype(_value_type(entry.type)).reshape(given[0].shape)
                _gather(held, values, inside.reshape(shape), part.start // self.inner, ufunc, self._by_rows)
        return [
            self._padded(_numbers(values, declared), declared.type, given[0].shape, part)
            for values, declared in zip(made[:count], self.declaration.outputs, strict=True)
        ]

    def _padded(self, values: Any, kind: ElementType, shape: tuple[int, ...], part: slice) -> Any:
        """An output's elements as they lie in shared memory."""
        values = np.broadcast_to(values, shape).astype(numpy_type(kind.name))
        if self.declaration.each == "row":
            whole = np.zeros((shape[0], self.inner), values.dtype)
            whole[:, : shape[1]] = values
            values = whole
        return np.ascontiguousarray(values).reshape(part.stop - part.start)

    def _deliver_rows(self, t: Thread, tile: _Tile, part: slice, found: list[Any]) -> Body:
        if part.start == part.stop:
            return
        for row in range(part.start // self.inner, part.stop // self.inner):
            at, inside = self._inside(tile, slice(row * self.inner, row * self.inner + 1))
            if inside.all():
                number = 0
                for dimension in reversed(range(1, len(self.box))):
                    number = number * self.plan.layout.extents[dimension] + int(at[dimension, 0])
                yield from self._deliver(t, [held[row] for held in found], tile.part, number, at)

    def _deliver_all(self, t: Thread, found: list[Any]) -> Body:
        for place, held, entry in zip(self.exchanged, found, self.declaration.accumulators, strict=True):
            value = held[0] if held[0] is not None else _identity(entry.combination.ufunc, _value_type(entry.type))
            yield t.write_shared(place[t.index], value)
        yield t.barrier_sync(_BARRIER, _CONSUMERS).named("accumulators' barrier")
        if t.index == 0:
            values = []
            for place, entry in zip(self.exchanged, self.declaration.accumulators, strict=True):
                both = yield t.read_shared(place)
                values.append(getattr(np, entry.combination.ufunc).reduce(both))
            yield from self._deliver(t, values, t.block, 0, np.zeros((len(self.box), 1), int))

    def _deliver(self, t: Thread, values: Sequence[Any], part: int, row: int, at: Any) -> Body:
        """Results of one row, or what is left of it for the second kernel."""
        first = len(self.declaration.inputs) + len(self.declaration.outputs)
        for number, (value, entry) in enumerate(zip(values, self.declaration.accumulators, strict=True)):
            if self.partial:
                yield t.write_global(self.partial[number][part, row], value)
            else:
                kind = numpy_type(entry.type.name)
                places = self._places(first + number, at, kind.itemsize)
                bytes_ = np.array([value], kind).view(np.uint8)
                yield t.write_global(self.memory[first + number][0][places[0]], bytes_)

    def _combiner(self, t: Thread) -> Body:
        """The second kernel, whose warps do this for a row each."""
        held = []
        for place in self.partial:
            held.append((yield t.read_global(place)))
        first = len(self.declaration.inputs) + len(self.declaration.outputs)
        for row in range(self.plan.rows):
            at, rest = np.zeros((len(self.box), 1), int), row
            for dimension in range(1, len(self.box)):
                rest, at[dimension, 0] = divmod(rest, self.plan.layout.extents[dimension])
            for number, (values, entry) in enumerate(zip(held, self.declaration.accumulators, strict=True)):
                kind = numpy_type(entry.type.name)
                total = np.array([getattr(np, entry.combination.ufunc).reduce(values[:, row])], kind)
                places = self._places(first + number, at, kind.itemsize)
                yield t.write_global(self.memory[first + number][0][places[0]], total.view(np.uint8))


def _value_type(kind: ElementType) -> np.dtype[Any]:
    """The type that values of an accumulator have."""
    return np.dtype("f4") if kind.is_narrow else np.dtype(kind.name)


def _gather(held: list[Any], values: Any, inside: Any, first: int, ufunc: Any, by_rows: bool) -> None:
    """Combine values with those found before: for each row, or all in one."""
    groups = enumerate(zip(values, inside, strict=True), first) if by_rows else [(0, (values, inside))]
    for row, (some, valid) in groups:
        if valid.any():
            combined = ufunc.reduce(some[valid])
            held[row] = combined if held[row] is None else ufunc(held[row], combined)


def _identity(ufunc: str, kind: np.dtype[Any]) -> Any:
    """The value that changes nothing."""
    if ufunc not in ("minimum", "maximum"):
        return np.array(getattr(np, ufunc).identity).astype(kind)[()]
    low: Any
    high: Any
    if kind.kind == "b":
        low, high = False, True
    elif kind.kind == "f":
        low, high = -np.inf, np.inf
    else:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return kind.type(high if ufunc == "minimum" else low)


def _numbers(values: Any, declared: Declared) -> Any:
    """What the reference returned for a result."""
    found = np.asarray(values)
    if found.dtype.kind in "OcSUmM":
        raise PipelineError(f"reference returned {shown(values)} for {declared}, which is no array of real numbers")
    return found
