"""Arrays, wherever they live, as parameters of a tensor map. Everything here is in array order."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cupytma import targets
from cupytma.errors import ArrayError, DescriptorError
from cupytma.tensormap.dlpack import packed_elements
from cupytma.tensormap.enums import DataType, Interleave
from cupytma.tensormap.fields import DATA_TYPES
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.rules import Violation
from cupytma.tensormap.strides import Coalesced, check_inner, coalesce_view, mergeable_axes, normalised_strides
from cupytma.tensormap.tensor_map import TensorMap, describe_violations
from cupytma.tensormap.views import ArrayView, view_of

__all__ = [
    "ArrayView", "Coalesced", "array_order", "array_parameters", "coalesced", "data_type_of", "tensor_map", "view_of",
]

# Types that a tensor map has no name for travel as bits of the same size.
_CARRIERS: dict[str, DataType] = {
    "bool": DataType.UINT8,
    "int8": DataType.UINT8,
    "int16": DataType.UINT16,
    "complex32": DataType.UINT32,
    "complex64": DataType.UINT64,
}
_PACKED = re.compile(r"(u?int|float|bits)[1-7]([_x].*)?$")
_MAX_RANK = 5
_SLICE_BYTES = {Interleave.B16: 16, Interleave.B32: 32}
Axes = tuple[tuple[int, ...], ...]


def data_type_of(dtype: str) -> DataType:
    """The tensor-map type that carries an array's elements, by the dtype's name.

    float8 of every kind, int8 and bool travel as UINT8, int16 as UINT16, complex32 and complex64 as UINT32 and UINT64:
    the bits arrive unchanged.

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
    if _PACKED.match(dtype):
        raise ArrayError(packed_elements(dtype))
    try:
        return DataType.of(dtype)
    except ValueError as error:
        raise ArrayError(
            f"a tensor map has no type for dtype {dtype}: {error}; view the array as one of them (complex128 as "
            "float64 with one more dimension, a structure as bytes)"
        ) from None


def array_parameters(
    array: Any,
    box: Sequence[int],
    *,
    element_strides: Sequence[int] | None = None,
    data_type: Any = None,
    interleave: Any = "NONE",
    swizzle: Any = "NONE",
    l2_promotion: Any = "NONE",
    oob_fill: Any = "NONE",
    coalesce: bool | Sequence[Sequence[int]] = False,
) -> Tiled:
    """An array as the parameters of its tensor map, which are in driver order. Operands as for `tensor_map`.

    Only what no parameters could say is refused here; the rules are asked by `Tiled.violations` and `Tiled.encode`.

    Returns
    -------
    Tiled
        In driver order: ``global_dim[0]`` is the extent of the array's last dimension. It does not keep the array
        alive.

    Raises
    ------
    ArrayError
        If the object is no array, or its dtype has no tensor-map type.
    DescriptorError
        If the rank is not 1 to 5, the array is empty, its last dimension is not dense, a stride is negative, or
        `box` has another length than the array (the merged array, with `coalesce`) has dimensions.
    """
    parameters, _ = _parameters(
        array, box, element_strides, data_type, coalesce,
        {"interleave": interleave, "swizzle": swizzle, "l2_promotion": l2_promotion, "oob_fill": oob_fill},
    )
    return parameters


def tensor_map(
    array: Any,
    box: Sequence[int],
    *,
    element_strides: Sequence[int] | None = None,
    data_type: Any = None,
    interleave: Any = "NONE",
    swizzle: Any = "NONE",
    l2_promotion: Any = "NONE",
    oob_fill: Any = "NONE",
    coalesce: bool | Sequence[Sequence[int]] = False,
    target: str | targets.Target = targets.DEFAULT_TARGET,
) -> TensorMap:
    """The tensor map of an array. No data is touched, and the array is not kept alive.

    Parameters
    ----------
    array : array
        A device or host array of rank 1 to 5 (see `view_of` for what counts as one), of any strides that a tensor map
        can hold: dense in its last dimension, other strides multiples of 16 bytes from 0 to 2^40 − 1. Strides of
        dimensions of size 1 do not matter, whatever they are. Broadcast dimensions (stride 0) are kept.
    box : sequence of int
        Shape of the box one instruction moves, in elements, in array order. With `coalesce`, over the merged
        dimensions.
    element_strides : sequence of int, optional
        In array order. Default: all 1.
    data_type : DataType or str, optional
        Default: from the array's dtype. float8, int8 and bool travel as UINT8, int16 as UINT16. Another type must have
        as many bytes as the array's elements.
    interleave : Interleave or str
        With 16B or 32B the array's last dimension is the slice: dense and exactly as long. It is no dimension of the
        tensor map, so that ``(N, C/8, H, W, 8)`` of 2-byte elements gives a map of rank 4; its box entry is the whole.
    swizzle, l2_promotion, oob_fill
        See `Tiled`.
    coalesce : bool or sequence of axis groups
        False: dimensions are kept as they are. True: all dimensions that follow one another in memory are merged.
        ``((0, 1), (2,))``: exactly these groups of axes become one dimension each. What became what is in the result's
        ``axes``; `coalesced` tells beforehand.
    target : str or Target
        Default ``"sm_90a"``.

    Returns
    -------
    TensorMap
        In driver order: coordinate 0 in a kernel belongs to the array's last dimension. Its attribute ``axes`` holds,
        in array order, the array's axes that each dimension of the map stands for.

    Raises
    ------
    ArrayError
        If the object is no array, or its dtype has no tensor-map type.
    DescriptorError
        Naming every broken rule in the array's own axis order (a violation's ``index`` stays the driver's).

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((4, 64, 256), np.float16)
    >>> tensor_map(image, box=(1, 8, 64), swizzle="128B").decode().global_dim
    (256, 64, 4)
    >>> merged = tensor_map(image, box=(8, 64), coalesce=((0, 1), (2,)))
    >>> merged.axes, merged.decode().global_dim
    (((0, 1), (2,)), (256, 256))
    """
    parameters, axes = _parameters(
        array, box, element_strides, data_type, coalesce,
        {"interleave": interleave, "swizzle": swizzle, "l2_promotion": l2_promotion, "oob_fill": oob_fill},
    )
    try:
        encoded = parameters.encode(target)
    except DescriptorError as error:
        raise array_order(error, parameters.rank) from None
    encoded.__dict__["axes"] = axes
    return encoded


