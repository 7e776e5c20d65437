"""The timeline against the trace that it draws."""

from __future__ import annotations

import re

import pytest
from reading import Drawing, Rect

from cupytma import view
from cupytma.errors import PictureError
from cupytma.sim import examples
from cupytma.view.program_timeline import COPY_START, LEFT_OUT, STEP, WRONG

RUNS = {
    **examples.EXAMPLES,
    "hang": lambda: examples.prefetch_pipeline().without("announce"),
    "races": lambda: examples.prefetch_pipeline().without("wait for the load"),
}
each_run = pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)


def _ruler(drawing: Drawing):
    """From pixels to rounds, as the numbers on the axis say."""
    (axis,) = (t for t in drawing.texts if t.text == "round")
    ticks = [(t.x, int(t.text)) for t in drawing.texts if t.y == axis.y and t.text.isdigit()]
    (x0, first), *_, (x1, last) = ticks
    return lambda x: first + (x - x0) * (last - first) / (x1 - x0)


def _spans(drawing: Drawing, pattern: str):
    rounds = _ruler(drawing)
    for rect, match in drawing.tipped(pattern):
        yield match, rounds(rect.x), rounds(rect.x + rect.width), rect


def _is(rect: Rect, classes: str) -> bool:
    return set(classes.split()) <= rect.classes


@each_run
def test_waits_are_drawn_from_when_a_thread_came_to_when_it_went_on(make):
    trace = make().trace()
    drawing = Drawing(view.timeline(trace).svg)
    drawn = {
        match[1]: (round(start), round(end))
        for match, start, end, _ in _spans(drawing, r"(.*): waits (?:for ever|[\d,]+ rounds?) from round \d+")
    }
    assert drawn == {str(e.place): (e.came, e.executed) for e in trace.executions if e.waited}


@each_run
def test_operations_are_drawn_in_their_round_as_what_they_are(make):
    trace = make().trace()
    drawing = Drawing(view.timeline(trace).svg)
    drawn = {(match[1], int(match[2])): (start, rect)
             for match, start, _, rect in _spans(drawing, r"(.*): round (\d+)(?:, left out)?")}  # fmt: skip
    assert set(drawn) == {(str(e.place), e.executed) for e in trace.executions if not e.hangs}
    starts = {flight.place for flight in trace.flights}
    for e in trace.executions:
        if not e.hangs:
            start, rect = drawn[str(e.place), e.executed]
            assert start == pytest.approx(e.executed, abs=0.2)
            assert _is(rect, COPY_START) == (e.place in starts)
            assert _is(rect, LEFT_OUT) == e.left_out


@each_run
def test_copies_are_drawn_while_they_are_on_their_way(make):
    trace = make().trace()
    drawing = Drawing(view.timeline(trace).svg)
    drawn = sorted(
        (match[1], round(start), round(end))
        for match, start, end, _ in _spans(drawing, r"(.*): on its way in rounds \d+ to \d+")
    )
    assert drawn == sorted((str(f.place), f.started, f.ended) for f in trace.flights)
    rounds = _ruler(drawing)
    steps = [rect for rect in drawing.rects if _is(rect, STEP) and not rect.tip and rect.height == 4]
    assert sorted(round(rounds(r.x)) for r in steps) == sorted(s for f in trace.flights for s in f.steps)


@each_run
def test_copies_at_once_stand_below_each_other_in_as_many_lanes_as_are_needed(make):
    trace = make().trace()
    spans = [(start, end, rect) for _, start, end, rect in _spans(Drawing(view.timeline(trace).svg), r".*on its way.*")]
    for i, (start, end, rect) in enumerate(spans):
        for other_start, other_end, other in spans[:i]:
            if start < other_end - 0.1 and other_start < end - 0.1:
                assert other.y != rect.y
    blocks = {f.block for f in trace.flights}
    most = sum(
        max(sum(f.started <= r < f.ended for f in trace.flights if f.block == block) for r in range(trace.rounds))
        for block in blocks
    )
    assert len({rect.y for *_, rect in spans}) == most


