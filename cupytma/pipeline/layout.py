"""The common layout of a pipeline's arrays: broadcast to one shape, with the fewest dimensions that walk them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from cupytma.errors import ArrayError, PipelineError
from cupytma.limits import MAX_EXTENT, MAX_RANK
from cupytma.ops.layout import check_address, check_overlap, share_memory
from cupytma.pipeline.declarations import Declaration, Declared
from cupytma.tensormap.arrays import ArrayView
from cupytma.words import counted

_LARGEST = MAX_EXTENT - 2**12  # coordinates are int, also those of a tile that reaches beyond


@dataclass(frozen=True)
class Dimension:
    """One dimension of all arrays: its extent in elements, and each array's stride in bytes."""

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How arrays are walked together.

    Attributes
    ----------
    shape : tuple of int
        That they are broadcast to, array order.
    offsets : tuple of int
        Distance of where each array's walk begins from its address, in bytes.
    dimensions : tuple of Dimension
        Innermost first; at least one.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    dimensions: tuple[Dimension, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the dimensions, innermost first."""
        return tuple(dimension.extent for dimension in self.dimensions)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def broadcast_shape(declared: Sequence[Declared], views: Sequence[ArrayView]) -> tuple[int, ...]:
    """The shape that inputs are broadcast to, as numpy does it.

    Raises
    ------
    ArrayError
        If they have none.
    """
    rank = max(len(view.shape) for view in views)
    shape = [1] * rank
    for view in views:
        for axis, extent in enumerate(view.shape, rank - len(view.shape)):
            if extent != 1 and shape[axis] not in (1, extent):
                shapes = ", ".join(f"{d.name} {v.shape}" for d, v in zip(declared, views, strict=True))
                raise ArrayError(f"the inputs' shapes cannot be broadcast together: {shapes}")
            if extent != 1:
                shape[axis] = extent
    return tuple(shape)


def result_shape(declaration: Declaration, shape: tuple[int, ...], position: int) -> tuple[int, ...]:
    """The shape of one of the results, for inputs of a shape."""
    if position < len(declaration.outputs):
        return shape
    return shape[:-1] if declaration.over == "row" else ()


def check_arrays(declaration: Declaration, inputs: Sequence[ArrayView], results: Sequence[ArrayView]) -> None:
    """Refuse arrays that are not as declared, or whose result would depend on the order of the tiles.

    Raises
    ------
    ArrayError
        Naming the array.
    """
    shape = broadcast_shape(declaration.inputs, inputs)
    named = [*zip(declaration.inputs, inputs, strict=True), *zip(declaration.results, results, strict=True)]
    for declared, view in named:
        check_address(view, declared.name)
        if view.dtype != declared.type.name:
            raise ArrayError(
                f"{declared.name} is {view.dtype}, and {declared.type.name} is declared; convert it, or make a kernel "
                "that declares its type"
            )
        steps = [stride for extent, stride in zip(view.shape, view.strides, strict=True) if extent > 1]
        if view.size and any(number % view.itemsize for number in (view.address, *steps)):
            raise ArrayError(
                f"{declared.name}'s elements do not lie at multiples of their {view.itemsize} B (address "
                f"{view.address % view.itemsize} mod {view.itemsize}, strides {view.strides} B): copy it to an array "
                "of its own first"
            )
    for position, (declared, view) in enumerate(zip(declaration.results, results, strict=True)):
        wanted = result_shape(declaration, shape, position)
        if view.shape != wanted:
            raise ArrayError(f"{declared.name} has shape {view.shape}; the inputs make one of {wanted}")
        if view.read_only and view.size:
            raise ArrayError(f"{declared.name} is read-only; give an array that may be written")
        if view.size:
            try:
                check_overlap(view, view)
            except ArrayError:
                raise ArrayError(
                    f"{declared.name}'s elements overlap in memory (strides {view.strides} B, shape {view.shape}): "
                    "give an array in which every element has its own place"
                ) from None
    _check_apart(declaration, inputs, results)


def _check_apart(declaration: Declaration, inputs: Sequence[ArrayView], results: Sequence[ArrayView]) -> None:
    for position, (declared, view) in enumerate(zip(declaration.results, results, strict=True)):
        tiled = position < len(declaration.outputs)
        for other, source in zip(declaration.inputs, inputs, strict=True):
            same = (source.address, source.shape, source.strides) == (view.address, view.shape, view.strides)
            if not (tiled and same) and share_memory(source, view):
                raise ArrayError(
                    f"{declared.name} overlaps {other.name} in memory; only an output that is the very same array as "
                    "an input may: give it memory of its own"
                )
        for other, second in list(zip(declaration.results, results, strict=True))[:position]:
            if share_memory(view, second):
                raise ArrayError(f"{declared.name} overlaps {other.name} in memory; give each result memory of its own")


def common_layout(
    declaration: Declaration, inputs: Sequence[ArrayView], results: Sequence[ArrayView], as_they_are: bool = False
) -> Layout:
    """Walk the inputs, outputs and results of reductions together.

    Dimensions keep their places where the consumer's code says `at`, `shape` or `box`, or has tiles as they are, and
    where the caller wants it; the last one keeps its place where rows matter. All others are merged where that is
    possible.

    Raises
    ------
    ArrayError
        If more than five dimensions are left, or an extent is too large.
    """
    shape = broadcast_shape(declaration.inputs, inputs)
    rank = len(shape)
    strides = [_broadcast(view, rank) for view in inputs]
    for position, view in enumerate(results):
        missing = rank - len(view.shape)
        if position < len(declaration.outputs):
            strides.append(_settled(view))
        else:  # it stays in place along what is combined
            strides.append((*_settled(view), *(0,) * missing))
    dimensions = [
        Dimension(extent, tuple(array[axis] for array in strides)) for axis, extent in enumerate(shape)
    ][::-1] or [Dimension(1, tuple(0 for _ in strides))]
    keep = len(dimensions) if as_they_are else _kept(declaration, len(dimensions))
    inner, outer = dimensions[:keep], dimensions[keep:]
    offsets = [0] * len(strides)
    outer = _sorted([_forward(dim, offsets) for dim in outer if dim.extent > 1], len(declaration.inputs), strides)
    merged = _merged([*inner, *outer], keep) or [Dimension(1, tuple(0 for _ in strides))]
    if len(merged) > MAX_RANK:
        raise ArrayError(
            f"{len(merged)} dimensions are left after merging those that follow one another, and a tensor map has at "
            f"most {MAX_RANK}: reshape the arrays, or copy them to contiguous ones"
        )
    largest = max(dim.extent for dim in merged)
    if largest > _LARGEST:
        raise ArrayError(
            f"an extent of {largest} is too large: coordinates are signed 32-bit numbers, and {_LARGEST} is the "
            "most; call the kernel for parts of the arrays"
        )
    return Layout(shape, tuple(offsets), tuple(merged))


def keeps_dimensions(declaration: Declaration) -> bool:
    """Whether the consumer's code sees the arrays' own dimensions."""
    return declaration.each == "tile" or any(map(declaration.mentions, ("at", "shape", "box")))


def _kept(declaration: Declaration, rank: int) -> int:
    """How many of the innermost dimensions stay as they are."""
    if keeps_dimensions(declaration):
        return rank
    return 1 if declaration.each == "row" or declaration.reduces_rows else 0


def _broadcast(view: ArrayView, rank: int) -> tuple[int, ...]:
    strides = (0 if extent == 1 else stride for extent, stride in zip(view.shape, view.strides, strict=True))
    return (*(0,) * (rank - len(view.shape)), *strides)


def _settled(view: ArrayView) -> tuple[int, ...]:
    """A result's strides, along dimensions of one element as if it were dense: how it is written is not up to them."""
    return tuple(
        stride if extent > 1 else view.itemsize * prod(view.shape[axis + 1 :])
        for axis, (extent, stride) in enumerate(zip(view.shape, view.strides, strict=True))
    )


def _forward(dim: Dimension, offsets: list[int]) -> Dimension:
    """A dimension along which every array goes backwards, walked from its other end."""
    if min(dim.strides) >= 0 or max(dim.strides) > 0:
        return dim
    for position, stride in enumerate(dim.strides):
        offsets[position] += (dim.extent - 1) * stride
    return replace(dim, strides=tuple(-stride for stride in dim.strides))


def _sorted(dimensions: list[Dimension], inputs: int, strides: Sequence[Sequence[int]]) -> list[Dimension]:
    """By the strides of the first output, else of the first input that is not broadcast."""
    tiled = [*range(inputs, len(strides)), *range(inputs)]
    lead = next((position for position in tiled if all(dim.strides[position] for dim in dimensions)), 0)
    return sorted(dimensions, key=lambda dim: abs(dim.strides[lead]))


def _merged(dimensions: Sequence[Dimension], keep: int) -> list[Dimension]:
    """Dimensions after the first ones, which are kept, merged where they follow one another in every array."""
    merged: list[Dimension] = []
    for dim in dimensions:
        inner = merged[-1] if len(merged) > keep else None
        if inner is not None and _continues(dim, inner):
            merged[-1] = replace(inner, extent=inner.extent * dim.extent)
        else:
            merged.append(dim)
    return merged


def _continues(outer: Dimension, inner: Dimension) -> bool:
    return inner.extent * outer.extent <= _LARGEST and all(
        one == inner.extent * other for one, other in zip(outer.strides, inner.strides, strict=True)
    )


def check_rank(shape: tuple[int, ...], box: tuple[int, ...]) -> None:
    """Refuse a box of another rank than the arrays.

    Raises
    ------
    PipelineError
    """
    if len(box) != max(len(shape), 1):
        raise PipelineError(
            f"box = {box} has {counted(len(box), 'extent')}, and the arrays have {counted(len(shape), 'dimension')}: "
            f"{shape}"
        )
