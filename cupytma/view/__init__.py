"""Pictures of descriptors, tiles, swizzles and programs, for notebooks and documents.

What a picture shows is read from the tables, the traversal and the swizzle functions of the simulator; none of it is
computed a second time here. Nothing needs a GPU, `roofline` and `pipeline_curve` need matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not among the lazy ones: the module has the function's name, and would hide it.
from cupytma.view.card import card

if TYPE_CHECKING:
    from cupytma.view.bit_field_map import bit_fields
    from cupytma.view.drawing import Picture
    from cupytma.view.holes import holes_svg, holes_text
    from cupytma.view.im2col_walk import im2col
    from cupytma.view.plots import pipeline_curve, roofline
    from cupytma.view.program_timeline import timeline
    from cupytma.view.swizzle_map import swizzle
    from cupytma.view.tile_in_tensor import tile
    from cupytma.view.widgets import explore

# Loaded when first used, from which module.
_LAZY = {
    "Picture": "drawing",
    "bit_fields": "bit_field_map",
    "explore": "widgets",
    "holes_svg": "holes",
    "holes_text": "holes",
    "im2col": "im2col_walk",
    "pipeline_curve": "plots",
    "roofline": "plots",
    "swizzle": "swizzle_map",
    "tile": "tile_in_tensor",
    "timeline": "program_timeline",
}

__all__ = [
    "Picture", "bit_fields", "card", "explore", "holes_svg", "holes_text", "im2col", "pipeline_curve", "roofline",
    "swizzle", "tile", "timeline",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cupytma.view' has no attribute {name!r}")
    value = getattr(import_module(f"cupytma.view.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
