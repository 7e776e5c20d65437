"""What every view of a tensor map builds on: that it is 128 bytes, and is made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

B = TypeVar("B", bound="TensorMapBytes")


class TensorMapBytes(ABC):
    """128 bytes; the methods that turn them into other things derive from this."""

    __slots__ = ()

    @abstractmethod
    def __bytes__(self) -> bytes:
        """The 128 bytes."""

    @classmethod
    @abstractmethod
    def from_bytes(cls: type[B], data: Any) -> B:
        """A tensor map of 128 bytes."""
