"""Pictures of descriptors, tiles and swizzles, for notebooks and documents."""

from cupytma.view.card import card

__all__ = ["card"]
