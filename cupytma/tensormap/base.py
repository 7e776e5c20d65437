"""What every view of a tensor map builds on: that it is 128 bytes, and is made of them."""

from __future__ import annotations

from typing import Any, TypeVar

B = TypeVar("B", bound="TensorMapBytes")


class TensorMapBytes:
    """128 bytes; the methods that turn them into other things derive from this."""

    __slots__ = ()

    def __bytes__(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def from_bytes(cls: type[B], data: Any) -> B:
        """A tensor map of 128 bytes."""
        raise NotImplementedError
