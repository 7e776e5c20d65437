"""A tensor as its tensor map lays it out in global memory: from an array, or of generated elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from .array_files import LARGEST
from .failures import Failure
from .output import warn

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cupytma.sim import TileMap
    from cupytma.tensormap import DataType, Im2col, Im2colWide, Tiled

    AnyParameters = Tiled | Im2col | Im2colWide
    Bytes = npt.NDArray[np.uint8]
    Int64 = npt.NDArray[np.int64]

# Of the values that count up: integers that the type holds exactly, 2 to the bits of its mantissa (one is implied).
_EXACT_INTEGERS = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}
_TF32_INTEGERS = 1 << 11
CHUNK = 16
"""Bytes that a store writes whole at the end of a row (measured)."""


def element_dtype(data_type: DataType) -> np.dtype[Any]:
    """The numpy dtype whose values the elements have; bytes for packed types."""
    import numpy as np

    name: Any = data_type.name.lower().removesuffix("_ftz").replace("tfloat", "float")
    if name.startswith("packed"):
        return np.dtype(np.uint8)
    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    found: np.dtype[Any] = np.dtype(name)
    return found


@dataclass(frozen=True)
class Layout:
    """The tensor as an array in global memory, in numpy's order.

    Attributes
    ----------
    base : int
        Address of its first byte.
    shape, strides : tuple of int
        In elements, and in bytes. Of packed types the rows are bytes; with interleave the slice is the last dimension.
    dtype : dtype
    """

    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def reach(self) -> int:
        """Bytes from the first to the last of the tensor."""
        steps = zip(self.shape, self.strides, strict=True)
        return int(self.dtype.itemsize + sum((extent - 1) * step for extent, step in steps))

    @property
    def overlaps(self) -> bool:
        """Whether elements may share bytes: a stride is shorter than what the smaller strides reach over."""
        reach = self.dtype.itemsize
        for step, extent in sorted(zip(self.strides, self.shape, strict=True)):
            if extent > 1 and step < reach:
                return True
            reach = max(reach, step * (extent - 1) + reach)
        return False

    def view(self, memory: Bytes) -> npt.NDArray[Any]:
        """The tensor within the bytes from `base` on."""
        import numpy as np

        tensor: npt.NDArray[Any] = np.ndarray(self.shape, self.dtype, buffer=memory, strides=self.strides)
        return tensor

    def memory_of(self, array: npt.NDArray[Any], name: str) -> Bytes:
        """The bytes of memory from `base` on, with 16 more, that hold an array; zeros between its rows.

        Raises
        ------
        Failure
            If the array is none of the tensor's shape and size of elements, nor its bytes in memory.
        """
        import numpy as np

        if array.shape != self.shape and array.ndim == 1 and array.dtype == np.uint8:
            if array.size < self.reach:
                raise Failure(
                    f"{name} holds {array.size} bytes of memory, and the tensor map reaches over {self.reach}"
                )
            return np.concatenate([array, np.zeros(CHUNK, np.uint8)])
        self._check(array, name)
        if array.dtype.kind == "f" and array.dtype != self.dtype:
            warn(f"{name} holds {array.dtype}, whose bits are taken for {self.dtype}")
        memory = self.empty()
        self.view(memory)[...] = array.view(self.dtype) if array.dtype != self.dtype else array
        return memory

    def empty(self) -> Bytes:
        """Zeros from `base` on, with 16 bytes more: what a store may write past the last row.

        Raises
        ------
        Failure
            If the tensor is too large to be held here.
        """
        import numpy as np

        if self.reach > LARGEST:
            raise Failure(
                f"the tensor reaches over {self.reach:,} B of memory, and this command holds {LARGEST >> 30} GiB at "
                "most; encode a smaller tensor"
            )
        return np.zeros(self.reach + CHUNK, np.uint8)

    def _check(self, array: npt.NDArray[Any], name: str) -> None:
        problems = []
        if array.shape != self.shape:
            problems.append(
                f"shape {array.shape}, and the tensor map describes {self.shape} (numpy's order, dimension 0 last)"
            )
        if array.dtype.itemsize != self.dtype.itemsize:
            problems.append(f"elements of {array.dtype.itemsize} B, and the map's have {self.dtype.itemsize} B")
        if problems:
            raise Failure(f"{name} has {'; '.join(problems)}; give such an array, or memory as bytes (uint8, 1-D)")
        if self.overlaps:
            raise Failure(
                f"elements of this tensor share memory (strides of {self.strides} B), so that no array of its shape "
                f"says what it holds; give the {self.reach} bytes of memory as a 1-D uint8 array"
            )


def layout_of(parameters: AnyParameters) -> Layout:
    """Where a tensor map says that its elements are."""
    p, dtype = parameters, element_dtype(parameters.data_type)
    dims, strides = p.global_dim[::-1], p.global_strides[::-1]
    if p.slice_bytes:
        # Positions of dimension 0 are slices, and the strides begin at dimension 1.
        shape = (*dims, p.slice_bytes // dtype.itemsize)
        return Layout(p.global_address, shape, (*strides, p.slice_bytes, dtype.itemsize), dtype)
    if p.element_bits % 8:
        dims = (*dims[:-1], p.global_dim[0] * p.element_bits // 8)
    return Layout(p.global_address, dims, (*strides, dtype.itemsize), dtype)


def generated(kind: str, seed: int, index: Int64, data_type: DataType) -> npt.NDArray[Any]:
    """Values of elements, each by its number and the seed alone.

    Parameters
    ----------
    kind : str
        ``"index"``: the number itself, modulo what the type holds exactly. ``"random"``: all values of an integer type
        alike, from −1 to 1 of a floating-point one. ``"zeros"``.
    seed : int
    index : ndarray of int64
        Numbers of elements in memory order, dimension 0 fastest.
    data_type : DataType
    """
    import numpy as np

    dtype = element_dtype(data_type)
    if kind == "zeros":
        return np.zeros(index.shape, dtype)
    numbers = index.astype(np.uint64)
    if kind == "random":
        numbers = _mixed(numbers ^ _mixed(np.full(1, seed & (1 << 64) - 1, np.uint64)))
    if dtype.kind in "iu":
        integers: npt.NDArray[Any] = numbers.astype(f"u{dtype.itemsize}").view(dtype)
        return integers
    if kind == "random":
        values = (numbers >> np.uint64(11)).astype(np.float64) / 2**52 - 1
    else:
        exact = _TF32_INTEGERS if data_type.name.startswith("TFLOAT") else _EXACT_INTEGERS[dtype.name]
        values = (numbers % np.uint64(exact)).astype(np.float64)
    found: npt.NDArray[Any] = values.astype(dtype)
    return found


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers in which every bit depends on every bit of those given: the finaliser of SplitMix64."""
    import numpy as np

    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return found


