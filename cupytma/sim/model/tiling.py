"""Whether a tiling by boxes and element strides is correct, by formula.

A tiling covers each dimension with ``ceil(extent / box)`` boxes. With an element stride, a box takes as many tiles as
the stride: the first holds the elements 0, stride, 2 * stride, … of the box, the next 1, 1 + stride, …, and so on.
Every tile has ``ceil(box / stride)`` slots. Where these divisions leave a rest, tiles have slots that are no element of
their box: *holes*. A hole outside the tensor is filled by the unit. A hole inside the tensor holds an element of the
next box, since the unit knows where the tensor ends, and not where the box does.

Source of the terms and of the theorems behind the formulas: NVIDIA nvFuser, "TMA Modeling In Depth".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from textwrap import fill
from typing import Any

from cupytma.errors import SimulationError
from cupytma.sim.geometry import geometry
from cupytma.sim.model.operands import operation, same_rank, vector
from cupytma.sim.model.reasons import reasons
from cupytma.sim.swizzle import CHUNK
from cupytma.tensormap.enums import DataType
from cupytma.tensormap.parameters import Tiled

ELEMENT, FILLED_HOLE, UNFILLED_HOLE = "element", "filled hole", "unfilled hole"
_WIDTH = 100  # characters of a line


@dataclass(frozen=True)
class Dimension:
    """One dimension of a tiling. All numbers are in elements.

    Attributes
    ----------
    extent : int
        Of the tensor.
    box : int
    element_stride : int
        Also the number of tiles of a box.
    overwritten : int
        Positions past the extent that a store writes: the rest of the last 16 bytes of dimension 0.
    """

    extent: int
    box: int
    element_stride: int
    overwritten: int = 0

    @property
    def boxes(self) -> int:
        """Boxes that cover the extent."""
        return -(-self.extent // self.box)

    @property
    def tile(self) -> int:
        """Slots of a tile."""
        return -(-self.box // self.element_stride)

    @property
    def reach(self) -> int:
        """Positions from the start of a box that its tiles hold together; the box, or past it."""
        return self.tile * self.element_stride

    @property
    def slots(self) -> int:
        """Slots of all tiles of all boxes."""
        return self.boxes * self.reach

    @property
    def inside(self) -> int:
        """Slots that lie inside the tensor; `extent` of them hold an element of their own box."""
        whole = max(0, (self.extent - self.reach) // self.box + 1)  # boxes whose reach ends inside
        rest = self.boxes - whole
        return whole * self.reach + rest * self.extent - self.box * (whole + self.boxes - 1) * rest // 2

    @property
    def unfilled_holes(self) -> int:
        """Slots inside the tensor and past their box."""
        return self.inside - self.extent

    @property
    def level(self) -> int:
        """1, 2 or 3: how far strong correctness is away along this dimension.

        1: the element stride divides the box, and the unit fills every hole. 2: it does not, but it is longer than the
        box, or the box is at least the extent: no tile mixes elements with unfilled holes. 3: stride < box < extent:
        some tiles do.
        """
        if self.box % self.element_stride == 0:
            return 1
        return 3 if self.element_stride < self.box < self.extent else 2

    def slot(self, box: int, offset: int) -> str:
        """What the slot is that lies `offset` positions from the start of a box.

        Parameters
        ----------
        box : int
            Number of the box, from 0.
        offset : int
            From 0 to ``reach - 1``.

        Returns
        -------
        str
            ``"element"``, ``"filled hole"`` (for a store: not written) or ``"unfilled hole"`` (written).
        """
        position = box * self.box + offset
        if position < self.extent:
            return ELEMENT if offset < self.box else UNFILLED_HOLE
        return FILLED_HOLE if position >= self.extent + self.overwritten else UNFILLED_HOLE


@dataclass(frozen=True)
class Correctness:
    """What a tiling leaves in the slots that are no elements. Print it for the verdict and its reasons.

    Attributes
    ----------
    op : str
        ``"load"`` or ``"store"``.
    dimensions : tuple of Dimension
        Driver order.
    data_type : DataType or None
        The element type, where the tiling was judged as silicon does it.
    notes : tuple of str
        What silicon does otherwise than asked.
    """

    op: str
    dimensions: tuple[Dimension, ...]
    data_type: DataType | None = None
    notes: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """Slots of all tiles: what shared memory must hold for them, in elements."""
        return prod(dimension.slots for dimension in self.dimensions)

    @property
    def elements(self) -> int:
        """Slots that hold an element of their box: as many as the tensor has elements."""
        return prod(dimension.extent for dimension in self.dimensions)

    @property
    def filled_holes(self) -> int:
        """Slots outside the tensor; a load fills them, a store skips them."""
        return self.slots - prod(dimension.inside for dimension in self.dimensions)

    @property
    def unfilled_holes(self) -> int:
        """Slots inside the tensor and past their box; a load puts data there, a store writes them."""
        return prod(dimension.inside for dimension in self.dimensions) - self.elements

    @property
    def overwritten(self) -> int:
        """Elements outside the tensor that stores write. Each counts once, however often it is written."""
        innermost = self.dimensions[0]  # the others are exact
        return innermost.overwritten * (self.elements // innermost.extent)

    @property
    def strong(self) -> bool:
        """Every slot that is no element holds the fill. Loads only: a store fills nothing."""
        return self.op == "load" and self.unfilled_holes == 0

    @property
    def weak(self) -> bool:
        """Nothing outside the tensor is read or written, and every element comes out right."""
        return self.op == "load" or (self.unfilled_holes == 0 and self.overwritten == 0)

    @property
    def verdict(self) -> str:
        """``"strongly correct"``, ``"weakly correct"`` or ``"neither"``."""
        return "strongly correct" if self.strong else "weakly correct" if self.weak else "neither"

    @property
    def level(self) -> int:
        """The highest level of the dimensions; at 3 nothing that a program does makes a load strongly correct."""
        return max(dimension.level for dimension in self.dimensions)

    @property
    def strong_achievable(self) -> bool:
        """Whether a load can be made strongly correct: as it is, or by a guard that skips tiles without elements."""
        return self.op == "load" and self.level < 3

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, in words and numbers, and what to do instead."""
        return reasons(self)

    def picture(self, width: int = _WIDTH) -> str:
        """Each dimension as text: a line for each tile, a column for each position.

        Parameters
        ----------
        width : int
            Characters of a line, 40 or more; what does not fit is left out in the middle.

        Raises
        ------
        SimulationError
            If the width is none or less than 40.
        """
        from cupytma.view.holes import holes_text

        return holes_text(self, width)

    def svg(self) -> str:
        """The same picture as SVG, for notebooks and documents."""
        from cupytma.view.holes import holes_svg

        return holes_svg(self)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        lines = (fill(f"- {reason}", _WIDTH, subsequent_indent="  ", break_long_words=False) for reason in self.reasons)
        return "\n".join((f"{self.verdict} ({self.op})", *lines))


