"""Why an operation is carried out the way it is: the planner asked without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from cupytma.errors import ArrayError
from cupytma.ops.array_copy import copy
from cupytma.ops.copy_plan import CHUNK_BYTES, CopyPlan, plan_copy
from cupytma.ops.layout import permuted_view
from cupytma.ops.permutation import permute, transpose
from cupytma.ops.transposition import TransposePlan
from cupytma.tensormap.arrays import ArrayView, view_of

# Where an output is thought to lie that does not exist yet: aligned, and away from everything.
_SOMEWHERE = 1 << 54


@dataclass(frozen=True)
class Explanation:
    """How an operation is carried out.

    Attributes
    ----------
    path : str
        In words.
    box_dim : tuple of int
        Of the tensor maps, in words of up to 8 bytes, driver order; empty where there are none.
    tiles, stages, blocks : int
        Tiles in all; tiles in flight in a block, and blocks of one multiprocessor; 0 where there are none.
    bytes_through_maps, bytes_otherwise : int
        Bytes that move through tensor maps, and by ordinary loads and stores.
    reason : str
        The rule that keeps bytes from tensor maps; empty where none does.
    plan : CopyPlan
        What it was read from.
    """

    path: str
    box_dim: tuple[int, ...]
    tiles: int
    stages: int
    blocks: int
    bytes_through_maps: int
    bytes_otherwise: int
    reason: str
    plan: CopyPlan

    def __str__(self) -> str:
        lines = [self.path]
        if self.tiles:
            boxes = f" in boxes of {self.box_dim} words" if self.box_dim else ""
            lines.append(f"  {self.tiles} tiles{boxes}")
        if self.blocks:
            lines.append(f"  {self.stages} in flight in a block, {self.blocks} blocks on a multiprocessor")
        lines.append(f"  {self.bytes_through_maps} B through tensor maps, {self.bytes_otherwise} B otherwise")
        lines.append(f"  because {self.reason}" if self.reason else "")
        return "\n".join(filter(None, lines))


def explain(operation: Callable[..., Any], source: Any, *arguments: Any) -> Explanation:
    """How `copy`, `transpose` or `permute` is carried out for given arrays. Needs no GPU, and moves nothing.

    Parameters
    ----------
    operation : callable
        `cupytma.copy`, `cupytma.transpose` or `cupytma.permute`.
    source : array
        On the host or a GPU.
    *arguments
        As the operation takes them: the axes of `permute`; then the destination, if there is one.

    Raises
    ------
    ArrayError
        As the operation; or if another is asked about.

    Examples
    --------
    >>> import numpy as np
    >>> print(explain(transpose, np.zeros((512, 256), np.float32)))
    two dimensions change places, in swizzled tiles between tensor loads and stores
      32 tiles in boxes of (32, 64) words
      4 in flight in a block, 2 blocks on a multiprocessor
      524288 B through tensor maps, 0 B otherwise
    """
    given = list(arguments)
    view = view_of(source)
    if operation is transpose:
        rank = len(view.shape)
        if rank < 2:
            raise ArrayError(f"a transposition exchanges the last two dimensions, and the array has {rank}")
        view = permuted_view(view, (*range(rank - 2), rank - 1, rank - 2))
    elif operation is permute:
        if not given:
            raise ArrayError("permute takes axes: explain(permute, x, axes)")
        view = permuted_view(view, given.pop(0))
    elif operation is not copy:
        name = getattr(operation, "__name__", "this")
        raise ArrayError(f"{name} cannot be explained; copy, transpose and permute can")
    if len(given) > 1:
        raise ArrayError(f"{len(arguments)} arguments beside the source are too many for {operation.__name__}")
    destination = view_of(given[0]) if given and given[0] is not None else _dense(view)
    return _explained(plan_copy(view, destination), view)


def _dense(view: ArrayView) -> ArrayView:
    """A C-contiguous array like a view."""
    strides = tuple(view.itemsize * prod(view.shape[i + 1 :]) for i in range(len(view.shape)))
    return ArrayView(_SOMEWHERE, view.shape, strides, view.dtype, view.itemsize, view.device)


def _explained(plan: CopyPlan, view: ArrayView) -> Explanation:
    whole = view.size * view.itemsize
    rest = plan.rest.bytes if plan.rest is not None else 0
    reason = plan.reason
    if rest and not reason:
        reason = "a tensor store rounds the end of a row up to 16 bytes, so that row ends move apart"
    if plan.is_empty:
        return Explanation("nothing to move: the array is empty", (), 0, 0, 0, 0, 0, reason, plan)
    if plan.bulk is not None:
        return Explanation(
            f"one run, in bulk copies of {CHUNK_BYTES} B without a tensor map", (), plan.bulk.chunks, 1, 0, 0, whole,
            reason, plan,
        )  # fmt: skip
    if plan.tiles is not None:
        return Explanation(
            "rows as they are, in boxes between tensor loads and stores", plan.tiles.box_dim, plan.tiles.tiles, 1, 0,
            whole - rest, rest, reason, plan,
        )  # fmt: skip
    if isinstance(plan.turned, TransposePlan):
        shape, box = plan.turned.shape, plan.turned.box_dim
        return Explanation(
            "two dimensions change places, in swizzled tiles between tensor loads and stores", box, plan.turned.tiles,
            shape.stages, shape.blocks, whole - rest, rest, reason, plan,
        )  # fmt: skip
    if plan.turned is not None:
        return Explanation(
            "two dimensions change places, in tiles of shared memory by ordinary loads and stores", (),
            plan.turned.tiles, 1, 0, 0, whole, reason, plan,
        )  # fmt: skip
    return Explanation("word by word, by ordinary loads and stores", (), 0, 0, 0, 0, whole, reason, plan)
