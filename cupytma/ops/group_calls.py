"""The way of a call on many pairs of arrays: found again, or prepared, and launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import empty
from cupytma.ops.groups import (
    PreparedGroups,
    handle_for,
    is_on_device,
    listed,
    place_of_work,
    views_of,
    whole_numbers,
)
from cupytma.ops.recent import Recent
from cupytma.runtime.device import cupy
from cupytma.tensormap.arrays import ArrayView
from cupytma.words import counted

Views = Sequence[ArrayView]


@dataclass(frozen=True)
class PairOperation:
    """What is done with each source and its destination.

    Attributes
    ----------
    recent : Recent
        The last calls.
    prepare : callable
        Makes launches from the layouts of sources and destinations, `shapes` in device memory or None, and the stream's
        handle.
    prepare_quickly : callable
        The same from arrays and the handle, for calls without `shapes`; None where it takes a closer look.
    is_turned : bool
        Whether destinations are transposes, of matrices.
    """

    recent: Recent
    prepare: Callable[[Views, Views, Any, int], PreparedGroups]
    prepare_quickly: Callable[[Sequence[Any], Sequence[Any], int], PreparedGroups | None] = lambda *_: None
    is_turned: bool = False

    def __call__(self, sources: Any, destinations: Any, shapes: Any, stream: Any) -> list[Any]:
        """Do it; as `grouped_copy`."""
        cupy()
        given = listed(sources, "sources")
        if destinations is None:
            views = views_of(given, "sources")
            wanted = [turned(view, i).shape if self.is_turned else view.shape for i, view in enumerate(views)]
            destinations = [empty(array, shape, stream) for array, shape in zip(given, wanted, strict=True)]
        targets = listed(destinations, "destinations")
        if len(given) != len(targets):
            raise ArrayError(
                f"{counted(len(given), 'source')} and {counted(len(targets), 'destination')}; each source needs one of "
                "its own"
            )
        if not given:
            return targets
        handle = handle_for(stream, (given[0], targets[0]))
        on_device = shapes is not None and is_on_device(shapes)
        if shapes is not None and not on_device:
            views = views_of(given, "sources")
            parts = self._parts(views, views_of(targets, "destinations"), shapes)
            handle = handle_for(stream, (*given, *targets))
            self.prepare(*parts, None, handle).launch(handle)
            return targets
        key = place_of_work(handle), id(shapes) if on_device else None
        arrays = (given, targets, (shapes,) if on_device else ())
        prepared = self.recent.get(key, arrays)
        if prepared is None:
            read, written = pair = list(given), list(targets)  # another thread may change the caller's meanwhile
            arrays = *pair, arrays[2]
            handle = handle_for(stream, (*read, *written))  # of arrays of several libraries, whose calls are not kept
            prepared = self.prepare_quickly(read, written, handle) if shapes is None else None
            if prepared is None:
                prepared = self.prepare(views_of(read, "sources"), views_of(written, "destinations"), shapes, handle)
            self.recent.keep(key, prepared, arrays, by_shape=on_device or self.is_turned)
        prepared.launch(handle)
        return targets

    def _parts(self, sources: Views, destinations: Views, shapes: Any) -> tuple[list[ArrayView], list[ArrayView]]:
        """The leading part of each source and destination, of shapes that the host has."""
        rank = 2 if self.is_turned else len(sources[0].shape)
        rows = whole_numbers(shapes, "shapes", (len(sources), rank))
        found: tuple[list[ArrayView], list[ArrayView]] = [], []
        for i, row in enumerate(map(tuple, rows.tolist())):
            for name, view, shape, part in (
                ("sources", sources[i], row, found[0]),
                ("destinations", destinations[i], row[::-1] if self.is_turned else row, found[1]),
            ):
                if len(view.shape) != rank or any(not 0 <= n <= m for n, m in zip(shape, view.shape, strict=True)):
                    raise ArrayError(f"shapes[{i}] = {row} is not within 0 and {view.shape}, the shape of {name}[{i}]")
                part.append(replace(view, shape=shape))
        return found


def turned(view: ArrayView, position: int) -> ArrayView:
    """A matrix's transpose; no data is touched.

    Raises
    ------
    ArrayError
        If it is no matrix, naming the source's position.
    """
    if len(view.shape) != 2:
        raise ArrayError(
            f"sources[{position}] has {counted(len(view.shape), 'dimension')}; matrices, of two, are transposed"
        )
    return replace(view, shape=view.shape[::-1], strides=view.strides[::-1])
