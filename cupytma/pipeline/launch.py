"""Pipeline kernels on the GPU: prepared once for each layout of arrays, launched with the addresses of the moment."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.limits import TILE_ALIGNMENT, UNIT, WARP_THREADS
from cupytma.ops.prepared import Memory as PreparedMemory
from cupytma.ops.prepared import span_bytes
from cupytma.ops.short_way import ShortWay, learn, short_ways
from cupytma.pipeline.declarations import Declared
from cupytma.pipeline.layout import broadcast_shape, check_arrays, result_shape
from cupytma.pipeline.plan import PipelinePlan
from cupytma.pipeline.source import partial_bytes
from cupytma.runtime.captures import allocate
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.kernel import Kernel, current_device
from cupytma.runtime.occupancy import multiprocessors
from cupytma.runtime.plan import Template
from cupytma.runtime.streams import cupy_stream, current_stream, wait_for
from cupytma.tensormap.arrays import ArrayView, view_of

if TYPE_CHECKING:
    from cupytma.pipeline.kernel import PipelineKernel

_COMBINING_BLOCKS = 4  # of one multiprocessor
# Where a launch is planned: arrays lie far from one another, and their last bits decide what is planned.
_BASE = 1 << 44


@dataclass(frozen=True)
class Launches:
    """The launches for arrays of a layout.

    Attributes
    ----------
    templates : tuple of Template
        Given the arrays' addresses, the scalars' bits, and the address of the partial results.
    partial : int
        Bytes of what blocks leave for the second launch; 0 where there is none.
    spans : tuple of tuple of int
        How far each array reaches below and above its address, in bytes.
    """

    templates: tuple[Template, ...]
    partial: int
    spans: tuple[tuple[int, int], ...]


class Memory(PreparedMemory[Launches]):
    """Launches by what they depend on; the oldest go when there are many."""

    most = 256


def run(kernel: PipelineKernel, inputs: list[Any], out: list[Any] | None, bits: tuple[int, ...], stream: Any) -> Any:
    """Launch a kernel; as `PipelineKernel.__call__`.

    Arrays of CuPy and torch that are like those of an earlier call take the short way.
    """
    if stream is None and out is not None and _run_quickly(kernel, (*inputs, *out), bits):
        return out[0] if len(out) == 1 else tuple(out)
    module = cupy()
    declaration = kernel.declaration
    views = [view_of(array) for array in inputs]
    device = _device(declaration.inputs, views)
    with module.cuda.Device(device):
        chosen = current_stream(*inputs, *(out or ())) if stream is None else cupy_stream(stream)
        if out is None:
            shape = broadcast_shape(declaration.inputs, views)
            out = [
                _new(declared, result_shape(declaration, shape, position), inputs, device, chosen)
                for position, declared in enumerate(declaration.results)
            ]
        results = [view_of(array) for array in out]
        if _device(declaration.results, results) != device:
            raise ArrayError(f"the inputs are on device {device} and the results are not; move one of them first")
        for view in (*views, *results):
            wait_for(view.stream, chosen)
        launches = _launch(kernel, views, results, bits, chosen)
    if launches is not None and not launches.partial:
        for array in (*inputs, *out):
            learn(array.__class__)
        if (found := _quick_key((*inputs, *out))) is not None:
            kernel.quick.keep(found[0], launches)
    return out[0] if len(out) == 1 else tuple(out)


def _launch(
    kernel: PipelineKernel, inputs: Sequence[ArrayView], results: Sequence[ArrayView], bits: tuple[int, ...],
    stream: Any,
) -> Launches | None:
    if not prod(broadcast_shape(kernel.declaration.inputs, inputs)):
        check_arrays(kernel.declaration, inputs, results)
        if kernel.declaration.accumulators and any(view.size for view in results):
            raise ArrayError("the arrays are empty, and there is nothing to reduce")
        return None
    views = (*inputs, *results)
    key = tuple(replace(view, address=view.address % UNIT, stream=None) for view in views)
    launches = kernel.prepared.get(key)
    if launches is None:
        launches = _prepared(kernel, inputs, results)
        kernel.prepared.keep(key, launches)
    addresses = [view.address for view in views]
    if 0 in addresses or _touch(launches.spans, addresses, len(inputs)):
        check_arrays(kernel.declaration, inputs, results)
    # Memory that the stream's later work may take over.
    memory = allocate(launches.partial, stream.ptr) if launches.partial else None
    partial = 0 if memory is None else memory.ptr
    for template in launches.templates:
        template(stream.ptr, *addresses, *bits, partial)
    return launches


def _quick_key(arrays: Sequence[Any]) -> tuple[Any, list[int], ShortWay, int] | None:
    """What tells the layouts of arrays of one known type, their addresses, the short way to them, and their device."""
    kind = arrays[0].__class__
    way = short_ways.get(kind)
    if way is None or any(array.__class__ is not kind for array in arrays):
        return None
    try:
        described = list(map(way.read, arrays))
    except TypeError:  # host memory: the long way says so
        return None
    key = tuple([(start % UNIT, *others) for start, *others in described])
    return key, [start for start, *_ in described], way, described[0][1]


def _run_quickly(kernel: PipelineKernel, arrays: Sequence[Any], bits: tuple[int, ...]) -> bool:
    """Launch for arrays of layouts that were seen before, if nothing about them has to be checked."""
    found = _quick_key(arrays)
    if found is None:
        return False
    key, addresses, way, place = found
    launches = kernel.quick.get(key)
    if launches is None or place != current_device():
        return False
    if 0 in addresses or _touch(launches.spans, addresses, len(kernel.declaration.inputs)):
        return False
    handle = way.handle(place)
    for template in launches.templates:
        template(handle, *addresses, *bits, 0)
    return True


def _touch(spans: Sequence[tuple[int, int]], addresses: Sequence[int], inputs: int) -> bool:
    """Whether a result's reach meets that of another array."""
    reaches = [(start + low, start + high) for start, (low, high) in zip(addresses, spans, strict=True)]
    return any(
        reaches[number][0] < high and low < reaches[number][1]
        for number in range(inputs, len(reaches))
        for low, high in reaches[:number]
    )


