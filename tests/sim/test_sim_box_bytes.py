"""One load brings exactly the bytes that the tensor map says, wherever it starts: to the count and to shared memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupytma import sim
from cupytma.sim.geometry import geometry
from cupytma.tensormap import Im2col, TensorMap, Tiled

BASE = 0x7F0000000000
UNWRITTEN = 0xCD
SIZES = {
    "UINT8": 1, "UINT16": 2, "UINT32": 4, "INT32": 4, "UINT64": 8, "INT64": 8, "FLOAT16": 2, "BFLOAT16": 2,
    "FLOAT32": 4, "FLOAT32_FTZ": 4, "TFLOAT32": 4, "TFLOAT32_FTZ": 4, "FLOAT64": 8,
}  # fmt: skip
SPANS = {"NONE": 256, "32B": 32, "64B": 64, "128B": 128}

Use = tuple[TensorMap, tuple[int, ...], int]


@st.composite
def shapes(draw: st.DrawFn, smallest_rank: int) -> tuple[dict[str, Any], int]:
    """What tiled and im2col parameters share, and the elements of an innermost row."""
    rank = draw(st.integers(smallest_rank, 5))
    data_type = draw(st.sampled_from(sorted(SIZES)))
    interleave = draw(st.sampled_from(["NONE", "16B", "32B"] if rank >= 3 else ["NONE"]))
    swizzle = draw(st.sampled_from(sorted(SPANS)))
    row = draw(st.integers(1, min(256 * SIZES[data_type], SPANS[swizzle]) // 16)) * 16 // SIZES[data_type]
    dims = tuple(draw(st.integers(3, 40 if i == 0 else 6)) for i in range(rank))
    strides = tuple(draw(st.integers(0, 40)) * 32 for _ in range(rank - 1))
    shape = {
        "data_type": data_type,
        "global_address": BASE,
        "global_dim": dims,
        "global_strides": strides,
        "element_strides": tuple(draw(st.integers(1, 8)) for _ in range(rank)),
        "interleave": interleave,
        "swizzle": swizzle,
        "oob_fill": draw(st.integers(0, 1)) if "FLOAT" in data_type else 0,
    }
    return shape, row


@st.composite
def places(draw: st.DrawFn, shape: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    """A start near the tensor, and a place in shared memory."""
    coords = [draw(st.integers(-9, extent + 2)) for extent in shape["global_dim"]]
    if shape["interleave"] == "NONE":
        coords[0] = coords[0] * 16 // SIZES[shape["data_type"]]
    return tuple(coords), 128 * draw(st.integers(0, 9))


@st.composite
def tiled(draw: st.DrawFn) -> Use:
    shape, row = draw(shapes(1))
    rest = [draw(st.integers(1, 9)) for _ in shape["global_dim"][1:]]
    while prod(rest) * 256 > 100_000:
        rest[rest.index(max(rest))] -= 1
    coords, place = draw(places(shape))
    return Tiled(**shape, box_dim=(row, *rest)).encode(), coords, place


@st.composite
def im2col(draw: st.DrawFn) -> Use:
    shape, row = draw(shapes(3))
    first = 0 if shape["interleave"] != "NONE" else 1
    spatial = shape["global_dim"][first : len(shape["global_dim"]) - 2 + first]
    lower = tuple(draw(st.integers(-3, min(extent // 2, 16) - 1)) for extent in spatial)
    upper = tuple(draw(st.integers(-min(extent // 2, 16), 3)) for extent in spatial)
    coords, place = draw(places(shape))
    starts = (draw(st.integers(a, n + b - 1)) for a, b, n in zip(lower, upper, spatial, strict=True))
    coords = (*coords[:first], *starts, *coords[first + len(spatial) :])
    p = Im2col(
        **shape, pixel_box_lower_corner=lower, pixel_box_upper_corner=upper, channels_per_pixel=row,
        pixels_per_column=draw(st.integers(1, 300)),
    )  # fmt: skip
    return p.encode(), coords, place


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.one_of(tiled(), im2col()))
def test_a_load_counts_and_writes_as_many_bytes_as_the_tensor_map_says(use: Use) -> None:
    tensor_map, coords, place = use
    p = tensor_map.decode()
    reach = (p.slice_bytes or p.element_bytes) * p.global_dim[0] + sum(
        n * stride for n, stride in zip(p.global_dim[1:], p.global_strides, strict=True)
    )
    memory, shared = np.zeros(reach, np.uint8), np.full(1 << 18, UNWRITTEN, np.uint8)
    moved = sim.load(tensor_map, coords, memory=memory, base=BASE, shared=shared, shared_offset=place)
    # What a load writes here are zeros and the two bytes of the NaN fill.
    assert moved == np.count_nonzero(shared != UNWRITTEN) == tensor_map.box_bytes == p.transaction_bytes
    plan = geometry(tensor_map)
    assert plan.rows * plan.width == moved
    sim.prefetch(tensor_map, coords, memory=memory, base=BASE)
