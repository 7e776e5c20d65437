"""Copies on the simulator, each with what it moved, from where to where, or with the fault that it dies of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from cupytma.targets import TARGETS

from .failures import Failure
from .progress import PATIENCE, progress_bar
from .tensor_memory import element_dtype, generated, generated_window

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cupytma.errors import Fault
    from cupytma.sim import TileMap
    from cupytma.tensormap import TensorMap

    from .tensor_memory import AnyParameters

    Bytes = npt.NDArray[np.uint8]
    Int64 = npt.NDArray[np.int64]

Start = tuple[int, ...]

MOST_COPIES = 100_000

_CHUNK = 16
_SHARED_BYTES = max(target.shared_bytes for target in TARGETS.values())
# The simulator maps loads alone.
_LOAD_MODES = {"tile::scatter4": "tile::gather4", "im2col_no_offs": "im2col"}


@dataclass(frozen=True)
class Operation:
    """What is simulated, at whatever coordinates.

    Attributes
    ----------
    tensor_map : TensorMap
    direction : str
        ``"load"``, ``"store"``, ``"reduce"`` or ``"prefetch"``.
    mode : str or None
        The instruction's.
    op : str
        Of a reduction.
    offsets : tuple of int
        Of an im2col load.
    shared_offset : int
        Where the tile is in shared memory, in bytes.
    data : str
        What generated elements hold: ``"index"``, ``"random"`` or ``"zeros"``.
    seed : int
    """

    tensor_map: TensorMap
    direction: str
    mode: str | None
    op: str
    offsets: tuple[int, ...]
    shared_offset: int
    data: str
    seed: int

    @property
    def parameters(self) -> AnyParameters:
        """What the tensor map says."""
        return self.tensor_map.decode()

    @property
    def load_mode(self) -> str | None:
        """What a load of the same rows is called."""
        return _LOAD_MODES.get(self.mode or "", self.mode)

    @property
    def stores(self) -> bool:
        """Whether shared memory is the source."""
        return self.direction in ("store", "reduce")


@dataclass(frozen=True, eq=False)
class Copy:
    """One copy and what came of it.

    Attributes
    ----------
    start : tuple of int
        As the instruction takes it.
    fault : Fault or None
        What kills the kernel; then nothing below is known.
    transaction_bytes : int
        What a load adds to the mbarrier's count.
    entries, inside : int
        Elements of the tile (or groups of packed ones, or slices), and those of them that are in the tensor.
    bytes : int
        Of all entries.
    past_rows : int
        Bytes that a store writes past the ends of rows.
    verified : bool
        Whether hardware was measured to do this.
    shared : ndarray of uint8 or None
        Shared memory from byte 0 to the end of the tile, if it was kept.
    tile : TileMap or None
    places : ndarray of int64, shape (entries of the tile, bytes of one), or None
        Where in `shared` each byte of each entry is. This and `tile` are known of a single copy alone.
    """

    start: Start
    fault: Fault | None = None
    transaction_bytes: int = 0
    entries: int = 0
    inside: int = 0
    bytes: int = 0
    past_rows: int = 0
    verified: bool = False
    shared: Bytes | None = None
    tile: TileMap | None = None
    places: Int64 | None = None

    @property
    def outside(self) -> int:
        """Entries out of bounds."""
        return self.entries - self.inside


def run(
    operation: Operation,
    starts: Sequence[Start],
    memory: Bytes | None,
    given: npt.NDArray[Any] | None,
    keep_shared: bool = False,
) -> Iterator[Copy]:
    """Simulate copies, one after the other.

    Parameters
    ----------
    operation : Operation
    starts : sequence of tuple of int
    memory : ndarray of uint8 or None
        Global memory from the tensor's address on, changed in place by stores; None for generated elements, which can
        only be loaded.
    given : ndarray or None
        What the tile holds that is stored: its elements, or the bytes of shared memory; None for generated ones.
    keep_shared : bool
        Whether every copy keeps shared memory; that of a single one is always kept.

    Raises
    ------
    SimulationError
        If an instruction cannot have such operands.
    Failure
        If memory or the tile are not as the tensor map needs them.
    """
    with progress_bar(len(starts), operation.direction, PATIENCE) as report:
        for done, start in enumerate(starts):
            copy = _one(operation, start, memory, given)
            if len(starts) > 1:  # the maps of thousands of tiles take more memory than machines have
                copy = replace(copy, tile=None, places=None, shared=copy.shared if keep_shared else None)
            yield copy
            report(done + 1, operation.direction)


def _one(operation: Operation, start: Start, memory: Bytes | None, given: npt.NDArray[Any] | None) -> Copy:
    from cupytma.errors import Fault

    try:
        past_rows = _check(operation, start)
        return _moved(operation, start, memory, given, past_rows)
    except Fault as fault:
        return Copy(start, fault)


def _check(operation: Operation, start: Start) -> int:
    """Raise the copy's fault, if it has one; else the bytes that it writes past rows."""
    from cupytma.sim.checks import check_operands, check_shared_room
    from cupytma.sim.geometry import geometry
    from cupytma.sim.traversal import shared_extent, traverse

    plan = geometry(operation.tensor_map, operation.mode, store=operation.stores)
    plan, coordinates, offsets, place = check_operands(
        plan, start, operation.offsets, operation.shared_offset, store=operation.stores
    )
    if operation.direction != "prefetch":
        check_shared_room(plan, place + shared_extent(plan, place), _SHARED_BYTES)
    rows = traverse(plan, coordinates, offsets, store=operation.stores)
    count = plan.rows if rows.inside is None else int(rows.inside.sum())
    return count * (rows.last - rows.exact_last)


