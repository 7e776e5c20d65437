"""Copies prepared once for a pair of layouts, and launched with the addresses of the moment.

Most of what a copy takes on the host is finding out how it is done. That depends on shapes, strides, the element type
and the addresses' last bits, so it is found once for all arrays that have these in common.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from cupytma.ops.copy_plan import LINE, CopyPlan, plan_copy
from cupytma.ops.layout import check_addresses, check_overlap
from cupytma.runtime.device import cupy
from cupytma.runtime.plan import Template
from cupytma.tensormap.arrays import ArrayView

# Where plans are made that hold for every address with the same last bits: far from each other, whatever the arrays.
BASES = 1 << 50, 1 << 54
_KEPT = 1024
Guard = Callable[[Sequence[Any]], "Callable[..., bool] | None"]
"""Makes a test for tensors like some; see `guard_of`."""


@dataclass(frozen=True)
class PreparedCopy:
    """A copy between any two arrays of the layouts that it was prepared for.

    Attributes
    ----------
    launches : tuple of Template
        Given the two addresses.
    spans : tuple of tuple of int
        How far each array reaches below and above its address, in bytes.
    views : tuple of ArrayView
        The two layouts; their addresses mean nothing.
    check : callable
        Refuses two views that overlap so that the result would depend on the order of their elements.
    """

    launches: tuple[Template, ...]
    spans: tuple[tuple[int, int], tuple[int, int]]
    views: tuple[ArrayView, ArrayView]
    check: Callable[[ArrayView, ArrayView], None] = check_overlap

    def launch(self, handle: int, source: int, destination: int) -> None:
        """Copy between two addresses, in a stream.

        Raises
        ------
        ArrayError
            If the arrays overlap so that the result would depend on the order of their elements, or one has elements
            and no memory.
        """
        if not source or not destination:
            check_addresses(self.views, (source, destination), ("the source", "the destination"))
        (low, high), (other_low, other_high) = self.spans
        if source + low < destination + other_high and destination + other_low < source + high:
            self.check(replace(self.views[0], address=source), replace(self.views[1], address=destination))
        for template in self.launches:
            template(handle, source, destination)

    def at(self, source: int, destination: int) -> tuple[Callable[[int], None], ...]:
        """The launches between two addresses, between which it was launched before."""
        return tuple(template.at(source, destination) for template in self.launches)


def prepare(
    source: ArrayView,
    destination: ArrayView,
    launches: Callable[[CopyPlan, tuple[int, int]], tuple[Template, ...]],
    plan_for: Callable[[ArrayView, ArrayView], CopyPlan] = plan_copy,
    check: Callable[[ArrayView, ArrayView], None] = check_overlap,
) -> PreparedCopy:
    """A copy between two views, for all pairs like them.

    Parameters
    ----------
    source, destination : ArrayView
    launches : callable
        Makes the launches of a plan that is made at two addresses.
    plan_for : callable
        Makes the plan.
    check : callable
        See `PreparedCopy`.

    Raises
    ------
    ArrayError
        If the shapes or types differ, or the destination's elements overlap one another.
    """
    bases = BASES[0] + source.address % LINE, BASES[1] + destination.address % LINE
    plan = plan_for(replace(source, address=bases[0]), replace(destination, address=bases[1]))
    made = () if plan.is_empty else launches(plan, bases)
    return PreparedCopy(made, (span_bytes(source), span_bytes(destination)), (source, destination), check)


def span_bytes(view: ArrayView) -> tuple[int, int]:
    """How far an array reaches below and above its address, in bytes."""
    if not view.size:
        return 0, 0
    steps = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + view.itemsize


class Prepared(Protocol):
    """What is launched with the addresses of the moment."""

    @property
    def launch(self) -> Callable[..., None]:
        """Launches, given a stream's handle and the address of each array."""

    @property
    def at(self) -> Callable[..., tuple[Callable[[int], None], ...]]:
        """What launches on a stream, given the address of each array, at which it was launched before."""


Kept = TypeVar("Kept")


class Memory(Generic[Kept]):
    """What was prepared by what it depends on; the oldest go when there are many.

    Attributes
    ----------
    get : callable
        What is kept under a key, or None.
    most : int
        How many are kept.
    forgotten : int
        How often everything was forgotten.
    """

    most = _KEPT

    def __init__(self) -> None:
        self._known: dict[Any, Kept] = {}
        self.get = self._known.get
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: Any) -> bool:
        return key in self._known

    def keep(self, key: Any, prepared: Kept, since: int | None = None) -> None:
        """Keep something under a key.

        Parameters
        ----------
        since : int, optional
            `forgotten` when it began to be prepared: what has been forgotten meanwhile is not kept.
        """
        while len(self._known) >= self.most:
            try:
                self._known.pop(next(iter(self._known)), None)
            except (RuntimeError, StopIteration):  # another thread keeps something at the same time
                continue
        self._known[key] = prepared
        if since is not None and since != self.forgotten:
            self._known.pop(key, None)

    def forget(self) -> None:
        """Forget everything."""
        self.forgotten += 1
        self._known.clear()

    def once(self, operation: Hashable, views: Sequence[ArrayView], build: Callable[[], Kept]) -> Kept:
        """What is prepared for an operation and arrays of these layouts on one device; built there if it is not yet.

        Parameters
        ----------
        operation : hashable
            What is done beside the layouts.
        views : sequence of ArrayView
            Of their addresses the last bits count.
        build : callable
            Prepares it.
        """
        key = operation, *(replace(view, address=view.address % LINE) for view in views)
        found = self._known.get(key)
        if found is None:
            with cupy().cuda.Device(views[0].device):
                found = build()
            self.keep(key, found)
        return found


class Recurring(Memory[Kept]):
    """What was prepared for calls that came again with the same arguments. Of the first, only their hash is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._met: Memory[bool] = Memory()

    def recurs(self, key: Any) -> bool:
        """Whether this was asked of a key before: then it is time to keep something under it."""
        code = hash(key)
        if self._met.get(code):
            return True
        self._met.keep(code, True)
        return False

    def forget(self) -> None:
        """Forget everything, and what was met."""
        super().forget()
        self._met.forget()


class Guarded(Memory[tuple[Kept, Callable[..., bool]]]):
    """What was prepared for torch's tensors at some addresses, with a test whether tensors there are like those.

    That is looked up sooner than what tensors say of themselves, in place, since a call would take half of the gain.
    Keys are the operation and the address of each tensor, or None for one that is not given.
    """

    def note(
        self, operation: Any, tensors: Sequence[Any], kept: Kept, guard: Guard, since: int | None = None
    ) -> None:
        """Keep something for such tensors, if torch has a test for them; ``since`` as for `keep`."""
        if (test := guard([tensor for tensor in tensors if tensor is not None])) is not None:
            places = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
            self.keep((operation, *places), (kept, test), since)


class Address(int):
    """A launch's argument that is one of the two arrays' addresses, or a distance from it."""


def addresses_in(parameters: Sequence[tuple[int, int]], bases: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Which of some addresses a launch's pointers belong to: the nearest.

    Parameters
    ----------
    parameters : sequence of tuple of int
        Offset in the parameter block and value of each pointer, in bytes.
    bases : sequence of int
        The addresses that the launch was planned at, far from one another.

    Returns
    -------
    tuple
        Offset, number of the address, and distance from it, in bytes, of each pointer that is not null.
    """
    found = []
    for offset, value in parameters:
        if value:
            which = min(range(len(bases)), key=lambda base: abs(value - bases[base]))
            found.append((offset, which, value - bases[which]))
    return tuple(found)
