"""The timeline of a simulated program: a lane for each thread, the waits, and the copies on their way."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupytma.errors import PictureError
from cupytma.sim.program.program import Program
from cupytma.sim.program.report import Place
from cupytma.sim.program.trace import Execution, Flight, Trace
from cupytma.view.drawing import WIDTH, Canvas, Picture, counted, text_width

if TYPE_CHECKING:
    from cupytma.sim.program.report import Finding

_LANE, _FLIGHT = 22, 21
_MOST_ROUND, _LEAST_ROUND = 14, 3
_APART = 5  # pixels of a round from which on the steps of a copy are told apart
_MOST_THREADS = 32
_MOST_SHAPES = 450
_MOST_FINDINGS = 6
_MOST_FLIGHT_LANES = 8
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

WAIT, COPY_START, OPERATION, LEFT_OUT, FLIGHT, STEP, WRONG = (
    "c1 pale", "c0 plain", "c7 tint plain", "c7 outline dashed", "c4 tint", "c2 plain", "c5 outline",
)  # fmt: skip
"""Classes of what is drawn: rounds of waiting, operations that start a copy, others, those left out; copies on their
way, and the rounds in which they read or write; what a finding is about."""


@dataclass(frozen=True)
class _Scale:
    """Rounds in pixels."""

    left: float
    first: int
    end: int
    pixels: float

    def __call__(self, round_number: float) -> float:
        return self.left + (min(max(round_number, self.first), self.end) - self.first) * self.pixels


def timeline(trace: Trace | Program, *, rounds: tuple[int, int] | None = None) -> Picture:
    """What happens when in a run of a simulated program: a lane for each thread, waits, and copies on their way.

    Parameters
    ----------
    trace : Trace or Program
        Of a program, what `Program.trace` records by default.
    rounds : (int, int), optional
        The first round that is drawn and one past the last. Default: all, or as many as can be told apart.

    Returns
    -------
    Picture
        Rounds are an order, and no time that hardware takes.

    Raises
    ------
    PictureError
        If it is neither, or there are no such rounds.
    ProgramError
        As `Program.trace`.
    """
    if isinstance(trace, Program):
        trace = trace.trace()
    if not isinstance(trace, Trace):
        raise PictureError(
            f"{type(trace).__name__} is no trace; pass what `Program.trace` returns, or a program"
        )
    first, end = _checked_rounds(trace, rounds)
    lanes = _lanes(trace)
    drawn = lanes[:_MOST_THREADS]
    shown = _fitting(trace, drawn, first, end)
    label = min(max(text_width(name, "small") for name in (*drawn, "copies")) + 12, 170)
    pixels = min(_MOST_ROUND, (WIDTH - label - 10) / max(1, shown - first))
    scale = _Scale(label, first, shown, pixels)
    canvas = Canvas(f"Timeline of {trace.program}", f"{trace}. {' '.join(map(_told, trace.findings))}")
    _draw_head(canvas, trace, scale)
    y = _draw_lanes(canvas, trace, drawn, scale, 76.0)
    _draw_axis(canvas, trace, scale, 58.0, y)
    y = _draw_legend(canvas, trace, y + 22)
    canvas.paragraph(0, y, _notes(trace, lanes, drawn, scale, end, rounds is not None))
    return canvas.picture()


def _checked_rounds(trace: Trace, rounds: Any) -> tuple[int, int]:
    if rounds is None:
        return 0, max(1, trace.rounds)
    try:
        first, end = map(operator.index, rounds)
    except (TypeError, ValueError):
        raise PictureError(
            f"rounds is {rounds!r}; it must be two integers, the first round and one past the last"
        ) from None
    if not 0 <= first < end <= max(1, trace.rounds):
        raise PictureError(f"rounds is {rounds!r}; they must lie in 0 to {trace.rounds}, the first below the second")
    return first, end


def _lanes(trace: Trace) -> list[str]:
    """The threads, those of a block together."""
    blocks = {execution.place.thread: execution.block for execution in trace.executions}
    return sorted(trace.threads, key=lambda name: blocks.get(name, 0))


def _fitting(trace: Trace, lanes: Sequence[str], first: int, end: int) -> int:
    """One past the last round that can be drawn: wide enough, and without too many shapes."""
    chosen = set(lanes)
    shapes = [(e.place.thread, e.executed) for e in trace.executions]
    shapes += [(f.place.thread, f.ended) for f in trace.flights]
    ends = sorted(last for thread, last in shapes if thread in chosen and last >= first)
    if len(ends) > _MOST_SHAPES:
        end = min(end, max(first + 1, ends[_MOST_SHAPES]))
    return min(end, first + (WIDTH - 120) // _LEAST_ROUND)


def _draw_head(canvas: Canvas, trace: Trace, scale: _Scale) -> None:
    canvas.text(0, 16, f"Timeline of {trace.program}", "heading", room=WIDTH)
    canvas.text(0, 36, str(trace).partition(": ")[2], "faint", room=WIDTH)


def _draw_lanes(canvas: Canvas, trace: Trace, lanes: Sequence[str], scale: _Scale, y: float) -> float:
    blocks = {execution.place.thread: execution.block for execution in trace.executions}
    starts = {flight.place for flight in trace.flights}
    wrong = {place for finding in trace.findings for place in finding.places}
    for block, group in itertools.groupby(lanes, key=lambda name: blocks.get(name, 0)):
        for name in group:
            canvas.text(scale.left - 8, y + 15, name, "small end", room=scale.left - 8)
            canvas.line(scale.left, y + _LANE, scale(scale.end), y + _LANE)
            for execution in trace.executions:
                if execution.place.thread == name:
                    _draw_execution(canvas, execution, execution.place in starts, execution.place in wrong, scale, y)
            y += _LANE
        y = _draw_flights(canvas, [f for f in trace.flights if f.block == block], wrong, scale, y + 3) + 8
    return y


def _draw_execution(canvas: Canvas, e: Execution, starts: bool, wrong: bool, scale: _Scale, y: float) -> None:
    if e.executed < scale.first or e.came >= scale.end:
        return
    height = _LANE - 4
    came, x = scale(e.came), scale(e.executed)
    if x > came:
        why = "waits for ever" if e.hangs else f"waits {counted(e.waited, 'round')}"
        canvas.rect(came, y + 2, x - came, height, WAIT, f"{e.place}: {why} from round {e.came}")
        canvas.hatch(came, y + 2, x - came, height, "c1", 6)
        label = e.place.label or e.place.operation
        if text_width(label, "small") + 8 < x - came:
            canvas.text((came + x) / 2, y + 15, label, "small middle")
    if not e.hangs and e.executed < scale.end:
        kind = LEFT_OUT if e.left_out else COPY_START if starts else OPERATION
        tip = f"{e.place}: round {e.executed}" + ", left out" * e.left_out
        canvas.rect(x + 0.5, y + 2, max(scale.pixels - 1, 1.5), height, kind, tip)
    if wrong:
        end = x if e.hangs else x + scale.pixels
        canvas.rect(came, y + 1, max(end - came, 3), height + 2, WRONG, f"{e.place}: see the findings")


def _draw_flights(canvas: Canvas, flights: list[Flight], wrong: set[Place], scale: _Scale, y: float) -> float:
    """The copies of a block, each in the first lane that is free."""
    shown = [f for f in flights if f.ended > scale.first and f.started < scale.end]
    if not shown:
        return y
    free: list[int] = []
    left_out = 0
    for flight in shown:
        lane = next((i for i, end in enumerate(free) if end <= flight.started), len(free))
        if lane == _MOST_FLIGHT_LANES:
            left_out += 1
            continue
        free[lane : lane + 1] = [flight.ended]
        _draw_flight(canvas, flight, flight.place in wrong, scale, y + lane * _FLIGHT)
    name = f"copies, {left_out} not drawn" if left_out else "copies"
    canvas.text(scale.left - 8, y + 13, name, "small end faint", room=scale.left - 8)
    return y + len(free) * _FLIGHT


def _draw_flight(canvas: Canvas, flight: Flight, wrong: bool, scale: _Scale, y: float) -> None:
    x, width = scale(flight.started), scale(flight.ended) - scale(flight.started)
    tip = f"{flight.place}: on its way in rounds {flight.started} to {flight.ended - 1}"
    canvas.rect(x, y + 1, width, _FLIGHT - 3, FLIGHT, tip)
    steps = [step for step in flight.steps if scale.first <= step < scale.end]
    apart = scale.pixels >= _APART
    for step in steps if apart else steps[:1]:  # they follow each other
        wide = scale.pixels if apart else len(steps) * scale.pixels
        canvas.rect(scale(step) + 0.5, y + _FLIGHT - 6, wide - 1, 4, STEP)
    if text_width(flight.place.operation, "small") + 6 < width:
        canvas.text(x + width / 2, y + 12, flight.place.operation, "small middle")


def _draw_axis(canvas: Canvas, trace: Trace, scale: _Scale, y: float, bottom: float) -> None:
    step = next((tick for tick in _TICKS if tick * scale.pixels >= 34), _TICKS[-1])
    for round_number in range(-(-scale.first // step) * step, scale.end + 1, step):
        canvas.text(scale(round_number), y, str(round_number), "small middle faint")
        canvas.line(scale(round_number), y + 4, scale(round_number), y + 10)
    canvas.text(scale.left - 8, y, "round", "small end faint")
    for kernel, first in enumerate(trace.kernels):
        if len(trace.kernels) > 1 and scale.first <= first < scale.end:
            canvas.line(scale(first), y + 4, scale(first), bottom, "c3")
            canvas.text(scale(first) + 3, y + 14, f"kernel {kernel}", "small")


def _draw_legend(canvas: Canvas, trace: Trace, y: float) -> float:
    entries = [
        (OPERATION, "operation"), (COPY_START, "starts a copy"), (f"{WAIT}+c1 hatch", "waits"),
        (FLIGHT, "copy on its way"), (STEP, "it reads or writes"),
    ]  # fmt: skip
    entries += [(LEFT_OUT, "left out")] * any(e.left_out for e in trace.executions)
    entries += [(WRONG, "see the findings")] * bool(trace.findings)
    return canvas.legend(0, y, entries)


def _notes(
    trace: Trace, lanes: list[str], drawn: list[str], scale: _Scale, end: int, chosen: bool
) -> Iterator[str]:
    yield (
        f"A round is an order, no time: each thread executes one operation, each copy goes on by one step, the first "
        f"of them {counted(trace.latency, 'round')} after its start."
    )
    if scale.end < end or len(drawn) < len(lanes):
        parts = [f"rounds {scale.first} to {scale.end - 1} of {trace.rounds}"] * (scale.end < end)
        parts += [f"{len(drawn)} of {len(lanes)} threads"] * (len(drawn) < len(lanes))
        yield f"Drawn are {' and '.join(parts)}; pass rounds=(first, end) for others."
    for finding in trace.findings[:_MOST_FINDINGS]:
        yield _told(finding)
    if len(trace.findings) > _MOST_FINDINGS:
        yield f"And {counted(len(trace.findings) - _MOST_FINDINGS, 'finding')} more."


def _told(finding: Finding) -> str:
    places = ", ".join(f"{place.thread} operation {place.number}" for place in finding.places)
    return f"{finding.kind} {finding.rule} ({places}): {finding.message}"
