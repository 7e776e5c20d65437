"""What a tiling leaves in its holes: the formulas against tilings carried out, by the model and by the unit."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupytma import sim
from cupytma.errors import DescriptorError, SimulationError
from cupytma.sim import model
from cupytma.tensormap import Tiled

BASE = 0x10000
UNTOUCHED = 0xEE
slow = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
small = settings(max_examples=500, deadline=None, derandomize=True)
triples = st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9))

Sizes = list[tuple[int, int, int]]  # extent, box and element stride of each dimension


def tiles(sizes: Sizes) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Where each tile of a tiling starts in its box, and in the tensor: every box, every phase of the stride."""
    for boxes in itertools.product(*(range(-(-extent // box)) for extent, box, _ in sizes)):
        for phases in itertools.product(*(range(stride) for _, _, stride in sizes)):
            yield phases, tuple(c * size[1] + s for c, s, size in zip(boxes, phases, sizes, strict=True))


def slots(sizes: Sizes) -> list[tuple[int, ...]]:
    """The slots of a tile in the order of shared memory."""
    counts = (range(-(-box // stride)) for _, box, stride in reversed(sizes))
    return [slot[::-1] for slot in itertools.product(*counts)]


def in_its_box(sizes: Sizes, phases: tuple[int, ...], slot: tuple[int, ...]) -> bool:
    return all(p + i * stride < box for p, i, (_, box, stride) in zip(phases, slot, sizes, strict=True))


def loaded(sizes: Sizes, x: tuple[int, ...]) -> list[int]:
    """A tile that the model loads of a tensor whose elements are 1, 2, 3, …"""
    gs, bs, er = zip(*sizes, strict=True)
    rows = tuple(prod(gs[:d]) for d in range(len(gs)))
    sa = [-1] * len(slots(sizes))
    model.tma(x, sa, ga=range(1, prod(gs) + 1), gs=gs, bs=bs, gr=rows, er=er, op="load")
    return sa


def kinds(sizes: Sizes, guard: bool = False) -> Iterator[list[str]]:
    """What the slots of each tile hold, found by loading it.

    With a guard, tiles that start past the end of their box are loaded from minus the box instead.
    """
    extents = [extent for extent, _, _ in sizes]
    for phases, x in tiles(sizes):
        past = any(phase >= box for phase, (_, box, _) in zip(phases, sizes, strict=True))
        values = loaded(sizes, tuple(-box for _, box, _ in sizes) if guard and past else x)
        found = []
        for slot, value in zip(slots(sizes), values, strict=True):
            place = [start + i * stride for start, i, (_, _, stride) in zip(x, slot, sizes, strict=True)]
            inside = all(p < extent for p, extent in zip(place, extents, strict=True))
            if inside and in_its_box(sizes, phases, slot):
                assert value == 1 + sum(p * prod(extents[:d]) for d, p in enumerate(place))  # never wrong or missing
                found.append("element")
            else:
                found.append("unfilled" if value else "filled")
        yield found


def totals(sizes: Sizes) -> Counter[str]:
    return Counter(itertools.chain(*kinds(sizes)))


def mixed(sizes: Sizes) -> bool:
    """Whether some tile holds elements and unfilled holes, so that no choice of its start makes it right."""
    return any({"element", "unfilled"} <= set(tile) for tile in kinds(sizes))


def judged(sizes: Sizes, **more: Any) -> model.Correctness:
    return model.correctness(*zip(*sizes, strict=True), **more)


@small
@given(triples)
def test_the_counts_along_one_dimension_are_those_of_a_tiling_carried_out(size: tuple[int, int, int]) -> None:
    (d,) = model.correctness(*size).dimensions
    found = totals([size])
    assert (d.slots, d.extent) == (found.total(), found["element"])
    assert (d.slots - d.inside, d.unfilled_holes) == (found["filled"], found["unfilled"])


@slow
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3))
def test_the_verdict_is_what_a_tiling_carried_out_shows(sizes: Sizes) -> None:
    c, found = judged(sizes), totals(sizes)
    assert (c.slots, c.elements) == (found.total(), found["element"])
    assert (c.filled_holes, c.unfilled_holes) == (found["filled"], found["unfilled"])
    assert c.strong == (found["unfilled"] == 0)
    assert c.weak
    assert c.overwritten == 0
    assert c.verdict == ("strongly correct" if c.strong else "weakly correct")
    assert c.strong_achievable == (not mixed(sizes))


@small
@given(triples)
def test_strong_correctness_is_out_of_reach_exactly_where_the_stride_fits_into_the_box_and_leaves_a_rest(
    size: tuple[int, int, int],
) -> None:
    """The fundamental theorem: element stride < box < extent, and the stride does not divide the box."""
    extent, box, stride = size
    out_of_reach = stride < box < extent and box % stride != 0
    assert mixed([size]) == out_of_reach
    c = model.correctness(*size)
    assert c.strong_achievable != out_of_reach
    assert (c.level == 3) == out_of_reach


@slow
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=3))
def test_a_guard_makes_every_tiling_strongly_correct_but_those_out_of_reach(sizes: Sizes) -> None:
    unfilled = any("unfilled" in tile for tile in kinds(sizes, guard=True))
    assert unfilled == any(s < b < n and b % s for n, b, s in sizes)
    assert unfilled != judged(sizes).strong_achievable


@small
@given(triples)
def test_a_stride_that_divides_the_box_leaves_no_hole_inside(size: tuple[int, int, int]) -> None:
    """However indivisible the boxing: the holes it makes lie outside the tensor."""
    extent, box, stride = size
    c = model.correctness(extent, box * stride, stride)
    assert (c.verdict, c.level) == ("strongly correct", 1)
    assert totals([(extent, box * stride, stride)])["unfilled"] == 0
    divisible = model.correctness(extent * box * stride, box * stride, stride)
    assert divisible.filled_holes == 0
    assert divisible.reasons == ("boxes and element strides divide everything: there are no holes",)


@small
@given(triples)
def test_one_box_over_the_whole_tensor_is_strongly_correct_whatever_the_stride(size: tuple[int, int, int]) -> None:
    extent, more, stride = size
    assert model.correctness(extent, extent + more - 1, stride).verdict == "strongly correct"


@pytest.mark.parametrize(
    ("extent", "stride", "verdict", "level"),
    [
        (8, 3, "weakly correct", 3),  # tiles of elements 1 and 4, 2 and 5
        (8, 2, "strongly correct", 1),
        (4, 3, "strongly correct", 2),  # 4 and 5 now lie outside
        (8, 5, "weakly correct", 2),  # the tile that starts at 4 can be left out
    ],
)
def test_a_box_of_4(extent: int, stride: int, verdict: str, level: int) -> None:
    c = model.correctness(extent, 4, stride)
    assert (c.verdict, c.level) == (verdict, level)
    assert c.strong_achievable == (level < 3)


@small
@given(triples, st.integers(0, 3), st.integers(0, 30))
def test_every_slot_is_named_for_what_it_holds(size: tuple[int, int, int], box: int, offset: int) -> None:
    (d,) = model.correctness(*size).dimensions
    box, offset = box % d.boxes, offset % d.reach
    tile = loaded([size], (box * d.box + offset % d.element_stride,))
    value = tile[offset // d.element_stride]
    expected = "filled hole" if value == 0 else "element" if offset < d.box else "unfilled hole"
    assert d.slot(box, offset) == expected


# On silicon, as the simulator has it.


@st.composite
def legal_tilings(draw: st.DrawFn) -> tuple[Tiled, Sizes]:
    data_type = draw(st.sampled_from(["UINT8", "UINT16", "FLOAT32", "INT64"]))
    size = {"UINT8": 1, "UINT16": 2, "FLOAT32": 4, "INT64": 8}[data_type]
    sizes = [(draw(st.integers(1, 48 // size)), 16 * draw(st.integers(1, 2)) // size, draw(st.integers(1, 3)))]
    sizes += draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4)), max_size=2))
    dims, box, steps = zip(*sizes, strict=True)
    strides, reach = [], 64
    for extent in dims[1:]:
        strides.append(reach)
        reach *= extent
    p = Tiled(
        data_type=data_type, global_address=BASE, global_dim=dims, global_strides=strides, box_dim=box,
        element_strides=steps,
    )  # fmt: skip
    return p, [(dims[0], box[0], 1), *sizes[1:]]  # dimension 0 has no element stride on silicon


def window(p: Tiled) -> int:
    return 64 * prod(p.global_dim[1:])


def inside_of(p: Tiled) -> np.ndarray:
    """Which bytes of the window belong to the tensor."""
    row = np.arange(64) < p.global_dim[0] * p.element_bytes
    return np.tile(row, window(p) // 64)


@slow
@given(legal_tilings())
def test_loads_of_the_unit_leave_the_holes_that_the_verdict_says(tiling: tuple[Tiled, Sizes]) -> None:
    p, sizes = tiling
    c = model.correctness(p.global_dim, p.box_dim, p.element_strides, data_type=p.data_type)
    assert [(d.extent, d.box, d.element_stride) for d in c.dimensions] == sizes
    # Outside the tensor lies what no load may bring; elements are never 0.
    memory = np.where(inside_of(p), 1, UNTOUCHED).astype(np.uint8)
    m, size, found = p.encode(), p.element_bytes, Counter()
    for phases, x in tiles(sizes):
        shared = np.full(m.box_bytes, UNTOUCHED, np.uint8)
        sim.load(m, x, memory=memory, base=BASE, shared=shared)
        assert not (shared == UNTOUCHED).any()
        for slot, value in zip(slots(sizes), shared[::size], strict=True):
            found[in_its_box(sizes, phases, slot), bool(value)] += 1
    assert found[True, True] == c.elements
    assert found[False, True] == c.unfilled_holes
    assert found[True, False] + found[False, False] == c.filled_holes
    assert any("ignored by the unit" in reason for reason in c.reasons) == (p.element_strides[0] > 1)


@slow
@given(legal_tilings())
def test_stores_of_the_unit_write_what_the_verdict_says(tiling: tuple[Tiled, Sizes]) -> None:
    """Past the tensor the rest of every row's last 16 bytes; inside it elements of other boxes where strides leave a
    rest."""
    p, sizes = tiling
    c = model.correctness(p.global_dim, p.box_dim, p.element_strides, data_type=p.data_type, op="store")
    m, writes = p.encode(), np.zeros(window(p), np.int64)
    for _, x in tiles(sizes):
        memory = np.zeros(window(p), np.uint8)
        sim.store(m, x, memory=memory, base=BASE, shared=np.ones(m.box_bytes, np.uint8))
        writes += memory
    inside = inside_of(p)
    assert (writes[inside] >= 1).all()
    assert int(writes[inside].sum() - inside.sum()) == c.unfilled_holes * p.element_bytes
    assert np.count_nonzero(writes[~inside]) == c.overwritten * p.element_bytes
    assert c.weak == (writes == inside).all()
    assert not c.strong
    assert c.verdict == ("weakly correct" if c.weak else "neither")
    assert c.overwritten or p.global_dim[0] * p.element_bytes % 16 == 0


def said(*operands: Any, **more: Any) -> str:
    """The reasons, without the line breaks of the printed form."""
    c = model.correctness(*operands, **more)
    assert str(c).startswith(f"{c.verdict} ({c.op})\n- ")
    assert " ".join(str(c).split()) == f"{c.verdict} ({c.op}) - " + " - ".join(c.reasons)
    assert max(map(len, str(c).splitlines())) <= 100
    return " ".join(c.reasons)


def test_a_store_past_the_end_of_rows_says_how_many_and_what_to_do() -> None:
    c = model.correctness((13, 4), (16, 4), data_type="UINT8", op="store")
    assert (c.verdict, c.overwritten, c.unfilled_holes) == ("neither", 12, 0)
    text = said((13, 4), (16, 4), data_type="UINT8", op="store")
    assert "3 that complete the last 16 bytes of a row" in text
    assert "12 elements outside the tensor are overwritten" in text
    assert model.correctness((16, 4), (16, 4), data_type="UINT8", op="store").verdict == "weakly correct"


def test_reasons_have_the_numbers_and_a_way_out() -> None:
    text = said(8, 4, 3)
    for part in ("3 does not divide box 4", "2 of 12 slots", "3 < 4 < 8", "(3 or 6), or at least 8"):
        assert part in text
    assert "nothing outside the tensor is read, so it is weakly correct; no guard can" in text
    assert "a guard can make it strongly so" in said(8, 4, 5)
    assert "load it from -box_dim" in said(8, 4, 5)
    assert "do not store it" in said((16, 8), (16, 4), (1, 5), data_type="UINT8", op="store")
    silicon = said((16, 512), (16, 256), (1, 7), data_type="UINT8")
    assert "(252)" in silicon  # 259 and 512 are longer than a box may be
    assert "or at least" not in silicon


@small
@given(triples)
def test_the_way_out_works(size: tuple[int, int, int]) -> None:
    extent, _box, stride = size
    c = model.correctness(*size)
    if c.strong:
        return
    (remedy,) = [reason for reason in c.reasons if "make the box a multiple" in reason]
    boxes = remedy.split("(")[1].split(")")[0].split(" or ")
    assert boxes
    for other in boxes:
        assert model.correctness(extent, int(other), stride).strong
    assert model.correctness(extent, extent, stride).strong


def test_huge_extents_are_no_work() -> None:
    c = model.correctness((2**32, 2**32, 10**40), (256, 255, 7), (1, 2, 3))
    assert c.level == 3
    assert c.slots > c.elements == 2**64 * 10**40
    assert c.unfilled_holes + c.filled_holes + c.elements == c.slots


@pytest.mark.parametrize(
    ("operands", "more", "error", "message"),
    [
        ((8, None), {}, SimulationError, "box_dim is None"),
        ((8, 4, 0), {}, SimulationError, r"element_strides\[0\] is 0; it must be 1"),
        ((0, 4), {}, SimulationError, r"global_dim\[0\] is 0"),
        (((8, 8), 4), {}, SimulationError, "global_dim 2, box_dim 1"),
        (((8, 8), (4, 4), (1,)), {}, SimulationError, "element_strides 1"),
        ((8.0, 4), {}, SimulationError, "global_dim is 8.0"),
        ((True, 2), {}, SimulationError, r"global_dim\[0\] is True; it must be an integer"),
        (((8, 8), (4, True)), {}, SimulationError, r"box_dim\[1\] is True; it must be an integer"),
        (((8, float("nan")), (4, 4)), {}, SimulationError, r"global_dim\[1\] is nan"),
        (("88", (4, 4)), {}, SimulationError, "global_dim is '88'"),
        (((1,) * 6, (1,) * 6), {}, SimulationError, "more than 5 entries"),
        ((8, 4), {"op": "Load"}, SimulationError, "op is 'Load'"),
        ((8, 4), {"op": "store"}, SimulationError, "data_type is None; a store writes"),
        ((8, 4), {"data_type": "FLOAT13"}, DescriptorError, "no member 'FLOAT13'"),
        ((8, 4), {"data_type": "UINT8"}, DescriptorError, "16 bytes"),
        (((8, 8), (16, 257)), {"data_type": "UINT8"}, DescriptorError, "box_dim"),
        (((8, 8), (16, 9), (1, 9)), {"data_type": "UINT8"}, DescriptorError, "element_strides"),
        ((256, 128), {"data_type": "16U4_ALIGN8B"}, DescriptorError, "16U4_ALIGN8B"),
    ],
)
def test_what_is_wrong_is_said(
    operands: tuple[Any, ...], more: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.correctness(*operands, **more)
