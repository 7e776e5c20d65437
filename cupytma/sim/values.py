"""What happens to values on the way to shared memory and back.

Measured on an H100: loads convert TF32 alone, stores nothing. What packed types do is the PTX ISA's ("Padding and
alignment of the sub-byte types"), not measured.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cupytma.tensormap.enums import DataType, OobFill

Bytes = npt.NDArray[np.uint8]

_ROUNDED = frozenset({DataType.TFLOAT32, DataType.TFLOAT32_FTZ})
_NAN_FILL = 0x7FF7
_TF32_NAN = 0x7FFFE000


def convert_loaded(data_type: DataType, values: Bytes) -> Bytes:
    """The bytes a load delivers for elements in bounds.

    Only the TF32 types change: both round to 10 bits of mantissa and keep denormals. FLOAT32_FTZ loads flush nothing.

    Parameters
    ----------
    data_type : DataType
    values : ndarray of uint8, C-contiguous
        Little-endian elements.
    """
    if data_type not in _ROUNDED:
        return values
    converted: Bytes = round_to_tf32(values.view(np.uint32)).view(np.uint8)
    return converted


def round_to_tf32(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Round float32 patterns to TF32: to nearest, ties to even, the lowest 13 bits zero.

    Large finite values may become infinite; every NaN becomes ``0x7FFFE000``.

    Parameters
    ----------
    bits : ndarray of uint32
        Patterns of float32 numbers, any shape.
    """
    half_less_one, keep = np.uint32(0xFFF), np.uint32(0xFFFFE000)
    rounded: npt.NDArray[np.uint32] = bits + half_less_one + ((bits >> np.uint32(13)) & np.uint32(1))
    rounded &= keep
    rounded[(bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)] = _TF32_NAN
    return rounded


def filled(fill: OobFill, shape: tuple[int, int]) -> Bytes:
    """A tile of nothing but out-of-bounds elements.

    Zeros, or for the NaN request the 16-bit pattern ``0x7FF7`` repeated, whatever the type; it is not converted.

    Parameters
    ----------
    fill : OobFill
    shape : tuple of int
        Rows and bytes per row; the latter even.
    """
    if fill == OobFill.NONE:
        return np.zeros(shape, dtype=np.uint8)
    rows, width = shape
    return np.full((rows, width // 2), _NAN_FILL, dtype="<u2").view(np.uint8)


def spread_groups(packed: Bytes, tile: Bytes, packed_bytes: int, group_bytes: int) -> Bytes:
    """A tile with packed groups put in, each at the start of its room; the gaps keep what the tile holds there.

    Parameters
    ----------
    packed : ndarray of uint8, shape (rows, groups * packed_bytes)
    tile : ndarray of uint8, shape (rows, groups * group_bytes)
    packed_bytes, group_bytes : int
        Bytes of a group as it lies in global memory, and the room it has in shared memory.
    """
    spread = tile.copy().reshape(len(tile), -1, group_bytes)
    spread[..., :packed_bytes] = packed.reshape(len(packed), -1, packed_bytes)
    whole: Bytes = spread.reshape(tile.shape)
    return whole


def packed_groups(tile: Bytes, packed_bytes: int, group_bytes: int) -> Bytes:
    """The groups of a tile as a store packs them: the lower 6 bits of each byte, sixteen of them in 12 bytes.

    The first element comes first, in the lowest bits. Parameters as for `spread_groups`.
    """
    assert (packed_bytes, group_bytes) == (12, 16), "of the types with gaps, only 16U6_ALIGN16B is stored"
    bits = np.unpackbits(tile.reshape(-1, 1), axis=1, bitorder="little")[:, :6]
    packed: Bytes = np.packbits(bits.reshape(len(tile), -1), axis=1, bitorder="little")
    return packed
