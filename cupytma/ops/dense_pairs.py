"""Pairs of C-contiguous arrays of one library, found in columns: by calls of C, without a line of Python for each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from cupytma.runtime.device import cupy
from cupytma.runtime.tensor_guards import guard_of, some_are_nested
from cupytma.tensormap.views import PACKED_IN_TORCH

Arrays = Sequence[Any]


@dataclass(frozen=True)
class DensePairs:
    """Arrays and others of their shapes and dtypes, all on one device, each without gaps.

    Attributes
    ----------
    device : int
    sources, destinations : list of int
        Addresses.
    sizes : list of int
        Bytes of each source, as of its destination.
    guards : tuple of callable, or None
        Where they are torch's and it has such tests: whether as many tensors are like the sources, and like the
        destinations. See `guard_of`.
    """

    device: int
    sources: list[int]
    destinations: list[int]
    sizes: list[int]
    guards: tuple[Callable[..., bool], Callable[..., bool]] | None = None


def dense_pairs(sources: Arrays, destinations: Arrays) -> DensePairs | None:
    """What is known of pairs that are all CuPy's arrays or all torch's tensors; None for others.

    None too where a closer look is needed, which says by name what is wrong if something is.
    """
    kinds, torch = set(map(type, (*sources, *destinations))), sys.modules.get("torch")
    try:
        if kinds == {cupy().ndarray}:
            return _arrays(sources, destinations)
        if torch is not None and kinds <= {torch.Tensor, torch.nn.Parameter}:
            return _tensors(sources, destinations, torch.Tensor)
    except (AttributeError, RuntimeError):  # another release of the library, or a tensor without memory
        pass
    return None


def _column(name: str, arrays: Arrays) -> list[Any]:
    return list(map(attrgetter(name), arrays))


def _arrays(sources: Arrays, destinations: Arrays) -> DensePairs | None:
    # An eighth of what flags.c_contiguous takes, which makes an object for it (27 of 213 ns, measured).
    is_dense = "_c_contiguous" if hasattr(sources[0], "_c_contiguous") else "flags.c_contiguous"
    together = (*sources, *destinations)
    devices = set(_column("data.device_id", together))
    if len(devices) > 1 or not all(_column(is_dense, together)):
        return None
    dtypes = _column("dtype", sources)
    if _column("shape", sources) != _column("shape", destinations) or dtypes != _column("dtype", destinations):
        return None
    if any(dtype.kind == "O" for dtype in set(dtypes)):
        return None
    addresses = _column("data.ptr", sources), _column("data.ptr", destinations)
    return DensePairs(devices.pop(), *addresses, _column("nbytes", sources))


def _tensors(sources: Arrays, destinations: Arrays, tensor: Any) -> DensePairs | None:
    if some_are_nested(sources) or some_are_nested(destinations):
        return None
    device = _common_device(sources, tensor)
    if device is None:
        return None
    guard = guard_of(sources)
    are_alike = guard is not None and guard(*destinations)
    if not are_alike and (
        _common_device(destinations, tensor) != device
        or any(_column(name, sources) != _column(name, destinations) for name in ("shape", "dtype"))
    ):
        return None
    other = guard if are_alike else guard_of(destinations)
    addresses = list(map(tensor.data_ptr, sources)), list(map(tensor.data_ptr, destinations))
    guards = None if guard is None or other is None else (guard, other)
    return DensePairs(device, *addresses, _column("nbytes", sources), guards)


def _common_device(tensors: Arrays, tensor: Any) -> int | None:
    """Of tensors without gaps whose memory holds what they are, neither conjugated nor negated."""
    devices = set(_column("device", tensors))
    if len(devices) > 1 or not all(map(tensor.is_contiguous, tensors)) or any(map(tensor.is_neg, tensors)):
        return None
    dtypes = set(_column("dtype", tensors))
    if any(dtype.is_complex for dtype in dtypes) and any(map(tensor.is_conj, tensors)):
        return None
    if any(str(dtype).removeprefix("torch.") in PACKED_IN_TORCH for dtype in dtypes):
        return None
    device = devices.pop()
    return int(device.index) if device.type == "cuda" else None
