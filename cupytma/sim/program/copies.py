"""Bulk and tensor copies: what they touch, how they go on while threads do other things, and what waits for them.

A copy that is started goes on in steps, at any time the schedule likes: a load reads global memory and then writes its
tile in pieces, each of which lowers the transaction count; a store reads its tile in pieces and writes global memory
later. What the copy may race with is judged when it is started, since it may then go on at once.

Sources: PTX ISA, "Asynchronous Operations", "cp.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor",
"cp.async.bulk.commit_group", "cp.async.bulk.wait_group".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import DescriptorError
from cupytma.limits import SWIZZLE_PERIOD
from cupytma.sim import unit
from cupytma.sim.program import mbarriers
from cupytma.sim.program.accesses import ASYNC, READ, REDUCE, TENSORMAP, WRITE, Access, record
from cupytma.sim.program.errors import ProgramError
from cupytma.sim.program.extents import Extent, Tile, tile_of
from cupytma.sim.program.memory import Allocation, Mbarrier, ProgramArray
from cupytma.sim.program.operation import Behaviour, Operation
from cupytma.sim.program.state import Block, Store
from cupytma.sim.swizzle import CHUNK
from cupytma.targets import DEFAULT_TARGET
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.sim.program.machine import Machine

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]
_MOST_PIECES = 4
_NOWHERE: Int64 = np.empty(0, dtype=np.int64)


@dataclass(eq=False)
class Copy:
    """A copy that was started.

    Attributes
    ----------
    operation : Operation
    issue : int
        Event of its start.
    read, written : int
        Events of the end of its reading and of its writing. Of a load the two are one, the event of each `Transfer`.
    has_read, has_written : bool
        Whether these have happened.
    """

    operation: Operation
    issue: int
    read: int = 0
    written: int = 0
    has_read: bool = False
    has_written: bool = False


@dataclass(eq=False)
class Transfer:
    """The part of a load that goes to one block.

    Attributes
    ----------
    copy : Copy
    state : MbarrierState
        The barrier that it completes on.
    phase : int
        The phase of that barrier when the copy was started.
    event : int
        Of its completion.
    total, rest : int
        Bytes it brings, and how many of them have not arrived.
    """

    copy: Copy
    state: mbarriers.MbarrierState
    phase: int
    event: int
    total: int = 0
    rest: int = 0

    @property
    def done(self) -> bool:
        """Whether all has arrived."""
        return self.rest == 0


@dataclass(frozen=True, eq=False)
class _Side:
    """One side of a copy: a memory, and the bytes of it in the copy's order, counted from the memory's first."""

    store: Store
    allocation: Allocation
    extent: Extent | None
    places: Int64


def _pieces(machine: Machine, size: int) -> list[slice]:
    """A run of bytes cut into a few pieces at multiples of 16 bytes; favourite places are its eighths."""
    step = max(CHUNK, size // 8 // CHUNK * CHUNK)
    cuts = sorted({machine.random.randrange(0, size, step) for _ in range(machine.random.randrange(_MOST_PIECES))})
    edges = [0, *(cut for cut in cuts if cut), size]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def _tensor_map(machine: Machine, operation: Operation, source: TensorMap | ProgramArray) -> TensorMap:
    """The tensor map that an operand holds now."""
    if isinstance(source, TensorMap):
        return source
    store, _ = machine.store_of(source, operation.thread)
    found = TensorMap(source.read(store.bytes_of(source)).tobytes())
    reason = _unusable(found)
    if reason:
        machine.find("map-unusable", (operation,), later=str(operation), region=repr(source.name), reason=reason)
        raise machine.stop
    return found


@lru_cache(maxsize=256)
def _unusable(tensor_map: TensorMap) -> str:
    """Why no encoder makes these bytes; empty where one does."""
    try:
        broken = tensor_map.decode().violations(DEFAULT_TARGET)
    except DescriptorError as error:
        return str(error)
    return "; ".join(map(str, broken))


def _reads_map(
    machine: Machine, copy: Copy, source: TensorMap | ProgramArray, event: int, transfer: Transfer | None = None
) -> None:
    """Record that a copy reads its tensor map through the tensormap proxy, until the event."""
    if isinstance(source, ProgramArray):
        store, _ = machine.store_of(source, copy.operation.thread)
        _record(
            machine, copy, _Side(store, source.allocation, source.extent, _NOWHERE), READ, event, transfer, TENSORMAP
        )


def _record(
    machine: Machine,
    copy: Copy,
    side: _Side,
    does: str,
    event: int,
    transfer: Transfer | None = None,
    proxy: str = ASYNC,
    block: Block | None = None,
) -> None:
    """Record what a copy does to a memory, until the event; `block` is the one whose shared memory it is."""
    if side.extent is None:
        return
    thread = copy.operation.thread
    access = Access(
        event, copy.operation, does, proxy, side.extent, side.allocation, copy, transfer, waits=thread.waits
    )
    record(machine, side.store, access, thread.known)
    if block is not None:
        block.visits.append(access)
        if does == WRITE:
            machine.check_barriers_under(block, access)


def _shared_side(machine: Machine, operation: Operation, array: ProgramArray, tile: Tile, block: Block) -> _Side:
    """The tile of a tensor copy in a block's shared memory."""
    extent = tile.shared.shifted(array.address)
    room = array.allocation.address + array.allocation.size - array.address
    if tile.shared.stop > room:
        machine.find(
            "tile-overruns", (operation,), later=str(operation), touched=tile.shared.stop, region=repr(array.name),
            size=room,
        )  # fmt: skip
    if extent.stop > block.shared.bytes.size:
        raise machine.stop
    return _Side(block.shared, array.allocation, extent, tile.places + array.address)


