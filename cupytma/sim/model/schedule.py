"""Whether a loop nest around a load is correct, found by trying every index."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod

from cupytma.errors import SimulationError
from cupytma.sim.model.iter_domain import Expression, IterDomain

# Beyond this many slots the answer takes minutes; `correctness` answers the usual schedule by formula.
MAX_SLOTS = 1 << 20


class Schedule:
    """The loops of a load, down to those that index the slots in shared memory.

    Parameters
    ----------
    leaves : sequence of IterDomain
        The loops that no transformation consumed, all of them, in the order of the allocation. One index of each makes
        one slot.
    bulk : sequence of IterDomain, optional
        Those of the leaves that the hardware runs through within one instruction (the tile). The program chooses the
        indices of the others, one instruction each, and may decide on them alone.

    Attributes
    ----------
    dimensions : tuple of IterDomain
        The dimensions of the tensor map ("partitioned IterDomains"), whose bounds the unit checks.
    loops : tuple of IterDomain
        Every loop, each before those that are made from it.
    slots, elements : int
        How many slots there are, and how many hold an element within the extents of all loops.
    filled_holes, unfilled_holes : int
        The other slots: outside the tensor, so that the unit fills them, and inside, so that it puts data there.
    mixed_tiles : int
        Instructions that load both elements and unfilled holes: none of them can be left out.

    Raises
    ------
    SimulationError
        If a leaf is none or is missing, `bulk` names another loop, or there are more than 2^20 slots.

    Examples
    --------
    >>> rows = IterDomain(8)
    >>> coordinate, box = rows.split(4)
    >>> tile, stride = box.split(3)
    >>> schedule = Schedule([coordinate, stride, tile], bulk=[tile])
    >>> schedule.slots, schedule.elements, schedule.filled_holes, schedule.unfilled_holes
    (12, 8, 2, 2)
    >>> schedule.strong, schedule.strong_achievable
    (False, False)
    """

    def __init__(self, leaves: Iterable[IterDomain], bulk: Iterable[IterDomain] = ()) -> None:
        self.leaves, self.bulk = _loops("leaves", leaves), _loops("bulk", bulk)
        strangers = [loop.name for loop in self.bulk if loop not in self.leaves]
        if strangers:
            raise SimulationError(f"bulk names {', '.join(strangers)}, which is no leaf of the schedule")
        self.loops = _from_the_tensor(self.leaves)
        self.dimensions = tuple(loop for loop in self.loops if loop.made_by is None)
        # In the order of what they make: nothing is made before what it is made from.
        self._expressions = tuple(dict.fromkeys(loop.made_by for loop in self.loops if loop.made_by is not None))
        self.slots = prod(leaf.extent for leaf in self.leaves)
        if self.slots > MAX_SLOTS:
            raise SimulationError(
                f"{self.slots} slots are too many to try one by one, more than {MAX_SLOTS}; use smaller extents, or "
                "`correctness`, which needs no trying"
            )
        self._try_all()

    def indices(self, slot: Iterable[int]) -> dict[IterDomain, int]:
        """The index of every loop, for one index per leaf."""
        found = dict(zip(self.leaves, slot, strict=True))
        for expression in reversed(self._expressions):
            outputs = tuple(found[loop] for loop in expression.outputs)
            found.update(zip(expression.inputs, expression.indices(outputs), strict=True))
        return found

    @property
    def hole_creating(self) -> tuple[Expression, ...]:
        """Splits that do not divide, and resizes that add."""
        return tuple(expression for expression in self._expressions if expression.creates_holes)

    @property
    def unprotected(self) -> tuple[IterDomain, ...]:
        """Loops that may leave their extents without the unit's knowledge: inputs of hole-creating expressions that
        are not protected. A guard that is to make the load strongly correct must test these."""
        return tuple(loop for expression in self.hole_creating for loop in expression.inputs if not loop.protected)

    @property
    def strong(self) -> bool:
        """Whether every hole holds the fill, with no guard at all."""
        return self.unfilled_holes == 0

    @property
    def strong_achievable(self) -> bool:
        """Whether a guard can make it so: the tiles that are holes throughout are loaded from outside the tensor."""
        return self.mixed_tiles == 0

    def _try_all(self) -> None:
        tiles: dict[tuple[int, ...], set[str]] = {}
        counts = {"element": 0, "filled": 0, "unfilled": 0}
        for slot in product(*(range(leaf.extent) for leaf in self.leaves)):
            kind = self._kind(self.indices(slot))
            counts[kind] += 1
            chosen = tuple(i for leaf, i in zip(self.leaves, slot, strict=True) if leaf not in self.bulk)
            tiles.setdefault(chosen, set()).add(kind)
        self.elements, self.filled_holes, self.unfilled_holes = counts["element"], counts["filled"], counts["unfilled"]
        self.mixed_tiles = sum({"element", "unfilled"} <= kinds for kinds in tiles.values())

    def _kind(self, indices: dict[IterDomain, int]) -> str:
        if not all(loop.contains(indices[loop]) for loop in self.dimensions):
            return "filled"
        return "element" if all(loop.contains(i) for loop, i in indices.items()) else "unfilled"


def _loops(name: str, value: Iterable[IterDomain]) -> tuple[IterDomain, ...]:
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    for loop in found:
        if not isinstance(loop, IterDomain):
            raise SimulationError(f"{name} holds {loop!r}; give IterDomains")
        if loop.becomes is not None:
            raise SimulationError(f"{name} names {loop.name}, which has been transformed; name the loops it became")
        if found.count(loop) > 1:
            raise SimulationError(f"{name} names {loop.name} twice")
    return found


def _from_the_tensor(leaves: tuple[IterDomain, ...]) -> tuple[IterDomain, ...]:
    """Every loop that the leaves are made from and the leaves, each before those that are made from it."""
    found: dict[IterDomain, None] = {}

    def visit(loop: IterDomain) -> None:
        for origin in loop.made_by.inputs if loop.made_by is not None else ():
            visit(origin)
        found[loop] = None

    for leaf in leaves:
        visit(leaf)
    if not found:
        raise SimulationError("a schedule has at least one leaf")
    for loop in found:
        for twin in loop.made_by.outputs if loop.made_by is not None else ():
            if twin not in found:
                raise SimulationError(
                    f"{loop.name} and {twin.name} are made together, and neither {twin.name} nor what it became is "
                    "among the leaves; add it"
                )
    return tuple(found)
