"""Loop nests by splits, merges, resizes and swizzles: the theorems about them, by trying every index."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cupytma.errors import SimulationError
from cupytma.sim import model
from cupytma.sim.model import IterDomain, Schedule

small = settings(max_examples=300, deadline=None, derandomize=True)
extents = st.integers(1, 9)


def order(leaves: list[IterDomain], *loops: IterDomain) -> list[tuple[int, ...]]:
    """The indices of some loops in the order in which the leaves run through them."""
    schedule = Schedule(leaves)
    return [
        tuple(schedule.indices(slot)[loop] for loop in loops)
        for slot in itertools.product(*(range(leaf.extent) for leaf in leaves))
    ]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """One or two dimensions and up to five transformations of any loops."""
    leaves = [IterDomain(draw(st.integers(1, 8))) for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(0, 5))):
        loop = leaves.pop(draw(st.integers(0, len(leaves) - 1)))
        how = draw(st.sampled_from(["split", "split", "merge", "resize", "swizzle"]))
        if how == "split":
            leaves += loop.split(draw(st.integers(1, 5)))
        elif how == "resize":
            left = draw(st.integers(-1, 2))
            leaves.append(loop.resize(left, draw(st.integers(max(-1, 1 - loop.extent - left), 2))))
        else:
            twins = [other for other in leaves if how == "merge" or _swizzles(loop, other)]
            if not twins:
                leaves.append(loop)
                continue
            twin = draw(st.sampled_from(twins))
            leaves.remove(twin)
            leaves += [loop.merge(twin)] if how == "merge" else loop.swizzle(twin)
    count = 1
    for leaf in leaves:
        count *= leaf.extent
    assume(count <= 600)
    return Schedule(draw(st.permutations(leaves)), bulk=draw(st.sets(st.sampled_from(leaves))))


def _swizzles(loop: IterDomain, other: IterDomain) -> bool:
    return loop.extent == other.extent and loop.extent in (1, 2, 4, 8)


def every_slot(schedule: Schedule) -> list[dict[IterDomain, int]]:
    ranges = (range(leaf.extent) for leaf in schedule.leaves)
    return [schedule.indices(slot) for slot in itertools.product(*ranges)]


@small
@given(schedules())
def test_where_the_unprotected_loops_are_in_bounds_the_units_check_covers_the_protected(schedule: Schedule) -> None:
    for indices in every_slot(schedule):
        within = {loop: loop.contains(index) for loop, index in indices.items()}
        if all(within[loop] for loop in schedule.loops if not loop.protected or loop in schedule.dimensions):
            assert all(within.values())


@small
@given(schedules())
def test_a_load_whose_hole_creating_loops_are_all_protected_is_strongly_correct(schedule: Schedule) -> None:
    if not schedule.unprotected:
        assert schedule.strong
        assert schedule.strong_achievable
    assert schedule.slots == schedule.elements + schedule.filled_holes + schedule.unfilled_holes


@small
@given(schedules())
def test_holes_come_of_hole_creating_expressions_and_are_counted_as_what_they_hold(schedule: Schedule) -> None:
    filled = unfilled = 0
    for indices in every_slot(schedule):
        if not all(loop.contains(index) for loop, index in indices.items()):
            inside = all(loop.contains(indices[loop]) for loop in schedule.dimensions)
            filled, unfilled = filled + (not inside), unfilled + inside
            assert any(not loop.contains(indices[loop]) for e in schedule.hole_creating for loop in e.inputs)
    assert (schedule.filled_holes, schedule.unfilled_holes) == (filled, unfilled)


def test_which_loops_are_protected() -> None:
    coordinate, box = IterDomain(8).split(4)
    assert (coordinate.protected, box.protected) == (True, False)
    assert [loop.protected for loop in coordinate.split(3)] == [True, False]
    assert IterDomain(3).merge(IterDomain(2).split(2)[1]).protected
    assert IterDomain(3).resize(1, 2).protected
    assert not IterDomain(3).resize(1, -1).protected
    assert [loop.protected for loop in IterDomain(2).swizzle(IterDomain(2))] == [True, False]
    assert not box.resize(0, 1).protected


def test_a_merge_is_not_protected_by_its_inner_loop() -> None:
    coordinate, box = IterDomain(8).split(4)
    merged = box.merge(coordinate)
    assert not merged.protected
    schedule = Schedule(merged.split(3))  # iteration 8 is element 4 of the first box, which is element 0 of the next
    assert schedule.unprotected == (merged,)
    assert (schedule.filled_holes, schedule.unfilled_holes) == (0, 1)


# The four theorems on which protection rests.


@small
@given(extents, extents, st.integers(-3, 12), st.integers(0, 8))
def test_an_outer_index_is_in_bounds_where_the_split_loop_and_the_inner_one_are(
    extent: int, factor: int, outer: int, inner: int
) -> None:
    loop = IterDomain(extent)
    loops = loop.split(factor)
    (index,) = loop.becomes.indices((outer, inner))  # type: ignore[union-attr]
    assert index == outer * factor + inner
    if loop.contains(index) and loops[1].contains(inner):
        assert loops[0].contains(outer)


@small
@given(extents, extents, st.integers(-20, 100))
def test_a_merged_index_is_in_bounds_exactly_where_the_outer_one_is(outer: int, inner: int, index: int) -> None:
    first, second = IterDomain(outer), IterDomain(inner)
    merged = first.merge(second)
    i, j = merged.made_by.indices((index,))  # type: ignore[union-attr]
    assert (i * inner + j, second.contains(j)) == (index, True)
    assert first.contains(i) == merged.contains(index)


@small
@given(extents, st.integers(-3, 3), st.integers(0, 3), st.integers(-9, 30))
def test_a_resized_index_is_in_bounds_where_its_loop_is_if_nothing_was_cut_off(
    extent: int, left: int, right: int, index: int
) -> None:
    assume(extent + left + right >= 1)
    loop = IterDomain(extent)
    resized = loop.resize(left, right)
    (before,) = resized.made_by.indices((index,))  # type: ignore[union-attr]
    if loop.contains(before) and left >= 0:
        assert resized.contains(index)
    assert resized.protected == (left >= 0)


@small
@given(st.sampled_from([1, 2, 4, 8]), st.integers(-9, 9), st.integers(0, 7))
def test_the_first_loop_of_a_swizzle_keeps_its_index_and_the_second_is_a_permutation(
    extent: int, i: int, j: int
) -> None:
    first, second = IterDomain(extent), IterDomain(extent)
    x, y = first.swizzle(second)
    assert x.made_by.indices((i, j))[0] == i  # type: ignore[union-attr]
    assert sorted(order([x, y], first, second)) == list(itertools.product(range(extent), repeat=2))
    assert (x.protected, y.protected) == (True, False)


# Boxing and striding splits.


def canonical(*sizes: tuple[int, int, int]) -> Schedule:
    """Each dimension split by its box, and the box by the element stride; the tile is the hardware's."""
    leaves, bulk = [], []
    for extent, box, stride in sizes:
        coordinate, boxed = IterDomain(extent).split(box)
        tile, phase = boxed.split(stride)
        leaves += [coordinate, phase, tile]
        bulk.append(tile)
    return Schedule(leaves, bulk)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=2))
