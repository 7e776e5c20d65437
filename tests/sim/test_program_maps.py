"""Tensor maps that are changed on the device: released, acquired, at a scope that reaches, and not while in use."""

from __future__ import annotations

import numpy as np
import pytest
from program_pieces import finding, in_every_schedule

import cupytma as tma
from cupytma.sim import Program
from cupytma.tensormap import slot_array
from cupytma.tensormap.replacement import rebind_steps

SCOPES = ("cta", "cluster", "gpu", "sys")


def load_through(t, slot, buffer, full, turn: int = 0):
    """Load the corner tile through a map in memory, and wait for it."""
    yield t.mbarrier_arrive_expect_tx(full, buffer.size)
    yield t.tensor_load(buffer, slot, (0, 0), full)
    yield t.mbarrier_wait_parity(full, turn)


def host_map_program(scope: str | None, *, by: str = "user") -> Program:
    """A block loads through a map that the host wrote to global memory."""
    program = Program("host's map")
    data = program.global_array("data", np.arange(32, dtype=np.int32).reshape(4, 8))
    seen = program.global_array("seen", np.zeros((4, 8), np.int32))
    slots = program.global_array("slots", slot_array([tma.tensor_map(data, box=(4, 8))]))
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role
    def user(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        if scope and by == "user":
            yield t.fence_proxy_tensormap_acquire(slots[0], scope=scope)
        yield t.syncthreads().named("barrier")
        yield from load_through(t, slots[0], buffer, full)
        values = yield t.read_shared(buffer)
        yield t.write_global(seen, values)

    @program.role
    def mate(t):
        if scope and by == "mate":
            yield t.fence_proxy_tensormap_acquire(slots[0], scope=scope)
        yield t.syncthreads().named("barrier")

    return program


@pytest.mark.parametrize("by", ["user", "mate"])
def test_a_map_from_the_host_is_acquired_at_sys_by_a_thread_of_the_block(by: str) -> None:
    report = host_map_program("sys", by=by).run(schedules=20)
    assert report.clean, report
    np.testing.assert_array_equal(report.arrays["seen"], report.arrays["data"])


def test_the_start_of_a_kernel_acquires_no_map() -> None:
    in_every_schedule(host_map_program(None), "map-not-acquired")
    assert "scope 'sys'" in finding(host_map_program(None).run(schedules=1), "map-not-acquired").fix


@pytest.mark.parametrize("scope", SCOPES[:3])
def test_a_map_from_the_host_needs_the_scope_sys(scope: str) -> None:
    in_every_schedule(host_map_program(scope), "map-scope")
    message = finding(host_map_program(scope).run(schedules=1), "map-scope").message
    assert f"acquires at scope {scope!r}, and 'sys' is needed" in message


def test_an_acquire_by_another_thread_needs_a_barrier() -> None:
    program = host_map_program("sys", by="mate").without("barrier")
    in_every_schedule(program, "map-not-acquired")
    messages = {program.run(schedules=1, seed=seed).findings[0].message for seed in range(12)}
    assert any(
        text.endswith("nothing orders fence_proxy_tensormap_acquire of mate before the copy") for text in messages
    )


def test_a_map_that_is_a_parameter_needs_no_fence() -> None:
    program = Program("parameter")
    data = program.global_array("data", np.arange(32, dtype=np.int32).reshape(4, 8))
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role
    def user(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield from load_through(t, tma.tensor_map(data, box=(4, 8)), buffer, full)

    assert program.run(schedules=8).clean


def rebind_program(
    release: str | None, acquire: str | None, *, where: str = "same block", publish: str = "in place"
) -> Program:
    """One thread changes a map, one of the same block, its cluster, another block or the next kernel uses it."""
    blocks = 1 if where in ("same block", "next kernel") else 2
    program = Program("rebind", blocks=blocks, cluster=2 if where == "cluster" else 1)
    first = program.global_array("first", np.arange(32, dtype=np.int32).reshape(4, 8))
    second = program.global_array("second", 100 + np.arange(32, dtype=np.int32).reshape(4, 8))
    seen = program.global_array("seen", np.zeros((4, 8), np.int32))
    slot = program.global_array("slot", slot_array([tma.tensor_map(first, box=(4, 8))]))[0]
    flag = program.global_array("flag", np.zeros(1, np.int32))[0]
    staged = program.shared_array("staged", 128)
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")
    wanted = tma.tensor_map(second, box=(4, 8))
    p = wanted.decode()

    def publish_map(t):
        if publish == "copy":
            yield t.write_shared(staged, np.frombuffer(bytes(wanted), np.uint8))
            yield t.tensormap_cp_fenceproxy(slot, staged, scope=release)
            return
        for field, ordinal, value in rebind_steps(p.global_address, p.global_dim, p.global_strides):
            yield t.tensormap_replace(slot, field, value, ordinal=ordinal)
        if release:
            yield t.fence_proxy_tensormap_release(scope=release)

    @program.role(blocks=[0])
    def changer(t):
        yield from publish_map(t)
        if where != "next kernel":
            yield t.store_release(flag, 1, scope="gpu")

    @program.role(blocks=[blocks - 1], kernel=1 if where == "next kernel" else 0)
    def user(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        while where != "next kernel" and not (yield t.load_acquire(flag, scope="gpu")):
            pass
        if acquire:
            yield t.fence_proxy_tensormap_acquire(slot, scope=acquire)
        yield from load_through(t, slot, buffer, full)
        values = yield t.read_shared(buffer)
        yield t.write_global(seen, values)

    return program


NEEDED = {"same block": "cta", "cluster": "cluster", "other block": "gpu", "next kernel": "gpu"}


@pytest.mark.parametrize("publish", ["in place", "copy"])
@pytest.mark.parametrize("where", NEEDED)
def test_release_and_acquire_need_a_scope_that_includes_both_threads(where: str, publish: str) -> None:
    needed = SCOPES.index(NEEDED[where])
    for i, release in enumerate(SCOPES):
        for j, acquire in enumerate(SCOPES):
            report = rebind_program(release, acquire, where=where, publish=publish).run(schedules=3)
            assert report.rules == (set() if min(i, j) >= needed else {"map-scope"}), (release, acquire, report)
            if report.clean:
                np.testing.assert_array_equal(report.arrays["seen"], report.arrays["second"])
            else:
                assert repr(NEEDED[where]) in report.findings[0].fix


@pytest.mark.parametrize("where", NEEDED)
def test_a_change_that_is_not_released_or_not_acquired(where: str) -> None:
    in_every_schedule(rebind_program(None, "sys", where=where), "map-not-released", range(4))
    in_every_schedule(rebind_program("sys", None, where=where), "map-not-acquired", range(4))


def test_a_map_is_acquired_again_after_every_change() -> None:
    """One acquire serves many loads, and none of the next change."""
    program = Program("twice")
    data = program.global_array("data", np.arange(64, dtype=np.int32).reshape(8, 8))
    slot = program.global_array("slot", slot_array([tma.tensor_map(data[:4], box=(4, 8))]))[0]
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role
    def user(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.fence_proxy_tensormap_acquire(slot, scope="sys")
        for turn in range(3):
            yield from load_through(t, slot, buffer, full, turn % 2)
        yield t.tensormap_replace(slot, "global_address", data[4:].address)
        yield t.fence_proxy_tensormap_release(scope="cta")
        yield t.fence_proxy_tensormap_acquire(slot, scope="cta").named("acquire again")
        yield from load_through(t, slot, buffer, full, 1)

    assert program.run(schedules=8).clean
    in_every_schedule(program.without("acquire again"), "map-not-acquired")


def two_users_program(*, each: bool, cluster: int) -> Program:
    """Two blocks load through a map from the host; a barrier or flag tells the second that the first acquired it."""
    program = Program("two users", blocks=2, cluster=cluster)
    data = program.global_array("data", np.arange(32, dtype=np.int32).reshape(4, 8))
    slot = program.global_array("slot", slot_array([tma.tensor_map(data, box=(4, 8))]))[0]
    flag = program.global_array("flag", np.zeros(1, np.int32))[0]
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role
    def user(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        if t.block == 0 or each:
            yield t.fence_proxy_tensormap_acquire(slot, scope="sys")
        if t.block == 0:
            yield t.store_release(flag, 1)
        while not (yield t.load_acquire(flag)):
            pass
        yield t.barrier_cluster_arrive()
        yield t.barrier_cluster_wait()
        yield from load_through(t, slot, buffer, full)

    return program


@pytest.mark.parametrize("cluster", [1, 2])
def test_every_block_acquires_a_map_for_itself(cluster: int) -> None:
    """Barriers of the cluster and flags order the accesses of the generic proxy alone."""
    assert two_users_program(each=True, cluster=cluster).run(schedules=8).clean
    program = two_users_program(each=False, cluster=cluster)
    in_every_schedule(program, "map-not-acquired")
    assert {place.thread for place in program.run(schedules=4).findings[0].places} == {"user of block 1"}


def test_an_acquire_before_the_change_is_told_does_not_count() -> None:
    program = Program("too soon", blocks=2)
    data = program.global_array("data", np.arange(64, dtype=np.int32).reshape(8, 8))
    slot = program.global_array("slot", slot_array([tma.tensor_map(data[:4], box=(4, 8))]))[0]
    flag = program.global_array("flag", np.zeros(1, np.int32))[0]
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role(blocks=[0])
    def changer(t):
        yield t.tensormap_replace(slot, "global_address", data[4:].address)
        yield t.fence_proxy_tensormap_release(scope="gpu")
        yield t.store_release(flag, 1)

    @program.role(blocks=[1])
    def user(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.fence_proxy_tensormap_acquire(slot, scope="gpu")
        while not (yield t.load_acquire(flag)):
            pass
        yield from load_through(t, slot, buffer, full)

    in_every_schedule(program, "map-not-acquired")
    message = finding(program.run(schedules=20), "map-not-acquired").message
    assert message.endswith("nothing orders fence_proxy_tensormap_acquire of user of block 1 after the change")


def test_an_acquire_does_not_last_beyond_its_kernel() -> None:
    program = Program("two kernels")
    data = program.global_array("data", np.arange(32, dtype=np.int32).reshape(4, 8))
    slot = program.global_array("slot", slot_array([tma.tensor_map(data, box=(4, 8))]))[0]
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role
    def first(t):
        yield t.fence_proxy_tensormap_acquire(slot, scope="sys")

    @program.role(kernel=1)
    def second(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield from load_through(t, slot, buffer, full)

    in_every_schedule(program, "map-not-acquired")


@pytest.mark.parametrize("read", [True, False])
def test_a_map_is_changed_after_the_stores_that_use_it_have_read_it(read: bool) -> None:
    program = Program("store")
    data = program.global_array("data", np.zeros((8, 8), np.int32))
    slot = program.global_array("slot", slot_array([tma.tensor_map(data[:4], box=(4, 8))]))[0]
    buffer = program.shared_array("buffer", (4, 8), np.int32)

    @program.role
    def user(t):
        yield t.fence_proxy_tensormap_acquire(slot, scope="sys")
        yield t.write_shared(buffer, 5)
        yield t.fence_proxy_async(space="shared::cta")
        yield t.tensor_store(slot, (0, 0), buffer)
        yield t.bulk_commit_group()
        yield t.bulk_wait_group(0, read=read).named("wait")
        yield t.tensormap_replace(slot, "global_address", data[4:].address)
        yield t.bulk_wait_group(0, read=True)

    assert program.run(schedules=8).clean
    in_every_schedule(program.without("wait"), "map-in-use")


def test_replacing_a_map_under_loads_in_flight_also_moves_other_bytes() -> None:
    program = Program("in flight")
    data = program.global_array("data", np.arange(64, dtype=np.int32).reshape(8, 8))
    seen = program.global_array("seen", np.zeros((4, 8), np.int32))
    slot = program.global_array("slot", slot_array([tma.tensor_map(data[:4], box=(4, 8))]))[0]
    buffer = program.shared_array("buffer", (4, 8), np.int32)
    full = program.mbarrier("full")

    @program.role
    def user(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.fence_proxy_tensormap_acquire(slot, scope="sys")
        yield t.mbarrier_arrive_expect_tx(full, buffer.size)
        yield t.tensor_load(buffer, slot, (0, 0), full)
        yield t.tensormap_replace(slot, "global_address", data[4:].address)
        yield t.mbarrier_wait_parity(full, 0)
        values = yield t.read_shared(buffer)
        yield t.write_global(seen, values)

    starts = set()
    for seed in range(30):
        report = program.run(schedules=1, seed=seed)
        assert "map-in-use" in report.rules
        starts.add(int(report.arrays["seen"][0, 0]))
    assert starts == {0, 32}


def test_lanes_copy_a_staged_map_together() -> None:
    """tensormap.cp_fenceproxy is executed by the whole warp: one lane alone hangs."""
    program = Program("lanes")
    slot = program.global_array("slot", np.zeros(128, np.uint8))
    staged = program.shared_array("staged", 128)

    @program.role(threads=2)
    def lane(t):
        yield t.write_shared(staged[64 * t.index : 64 * (t.index + 1)], 0)
        yield t.syncwarp()
        if t.index == 0:
            yield t.tensormap_cp_fenceproxy(slot, staged, scope="gpu")
        else:
            yield t.syncwarp()

    report = program.run(schedules=4)
    assert report.rules == {"thread-barrier"}
    assert "the collective instruction of lane" in " ".join(report.findings[0].notes)
