"""Arrays with their dimensions in another order, in memory of their own."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import empty, move
from cupytma.ops.layout import permuted_view
from cupytma.runtime.device import cupy
from cupytma.runtime.given import shown
from cupytma.tensormap.arrays import view_of


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
    stream : stream or int, optional
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
    chosen = _integers(axes)
    if out is None:
        cupy()
        out = empty(x, permuted_view(view_of(x), chosen).shape, stream)
    move(x, chosen, out, stream)
    return out


def transpose(x: Any, *, out: Any = None, stream: Any = None) -> Any:
    """An array with its last two dimensions exchanged: a matrix transposed, or each of a batch of them.

    Parameters, result and errors as for `permute`; ``x`` has at least two dimensions.
    """
    rank = x.ndim if isinstance(getattr(x, "ndim", None), int) else len(view_of(x).shape)
    return permute(x, transposed_axes(rank), out=out, stream=stream)


def transposed_axes(rank: int) -> tuple[int, ...]:
    """The axes of a transposition, for `permute`.

    Raises
    ------
    ArrayError
        If there are fewer than two dimensions.
    """
    if rank < 2:
        raise ArrayError(f"a transposition exchanges the last two dimensions, and the array has {rank}")
    return (*range(rank - 2), rank - 1, rank - 2)


def _integers(axes: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, axes))
    except TypeError:
        raise ArrayError(f"axes = {shown(axes)}: an integer is needed for each of the array's axes") from None
