"""Copies between GPU arrays of any layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.copy_launches import plan_launches, templates
from cupytma.ops.copy_plan import LINE, CopyPlan
from cupytma.ops.layout import permuted_view
from cupytma.ops.prepared import Guarded, Memory, Prepared, Recurring
from cupytma.ops.prepared import prepare as prepare_copy
from cupytma.ops.short_way import ShortWay, launch_the_long_way, short_ways
from cupytma.runtime.device import cupy
from cupytma.runtime.kernel import current_device
from cupytma.runtime.plan import Template
from cupytma.runtime.streams import as_cupy, handle_of
from cupytma.tensormap.arrays import ArrayView, view_of


def copy(source: Any, destination: Any = None, *, stream: Any = None) -> Any:
    """Copy one GPU array to another, bit for bit, through the Tensor Memory Accelerator.

    The first of these ways that the arrays allow is taken:

    - one run of 32 MiB or more, that begins at a multiple of 128 bytes in both: bulk copies of its 16-byte units;
    - rows of 256 bytes and more (512 where they end within a 16-byte unit) that two tensor maps can describe, which
      takes addresses and strides that are multiples of 16 bytes and at most 5 dimensions: boxes between tensor loads
      and stores. Row ends within a 16-byte unit move apart, by the same launch;
    - two dimensions that change places: as `transpose`;
    - everything else, such as shorter runs and rows, and unaligned views: ordinary loads and stores.

    `cupytma.ops.explain` says which it is, and why. Nothing outside the destination's elements is written.

    Parameters
    ----------
    source : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any strides.
    destination : array, optional
        Of the same shape, dtype and device; its elements may overlap neither each other nor the source. Default: a new
        C-contiguous CuPy array (a torch tensor if the source is one).
    stream : stream or int, optional
        CuPy's, torch's, anything with ``__cuda_stream__``, or a handle.
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        The destination. The copy is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator; the message names the simulator as the alternative.
    ArrayError
        If an array is in host memory, or shapes, dtypes or devices differ, or memory overlaps.
    LaunchError
        If `stream` is none.
    """
    if destination is None:
        cupy()
        destination = empty(source, view_of(source).shape, stream)
    move(source, None, destination, stream)
    return destination


def move(
    source: Any, axes: Any, destination: Any, stream: Any = None, prepare: Prepare | None = None, index: Any = None
) -> None:
    """Copy an array, its dimensions in another order where axes are given, to another. Errors as for `copy`.

    Arrays of CuPy and torch take the short way: their layouts are keys to copies that were prepared before, and those
    that come again at the same addresses find launches with everything filled in, without being read where they are
    known again by less.

    Parameters
    ----------
    axes : tuple of int or None
        Or whatever else says what is done where `prepare` is given.
    prepare : callable, optional
        Prepares another operation on the views of the two arrays; it is told the source's, `axes`, the destination's,
        and the index's if there is one.
    index : array, optional
        Read beside the source.
    """
    kind = source.__class__
    way = short_ways.get(kind)
    if way is None or kind is not destination.__class__ or stream is not None:
        _move_any(source, axes, destination, stream, prepare, index)
        return
    try:
        met = None
        if index is None and way.same is not None:
            met = _same.get((axes, id(source), id(destination)))
        elif index is None and way.guard is not None:
            met = _guarded.get((axes, source.data_ptr(), destination.data_ptr()))
            if met is not None and (source.is_nested or destination.is_nested):  # see `guard_of`
                met = None
        if met is not None and met[1](source, destination):
            known: Known | None = met[0]
        else:
            read = way.read
            exact: tuple[Any, ...] = axes, read(source), read(destination)
            if index is not None:
                if kind is not index.__class__:
                    raise TypeError
                exact = *exact, read(index)
            known = _addressed.get(exact)
    except (TypeError, RuntimeError):  # host memory or none, an index of another kind, axes that are none: it says so
        _move_any(source, axes, destination, stream, prepare, index)
        return
    if known is None:
        _move_described(exact, way, prepare, source, destination, index)
    elif known[0] != current_device():
        _move_any(source, axes, destination, stream, prepare, index)
    else:
        handle = way.handle(known[0])
        for launch in known[1]:
            launch(handle)


def _move_described(
    exact: tuple[Any, ...], way: ShortWay, prepare: Prepare | None, source: Any, destination: Any, index: Any
) -> None:
    """Move between arrays as they are described, on their device."""
    axes, *descriptions = exact
    place = descriptions[0][1]
    if place != current_device():
        _move_any(source, axes, destination, None, prepare, index)
        return
    key = axes, *((start % LINE, *others) for start, *others in descriptions)
    prepared = _prepared.get(key)
    if prepared is None:
        prepared = _prepare_views(axes, prepare, source, destination, index)
        _prepared.keep(key, prepared)
    addresses = [description[0] for description in descriptions]
    prepared.launch(way.handle(place), *addresses)
    if _addressed.recurs(exact):
        known = place, prepared.at(*addresses)
        _addressed.keep(exact, known)
        if index is None and way.same is not None:
            _same.keep((axes, id(source), id(destination)), (known, way.same(source, destination)))
        elif index is None and way.guard is not None:
            _guarded.note(axes, (source, destination), known, way.guard)


def _move_any(source: Any, axes: Any, destination: Any, stream: Any, prepare: Prepare | None, index: Any) -> None:
    cupy()
    arrays = (source, destination) if index is None else (source, destination, index)
    views = tuple(map(view_of, arrays))
    prepared = _prepare_views(axes, prepare, *views)
    addresses = [view.address for view in views]
    launch_the_long_way(arrays, views, stream, lambda handle: prepared.launch(handle, *addresses))


def _prepare_views(axes: Any, prepare: Prepare | None, source: Any, *others: Any) -> Prepared:
    views = (view_of(other) for other in others if other is not None)
    return (prepare or _prepare)(view_of(source), axes, *views)


def _prepare(source: ArrayView, axes: tuple[int, ...] | None, destination: ArrayView) -> Prepared:
    check_devices(source, destination)
    if axes is not None:
        source = permuted_view(source, axes)
    device = int(source.device or 0)
    return _prepared.once(
        None, (source, destination),
        lambda: prepare_copy(source, destination, lambda plan, bases: _launches(plan, bases, device)),
    )  # fmt: skip


_prepared: Memory[Prepared] = Memory()
# Launches and their device, by the operation, the arrays' layouts and their addresses.
Known = tuple[int, tuple[Callable[[int], None], ...]]
_addressed: Recurring[Known] = Recurring()
_guarded: Guarded[Known] = Guarded()
# The same, with a test, by the operation and the identities of CuPy's arrays, those alone that were first at addresses:
# others that take their places may be others at each call.
_same: Memory[tuple[Known, Callable[[Any, Any], bool]]] = Memory()
Prepare = Callable[..., Prepared]


def _launches(plan: CopyPlan, bases: tuple[int, int], device: int) -> tuple[Template, ...]:
    """A plan's launches, for other addresses than those it was made at."""
    return templates(plan_launches(plan, device), bases)