def _device(declared: Sequence[Declared], views: Sequence[ArrayView]) -> int:
    for entry, view in zip(declared, views, strict=True):
        if view.device is None:
            raise ArrayError(
                f"{entry.name} is in host memory, and the Tensor Memory Accelerator reaches device memory only: move "
                "it with cupy.asarray, or use PipelineKernel.program, which works on numpy arrays"
            )
    devices = {view.device for view in views}
    if len(devices) > 1:
        raise ArrayError(f"the arrays are on devices {', '.join(map(str, sorted(map(int, filter(None, devices)))))}")
    return int(views[0].device or 0)


def _new(declared: Declared, shape: tuple[int, ...], like: Sequence[Any], device: int, stream: Any) -> Any:
    """A new array of the inputs' kind, allocated on the stream that will write it."""
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(array, torch.Tensor) for array in like):
        place = f"cuda:{device}"
        kind = getattr(torch, declared.type.name)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr, place)):
            return torch.empty(shape, dtype=kind, device=place)
    try:
        import ml_dtypes  # noqa: F401 - numpy then knows the names of its types

        with stream:
            return cupy().empty(shape, np.dtype(declared.type.name))
    except (TypeError, ValueError):
        raise ArrayError(f"CuPy has no {declared.type.name}: give out=, or torch tensors") from None


def _prepared(kernel: PipelineKernel, inputs: Sequence[ArrayView], results: Sequence[ArrayView]) -> Launches:
    """What is launched for all arrays of a layout, on the current device."""
    target = current_target()
    check_arrays(kernel.declaration, inputs, results)
    views = [replace(view, address=_BASE * (n + 1) + view.address % UNIT) for n, view in enumerate((*inputs, *results))]
    plan = kernel.plan_views(views[: len(inputs)], views[len(inputs) :], target)
    module = kernel.module(plan, target)
    main = module.kernel(kernel.declaration.name)
    block, shared_bytes = plan.variant.threads + WARP_THREADS, plan.variant.shared_bytes + TILE_ALIGNMENT
    resident = main.persistent_grid(block, shared_bytes)
    plan = plan.for_blocks(resident)
    grid = min(resident, plan.runs)
    templates = [_main(main, plan, views, grid, block, shared_bytes)]
    parts = plan.parts_of(grid)
    if parts > 1:
        combining = module.kernel(f"{kernel.declaration.name}_combine")
        templates.append(_combining(combining, plan, views, parts))
    partial = parts * plan.rows * partial_bytes(plan.declaration.accumulators) if parts > 1 else 0
    return Launches(tuple(templates), partial, tuple(span_bytes(view) for view in views))


