"""Arrays with their dimensions in another order, in memory of their own."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import check_devices, copy_views, empty
from cupytma.runtime.device import cupy
from cupytma.runtime.streams import current_stream
from cupytma.tensormap.arrays import ArrayView, view_of


def permute(x: Any, axes: Sequence[int], *, out: Any = None, stream: Any = None) -> Any:
    """An array with its dimensions in another order, as ``numpy.ascontiguousarray(numpy.transpose(x, axes))``.

    Where the last dimension stays last, rows move as they are; where it does not, elements of 1, 2, 4, 8 or 16 bytes
    are turned in swizzled tiles of shared memory between tensor loads and stores. Whatever no tensor map may describe
    moves by ordinary loads and stores. `cupytma.copy` of a permuted view is the same.

    Parameters
    ----------
    x : array
        A CuPy array, torch tensor, or anything with ``__cuda_array_interface__``, of any rank and strides.
    axes : sequence of int
        Dimension i of the result is dimension ``axes[i]`` of ``x``, in array order; each once.
    out : array, optional
        Of the permuted shape, the same dtype and device; it may not overlap ``x``. Default: a new C-contiguous array
        of the caller's kind.
    stream : cupy.cuda.Stream, optional
        Default: torch's current stream if an array is torch's, else CuPy's.

    Returns
    -------
    array
        ``out``. The work is ordered on the stream; the call does not wait for it.

    Raises
    ------
    NoDeviceError
        Without a GPU that has a Tensor Memory Accelerator.
    ArrayError
        If ``axes`` are no permutation, an array is in host memory, or ``out`` does not fit.
    """
    cupy()
    view = permuted_view(view_of(x), axes)
    if stream is None:
        stream = current_stream(x, out)
    if out is None:
        out = empty(x, view.shape, stream)
    target = view_of(out)
    check_devices(view, target)
    copy_views(view, target, stream)
    return out


def transpose(x: Any, *, out: Any = None, stream: Any = None) -> Any:
    """An array with its last two dimensions exchanged: a matrix transposed, or each of a batch of them.

    Parameters, result and errors as for `permute`; ``x`` has at least two dimensions.
    """
    rank = len(view_of(x).shape)
    if rank < 2:
        raise ArrayError(f"a transposition exchanges the last two dimensions, and the array has {rank}")
    return permute(x, (*range(rank - 2), rank - 1, rank - 2), out=out, stream=stream)


def permuted_view(view: ArrayView, axes: Sequence[int]) -> ArrayView:
    """A view with its dimensions in another order; no data is touched.

    Raises
    ------
    ArrayError
        If ``axes`` are no permutation of the view's.
    """
    rank = len(view.shape)
    try:
        chosen = tuple(operator.index(axis) for axis in axes)
        if sorted(axis + rank * (axis < 0) for axis in chosen) != list(range(rank)):
            raise TypeError
    except TypeError:
        raise ArrayError(f"axes = {axes!r}: each of the array's axes 0 to {rank - 1} is needed once") from None
    return replace(
        view, shape=tuple(view.shape[axis] for axis in chosen), strides=tuple(view.strides[axis] for axis in chosen)
    )
