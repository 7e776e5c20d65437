"""What the operations on many arrays at once have in common: their memory on the device, launches, and what is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import local
from typing import Any

import numpy as np
import numpy.typing as npt

from cupytma.errors import ArrayError, CupytmaError
from cupytma.limits import WARP_THREADS
from cupytma.ops import group_errors
from cupytma.ops.known_objects import Watch
from cupytma.ops.layout import check_address, check_overlap, share_memory
from cupytma.ops.prepared import span_bytes
from cupytma.runtime.captures import allocate, capture_of, keep_for_graph
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.runtime.occupancy import multiprocessors
from cupytma.runtime.places import TorchDevice
from cupytma.runtime.plan import Plan
from cupytma.runtime.streams import current_handle, handle_of, wait_for
from cupytma.runtime.transfer import Staging
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.tensormap.fields import SIZE

GROUP_BYTES = 256
"""Memory of what the device knows of one group."""
SETUP_WARPS = 8
SETUP_THREADS = WARP_THREADS * SETUP_WARPS
_MOST_SETUP_BLOCKS = 4096
INTEGERS = np.dtype(
    [("data", "u8"), ("row_bytes", "i8"), ("entry_bytes", "i8"), ("item_bytes", "i4"), ("is_signed", "i4")]
)
_WORK = np.dtype(
    [(name, "u8") for name in ("groups", "maps", "tile_ends", "rest_ends", "done", "failure", "tag", "count")]
)
_INTEGER_TYPES = ("int32", "uint32", "int64", "uint64")
_LARGEST = 2**63 - 1
# Pairs of arrays that reach into one another whose elements are looked at.
_MOST_OVERLAPS = 4096


_PER_THREAD = 2
_thread = local()
_staging = Staging()


class Workspace:
    """Memory of the groups of one call on the current device, and what kernels are told of it.

    Made while the stream is captured, it belongs to that capture: what the host says of the groups then reaches the
    device at every replay, and at no other time.

    Parameters
    ----------
    name : str
        Of the function, for errors.
    count : int
        Groups.
    handle : int
        The stream that it is used on, and on no other.
    descriptions : numpy.ndarray, optional
        What the host says of each group; goes to the device.

    Attributes
    ----------
    capture : int or None
        See `capture_of`.
    """

    def __init__(self, name: str, count: int, handle: int, descriptions: npt.NDArray[np.void] | None = None) -> None:
        module = cupy()
        self.count, self.handle, self.device = count, handle, int(module.cuda.Device().id)
        self.capture = capture_of(handle)
        places, end = {}, 0
        sizes = {"maps": 2 * SIZE, "groups": GROUP_BYTES, "tile_ends": 8, "rest_ends": 8}
        for field, size in (*((field, size * count) for field, size in sizes.items()), ("done", SIZE)):
            places[field], end = end, end + size
        described = 0 if descriptions is None else descriptions.nbytes
        self._memory = allocate(end + described + SIZE, handle)
        start = -(-int(self._memory.ptr) // SIZE) * SIZE
        module.cuda.runtime.memsetAsync(start + places["done"], 0, SIZE, handle)
        self.descriptions = start + end
        if descriptions is not None:
            staging_for(handle).upload(self.descriptions, descriptions.tobytes(), handle)
        self.work = np.zeros((), _WORK)
        for field, offset in places.items():
            self.work[field] = start + offset
        self.work["failure"], self.work["tag"] = group_errors.record_address(self.device), group_errors.tag_of(name)
        self.work["count"] = count

    @property
    def setup_blocks(self) -> int:
        """Blocks of the kernel that settles the groups."""
        return max(1, min(-(-self.count // SETUP_WARPS), _MOST_SETUP_BLOCKS))

    def tile_blocks(self, bytes_of_all: int, bytes_of_tile: int, per_multiprocessor: int) -> int:
        """Blocks of a kernel that moves tiles: no more than there may be tiles."""
        most = per_multiprocessor * multiprocessors(self.device)
        return max(1, min(most, -(-bytes_of_all // bytes_of_tile)))


def staging_for(handle: int) -> Staging:
    """Host memory for uploads on a stream. What a graph uploads at its replays is kept as long as the graph."""
    if capture_of(handle) is None:
        return _staging
    found = Staging()
    keep_for_graph(handle, found)
    return found


@dataclass
class Part:
    """The launches for groups of one kind.

    Attributes
    ----------
    workspace : Workspace
    settling : Plan
        Finds how each group moves.
    moving : sequence of Plan
        What follows.
    """

    workspace: Workspace
    settling: Plan
    moving: Sequence[Plan]


class PreparedGroups:
    """Launches over many arrays, for as long as the arrays live.

    Parameters
    ----------
    device : int
    parts : sequence of Part
    again : bool
        Whether each launch settles the groups again, because shapes in device memory may have changed.
    others : sequence of callable
        Called with the stream's handle after the launches: what no group can be.

    Attributes
    ----------
    capture : int or None
        The capture whose graph settles the groups at its replays, in a workspace that nothing else may use then.
    """

    def __init__(
        self, device: int, parts: Sequence[Part], again: bool, others: Sequence[Callable[[int], None]] = ()
    ) -> None:
        self.device, self.parts, self._again, self._others = device, tuple(parts), again, tuple(others)
        self._is_settled = False
        self.handle = 0  # of the stream that it was launched on
        self.capture = next((part.workspace.capture for part in self.parts), None)
        self._kept_for: int | None = None  # the last capture whose graph keeps this
        self._watch: Watch | None = None
        self.lies_as: Callable[[Any], bool] | None = None  # whether arrays lie as those that it was prepared for
        self.kept: Any = None

    def launch(self, handle: int) -> None:
        """Do the work on the stream that it was prepared for.

        Raises
        ------
        ArrayError
            If an earlier launch on the device has met a shape or an offset that does not fit; nothing is launched then.
        """
        group_errors.raise_noted(self.device)
        capture, settles = capture_of(handle), self._again or not self._is_settled
        if capture is not None and capture != self._kept_for:
            keep_for_graph(handle, self)  # every replay needs its memory
            self._kept_for = capture
        self.handle = handle
        if capture is not None and settles:
            self.capture = capture
        for part in self.parts:
            if settles:
                part.settling(handle)
            for plan in part.moving:
                plan(handle)
        self._is_settled = self._is_settled or capture is None
        for other in self._others:
            other(handle)

    def watch(self, arrays: Iterable[Any]) -> bool:
        """Note when an array dies, after which another may have its place; False where that cannot be known."""
        try:
            self._watch = Watch(arrays)
        except TypeError:
            return False
        return True

    @property
    def is_alive(self) -> bool:
        """Whether no array has died that was to be watched."""
        return self._watch is None or self._watch.is_alive


def listed(arrays: Any, name: str) -> list[Any]:
    """Many arrays.

    Raises
    ------
    ArrayError
        If it is one array, or nothing that can be gone through.
    """
    if arrays.__class__ is list:
        return arrays
    if isinstance(arrays, (list, tuple)):
        return list(arrays)
    try:
        if not hasattr(arrays, "__cuda_array_interface__") and not hasattr(arrays, "data_ptr"):
            return list(arrays)
    except CupytmaError:
        raise
    except Exception:  # a caller's class may raise anything
        pass
    raise ArrayError(f"{name} is a {type(arrays).__name__}; a list of arrays is needed")


def views_of(arrays: Sequence[Any], name: str) -> list[ArrayView]:
    """The layouts of many device arrays.

    Raises
    ------
    ArrayError
        Naming the entry that is none.
    """
    found = []
    for position, array in enumerate(arrays):
        try:
            view = view_of(array)
        except ArrayError as error:
            raise ArrayError(f"{name}[{position}]: {error}") from None
        except Exception as error:  # a caller's class may raise anything
            raise ArrayError(f"{name}[{position}] cannot be read: {type(error).__name__}: {error}") from None
        if view.device is None:
            raise ArrayError(
                f"{name}[{position}] is in host memory; the Tensor Memory Accelerator reaches device memory only: move "
                "it with cupy.asarray, or use cupytma.sim, which works on numpy arrays"
            )
        check_address(view, f"{name}[{position}]")
        if view.dtype == "object":
            raise ArrayError(f"{name}[{position}] holds references to objects, and a copy of bits would not count them")
        found.append(view)
    return found


def common_device(views: Iterable[ArrayView]) -> int:
    """The device that all views are on.

    Raises
    ------
    ArrayError
        If they are on several.
    """
    devices = {view.device for view in views}
    if len(devices) > 1:
        raise ArrayError(f"the arrays are on different devices, {sorted(map(str, devices))}; move them to one")
    return int(next(iter(devices)) or 0)


def check_pairs(sources: Sequence[ArrayView], destinations: Sequence[ArrayView]) -> None:
    """Refuse arrays of which one is written while another of them is read or written in the same place.

    Raises
    ------
    ArrayError
        Naming them. Where thousands reach into one another, only the first of them are looked at.
    """
    for view in destinations:
        low, high = span_bytes(view)
        if view.size and high - low != view.size * view.itemsize:  # else no two elements can be in one place
            check_overlap(view, view)
    check_spans(
        [spans_of(views) for views in (sources, destinations)], (sources.__getitem__, destinations.__getitem__)
    )


def spans_of(views: Sequence[ArrayView]) -> npt.NDArray[np.int64]:
    """The first address of each array and the one after its last, shape (arrays, 2)."""
    return np.array([[v.address + x for x in span_bytes(v)] for v in views], np.int64).reshape(-1, 2)


def check_spans(
    spans: Sequence[npt.NDArray[np.int64]], views: tuple[Callable[[int], ArrayView], Callable[[int], ArrayView]]
) -> None:
    """`check_pairs` of arrays whose reach is known; their views are asked for where they may overlap.

    Parameters
    ----------
    spans : sequence of numpy.ndarray
        Of the sources and of the destinations; see `spans_of`.
    views : tuple of callable
        Give a source's view, and a destination's.
    """
    lows, highs = spans[1].T
    order = np.argsort(lows, kind="stable")
    lows, reach = lows[order], np.maximum.accumulate(highs[order])
    looked = 0
    for which, name in enumerate(("sources", "destinations")):
        ends = np.searchsorted(lows, spans[which][:, 1], side="left")
        # Of a destination, itself ends the row of those that begin before its end, and does not count.
        others = ends - which
        meets = (others > 0) & (reach[np.maximum(others, 1) - 1] > spans[which][:, 0])
        if which == 1:
            meets |= (ends > 0) & (order[np.maximum(ends, 1) - 1] != np.arange(len(ends)))
        for i in np.flatnonzero(meets & (spans[which][:, 0] < spans[which][:, 1])).tolist():
            for place in range(int(ends[i]) - 1, -1, -1):
                if reach[place] <= spans[which][i, 0]:
                    break
                j = int(order[place])
                if (j == i and which == 1) or highs[j] <= spans[which][i, 0]:
                    continue
                if j == i:
                    check_overlap(views[0](i), views[1](j))
                elif looked < _MOST_OVERLAPS:
                    looked += 1
                    if share_memory(views[which](i), views[1](j)):
                        raise ArrayError(
                            f"{name}[{i}] and destinations[{j}] overlap in memory, and the order in which pairs are "
                            "copied is not defined: copy to arrays of their own"
                        )


def integers_argument(values: Any, name: str, shape: tuple[int | None, ...], device: int, stream: Any) -> Any:
    """Integers in device memory as kernels take them, ready in a stream.

    Parameters
    ----------
    values : device array
        Of int32, uint32, int64 or uint64.
    shape : tuple of int or None
        That it must have; None for any extent.

    Raises
    ------
    ArrayError
        If it is of another type, shape or device.
    """
    view = view_of(values)
    if view.dtype not in _INTEGER_TYPES:
        raise ArrayError(f"{name} is of {view.dtype}; {', '.join(_INTEGER_TYPES)} are what it may be of")
    if len(view.shape) != len(shape) or any(w not in (None, n) for n, w in zip(view.shape, shape, strict=True)):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise ArrayError(f"{name} has shape {view.shape}; ({wanted}) is needed")
    if view.device != device:
        raise ArrayError(f"{name} is on device {view.device}, and the arrays on device {device}")
    if any(number % view.itemsize for number in (view.address, *view.strides)):
        raise ArrayError(f"{name} lies at {view.address:#x}, which its type does not allow; copy it first")
    wait_for(view.stream, stream)
    found = np.zeros((), INTEGERS)
    found["data"], found["row_bytes"] = view.address, view.strides[0]
    found["entry_bytes"] = view.strides[1] if len(shape) > 1 else 0
    found["item_bytes"], found["is_signed"] = view.itemsize, view.dtype.startswith("int")
    return found[()]


def is_on_device(values: Any) -> bool:
    """Whether something is an array in device memory."""
    if isinstance(values, (list, tuple, np.ndarray)):
        return False
    try:
        return view_of(values).device is not None
    except Exception:  # no array, or a caller's class that raises
        return False


def whole_numbers(values: Any, name: str, shape: tuple[int | None, ...]) -> npt.NDArray[np.int64]:
    """Integers on the host.

    Raises
    ------
    ArrayError
        If they are none, or of another shape.
    """
    try:
        found = np.asarray(values)
    except Exception:  # rows of different lengths, or a caller's class that raises
        raise ArrayError(f"{name} = {shown(values)}: whole numbers are needed, every row as long") from None
    if found.dtype.kind not in "iu" and found.size:
        raise ArrayError(f"{name} = {shown(values)}: whole numbers are needed")
    if found.ndim != len(shape) or any(w not in (None, n) for n, w in zip(found.shape, shape, strict=True)):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise ArrayError(f"{name} has shape {found.shape}; ({wanted}) is needed")
    if found.dtype.kind == "u" and found.size and found.max() > _LARGEST:
        raise ArrayError(f"{name} = {shown(values)}: {int(found.max())} is more than {_LARGEST}, the largest that fits")
    return found.astype(np.int64)


def place_of_work(handle: int) -> Any:
    """What tells streams apart: the handle, and for the default stream of each thread the thread."""
    if handle != _PER_THREAD:
        return handle
    if not hasattr(_thread, "mark"):
        _thread.mark = object()
    return handle, _thread.mark


def handle_for(stream: Any, arrays: Sequence[Any]) -> int:
    """The stream to work on: the given one, else torch's current one if an array is torch's, else CuPy's."""
    if stream is not None:
        return handle_of(stream)
    torch = getattr(sys.modules.get("torch"), "Tensor", None)  # arrays can be torch's only if torch is loaded
    for array in arrays:
        if torch is not None and isinstance(array, torch):
            device = array.get_device()
            if device >= 0:  # else what reads the array says which one is on the host
                return current_handle(TorchDevice(device))
    return current_handle(None)