def correctness(
    global_dim: int | Iterable[int],
    box_dim: int | Iterable[int],
    element_strides: int | Iterable[int] | None = None,
    *,
    data_type: Any = None,
    op: str = "load",
) -> Correctness:
    """Whether tiles of a tensor hold what they should where they are no elements of it.

    *Strongly correct* is a tiling whose every out-of-bounds slot holds the fill, as an unpredicated sum over the tile
    (a tensor core) needs it. *Weakly correct* is one that reads and writes nothing outside the tensor and brings every
    element to its place, with anything in the other slots.

    Parameters
    ----------
    global_dim, box_dim, element_strides : sequence of int
        One entry per dimension, in elements, driver order (dimension 0 first and fastest); an integer for one
        dimension. Element strides default to 1. The boxes lie side by side from element 0 on.
    data_type : DataType, str, int, or dtype, optional
        The element type. Given, the tiling is judged as a tensor map without interleave on silicon (sm_90a): it must be
        legal, element_strides[0] has no effect, and stores write dimension 0 in whole 16 bytes (measured on an H100).
        Not given, it is judged by the mathematical model, where all dimensions are alike and all bounds exact.
    op : str
        ``"load"`` or ``"store"``; for a store `data_type` is needed.

    Returns
    -------
    Correctness

    Raises
    ------
    SimulationError
        If an operand is no such sequence, an entry is below 1, the lengths differ, `op` is neither, or a store has no
        `data_type`.
    DescriptorError
        If `data_type` is given and no tensor map can have these numbers; the message lists the rules.

    Examples
    --------
    >>> print(correctness(8, 6, 3))
    strongly correct (load)
    - dimension 0: 2 boxes of 6 over the extent 8; holes outside the tensor: 4 of 12 slots, each holds
      the fill
    >>> correctness(8, 4, 3).verdict
    'weakly correct'
    >>> correctness((13, 4), (16, 4), data_type="UINT8", op="store").verdict
    'neither'
    """
    op = operation(op)
    dims, box = vector("global_dim", global_dim, least=1), vector("box_dim", box_dim, least=1)
    steps = (1,) * len(dims) if element_strides is None else vector("element_strides", element_strides, least=1)
    same_rank(global_dim=dims, box_dim=box, element_strides=steps)
    if data_type is None:
        if op == "store":
            raise SimulationError(
                "data_type is None; a store writes dimension 0 in whole 16 bytes, so whether it is correct depends on "
                "the type"
            )
        return Correctness(op, tuple(map(Dimension, dims, box, steps)))
    # Strides have no part in this; 0 is legal for any extents.
    tiled = Tiled(
        data_type=data_type, global_address=0, global_dim=dims, global_strides=(0,) * (len(dims) - 1), box_dim=box,
        element_strides=steps,
    )  # fmt: skip
    plan = geometry(tiled.encode())
    past = -dims[0] * tiled.element_bytes % CHUNK // tiled.element_bytes if op == "store" else 0
    steps = (1, *(axis.step for axis in plan.axes))
    dimensions = tuple(map(Dimension, dims, box, steps, (past, *[0] * (len(dims) - 1))))
    notes = tuple(f"{w.message}; {w.fix}" for w in tiled.warnings() if w.rule == "element-stride-ignored")
    return Correctness(op, dimensions, tiled.data_type, notes)
