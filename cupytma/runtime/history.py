"""The last launches of the process, for when one of them turns out to have failed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from cupytma.tensormap.fields import SIZE
from cupytma.tensormap.interop import ALIGNMENT
from cupytma.tensormap.tensor_map import TensorMap

if TYPE_CHECKING:
    from cupytma.runtime.signature import KernelParameter

Extents = tuple[int, int, int]
KEPT = 32
_UNKNOWN = "not known"
# Parameters of PTX have no sign; coordinates and most counts have.
_INTEGERS = {1: Struct("<b"), 2: Struct("<h"), 4: Struct("<i"), 8: Struct("<Q")}
_REALS = {2: Struct("<e"), 4: Struct("<f"), 8: Struct("<d")}


class LaunchRecord(NamedTuple):
    """One launch. It keeps the kernel alive, and no array.

    Attributes
    ----------
    kernel : Kernel
    grid, block : tuple of int
        Blocks of the grid and threads of a block: x, y, z.
    cluster : tuple of int or None
        Blocks of a cluster, where the launch said so.
    shared_bytes : int
        Dynamic shared memory of a block, in bytes.
    device : int or None
    parameters : bytes
        The kernel's parameter block, laid out as ``kernel.signature.parameters`` say.
    """

    kernel: Any
    grid: Extents
    block: Extents
    cluster: Extents | None
    shared_bytes: int
    device: int | None
    parameters: bytes

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(getattr(self.kernel, "name", None) or "a kernel without a name")

    @property
    def summary(self) -> str:
        """The launch in one line."""
        cluster = f", clusters of {self.cluster}" if self.cluster else ""
        shared = f", {self.shared_bytes} B of dynamic shared memory" if self.shared_bytes else ""
        device = "" if self.device is None else f", device {self.device}"
        return f"{self.name} (grid {self.grid}, block {self.block}{cluster}{shared}{device})"

    def tensor_maps(self) -> tuple[tuple[int, TensorMap], ...]:
        """Every tensor map among the arguments: its position, and the map.

        A map is what decodes of a struct of 128 bytes, or several times 128, that is aligned to 64 or more.
        """
        return tuple(
            (position, entry)
            for position, value in enumerate(self.values())
            if isinstance(value, tuple)
            for entry in value
        )

    def values(self) -> tuple[Any, ...]:
        """The arguments, as far as the kernel's declaration tells what they are.

        Returns
        -------
        tuple
            For each parameter a float; an int, of 8 bytes without a sign and of fewer with one; a tuple of tensor maps
            for a struct that holds them; bytes for other structs; None where the record is too short.
        """
        return tuple(map(self._value, self._declared()))

    def describe(self) -> str:
        """The launch and its arguments, one a line."""
        lines = [self.summary]
        for position, (parameter, value) in enumerate(zip(self._declared(), self.values(), strict=True)):
            lines += [f"  argument {position}: {text}" for text in _described(parameter, value)]
        return "\n".join(lines)

    def _declared(self) -> tuple[KernelParameter, ...]:
        signature = getattr(self.kernel, "signature", None)
        return tuple(getattr(signature, "parameters", ()))

    def _value(self, parameter: KernelParameter) -> Any:
        data = bytes(self.parameters[parameter.offset : parameter.offset + parameter.size])
        if len(data) != parameter.size:
            return None
        if parameter.is_struct:
            return tuple(_maps(data)) or data if parameter.alignment >= ALIGNMENT else data
        formats = _REALS if parameter.type.startswith("f") else _INTEGERS
        found = formats.get(parameter.size)
        return found.unpack(data)[0] if found else data


def _maps(data: bytes) -> Iterator[TensorMap]:
    """The maps in a struct; none where any of it is no map."""
    if len(data) % SIZE:
        return
    from cupytma.errors import DescriptorError

    found = [TensorMap(data[i : i + SIZE]) for i in range(0, len(data), SIZE)]
    try:
        for tensor_map in found:
            tensor_map.decode()
    except DescriptorError:
        return
    yield from found


def _described(parameter: KernelParameter, value: Any) -> Iterator[str]:
    if value is None:
        yield _UNKNOWN
    elif isinstance(value, tuple):
        yield from map(repr, value)
    elif isinstance(value, bytes):
        yield f"{parameter}: {value[:16].hex(' ')}{' …' if len(value) > 16 else ''}"
    elif isinstance(value, float):
        yield f"{value if math.isfinite(value) else str(value)} ({parameter})"
    else:
        yield f"{value:#x} ({parameter})" if parameter.size == 8 else f"{value} ({parameter})"


# The fields of a `LaunchRecord` but the last.
Noted = tuple[Any, Extents, Extents, "Extents | None", int, "int | None"]

launches: deque[tuple[Any, ...]] = deque(maxlen=KEPT)
"""The last launches, oldest first: the fields of `LaunchRecord` as one tuple; or those but the last, and the
`ParameterBlock` that holds it and is not used for another launch before this one is forgotten."""

remember = launches.append
"""Takes one launch. It is on the path of every launch, and so does nothing else."""


def recent() -> tuple[LaunchRecord, ...]:
    """The last launches, newest first."""
    return tuple(map(_record, reversed(launches.copy())))


def _record(entry: tuple[Any, ...]) -> LaunchRecord:
    if len(entry) == 2:
        noted, memory = entry
        return LaunchRecord._make((*noted, memory if isinstance(memory, bytes) else bytes(memory.data)))
    return LaunchRecord._make(entry)
