"""Why an operation is carried out the way it is: the planners asked without a GPU."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from cupytma import targets
from cupytma.errors import ArrayError
from cupytma.ops import broadcast, reduction
from cupytma.ops.arrangement import (
    flip,
    flip_axes,
    flip_plans,
    pad,
    pad_plans,
    pad_widths,
    padded_shape,
    roll,
    roll_plans,
    roll_shifts,
)
from cupytma.ops.array_copy import check_one_device, copy
from cupytma.ops.broadcast_plan import OPERATIONS, axis_of, plan_broadcast
from cupytma.ops.convolution_columns import (
    col2im,
    column_plans,
    extents_of,
    fold_plans,
    im2col,
    is_turned_first,
    windows,
)
from cupytma.ops.copy_plan import plan_copy
from cupytma.ops.explained_parts import WORDS, Launches, Machine, Part, broadcasted, copied, multiplied, reduced, told
from cupytma.ops.filling import element_bytes, fill, plan_fill
from cupytma.ops.layout import permuted_view
from cupytma.ops.matmul_choices import as_measured
from cupytma.ops.matmul_operands import new_result
from cupytma.ops.matmul_plan import MatmulPlan, plan_matmul
from cupytma.ops.matrix_product import matmul, plan_for, views_of
from cupytma.ops.multicast import multicast_copy, shape_of_copies
from cupytma.ops.multicast_plan import plan_multicast
from cupytma.ops.paired import check_apart, check_writable
from cupytma.ops.permutation import permute, transpose, transposed_axes
from cupytma.ops.reduction_plan import check_atomic, plan_reduction
from cupytma.ops.rows import gather_rows, plan_on, scatter_add_rows, scatter_rows
from cupytma.ops.rows_plan import GATHER, SCATTER, SCATTER_ADD, check_mode
from cupytma.runtime.compiler import current_target
from cupytma.runtime.device import cupy
from cupytma.runtime.occupancy import multiprocessors
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.words import counted

# Where an output is thought to lie that does not exist yet: aligned, and away from everything.
_SOMEWHERE, _SOMEWHERE_ELSE = 1 << 54, 1 << 53
# What arrays in host memory are explained for: an H100 SXM or an H200.
HOPPER = Machine(targets.target("sm_90a"), 132)


@dataclass(frozen=True)
class Explanation:
    """How an operation is carried out. Print it.

    Attributes
    ----------
    operation : str
    parts : tuple of Part
        In the order of their launches; empty where there is nothing to do.
    machine : Machine
        The GPU's target and multiprocessors that the plan holds for.
    """

    operation: str
    parts: tuple[Part, ...]
    machine: Machine

    @property
    def launches(self) -> int:
        """Number of launches."""
        return len({part.launch for part in self.parts})

    @property
    def bytes_by_unit(self) -> int:
        """Bytes that the Tensor Memory Accelerator moves, through tensor maps or by bulk copies."""
        return sum(part.bytes for part in self.parts if part.through != WORDS)

    @property
    def bytes_otherwise(self) -> int:
        """Bytes that ordinary loads and stores move."""
        return sum(part.bytes for part in self.parts if part.through == WORDS)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The rules that keep bytes from the unit, each once; empty where none does."""
        return tuple(dict.fromkeys(part.reason for part in self.parts if part.reason))

    def __str__(self) -> str:
        if not self.parts:
            return f"{self.operation}: nothing to do, the array is empty"
        lines = [self.headline]
        for before, part in zip((None, *self.parts), self.parts, strict=False):
            shares_launch = before is not None and before.launch == part.launch
            lines += [f"  {line}" for line in part.lines(shares_launch)]
        return "\n".join((*lines, f"  {self.summary}"))

    @property
    def headline(self) -> str:
        """The operation and what it runs on."""
        on = counted(self.machine.multiprocessors, "multiprocessor")
        return f"{self.operation} on {self.machine.target} with {on}"

    @property
    def summary(self) -> str:
        """Launches and bytes in one line."""
        return (
            f"in all {counted(self.launches, 'launch')}: {self.bytes_by_unit} B by the unit, "
            f"{self.bytes_otherwise} B otherwise"
        )

    def _repr_html_(self) -> str:
        from cupytma.view.explanation_card import explanation_card

        return explanation_card(self)


