"""The trace of a run in rounds: what must hold of any schedule, and what the rounds add."""

from __future__ import annotations

import numpy as np
import pytest

from cupytma import tensor_map
from cupytma.sim import examples
from cupytma.sim.program import Program, ProgramError

each_example = pytest.mark.parametrize("make", examples.EXAMPLES.values(), ids=examples.EXAMPLES)


@each_example
def test_every_thread_does_one_thing_after_the_other(make):
    trace = make().trace()
    assert trace.ended
    for thread in trace.threads:
        done = [e for e in trace.executions if e.place.thread == thread]
        assert done[0].came in trace.kernels
        assert all(e.came <= e.executed < trace.rounds for e in done)
        assert [e.came for e in done[1:]] == [e.executed + 1 for e in done[:-1]]
        # Failed polls of one line are one wait, and each of them is an operation.
        numbers = [e.place.number for e in done]
        assert numbers == sorted(set(numbers))
        assert all(e.can_wait for e in done if e.waited)


@each_example
@pytest.mark.parametrize("latency", [0, 7])
def test_copies_do_nothing_until_the_latency_is_over_and_then_a_step_in_each_round(make, latency):
    trace = make().trace(latency=latency)
    assert trace.latency == latency
    begun = {e.place: e.executed for e in trace.executions}
    assert trace.flights
    for flight in trace.flights:
        assert flight.started == begun[flight.place] + 1
        assert flight.steps[0] == flight.started + latency
        assert flight.steps == tuple(range(flight.steps[0], flight.ended))


@each_example
def test_an_example_is_clean_in_rounds_too_and_the_same_every_time(make):
    assert not make().trace().findings
    assert make().trace() == make().trace()
    assert make().trace(seed=5).flights == make().trace(seed=5).flights


def test_a_thread_that_waits_for_a_load_goes_on_when_its_last_piece_is_there():
    trace = examples.read_modify_write().trace(latency=10)
    load = trace.flights[0]
    waits = [e for e in trace.executions if e.place.label == "wait for the load"]
    assert len(waits) == 4
    # The last step of a load is its end, after its last piece.
    assert all(e.executed >= load.steps[-1] for e in waits)
    assert all(e.executed <= load.ended for e in waits)


def test_more_stages_hide_more_latency():
    rounds = [examples.prefetch_pipeline(stages=stages, tiles=12).trace(latency=30).rounds for stages in (1, 2, 4, 6)]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[0] > 2 * rounds[-1]
    flights = [examples.prefetch_pipeline(stages=s, tiles=12).trace(latency=30).most_in_flight for s in (1, 6)]
    assert flights[0] == 1
    assert flights[1] >= 5


def test_copies_in_flight_are_counted():
    trace = examples.matrix_multiply().trace()
    for number in range(trace.rounds):
        assert trace.in_flight(number) == len([f for f in trace.flights if number in range(f.started, f.ended)])
    assert trace.most_in_flight == max(map(trace.in_flight, range(trace.rounds)))


def test_a_hang_is_traced_up_to_those_who_wait():
    trace = examples.prefetch_pipeline().without("announce").trace()
    assert not trace.ended
    (finding,) = trace.findings
    assert finding.rule == "arrival-missing"
    waiting = [e for e in trace.executions if e.hangs]
    assert {e.place for e in waiting} == set(finding.places)
    assert all(e.executed == trace.rounds for e in waiting)
    assert sum(e.left_out for e in trace.executions) == 3
    assert "not to its end" in str(trace)


def test_a_poll_that_waits_in_vain_is_a_hang_too():
    program = Program("never told", blocks=2)
    flag = program.global_array("flag", [0])[0]

    @program.role
    def user(t):
        while not (yield t.load_acquire(flag, scope="gpu")):
            pass

    trace = program.trace()
    assert not trace.ended
    assert [e.hangs for e in trace.executions] == [True, True]


def test_polls_of_one_line_are_one_wait():
    trace = examples.rebind_handshake().trace()
    polls = [e for e in trace.executions if e.place.operation == "load_acquire"]
    told = next(e for e in trace.executions if e.place.label == "tell")
    assert len(polls) == 1
    assert polls[0].executed > told.executed - 1
    assert polls[0].waited > 5


def test_a_race_is_found():
    race = examples.prefetch_pipeline().without("wait for the stage").trace()
    assert {f.rule for f in race.findings} == {"source-still-read"}
    assert race.ended


def test_a_fault_of_the_hardware_ends_the_trace_where_it_happens():
    program = Program("faults")
    source = program.global_array("source", np.zeros((8, 8), np.float32))
    tile = program.shared_array("tile", (4, 4), np.float32)
    loaded = program.mbarrier("loaded")
    matrix = tensor_map(source, box=(4, 4))

    @program.role
    def worker(t):
        yield t.mbarrier_init(loaded, 1)
        yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(loaded, tile.size)
        yield t.tensor_load(tile, matrix, (1, 0), loaded)
        yield t.write_shared(tile, 0)

    trace = program.trace()
    assert not trace.ended
    assert trace.executions[-1].place.operation == "tensor_load"
    (finding,) = trace.findings
    assert finding.rule == "hardware-fault"
    assert finding.places == (trace.executions[-1].place,)


def test_kernels_follow_each_other_and_a_copy_ends_in_its_own():
    trace = examples.template_encode().trace()
    first, second = trace.kernels
    assert first == 0
    assert all((e.executed < second) == e.role.startswith("encoder") for e in trace.executions)
    assert trace.threads == ("encoder[0]", "encoder[1]", "consumer[0]", "consumer[1]")


def test_a_trace_says_in_a_line_what_it_holds():
    assert str(examples.read_modify_write().trace()) == (
        "read-modify-write: 26 rounds; operations 31, rounds of waiting 46, copies 2, at most 1 at once"
    )


@pytest.mark.parametrize("latency", [-1, 2**31, None, "4", 1.5, float("nan"), True])
def test_a_latency_that_is_none_is_refused(latency):
    with pytest.raises(ProgramError, match="latency"):
        examples.read_modify_write().trace(latency=latency)


def test_programs_that_do_not_end_or_have_no_role_are_refused():
    program = Program("endless")
    flag = program.shared_array("flag", 16)
    with pytest.raises(ProgramError, match="no role"):
        program.trace()

    @program.role
    def worker(t):
        while True:
            yield t.read_shared(flag)

    with pytest.raises(ProgramError, match="no end after 50 steps"):
        program.trace(step_limit=50)