def _global_side(machine: Machine, tensor_map: TensorMap, extent: Extent | None) -> _Side:
    """The global memory that a tensor map describes."""
    store, allocation = machine.global_at(tensor_map.decode().global_address)
    return _Side(store, allocation, extent, _NOWHERE)


def _array_side(machine: Machine, operation: Operation, array: ProgramArray) -> _Side:
    """A run of bytes that a bulk copy reads or writes."""
    store, _ = machine.store_of(array, operation.thread)
    return _Side(store, array.allocation, array.extent, array.places.ravel() + array.allocation.address - store.base)


# Loads.


def _tensor_load(
    machine: Machine,
    operation: Operation,
    destination: ProgramArray,
    source: TensorMap | ProgramArray,
    coords: tuple[int, ...],
    barrier: Mbarrier,
    offsets: tuple[int, ...],
    cta_mask: int | None,
) -> None:
    copy, transfers = _start_load(machine, operation, barrier, cta_mask, destination.rank)
    for transfer in transfers:
        _reads_map(machine, copy, source, transfer.event, transfer)
    tensor_map = _tensor_map(machine, operation, source)
    tile = tile_of(tensor_map, coords, destination.address % SWIZZLE_PERIOD, offsets)
    origin = _global_side(machine, tensor_map, tile.read)

    def fetch() -> Bytes:
        found = _loaded(machine, operation, source, coords, destination.address % SWIZZLE_PERIOD, offsets)
        # A map that changes under way is reported as a race; the tile keeps its size here.
        return found if found.size == tile.bytes else np.resize(found, tile.bytes)

    for transfer in transfers:
        block = transfer.state.block
        transfer.total = transfer.rest = tile.bytes
        _record(machine, copy, origin, READ, transfer.event, transfer)
        side = _shared_side(machine, operation, destination, tile, block)
        _record(machine, copy, side, WRITE, transfer.event, transfer, block=block)
        machine.start(operation, _load_steps(machine, transfer, side, fetch))


def _loaded(
    machine: Machine,
    operation: Operation,
    source: TensorMap | ProgramArray,
    coords: tuple[int, ...],
    phase: int,
    offsets: tuple[int, ...],
) -> Bytes:
    """The bytes of a tile in its order, as global memory and the tensor map are now."""
    tensor_map = _tensor_map(machine, operation, source)
    tile = tile_of(tensor_map, coords, phase, offsets)
    store, _ = machine.global_at(tensor_map.decode().global_address)
    scratch = np.empty(phase + tile.shared.stop, dtype=np.uint8)
    unit.load(
        tensor_map, coords, memory=store.bytes, base=store.base, shared=scratch, shared_offset=phase, offsets=offsets
    )
    found: Bytes = scratch[tile.places + phase]
    return found


