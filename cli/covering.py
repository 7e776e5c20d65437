"""How boxes side by side cover a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from .failures import Failure

if TYPE_CHECKING:
    from cupytma.sim.model import Dimension
    from cupytma.tensormap import TensorMap, Tiled


@dataclass(frozen=True)
class Covering:
    """Boxes from element 0 on that have every element of a tensor.

    Attributes
    ----------
    parameters : Tiled
    dimensions : tuple of Dimension
        As the unit moves them, driver order; with interleave dimension 0 counts slices.
    transaction_bytes : int
        Of one copy.
    """

    parameters: Tiled
    dimensions: tuple[Dimension, ...]
    transaction_bytes: int

    @property
    def tiles(self) -> tuple[int, ...]:
        """Copies along each dimension: a box takes as many as its element stride."""
        return tuple(d.boxes * d.element_stride for d in self.dimensions)

    @property
    def copies(self) -> int:
        """Copies that cover the tensor."""
        return prod(self.tiles)

    @property
    def whole_copies(self) -> int:
        """Copies of which every slot is inside the tensor."""
        return prod(whole_tiles(d) for d in self.dimensions)

    @property
    def bytes(self) -> int:
        """Bytes of all copies."""
        return self.copies * self.transaction_bytes

    @property
    def element_bytes(self) -> float:
        """Bytes of one slot, which is an element, or with interleave a slice."""
        return self.transaction_bytes / prod(d.tile for d in self.dimensions)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the tensor's elements."""
        return round(prod(d.extent for d in self.dimensions) * self.element_bytes)

    @property
    def filled_bytes(self) -> int:
        """Bytes of all copies that lie outside the tensor."""
        return self.bytes - round(prod(d.inside for d in self.dimensions) * self.element_bytes)

    @property
    def repeated_bytes(self) -> int:
        """Bytes of all copies that are inside the tensor and another box's too: holes that element strides leave."""
        return self.bytes - self.filled_bytes - self.tensor_bytes

    @property
    def wasted_share(self) -> float:
        """The part of the bytes of all copies that are no element of their own box."""
        return 1 - self.tensor_bytes / self.bytes


def whole_tiles(d: Dimension) -> int:
    """Tiles along a dimension whose last slot is inside the tensor."""
    last = (d.tile - 1) * d.element_stride
    return sum(max(0, min(d.boxes, (d.extent - 1 - phase - last) // d.box + 1)) for phase in range(d.element_stride))


def covering_of(tensor_map: TensorMap, mode: str | None = None) -> Covering:
    """How the boxes of a tensor map cover its tensor.

    Raises
    ------
    Failure
        If the map is not tiled.
    """
    from cupytma.sim.geometry import geometry
    from cupytma.sim.model import Dimension
    from cupytma.tensormap import Tiled

    parameters = tensor_map.decode()
    if not isinstance(parameters, Tiled) or mode not in (None, "tile"):
        raise Failure("only tiled copies cover a tensor box by box; give the start of each copy with --at")
    plan = geometry(tensor_map)
    steps = tuple(axis.step for axis in plan.axes)
    boxes = list(parameters.box_dim)
    if plan.inner_bytes is not None:
        steps = (1, *steps)  # the unit ignores the element stride of dimension 0 (measured)
    else:
        boxes[parameters.rank - 2] = 1  # a copy takes one slice of channels, whatever the box says (measured)
        steps = tuple(1 if i == parameters.rank - 2 else step for i, step in enumerate(steps))
    dimensions = tuple(map(Dimension, parameters.global_dim, boxes, steps))
    return Covering(parameters, dimensions, plan.transaction_bytes)