def explain(operation: Callable[..., Any], /, *arguments: Any, **options: Any) -> Explanation:
    """How an operation of `cupytma.ops` is carried out for given arrays. Launches nothing, and needs no GPU.

    Parameters
    ----------
    operation : callable
        Such as `cupytma.copy`, `cupytma.im2col` or `cupytma.gather_rows`.
    *arguments, **options
        As the operation takes them. Arrays may be in host memory (``numpy.empty`` of any size, which touches no
        memory) or be `cupytma.tensormap.arrays.ArrayView` of arrays that do not exist; their addresses count. A result
        that the operation would allocate is aligned.

    Returns
    -------
    Explanation
        The parts, each with its path, boxes, stages, bytes and grid, and the rule that forced a fallback. For arrays on
        a GPU the plan is that GPU's; for others that of an H100 with 132 multiprocessors.

    Raises
    ------
    ArrayError
        As the operation; or if it is none that is explained, or takes other arguments.

    Examples
    --------
    >>> import numpy as np
    >>> import cupytma as tma
    >>> print(tma.ops.explain(tma.transpose, np.zeros((512, 256), np.float32)))
    transpose on sm_90a with 132 multiprocessors
      body: two dimensions change places, in swizzled tiles between tensor loads and stores
        524288 B through tensor maps, in 32 tiles of (32, 64) UINT32
        grid of 32 × 288 threads, 2 blocks on a multiprocessor at most, 99328 B shared
        4 tiles in flight in a block
      in all 1 launch: 524288 B by the unit, 0 B otherwise
    """
    planner = _PLANNERS.get(operation) if inspect.isfunction(operation) else None
    if planner is None:
        name = getattr(operation, "__name__", None) or textwrap.shorten(repr(operation), 60)
        known = ", ".join(sorted(function.__name__ for function in _PLANNERS))
        raise ArrayError(
            f"{name} cannot be explained; give an operation and then its arguments, as in explain(copy, array); "
            f"these can: {known}"
        )
    signature = inspect.signature(operation)
    try:
        bound = signature.bind(*arguments, **options)
    except TypeError as error:
        raise ArrayError(f"{operation.__name__}{signature}: {error}") from None
    bound.apply_defaults()
    given = {name: value for name, value in bound.arguments.items() if name != "stream"}
    machine = _machine(given.values())
    launches = planner(machine, **given)
    parts = (replace(part, launch=number) for number, launch in enumerate(launches) for part in launch)
    return Explanation(operation.__name__, tuple(parts), machine)


def _machine(values: Any) -> Machine:
    """The GPU that the first array on one is on; without one, what is assumed."""
    for value in values:
        try:
            device = view_of(value).device
        except ArrayError:
            continue
        if device is not None:
            with cupy().cuda.Device(device):
                return Machine(current_target(), multiprocessors(device))
    return HOPPER


def _result(out: Any, like: ArrayView, shape: Sequence[int], place: int = _SOMEWHERE) -> ArrayView:
    """The array that is written: what was given, or a C-contiguous one that would be allocated."""
    if out is not None:
        found = view_of(out)
        check_one_device(like, found)
        return found
    strides = tuple(like.itemsize * prod(shape[i + 1 :]) for i in range(len(shape)))
    return ArrayView(place, tuple(shape), strides, like.dtype, like.itemsize, like.device)


def _paired(machine: Machine, source: ArrayView, destination: ArrayView, plans: Any) -> Launches:
    """The launches of an operation that goes from one array to another."""
    check_writable(destination)
    check_apart(source, destination)
    return [launch for name, plan in plans for launch in told(name, plan, machine)]


def _copy(machine: Machine, source: Any, destination: Any) -> Launches:
    view = view_of(source)
    return copied("", plan_copy(view, _result(destination, view, view.shape)), machine)


def _permute(machine: Machine, x: Any, axes: Any, out: Any) -> Launches:
    return _copy(machine, permuted_view(view_of(x), axes), out)


def _transpose(machine: Machine, x: Any, out: Any) -> Launches:
    return _permute(machine, x, transposed_axes(len(view_of(x).shape)), out)


def _pad(machine: Machine, x: Any, pad_width: Any, value: Any, out: Any) -> Launches:
    view = view_of(x)
    widths, pattern = pad_widths(pad_width, len(view.shape)), element_bytes(view.dtype, value)
    destination = _result(out, view, padded_shape(view.shape, widths))
    return _paired(machine, view, destination, pad_plans(view, destination, widths, pattern))


def _flip(machine: Machine, x: Any, axes: Any, out: Any) -> Launches:
    view = view_of(x)
    destination = _result(out, view, view.shape)
    return _paired(machine, view, destination, flip_plans(view, destination, flip_axes(axes, len(view.shape))))


def _roll(machine: Machine, x: Any, shift: Any, axis: Any, out: Any) -> Launches:
    view = view_of(x)
    destination, shifts = _result(out, view, view.shape), roll_shifts(shift, axis, view)
    return _paired(machine, view, destination, roll_plans(view, destination, shifts, axis is None))


