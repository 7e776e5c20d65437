"""Pictures of descriptors, tiles and swizzles, for notebooks and documents."""

from cupytma.view.card import card
from cupytma.view.holes import holes_svg, holes_text

__all__ = ["card", "holes_svg", "holes_text"]