def empty(like: Any, shape: Sequence[int], stream: Any = None, dtype: str | None = None) -> Any:
    """A new array of a shape, of the kind and device of another, and its dtype or the one that is named.

    It is allocated on the stream that will write it, so that its memory is not in use on another.
    """
    view = view_of(like)
    if view.device is None:
        raise ArrayError(_HOST.format(name="source"))
    module = cupy()
    if type(like).__module__.partition(".")[0] == "torch":
        import torch

        kind = like.dtype if dtype is None else getattr(torch, dtype)
        if stream is None:
            return torch.empty(tuple(shape), dtype=kind, device=like.device)
        with torch.cuda.stream(torch.cuda.ExternalStream(handle_of(stream), like.device)):
            return torch.empty(tuple(shape), dtype=kind, device=like.device)
    if stream is None and view.device == current_device():
        return module.empty(tuple(shape), dtype=dtype or view.dtype)
    with module.cuda.Device(view.device), module.cuda.get_current_stream() if stream is None else as_cupy(stream):
        return module.empty(tuple(shape), dtype=dtype or view.dtype)


_HOST = (
    "the {name} is in host memory; the Tensor Memory Accelerator reaches device memory only: move it with "
    "cupy.asarray, or use cupytma.sim, which works on numpy arrays"
)


def check_devices(source: ArrayView, destination: ArrayView) -> None:
    """Refuse host memory, and arrays on different devices."""
    for name, view in (("source", source), ("destination", destination)):
        if view.device is None:
            raise ArrayError(_HOST.format(name=name))
    check_one_device(source, destination)


def check_one_device(source: ArrayView, destination: ArrayView) -> None:
    """Refuse arrays on different devices."""
    if source.device != destination.device:
        raise ArrayError(
            f"the source is {place_in_words(source)} and the destination {place_in_words(destination)}; copy within "
            "one device, or move one of them first"
        )


def place_in_words(view: ArrayView) -> str:
    """Where an array is, in words."""
    return "in host memory" if view.device is None else f"on device {view.device}"
