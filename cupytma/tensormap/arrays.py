"""Arrays, wherever they live, as parameters of a tensor map."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cupytma import targets
from cupytma.errors import ArrayError, DescriptorError
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.rules import Violation
from cupytma.tensormap.tensor_map import TensorMap, describe_violations

# Types that a tensor map has no name for travel as bits of the same size.
_CARRIERS: dict[str, DataType] = {
    "bool": DataType.UINT8,
    "int8": DataType.UINT8,
    "int16": DataType.UINT16,
    "complex64": DataType.UINT64,
}
_TMA_ALIGNMENT = 16


@dataclass(frozen=True)
class ArrayView:
    """Where an array's elements lie.

    Attributes
    ----------
    address : int
        Of element (0, …, 0), in bytes.
    shape : tuple of int
        In elements, array order (last dimension fastest in a C-contiguous array).
    strides : tuple of int
        In bytes, array order; may be zero or negative.
    dtype : str
        Name of the element type, such as ``"float16"``.
    itemsize : int
        Bytes of one element.
    device : int or None
        Number of the CUDA device, None for host memory.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: int | None

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


def view_of(array: Any) -> ArrayView:
    """The memory layout of an array. No data is touched.

    Parameters
    ----------
    array : array
        A torch tensor, or anything with ``__cuda_array_interface__`` (CuPy, Numba, JAX on a GPU) or
        ``__array_interface__`` (numpy).

    Raises
    ------
    ArrayError
        If the object is no such array.
    """
    if type(array).__module__.partition(".")[0] == "torch" and hasattr(array, "data_ptr"):
        size = array.element_size()
        return ArrayView(
            array.data_ptr(), tuple(array.shape), tuple(s * size for s in array.stride()),
            str(array.dtype).removeprefix("torch."), size, array.device.index if array.is_cuda else None,
        )
    interface = getattr(array, "__cuda_array_interface__", None)
    on_host = interface is None
    if on_host:
        interface = getattr(array, "__array_interface__", None)
    if interface is None:
        raise ArrayError(
            f"{type(array).__module__}.{type(array).__name__} is no array: it has neither __cuda_array_interface__ nor "
            "__array_interface__"
        )
    return _view_of_interface(array, interface, on_host)


