"""Tensor maps in global memory, for kernels to use through a pointer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import RLock
from typing import Any
from weakref import WeakSet

import numpy as np

from cupytma.errors import CupytmaError, DescriptorError, SlotError
from cupytma.ptx.tensormap import fence_proxy_tensormap_acquire
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.device_rules import MOST_FAILURES, failures_type
from cupytma.runtime.given import shown, whole
from cupytma.runtime.places import readers
from cupytma.runtime.transfer import Staging, check_tensor_map, stream_handle
from cupytma.targets import Target, target
from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import SLOT_ALIGNMENT
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.words import counted

_DEVICE_TO_HOST = 2
_STATUS_BYTES = 4
_RELEASE_SCOPES = ("gpu", "sys")
_MOST_SLOTS = 1 << 24
# What the host has written is acquired at the scope that takes in the host (CUDA programming guide, "Using TMA").
_ACQUIRE = fence_proxy_tensormap_acquire(scope="sys").function_name


class DescriptorBuffer:
    """Slots for tensor maps in the memory of the current device: 128 bytes each, aligned to 128.

    A kernel takes the buffer as a pointer, ``const CUtensorMap* maps`` or ``CUtensorMap* maps``, and slot ``i`` is
    ``maps + i``. Stream order alone does not show it what the host wrote: a thread of each block acquires a slot, at
    system scope, before threads of that block copy through it ::

        if (threadIdx.x == 0) cupytma::fence_proxy_tensormap_acquire_sys(maps + i);
        __syncthreads();                       // where another thread makes the copies

    One acquire covers the 128 bytes of one slot. A slot that the device itself changes (``cupytma.ptx.rebind``) is
    released by the device, at ``gpu`` scope for users on the same device, and acquired at ``gpu`` or ``sys`` scope.
    `cupytma.encode_on_device` and `cupytma.rebind_on_device` do so for any number of slots, at `release_scope`.

    Writes are ordered on a stream, and whole: launches before a write see the old maps, launches after it the new
    ones. A kernel in another stream that uses a slot while it is written may see neither: order the streams by an event
    first. The buffer keeps the maps that it holds, and with them the arrays that those were made of, until the slot is
    written again.

    Making a buffer waits for CuPy's current stream, and cannot be captured in a CUDA graph. Writes can; every replay
    then writes the maps of the capture.

    Parameters
    ----------
    slots : int
        How many maps it has room for.
    target : str or Target, optional
        Whose maps it takes. Default: the current device's.
    release_scope : str
        For whom the kernels of this package release the maps that they make: ``"gpu"`` for kernels of the same device,
        ``"sys"`` for others' too. Users acquire at this scope, or a wider one.

    Attributes
    ----------
    version : int
        How many writes there have been.
    release_scope : str
    device : cupy.cuda.Device
        Where it lies.

    Raises
    ------
    DescriptorError
        If `slots` is no positive integer, or `release_scope` is neither of the two.
    NoDeviceError
        If there is no GPU.

    Examples
    --------
    >>> buffer = tma.DescriptorBuffer(2)
    >>> buffer[0] = tma.tensor_map(a, box=(32, 64))
    >>> buffer.write([tma.tensor_map(a, box=(32, 64)), tma.tensor_map(b, box=(32, 64))])
    >>> kernel(grid, block, (buffer, out))
    """

    slot_bytes = SIZE
    """Bytes from one slot to the next."""

    def __init__(self, slots: int, *, target: str | Target | None = None, release_scope: str = "gpu") -> None:
        count = _count(slots)
        self.release_scope = _scope(release_scope)
        self.target = _target(target)
        module = cupy()
        self.device = module.cuda.Device()
        # After the slots: the memory that unusable ones describe, what the device notes of them, and their status.
        self._refuge = count * SIZE
        self._failures = self._refuge + SIZE
        self._status = self._failures + failures_type().itemsize
        self._bytes = self._status + _STATUS_BYTES * count
        self._memory = module.cuda.alloc(self._bytes + SLOT_ALIGNMENT)
        self._address = -(-int(self._memory.ptr) // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
        self._maps: list[TensorMap | None] = [None] * count
        self._staging = Staging()
        self._lock = RLock()
        self._is_judged = False  # whether a status may be other than 0
        self.version = 0
        self._clear()
        _live.add(self)

    @staticmethod
    def acquire_code(tensor_map: str = "maps") -> str:
        """The C++ statement by which a thread acquires a slot that the host wrote.

        Parameters
        ----------
        tensor_map : str
            The expression for the slot's address, such as ``"maps + i"``.
        """
        if not isinstance(tensor_map, str) or not tensor_map.strip():
            raise DescriptorError(f"tensor_map = {shown(tensor_map)}: a C++ expression (str) is needed")
        return f"cupytma::{_ACQUIRE}({tensor_map});"

    def __len__(self) -> int:
        return len(self._maps)

    def __iter__(self) -> Iterator[TensorMap | None]:
        return iter(tuple(self._maps))

    def __getitem__(self, index: Any) -> Any:
        """The map that the host last wrote to a slot, None for none; for a slice, a tuple of them."""
        if isinstance(index, slice):
            start, stop, step = self._bounds(index)
            return tuple(self._maps[i] for i in range(start, stop, step))
        return self._maps[self._slot(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write one slot, or with a slice as many as it has, on CuPy's current stream; see `write`."""
        if not isinstance(index, slice):
            self.write([value], self._slot(index))
            return
        start, stop, step = self._bounds(index)
        values = _listed(value)
        if step != 1:
            raise SlotError(f"a slice of slots must have step 1, and has {step}")
        if len(values) != max(0, stop - start):
            raise DescriptorError(f"{counted(len(values), 'map')} for {counted(max(0, stop - start), 'slot')}")
        self.write(values, start)

    def write(self, maps: Iterable[TensorMap], start: int = 0, *, stream: Any = None) -> None:
        """Write maps to slots that follow one another. Returns at once.

        Parameters
        ----------
        maps : iterable of TensorMap
        start : int
            The first slot.
        stream : stream or int, optional
            What the write is ordered on. Default: CuPy's current stream.

        Raises
        ------
        SlotError
            If there are not as many slots.
        DescriptorError
            If an entry is no map, or one that the device must not be given: of host memory, with bytes that make no
            map, or with a type or swizzle that the target lacks. Nothing is written then.
        """
        values = _listed(maps)
        if not values:
            return
        first = self.room(start, len(values))
        for slot, value in enumerate(values, first):
            self._check(slot, value)
        data = b"".join(map(bytes, values))
        with self._lock, self.device:
            self._staging.upload(self._address + first * SIZE, data, stream)
            if self._is_judged:
                size = _STATUS_BYTES * len(values)
                cupy().cuda.runtime.memsetAsync(self.status_address(first), 0, size, stream_handle(stream))
            self._maps[first : first + len(values)] = values
            self.version += 1

    def room(self, start: Any, count: int) -> int:
        """The first of as many slots that follow one another.

        Raises
        ------
        SlotError
            If there are not as many.
        """
        first = self._slot(start)
        if first + count > len(self):
            raise SlotError(
                f"{counted(count, 'map')} from slot {first} on; the buffer has {counted(len(self), 'slot')}"
            )
        return first

    def uploaded(self, values: Any, stream: Any) -> Any:
        """Numbers of the host in device memory, ordered on a stream; what a graph has of them lives with the buffer."""
        with self._lock:
            return self._staging.array(values, stream)

    def changed_by_device(self, first: int, count: int) -> None:
        """Note that kernels write slots, whose maps the host then does not know."""
        with self._lock:
            self._maps[first : first + count] = [None] * count
            self._is_judged = True
            self.version += 1

    @property
    def status(self) -> Any:
        """For each slot 0, or the rule that keeps its map from being used: uint32 in device memory, as CuPy's array.

        Kernels skip such a slot: ``if (!cupytma::tensormap::is_usable(status, i)) return;``. What the host writes is
        checked beforehand, and is 0.
        """
        module = cupy()
        memory = self._memory + (self.status_address() - int(self._memory.ptr))
        return module.ndarray((len(self),), np.uint32, memptr=memory)

    def status_address(self, index: int = 0) -> int:
        """The address of a slot's status in device memory, 4 bytes."""
        return self._address + self._status + _STATUS_BYTES * self._slot(index)

    @property
    def failures_address(self) -> int:
        """Where the device notes the parameters of maps that break a rule."""
        return self._address + self._failures

    @property
    def refuge_address(self) -> int:
        """Where unusable slots' maps lie: 128 bytes that nobody reads."""
        return self._address + self._refuge

    def check(self, stream: Any = None) -> None:
        """Wait for the stream, and raise if the device was given parameters that break a rule, once for each.

        Parameters
        ----------
        stream : stream or int, optional
            Default: CuPy's current stream.

        Raises
        ------
        DescriptorError
            Naming the slots, and every rule that is broken. The slots stay unusable until they are made again.
        DriverError
            If a kernel before it has failed.
        """
        from cupytma.runtime.faults import synchronize

        size = failures_type().itemsize
        with self._lock, self.device:
            handle, module = stream_handle(stream), cupy()
            memory = module.cuda.alloc_pinned_memory(size)
            module.cuda.runtime.memcpyAsync(memory.ptr, self.failures_address, size, _DEVICE_TO_HOST, handle)
            synchronize(handle)
            found = np.frombuffer(memory, np.uint8, size).view(failures_type())[0].copy()
            if not found["count"]:
                return
            module.cuda.runtime.memsetAsync(self.failures_address, 0, size, handle)
        raise DescriptorError(_told(found, self.target))

    def address(self, index: int = 0) -> int:
        """The address of a slot in device memory, a multiple of 128."""
        return self._address + SIZE * self._slot(index)

    def to_host(self, stream: Any = None) -> tuple[TensorMap | None, ...]:
        """What the slots hold in device memory, also what the device itself wrote; waits for the stream.

        Returns
        -------
        tuple of TensorMap or None
            None for slots of zeros. Bytes are not judged: `TensorMap.decode` does that.

        Raises
        ------
        DriverError
            If a kernel before it has failed, with the explanation of `explain_fault`.
        """
        from cupytma.runtime.faults import synchronize

        size, handle = SIZE * len(self), stream_handle(stream)
        with self.device:
            module = cupy()
            memory = module.cuda.alloc_pinned_memory(size)
            module.cuda.runtime.memcpyAsync(memory.ptr, self._address, size, _DEVICE_TO_HOST, handle)
            synchronize(handle)
        data = np.frombuffer(memory, np.uint8, size).tobytes()
        slots = (data[i : i + SIZE] for i in range(0, size, SIZE))
        return tuple(TensorMap(slot) if any(slot) else None for slot in slots)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The slots as an array of uint8, shape (slots, 128), so that a kernel takes the buffer as a pointer."""
        return {
            "shape": (len(self), SIZE), "typestr": "|u1", "data": (self._address, False), "strides": None, "version": 3,
        }  # fmt: skip

    def __repr__(self) -> str:
        written = sum(entry is not None for entry in self._maps)
        return (
            f"<DescriptorBuffer of {counted(len(self), 'slot')} at {self._address:#x}, device {self.device.id}: "
            f"{written} written, version {self.version}>"
        )

    def _clear(self) -> None:
        """Zeros everywhere. Waited for: the memory may have been another's, and the first write go to any stream."""
        handle = stream_handle(None)
        self._staging.upload(self._address, bytes(self._bytes), handle)
        cupy().cuda.runtime.streamSynchronize(handle)
        self._staging.reclaim()

    def _slot(self, index: Any) -> int:
        try:
            slot = whole(index)
        except TypeError:
            raise SlotError(f"slot {shown(index)}: a whole number is needed") from None
        if not -len(self) <= slot < len(self):
            raise SlotError(f"slot {shown(slot)}: the buffer has slots 0 to {len(self) - 1}")
        return slot % len(self)

    def _bounds(self, index: slice) -> tuple[int, int, int]:
        try:
            return index.indices(len(self))
        except Exception as error:  # a caller's class may raise anything
            raise SlotError(f"slots {shown(index)}: {error}") from None

    def _check(self, slot: int, value: Any) -> None:
        if not isinstance(value, TensorMap):
            raise DescriptorError(f"slot {slot} takes a TensorMap, not a {type(value).__name__}")
        try:
            check_tensor_map(value, self.target)
        except TypeError as error:
            raise DescriptorError(f"slot {slot}: {error}") from None