def generated_window(kind: str, seed: int, parameters: AnyParameters, tile: TileMap) -> tuple[Bytes, int]:
    """The bytes of global memory that one tile reads, with generated elements, and the address of the first.

    Raises
    ------
    Failure
        If they are too far apart to be held.
    """
    import numpy as np

    inside = tile.inside
    if not inside.any():
        return np.zeros(1, np.uint8), parameters.global_address
    address = tile.global_address[inside]
    base = int(address.min())
    size = int(address.max()) + tile.unit_bytes - base
    if size > LARGEST:
        raise Failure(f"the rows of this tile are spread over {size:,} B of memory, and this command holds 1 GiB")
    window = np.zeros(size, np.uint8)
    dtype = element_dtype(parameters.data_type)
    per_unit = tile.unit_bytes // dtype.itemsize
    unit = np.uint64(per_unit) * _unit_numbers(parameters.global_dim, tile.unit_elements or 1, tile.coordinates[inside])
    numbers = (unit[:, None] + np.arange(per_unit, dtype=np.uint64)).view(np.int64)
    values = np.ascontiguousarray(generated(kind, seed, numbers, parameters.data_type)).view(np.uint8)
    window[(address - base)[:, None] + np.arange(tile.unit_bytes)] = values.reshape(len(address), -1)
    return window, base


def _unit_numbers(dims: Sequence[int], unit_elements: int, coordinates: Int64) -> npt.NDArray[np.uint64]:
    """Numbers of a tile's entries in the tensor, dimension 0 fastest; those of huge tensors begin again after 2^64."""
    import numpy as np

    extents = (-(-dims[0] // unit_elements), *dims[1:])
    steps = np.array([prod(extents[:i]) % 2**64 for i in range(len(dims))], np.uint64)
    counted = coordinates.astype(np.uint64)
    counted[:, 0] //= np.uint64(unit_elements)
    found: npt.NDArray[np.uint64] = (counted * steps).sum(axis=1, dtype=np.uint64)
    return found
