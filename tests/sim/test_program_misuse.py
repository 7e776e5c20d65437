"""Instructions used in a way that has another meaning, or none."""

from __future__ import annotations

import numpy as np
import pytest
from program_pieces import TILE, finding, in_every_schedule, load_program

import cupytma as tma
from cupytma.sim import Program
from cupytma.sim.program import RULES


def grouped(*, wait_by: int = 0, commit: bool = True, other_wait: bool = False) -> Program:
    program = Program("groups")
    data = program.global_array("data", np.zeros(16, np.int32))
    tile = program.shared_array("tile", 16, np.int32)

    @program.role(threads=2)
    def worker(t):
        if t.index == 0:
            yield t.write_shared(tile, 7)
            yield t.fence_proxy_async(space="shared::cta")
            yield t.bulk_copy(data, tile)
            if commit:
                yield t.bulk_commit_group()
            if other_wait:
                yield t.cp_async_commit_group()
                yield t.cp_async_wait_group(0)
        if t.index == wait_by:
            yield t.bulk_wait_group(0, read=True)

    return program


def test_groups_that_are_committed_and_waited_for_by_one_thread_are_right() -> None:
    assert grouped().run(schedules=12).clean


def test_waiting_for_a_group_from_another_thread_waits_for_nothing() -> None:
    program = grouped(wait_by=1)
    in_every_schedule(program, "group-other-thread")
    in_every_schedule(program, "exit-in-flight")
    found = finding(program.run(schedules=2), "group-other-thread")
    assert found.kind == "misuse"
    assert found.message == (
        "worker[1] waits for bulk groups and never committed one; worker[0] commits those of this block"
    )


def test_a_thread_that_waits_before_it_commits_is_no_misuse() -> None:
    program = Program("early wait")
    data = program.global_array("data", np.zeros(16, np.int32))
    tile = program.shared_array("tile", 16, np.int32)

    @program.role
    def worker(t):
        for _ in range(3):
            yield t.bulk_wait_group(0, read=True)
            yield t.write_shared(tile, 1)
            yield t.fence_proxy_async(space="shared::cta")
            yield t.bulk_copy(data, tile)
            yield t.bulk_commit_group()
            yield t.bulk_wait_group(0)

    assert program.run(schedules=8).clean


def test_a_store_that_is_never_committed_is_waited_for_by_nobody() -> None:
    program = grouped(commit=False)
    in_every_schedule(program, "group-not-committed")
    assert "worker[0] starts bulk_copy (test_program_misuse.py:" in program.run(schedules=1).findings[0].message


def test_cp_async_wait_group_does_not_wait_for_bulk_groups() -> None:
    program = grouped(other_wait=True, wait_by=-1)
    in_every_schedule(program, "group-not-bulk")
    in_every_schedule(program, "exit-in-flight")
    assert "while 1 of its bulk copies are pending" in finding(program.run(schedules=2), "group-not-bulk").message


def test_cp_async_wait_group_without_bulk_copies_is_no_misuse() -> None:
    program = Program("none")

    @program.role
    def worker(t):
        yield t.cp_async_commit_group()
        yield t.cp_async_wait_group(0)

    assert program.run(schedules=2).clean


def test_a_barrier_that_is_initialised_twice() -> None:
    program = Program("twice")
    full = program.mbarrier("full")

    @program.role(threads=2)
    def worker(t):
        yield t.mbarrier_init(full, 1)

    in_every_schedule(program, "double-init")


def test_a_barrier_that_is_used_after_its_end() -> None:
    program = Program("ended")
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.mbarrier_inval(full)
        yield t.mbarrier_arrive(full)

    in_every_schedule(program, "use-after-inval")


@pytest.mark.parametrize("ordered", [True, False])
def test_a_barrier_is_ended_after_every_use(ordered: bool) -> None:
    """Whichever comes first in the schedule."""
    program = Program("end")
    full = program.mbarrier("full")

    @program.role(threads=2)
    def worker(t):
        if t.index == 0:
            yield t.mbarrier_init(full, 1)
        yield t.syncthreads()
        if t.index == 1:
            yield t.mbarrier_arrive(full)
        if ordered:
            yield t.syncthreads()
        if t.index == 0:
            yield t.mbarrier_inval(full)

    if ordered:
        assert program.run(schedules=12).clean
    else:
        in_every_schedule(program, "use-after-inval")


def test_a_barrier_may_be_initialised_again_after_its_end() -> None:
    program = Program("again")
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        for _ in range(2):
            yield t.mbarrier_init(full, 1)
            yield t.mbarrier_arrive(full)
            yield t.mbarrier_wait_parity(full, 0)
            yield t.mbarrier_inval(full)

    assert program.run(schedules=2).clean


def test_a_barrier_that_nobody_initialises() -> None:
    program = Program("none")
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_arrive(full)

    found = finding(program.run(schedules=2), "init-unordered")
    assert "no thread has initialised it" in found.message


def test_more_arrivals_than_are_pending() -> None:
    program = Program("surplus")
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 2)
        yield t.mbarrier_arrive(full, 3)

    found = finding(program.run(schedules=2), "arrival-surplus")
    assert "arrives 3 times on 'full' in phase 0, where 2 of 2 arrivals are pending" in found.message


def test_a_transaction_count_above_the_limit() -> None:
    program = Program("huge")
    full = program.mbarrier("full")
    most = 2**20 - 1

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 2)
        yield t.mbarrier_expect_tx(full, most)
        yield t.mbarrier_expect_tx(full, 1)

    assert f"to {most + 1} B; the most is {most} B" in finding(program.run(schedules=2), "tx-count-range").message


