"""Fences, and tensor maps that are changed on the device.

Sources: PTX ISA, "membar, fence" (the proxy fences), "tensormap.replace", "tensormap.cp_fenceproxy"; CUDA programming
guide, tensor maps in global memory: the thread that acquires a map and the one that uses it are of one block, and a
kernel's start acquires no map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupytma.sim.program.accesses import GENERIC, READ, WRITE, touch
from cupytma.sim.program.memory import ProgramArray
from cupytma.sim.program.operation import Behaviour, Blocked, Operation
from cupytma.sim.program.ordering import Known, includes
from cupytma.sim.program.thread_barriers import ALIGNED, barrier_of, expected, explain
from cupytma.tensormap.tensor_map import TensorMap

if TYPE_CHECKING:
    from cupytma.sim.program.machine import Machine


def _fence(machine: Machine, operation: Operation) -> None:
    thread = operation.thread
    thread.fenced.join(thread.known)


def _fence_mbarrier_init(machine: Machine, operation: Operation) -> None:
    thread = operation.thread
    made = thread.known.events & machine.inits
    thread.known.async_shared |= made
    thread.fenced.join(thread.known.only(made))


def _fence_proxy_async(machine: Machine, operation: Operation, space: str | None) -> None:
    known = operation.thread.known
    if space != "global":
        known.async_shared |= known.events
    if space in (None, "global"):
        known.async_global |= known.events


def _release(machine: Machine, operation: Operation, scope: str) -> None:
    operation.thread.known.release(scope)


def _acquire(machine: Machine, operation: Operation, array: ProgramArray, scope: str) -> None:
    thread = operation.thread
    known, block = thread.known, thread.block
    store, _ = machine.store_of(array, thread)
    assert array.extent is not None
    block.acquires[array.address] = operation
    for access in store.history:
        if access.proxy != GENERIC or access.does == READ or not access.extent.common(array.extent):
            continue
        wanted = "sys" if access.operation is None else machine.scope_between(access.operation.thread.block, block)
        if not access.event & known.events:
            continue
        if not includes(scope, wanted):
            block.not_acquired[access.event] = f"{operation} acquires at scope {scope!r}, and {wanted!r} is needed"
        elif access.event & known.released(wanted):
            known.acquired |= access.event
            block.acquired |= access.event


def _replace(machine: Machine, operation: Operation, array: ProgramArray, field: str, value: int, ordinal: int) -> None:
    store = touch(machine, operation, array, WRITE)
    memory = store.bytes_of(array)
    before = TensorMap(array.read(memory).tobytes())
    array.write(memory, list(bytes(before.replace_raw(field, value, ordinal=ordinal))))


def _meet(machine: Machine, operation: Operation, destination: ProgramArray, source: ProgramArray, scope: str) -> None:
    barrier_of(machine, operation.thread, ALIGNED).arrive(operation.thread, Known())


def _met(machine: Machine, operation: Operation, *operands: object) -> bool:
    thread = operation.thread
    return barrier_of(machine, thread, ALIGNED).passes(thread, expected(machine, thread, ALIGNED, None))


def _missing_lanes(machine: Machine, operation: Operation, *operands: object) -> Blocked:
    return explain(machine, operation, ALIGNED, None)


def _copy_and_release(
    machine: Machine, operation: Operation, destination: ProgramArray, source: ProgramArray, scope: str
) -> None:
    """Executed by every lane, which all copy the same bytes: one event, and each lane has to know what comes before."""
    thread = operation.thread
    barrier = barrier_of(machine, thread, ALIGNED)
    meeting = barrier.name, barrier.tickets.pop(thread)
    event = machine.copied.get(meeting) or machine.event()
    machine.copied[meeting] = event
    found = source.read(touch(machine, operation, source, READ).bytes_of(source))
    thread.known.events |= event
    store = touch(machine, operation, destination, WRITE, event=event)
    destination.write(store.bytes_of(destination), found)
    thread.known.release(scope)


FENCE = Behaviour(_fence)
FENCE_MBARRIER_INIT = Behaviour(_fence_mbarrier_init)
FENCE_PROXY_ASYNC = Behaviour(_fence_proxy_async)
RELEASE = Behaviour(_release)
ACQUIRE = Behaviour(_acquire)
REPLACE = Behaviour(_replace)
CP_FENCEPROXY = Behaviour(_copy_and_release, _met, _missing_lanes, begin=_meet)
