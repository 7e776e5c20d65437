"""How contiguous arrays are handled does not depend on their strides along dimensions of one element.

So that "contiguous" says of a tensor all that its strides would.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import pytest

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.arrangement import flip_plans, pad_plans, roll_plans
from cupytma.ops.broadcast_plan import plan_broadcast
from cupytma.ops.copy_plan import plan_copy
from cupytma.ops.layout import permuted_view
from cupytma.ops.matmul_operands import check_operands
from cupytma.ops.matmul_plan import plan_matmul
from cupytma.ops.multicast_plan import plan_multicast
from cupytma.ops.reduction_plan import plan_reduction
from cupytma.ops.rows_plan import plan_rows
from cupytma.targets import target
from cupytma.tensormap.arrays import ArrayView

TYPES = {"float16": 2, "int32": 4, "float32": 4, "float64": 8}
SM_90A = target("sm_90a")
KERNELS = [
    tma.pipeline_kernel("out = x + y", "float32 x, float32 y", "float32 out"),
    tma.pipeline_kernel("out = x + y * at[0]", "float32 x, float32 y", "float32 out"),
    tma.pipeline_kernel("out = x + y", "float32 x, float32 y", "float32 out", each="tile"),
]
View = Callable[..., ArrayView]


def dense(chance: random.Random | None) -> View:
    """Makes contiguous arrays; with `chance` whose strides along dimensions of one element are any."""

    def view(place: int, shape: tuple[int, ...], dtype: str, offset: int = 0) -> ArrayView:
        size = TYPES.get(dtype) or int(dtype[-2:]) // 8
        strides = [size * prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if chance is not None:
            any_strides = (0, size, 3 * size, 8 * size, 1000 * size)
            strides = [
                chance.choice(any_strides) if extent == 1 else stride
                for extent, stride in zip(shape, strides, strict=True)
            ]
        return ArrayView((place << 44) + offset, shape, tuple(strides), dtype, size, 0)

    return view


def rows(view: View, operation: str, table: tuple[int, ...], picked: tuple[int, ...], dtype: str) -> Any:
    source, destination = (table, picked) if operation == "gather" else (picked, table)
    arrays = view(1, source, dtype), view(2, destination, dtype), view(3, picked[:1], "int64")
    return replace(plan_rows(operation, *arrays), source_stride=0, destination_stride=0, index_stride=0)


def product(view: View, m: int, n: int, k: int) -> Any:
    shapes = (m, k), (k, n), (m, n)
    vectors = view(4, (m, 1), "float32"), view(5, (1, 1), "float32"), view(6, (1, n), "float32")
    operands = check_operands(*(view(i, shape, "float16") for i, shape in enumerate(shapes, 1)), *vectors)
    plan = plan_matmul(operands, SM_90A, 132)
    if plan.is_empty:
        return None
    maps = [(found.decode().global_dim, found.decode().box_dim) for found in plan.maps()[:2]]
    return maps, plan.is_stored_by_unit, plan.configuration, plan.size, sorted(plan.defines().items())


def pipelined(view: View, kernel: Any, shape: tuple[int, ...]) -> Any:
    arrays = view(1, shape, "float32"), view(2, (1, *shape[1:]), "float32")
    plan = kernel.plan_views(arrays, [view(3, shape, "float32")], SM_90A)
    return plan.variant, plan.layout, plan.maps, plan.counts, plan.run, plan.runs


def plans(chance: random.Random) -> dict[str, Callable[[View], Any]]:
    """How some operations on arrays of some shape are carried out."""
    shape = tuple(chance.choice((1, 1, 2, 3, 8, 16, 64, 96)) for _ in range(chance.randint(1, 4)))
    dtype, axis = chance.choice(list(TYPES)), chance.randrange(len(shape))
    order = tuple(chance.sample(range(len(shape)), len(shape)))
    turned = tuple(shape[axis] for axis in order)
    offsets = [chance.choice((0, 0, 16, 8)) for _ in range(2)]
    widths = tuple((chance.randint(0, 2), chance.randint(0, 2)) for _ in shape)
    padded = tuple(extent + low + high for extent, (low, high) in zip(shape, widths, strict=True))
    picked = (chance.choice((1, 5, 300)), *shape[1:])
    m, n, k = (chance.choice((1, 8, 64, 300)) for _ in range(3))

    def pair(view: View, other: tuple[int, ...] = shape) -> tuple[ArrayView, ArrayView]:
        return view(1, shape, dtype, offsets[0]), view(2, other, dtype, offsets[1])

    def permuted(view: View) -> Any:
        source, out = pair(view, turned)
        return plan_copy(permuted_view(source, order), out)

    found: dict[str, Callable[[View], Any]] = {
        "copy": lambda view: plan_copy(*pair(view)),
        "permute": permuted,
        "reduce": lambda view: plan_reduction("add", *pair(view), atomic=False),
        "reduce beside others": lambda view: plan_reduction("add", *pair(view), atomic=True),
        "broadcast": lambda view: plan_broadcast(
            pair(view)[0], view(3, shape[axis : axis + 1], dtype), pair(view)[1], axis
        ),
        "flip": lambda view: flip_plans(*pair(view), (axis,)),
        "roll": lambda view: roll_plans(*pair(view), tuple(i == axis for i in range(len(shape))), False),
        "pad": lambda view: pad_plans(*pair(view, padded), widths, bytes(TYPES[dtype])),
        "multicast": lambda view: plan_multicast(*pair(view, (2, *shape))),
        "gather": lambda view: rows(view, "gather", shape, picked, dtype),
        "scatter": lambda view: rows(view, "scatter", shape, picked, dtype),
        "matmul": lambda view: product(view, m, n, 8 * k),
    }
    for number, kernel in enumerate(KERNELS):
        found[f"pipeline {number}"] = lambda view, kernel=kernel: pipelined(view, kernel, shape)
    return found


@pytest.mark.parametrize("seed", range(150))
def test_plans_do_not_depend_on_strides_that_lead_nowhere(seed: int) -> None:
    chance = random.Random(seed)
    for name, plan in plans(chance).items():
        outcomes = []
        for view in (dense(None), dense(chance)):
            try:
                outcomes.append(plan(view))
            except ArrayError:
                outcomes.append(ArrayError)
        assert outcomes[0] == outcomes[1], name
