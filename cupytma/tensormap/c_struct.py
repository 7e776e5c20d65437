"""The tensor map as a ctypes structure on a boundary of its own."""

from __future__ import annotations

import ctypes

from cupytma.tensormap.fields import SIZE, WORDS


class CTensorMap(ctypes.Structure):
    """``CUtensorMap`` in C: ``{ cuuint64_t opaque[16]; }``."""

    _fields_ = [("opaque", ctypes.c_uint64 * WORDS)]


def aligned_structure(data: bytes, alignment: int) -> CTensorMap:
    """A structure that holds the 128 bytes at an address that is a multiple of ``alignment``.

    ctypes aligns to 8 bytes alone (before Python 3.13), so the structure lies in a larger buffer and keeps it alive.
    """
    raw = ctypes.create_string_buffer(SIZE + alignment)
    offset = -ctypes.addressof(raw) % alignment
    found = CTensorMap.from_buffer(raw, offset)
    ctypes.memmove(ctypes.addressof(found), data, SIZE)
    return found
