"""One value in every element of an array."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cupytma.errors import ArrayError
from cupytma.ops.copy_launches import word_size
from cupytma.ops.layout import Region, check_overlap, common_region
from cupytma.ops.ordinary import MAX_OUTER_RANK, region_argument, word_bytes
from cupytma.ops.paired import carry_out, kernels
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.runtime.plan import Plan
from cupytma.tensormap.arrays import ArrayView, view_of

_PATTERN_BYTES = 16
_PATTERN = np.dtype([("bytes", "u1", _PATTERN_BYTES)])


def fill(dst: Any, value: Any, *, stream: Any = None) -> Any:
    """Set every element of a GPU array to one value.

    Parameters
    ----------
    dst : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides and any dtype of 1, 2,
        4, 8 or 16 bytes.
    value : number
        What the dtype can hold.
    stream : stream or int, optional
        Default: torch's current stream if the array is torch's, else CuPy's.

    Returns
    -------
    array
        ``dst``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If the dtype cannot hold the value, or the array is in host memory, read-only, or overlaps itself.
    """
    cupy()
    pattern = element_bytes(view_of(dst).dtype, value)

    def launches(_: ArrayView, view: ArrayView) -> list[Plan]:
        plan = plan_fill(view, pattern)
        return [] if plan is None else [fill_launch(plan)]

    carry_out(("fill", pattern), launches, dst, dst, stream, in_place=True)
    return dst


@lru_cache(maxsize=256)
def _number_type(name: str) -> Any:
    """numpy's type of a name, from ml_dtypes where numpy itself has none."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found = getattr(ml_dtypes, name, None)
        if found is None:
            raise ArrayError(
                f"elements of {name} have no numbers that numpy knows: view the array as unsigned integers of as many "
                "bytes, and give their value"
            ) from None
        return np.dtype(found)


def element_bytes(name: str, value: Any) -> bytes:
    """A value as the bytes of an element.

    Parameters
    ----------
    name : str
        Of the element type.
    value : number

    Raises
    ------
    ArrayError
        If the type cannot hold the value.
    """
    dtype = _number_type(name)
    try:
        if not isinstance(value, (numbers.Number, np.generic)) and getattr(value, "ndim", None) != 0:
            raise TypeError("a number is needed")
        given = value.item() if hasattr(value, "item") else value
        if dtype.kind in "iu":
            if int(given) != given:
                raise ValueError("an integer is needed")
            if not int(np.iinfo(dtype).min) <= given <= int(np.iinfo(dtype).max):
                raise ValueError(f"it is outside {np.iinfo(dtype).min} … {np.iinfo(dtype).max}")
            given = int(given)
        elif dtype.kind == "b" and given not in (0, 1):
            raise ValueError("True or False is needed")
        elif dtype.kind not in "bcfV":
            raise TypeError(f"elements of kind {dtype.kind!r} cannot be filled")
        elif dtype.kind != "c" and isinstance(given, complex):
            raise TypeError("a real number is needed")
        with np.errstate(over="ignore"):
            return bytes(np.array([given]).astype(dtype).tobytes())
    except (TypeError, ValueError, OverflowError) as error:
        raise ArrayError(f"value = {shown(value)} for an array of {name}: {error}") from None


@dataclass(frozen=True)
class FillPlan:
    """Elements that are set to one value, by ordinary stores.

    Attributes
    ----------
    region : Region
        Of both the source and the destination.
    pattern : bytes
        Of one element.
    reason : str
        What keeps the value from coming in another way; empty where there is none.
    """

    region: Region
    pattern: bytes
    reason: str = ""

    @property
    def words(self) -> int:
        """Stores, each of the longest word that fits everywhere."""
        return self.region.bytes // word_bytes(self.region)


def plan_fill(view: ArrayView, pattern: bytes, reason: str = "") -> FillPlan | None:
    """How every element of a view is set; None where it is empty.

    Parameters
    ----------
    view : ArrayView
    pattern : bytes
        Of one element.
    reason : str
        As for `FillPlan`.

    Raises
    ------
    ArrayError
        If elements are of a size that no word of 16 bytes is made of, or overlap one another.
    """
    if view.size == 0:
        return None
    if _PATTERN_BYTES % len(pattern):
        raise ArrayError(f"elements of {len(pattern)} B cannot be filled; those of 1, 2, 4, 8 and 16 B can")
    check_overlap(view, view)
    return FillPlan(common_region(view, view), pattern, reason)


def fill_launch(plan: FillPlan) -> Plan:
    """The launch that sets the elements."""
    repeated = np.zeros((), _PATTERN)
    repeated["bytes"] = np.frombuffer(plan.pattern * (_PATTERN_BYTES // len(plan.pattern)), np.uint8)
    kernel = kernels("fill.cu", str(current_target()), MAX_OUTER_RANK=MAX_OUTER_RANK).kernel("fill")
    return word_size(plan.words).plan(kernel, (region_argument(plan.region), repeated[()]))
