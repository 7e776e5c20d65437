"""Operations from one array to another that are prepared once for a pair of layouts, as copies are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import check_devices, move
from cupytma.ops.copy_launches import compiled, templates
from cupytma.ops.copy_plan import LINE
from cupytma.ops.layout import share_memory
from cupytma.ops.prepared import BASES, Memory, Prepared, PreparedCopy, span_bytes
from cupytma.runtime.module import Module
from cupytma.runtime.plan import Plan
from cupytma.tensormap.arrays import ArrayView

# Makes the launches of an operation between two views, on the current device.
Build = Callable[[ArrayView, ArrayView], Sequence[Plan]]


def check_apart(source: ArrayView, destination: ArrayView) -> None:
    """Refuse a result that overlaps what it is made of."""
    if share_memory(source, destination):
        raise ArrayError("the result overlaps the array it is made of in memory; give it memory of its own")


def check_writable(destination: ArrayView) -> None:
    """Refuse a result that may not be written."""
    if destination.read_only and destination.size:
        raise ArrayError("the result's array is read-only; give one that may be written")


def _check_nothing(source: ArrayView, destination: ArrayView) -> None:
    """The two arrays are one, and its elements are not read."""


def carry_out(
    operation: Hashable, build: Build, source: Any, destination: Any, stream: Any = None, *, in_place: bool = False
) -> None:
    """Carry out an operation from one array to another.

    Parameters
    ----------
    operation : hashable
        What is done beside the layouts: the same key, the same launches.
    build : callable
        Makes the launches; called once for each operation and pair of layouts.
    source, destination : array
        On one device.
    stream : stream or int, optional
        Default: torch's current stream if an array is torch's, else CuPy's.
    in_place : bool
        The source is the destination, and its elements are not read.

    Raises
    ------
    ArrayError
        If an array is in host memory, read-only where it is written, on another device than the other one, or the two
        share memory.
    """
    move(
        source, operation, destination, stream,
        lambda view, _, target: _prepare(operation, build, view, target, in_place),
    )  # fmt: skip


_prepared: Memory[Prepared] = Memory()


def _prepare(
    operation: Hashable, build_plans: Build, source: ArrayView, destination: ArrayView, in_place: bool
) -> Prepared:
    check_devices(source, destination)
    check_writable(destination)

    def build() -> PreparedCopy:
        bases = BASES[0] + source.address % LINE, BASES[1] + destination.address % LINE
        plans = build_plans(replace(source, address=bases[0]), replace(destination, address=bases[1]))
        spans, check = (span_bytes(source), span_bytes(destination)), _check_nothing if in_place else check_apart
        return PreparedCopy(templates(plans, bases), spans, (source, destination), check)

    return _prepared.once(operation, (source, destination), build)


@cache
def kernels(name: str, target: str, **defines: int) -> Module:
    """The kernels of one source file of this package, compiled for a target."""
    return compiled(name, target, **defines)


def spatial(values: Sequence[int], neutral: int) -> tuple[int, ...]:
    """Values of the spatial dimensions, given in array order, W first and filled up to three."""
    return (*reversed(values), *(neutral,) * (3 - len(values)))