def _bulk_load(
    machine: Machine,
    operation: Operation,
    destination: ProgramArray,
    source: ProgramArray,
    barrier: Mbarrier,
    cta_mask: int | None,
) -> None:
    copy, transfers = _start_load(machine, operation, barrier, cta_mask, destination.rank)
    origin = _array_side(machine, operation, source)
    places = destination.places.ravel() + destination.allocation.address
    source_block = operation.thread.block if source.space == "shared" else None

    def fetch() -> Bytes:
        return origin.store.bytes[origin.places]

    for transfer in transfers:
        block = transfer.state.block
        transfer.total = transfer.rest = source.size
        _record(machine, copy, origin, READ, transfer.event, transfer, block=source_block)
        side = _Side(block.shared, destination.allocation, destination.extent, places)
        _record(machine, copy, side, WRITE, transfer.event, transfer, block=block)
        machine.start(operation, _load_steps(machine, transfer, side, fetch))


def _start_load(
    machine: Machine,
    operation: Operation,
    barrier: Mbarrier,
    cta_mask: int | None,
    rank: int | None,
) -> tuple[Copy, list[Transfer]]:
    """A load with one transfer for each block that it goes to."""
    thread = operation.thread
    copy = Copy(operation, machine.event())
    thread.known.events |= copy.issue
    transfers = []
    for block in _receivers(machine, operation, barrier, cta_mask, rank):
        state = mbarriers.initialised(machine, operation, barrier, block)
        mbarriers.check_for_copies(machine, operation, state)
        transfer = Transfer(copy, state, state.phase.number, machine.event())
        state.phase.transfers.append(transfer)
        transfers.append(transfer)
    return copy, transfers


def _receivers(
    machine: Machine, operation: Operation, barrier: Mbarrier, cta_mask: int | None, rank: int | None
) -> list[Block]:
    thread = operation.thread
    if cta_mask is None:
        block, other = machine.block_of(rank, thread), machine.block_of(barrier.rank, thread)
        if block is not other:
            raise ProgramError(
                f"the tile is in the block of rank {block.rank} and the barrier in that of rank {other.rank}: a load "
                "completes on a barrier in the shared memory that it writes; give both the same `mapa`"
            )
        return [block]
    cluster = machine.cluster_of(thread.block)
    ranks = [rank for rank in range(cta_mask.bit_length()) if cta_mask >> rank & 1]
    for rank in ranks:
        if rank >= len(cluster):
            machine.find(
                "multicast-outside", (operation,), later=str(operation), rank=rank,
                blocks=counted(len(cluster), "block"), mask=(1 << len(cluster)) - 1,
            )  # fmt: skip
    return [cluster[rank] for rank in ranks if rank < len(cluster)]


def _load_steps(machine: Machine, transfer: Transfer, side: _Side, fetch: Any) -> Iterator[None]:
    """A load going on: global memory is read, then the tile is written in pieces."""
    found = fetch()
    yield
    for piece in _pieces(machine, found.size):
        side.store.bytes[side.places[piece]] = found[piece]
        size = piece.stop - piece.start
        transfer.rest -= size
        mbarriers.complete_transaction(machine, transfer.state, transfer, size)
        yield


# Stores and reductions.


def _tensor_store(
    machine: Machine,
    operation: Operation,
    destination: TensorMap | ProgramArray,
    coords: tuple[int, ...],
    source: ProgramArray,
    op: str | None,
) -> None:
    copy = _start_store(machine, operation)
    _reads_map(machine, copy, destination, copy.read)
    tensor_map = _tensor_map(machine, operation, destination)
    phase = source.address % SWIZZLE_PERIOD
    tile = tile_of(tensor_map, coords, phase, ())
    block = operation.thread.block
    side = _shared_side(machine, operation, source, tile, block)
    _record(machine, copy, side, READ, copy.read, block=block)
    target = _global_side(machine, tensor_map, tile.written)
    _record(machine, copy, target, REDUCE if op else WRITE, copy.written)

    def deliver(found: Bytes) -> None:
        latest = _tensor_map(machine, operation, destination)
        reach = tile_of(latest, coords, phase, ()).shared.stop
        scratch = np.zeros(phase + max(reach, tile.shared.stop), dtype=np.uint8)
        scratch[tile.places + phase] = found
        store, _ = machine.global_at(latest.decode().global_address)
        where = {"memory": store.bytes, "base": store.base, "shared": scratch, "shared_offset": phase}
        if op is None:
            unit.store(latest, coords, **where)  # type: ignore[arg-type]
        else:
            unit.reduce(latest, op, coords, **where)  # type: ignore[arg-type]

    machine.start(operation, _store_steps(machine, copy, side, deliver))