def test_splits_by_box_and_by_element_stride_are_what_correctness_says_of_a_tiling(
    sizes: list[tuple[int, int, int]],
) -> None:
    schedule, c = canonical(*sizes), model.correctness(*zip(*sizes, strict=True))
    assert (schedule.slots, schedule.elements) == (c.slots, c.elements)
    assert (schedule.filled_holes, schedule.unfilled_holes) == (c.filled_holes, c.unfilled_holes)
    assert (schedule.strong, schedule.strong_achievable) == (c.strong, c.strong_achievable)
    assert (not schedule.unprotected) == (c.level == 1)


@small
@given(extents, extents)
def test_a_boxing_split_makes_no_unfilled_hole_whether_it_divides_or_not(extent: int, box: int) -> None:
    schedule = Schedule(IterDomain(extent).split(box))
    assert schedule.strong
    assert bool(schedule.filled_holes) == bool(extent % box)
    assert not schedule.unprotected


@small
@given(extents, extents)
def test_an_indivisible_split_without_predicates_runs_past_the_loop(extent: int, factor: int) -> None:
    loop = IterDomain(extent)
    ran = [i for (i,) in order(list(loop.split(factor)), loop)]
    assert ran == list(range(-(-extent // factor) * factor))
    assert [i for i in ran if loop.contains(i)] == list(range(extent))


@small
@given(extents, extents, extents)
def test_the_inner_loop_of_an_indivisible_box_may_hold_data_in_its_holes(extent: int, box: int, factor: int) -> None:
    """The box is not protected: what is split from it indivisibly is data where the next box has elements."""
    coordinate, boxed = IterDomain(extent).split(box)
    schedule = Schedule([coordinate, *boxed.split(factor)])
    assert (boxed in schedule.unprotected) == (box % factor != 0)
    assert schedule.strong == (box % factor == 0 or box >= extent)
    assert schedule.strong_achievable  # every slot is an instruction of its own here, and can be left out


def test_the_tile_that_cannot_be_made_right() -> None:
    """8 elements in boxes of 4 by threes: element 4 lies in the tile of 1, which the hardware loads as a whole."""
    schedule = canonical((8, 4, 3))
    names = dict(zip(("coordinate", "phase", "tile"), schedule.leaves, strict=True))
    indices = schedule.indices((0, 1, 1))
    (rows,) = schedule.dimensions
    (box,) = schedule.unprotected
    assert (indices[rows], indices[box]) == (4, 4)
    assert (rows.contains(4), box.contains(4)) == (True, False)
    assert [names["coordinate"].protected, names["phase"].protected, box.protected] == [True, False, False]
    assert schedule.mixed_tiles == 2
    assert canonical((8, 4, 5)).mixed_tiles == 0
    assert canonical((4, 4, 3)).strong


# What nests are the same.


@small
@given(st.integers(1, 40), extents, extents)
def test_splitting_twice_is_splitting_by_the_product_and_then_the_inner(extent: int, m: int, n: int) -> None:
    first, second = IterDomain(extent), IterDomain(extent)
    outer, inner = first.split(n)
    left = [*outer.split(m), inner]
    outermost, rest = second.split(m * n)
    right = [outermost, *rest.split(n)]
    assert [loop.extent for loop in left] == [loop.extent for loop in right]
    assert order(left, first) == order(right, second)


@small
@given(extents, extents)
def test_merging_and_splitting_by_the_inner_extent_changes_nothing(outer: int, inner: int) -> None:
    """Why the innermost of contiguous loops can be taken for a box as they are."""
    first, second = IterDomain(outer), IterDomain(inner)
    leaves = list(first.merge(second).split(inner))
    assert [leaf.extent for leaf in leaves] == [outer, inner]
    assert order(leaves, first, second) == list(itertools.product(range(outer), range(inner)))


@small
@given(extents, st.integers(1, 8), extents)
def test_a_box_across_merged_loops_needs_to_divide_the_inner_one(outer: int, inner: int, box: int) -> None:
    """Merge then split is split then merge exactly where the box divides; only then is a box one run of a row."""
    rows, columns = IterDomain(outer), IterDomain(inner)
    merged = list(rows.merge(columns).split(box))
    rows_too, columns_too = IterDomain(outer), IterDomain(inner)
    parts, within = columns_too.split(box)
    split = [rows_too.merge(parts), within]
    same = [leaf.extent for leaf in merged] == [leaf.extent for leaf in split] and (
        order(merged, rows, columns) == order(split, rows_too, columns_too)
    )
    if outer > 1:
        assert same == (inner % box == 0)
    # Rows that lie further apart than they are long: the elements of a box, or of what of it there is, are one run.
    address = {(i, j): i * (inner + 1) + j for i in range(outer) for j in range(inner)}
    boxes: dict[int, list[int]] = {}
    for place, element in enumerate(order(merged, rows, columns)):
        if element in address:
            boxes.setdefault(place // box, []).append(address[element])
    runs = all(run == list(range(run[0], run[0] + len(run))) for run in boxes.values())
    if inner % box == 0:
        assert runs
    elif outer > 1:
        assert not runs


@small
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_a_stride_over_a_box_of_several_loops_needs_them_merged_first(outer: int, inner: int, stride: int) -> None:
    """Splitting the innermost loop alone is the same only where the stride divides it."""
    a, b = IterDomain(outer), IterDomain(inner)
    merged = list(a.merge(b).split(stride))
    c, d = IterDomain(outer), IterDomain(inner)
    alone = [c, *d.split(stride)]
    flat = [i * inner + j for i, j in order(merged, a, b)]
    by_itself = [i * inner + j for i, j in order(alone, c, d)]
    if inner % stride == 0:
        assert flat == by_itself
    elif outer > 1:
        assert flat != by_itself


# Hostile input.


@pytest.mark.parametrize("extent", [0, -1, None, "4", 4.0, float("nan"), [4]])
def test_a_loop_has_a_whole_number_of_iterations(extent: Any) -> None:
    with pytest.raises(SimulationError, match="the extent is"):
        IterDomain(extent)
    with pytest.raises(SimulationError, match="inner_extent is"):
        IterDomain(4).split(extent)


def test_what_is_wrong_with_loops_is_said() -> None:
    loop = IterDomain(8, "rows")
    coordinate, box = loop.split(4)
    with pytest.raises(SimulationError, match="rows is transformed twice"):
        loop.split(2)
    with pytest.raises(SimulationError, match="transformed twice"):
        box.merge(box)
    with pytest.raises(SimulationError, match="is no IterDomain"):
        box.merge(4)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="has no iterations left; take away less"):
        box.resize(-2, -2)
    with pytest.raises(SimulationError, match="left is"):
        box.resize(None, 0)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="extents 4 and 2 cannot be swizzled"):
        box.swizzle(coordinate)
    with pytest.raises(SimulationError, match="same power of two"):
        IterDomain(3).swizzle(IterDomain(3))
    assert Schedule([coordinate, box]).slots == 8  # nothing refused has left a mark


def test_what_is_wrong_with_a_schedule_is_said() -> None:
    rows = IterDomain(8, "rows")
    coordinate, box = rows.split(4)
    tile, stride = box.split(3)
    with pytest.raises(SimulationError, match=r"rows.i.o and rows.i.i are made together, and neither rows.i.i nor"):
        Schedule([coordinate, tile])
    with pytest.raises(SimulationError, match=r"rows.o and rows.i are made together"):
        Schedule([coordinate])
    with pytest.raises(SimulationError, match=r"rows\.i, which has been transformed; name the loops"):
        Schedule([coordinate, box])
    with pytest.raises(SimulationError, match=r"names rows\.o twice"):
        Schedule([coordinate, coordinate, tile, stride])
    with pytest.raises(SimulationError, match="leaves holds 4; give IterDomains"):
        Schedule([coordinate, 4])  # type: ignore[list-item]
    with pytest.raises(SimulationError, match="leaves holds None"):
        Schedule(None)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="at least one leaf"):
        Schedule([])
    with pytest.raises(SimulationError, match="no leaf of the schedule"):
        Schedule([coordinate, tile, stride], bulk=[IterDomain(2)])
    with pytest.raises(SimulationError, match="4294967296 slots are too many"):
        Schedule(IterDomain(2**32).split(2**16))