def _fill(machine: Machine, dst: Any, value: Any) -> Launches:
    view = view_of(dst)
    check_writable(view)
    plan = plan_fill(view, element_bytes(view.dtype, value))
    return [] if plan is None else told("body", plan, machine)


def _im2col(machine: Machine, x: Any, layout: Any, out: Any, **operands: Any) -> Launches:
    view = view_of(x)
    first: Launches = []
    axes, found = windows(view.shape, layout, *operands.values())
    if is_turned_first(view, axes):
        turned = permuted_view(view, axes)
        view, axes = _result(None, turned, turned.shape, _SOMEWHERE_ELSE), tuple(range(len(axes)))
        first = copied("channels brought last", plan_copy(turned, view), machine)
    destination = _result(out, view, found.columns)
    return [*first, *_paired(machine, view, destination, column_plans(view, destination, found, axes))]


def _col2im(machine: Machine, columns: Any, shape: Any, layout: Any, out: Any, **operands: Any) -> Launches:
    source, extents = view_of(columns), extents_of(shape)
    axes, found = windows(extents, layout, *operands.values())
    destination = _result(out, source, extents)
    if destination.shape != extents:
        raise ArrayError(f"out has shape {destination.shape}, and the result has shape {extents}")
    return _paired(machine, source, destination, fold_plans(source, destination, found, axes))


def _reduce(operation: str, machine: Machine, dst: Any, src: Any, atomic: bool) -> Launches:
    check_atomic(atomic)
    source, destination = view_of(src), view_of(dst)
    check_one_device(source, destination)
    return reduced(plan_reduction(operation, source, destination, atomic), source.itemsize, machine)


def _multicast(machine: Machine, src: Any, dst: Any, copies: Any) -> Launches:
    source = view_of(src)
    destination = _result(dst, source, shape_of_copies(src, dst, copies))
    return _paired(machine, source, destination, [("", plan_multicast(source, destination))])


def _broadcast(machine: Machine, x: Any, vector: Any, out: Any, axis: Any) -> Launches:
    source, values = view_of(x), view_of(vector)
    destination = _result(out, source, source.shape)
    check_one_device(source, values)
    chosen = axis_of(axis, len(source.shape))
    return broadcasted(plan_broadcast(source, values, destination, chosen), source.itemsize, machine)


def _matmul(
    machine: Machine, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out: Any, **options: Any
) -> Launches:
    first, second, result, *others = views_of((a, b, out, scale_a, scale_b, bias))
    assert first is not None
    assert second is not None
    if result is None:
        result = new_result(first, second, options["a_dtype"], options["out_dtype"], _SOMEWHERE)
    plan: MatmulPlan = plan_for(
        tuple(options.values()), (first, second, result, *others),
        lambda operands, **how: plan_matmul(operands, machine.target, machine.multiprocessors, **how),
    )
    if options["configuration"] is None and result.device is not None:
        plan = as_measured(plan, result.device)
    return multiplied(plan, machine)


def _gather(machine: Machine, x: Any, index: Any, out: Any, mode: Any) -> Launches:
    source, numbers = view_of(x), view_of(index)
    destination = _result(out, source, (*numbers.shape, *source.shape[1:]))
    return _rows(GATHER, machine, source, destination, numbers, mode)


def _scatter(operation: str, machine: Machine, dst: Any, index: Any, src: Any, mode: Any) -> Launches:
    return _rows(operation, machine, view_of(src), view_of(dst), view_of(index), mode)


def _rows(
    operation: str, machine: Machine, source: ArrayView, destination: ArrayView, index: ArrayView, mode: Any
) -> Launches:
    check_mode(mode)
    for other in (destination, index):
        check_one_device(source, other)
    views = source, destination, index
    return told("", plan_on(operation, views, machine.target), machine)


# How each operation's launches are found: asked with the GPU and what the operation is given, by name, but its stream.
_PLANNERS: dict[Callable[..., Any], Callable[..., Launches]] = {
    **{getattr(broadcast, f"broadcast_{name}"): _broadcast for name in OPERATIONS},
    col2im: _col2im,
    copy: _copy,
    fill: _fill,
    flip: _flip,
    gather_rows: _gather,
    im2col: _im2col,
    matmul: _matmul,
    multicast_copy: _multicast,
    pad: _pad,
    permute: _permute,
    roll: _roll,
    scatter_add_rows: partial(_scatter, SCATTER_ADD),
    scatter_rows: partial(_scatter, SCATTER),
    transpose: _transpose,
    **{getattr(reduction, f"reduce_{name}"): partial(_reduce, name) for name in reduction.ARITHMETIC},
}