_live: WeakSet[DescriptorBuffer] = WeakSet()


def buffer_at(address: int) -> DescriptorBuffer | None:
    """The buffer of descriptors that an address lies in, if any."""
    for buffer in tuple(_live):
        if 0 <= address - buffer.address(0) < SIZE * len(buffer):
            return buffer
    return None


def _count(slots: Any) -> int:
    try:
        count = whole(slots)
    except TypeError:
        raise DescriptorError(f"slots = {shown(slots)}: how many slots, a whole number, is needed") from None
    if not 1 <= count <= _MOST_SLOTS or isinstance(slots, bool):
        raise DescriptorError(f"slots = {shown(slots)} is outside 1…{_MOST_SLOTS}")
    return count


def _scope(chosen: Any) -> str:
    if chosen not in _RELEASE_SCOPES:
        raise DescriptorError(
            f"release_scope = {shown(chosen)}: choose from {', '.join(_RELEASE_SCOPES)}; narrower ones reach no other "
            "kernel"
        )
    return str(chosen)


def _told(found: Any, chosen: Target) -> str:
    """What the device has noted, in words."""
    from cupytma.runtime.device_rules import OPERANDS, REFUSALS, rule_ids
    from cupytma.runtime.operand_columns import explained

    refusals, ids = {refusal.id: refusal.message for refusal in REFUSALS}, rule_ids(chosen.name)
    count, lines = int(found["count"]), []
    for entry in sorted(found["first"][: min(count, MOST_FAILURES)], key=lambda entry: int(entry["slot"])):
        rule = ids[int(entry["rule"]) - 1]
        operands = {name: tuple(map(int, np.atleast_1d(entry[name]))) for name, _ in OPERANDS}
        message = f"{rule}: {refusals[rule]}" if rule in refusals else explained(operands, chosen)
        lines.append(f"slot {int(entry['slot'])}: {message}")
    if count > len(lines):
        lines.append(f"and {count - len(lines)} more")
    return "\n".join([f"parameters on the device made no map, and their slots are not to be used ({count}):", *lines])


def _target(chosen: str | Target | None) -> Target:
    return current_target() if chosen is None else target(chosen)


def _listed(maps: Any) -> list[Any]:
    if isinstance(maps, TensorMap):
        return [maps]
    try:
        return list(maps)
    except CupytmaError:
        raise
    except Exception as error:  # a caller's iterable may raise anything
        raise DescriptorError(f"maps is a {type(maps).__name__}; an iterable of tensor maps is needed") from error


def _place(buffer: DescriptorBuffer) -> tuple[int, int]:
    return buffer._address, int(buffer.device.id)


readers[DescriptorBuffer] = _place  # a buffer is an argument of many launches, and its interface takes its time
