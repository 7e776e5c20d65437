"""Borders, turning round, rolling and filling: their parts, carried out on the simulator against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma.errors import ArrayError
from cupytma.ops.arrangement import (
    as_row,
    flipped,
    pad_parts,
    pad_widths,
    part_of,
    plan_window,
    roll_parts,
    shifts_of,
)
from cupytma.ops.filling import element_bytes
from cupytma.ops.simulated_columns import column_tiles
from cupytma.ops.simulated_copy import simulate_copy, span_of
from cupytma.tensormap.arrays import view_of

SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 8, 16]), min_size=1, max_size=4).map(tuple)


def random_array(shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(1, 100, shape).astype(dtype)


@given(SHAPES, st.data())
@settings(max_examples=100, deadline=None)
def test_the_parts_of_a_border_are_each_element_once(shape: tuple[int, ...], data: st.DataObject) -> None:
    widths = tuple(data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3))) for _ in shape)
    inside, *borders = pad_parts(shape, widths)
    found = np.zeros([n + sum(pair) for n, pair in zip(shape, widths, strict=True)], int)
    for number, part in enumerate((inside, *borders)):
        found[tuple(slice(first, first + extent) for first, extent in part)] += 1 + 100 * (number == 0)
    np.testing.assert_array_equal(found, np.pad(np.full(shape, 101), widths, constant_values=1))


@given(SHAPES, st.data())
@settings(max_examples=100, deadline=None)
def test_rolled_arrays_are_numpys(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = tuple(data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=3)))
    shifts = tuple(data.draw(st.integers(-20, 20)) for _ in axes)
    x = random_array(shape)
    out = np.zeros_like(x)
    for source, destination in roll_parts(shape, shifts_of(shifts, axes, shape)):
        simulate_copy(part_of(view_of(x), source), part_of(view_of(out), destination))
    np.testing.assert_array_equal(out, np.roll(x, shifts, axes))
    row = np.zeros_like(x)
    for source, destination in roll_parts((x.size,), shifts_of(shifts[0], 0, (x.size,))):
        simulate_copy(part_of(as_row(view_of(x)), source), part_of(as_row(view_of(row)), destination))
    np.testing.assert_array_equal(row, np.roll(x, shifts[0]))


@given(SHAPES, st.data())
@settings(max_examples=60, deadline=None)
def test_flipped_arrays_are_numpys(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1))))
    x = random_array(shape)
    out = np.zeros_like(x)
    simulate_copy(flipped(view_of(x), axes), out)
    np.testing.assert_array_equal(out, np.flip(x, axes))


@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((6, 7, 8), ((0, 0), (2, 3), (0, 0))),
        ((20, 16), ((3, 1), (0, 0))),
        ((3, 9, 10, 2, 8), ((0, 0), (1, 2), (3, 0), (0, 0), (0, 0))),
        ((5, 6, 7, 8), ((1, 1), (0, 2), (2, 0), (0, 0))),
        ((5, 6, 7, 8), ((1, 1), (0, 0), (2, 0), (0, 0))),
    ],
)
def test_borders_of_zeros_come_from_the_fill_of_a_map(shape, widths) -> None:
    x = random_array(shape)
    expected = np.pad(x, widths)
    out = np.full_like(expected, 7)
    plan = plan_window(view_of(x), view_of(out), widths)
    assert plan is not None
    column_tiles(plan, span_of(x), span_of(out))
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("shape", "widths", "reason"),
    [
        ((6, 8), ((1, 1), (1, 1)), "channels of a pixel are 4 B"),  # the last dimension has a border
        ((6, 7, 3), ((0, 0), (2, 3), (0, 0)), "channels of a pixel are 12 B"),
        ((6, 2, 2, 2, 8), ((1, 0), (0, 0), (0, 0), (1, 0), (0, 0)), "reach over 4 dimensions"),
        ((6, 2, 2, 8), ((17, 0), (1, 0), (1, 0), (0, 0)), "corner of -17 is outside"),
        ((6, 8), ((0, 0), (0, 0)), "there is no border"),
        ((0, 8), ((1, 0), (0, 0)), "the array is empty"),
    ],
)
def test_other_borders_are_filled_and_the_rule_is_named(shape, widths, reason: str) -> None:
    x = random_array(shape)
    found = plan_window(view_of(x), view_of(np.pad(x, widths)), widths)
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (2, ((2, 2), (2, 2), (2, 2))),
        ((1, 2), ((1, 2), (1, 2), (1, 2))),
        (((1, 2), (0, 0), (3, 4)), ((1, 2), (0, 0), (3, 4))),
    ],
)
def test_widths_are_given_as_numpys(given: object, expected: object) -> None:
    assert pad_widths(given, 3) == expected


@pytest.mark.parametrize("given", [-1, None, "12", ((1, 2),), (1, 2, 3), ((1, 2), (3,), (1, 1)), 1.5, 2**60])
def test_impossible_widths_are_refused(given: object) -> None:
    with pytest.raises(ArrayError, match="pad_width = "):
        pad_widths(given, 3)


def test_impossible_shifts_are_refused() -> None:
    refused = (1, 3, "axis = "), (1.5, 0, "shift = "), ((1, 2), 0, "2 entries for 1 axis"), (1, "a", "axis")
    for shift, axis, message in refused:
        with pytest.raises(ArrayError, match=message):
            shifts_of(shift, axis, (4, 5))
    with pytest.raises(ArrayError, match="C-contiguous"):
        as_row(view_of(np.zeros((4, 5)).T))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", 255), ("int16", -5), ("float16", 0.1), ("float32", np.float64(1e300)), ("complex64", 1 - 2j),
     ("bool", True), ("int64", 2**63 - 1), ("float64", np.int8(3)), ("float32", np.array(2.5)), ("complex128", 4)],
)  # fmt: skip
def test_values_become_the_bytes_that_numpy_gives(dtype: str, value: object) -> None:
    with np.errstate(over="ignore"):
        assert element_bytes(dtype, value) == np.full(1, value, dtype).tobytes()


def test_types_of_other_libraries_are_filled_too() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert element_bytes("bfloat16", 1.5) == np.array(1.5, ml_dtypes.bfloat16).tobytes()
    assert element_bytes("float8_e4m3fn", 2) == np.array(2, ml_dtypes.float8_e4m3fn).tobytes()
    with pytest.raises(ArrayError, match="unsigned integers of as many bytes"):
        element_bytes("float3_of_nobody", 1)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", 256), ("uint8", -1), ("int8", 1.5), ("int32", float("nan")), ("bool", 2), ("float32", 1j),
     ("float32", "1"), ("float32", None), ("float32", [1]), ("int8", float("inf")), ("bfloat16", 1j)],
)  # fmt: skip
def test_values_that_a_type_cannot_hold_are_refused(dtype: str, value: object) -> None:
    with pytest.raises(ArrayError, match="value = "):
        element_bytes(dtype, value)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_kernel_that_fills_compiles(target: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-python and NVRTC")
    from cupytma.ops.filling import _PATTERN
    from cupytma.ops.ordinary import _REGION, MAX_OUTER_RANK
    from cupytma.ops.paired import kernels

    region, pattern = kernels("fill.cu", target, MAX_OUTER_RANK=MAX_OUTER_RANK).signatures["fill"].parameters
    assert (region.size, pattern.size) == (_REGION.itemsize, _PATTERN.itemsize)