def _bulk_store(machine: Machine, operation: Operation, destination: ProgramArray, source: ProgramArray) -> None:
    copy = _start_store(machine, operation)
    side = _array_side(machine, operation, source)
    target = _array_side(machine, operation, destination)
    _record(machine, copy, side, READ, copy.read, block=operation.thread.block)
    _record(machine, copy, target, WRITE, copy.written)

    def deliver(found: Bytes) -> None:
        target.store.bytes[target.places] = found

    machine.start(operation, _store_steps(machine, copy, side, deliver))


def _start_store(machine: Machine, operation: Operation) -> Copy:
    thread = operation.thread
    copy = Copy(operation, machine.event(), machine.event(), machine.event())
    thread.known.events |= copy.issue
    thread.uncommitted.append(copy)
    return copy


def _store_steps(machine: Machine, copy: Copy, side: _Side, deliver: Any) -> Iterator[None]:
    """A store going on: the tile is read in pieces, then global memory is written."""
    found = np.empty(side.places.size, dtype=np.uint8)
    for piece in _pieces(machine, found.size):
        found[piece] = side.store.bytes[side.places[piece]]
        yield
    copy.has_read = True
    yield
    deliver(found)
    copy.has_written = True


def _prefetch(
    machine: Machine,
    operation: Operation,
    source: TensorMap | ProgramArray,
    coords: tuple[int, ...],
    offsets: tuple[int, ...],
) -> None:
    """Nothing waits for a prefetch, so that it counts as over when it is started."""
    copy = Copy(operation, machine.event())
    _reads_map(machine, copy, source, copy.issue)
    operation.thread.known.events |= copy.issue
    tensor_map = _tensor_map(machine, operation, source)
    store, _ = machine.global_at(tensor_map.decode().global_address)
    unit.prefetch(tensor_map, coords, memory=store.bytes, base=store.base, offsets=offsets)


# Bulk async-groups.


def _commit(machine: Machine, operation: Operation) -> None:
    thread = operation.thread
    thread.groups.append(thread.uncommitted)
    thread.uncommitted = []
    thread.commits += 1


def _waited(operation: Operation, count: int) -> list[Copy]:
    groups = operation.thread.groups
    return [copy for group in groups[: max(0, len(groups) - count)] for copy in group]


def _wait_ready(machine: Machine, operation: Operation, count: int, read: bool) -> bool:
    return all(copy.has_read if read else copy.has_written for copy in _waited(operation, count))


def _wait(machine: Machine, operation: Operation, count: int, read: bool) -> None:
    thread = operation.thread
    if thread.group_wait is None:
        thread.group_wait = operation
    for copy in _waited(operation, count):
        thread.known.events |= copy.read if read else copy.read | copy.written
    if not read:
        del thread.groups[: max(0, len(thread.groups) - count)]


def _other_commit(machine: Machine, operation: Operation) -> None:
    """A group of ``cp.async`` copies, of which the model has none: it holds no bulk copy."""


def _other_wait(machine: Machine, operation: Operation, count: int) -> None:
    """Waits for ``cp.async`` copies, of which the model has none: returns at once, whatever bulk copies are pending."""
    thread = operation.thread
    pending = len(thread.uncommitted) + sum(not thread.known.events & c.read for group in thread.groups for c in group)
    if pending:
        machine.find("group-not-bulk", (operation,), thread=thread.name, what=pending)


TENSOR_LOAD = Behaviour(_tensor_load)
TENSOR_STORE = Behaviour(_tensor_store)
TENSOR_PREFETCH = Behaviour(_prefetch)
BULK_LOAD = Behaviour(_bulk_load)
BULK_STORE = Behaviour(_bulk_store)
COMMIT = Behaviour(_commit)
WAIT_GROUP = Behaviour(_wait, _wait_ready)
OTHER_COMMIT = Behaviour(_other_commit)
OTHER_WAIT = Behaviour(_other_wait)
