"""The enumerations of a tensor map, as the CUDA driver API names and numbers them.

Source: CUDA driver API, ``CUtensorMapDataType``, ``CUtensorMapInterleave``, ``CUtensorMapSwizzle``,
``CUtensorMapL2promotion``, ``CUtensorMapFloatOOBfill``, ``CUtensorMapIm2ColWideMode``.
"""

from __future__ import annotations

import operator
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

E = TypeVar("E", bound="DriverEnum")


class DriverEnum(IntEnum):
    """An enumeration of the driver API; its values are the driver's."""

    @classmethod
    def of(cls: type[E], value: Any) -> E:
        """The member for a member, its name, its driver name, or its number.

        Raises
        ------
        ValueError
            For anything else; the message lists the names.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            known = _spellings(cls)
            found: E | None = known.get(value)
            if found is None:
                found = known.get(value.strip().upper())
            if found is not None:
                return found
        elif not isinstance(value, bool):
            try:
                return cls(operator.index(value))
            except (TypeError, ValueError):
                pass
        names = ", ".join(member.short_name for member in cls)
        raise ValueError(f"{cls.__name__} has no member {value!r}; its members are {names}")

    @classmethod
    def prefixes(cls) -> tuple[str, ...]:
        """What the driver's spelling puts before a member's name."""
        return ()

    @property
    def short_name(self) -> str:
        """The name as written in parameters: ``"128B"`` for ``Swizzle.B128``."""
        return _SHORT_NAMES.get(self.name, self.name)

    def __str__(self) -> str:
        return self.short_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


# Python names cannot begin with a digit; parameters, pictures and messages use the driver's own words.
_SHORT_NAMES = {
    "B16": "16B",
    "B32": "32B",
    "B64": "64B",
    "B128": "128B",
    "B128_ATOM_32B": "128B_ATOM_32B",
    "B128_ATOM_32B_FLIP_8B": "128B_ATOM_32B_FLIP_8B",
    "B128_ATOM_64B": "128B_ATOM_64B",
    "L2_64B": "64B",
    "L2_128B": "128B",
    "L2_256B": "256B",
    "PACKED_16U4_ALIGN8B": "16U4_ALIGN8B",
    "PACKED_16U4_ALIGN16B": "16U4_ALIGN16B",
    "PACKED_16U6_ALIGN16B": "16U6_ALIGN16B",
}


@cache
def _spellings(cls: type[E]) -> dict[str, E]:
    """Every name of every member: ours, the short one, and the driver's."""
    return {
        prefix + name: member
        for member in cls
        for name in (member.name, member.short_name)
        for prefix in ("", *cls.prefixes())
    }


class DataType(DriverEnum):
    """The type of a tensor's elements."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12
    PACKED_16U4_ALIGN8B = 13
    PACKED_16U4_ALIGN16B = 14
    PACKED_16U6_ALIGN16B = 15

    @classmethod
    def prefixes(cls) -> tuple[str, ...]:
        return ("CU_TENSOR_MAP_DATA_TYPE_", "CU_TENSOR_MAP_")

    @classmethod
    def of(cls, value: Any) -> DataType:
        """The member for a member, its name or number, a numpy or ml_dtypes dtype, or a torch dtype.

        Types of one byte with no member of their own (float8, int8, bool) are not guessed here: arrays carry them as
        UINT8 through `cupytma.tensor_map`.

        Raises
        ------
        ValueError
            If the tensor map format has no such type; the message lists those it has.
        """
        name = _dtype_name(value)
        return super().of(value if name is None else name.upper())


def _dtype_name(value: Any) -> str | None:
    """The name of a numpy, ml_dtypes or torch dtype: ``"float16"``; None if the value is none."""
    if isinstance(value, (str, int)):
        return None
    text = str(value)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    is_value = hasattr(value, "__array_interface__")  # a number of numpy's is not its dtype
    if isinstance(value, type) or (hasattr(value, "itemsize") and not is_value):
        import numpy as np

        try:
            return str(np.dtype(value).name)
        except TypeError:
            return None
    return None


class Interleave(DriverEnum):
    """How channels are grouped in memory: not, or in slices of 16 or 32 bytes."""

    NONE = 0
    B16 = 1
    B32 = 2

    @classmethod
    def prefixes(cls) -> tuple[str, ...]:
        return ("CU_TENSOR_MAP_INTERLEAVE_", "INTERLEAVE_")


class Swizzle(DriverEnum):
    """The order of 16-byte (or larger) units within a span of shared memory."""

    NONE = 0
    B32 = 1
    B64 = 2
    B128 = 3
    B128_ATOM_32B = 4
    B128_ATOM_32B_FLIP_8B = 5
    B128_ATOM_64B = 6

    @classmethod
    def prefixes(cls) -> tuple[str, ...]:
        return ("CU_TENSOR_MAP_SWIZZLE_", "SWIZZLE_")

    @property
    def span(self) -> int:
        """Bytes of the inner box dimension that the pattern covers; 0 for NONE."""
        return (0, 32, 64, 128, 128, 128, 128)[self]


class L2Promotion(DriverEnum):
    """The size of L2 requests that a load is widened to."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3

    @classmethod
    def prefixes(cls) -> tuple[str, ...]:
        return ("CU_TENSOR_MAP_L2_PROMOTION_", "L2_PROMOTION_")


class WideMode(DriverEnum):
    """How an im2col-wide load counts pixels along W."""

    W = 0
    W128 = 1

    @classmethod
    def prefixes(cls) -> tuple[str, ...]:
        return ("CU_TENSOR_MAP_IM2COL_WIDE_MODE_", "IM2COL_WIDE_MODE_")


class OobFill(DriverEnum):
    """What elements outside the tensor become in shared memory."""

    NONE = 0
    NAN_REQUEST_ZERO_FMA = 1

    @classmethod
    def prefixes(cls) -> tuple[str, ...]:
        return ("CU_TENSOR_MAP_FLOAT_OOB_FILL_", "OOB_FILL_")
