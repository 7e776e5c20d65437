"""The mathematical definition of a tiled copy: equal to the fast unit, and within the tensor whatever is asked."""

from __future__ import annotations

import array
import itertools
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupytma import sim
from cupytma.errors import ArrayError, SimulationError
from cupytma.sim import model
from cupytma.tensormap import Tiled

BASE = 0x7F0000000000
# Of each type the unsigned integer that carries its bits through plain Python.
CARRIERS = {
    "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "INT32": "u4", "UINT64": "u8", "INT64": "u8", "FLOAT16": "u2",
    "BFLOAT16": "u2", "FLOAT32": "u4", "FLOAT32_FTZ": "u4", "FLOAT64": "u8",
}  # fmt: skip
slow = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def copies(draw: st.DrawFn) -> tuple[Tiled, tuple[int, ...]]:
    """A legal descriptor without swizzle or interleave, and a start inside, around or beyond the tensor."""
    rank = draw(st.integers(1, 5))
    data_type = draw(st.sampled_from(sorted(CARRIERS)))
    size = np.dtype(CARRIERS[data_type]).itemsize
    width = draw(st.integers(1, 5)) * 16 // size
    dims = [draw(st.integers(1, 2 * width))] + [draw(st.integers(1, 6)) for _ in range(rank - 1)]
    strides, reach = [], -(-dims[0] * size // 16) * 16
    for extent in dims[1:]:
        strides.append(reach + 16 * draw(st.integers(0, 2)))
        reach = strides[-1] * extent
    p = Tiled(
        data_type=data_type,
        global_address=BASE,
        global_dim=dims,
        global_strides=strides,
        box_dim=[width] + [draw(st.integers(1, 5)) for _ in range(rank - 1)],
        element_strides=[1] + [draw(st.integers(1, 4)) for _ in range(rank - 1)],
    )
    inner = draw(st.integers(-width * size // 16 - 1, dims[0] * size // 16 + 1)) * 16 // size
    return p, (inner, *(draw(st.integers(-5, extent + 1)) for extent in dims[1:]))


def memories(p: Tiled) -> tuple[np.ndarray, np.ndarray, str]:
    """Random global and shared memory as bytes, and the carrier type."""
    carrier = CARRIERS[p.data_type.name]
    reach = p.global_strides[-1] * p.global_dim[-1] if p.rank > 1 else -(-p.global_dim[0] * p.element_bytes // 16) * 16
    random = np.random.default_rng(reach)
    tile = prod(-(-b // e) for b, e in zip(p.box_dim, p.element_strides, strict=True)) * p.element_bytes
    return random.integers(1, 256, reach, np.uint8), random.integers(1, 256, tile, np.uint8), carrier


def parameters(p: Tiled) -> dict[str, Any]:
    """What `tma` calls the fields of a descriptor."""
    rows = tuple(stride // p.element_bytes for stride in p.global_strides)
    return {"gs": p.global_dim, "bs": p.box_dim, "gr": (1, *rows), "er": p.element_strides}


@slow
@given(copies())
def test_a_load_is_what_the_fast_unit_loads(copy: tuple[Tiled, tuple[int, ...]]) -> None:
    p, x = copy
    memory, shared, carrier = memories(p)
    sa = shared.view(carrier).tolist()
    model.tma(x, sa, ga=memory.view(carrier).tolist(), **parameters(p), op="load")
    assert sim.load(p.encode(), x, memory=memory, base=BASE, shared=shared) == len(sa) * p.element_bytes
    assert shared.view(carrier).tolist() == sa


@slow
@given(copies())
def test_a_store_is_what_the_fast_unit_stores_once_rows_are_rounded_up_to_16_bytes(
    copy: tuple[Tiled, tuple[int, ...]],
) -> None:
    p, x = copy
    x = tuple(max(start, 0) for start in x)
    memory, shared, carrier = memories(p)
    given_parameters = parameters(p)
    whole = -(-p.global_dim[0] * p.element_bytes // 16) * 16 // p.element_bytes
    rounded = given_parameters | {"gs": (whole, *p.global_dim[1:])}
    exact, expected = memory.view(carrier).tolist(), memory.view(carrier).tolist()
    model.tma(x, shared.view(carrier).tolist(), ga=exact, **given_parameters, op="store")
    model.tma(x, shared.view(carrier).tolist(), ga=expected, **rounded, op="store")
    sim.store(p.encode(), x, memory=memory, base=BASE, shared=shared)
    assert memory.view(carrier).tolist() == expected
    if whole == p.global_dim[0]:
        assert exact == expected


def test_the_rounding_of_stores_is_seen_where_a_row_ends_inside_16_bytes() -> None:
    p = Tiled(data_type="UINT16", global_address=BASE, global_dim=(5, 2), global_strides=(16,), box_dim=(8, 2))
    memory, shared = np.zeros(32, np.uint8), np.ones(32, np.uint8)
    exact = [0] * 16
    model.tma((0, 0), [257] * 16, ga=exact, **parameters(p), op="store")
    sim.store(p.encode(), (0, 0), memory=memory, base=BASE, shared=shared)
    assert exact == [257] * 5 + [0] * 3 + [257] * 5 + [0] * 3
    assert memory.view("u2").tolist() == [257] * 16


def test_the_element_stride_of_dimension_0_counts_in_the_model_and_not_on_silicon() -> None:
    p = Tiled(data_type="INT32", global_address=BASE, global_dim=(8,), box_dim=(8,), element_strides=(2,))
    memory, shared, sa = np.arange(8, dtype=np.int32), np.zeros(8, np.int32), [0] * 4
    model.tma((0,), sa, ga=memory, **parameters(p), op="load")
    sim.load(p.encode(), (0,), memory=memory.view(np.uint8), base=BASE, shared=shared.view(np.uint8))
    assert sa == [0, 2, 4, 6]
    assert shared.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_loads_of_tf32_and_a_nan_fill_are_silicons_own() -> None:
    bits = np.array([0x3F801FFF] * 4, np.uint32)
    p = Tiled(data_type="TFLOAT32", global_address=BASE, global_dim=(4,), box_dim=(8,), oob_fill="NAN_REQUEST_ZERO_FMA")
    shared, sa = np.zeros(8, np.uint32), [1] * 8
    model.tma(0, sa, ga=bits, gs=4, bs=8, gr=1, er=1, op="load")
    sim.load(p.encode(), (0,), memory=bits.view(np.uint8), base=BASE, shared=shared.view(np.uint8))
    assert sa == [0x3F801FFF] * 4 + [0] * 4
    assert shared.tolist() == [0x3F802000] * 4 + [0x7FF77FF7] * 4


def test_a_negative_start_of_a_store_is_fine_in_the_model_and_kills_a_kernel() -> None:
    ga = [0] * 4
    model.tma((-2,), [1, 2, 3, 4], ga=ga, gs=(4,), bs=(4,), gr=(1,), er=(1,), op="store")
    assert ga == [3, 4, 0, 0]
    m = Tiled(data_type="FLOAT64", global_address=BASE, global_dim=(4,), box_dim=(4,)).encode()
    with pytest.raises(sim.IllegalInstruction):
        sim.store(m, (-2,), memory=np.zeros(32, np.uint8), base=BASE, shared=np.zeros(32, np.uint8))


def test_a_strided_tile_of_a_padded_matrix() -> None:
    """A 12 x 16 matrix whose rows are 14 apart, and the box of 6 x 4 at (9, 1): columns 9 to 14, rows 1 and 4."""
    ga = [100 * (i // 14) + i % 14 for i in range(14 * 16)]
    dense, strided = [-1] * 24, [-1] * 12
    common = {"ga": ga, "gs": (12, 16), "bs": (6, 4), "gr": (1, 14)}
    model.tma((9, 1), dense, **common, er=(1, 1), op="load")
    model.tma((9, 1), strided, **common, er=(1, 3), op="load")
    rows = [[100 * y + x for x in (9, 10, 11)] + [0] * 3 for y in (1, 2, 3, 4)]
    assert dense == list(itertools.chain(*rows))
    assert strided == rows[0] + rows[3]


class Watched(list[int]):
    """A memory that remembers which places were touched."""

    def __init__(self, entries: list[int]) -> None:
        super().__init__(entries)
        self.touched: set[int] = set()

    def __getitem__(self, place: Any) -> Any:
        self.touched.add(place)
        return super().__getitem__(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        self.touched.add(place)
        super().__setitem__(place, value)


@slow
@given(st.integers(1, 3).flatmap(lambda rank: st.lists(
    st.tuples(*(st.integers(a, b) for a, b in [(-9, 9), (1, 6), (1, 7), (0, 9), (1, 9)])), min_size=rank, max_size=rank
)), st.sampled_from(["load", "store"]))  # fmt: skip
def test_no_copy_touches_anything_outside_the_tensor(dimensions: list[tuple[int, ...]], op: str) -> None:
    """The theorem of weak correctness, whatever the start, the box, the strides and the direction."""
    x, gs, bs, gr, er = zip(*dimensions, strict=True)
    memory = Watched([0] * (sum((n - 1) * step for n, step in zip(gs, gr, strict=True)) + 1))
    tensor = {
        sum(i * step for i, step in zip(element, gr, strict=True)) for element in itertools.product(*map(range, gs))
    }
    sa = Watched([1] * prod(bs))
    model.tma(x, sa, ga=memory, gs=gs, bs=bs, gr=gr, er=er, op=op)
    assert memory.touched <= tensor
    tile = prod(-(-b // e) for b, e in zip(bs, er, strict=True))
    assert sa.touched <= set(range(tile))
    if op == "load":
        assert sa.touched == set(range(tile))


@slow
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 5)), min_size=1, max_size=3))
def test_the_predicates_of_indivisible_boxing_splits_are_the_one_of_the_copy(sizes: list[tuple[int, int]]) -> None:
    """Loop over boxes and within them: the tests that indivisible splits need are what the copy tests, no more."""
    gs, bs = zip(*sizes, strict=True)
    ones, grid = (1,) * len(gs), [range(-(-n // b)) for n, b in sizes]
    rows = tuple(prod(gs[:d]) for d in range(len(gs)))
    for boxes in itertools.product(*grid):
        x = tuple(i * b for i, b in zip(boxes, bs, strict=True))
        sa = [0] * prod(bs)
        model.tma(x, sa, ga=[1] * prod(gs), gs=gs, bs=bs, gr=rows, er=ones, op="load")
        for place, within in enumerate(itertools.product(*(range(b) for b in reversed(bs)))):
            index = [start + i for start, i in zip(x, reversed(within), strict=True)]
            indivisible = [d for d in range(len(gs)) if gs[d] % bs[d]]
            assert sa[place] == all(index[d] < gs[d] for d in indivisible)


@pytest.mark.parametrize(
    "memory",
    [list(range(8)), np.arange(8), array.array("i", range(8)), memoryview(bytearray(range(8))), bytes(range(8))],
)
def test_any_row_of_elements_is_a_memory(memory: Any) -> None:
    sa = [9] * 4
    model.tma(6, sa, ga=memory, gs=8, bs=4, gr=1, er=1, op="load")
    assert sa == [6, 7, 0, 0]


GOOD: dict[str, Any] = {
    "x": (0, 0),
    "sa": [0] * 4,
    "ga": [0] * 9,
    "gs": (3, 3),
    "bs": (2, 2),
    "gr": (1, 3),
    "er": (1, 1),
}
READ_ONLY = np.zeros(9, np.int64)
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"op": "reduce"}, SimulationError, "op is 'reduce'; it must be 'load'"),
        ({"op": None}, SimulationError, "op is None"),
        ({"op": ["load"]}, SimulationError, "op is"),
        ({"x": (0,)}, SimulationError, "entries: x 1, gs 2"),
        ({"x": None}, SimulationError, "x is None; it must be a sequence"),
        ({"x": "00"}, SimulationError, "x is '00'"),
        ({"x": {0, 1}}, SimulationError, "x is"),
        ({"x": (0, float("nan"))}, SimulationError, r"x\[1\] is nan; it must be an integer"),
        ({"x": (0, 1.0)}, SimulationError, r"x\[1\] is 1.0"),
        ({"x": ()}, SimulationError, "x has 0 entries; a copy has 1 to 5"),
        ({"x": itertools.count()}, SimulationError, "x has more than 5 entries"),
        ({"gs": (3, 0)}, SimulationError, r"gs\[1\] is 0; it must be 1 or above"),
        ({"bs": (-2, 2)}, SimulationError, r"bs\[0\] is -2"),
        ({"er": (1, 0)}, SimulationError, r"er\[1\] is 0"),
        ({"gr": (1, -3)}, SimulationError, r"gr\[1\] is -3; it must be 0"),
        ({"sa": [0] * 3}, sim.SharedOverrun, r"2 x 2 = 4 slots and sa has 3"),
        ({"bs": (2**40, 2**40)}, sim.SharedOverrun, "sa has 4"),
        ({"ga": [0] * 4}, sim.OutOfWindow, r"ga\[4\] and ga has 4 entries"),
        ({"gr": (1, 10**30)}, sim.OutOfWindow, "ga has 9"),
        ({"sa": (0,) * 4}, ArrayError, "sa is a read-only tuple and the load changes it"),
        ({"sa": bytes(4)}, ArrayError, "read-only bytes"),
        ({"sa": memoryview(bytes(4))}, ArrayError, "read-only memoryview"),
        ({"ga": READ_ONLY, "op": "store"}, ArrayError, "ga is a read-only ndarray"),
        ({"sa": np.zeros((2, 2))}, ArrayError, r"sa has 2 dimensions; .*sa.reshape\(-1\)"),
        ({"ga": np.array(1.0)}, ArrayError, "ga has 0 dimensions"),
        ({"ga": None}, ArrayError, "ga is a NoneType"),
        ({"ga": "123456789"}, ArrayError, "ga is a str"),
        ({"ga": {0: 1}}, ArrayError, "ga is a dict"),
        ({"sa": np.zeros(4, np.float32), "ga": np.zeros(9, np.float64)}, ArrayError, "float32 and ga float64"),
        ({"sa": array.array("b", [0] * 4), "ga": [1000] * 9}, ArrayError, "an element of ga does not fit sa"),
        ({"sa": np.zeros(4, np.int64), "ga": ["x"] * 9}, ArrayError, "an element of ga does not fit sa"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    operands = {"op": "load"} | GOOD | changes
    with pytest.raises(error, match=message) as raised:
        model.tma(operands.pop("x"), operands.pop("sa"), **operands)
    assert isinstance(raised.value, (ValueError, RuntimeError))


def test_integers_of_any_kind_and_numpy_vectors_are_taken() -> None:
    sa = [0] * 4
    model.tma(np.array([1, 1]), sa, ga=range(9), gs=[3, np.int8(3)], bs=iter((2, 2)), gr=(1, 3), er=(1, 1), op="load")
    assert sa == [4, 5, 7, 8]
    model.tma(np.int64(-(10**9)), sa, ga=[1], gs=1, bs=4, gr=1, er=1, op="load")
    assert sa == [0] * 4
