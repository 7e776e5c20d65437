"""What a program declares in memory: arrays in global and shared memory, and mbarriers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.limits import MAX_CLUSTER
from cupytma.sim.program.errors import ProgramError, check_range
from cupytma.sim.program.extents import Extent, extent_of

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]

MBARRIER_BYTES = 8


@dataclass(frozen=True)
class Allocation:
    """A named piece of memory.

    Attributes
    ----------
    name : str
    space : str
        ``"global"`` or ``"shared"``; shared memory has one such piece in every block, at the same place.
    address : int
        Of the first byte: a global address, or the place in shared memory.
    size : int
        In bytes.
    """

    name: str
    space: str
    address: int
    size: int


@dataclass(frozen=True, eq=False)
class ProgramArray:
    """An array of a program, or a part of one, chosen by indexing as numpy does.

    Attributes
    ----------
    allocation : Allocation
        The array it is, or is a part of.
    dtype : numpy.dtype
    offsets : ndarray of int64
        Byte of the allocation at which each element starts, in the part's shape.
    rank : int or None
        The block of the cluster whose shared memory is meant; None for the executing block's own.
    """

    allocation: Allocation
    dtype: np.dtype[Any]
    offsets: Int64
    rank: int | None = None

    def __getitem__(self, index: Any) -> ProgramArray:
        try:
            return replace(self, offsets=np.asarray(self.offsets[index]))
        except (IndexError, TypeError) as error:
            raise ProgramError(f"{self.name} of shape {self.shape} cannot be indexed by {index!r}: {error}") from None

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self.offsets)))

    def mapa(self, rank: int) -> ProgramArray:
        """The same place in the shared memory of another block of the cluster (PTX ISA, "mapa").

        Parameters
        ----------
        rank : int
            The block's rank in the cluster.

        Raises
        ------
        ProgramError
            For an array in global memory, or a rank that no cluster has.
        """
        if self.space != "shared":
            raise ProgramError(f"{self.name} is in global memory, which all blocks share; mapa is for shared memory")
        return replace(self, rank=check_range("rank", rank, 0, MAX_CLUSTER - 1))

    @property
    def name(self) -> str:
        """The name it was declared with."""
        return self.allocation.name

    @property
    def space(self) -> str:
        """``"global"`` or ``"shared"``."""
        return self.allocation.space

    @property
    def shape(self) -> tuple[int, ...]:
        """In elements, array order."""
        return self.offsets.shape

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return self.offsets.size * self.dtype.itemsize

    @property
    def address(self) -> int:
        """Of the first element in bytes: a global address, or the place in the block's shared memory."""
        return self.allocation.address + (int(self.offsets.flat[0]) if self.offsets.size else 0)

    @cached_property
    def places(self) -> Int64:
        """Every byte, counted from the allocation's first, shape ``shape + (itemsize,)``."""
        return np.add.outer(self.offsets, np.arange(self.dtype.itemsize, dtype=np.int64))

    @cached_property
    def extent(self) -> Extent | None:
        """The bytes it covers, by address; None if it is empty."""
        found = extent_of(self.offsets, self.dtype.itemsize)
        return None if found is None else found.shifted(self.allocation.address)

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie one after another."""
        return bool((np.diff(self.offsets.ravel()) == self.dtype.itemsize).all())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For `cupytma.tensor_map`, which reads addresses, shapes and strides and no data."""
        if self.space != "global":
            raise AttributeError(f"{self.name} is in shared memory, which no tensor map describes")
        strides = tuple(
            int(np.diff(self.offsets, axis=axis).flat[0]) if extent > 1 and self.offsets.size else self.dtype.itemsize
            for axis, extent in enumerate(self.shape)
        )
        return {
            "version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False),
            "strides": strides,
        }  # fmt: skip

    def read(self, memory: Bytes) -> npt.NDArray[Any]:
        """A copy of its elements, `memory` being the allocation's bytes."""
        found: npt.NDArray[Any] = np.ascontiguousarray(memory[self.places]).view(self.dtype)[..., 0]
        return found

    def write(self, memory: Bytes, values: Any) -> None:
        """Set its elements.

        Raises
        ------
        ProgramError
            If the values do not fit its shape or type.
        """
        try:
            filled = np.array(np.broadcast_to(np.asarray(values).astype(self.dtype), self.shape), order="C")
        except (TypeError, ValueError) as error:
            what = f"{self.name} of shape {self.shape} and dtype {self.dtype}"
            raise ProgramError(f"{what} cannot hold these values: {error}") from None
        memory[self.places] = filled[..., None].view(np.uint8)

    def __repr__(self) -> str:
        rank = "" if self.rank is None else f" of block {self.rank} of the cluster"
        return f"<{self.space} {self.name} {self.dtype} {'×'.join(map(str, self.shape)) or 'scalar'}{rank}>"


def whole_array(allocation: Allocation, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ProgramArray:
    """All of an allocation as a C-contiguous array."""
    count = prod(shape)
    offsets = (np.arange(count, dtype=np.int64) * dtype.itemsize).reshape(shape)
    return ProgramArray(allocation, dtype, offsets)


@dataclass(frozen=True)
class Mbarrier:
    """An mbarrier object in the shared memory of every block.

    Attributes
    ----------
    allocation : Allocation
        Its 8 bytes.
    rank : int or None
        The block of the cluster that is meant; None for the executing block's own.
    """

    allocation: Allocation
    rank: int | None = None

    def mapa(self, rank: int) -> Mbarrier:
        """The barrier at the same place of another block of the cluster (PTX ISA, "mapa").

        Raises
        ------
        ProgramError
            For a rank that no cluster has.
        """
        return replace(self, rank=check_range("rank", rank, 0, MAX_CLUSTER - 1))

    @property
    def name(self) -> str:
        """The name it was declared with."""
        return self.allocation.name

    def __repr__(self) -> str:
        rank = "" if self.rank is None else f" of block {self.rank} of the cluster"
        return f"<mbarrier {self.name}{rank}>"