@each_run
def test_findings_are_told_and_marked_where_they_are(make):
    trace = make().trace()
    drawing = Drawing(view.timeline(trace).svg)
    marked = {match[1] for match, *_, rect in _spans(drawing, r"(.*): see the findings") if _is(rect, WRONG)}
    assert marked == {str(place) for finding in trace.findings for place in finding.places}
    flat = " ".join(drawing.words.split())
    for finding in trace.findings[:6]:
        assert f"{finding.kind} {finding.rule} (" in flat
        assert " ".join(finding.message.split()) in flat
    assert ("see the findings" in flat) == bool(trace.findings)


@each_run
def test_every_thread_and_block_has_a_lane(make):
    trace = make().trace()
    texts = [t.text for t in Drawing(view.timeline(trace).svg).texts]
    assert [text for text in texts if text in trace.threads] == list(trace.threads)
    assert texts.count("copies") == len({f.block for f in trace.flights})


def test_kernels_are_told_apart_where_there_are_several():
    assert "kernel 1" in Drawing(view.timeline(examples.template_encode()).svg).words
    assert "kernel" not in Drawing(view.timeline(examples.tile_move()).svg).words


def test_some_rounds_are_drawn():
    trace = examples.prefetch_pipeline().trace()
    drawing = Drawing(view.timeline(trace, rounds=(40, 60)).svg)
    drawn = {int(match[1]) for _, match in drawing.tipped(r".*: round (\d+)")}
    assert drawn == {e.executed for e in trace.executions if 40 <= e.executed < 60}
    rounds = _ruler(drawing)
    assert all(rounds(r.x) > 39.9 and rounds(r.x + r.width) < 60.1 for r in drawing.rects if "round" in r.tip)


def test_of_long_runs_a_part_is_drawn_and_that_is_said():
    trace = examples.matrix_multiply(stages=4, depth=100).trace()
    words = Drawing(view.timeline(trace).svg).words
    first, last, all_rounds = map(int, re.search(r"Drawn are rounds (\d+) to (\d+) of (\d+);", words).groups())
    assert (first, all_rounds) == (0, trace.rounds)
    assert last < trace.rounds - 1
    rest = Drawing(view.timeline(trace, rounds=(trace.rounds - 50, trace.rounds)).svg)
    assert "Drawn are" not in rest.words


def test_of_narrow_rounds_the_steps_of_a_copy_are_one():
    trace = examples.matrix_multiply(stages=4, depth=30).trace()
    drawing = Drawing(view.timeline(trace).svg)
    rounds = _ruler(drawing)
    steps = sorted((round(rounds(r.x)), round(rounds(r.x + r.width))) for r in drawing.rects if r.height == 4)
    shown = round(max(rounds(r.x + r.width) for r in drawing.rects if "on its way" in r.tip))
    assert [s for s in steps if s[1] < shown] == sorted(
        (f.steps[0], f.ended) for f in trace.flights if f.ended < shown
    )


def test_of_many_threads_a_part_is_drawn_and_that_is_said():
    from cupytma.sim import Program

    program = Program("crowd")

    @program.role(threads=100)
    def worker(t):
        yield t.syncthreads()

    words = Drawing(view.timeline(program).svg).words
    assert "32 of 100 threads" in words
    assert "worker[31]" in words
    assert "worker[32]" not in words


def test_a_program_and_its_trace_are_the_same_and_notebooks_show_a_trace():
    program = examples.tile_move()
    assert view.timeline(program).svg == view.timeline(program.trace()).svg == program.trace()._repr_svg_()


@pytest.mark.parametrize(
    "rounds", [(5, 5), (-1, 3), (0, 10**6), (7, 3), 4, "ab", (1,), (None, 3), (float("nan"), 3), (1, 2, 3), (0.5, 3)]
)
def test_rounds_that_there_are_none_of_are_refused(rounds):
    with pytest.raises(PictureError, match="rounds is"):
        view.timeline(examples.tile_move(), rounds=rounds)
