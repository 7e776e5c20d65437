"""The last calls of operations on many arrays, found again by the arrays that they were made with."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain
from threading import Lock
from typing import Any

from cupytma.ops.groups import PreparedGroups
from cupytma.ops.known_objects import Lists, Watch, identity_of
from cupytma.runtime.captures import capture_of
from cupytma.runtime.tensor_guards import guard_of, some_are_nested

_KEPT = 16


class Recent:
    """The last calls."""

    def __init__(self) -> None:
        self._known: OrderedDict[Any, PreparedGroups] = OrderedDict()
        self._lock = Lock()

    def get(self, mark: Any, arrays: Lists) -> PreparedGroups | None:
        """What was prepared for arrays, in several lists, if they still live and lie where they were.

        Parameters
        ----------
        mark : hashable
            What tells calls apart beside their arrays.
        """
        tensor = _tensor_type(arrays)
        key = _key(mark, arrays, tensor)
        found = self._known.get(key)
        if found is None:
            return None
        if (
            (not found.is_alive if found.lies_as is None else not found.lies_as(arrays))
            # Replays may run beside this call, and those of another graph: only the same capture goes on with it.
            or (found.capture is not None and found.capture != capture_of(found.handle))
        ):
            with self._lock:
                self._known.pop(key, None)
            return None
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
        return found

    def keep(self, mark: Any, prepared: PreparedGroups, arrays: Lists, by_shape: bool = False) -> None:
        """Keep what was prepared, where it can be known how long it holds: for arrays all of CuPy or all of torch.

        Parameters
        ----------
        prepared : PreparedGroups
            With its own test for tensors that lie as these, or none.
        by_shape : bool
            Whether the arrays' shapes say what is done. CuPy's can be given others in place; a copy of whole arrays
            goes by the order of their elements, which stays.
        """
        together = list(chain.from_iterable(arrays))
        libraries = {kind.__module__.partition(".")[0] for kind in set(map(type, together))}
        tensor = _tensor_type(arrays)
        if libraries == {"torch"} and tensor is not None:
            try:
                prepared.lies_as = prepared.lies_as or _tensors_like(arrays, tensor)
            except RuntimeError:  # a tensor without strided memory
                return
        elif libraries != {"cupy"} or not prepared.watch(together):
            return
        elif by_shape:
            prepared.lies_as = _arrays_like(prepared, arrays)
        with self._lock:
            while len(self._known) >= _KEPT:
                self._known.popitem(last=False)
            self._known[_key(mark, arrays, tensor)] = prepared

    def clear(self) -> None:
        """Forget all of them."""
        self._known.clear()


def _tensor_type(arrays: Lists) -> Any:
    """torch's type, if the first array is of it."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor if tensor is not None and isinstance(next(chain.from_iterable(arrays), None), tensor) else None


def _key(mark: Any, arrays: Lists, tensor: Any) -> Any:
    """What calls with the same arrays have in common: of CuPy's their identity, of tensors where some of them lie."""
    if tensor is None:
        return mark, *identity_of(arrays)
    try:
        ends = [(len(several), *map(tensor.data_ptr, (several[0], several[-1]))) for several in arrays if several]
        return mark, *ends
    except (TypeError, RuntimeError):  # an array of another library among them, or one without memory of its own
        return mark, None


def _arrays_like(prepared: PreparedGroups, arrays: Lists) -> Callable[[Lists], bool]:
    """Whether CuPy's arrays, which stay where they are, all live and have the shapes and strides of some."""

    def layouts(arrays: Lists) -> Any:
        return [[(array.shape, array.strides) for array in several] for several in arrays]

    kept = layouts(arrays)
    return lambda others: prepared.is_alive and layouts(others) == kept


class TensorsLieAs:
    """Whether torch's tensors lie where some do, with their types, shapes and strides: then the same is to be done.

    Asked for by methods of the type, without a frame of Python for each, and where torch has it by the test with which
    its compiler guards what it has compiled, in one call for a list.

    Parameters
    ----------
    places : sequence of list of int
        Addresses of the tensors of each list.
    guards : sequence of callable
        The test for each list; see `guard_of`.
    layouts : optional
        What tensors have instead, where torch has no such test for some list.
    """

    def __init__(
        self, places: Sequence[list[int]], guards: Sequence[Callable[..., bool]], layouts: Any = None
    ) -> None:
        self._places, self._guards, self._layouts = places, guards, layouts
        self._data_ptr = sys.modules["torch"].Tensor.data_ptr
        self._seen: tuple[tuple[bytes, ...], Watch] | None = None

    def __call__(self, others: Lists) -> bool:
        others = [tuple(several) for several in others]  # another thread may change the caller's lists
        try:
            for several, lying in zip(others, self._places, strict=True):
                if list(map(self._data_ptr, several)) != lying:
                    return False
            if self._layouts is not None:
                return bool(_layouts(others) == self._layouts)
            if not self._may_be_guarded(others):
                return False
        except (TypeError, RuntimeError):  # as for keys
            return False
        return all(guard(*several) for guard, several in zip(self._guards, others, strict=True) if several)

    def _may_be_guarded(self, others: Lists) -> bool:
        """No nested tensor is among them. Of the first that are found again, as long as they live, that is known."""
        seen, identity = self._seen, identity_of(others)
        if seen is not None and seen[1].is_alive and seen[0] == identity:
            return True
        if any(map(some_are_nested, others)):
            return False
        if seen is None:
            self._seen = identity, Watch(chain.from_iterable(others))
        return True


def _tensors_like(arrays: Lists, tensor: Any) -> TensorsLieAs:
    found = [guard_of(several) for several in arrays]
    guards = [guard for guard in found if guard is not None]
    places = [list(map(tensor.data_ptr, several)) for several in arrays]
    return TensorsLieAs(places, guards, _layouts(arrays) if len(guards) < len(found) else None)


def _layouts(arrays: Lists) -> Any:
    return [[(t.shape, t.stride(), t.dtype, t.is_conj(), t.is_neg()) for t in several] for several in arrays]
