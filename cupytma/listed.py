"""Tuples that notebooks show as people read them."""

from __future__ import annotations

from typing import TypeVar

Item = TypeVar("Item")


class Listed(tuple[Item, ...]):
    """A tuple of things that a notebook shows as they are printed, one below another."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        from cupytma.view.html import printed

        return printed(*self) if self else None  # an empty one is shown as every tuple