def coalesced(array: Any, axes: Sequence[Sequence[int]] | None = None) -> Coalesced:
    """An array with dimensions merged that follow one another in memory. No data is touched.

    Parameters
    ----------
    array : array
        Anything that `view_of` takes, of any rank.
    axes : sequence of sequences of int, optional
        The axes that become one dimension each, in array order, all of them and each once, such as ``((0, 1), (2,))``.
        Default: everything is merged that can be, also into the last dimension; axes of size 1 go with a neighbour.

    Returns
    -------
    Coalesced
        ``view``: an `ArrayView` of the merged array, which `tensor_map` takes like any array. ``axes``: which axes of
        the array became which dimension.

    Raises
    ------
    ArrayError
        If the object is no array.
    DescriptorError
        If axes that do not follow one another in memory are to be merged; the message says which, and by how much.

    Examples
    --------
    >>> import numpy as np
    >>> merged = coalesced(np.zeros((4, 8, 64), np.float32)[:, :, :32])
    >>> merged.view.shape, merged.axes
    ((32, 32), ((0, 1), (2,)))
    """
    return coalesce_view(view_of(array), axes)


def array_order(error: DescriptorError, rank: int) -> DescriptorError:
    """The same error with the driver's names and indices replaced by the array's.

    Parameters
    ----------
    error : DescriptorError
    rank : int
        Of the tensor map.
    """
    renamed = tuple(
        Violation(v.rule, _renamed(v.message, rank), _renamed(v.fix, rank), v.index, v.severity)
        for v in error.violations
    )
    return DescriptorError(describe_violations(renamed) if renamed else _renamed(str(error), rank), renamed)


# The driver's operand, the array's word for it, and which driver index the array's last axis has.
_NAMES = {
    "global_dim": ("shape", 0),
    "global_strides": ("strides", -1),
    "box_dim": ("box", 0),
    "element_strides": ("element_strides", 0),
}
_OPERAND = re.compile(rf"\b({'|'.join(_NAMES)})(?:\[(\d)\])?(?!\w)")
_DIMENSION = re.compile(r"\(of dimension (\d)\)")


def _renamed(text: str, rank: int) -> str:
    def rename(match: re.Match[str]) -> str:
        name, last = _NAMES[match[1]]
        return name if match[2] is None else f"{name}[{rank - 1 + last - int(match[2])}]"

    text = _DIMENSION.sub(lambda match: f"(of axis {rank - 1 - int(match[1])})", text)
    return _OPERAND.sub(rename, text).replace("global_address", "the array's address")


@dataclass(frozen=True)
class _Slot:
    """The dimensions of an array that become dimensions of a tensor map, and what the instructions move at once."""

    view: ArrayView
    axes: Axes


def _parameters(
    array: Any,
    box: Sequence[int],
    element_strides: Sequence[int] | None,
    data_type: Any,
    coalesce: bool | Sequence[Sequence[int]],
    options: dict[str, Any],
) -> tuple[Tiled, Axes]:
    view = view_of(array)
    axes: Axes = tuple((axis,) for axis in range(len(view.shape)))
    if coalesce is not False:
        merged = coalesce_view(view, None if coalesce is True else coalesce)
        view, axes = merged.view, merged.axes
    kind = _data_type(view, data_type)
    interleave = Interleave.of(options["interleave"])
    _check_extents(view, interleave)
    lengths = {"box": _integers("box", box)}
    if element_strides is not None:
        lengths["element_strides"] = _integers("element_strides", element_strides)
    _check_lengths(view, axes, lengths)
    check_inner(view)
    if interleave != Interleave.NONE:
        view = _without_slice(view, _SLICE_BYTES[interleave], lengths)
        axes = axes[:-1]
    strides = normalised_strides(view, 32 if interleave == Interleave.B32 else 16)
    return Tiled(
        data_type=kind,
        global_address=view.address,
        global_dim=view.shape[::-1],
        global_strides=strides[-2::-1] if len(strides) > 1 else (),
        box_dim=lengths["box"][::-1],
        element_strides=lengths["element_strides"][::-1] if "element_strides" in lengths else None,  # type: ignore[arg-type]
        **options,
    ), axes
