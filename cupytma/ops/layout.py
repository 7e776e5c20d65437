"""The common layout of two arrays: the fewest dimensions that walk both, and whether their memory overlaps."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cupytma.errors import ArrayError
from cupytma.runtime.given import shown
from cupytma.tensormap.arrays import ArrayView
from cupytma.words import counted

# How long numpy may search for a byte that two strided views share before giving up.
_OVERLAP_WORK = 1_000_000


@dataclass(frozen=True)
class Dimension:
    """One dimension of a pair of arrays: its extent and the distance between neighbours in each, in bytes."""

    extent: int
    source_stride: int
    destination_stride: int


@dataclass(frozen=True)
class Region:
    """Bytes to be copied from one strided place to another.

    Attributes
    ----------
    source, destination : int
        Addresses in bytes.
    run : int
        Bytes that lie together in both, one after another.
    outer : tuple of Dimension
        The dimensions around a run, innermost first.
    """

    source: int
    destination: int
    run: int
    outer: tuple[Dimension, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the whole region."""
        total = self.run
        for dimension in self.outer:
            total *= dimension.extent
        return total

    def tail(self, start: int) -> Region:
        """What remains of every run from byte ``start`` on."""
        return replace(
            self, source=self.source + start, destination=self.destination + start, run=self.run - start
        )


def common_region(source: ArrayView, destination: ArrayView) -> Region:
    """The copy of one array to another as a region of bytes, with every dimension merged that can be.

    Raises
    ------
    ArrayError
        If the shapes or types differ.
    """
    if source.shape != destination.shape:
        raise ArrayError(f"the shapes differ: source {source.shape}, destination {destination.shape}")
    if source.dtype != destination.dtype or source.itemsize != destination.itemsize:
        raise ArrayError(
            f"the types differ: source {source.dtype}, destination {destination.dtype}; a copy moves bits and does not "
            "convert: view or convert one of them first"
        )
    if source.dtype == "object":
        raise ArrayError("arrays of objects hold references, and a copy of bits would not count them; use numpy")
    if destination.read_only and destination.size:
        raise ArrayError("the destination is read-only; copy to an array that may be written")
    addresses = [source.address, destination.address]
    dimensions = []
    for extent, s, d in zip(source.shape, source.strides, destination.strides, strict=True):
        if min(s, d) < 0 and max(s, d) <= 0:  # walk both from the other end
            addresses = [addresses[0] + (extent - 1) * s, addresses[1] + (extent - 1) * d]
            s, d = -s, -d
        if extent > 1:
            dimensions.append(Dimension(extent, s, d))
    dimensions.sort(key=lambda dim: (abs(dim.destination_stride), abs(dim.source_stride)))
    merged = [Dimension(source.itemsize, 1, 1)]
    for dim in dimensions:
        inner = merged[-1]
        if (
            dim.source_stride == inner.extent * inner.source_stride
            and dim.destination_stride == inner.extent * inner.destination_stride
        ):
            merged[-1] = replace(inner, extent=inner.extent * dim.extent)
        else:
            merged.append(dim)
    return Region(addresses[0], addresses[1], merged[0].extent, tuple(merged[1:]))


def permuted_view(view: ArrayView, axes: Sequence[int]) -> ArrayView:
    """A view with its dimensions in another order; no data is touched.

    Raises
    ------
    ArrayError
        If ``axes`` are no permutation of the view's.
    """
    rank = len(view.shape)
    try:
        chosen = tuple(operator.index(axis) for axis in axes)
        if sorted(axis + rank * (axis < 0) for axis in chosen) != list(range(rank)):
            raise TypeError
    except TypeError:
        raise ArrayError(f"axes = {shown(axes)}: each of the array's axes 0 to {rank - 1} is needed once") from None
    return replace(
        view, shape=tuple(view.shape[axis] for axis in chosen), strides=tuple(view.strides[axis] for axis in chosen)
    )


def check_overlap(source: ArrayView, destination: ArrayView) -> None:
    """Refuse a copy whose result would depend on the order of its elements.

    Raises
    ------
    ArrayError
        If elements of the destination share memory with one another or with the source. Equal views are no overlap:
        every element is copied onto itself.
    """
    reach = 1  # bytes that the dimensions so far cover
    for stride, extent in sorted(
        (abs(s), n) for s, n in zip((*destination.strides, 1), (*destination.shape, destination.itemsize), strict=True)
        if n > 1
    ):
        if stride < reach:
            raise ArrayError(
                f"elements of the destination overlap in memory (strides {destination.strides} B, shape "
                f"{destination.shape}): copy to an array in which every element has its own place"
            )
        reach += (extent - 1) * stride
    same_place = source.address == destination.address and all(
        s == d or n == 1 for s, d, n in zip(source.strides, destination.strides, source.shape, strict=True)
    )
    if not same_place and share_memory(source, destination):
        raise ArrayError(
            "source and destination overlap in memory: copy through a temporary array, such as "
            "cupytma.copy(source.copy(), destination)"
        )


class _Bytes:
    """An array's bytes for numpy's overlap search, which reads no memory; without dimensions that lead nowhere."""

    def __init__(self, view: ArrayView) -> None:
        steps = zip(view.shape, view.strides, strict=True)
        kept = [(extent, stride) for extent, stride in steps if extent == 0 or (extent > 1 and stride)]
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": f"|V{view.itemsize}",
            "data": (view.address, True),
            "shape": tuple(extent for extent, _ in kept),
            "strides": tuple(stride for _, stride in kept),
        }


def check_address(view: ArrayView, name: str) -> None:
    """Refuse an array that has elements and lies nowhere.

    Raises
    ------
    ArrayError
    """
    if view.size and not view.address:
        raise ArrayError(f"{name} has {counted(view.size, 'element')} at a null address; give an array that has memory")


def check_addresses(views: Sequence[ArrayView], addresses: Sequence[int], names: Sequence[str]) -> None:
    """`check_address` of arrays at other addresses than their views have."""
    for view, address, name in zip(views, addresses, names, strict=True):
        check_address(replace(view, address=address), name)


def share_memory(one: ArrayView, other: ArrayView) -> bool:
    """Whether two views share a byte; True where that cannot be settled in reasonable time."""
    import numpy as np

    try:
        shares: Any = np.shares_memory  # its stub leaves out the bound on the work
        return bool(shares(np.asarray(_Bytes(one)), np.asarray(_Bytes(other)), max_work=_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True
    except (OverflowError, ValueError) as error:
        raise ArrayError(
            f"an array of shape {one.shape} and strides {one.strides} B, or of {other.shape} and {other.strides} B, "
            f"reaches beyond what addresses of 64 bits can ({error}): no memory holds it"
        ) from None
