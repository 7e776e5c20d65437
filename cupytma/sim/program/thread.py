"""What a role can do: the instructions of a thread, named as `cupytma.ptx` names them.

Every method makes an operation that the role has to ``yield``; ``yield`` gives back what the instruction returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from cupytma.sim.program import accesses, copies, maps, mbarriers, thread_barriers
from cupytma.sim.program.errors import ProgramError, check_choice, check_range, check_whole
from cupytma.sim.program.memory import Mbarrier, ProgramArray
from cupytma.sim.program.operands import (
    MBARRIER_SCOPES,
    array_in,
    check_bulk,
    check_mask,
    integers,
    map_place,
    named_barrier,
    one_element,
    own_mbarrier,
    own_shared,
    phase_token,
    some_map,
    some_mbarrier,
    wait_operands,
)
from cupytma.sim.program.operation import Behaviour, Operation, PhaseToken
from cupytma.sim.program.ordering import SCOPES
from cupytma.sim.program.state import ThreadState
from cupytma.sim.program.thread_barriers import CLUSTER, WARP
from cupytma.tensormap.tensor_map import TensorMap

if TYPE_CHECKING:
    from cupytma.sim.program.program import Program

_PENDING_GROUPS = 63


class Thread:
    """A thread, as its role sees it.

    Attributes
    ----------
    index : int
        Its number among the threads of its role in its block.
    threads : int
        How many those are.
    block : int
        Its block in the grid.
    blocks : int
        Blocks of the grid.
    rank : int
        The rank of its block in the cluster.
    cluster : int
        Blocks of the cluster.
    """

    def __init__(self, state: ThreadState, program: Program) -> None:
        self._state = state
        self._program = program
        self._made: Operation | None = None
        self.index = state.index
        self.threads = state.threads
        self.block = state.block.index
        self.blocks = program.blocks
        self.rank = state.block.rank
        self.cluster = program.cluster

    def _operation(self, name: str, behaviour: Behaviour, *operands: Any, callers: int = 1) -> Operation:
        """A new operation; its line is that of the role, which is so many callers away from this method's caller."""
        frame = sys._getframe(1 + callers)
        self._check_yielded()
        self._made = Operation(self._state, name, behaviour, operands, frame.f_code.co_filename, frame.f_lineno)
        return self._made

    # Memory through the generic proxy.

    def read_shared(self, array: ProgramArray) -> Operation:
        """Ordinary loads from shared memory.

        Parameters
        ----------
        array : ProgramArray
            An array in shared memory, or a part of one; of another block with ``mapa``.

        Returns
        -------
        Operation
            Whose ``yield`` gives a numpy array of the same shape and type.
        """
        return self._operation("read_shared", accesses.READ_ARRAY, array_in(array, "array", "shared"))

    def write_shared(self, array: ProgramArray, values: Any) -> Operation:
        """Ordinary stores to shared memory.

        Parameters
        ----------
        array : ProgramArray
        values : array_like
            Of the array's shape, or broadcast to it; cast to its type.
        """
        return self._operation("write_shared", accesses.WRITE_ARRAY, array_in(array, "array", "shared"), values)

    def read_global(self, array: ProgramArray) -> Operation:
        """Ordinary loads from global memory; as `read_shared`."""
        return self._operation("read_global", accesses.READ_ARRAY, array_in(array, "array", "global"))

    def write_global(self, array: ProgramArray, values: Any) -> Operation:
        """Ordinary stores to global memory; as `write_shared`."""
        return self._operation("write_global", accesses.WRITE_ARRAY, array_in(array, "array", "global"), values)

    def store_release(self, flag: ProgramArray, value: Any, *, scope: str = "gpu") -> Operation:
        """A store that releases everything before it to those who acquire it (PTX ISA, "st": ``.release``).

        Parameters
        ----------
        flag : ProgramArray
            One element, in global or shared memory.
        value : scalar
        scope : str
            ``"cta"``, ``"cluster"``, ``"gpu"`` or ``"sys"``.
        """
        check_choice("scope", scope, SCOPES)
        return self._operation("store_release", thread_barriers.STORE_RELEASE, one_element(flag), value, scope)

    def load_acquire(self, flag: ProgramArray, *, scope: str = "gpu") -> Operation:
        """A load that acquires what the store it reads from released (PTX ISA, "ld": ``.acquire``).

        Poll it in a loop, ``while not (yield t.load_acquire(flag)): pass``.
        """
        check_choice("scope", scope, SCOPES)
        return self._operation("load_acquire", thread_barriers.LOAD_ACQUIRE, one_element(flag), scope)

    # mbarriers.

    def mbarrier_init(self, mbarrier: Mbarrier, count: int) -> Operation:
        """Make an mbarrier, in phase 0, that expects `count` arrivals in each phase (1 to 2^20 - 1)."""
        own_mbarrier(mbarrier)
        check_range("count", count, 1, mbarriers.MAX_COUNT)
        return self._operation("mbarrier_init", mbarriers.INIT, mbarrier, count)

    def mbarrier_inval(self, mbarrier: Mbarrier) -> Operation:
        """End an mbarrier."""
        return self._operation("mbarrier_inval", mbarriers.INVAL, own_mbarrier(mbarrier))

    def mbarrier_arrive(
        self, mbarrier: Mbarrier, count: int = 1, *, semantics: str = "release", scope: str = "cta"
    ) -> Operation:
        """Arrive on an mbarrier of the own block, or of another one of the cluster with ``mapa``.

        Parameters
        ----------
        mbarrier : Mbarrier
        count : int
            As how many arrivals it counts; a warp that is one thread of the model may count as 32.
        semantics : str
            ``"release"`` or ``"relaxed"``, which orders no memory accesses.
        scope : str
            ``"cta"`` or ``"cluster"``.

        Returns
        -------
        Operation
            Whose ``yield`` gives a `PhaseToken`.
        """
        return self._arrive("mbarrier_arrive", mbarrier, count, 0, semantics, scope)

    def mbarrier_arrive_expect_tx(
        self, mbarrier: Mbarrier, tx_count: int, *, semantics: str = "release", scope: str = "cta"
    ) -> Operation:
        """Announce `tx_count` bytes to the current phase, and arrive once; otherwise as `mbarrier_arrive`."""
        check_range("tx_count", tx_count, 0, mbarriers.MAX_COUNT)
        return self._arrive("mbarrier_arrive_expect_tx", mbarrier, 1, tx_count, semantics, scope)

    def _arrive(
        self, name: str, mbarrier: Mbarrier, count: int, announced: int, semantics: str, scope: str
    ) -> Operation:
        some_mbarrier(mbarrier)
        check_range("count", count, 1, mbarriers.MAX_COUNT)
        check_choice("semantics", semantics, ("release", "relaxed"))
        check_choice("scope", scope, MBARRIER_SCOPES)
        return self._operation(name, mbarriers.ARRIVE, mbarrier, count, announced, semantics, scope, callers=2)

    def mbarrier_expect_tx(self, mbarrier: Mbarrier, tx_count: int) -> Operation:
        """Announce `tx_count` bytes to the current phase without arriving."""
        check_range("tx_count", tx_count, 0, mbarriers.MAX_COUNT)
        return self._operation("mbarrier_expect_tx", mbarriers.EXPECT, some_mbarrier(mbarrier), tx_count)

    def mbarrier_wait_parity(
        self, mbarrier: Mbarrier, parity: int, *, semantics: str = "acquire", scope: str = "cta"
    ) -> Operation:
        """Wait until the phase of a parity has completed: a loop of ``mbarrier.try_wait.parity``.

        Returns at once if the current phase has the other parity, so also for parity 1 on a fresh mbarrier.

        Parameters
        ----------
        mbarrier : Mbarrier
            Of the own block.
        parity : int
            0 or 1.
        semantics : str
            ``"acquire"`` or ``"relaxed"``.
        scope : str
            ``"cta"``, or ``"cluster"`` to acquire what threads of other blocks released.
        """
        operands = wait_operands(mbarrier, parity, semantics, scope)
        return self._operation("mbarrier_wait_parity", mbarriers.WAIT, *operands)

    def mbarrier_try_wait_parity(
        self, mbarrier: Mbarrier, parity: int, *, semantics: str = "acquire", scope: str = "cta"
    ) -> Operation:
        """Whether the phase of a parity has completed; ``yield`` gives a bool. Otherwise as `mbarrier_wait_parity`."""
        operands = wait_operands(mbarrier, parity, semantics, scope)
        return self._operation("mbarrier_try_wait_parity", mbarriers.TRY_WAIT, *operands)

    def mbarrier_wait(
        self, mbarrier: Mbarrier, token: PhaseToken, *, semantics: str = "acquire", scope: str = "cta"
    ) -> Operation:
        """Wait until the phase that an arrival returned has completed; otherwise as `mbarrier_wait_parity`."""
        operands = wait_operands(mbarrier, phase_token(token), semantics, scope)
        return self._operation("mbarrier_wait", mbarriers.WAIT, *operands)

    def mbarrier_try_wait(
        self, mbarrier: Mbarrier, token: PhaseToken, *, semantics: str = "acquire", scope: str = "cta"
    ) -> Operation:
        """Whether the phase that an arrival returned has completed; ``yield`` gives a bool."""
        operands = wait_operands(mbarrier, phase_token(token), semantics, scope)
        return self._operation("mbarrier_try_wait", mbarriers.TRY_WAIT, *operands)

    # Copies.

    def tensor_load(
        self,
        destination: ProgramArray,
        tensor_map: TensorMap | ProgramArray,
        coords: Sequence[int],
        mbarrier: Mbarrier,
        *,
        offsets: Sequence[int] = (),
        cta_mask: int | None = None,
    ) -> Operation:
        """Start the load of a tile from global to shared memory.

        Parameters
        ----------
        destination : ProgramArray
            Where the tile begins in shared memory.
        tensor_map : TensorMap or ProgramArray
            A kernel parameter; or 128 bytes of global memory that hold the map.
        coords : sequence of int
            Start of the tile in elements, driver order.
        mbarrier : Mbarrier
            Of the block that the tile goes to; its transaction count falls by the tile's bytes.
        offsets : sequence of int
            Of an im2col load.
        cta_mask : int, optional
            Multicast: bit i sends the tile to the block of rank i, at the same place, completing on its mbarrier.
        """
        array_in(destination, "destination", "shared", place=True)
        mask = check_mask(cta_mask, destination, some_mbarrier(mbarrier))
        operands = (destination, some_map(tensor_map), integers("coords", coords), mbarrier)
        shift = integers("offsets", offsets)
        return self._operation("tensor_load", copies.TENSOR_LOAD, *operands, shift, mask)

    def tensor_store(
        self, tensor_map: TensorMap | ProgramArray, coords: Sequence[int], source: ProgramArray
    ) -> Operation:
        """Start the store of a tile from shared to global memory; it belongs to the thread's next bulk group."""
        own_shared(source)
        operands = (some_map(tensor_map), integers("coords", coords), source, None)
        return self._operation("tensor_store", copies.TENSOR_STORE, *operands)

    def tensor_reduce(
        self, op: str, tensor_map: TensorMap | ProgramArray, coords: Sequence[int], source: ProgramArray
    ) -> Operation:
        """Start the reduction of a tile into global memory; `op` as `cupytma.sim.reduce` takes it."""
        own_shared(source)
        if not isinstance(op, str):
            raise ProgramError(f"op is {op!r}; it must be the name of a reduction, such as 'add'")
        operands = (some_map(tensor_map), integers("coords", coords), source, op)
        return self._operation("tensor_reduce", copies.TENSOR_STORE, *operands)

    def tensor_prefetch(
        self, tensor_map: TensorMap | ProgramArray, coords: Sequence[int], *, offsets: Sequence[int] = ()
    ) -> Operation:
        """Prefetch a tile to the L2 cache. Nothing can wait for it."""
        operands = (some_map(tensor_map), integers("coords", coords), integers("offsets", offsets))
        return self._operation("tensor_prefetch", copies.TENSOR_PREFETCH, *operands)

    def bulk_copy(
        self,
        destination: ProgramArray,
        source: ProgramArray,
        mbarrier: Mbarrier | None = None,
        *,
        cta_mask: int | None = None,
    ) -> Operation:
        """Start a copy of bytes: global to shared memory, shared to global, or shared to another block's shared.

        Parameters
        ----------
        destination, source : ProgramArray
            Contiguous, of the same size, a multiple of 16 bytes, and aligned to 16 bytes.
        mbarrier : Mbarrier, optional
            For a copy to shared memory, of the block that it goes to. A copy to global memory belongs to the thread's
            next bulk group instead.
        cta_mask : int, optional
            Multicast of a copy from global memory, as for `tensor_load`.
        """
        check_bulk(destination, source, mbarrier, cta_mask)
        if destination.space == "global":
            return self._operation("bulk_copy", copies.BULK_STORE, destination, source)
        return self._operation("bulk_copy", copies.BULK_LOAD, destination, source, mbarrier, cta_mask)

    def bulk_commit_group(self) -> Operation:
        """End a bulk async-group: the bulk copies to global memory that the thread has started since the last one."""
        return self._operation("bulk_commit_group", copies.COMMIT)

    def bulk_wait_group(self, count: int, *, read: bool = False) -> Operation:
        """Wait until at most `count` (0 to 63) of the thread's newest bulk groups are pending.

        Parameters
        ----------
        count : int
        read : bool
            Only until their sources and tensor maps have been read.
        """
        check_range("count", count, 0, _PENDING_GROUPS)
        check_choice("read", read, (False, True))
        return self._operation("bulk_wait_group", copies.WAIT_GROUP, count, read)

    def cp_async_commit_group(self) -> Operation:
        """End a group of ``cp.async`` copies. The model has none of these, and no bulk copy belongs to such a group."""
        return self._operation("cp_async_commit_group", copies.OTHER_COMMIT)

    def cp_async_wait_group(self, count: int) -> Operation:
        """Wait for ``cp.async`` copies. The model has none, so that it returns at once, as it does for bulk copies."""
        check_range("count", count, 0, _PENDING_GROUPS)
        return self._operation("cp_async_wait_group", copies.OTHER_WAIT, count)

    # Fences and tensor maps in memory.

    def fence(self, *, scope: str = "gpu") -> Operation:
        """``fence.acq_rel``: lets a relaxed arrival release what comes before it."""
        check_choice("scope", scope, SCOPES)
        return self._operation("fence", maps.FENCE)

    def fence_proxy_async(self, *, space: str | None = None) -> Operation:
        """Order the accesses of the generic proxy that come before it with those of the async proxy after it.

        Parameters
        ----------
        space : str or None
            ``"shared::cta"``, ``"shared::cluster"`` or ``"global"``; None for all.
        """
        check_choice("space", space, (None, "shared::cta", "shared::cluster", "global"))
        return self._operation("fence_proxy_async", maps.FENCE_PROXY_ASYNC, space)

    def fence_mbarrier_init(self) -> Operation:
        """Make the thread's initialisations of mbarriers known to the async proxy and, with a barrier, the cluster."""
        return self._operation("fence_mbarrier_init", maps.FENCE_MBARRIER_INIT)

    def fence_proxy_tensormap_release(self, *, scope: str) -> Operation:
        """Release the changes to tensor maps that come before it to the tensormap proxy."""
        check_choice("scope", scope, SCOPES)
        return self._operation("fence_proxy_tensormap_release", maps.RELEASE, scope)

    def fence_proxy_tensormap_acquire(self, tensor_map: ProgramArray, *, scope: str) -> Operation:
        """Acquire the 128 bytes of a tensor map for the tensormap proxy, for the threads of this block."""
        check_choice("scope", scope, SCOPES)
        operands = map_place(tensor_map, "tensor_map", "global"), scope
        return self._operation("fence_proxy_tensormap_acquire", maps.ACQUIRE, *operands)

    def tensormap_replace(self, tensor_map: ProgramArray, field: str, value: int, *, ordinal: int = 0) -> Operation:
        """Replace one field of a tensor map in shared or global memory, exactly as the instruction does.

        Parameters
        ----------
        tensor_map : ProgramArray
            128 bytes, aligned to 128.
        field, value, ordinal
            As `cupytma.TensorMap.replace_raw` takes them: PTX numbering, nothing checked.
        """
        operands = (field, check_whole("value", value), check_range("ordinal", ordinal, 0, 4))
        return self._operation("tensormap_replace", maps.REPLACE, map_place(tensor_map, "tensor_map"), *operands)

    def tensormap_cp_fenceproxy(self, destination: ProgramArray, source: ProgramArray, *, scope: str) -> Operation:
        """Copy a tensor map from shared to global memory and release it to the tensormap proxy.

        All threads of the role in the block execute it together, as the lanes of a warp do (``.sync.aligned``).
        """
        check_choice("scope", scope, SCOPES)
        operands = (
            map_place(destination, "destination", "global"), map_place(source, "source", "shared"), scope,
        )  # fmt: skip
        return self._operation("tensormap_cp_fenceproxy", maps.CP_FENCEPROXY, *operands)

    # Barriers of threads.

    def syncthreads(self) -> Operation:
        """Barrier 0, for all threads of the block that have not ended."""
        return self._operation("syncthreads", thread_barriers.SYNC, 0, None)

    def syncwarp(self) -> Operation:
        """A barrier for the threads of the role in the block, which stand for a warp."""
        return self._operation("syncwarp", thread_barriers.SYNC, WARP, None)

    def barrier_sync(self, number: int, count: int | None = None) -> Operation:
        """Come to a named barrier of the block and wait (PTX ISA, "bar, barrier").

        Parameters
        ----------
        number : int
            0 to 15.
        count : int, optional
            How many threads of the model come to it; default all of the block.
        """
        return self._operation("barrier_sync", thread_barriers.SYNC, *named_barrier(number, count))

    def barrier_arrive(self, number: int, count: int) -> Operation:
        """Come to a named barrier of the block and go on."""
        return self._operation("barrier_arrive", thread_barriers.ARRIVE, *named_barrier(number, count))

    def barrier_cluster_arrive(self, *, semantics: str = "release") -> Operation:
        """Come to the barrier of the cluster; ``"relaxed"`` releases only what a fence before it has released."""
        check_choice("semantics", semantics, ("release", "relaxed"))
        relaxed = semantics == "relaxed"
        return self._operation("barrier_cluster_arrive", thread_barriers.ARRIVE, CLUSTER, None, relaxed)

    def barrier_cluster_wait(self) -> Operation:
        """Wait until all threads of the cluster have come to its barrier."""
        return self._operation("barrier_cluster_wait", thread_barriers.CLUSTER_WAIT, CLUSTER, None)

    # For the machine.

    def _check_yielded(self) -> None:
        made = self._made
        if made is not None:
            raise ProgramError(f"{made.name} ({made.source}) was not yielded; write `yield t.{made.name}(…)`")

    def _yielded(self, operation: Any) -> Operation:
        made, self._made = self._made, None
        if made is not None and operation is made:
            return made
        if isinstance(operation, Operation):
            raise ProgramError(f"{operation.name} was yielded twice, or by another thread; make it anew for each yield")
        raise ProgramError(f"yielded {operation!r}; yield what a method of the thread returns")


def begin_role(body: Callable[[Thread], Any], state: ThreadState, program: Program) -> Operation | None:
    """Run a role to its first operation; from then on `ThreadState.resume` runs it to the next.

    Raises
    ------
    ProgramError
        If the role is no generator, or yields something else than its thread's newest operation.
    """
    thread = Thread(state, program)
    made = body(thread)
    if not isinstance(made, Generator):
        raise ProgramError(
            f"role {state.role!r} is no generator: write `yield` before each operation, as in `yield t.syncthreads()`"
        )

    def resume(value: Any) -> Operation | None:
        try:
            yielded = made.send(value)
        except StopIteration:
            thread._check_yielded()
            return None
        return thread._yielded(yielded)

    state.resume = resume
    return resume(None)
