"""Arrays whose dimensions change places: plans, carried out on the simulator against numpy, and the kernels' code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma.errors import ArrayError
from cupytma.ops.copy_plan import plan_copy
from cupytma.ops.layout import permuted_view
from cupytma.ops.simulated_copy import simulate_copy, turned_bytes
from cupytma.ops.transposition import SHAPES, TransposePlan, TurnPlan
from cupytma.tensormap.arrays import view_of

DTYPES = {1: "u1", 2: "u2", 4: "f4", 8: "f8", 16: "c16"}
GUARD = 64


def placed(shape: tuple[int, ...], dtype: str, pad: int = 0, offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A random array inside a larger buffer, rows some bytes longer than they need be, and the buffer."""
    itemsize = np.dtype(dtype).itemsize
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent + (pad if len(strides) == 1 else 0)
    buffer = np.random.default_rng(sum(shape) + offset).integers(0, 256, step + 2 * GUARD + 64, dtype=np.uint8)
    return np.ndarray(shape, dtype, buffer, -buffer.ctypes.data % 64 + GUARD + offset, tuple(strides)), buffer


def assert_turns(source: np.ndarray, destination: np.ndarray, buffer: np.ndarray) -> None:
    """A simulated copy gives the destination the source's bits and changes nothing else of the buffer."""
    expected, bits = buffer.copy(), np.dtype(f"V{destination.itemsize}")
    offset = destination.ctypes.data - buffer.ctypes.data
    np.ndarray(destination.shape, bits, expected, offset, destination.strides)[...] = np.ndarray(
        source.shape, bits, source.base, source.ctypes.data - source.base.ctypes.data, source.strides
    )
    simulate_copy(source, destination)
    np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize("size", sorted(DTYPES))
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (128, 320), (256, 16), (272, 144), (400, 64)])
def test_matrices_are_turned_through_tensor_maps(size: int, rows: int, columns: int) -> None:
    source, _ = placed((rows, columns), DTYPES[size])
    destination, buffer = placed((columns, rows), DTYPES[size])
    plan = plan_copy(view_of(source.T), view_of(destination))
    assert isinstance(plan.turned, TransposePlan) == (min(rows, columns) * size >= 64)
    assert_turns(source.T, destination, buffer)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_rows_that_end_within_a_unit_are_finished_apart(size: int) -> None:
    rows = 160 // size + 1
    source, _ = placed((rows, 96), DTYPES[size])
    destination, buffer = placed((96, rows), DTYPES[size], pad=-rows * size % 16 + 16)
    plan = plan_copy(view_of(source.T), view_of(destination))
    assert isinstance(plan.turned, TransposePlan)
    assert plan.rest is not None
    assert plan.rest.bytes == 96 * (rows * size % 16)
    assert_turns(source.T, destination, buffer)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_permutation_of_any_array_is_exact_and_touches_nothing_else(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from(sorted(DTYPES)))
    rank = data.draw(st.integers(2, 5))
    extents = st.sampled_from([1, 2, 3, 16, 20, 33] if rank > 3 else [1, 7, 16, 31, 48, 64, 130])
    shape = tuple(data.draw(extents) for _ in range(rank))
    axes = data.draw(st.permutations(range(rank)))
    pads, offsets = st.sampled_from([0, 0, 16, 3 * size]), st.sampled_from([0, 0, 16, size])
    source, _ = placed(shape, DTYPES[size], data.draw(pads), data.draw(offsets))
    target = tuple(shape[axis] for axis in axes)
    destination, buffer = placed(target, DTYPES[size], data.draw(pads), data.draw(offsets))
    assert_turns(source.transpose(axes), destination, buffer)


@pytest.mark.parametrize(
    ("shape", "axes", "dtype", "kind"),
    [
        ((64, 64, 64, 64, 8), (1, 0, 3, 2, 4), "f2", TransposePlan),
        ((4, 128, 256), (0, 2, 1), "f2", TransposePlan),
        ((4, 3, 128, 256), (3, 0, 1, 2), "f4", TransposePlan),
        ((128, 255), (1, 0), "f4", TurnPlan),
        ((127, 256), (1, 0), "u1", TurnPlan),
        ((128, 3), (1, 0), "f4", type(None)),
        ((64, 64, 64), (1, 0, 2), "f4", type(None)),
    ],
)
def test_the_plan_chooses_the_way(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, kind: type) -> None:
    source = np.lib.stride_tricks.as_strided(np.zeros(16, dtype), shape, np.zeros(shape, "V1").strides)
    itemsize = np.dtype(dtype).itemsize
    dense = tma.tensormap.views.ArrayView(
        1 << 40, shape, tuple(s * itemsize for s in source.strides), np.dtype(dtype).name, itemsize, 0
    )
    moved = permuted_view(dense, axes)
    strides = tuple(itemsize * int(np.prod(moved.shape[i + 1 :])) for i in range(len(shape)))
    target = tma.tensormap.views.ArrayView(1 << 44, moved.shape, strides, dense.dtype, itemsize, 0)
    plan = plan_copy(moved, target)
    assert type(plan.turned) is kind
    assert bool(plan.reason) == (kind is not TransposePlan and plan.tiles is None)


def test_runs_that_are_not_aligned_to_their_length_are_moved_in_words() -> None:
    base = np.arange(64 * 64 * 2, dtype="f4").reshape(64, 64, 2)
    buffer = np.empty(base.size + 64, "f4")
    for offset, kind in ((0, TransposePlan), (2, TurnPlan), (1, type(None))):
        start = offset - buffer.ctypes.data // 4 % 16 + 16
        out = buffer[start : start + base.size].reshape(64, 64, 2)
        assert type(plan_copy(view_of(base.transpose(1, 0, 2)), view_of(out)).turned) is kind
        simulate_copy(base.transpose(1, 0, 2), out)
        np.testing.assert_array_equal(out, base.transpose(1, 0, 2))


@pytest.mark.parametrize("size", sorted(DTYPES))
def test_a_turned_tile_takes_every_byte_to_a_place_of_its_own(size: int) -> None:
    matrix, _ = placed((512, 512), DTYPES[size])
    plan = plan_copy(view_of(matrix.T), view_of(np.empty((512, 512), DTYPES[size]))).turned
    assert isinstance(plan, TransposePlan)
    for places in turned_bytes(plan):
        assert np.array_equal(np.sort(places.ravel()), np.arange(plan.tile_bytes))


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), (0, 1, 2), "01", None, (0, 1.5), 5])
def test_what_is_no_permutation_is_refused(axes: object) -> None:
    with pytest.raises(ArrayError, match="each of the array's axes 0 to 1 is needed once"):
        permuted_view(view_of(np.zeros((2, 3))), axes)


def test_negative_axes_count_from_the_end() -> None:
    assert permuted_view(view_of(np.zeros((2, 3, 4))), (-1, 0, -2)).shape == (4, 2, 3)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_kernels_compile_for_every_element_size_and_rank(target: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    from cupytma.ops.copy_launches import transpose_module, turn_module

    for size in SHAPES:
        for rank in range(2, 6):
            assert set(transpose_module(target, size, rank).signatures) == {"transpose"}
    assert set(turn_module(target).signatures) == {f"turn_{size}" for size in SHAPES}