def _moved(
    operation: Operation, start: Start, memory: Bytes | None, given: npt.NDArray[Any] | None, past_rows: int
) -> Copy:
    import numpy as np

    from cupytma import sim

    how, tensor_map = operation, operation.tensor_map
    tile = sim.tile_map(tensor_map, start, shared_offset=how.shared_offset, offsets=how.offsets, mode=how.load_mode)
    places = _places(how.parameters, tile)
    shared = np.zeros(-(-(int(places.max()) + 1) // _CHUNK) * _CHUNK, np.uint8)
    if memory is None:
        window, base = generated_window(how.data, how.seed, how.parameters, tile)
    else:
        window, base = memory, how.parameters.global_address
    count = 0
    if how.stores:
        _fill(how, shared, places, tile, given)
    if how.direction == "load":
        count = sim.load(
            tensor_map, start, memory=window, base=base, shared=shared, shared_offset=how.shared_offset,
            offsets=how.offsets, mode=how.mode,
        )  # fmt: skip
    elif how.direction == "prefetch":
        sim.prefetch(tensor_map, start, memory=window, base=base, offsets=how.offsets, mode=how.mode)
    elif how.direction == "store":
        sim.store(
            tensor_map, start, memory=window, base=base, shared=shared, shared_offset=how.shared_offset, mode=how.mode
        )
    else:
        sim.reduce(
            tensor_map, how.op, start, memory=window, base=base, shared=shared, shared_offset=how.shared_offset
        )
    return Copy(
        start, None, count, len(tile.inside), int(tile.inside.sum()), places.size, past_rows, tile.verified, shared,
        tile, places,
    )  # fmt: skip


def _places(parameters: AnyParameters, tile: TileMap) -> Int64:
    """Where in shared memory each byte of each entry of a tile is: longer entries are in pieces."""
    import numpy as np

    from cupytma.sim import swizzle_address

    linear = swizzle_address(tile.shared_byte, parameters.swizzle)  # its own inverse
    return swizzle_address(linear[:, None] + np.arange(tile.unit_bytes, dtype=np.int64), parameters.swizzle)


def _fill(operation: Operation, shared: Bytes, places: Int64, tile: TileMap, given: npt.NDArray[Any] | None) -> None:
    """Put what is stored into shared memory: the bytes of it, or elements in the tile's order."""
    import numpy as np

    data_type = operation.parameters.data_type
    dtype = element_dtype(data_type)
    if given is None:
        numbers = np.arange(places.size // dtype.itemsize, dtype=np.int64)
        given = generated(operation.data, operation.seed, numbers, data_type)
    elif given.ndim == 1 and given.dtype == np.uint8 and given.shape != tile_shape(tile, dtype):
        if given.size < shared.size:
            raise Failure(
                f"the tile's file holds {given.size} bytes of shared memory, and the tile ends at byte {shared.size}"
            )
        shared[:] = given[: shared.size]
        return
    if given.nbytes != places.size or (given.ndim > 1 and given.dtype.itemsize != dtype.itemsize):
        raise Failure(
            f"the tile's file has shape {given.shape} and elements of {given.dtype.itemsize} B; give the tile's "
            f"elements, shape {tile_shape(tile, dtype)} of {dtype.itemsize} B each, or shared memory as bytes (uint8, "
            "1-D)"
        )
    shared[places] = np.ascontiguousarray(given).reshape(-1).view(np.uint8).reshape(places.shape)


def tile_shape(tile: TileMap, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """The shape of a tile's elements, numpy's order: each row is a slice, or bytes of packed elements, or elements."""
    return (*tile.shape[:-1], tile.shape[-1] * tile.unit_bytes // dtype.itemsize)


def tile_values(copy: Copy, operation: Operation) -> npt.NDArray[Any]:
    """The elements of a tile in shared memory, the swizzle undone, numpy's order."""
    import numpy as np

    assert copy.tile is not None
    assert copy.shared is not None
    dtype = element_dtype(operation.parameters.data_type)
    found: npt.NDArray[Any] = np.ascontiguousarray(copy.shared[copy.places]).view(dtype)
    return found.reshape(tile_shape(copy.tile, dtype))


def every_box(operation: Operation) -> tuple[Start, ...]:
    """Where the copies start that together have every element of the tensor, dimension 0 fastest.

    Raises
    ------
    Failure
        If the tensor map is not tiled, or there are too many.
    """
    from .covering import covering_of

    covering = covering_of(operation.tensor_map, operation.mode)
    if covering.copies > MOST_COPIES:
        raise Failure(
            f"{covering.copies:,} boxes cover the tensor, and at most {MOST_COPIES:,} are simulated; choose with --at"
        )
    starts = (
        [d.box * number + phase for number in range(d.boxes) for phase in range(d.element_stride)]
        for d in reversed(covering.dimensions)
    )
    return tuple(start[::-1] for start in product(*starts))
