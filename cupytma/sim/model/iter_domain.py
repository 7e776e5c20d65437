"""Loops and what they are turned into: split, merged, resized, swizzled.

An *IterDomain* is one loop of a loop nest, ``for i in range(extent)``. Transforming it makes new loops, and says how
its index follows from theirs. Where the new loops run over more than the old one held, its index leaves ``0 … extent
- 1``: these places are *holes*.

Source of the terms: NVIDIA nvFuser, "Divisibility of Split", "TMA Modeling In Depth".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from cupytma.errors import SimulationError
from cupytma.sim.checks import check_integer


class IterDomain:
    """One loop. Made with an extent, it is one dimension of a tensor map, whose bounds the unit checks.

    A loop is transformed once at most; the methods return the loops it becomes.

    Parameters
    ----------
    extent : int
        Number of iterations, 1 or above, in elements.
    name : str, optional
        For messages and reports.

    Raises
    ------
    SimulationError
        If the extent is none.

    Examples
    --------
    Eight elements in boxes of 4, and of every box the elements 0 and 3, 1 and 4, 2 and 5:

    >>> rows = IterDomain(8, "rows")
    >>> coordinate, box = rows.split(4)
    >>> tile, stride = box.split(3)
    >>> tile.extent, stride.extent, stride.protected
    (2, 3, False)
    """

    def __init__(self, extent: int, name: str = "") -> None:
        self.extent = _extent("the extent", extent)
        self.name = str(name) or f"I{{{self.extent}}}"
        self.made_by: Expression | None = None
        self.becomes: Expression | None = None

    def __repr__(self) -> str:
        return f"<IterDomain {self.name}, extent {self.extent}>"

    def contains(self, index: int) -> bool:
        """Whether an index is one of this loop's."""
        return 0 <= index < self.extent

    @property
    def protected(self) -> bool:
        """Whether the unit's own bounds check covers this loop ("TMA-protected").

        So they are: the dimensions of the tensor map; the outer loop of a split of a protected one; a merge whose outer
        loop is protected; what a protected one is resized to, if no end is cut off; and the first loop of a swizzle
        whose first loop is protected. As long as all other loops are within their extents, a protected one that is not
        takes a dimension of the tensor map out of its bounds with it, so that the unit fills.
        """
        return self.made_by is None or self.made_by.protects(self)

    def split(self, inner_extent: int) -> tuple[IterDomain, IterDomain]:
        """Two loops for this one: the outer of ``ceil(extent / inner_extent)``, the inner of ``inner_extent``.

        The index is ``outer * inner_extent + inner``. If `inner_extent` does not divide the extent, the last inner
        iterations are holes.

        Returns
        -------
        tuple of IterDomain
            The outer and the inner loop.

        Raises
        ------
        SimulationError
            If `inner_extent` is below 1, or this loop has been transformed.
        """
        inner = _extent("inner_extent", inner_extent)
        outputs = IterDomain(-(-self.extent // inner), f"{self.name}.o"), IterDomain(inner, f"{self.name}.i")
        Split((self,), outputs)
        return outputs

    def merge(self, inner: IterDomain) -> IterDomain:
        """One loop for this one and one inside it; no holes.

        The indices are ``merged // inner.extent`` and ``merged % inner.extent``.

        Raises
        ------
        SimulationError
            If `inner` is no loop, or either has been transformed.
        """
        output = IterDomain(self.extent * _loop(inner).extent, f"({self.name}*{inner.name})")
        Merge((self, inner), (output,))
        return output

    def resize(self, left: int, right: int) -> IterDomain:
        """The same loop with iterations added before and after it, or taken away where negative.

        The index is ``resized - left``; the added ones are holes.

        Raises
        ------
        SimulationError
            If nothing would be left, an amount is no integer, or this loop has been transformed.
        """
        left, right = check_integer("left", left), check_integer("right", right)
        if self.extent + left + right < 1:
            raise SimulationError(
                f"{self.name} of extent {self.extent} resized by {left} and {right} has no iterations left; take away "
                "less"
            )
        output = IterDomain(self.extent + left + right, f"{self.name}±")
        Resize((self,), (output,), left)
        return output

    def swizzle(self, other: IterDomain) -> tuple[IterDomain, IterDomain]:
        """This loop, and `other` in an order that depends on this one's index; no holes.

        The indices are ``first`` and ``first ^ second``.

        Raises
        ------
        SimulationError
            If the extents are not the same power of two, or either has been transformed.
        """
        extent = _loop(other).extent
        if extent != self.extent or extent & (extent - 1):
            raise SimulationError(
                f"extents {self.extent} and {extent} cannot be swizzled; both must be the same power of two"
            )
        outputs = IterDomain(extent, f"{self.name}.x"), IterDomain(extent, f"{other.name}.y")
        Swizzle((self, other), outputs)
        return outputs


class Expression(ABC):
    """How loops become other loops.

    Attributes
    ----------
    inputs, outputs : tuple of IterDomain
        From outer to inner.
    """

    def __init__(self, inputs: tuple[IterDomain, ...], outputs: tuple[IterDomain, ...]) -> None:
        for loop in inputs:
            if loop.becomes is not None or inputs.count(loop) > 1:
                raise SimulationError(f"{loop.name} is transformed twice; transform the loops that it became")
        self.inputs, self.outputs = inputs, outputs
        for loop in inputs:
            loop.becomes = self
        for loop in outputs:
            loop.made_by = self

    @abstractmethod
    def indices(self, outputs: tuple[int, ...]) -> tuple[int, ...]:
        """The indices of the inputs for those of the outputs."""

    @property
    def creates_holes(self) -> bool:
        """Whether the outputs run over more than the inputs hold."""
        return False

    def protects(self, output: IterDomain) -> bool:
        """Whether an output is protected: the first one, if the first input is."""
        return output is self.outputs[0] and self.inputs[0].protected


class Split(Expression):
    """One loop as an outer and an inner one."""

    def indices(self, outputs: tuple[int, ...]) -> tuple[int, ...]:
        return (outputs[0] * self.outputs[1].extent + outputs[1],)

    @property
    def creates_holes(self) -> bool:
        return self.inputs[0].extent % self.outputs[1].extent != 0


class Merge(Expression):
    """Two loops as one."""

    def indices(self, outputs: tuple[int, ...]) -> tuple[int, ...]:
        return divmod(outputs[0], self.inputs[1].extent)


class Resize(Expression):
    """One loop, longer or shorter at its ends."""

    def __init__(self, inputs: tuple[IterDomain, ...], outputs: tuple[IterDomain, ...], left: int) -> None:
        super().__init__(inputs, outputs)
        self.left, self.right = left, outputs[0].extent - inputs[0].extent - left

    def indices(self, outputs: tuple[int, ...]) -> tuple[int, ...]:
        return (outputs[0] - self.left,)

    @property
    def creates_holes(self) -> bool:
        return self.left > 0 or self.right > 0

    def protects(self, output: IterDomain) -> bool:
        return self.left >= 0 and self.right >= 0 and super().protects(output)


class Swizzle(Expression):
    """Two loops, the second reordered by the first."""

    def indices(self, outputs: tuple[int, ...]) -> tuple[int, ...]:
        return outputs[0], outputs[0] ^ outputs[1]


def _extent(name: str, value: Any) -> int:
    extent = check_integer(name, value)
    if extent < 1:
        raise SimulationError(f"{name} is {extent}; a loop has 1 iteration or more")
    return extent


def _loop(value: Any) -> IterDomain:
    if not isinstance(value, IterDomain):
        raise SimulationError(f"{value!r} is no IterDomain; give the loop itself")
    return value
