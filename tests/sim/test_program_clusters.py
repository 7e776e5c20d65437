"""Clusters: multicast, barriers of other blocks, distributed shared memory, and when a block may end."""

from __future__ import annotations

import numpy as np
import pytest
from program_pieces import finding, in_every_schedule

import cupytma as tma
from cupytma.sim import Program, ProgramError


def multicast_program(
    *, mask: int = 0b11, announcing: tuple[int, ...] = (0, 1), blocks: int = 2, tensor: bool = False
) -> Program:
    """Block 0 loads a tile for the blocks of its cluster."""
    program = Program("multicast", blocks=blocks, cluster=blocks)
    data = program.global_array("data", np.arange(32, dtype=np.int32).reshape(4, 8))
    seen = program.global_array("seen", np.zeros((blocks, 4, 8), np.int32))
    there = tma.tensor_map(data, box=(4, 8))
    tile = program.shared_array("tile", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init().named("init fence")
        yield t.barrier_cluster_arrive(semantics="relaxed").named("cluster barrier")
        yield t.barrier_cluster_wait().named("cluster barrier")
        if t.rank in announcing:
            yield t.mbarrier_arrive_expect_tx(full, tile.size)
        if t.rank == 0:
            if tensor:
                yield t.tensor_load(tile, there, (0, 0), full, cta_mask=mask)
            else:
                yield t.bulk_copy(tile, data, full, cta_mask=mask)
        if mask >> t.rank & 1:
            yield t.mbarrier_wait_parity(full, 0).named("wait")
            values = yield t.read_shared(tile)
            yield t.write_global(seen[t.rank], values)

    return program


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_multicast_reaches_every_block_and_its_barrier(blocks: int, tensor: bool) -> None:
    ranks = tuple(range(blocks))
    program = multicast_program(mask=(1 << blocks) - 1, announcing=ranks, blocks=blocks, tensor=tensor)
    report = program.run(schedules=20)
    assert report.clean, report
    for rank in ranks:
        np.testing.assert_array_equal(report.arrays["seen"][rank], report.arrays["data"])


def test_a_multicast_to_some_blocks_leaves_the_others_alone() -> None:
    report = multicast_program(mask=0b0101, announcing=(0, 2), blocks=4).run(schedules=12)
    assert report.clean, report
    assert [bool(report.arrays["seen"][rank].any()) for rank in range(4)] == [True, False, True, False]


def test_fenced_initialisations_pass_a_relaxed_cluster_barrier_and_others_do_not() -> None:
    in_every_schedule(multicast_program().without("init fence"), "init-unordered")
    in_every_schedule(multicast_program().without("cluster barrier"), "init-unordered")


def test_a_multicast_to_a_block_outside_the_cluster() -> None:
    program = multicast_program(mask=0b111)
    in_every_schedule(program, "multicast-outside")
    found = finding(program.run(schedules=2), "multicast-outside")
    assert "multicasts to rank 2, and the cluster has 2 blocks" in found.message
    assert "0x3" in found.fix


def test_a_multicast_to_a_block_that_expects_nothing() -> None:
    """It arrives, nobody waits for it in time, and the block's barrier is out of step."""
    program = Program("unexpected", blocks=2, cluster=2)
    data = program.global_array("data", np.arange(4, dtype=np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()
        if t.rank == 0:
            yield t.mbarrier_arrive_expect_tx(full, 16)
            yield t.bulk_copy(tile, data, full, cta_mask=0b11)
            yield t.mbarrier_wait_parity(full, 0)
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()

    in_every_schedule(program, "multicast-not-expected")
    found = finding(program.run(schedules=2), "multicast-not-expected")
    assert found.kind == "misuse"
    assert "brings 16 B to 'full' of block 1, where phase 0 has none announced" in found.message


def test_a_block_that_waits_for_a_multicast_it_never_announced_hangs_and_the_report_says_why() -> None:
    """Block 0 waits for block 1 in consequence; the barrier without the announcement is named all the same."""
    program = Program("forgotten", blocks=2, cluster=2)
    data = program.global_array("data", np.arange(4, dtype=np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full, empty = program.mbarrier("full"), program.mbarrier("empty")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.mbarrier_init(empty, 2)
        yield t.fence_mbarrier_init()
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()
        if t.rank == 0:
            yield t.mbarrier_arrive_expect_tx(full, 16)
            yield t.bulk_copy(tile, data, full, cta_mask=0b11)
        yield t.mbarrier_wait_parity(full, 0)
        yield t.mbarrier_arrive(empty.mapa(0), scope="cluster")
        if t.rank == 0:
            yield t.mbarrier_wait_parity(empty, 0, scope="cluster")

    in_every_schedule(program, "multicast-not-expected")
    report = program.run(schedules=12)
    assert report.rules == {"arrival-missing", "multicast-not-expected"}
    assert "'full' of block 1 never completes phase 0: 0 of 1" in finding(report, "arrival-missing").message
    assert "brings 16 B to 'full' of block 1" in finding(report, "multicast-not-expected").message


def test_a_block_that_announces_bytes_and_is_not_in_the_mask_waits_for_ever() -> None:
    program = Program("left out", blocks=2, cluster=2)
    data = program.global_array("data", np.arange(4, dtype=np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()
        yield t.mbarrier_arrive_expect_tx(full, 16)
        if t.rank == 0:
            yield t.bulk_copy(tile, data, full, cta_mask=0b01)
        yield t.mbarrier_wait_parity(full, 0)

    found = finding(program.run(schedules=8), "expect-tx-high")
    assert "'full' of block 1 never completes phase 0: 16 B were announced and 0 B have come" in found.message


def refill_program(arrive_scope: str, wait_scope: str, *, end: bool = True) -> Program:
    """Block 0 multicasts twice; before the second time, block 1 says on block 0's barrier that it has read."""
    program = Program("refill", blocks=2, cluster=2)
    data = program.global_array("data", np.arange(8, dtype=np.int32).reshape(2, 4))
    seen = program.global_array("seen", np.zeros((2, 2, 4), np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full, empty = program.mbarrier("full"), program.mbarrier("empty")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.mbarrier_init(empty, 2)
        yield t.fence_mbarrier_init()
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()
        for turn in range(2):
            yield t.mbarrier_arrive_expect_tx(full, 16)
            if t.rank == 0:
                if turn:
                    yield t.mbarrier_wait_parity(empty, 0, scope=wait_scope)
                yield t.bulk_copy(tile, data[turn], full, cta_mask=0b11)
            yield t.mbarrier_wait_parity(full, turn)
            values = yield t.read_shared(tile)
            yield t.mbarrier_arrive(empty.mapa(0), scope=arrive_scope)
            yield t.write_global(seen[t.rank, turn], values)
        if end:
            yield t.barrier_cluster_arrive()
            yield t.barrier_cluster_wait()

    return program


def test_another_block_releases_a_tile_at_cluster_scope() -> None:
    report = refill_program("cluster", "cluster").run(schedules=40)
    assert report.clean, report
    for rank in range(2):
        np.testing.assert_array_equal(report.arrays["seen"][rank], report.arrays["data"])


@pytest.mark.parametrize(("arrive_scope", "wait_scope"), [("cta", "cluster"), ("cluster", "cta"), ("cta", "cta")])
def test_block_scope_does_not_reach_another_block_and_the_note_says_so(arrive_scope: str, wait_scope: str) -> None:
    program = refill_program(arrive_scope, wait_scope)
    in_every_schedule(program, "refill-unordered")
    notes = [note for found in program.run(schedules=1).findings for note in found.notes]
    assert any("scope 'cta'" in note for note in notes)


def test_a_block_does_not_end_while_others_arrive_on_its_barriers() -> None:
    program = refill_program("cluster", "cluster", end=False)
    in_every_schedule(program, "exit-in-flight")
    assert (
        "block 0 ends while mbarrier_arrive of worker of block 1"
        in finding(program.run(schedules=2), "exit-in-flight").message
    )


def peer_copy_program() -> Program:
    """Block 0 copies its shared memory to block 1."""
    program = Program("to a peer", blocks=2, cluster=2)
    seen = program.global_array("seen", np.zeros(4, np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()
        if t.rank == 0:
            yield t.write_shared(tile, [5, 6, 7, 8])
            yield t.fence_proxy_async(space="shared::cta").named("proxy fence")
            yield t.bulk_copy(tile.mapa(1), tile, full.mapa(1))
        else:
            yield t.mbarrier_arrive_expect_tx(full, 16)
            yield t.mbarrier_wait_parity(full, 0).named("wait")
            values = yield t.read_shared(tile)
            yield t.write_global(seen, values)
        yield t.barrier_cluster_arrive().named("last barrier")
        yield t.barrier_cluster_wait().named("last barrier")

    return program


def test_a_copy_to_another_block_completes_on_that_blocks_barrier() -> None:
    program = peer_copy_program()
    report = program.run(schedules=20)
    assert report.clean, report
    assert report.arrays["seen"].tolist() == [5, 6, 7, 8]
    in_every_schedule(program.without("proxy fence"), "proxy-fence")
    in_every_schedule(program.without("wait"), "tile-not-complete")
    # The source may not go away before it is read, and only the other block knows when that is.
    in_every_schedule(program.without("last barrier"), "exit-in-flight")


def test_shared_memory_of_another_block_is_read_and_written_through_mapa() -> None:
    program = Program("distributed", blocks=2, cluster=2)
    seen = program.global_array("seen", np.zeros((2, 4), np.int32))
    tile = program.shared_array("tile", 4, np.int32)

    @program.role
    def worker(t):
        yield t.barrier_cluster_arrive().named("first barrier")
        yield t.barrier_cluster_wait().named("first barrier")
        yield t.write_shared(tile.mapa(1 - t.rank), t.rank + 1)
        yield t.barrier_cluster_arrive().named("second barrier")
        yield t.barrier_cluster_wait().named("second barrier")
        values = yield t.read_shared(tile)
        yield t.write_global(seen[t.rank], values)

    report = program.run(schedules=20)
    assert report.clean, report
    assert report.arrays["seen"].tolist() == [[2] * 4, [1] * 4]
    in_every_schedule(program.without("second barrier"), "unordered")


@pytest.mark.parametrize(
    ("steps", "problem"),
    [(("wait",), "without an arrival"), (("arrive", "arrive", "wait"), "before the thread has waited")],
)
def test_arrivals_and_waits_at_the_cluster_barrier_alternate(steps: tuple[str, ...], problem: str) -> None:
    program = Program("order", blocks=2, cluster=2)

    @program.role
    def worker(t):
        for step in steps:
            yield t.barrier_cluster_arrive() if step == "arrive" else t.barrier_cluster_wait()

    in_every_schedule(program, "cluster-barrier-order", range(4))
    assert problem in finding(program.run(schedules=2), "cluster-barrier-order").message


@pytest.mark.parametrize("does", ["read", "write"])
def test_a_block_does_not_end_while_others_touch_its_shared_memory(does: str) -> None:
    program = Program("late", blocks=2, cluster=2)
    tile = program.shared_array("tile", 4, np.int32)

    @program.role
    def worker(t):
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()
        if t.rank == 1:
            yield t.read_shared(tile.mapa(0)) if does == "read" else t.write_shared(tile.mapa(0), 1)
        yield t.barrier_cluster_arrive().named("last barrier")
        yield t.barrier_cluster_wait().named("last barrier")

    assert program.run(schedules=12).clean
    in_every_schedule(program.without("last barrier"), "exit-in-flight")


def test_what_goes_to_no_block_of_the_cluster_is_refused() -> None:
    program = Program("far", blocks=2, cluster=2)
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_arrive(full.mapa(2))

    with pytest.raises(ProgramError, match="mapa to rank 2, and the cluster has 2 blocks"):
        program.run()


def test_a_tile_and_its_barrier_are_in_one_block() -> None:
    program = Program("apart", blocks=2, cluster=2)
    data = program.global_array("data", np.zeros(4, np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.bulk_copy(tile.mapa(1), data, full)

    with pytest.raises(ProgramError, match="completes on a barrier in the shared memory that it writes"):
        program.run()


def test_mapa_to_the_own_block_means_the_same_as_leaving_it_out() -> None:
    program = Program("own", blocks=2, cluster=2)
    data = program.global_array("data", np.arange(4, dtype=np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full = program.mbarrier("full")

    @program.role
    def worker(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(full, 16)
        yield t.bulk_copy(tile.mapa(t.rank), data, full)
        yield t.mbarrier_wait_parity(full, 0)

    report = program.run(schedules=12)
    assert report.clean, report