def _view_of_interface(array: Any, interface: dict[str, Any], on_host: bool) -> ArrayView:
    import numpy as np

    dtype = np.dtype(getattr(array, "dtype", None) or interface["typestr"])
    shape = tuple(int(extent) for extent in interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides, step = [], dtype.itemsize
        for extent in reversed(shape):
            strides.insert(0, step)
            step *= extent
    device = None if on_host else int(getattr(getattr(array, "device", None), "id", 0))
    return ArrayView(
        int(interface["data"][0]), shape, tuple(int(s) for s in strides), dtype.name, dtype.itemsize, device
    )


def data_type_of(dtype: str) -> DataType:
    """The tensor-map type that carries an array's elements, by the dtype's name.

    float8, int8 and bool travel as UINT8, int16 as UINT16, complex64 as UINT64: the bits arrive unchanged.

    Raises
    ------
    ArrayError
        If there is none, with what to do instead.
    """
    carrier = _CARRIERS.get(dtype)
    if carrier is None and dtype.startswith("float8"):
        carrier = DataType.UINT8
    if carrier is not None:
        return carrier
    try:
        return DataType.of(dtype)
    except ValueError as error:
        raise ArrayError(
            f"a tensor map has no type for dtype {dtype}: {error}; view the array as one of them (complex128 as "
            "float64 with one more dimension)"
        ) from None


def tensor_map(
    array: Any,
    box: tuple[int, ...],
    *,
    element_strides: tuple[int, ...] | None = None,
    data_type: Any = None,
    interleave: Any = "NONE",
    swizzle: Any = "NONE",
    l2_promotion: Any = "NONE",
    oob_fill: Any = "NONE",
    target: str | targets.Target = targets.DEFAULT_TARGET,
) -> TensorMap:
    """The tensor map of an array.

    Parameters
    ----------
    array : array
        A device or host array of rank 1 to 5, of any strides that a tensor map can hold: dense in its last dimension,
        other strides multiples of 16 bytes. Strides of dimensions of size 1 do not matter.
    box : tuple of int
        Shape of the box one instruction moves, in elements, in array order.
    element_strides : tuple of int, optional
        In array order. Default: all 1.
    data_type : DataType or str, optional
        Default: from the array's dtype. float8, int8 and bool travel as UINT8, int16 as UINT16.
    interleave, swizzle, l2_promotion, oob_fill
        See `Tiled`.
    target : str or Target
        Default ``"sm_90a"``.

    Returns
    -------
    TensorMap
        In driver order: coordinate 0 in a kernel belongs to the array's last dimension.

    Raises
    ------
    ArrayError
        If the object is no array, or its dtype has no tensor-map type.
    DescriptorError
        Naming every broken rule in the array's own axis order.
    """
    view = view_of(array)
    rank = len(view.shape)
    box, element_strides = tuple(box), None if element_strides is None else tuple(element_strides)
    _check_lengths(rank, box, element_strides)
    strides = _normalised_strides(view)
    try:
        return Tiled(
            data_type=data_type_of(view.dtype) if data_type is None else data_type,
            global_address=view.address,
            global_dim=view.shape[::-1],
            global_strides=strides[-2::-1] if rank > 1 else (),
            box_dim=box[::-1],
            element_strides=None if element_strides is None else element_strides[::-1],  # type: ignore[arg-type]
            interleave=interleave, swizzle=swizzle, l2_promotion=l2_promotion, oob_fill=oob_fill,
        ).encode(target)
    except DescriptorError as error:
        renamed = tuple(_in_array_order(violation, rank) for violation in error.violations)
        raise DescriptorError(describe_violations(renamed) if renamed else str(error), renamed) from None


def _check_lengths(rank: int, box: tuple[int, ...], element_strides: tuple[int, ...] | None) -> None:
    if not 1 <= rank <= 5:
        raise DescriptorError(f"the array has rank {rank}; a tensor map has 1 to 5 dimensions: reshape or squeeze it")
    for name, value in (("box", box), ("element_strides", element_strides)):
        if value is not None and len(value) != rank:
            raise DescriptorError(f"{name} has {len(value)} entries; the array has {rank} dimensions")


def _normalised_strides(view: ArrayView) -> tuple[int, ...]:
    """The strides with those of size-1 dimensions, which no access uses, replaced by legal ones.

    Raises
    ------
    DescriptorError
        If the last dimension is not dense, or a stride is negative: a tensor map can say neither.
    """
    if view.shape[-1] > 1 and view.strides[-1] != view.itemsize:
        raise DescriptorError(
            f"the last dimension has stride {view.strides[-1]} B; a tensor map needs it dense ({view.itemsize} B): "
            "transpose the array so that the dense dimension comes last, or make a contiguous copy"
        )
    negative = [axis for axis, s in enumerate(view.strides) if s < 0 and view.shape[axis] > 1]
    if negative:
        raise DescriptorError(
            f"strides[{negative[0]}] = {view.strides[negative[0]]} B is negative; a tensor map holds strides from 0 "
            "up: flip the dimension back and reverse the coordinates, or make a contiguous copy"
        )
    strides, step = list(view.strides), view.itemsize
    for axis in reversed(range(len(strides))):
        if view.shape[axis] == 1:
            strides[axis] = -(-step // (2 * _TMA_ALIGNMENT)) * 2 * _TMA_ALIGNMENT
        step = max(step, min(strides[axis] * view.shape[axis], 1 << 39))
    return tuple(strides)


def _in_array_order(violation: Violation, rank: int) -> Violation:
    """The same violation with driver names and indices replaced by the array's."""

    def rename(text: str) -> str:
        text = re.sub(r"global_dim\[(\d)\]", lambda m: f"shape[{rank - 1 - int(m[1])}]", text)
        text = re.sub(
            r"global_strides\[(\d)\] = (\S+) B \(of dimension \d\)",
            lambda m: f"strides[{rank - 2 - int(m[1])}] = {m[2]} B", text,
        )
        text = re.sub(r"box_dim\[(\d)\]", lambda m: f"box[{rank - 1 - int(m[1])}]", text)
        return re.sub(r"element_strides\[(\d)\]", lambda m: f"element_strides[{rank - 1 - int(m[1])}]", text)

    return Violation(
        violation.rule, rename(violation.message), rename(violation.fix), violation.index, violation.severity
    )
