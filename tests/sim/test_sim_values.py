"""Values on the way: TF32 rounding, fills, and the arithmetic of reductions."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cupytma import sim
from cupytma.tensormap import Tiled

BASE = 0x40000


def load_row(data_type: str, values: np.ndarray[Any, Any], **changes: Any) -> np.ndarray[Any, Any]:
    """What a load of one row delivers, in the dtype of `values`."""
    p = Tiled(data_type=data_type, global_address=BASE, global_dim=(len(values),), box_dim=(len(values),), **changes)
    shared = np.zeros(values.nbytes, dtype=np.uint8)
    sim.load(p.encode(), (0,), memory=values.view(np.uint8), base=BASE, shared=shared)
    return shared.view(values.dtype)


def reduce_row(data_type: str, op: str, old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    p = Tiled(data_type=data_type, global_address=BASE, global_dim=(len(old),), box_dim=(len(old),))
    result = old.copy()
    sim.reduce(p.encode(), op, (0,), memory=result.view(np.uint8), base=BASE, shared=new.view(np.uint8))
    return result


@pytest.mark.parametrize("data_type", ["TFLOAT32", "TFLOAT32_FTZ"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(0x3F800FFF, 0x3F800000, id="below a tie goes down"),
        pytest.param(0x3F801001, 0x3F802000, id="above a tie goes up"),
        pytest.param(0x3F801000, 0x3F800000, id="a tie goes to even below"),
        pytest.param(0x3F803000, 0x3F804000, id="a tie goes to even above"),
        pytest.param(0x7F7FFFFF, 0x7F800000, id="the largest becomes infinite"),
        pytest.param(0xFF7FFFFF, 0xFF800000, id="the lowest too"),
        pytest.param(0xFF800000, 0xFF800000, id="infinity stays"),
        pytest.param(0x00001800, 0x00002000, id="denormals round and are not flushed"),
        pytest.param(0x80000001, 0x80000000, id="zero keeps its sign"),
        pytest.param(0x7F800001, 0x7FFFE000, id="a signalling NaN"),
        pytest.param(0xFFC12345, 0x7FFFE000, id="a negative NaN"),
    ],
)
def test_loads_round_to_tf32(data_type: str, given: int, expected: int) -> None:
    assert load_row(data_type, np.array([given] * 4, dtype=np.uint32)).tolist() == [expected] * 4


def test_other_types_pass_unchanged() -> None:
    patterns = np.array([0x7F800001, 0x00000001, 0x80000001, 0xFFFFFFFF], dtype=np.uint32)
    for data_type in ("FLOAT32", "FLOAT32_FTZ", "INT32"):
        assert np.array_equal(load_row(data_type, patterns), patterns)


@pytest.mark.parametrize(
    ("data_type", "pattern", "dtype"),
    [
        ("FLOAT16", 0x7FF7, "<u2"),
        ("BFLOAT16", 0x7FF7, "<u2"),
        ("FLOAT32", 0x7FF77FF7, "<u4"),
        ("TFLOAT32", 0x7FF77FF7, "<u4"),
        ("FLOAT64", 0x7FF77FF77FF77FF7, "<u8"),
    ],
)
def test_the_nan_fill_is_one_16_bit_pattern_for_every_type(data_type: str, pattern: int, dtype: str) -> None:
    count = 32 // np.dtype(dtype).itemsize
    p = Tiled(
        data_type=data_type, global_address=BASE, global_dim=(1,), box_dim=(count,), oob_fill="NAN_REQUEST_ZERO_FMA"
    )
    shared = np.zeros(32, dtype=np.uint8)
    sim.load(p.encode(), (0,), memory=np.zeros(16, np.uint8), base=BASE, shared=shared)
    assert shared.view(dtype).tolist() == [0] + [pattern] * (count - 1)


@pytest.mark.parametrize(("data_type", "dtype"), [("FLOAT16", np.float16), ("BFLOAT16", ml_dtypes.bfloat16)])
def test_half_sums_are_the_exact_sum_rounded_once(data_type: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    old, new = rng.integers(0, 2**16, (2, 256), dtype=np.uint16)
    new[:128] = old[:128] + rng.integers(-999, 999, 128).astype(np.uint16)
    found = reduce_row(data_type, "add", old, new)
    for a, b, total in zip(old.view(dtype), new.view(dtype), found, strict=True):
        if not (np.isfinite(float(a)) and np.isfinite(float(b))):
            wanted = float(a) + float(b)
            assert total == 0x7FFF if np.isnan(wanted) else float(total.view(dtype)) == wanted
        elif abs(exact := Fraction(float(a)) + Fraction(float(b))) < Fraction(float(ml_dtypes.finfo(dtype).max)):
            assert nearest_even(exact, int(total), dtype), (a, b)


def nearest_even(exact: Fraction, bits: int, dtype: Any) -> bool:
    """Whether no neighbour of a half-precision pattern is nearer to a number, and at a tie the pattern is even."""
    sign, magnitude = bits & 0x8000, bits & 0x7FFF
    distance = [
        abs(Fraction(float(np.uint16(sign | m).view(dtype))) - exact)
        for m in (magnitude, max(magnitude - 1, 0), magnitude + 1)
    ]
    return distance[0] < min(distance[1:]) or (distance[0] == min(distance[1:]) and (bits % 2 == 0 or not magnitude))


def test_float_sums_have_one_nan_and_flush_only_where_the_type_says_so() -> None:
    old = np.array([0x7FC00000, 0x7F800000, 0x00000001, 0x80000001, 0x00800000, 0x80000000, 0, 0], dtype=np.uint32)
    new = np.array([0x3F800000, 0xFF800000, 0x00000001, 0x80000001, 0x80000001, 0x80000000, 0, 0], dtype=np.uint32)
    kept = reduce_row("FLOAT32", "add", old, new).tolist()
    flushed = reduce_row("FLOAT32_FTZ", "add", old, new).tolist()
    assert kept[:6] == [0x7FFFFFFF, 0x7FFFFFFF, 0x00000002, 0x80000002, 0x007FFFFF, 0x80000000]
    assert flushed[:6] == [0x7FFFFFFF, 0x7FFFFFFF, 0, 0x80000000, 0x00800000, 0x80000000]
    smaller = reduce_row("FLOAT32_FTZ", "add", np.full(4, 0x00800001, np.uint32), np.full(4, 0x80800000, np.uint32))
    assert smaller.tolist() == [0] * 4


@pytest.mark.parametrize(("data_type", "one"), [("FLOAT16", 0x3C00), ("BFLOAT16", 0x3F80)])
def test_half_minimum_and_maximum_drop_a_nan_and_order_the_zeros(data_type: str, one: int) -> None:
    nan = 0x7FC1
    old = np.array([nan, one, nan, 0x0000, 0x8000, one, one | 0x8000, 1], dtype=np.uint16)
    new = np.array([one, nan, nan | 0x8000, 0x8000, 0x0000, one | 0x8000, one, 0x8001], dtype=np.uint16)
    low = [one, one, 0x7FFF, 0x8000, 0x8000, one | 0x8000, one | 0x8000, 0x8001]
    high = [one, one, 0x7FFF, 0x0000, 0x0000, one, one, 1]
    assert reduce_row(data_type, "min", old, new).tolist() == low
    assert reduce_row(data_type, "max", old, new).tolist() == high


def test_integers_reduce_in_their_own_signedness_and_wrap() -> None:
    old = np.array([0xFFFFFFFF, 1, 0x80000000, 7], dtype=np.uint32)
    new = np.array([2, 0xFFFFFFFE, 1, 9], dtype=np.uint32)
    assert reduce_row("UINT32", "add", old, new).tolist() == [1, 0xFFFFFFFF, 0x80000001, 16]
    assert reduce_row("UINT32", "max", old, new).tolist() == [0xFFFFFFFF, 0xFFFFFFFE, 0x80000000, 9]
    assert reduce_row("INT32", "max", old, new).tolist() == [2, 1, 1, 9]
    for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        assert np.array_equal(reduce_row("UINT32", name, old, new), function(old, new))


def test_increment_and_decrement_wrap_at_the_tiles_value() -> None:
    old = np.array([0, 4, 5, 6], dtype=np.uint32)
    limit = np.full(4, 5, dtype=np.uint32)
    assert reduce_row("UINT32", "inc", old, limit).tolist() == [1, 5, 0, 0]
    assert reduce_row("UINT32", "dec", old, limit).tolist() == [5, 3, 4, 5]


def test_a_reduction_applies_every_row_that_overlaps() -> None:
    m = Tiled(data_type="UINT32", global_address=BASE, global_dim=(8, 3), global_strides=(16,), box_dim=(8, 3)).encode()
    memory = np.zeros(16, dtype=np.uint32)
    sim.reduce(m, "add", (0, 0), memory=memory.view(np.uint8), base=BASE, shared=np.ones(24, np.uint32).view(np.uint8))
    assert memory.tolist() == [1] * 4 + [2] * 8 + [1] * 4


def test_a_reduction_includes_the_rest_of_the_last_16_bytes() -> None:
    m = Tiled(data_type="UINT32", global_address=BASE, global_dim=(5,), box_dim=(8,)).encode()
    memory = np.zeros(12, dtype=np.uint32)
    sim.reduce(m, "ADD", (0,), memory=memory.view(np.uint8), base=BASE, shared=np.ones(8, np.uint32).view(np.uint8))
    assert memory.tolist() == [1] * 8 + [0] * 4


def test_reductions_say_which_are_illegal_or_unknown() -> None:
    eight = np.zeros(16, dtype=np.uint64)
    with pytest.raises(sim.IllegalInstruction, match=r"xor on INT64.*UINT64"):
        reduce_row("INT64", "xor", eight, eight)
    with pytest.raises(sim.IllegalInstruction, match="min on FLOAT64, which hardware refuses; there are UINT32: add"):
        reduce_row("FLOAT64", "min", eight, eight)
    with pytest.raises(sim.SimulationError, match="no reduction 'mul'; there are add, min"):
        reduce_row("UINT64", "mul", eight, eight)
