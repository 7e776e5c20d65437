"""Arrays, wherever they live, as parameters of a tensor map. Everything here is in array order."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cupytma import targets
from cupytma.errors import ArrayError, DescriptorError
from cupytma.tensormap.enums import DataType, Interleave
from cupytma.tensormap.parameters import Tiled
from cupytma.tensormap.rule import Violation
from cupytma.tensormap.strides import Axes, Coalesced, check_layout, check_shape, coalesce_view, normalised_strides
from cupytma.tensormap.tensor_map import TensorMap
from cupytma.tensormap.views import ArrayView, packed_elements, view_of
from cupytma.words import counted

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
PACKED_TYPES = (DataType.PACKED_16U4_ALIGN8B, DataType.PACKED_16U4_ALIGN16B, DataType.PACKED_16U6_ALIGN16B)


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
    options = {"interleave": interleave, "swizzle": swizzle, "l2_promotion": l2_promotion, "oob_fill": oob_fill}
    return merged_parameters(array, box, element_strides, data_type, coalesce, **options)[0]


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
    """The tensor map of an array. No data is touched; the map keeps the array alive (its ``source``).

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
    options = {"interleave": interleave, "swizzle": swizzle, "l2_promotion": l2_promotion, "oob_fill": oob_fill}
    parameters, axes = merged_parameters(array, box, element_strides, data_type, coalesce, **options)
    try:
        encoded = parameters.encode(target)
    except DescriptorError as error:
        raise array_order(error, parameters.rank) from None
    encoded.__dict__["_axes"] = axes
    if not isinstance(array, ArrayView):
        encoded.__dict__["_source"] = array
    if view_of(array).device is None:
        encoded.__dict__["_on_host"] = True
    return encoded


def moved(tensor_map: TensorMap, array: Any) -> TensorMap:
    """The same map of another array.

    Parameters
    ----------
    tensor_map : TensorMap
    array : array
        Laid out like the map's own (its ``source``); where that is not known, at least as many bytes as the map
        reaches.

    Returns
    -------
    TensorMap
        It keeps the new array alive.

    Raises
    ------
    ArrayError
        If it is no array, or laid out otherwise.
    DescriptorError
        If its address breaks a rule.
    """
    view, source = view_of(array), tensor_map.source
    if source is not None:
        before = view_of(source)
        for name in ("shape", "strides", "dtype"):
            if (found := getattr(view, name)) != (wanted := getattr(before, name)):
                raise ArrayError(
                    f"the map is of an array with {name} {wanted}, and this one has {name} {found}: make a map of it "
                    "with tensor_map"
                )
    elif (held := _reach(view)) < (needed := _map_reach(tensor_map)):
        raise ArrayError(
            f"the map reaches {needed} B, and this array has {held} B: make a map of it with tensor_map"
        )
    found = tensor_map.with_address(view.address)
    found.__dict__["_axes"] = tensor_map.axes
    found.__dict__["_source"] = array
    if view.device is None:
        found.__dict__["_on_host"] = True
    return found


def _reach(view: ArrayView) -> int:
    """Bytes from an array's first element to the end of its last, whatever lies between."""
    if not view.size:
        return 0
    steps = zip(view.shape, view.strides, strict=True)
    return view.itemsize + sum((extent - 1) * max(step, 0) for extent, step in steps)


def _map_reach(tensor_map: TensorMap) -> int:
    """The same of what a map describes."""
    p = tensor_map.decode()
    strides = (p.element_bytes, *p.global_strides)
    return int(p.element_bytes) + sum((extent - 1) * step for extent, step in zip(p.global_dim, strides, strict=True))


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
    message = str(error.args[0])  # not str(error), which ends with the line that the new error adds itself
    return DescriptorError(_renamed(message, rank), renamed)


# The driver's operand, the array's word for it, and which driver index the array's last axis has.
_NAMES = {
    "global_dim": ("shape", 0),
    "global_strides": ("strides", -1),
    "box_dim": ("box", 0),
    "tile": ("tile", 0),
    "element_strides": ("element_strides", 0),
}
_OPERAND = re.compile(rf"\b({'|'.join(_NAMES)})(?:\[(\d)\])?(?!\w)")
_DIMENSION = re.compile(r" \(of dimension \d\)")  # said by the index already, in array order


def _renamed(text: str, rank: int) -> str:
    def rename(match: re.Match[str]) -> str:
        name, last = _NAMES[match[1]]
        return name if match[2] is None else f"{name}[{rank - 1 + last - int(match[2])}]"

    return _OPERAND.sub(rename, _DIMENSION.sub("", text)).replace("global_address", "the array's address")