def _main(
    kernel: Kernel, plan: PipelinePlan, views: Sequence[ArrayView], grid: int, block: int, shared_bytes: int
) -> Template:
    arguments: list[Any] = []
    whose: list[tuple[int, int]] = []  # which argument is which array's
    ways = plan.variant.ways
    for position, found in enumerate(plan.maps):
        if found is not None:
            whose.append((len(arguments), position))
            arguments.append(found)
    arguments.append(tiling_argument(plan))
    strided = [position for position, way in enumerate(ways) if way.ordinary]
    for position in (*strided, *range(len(ways), len(views))):
        whose.append((len(arguments), position))
        arguments.append(_strided_argument(plan, position))
    scalars = len(arguments)
    arguments += _scalars_argument(plan)
    arguments += [_BASE] if plan.declaration.accumulators else []
    launch = kernel.plan(grid, block, arguments, shared_bytes=shared_bytes)
    return launch.template(_places(kernel, plan, views, whose, scalars, len(arguments) - 1))


def _combining(kernel: Kernel, plan: PipelinePlan, views: Sequence[ArrayView], parts: int) -> Template:
    first = len(plan.variant.ways)
    whose = [(1 + number, position) for number, position in enumerate(range(first, len(views)))]
    arguments = [tiling_argument(plan), *(_strided_argument(plan, position) for _, position in whose)]
    scalars = len(arguments)
    arguments += [*_scalars_argument(plan), _BASE, parts, plan.rows]
    warps = plan.variant.threads // WARP_THREADS
    grid = min(-(-plan.rows // warps), _COMBINING_BLOCKS * multiprocessors())
    launch = kernel.plan(grid, plan.variant.threads, arguments)
    return launch.template(_places(kernel, plan, views, whose, scalars, len(arguments) - 3))


def _places(
    kernel: Kernel, plan: PipelinePlan, views: Sequence[ArrayView], whose: Sequence[tuple[int, int]], scalars: int,
    partial: int,
) -> list[tuple[int, int, int]]:
    """Where in the parameters the addresses, the scalars and the address of the partial results are.

    The first word of a tensor map and of what ordinary loads and stores are told is an address.
    """
    parameters = kernel.signature.parameters
    places = [(parameters[number].offset, which, plan.layout.offsets[which]) for number, which in whose]
    count = len(plan.declaration.scalars)
    places += [(parameters[scalars].offset + 8 * i, len(views) + i, 0) for i in range(count)]
    if plan.declaration.accumulators:
        places.append((parameters[partial].offset, len(views) + count, 0))
    return places


def tiling_argument(plan: PipelinePlan) -> Any:
    """What kernels are told of tiles."""
    rank = plan.variant.rank
    kind = np.dtype(
        [("extent", "i4", (rank,)), ("count", "u4", (rank,)), ("run", "u4"), ("parts", "u4"), ("runs", "u4")]
    )
    argument = np.zeros((), kind)
    argument["extent"], argument["count"] = plan.layout.extents, plan.counts
    argument["run"], argument["parts"], argument["runs"] = plan.run, plan.parts, plan.runs
    return argument[()]


def _strided_argument(plan: PipelinePlan, position: int) -> Any:
    argument = np.zeros((), np.dtype([("data", "u8"), ("stride", "i8", (plan.variant.rank,)), ("stored", "i8")]))
    argument["stride"] = [dim.strides[position] for dim in plan.layout.dimensions]
    output = position - len(plan.declaration.inputs)
    if 0 <= output < len(plan.stored):
        argument["stored"] = plan.stored[output]
    return argument[()]


def _scalars_argument(plan: PipelinePlan) -> list[Any]:
    count = len(plan.declaration.scalars)
    return [np.zeros((), np.dtype([("words", "u8", (count,))]))[()]] if count else []