def test_a_token_that_is_two_phases_old() -> None:
    program = Program("stale")
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        first = yield t.mbarrier_arrive(full)
        yield t.mbarrier_arrive(full)
        yield t.mbarrier_wait(full, first)

    found = finding(program.run(schedules=2), "stale-token")
    assert "waits for the token of phase 0 of 'full', which is in phase 2" in found.message


def tensor_program(*, room: int = 1024, second_at: int | None = None) -> Program:
    """Two tensor loads of 1024 bytes each, into arrays that may be too small or overlap."""
    program = Program("tiles")
    data = program.global_array("data", np.arange(512, dtype=np.int32).reshape(16, 32))
    there = tma.tensor_map(data, box=(8, 32))
    one = program.shared_array("one", room)
    two = program.shared_array("two", 1024, offset=second_at)
    full = program.mbarrier("full")

    @program.role
    def loader(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(full, 2 * there.box_bytes)
        yield t.tensor_load(one, there, (0, 0), full)
        yield t.tensor_load(two, there, (0, 8), full)
        yield t.mbarrier_wait_parity(full, 0)

    return program


def test_tiles_that_do_not_overlap_are_right() -> None:
    assert tensor_program().run(schedules=8).clean


def test_tiles_that_overlap_and_are_in_use_at_the_same_time() -> None:
    program = tensor_program(second_at=896)
    in_every_schedule(program, "tiles-overlap")
    found = finding(program.run(schedules=2), "tiles-overlap")
    assert "bytes 0…127 of 'two'" in found.message
    assert "bytes 896…1023 of 'one'" in found.message


def test_a_tile_larger_than_its_array() -> None:
    program = tensor_program(room=512)
    in_every_schedule(program, "tile-overruns")
    found = finding(program.run(schedules=2), "tile-overruns")
    assert "touches 1024 B from the start of 'one', which has 512 B" in found.message


def test_an_array_used_twice_one_after_the_other_is_no_overlap() -> None:
    program = Program("aliases")
    data = program.global_array("data", np.arange(8, dtype=np.int32).reshape(2, 4))
    one = program.shared_array("one", 4, np.int32)
    two = program.shared_array("two", 4, np.int32, offset=0)
    full = program.mbarrier("full")

    @program.role
    def loader(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        for turn, tile in enumerate((one, two)):
            yield t.mbarrier_arrive_expect_tx(full, 16)
            yield t.bulk_copy(tile, data[turn], full)
            yield t.mbarrier_wait_parity(full, turn)
            yield t.read_shared(tile)

    assert program.run(schedules=8).clean


@pytest.mark.parametrize("how", ["load", "write"])
def test_writing_over_a_barrier(how: str) -> None:
    program = Program("over")
    data = program.global_array("data", np.zeros(16))
    tile = program.shared_array("tile", 120)
    full = program.mbarrier("full")  # right behind it, at byte 120
    across = program.shared_array("across", 128, offset=0)

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.write_shared(tile, 0)
        if how == "write":
            yield t.write_shared(across, 0)
        else:
            yield t.fence_proxy_async()
            yield t.mbarrier_arrive_expect_tx(full, 128)
            yield t.bulk_copy(across, data, full)
            yield t.mbarrier_wait_parity(full, 0)

    found = finding(program.run(schedules=4), "barrier-overwritten")
    assert "writes over 'full'" in found.message


def test_an_ended_barrier_may_be_written_over() -> None:
    program = Program("reuse")
    full = program.mbarrier("full")
    across = program.shared_array("across", 16, offset=0)

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.mbarrier_inval(full)
        yield t.write_shared(across, 0)

    assert program.run(schedules=2).clean


def test_a_fault_of_the_hardware_ends_the_program() -> None:
    program = Program("fault")
    data = program.global_array("data", np.zeros((16, 32), np.int32))
    there = tma.tensor_map(data, box=(8, 32))
    tile = program.shared_array("tile", 1024)
    full = program.mbarrier("full")

    @program.role
    def loader(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(full, there.box_bytes)
        yield t.tensor_load(tile, there, (2, 0), full)
        yield t.mbarrier_wait_parity(full, 0)

    report = program.run(schedules=4)
    found = finding(report, "hardware-fault")
    assert found.kind == "fault"
    assert "illegal instruction" in found.message
    assert "8 mod 16" in found.message
    assert not report.arrays


def test_a_store_at_a_negative_coordinate_is_a_fault() -> None:
    program = Program("fault")
    data = program.global_array("data", np.zeros((16, 32), np.int32))
    there = tma.tensor_map(data, box=(8, 32))
    tile = program.shared_array("tile", 1024)

    @program.role
    def storer(t):
        yield t.tensor_store(there, (0, -1), tile)
        yield t.bulk_commit_group()
        yield t.bulk_wait_group(0)

    for seed in range(8):
        assert program.run(schedules=1, seed=seed).rules == {"hardware-fault"}


def test_the_bytes_of_a_load_are_those_that_its_map_says() -> None:
    assert load_program(announce=TILE).run(schedules=4).clean
    assert tensor_program().run(schedules=4).clean


def test_every_rule_says_what_to_do_and_where_it_is_known_from() -> None:
    for name, rule in RULES.items():
        assert name == rule.id
        assert rule.kind in ("hang", "race", "misuse", "fault")
        assert rule.statement
        assert rule.fix
        assert rule.source