def merged_parameters(
    array: Any,
    box: Sequence[int],
    element_strides: Sequence[int] | None = None,
    data_type: Any = None,
    coalesce: bool | Sequence[Sequence[int]] = False,
    *,
    box_name: str = "box",
    **options: Any,
) -> tuple[Tiled, Axes]:
    """What `array_parameters` returns, and the array's axes that each dimension stands for, in array order.

    Parameters
    ----------
    box_name : str
        What messages call the box.
    **options
        ``interleave``, ``swizzle``, ``l2_promotion`` and ``oob_fill``.
    """
    view = view_of(array)
    axes: Axes = tuple((axis,) for axis in range(len(view.shape)))
    if coalesce is not False:
        merged = coalesce_view(view, None if coalesce is True else coalesce)
        view, axes = merged.view, merged.axes
    data_type = _data_type(view, data_type)
    slice_bytes = _slice_bytes(options.get("interleave", Interleave.NONE))
    check_shape(view, extra=1 if slice_bytes else 0)
    given = {box_name: integers(box_name, box)}
    if element_strides is not None:
        given["element_strides"] = integers("element_strides", element_strides)
    _check_lengths(view, axes, given)
    try:
        check_layout(view)
    except DescriptorError as error:
        raise _with_other_problems(error, view, given[box_name], data_type, options) from None
    if slice_bytes:
        view = _without_slice(view, slice_bytes, given[box_name], box_name)
        axes, given = axes[:-1], {name: value[:-1] for name, value in given.items()}
    strides = normalised_strides(view, max(slice_bytes, 16))
    parameters = _tiled(view, strides, given[box_name], given.get("element_strides"), data_type, options)
    if parameters.element_bytes != view.itemsize:
        raise ArrayError(
            f"data_type {parameters.data_type} has {parameters.element_bytes} B and the array's {view.dtype} elements "
            f"{view.itemsize} B: view the array with elements of that length first, since box and shape count them"
        )
    return parameters, axes


def _tiled(
    view: ArrayView,
    strides: Sequence[int],
    box: Sequence[int],
    element_strides: Sequence[int] | None,
    data_type: Any,
    options: dict[str, Any],
) -> Tiled:
    """The parameters of a view, everything given in array order."""
    return Tiled(
        data_type=data_type,
        global_address=view.address,
        global_dim=view.shape[::-1],
        global_strides=tuple(strides[-2::-1]) if len(strides) > 1 else (),
        box_dim=tuple(box[::-1]),
        element_strides=tuple((element_strides or (1,) * len(strides))[::-1]),
        **options,
    )


def _with_other_problems(
    error: DescriptorError, view: ArrayView, box: Sequence[int], data_type: Any, options: dict[str, Any]
) -> DescriptorError:
    """What is wrong with the layout, and whatever else is wrong beside it."""
    strides = [-(-abs(stride) // 32) * 32 for stride in view.strides]  # the layout itself has been judged
    try:
        broken = _tiled(view, strides, box, None, data_type, options).violations()
    except DescriptorError as other:
        return DescriptorError(f"{error}\n{other}")
    others = array_order(DescriptorError("", broken), len(view.shape)).violations
    return DescriptorError("\n".join([str(error), *map(str, others)]), others)


def _data_type(view: ArrayView, asked: Any) -> Any:
    """The element type: the array's own, or the one asked for."""
    if asked is None:
        return data_type_of(view.dtype)
    try:
        member = DataType.of(asked)
    except ValueError:
        return asked  # the parameters and the rules say what is wrong with it
    if member in PACKED_TYPES:
        raise ArrayError(packed_elements(str(member)))
    return member


def integers(name: str, values: Any) -> tuple[int, ...]:
    """A sequence of integers as a tuple.

    Raises
    ------
    DescriptorError
        If it is none.
    """
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError:
        raise DescriptorError(f"{name} = {values!r}: expected one integer per dimension") from None


def _check_lengths(view: ArrayView, axes: Axes, given: dict[str, tuple[int, ...]]) -> None:
    rank = len(view.shape)
    merged = f" after merging (axes {axes}, shape {view.shape})" if any(len(group) != 1 for group in axes) else ""
    for name, value in given.items():
        if len(value) != rank:
            raise DescriptorError(
                f"{name} has {counted(len(value), 'entry')}; the array has "
                f"{counted(rank, 'dimension')}{merged}: give one per dimension"
            )


def _slice_bytes(interleave: Any) -> int:
    """Bytes of a slice of channels; 0 without interleave, and where the parameters will refuse it."""
    try:
        return {Interleave.B16: 16, Interleave.B32: 32}.get(Interleave.of(interleave), 0)
    except ValueError:
        return 0


def _without_slice(view: ArrayView, slice_bytes: int, box: tuple[int, ...], box_name: str) -> ArrayView:
    """The dimensions that an interleaved map has: all but the slice, which must be what the map takes it for."""
    problems = []
    if view.shape[-1] * view.itemsize != slice_bytes:
        problems.append(
            f"the last dimension is {view.shape[-1]} × {view.itemsize} B = {view.shape[-1] * view.itemsize} B and must "
            f"be the slice of {slice_bytes} B"
        )
    if box[-1] != view.shape[-1]:
        problems.append(f"{box_name}[{len(box) - 1}] = {box[-1]} and must be the whole slice, {view.shape[-1]}")
    if len(box) > 1 and view.shape[-2] > 1 and view.strides[-2] != slice_bytes:
        problems.append(
            f"strides[{len(box) - 2}] = {view.strides[-2]} B and slices must follow one another, {slice_bytes} B apart"
        )
    if problems:
        raise DescriptorError(f"interleave {slice_bytes}B: {'; '.join(problems)}")
    return replace(view, shape=view.shape[:-1], strides=view.strides[:-1])
