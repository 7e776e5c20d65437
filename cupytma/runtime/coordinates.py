"""Where a kernel's copies start, said by its author, so that they can be judged before or after a launch."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cupytma.errors import CupytmaError, LaunchError
from cupytma.runtime.given import shown, truth, whole, wholes

if TYPE_CHECKING:
    from cupytma.runtime.history import LaunchRecord
    from cupytma.sim.grid import GridFault
    from cupytma.tensormap.tensor_map import TensorMap

Place = tuple[int, int]

# Blocks of a grid that are judged at most: those at both ends of each axis, and some between.
_ALL_BLOCKS = 1 << 12
_FIRST_LOOK = 64


@dataclass(frozen=True)
class CoordinateDeclaration:
    """Where the copies through one tensor map start; made by `declare_coordinates`.

    Attributes
    ----------
    place : tuple of int
        The parameter's position, and which map of it.
    function : callable
    takes_arguments : bool
        Whether the function takes the launch's arguments too.
    store : bool
    mode : str or None
    offsets : tuple of int
    shared_offset : int
    """

    place: Place
    function: Callable[..., Any]
    takes_arguments: bool
    store: bool
    mode: str | None
    offsets: tuple[int, ...]
    shared_offset: int


_declared: WeakKeyDictionary[Any, list[CoordinateDeclaration]] = WeakKeyDictionary()


def declare_coordinates(
    kernel: Any,
    parameter: int | tuple[int, int],
    coordinates: Callable[..., Any],
    *,
    store: bool = False,
    mode: str | None = None,
    offsets: Sequence[int] = (),
    shared_offset: int = 0,
) -> None:
    """Say where a kernel's copies through one of its tensor maps start.

    With `cupytma.checks` on, every block of a launch is judged by it before the launch; after a fault,
    `cupytma.explain_fault` judges the last launches. A second declaration for the same parameter, direction and mode
    takes the place of the first.

    Parameters
    ----------
    kernel : Kernel
    parameter : int or tuple of int
        Position of the parameter that is the tensor map, from 0; ``(position, index)`` for a struct of several maps or
        a `DescriptorBuffer`.
    coordinates : callable
        From a block's x, y and z to the start of its copy, in elements, driver order; or to a list of starts where a
        block makes several, or None where it makes none. A fourth parameter is given the launch's arguments, as
        `LaunchRecord.values` reads them.
    store : bool
        Whether the copies are stores or reductions.
    mode, offsets, shared_offset
        As for `cupytma.sim.load`.

    Raises
    ------
    LaunchError
        If the kernel has no such parameter, or `coordinates` cannot be called so.

    Examples
    --------
    >>> tma.declare_coordinates(kernel, 0, lambda x, y, z: (64 * x, 32 * y))
    >>> tma.declare_coordinates(kernel, 1, lambda x, y, z, arguments: (64 * x, arguments[3]), store=True)
    """
    place = _place_of(kernel, parameter)
    if not isinstance(mode, (str, type(None))):
        raise LaunchError(f"mode = {shown(mode)}: the name of a mode is needed, as cupytma.sim.load takes it")
    try:
        if not hasattr(offsets, "__iter__"):
            raise TypeError("offsets are no sequence")
        shift = wholes(offsets)
        declared = CoordinateDeclaration(
            place, coordinates, _takes_arguments(coordinates), truth(store), mode, shift, whole(shared_offset)
        )
        if not all(-(1 << 31) <= number < 1 << 31 for number in (*shift, declared.shared_offset)):
            raise TypeError("a number of more than 32 bits")
    except TypeError as error:
        raise LaunchError(
            f"{error}: offsets = {shown(offsets)} and shared_offset = {shown(shared_offset)} must be whole numbers"
        ) from None
    others = [d for d in declarations(kernel) if (d.place, d.store, d.mode) != (place, declared.store, mode)]
    _declared[kernel] = [*others, declared]


def declarations(kernel: Any) -> tuple[CoordinateDeclaration, ...]:
    """What has been declared of a kernel."""
    try:
        return tuple(_declared.get(kernel, ()))
    except TypeError:  # an object that nobody can have declared anything of
        return ()


def _place_of(kernel: Any, parameter: Any) -> Place:
    try:
        position, index = parameter if isinstance(parameter, tuple) else (parameter, 0)
        position, index = whole(position), whole(index)
    except (TypeError, ValueError):
        raise LaunchError(
            f"parameter = {shown(parameter)}: a position, or a position and an index, are needed"
        ) from None
    known = getattr(getattr(kernel, "signature", None), "parameters", None)
    if known is None:
        raise LaunchError(f"{type(kernel).__name__} is no kernel: pass what `Module.kernel` returns")
    if not 0 <= position < len(known) or index < 0:
        raise LaunchError(f"parameter = {shown(parameter)}: kernel {kernel.name} has parameters 0 to {len(known) - 1}")
    return position, index


def _takes_arguments(coordinates: Any) -> bool:
    if not callable(coordinates):
        raise LaunchError(
            f"coordinates is a {type(coordinates).__name__}; a function of a block's x, y and z is needed"
        )
    try:
        signature = inspect.signature(coordinates)
    except (TypeError, ValueError):  # builtins do not say
        return False
    for count in (3, 4):
        try:
            signature.bind(*(None,) * count)
        except TypeError:
            continue
        return count == 4
    raise LaunchError("coordinates must take a block's x, y and z, and as a fourth the arguments if it needs them")


def declared_faults(
    declared: CoordinateDeclaration, tensor_map: TensorMap, record: LaunchRecord
) -> tuple[GridFault, ...]:
    """The blocks of a launch whose declared copies the hardware would refuse.

    Of a grid of many blocks those at the ends of each axis are judged, and some between.

    Raises
    ------
    LaunchError
        If the declared function fails, or returns what no instruction takes.
    """
    for most in (_FIRST_LOOK, _ALL_BLOCKS):
        found = _faults_of(declared, tensor_map, record, most)
        if found or math.prod(record.grid) <= most:
            return found
    return ()


def _faults_of(
    declared: CoordinateDeclaration, tensor_map: TensorMap, record: LaunchRecord, most: int
) -> tuple[GridFault, ...]:
    from cupytma.sim.faults import NotSimulatedError
    from cupytma.sim.grid import grid_faults

    values = (record.values(),) if declared.takes_arguments else ()
    owners: list[tuple[int, int, int]] = []
    starts: list[tuple[Any, ...]] = []
    for z, y, x in itertools.product(*reversed(list(_looked_at(record.grid, most)))):
        try:
            own = _starts(declared.function(x, y, z, *values))
        except Exception as error:  # the author's function may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise LaunchError(f"{_of(declared, record)} fail at block {(x, y, z)}: {reason}") from error
        starts += own
        owners += [(x, y, z)] * len(own)
    if not starts:
        return ()
    seen = 0

    def start(number: int, *_: int) -> tuple[Any, ...]:
        nonlocal seen
        seen = number
        return starts[number]

    try:
        judged = grid_faults(
            tensor_map, start, len(starts), offsets=declared.offsets, shared_offset=declared.shared_offset,
            store=declared.store, mode=declared.mode,
        )  # fmt: skip
    except NotSimulatedError:
        return ()
    except CupytmaError as error:
        reason = re.sub(r"^block \(\d+, 0, 0\): ", "", str(error))  # a number here, and no block
        raise LaunchError(f"{_of(declared, record)} at block {owners[seen]}: {reason}") from error
    return tuple(replace(fault, block=owners[fault.block[0]]) for fault in judged)


def _of(declared: CoordinateDeclaration, record: LaunchRecord) -> str:
    return f"the coordinates declared for argument {declared.place[0]} of kernel {record.name}"


def _starts(found: Any) -> list[tuple[Any, ...]]:
    """No start, one, or several, as a list."""
    entries = [] if found is None else list(found)
    if entries and hasattr(entries[0], "__index__"):
        return [tuple(entries)]
    return [tuple(entry) for entry in entries]


def _looked_at(grid: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Blocks along each axis: all, where the grid has no more than `most`, else both ends and evenly between."""
    if math.prod(grid) <= most:
        yield from (tuple(range(extent)) for extent in grid)
        return
    long = sum(extent > 1 for extent in grid)
    each = max(2, int(most ** (1 / long) + 1e-9))
    for extent in grid:
        count = min(extent, each)
        ends = {0, 1, extent - 2, extent - 1} | {i * (extent - 1) // max(count - 1, 1) for i in range(count)}
        yield tuple(sorted(i for i in ends if 0 <= i < extent))
