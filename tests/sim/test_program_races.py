"""Races through shared and global memory: found in every schedule, named, and gone with the step that was missing."""

from __future__ import annotations

import numpy as np
import pytest
from program_pieces import finding, in_every_schedule

from cupytma.sim import Program


def store_program(*, reader: str = "", fence_space: str | None = "shared::cta", fence_by: str = "writer") -> Program:
    """A thread writes a tile, another one stores it, and something is done with the result or the source."""
    program = Program("store")
    data = program.global_array("data", np.zeros(16, np.int32))
    seen = program.global_array("seen", np.zeros(16, np.int32))
    tile = program.shared_array("tile", 16, np.int32)

    @program.role
    def writer(t):
        yield t.write_shared(tile, np.arange(16))
        if fence_by == "writer":
            yield t.fence_proxy_async(space=fence_space)
        yield t.syncthreads().named("before the store")
        yield t.syncthreads().named("after the store")
        if reader == "overwrite":
            yield t.write_shared(tile, 0)
        if reader == "result":
            values = yield t.read_global(data)
            yield t.write_global(seen, values)

    @program.role
    def storer(t):
        yield t.syncthreads().named("before the store")
        if fence_by == "storer":
            yield t.fence_proxy_async(space=fence_space)
        yield t.bulk_copy(data, tile)
        yield t.bulk_commit_group()
        yield t.bulk_wait_group(0, read=True).named("wait until it is read")
        if reader == "result":
            yield t.bulk_wait_group(0).named("wait until it is written")
        yield t.syncthreads().named("after the store")

    return program


@pytest.mark.parametrize("space", [None, "shared::cta", "shared::cluster"])
@pytest.mark.parametrize("by", ["writer", "storer"])
def test_a_proxy_fence_anywhere_between_the_write_and_the_store_is_enough(space: str | None, by: str) -> None:
    report = store_program(fence_space=space, fence_by=by).run(schedules=20)
    assert report.clean, report
    assert report.arrays["data"].tolist() == list(range(16))


def test_without_a_proxy_fence_the_store_races_with_the_write() -> None:
    program = store_program(fence_by="nobody")
    in_every_schedule(program, "proxy-fence")
    found = finding(program.run(schedules=4), "proxy-fence")
    assert found.message.startswith("bulk_copy of storer reads bytes 0…63 of 'tile'; write_shared of writer wrote them")
    assert [place.thread for place in found.places] == ["storer", "writer"]
    assert "fence_proxy_async" in found.fix


def test_a_proxy_fence_for_global_memory_does_not_order_shared_memory() -> None:
    in_every_schedule(store_program(fence_space="global"), "proxy-fence")


def test_a_proxy_fence_without_a_barrier_is_not_enough() -> None:
    in_every_schedule(store_program().without("before the store"), "unordered")


def test_a_source_is_written_again_after_wait_group_read_and_a_barrier() -> None:
    program = store_program(reader="overwrite")
    assert program.run(schedules=20).clean
    in_every_schedule(program.without("wait until it is read"), "source-still-read")
    in_every_schedule(program.without("after the store"), "unordered")


def test_a_result_is_read_after_wait_group_and_not_only_read() -> None:
    program = store_program(reader="result")
    report = program.run(schedules=40)
    assert report.clean
    assert report.arrays["seen"].tolist() == list(range(16))
    assert not report.order_dependent
    in_every_schedule(program.without("wait until it is written"), "result-not-written")
    found = finding(program.without("wait until it is written").run(schedules=4), "result-not-written")
    assert "its group was waited for with .read, which says that its source was read" in found.message


def two_stores(pending: int, *, read: bool) -> Program:
    """Two stores in two groups; the second tile is overwritten after a wait that leaves some groups pending."""
    program = Program("two stores")
    data = program.global_array("data", np.zeros((2, 16), np.int32))
    tiles = program.shared_array("tiles", (2, 16), np.int32)

    @program.role
    def storer(t):
        yield t.write_shared(tiles, 1)
        yield t.fence_proxy_async()
        for i in range(2):
            yield t.bulk_copy(data[i], tiles[i])
            yield t.bulk_commit_group()
        yield t.bulk_wait_group(pending, read=read)
        yield t.write_shared(tiles[0], 2)
        yield t.bulk_wait_group(0, read=read)

    return program


@pytest.mark.parametrize("read", [True, False])
def test_the_newest_groups_may_be_pending(read: bool) -> None:
    assert two_stores(0, read=read).run(schedules=12).clean
    assert two_stores(1, read=read).run(schedules=12).clean
    in_every_schedule(two_stores(2, read=read), "source-still-read")


def test_a_load_over_bytes_that_were_written_needs_a_proxy_fence() -> None:
    def program(fence: bool) -> Program:
        made = Program("rewrite")
        data = made.global_array("data", np.arange(4, dtype=np.int32))
        tile = made.shared_array("tile", 4, np.int32)
        full = made.mbarrier("full")

        @made.role
        def loader(t):
            yield t.mbarrier_init(full, 1)
            yield t.fence_mbarrier_init()
            yield t.write_shared(tile, 0)
            if fence:
                yield t.fence_proxy_async(space="shared::cta")
            yield t.mbarrier_arrive_expect_tx(full, 16)
            yield t.bulk_copy(tile, data, full)
            yield t.mbarrier_wait_parity(full, 0)

        return made

    assert program(True).run(schedules=8).clean
    in_every_schedule(program(False), "proxy-fence")


def test_global_memory_written_by_threads_needs_a_proxy_fence_before_a_load() -> None:
    def program(space: str | None) -> Program:
        made = Program("global")
        data = made.global_array("data", np.zeros(4, np.int32))
        result = made.global_array("result", np.zeros(4, np.int32))
        tile = made.shared_array("tile", 4, np.int32)
        full = made.mbarrier("full")

        @made.role
        def loader(t):
            yield t.mbarrier_init(full, 1)
            yield t.fence_mbarrier_init()
            yield t.write_global(data, [1, 2, 3, 4])
            if space:
                yield t.fence_proxy_async(space=space)
            yield t.mbarrier_arrive_expect_tx(full, 16)
            yield t.bulk_copy(tile, data, full)
            yield t.mbarrier_wait_parity(full, 0)
            values = yield t.read_shared(tile)
            yield t.write_global(result, values)

        return made

    report = program("global").run(schedules=12)
    assert report.clean
    assert report.arrays["result"].tolist() == [1, 2, 3, 4]
    in_every_schedule(program(None), "proxy-fence")
    in_every_schedule(program("shared::cta"), "proxy-fence")


def test_the_end_of_a_kernel_orders_everything_but_tensor_maps() -> None:
    program = Program("two kernels")
    data = program.global_array("data", np.zeros(4, np.int32))
    result = program.global_array("result", np.zeros(4, np.int32))
    tile = program.shared_array("tile", 4, np.int32)
    full = program.mbarrier("full")

    @program.role
    def writer(t):
        yield t.write_global(data, [1, 2, 3, 4])

    @program.role(kernel=1)
    def loader(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(full, 16)
        yield t.bulk_copy(tile, data, full)
        yield t.mbarrier_wait_parity(full, 0)
        values = yield t.read_shared(tile)
        yield t.write_global(result, values)

    report = program.run(schedules=12)
    assert report.clean, report
    assert report.arrays["result"].tolist() == [1, 2, 3, 4]


def reduce_program(op: str | None) -> Program:
    """Two blocks reduce into, or store to, the same tile of global memory."""
    import cupytma as tma

    program = Program("reduce", blocks=2)
    data = program.global_array("data", np.zeros((4, 4), np.int32))
    there = tma.tensor_map(data, box=(4, 4))
    tile = program.shared_array("tile", (4, 4), np.int32)

    @program.role
    def adder(t):
        yield t.write_shared(tile, t.block + 1)
        yield t.fence_proxy_async(space="shared::cta")
        yield t.tensor_store(there, (0, 0), tile) if op is None else t.tensor_reduce(op, there, (0, 0), tile)
        yield t.bulk_commit_group()
        yield t.bulk_wait_group(0, read=True)

    return program


def test_reductions_do_not_race_with_one_another_and_stores_do() -> None:
    report = reduce_program("add").run(schedules=20)
    assert report.clean
    assert (report.arrays["data"] == 3).all()
    report = reduce_program(None).run(schedules=20)
    assert "unordered" in report.rules
    assert report.order_dependent == ("data",)


def test_a_tile_is_half_written_while_its_load_goes_on() -> None:
    """Reading it too early sees some of its pieces and not others, in some schedules."""
    program = Program("early")
    data = program.global_array("data", np.ones(64, np.int32))
    seen = program.global_array("seen", np.zeros(64, np.int32))
    tile = program.shared_array("tile", 64, np.int32)
    full = program.mbarrier("full")

    @program.role
    def loader(t):
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(full, 256)
        yield t.bulk_copy(tile, data, full)
        values = yield t.read_shared(tile)
        yield t.write_global(seen, values)
        yield t.mbarrier_wait_parity(full, 0)

    counts = set()
    for seed in range(60):
        report = program.run(schedules=1, seed=seed)
        assert "tile-not-complete" in report.rules
        counts.add(int((report.arrays["seen"] == 1).sum()))
    assert {0, 64} < counts


def test_a_store_reads_its_source_late() -> None:
    """Overwriting the source at once changes what arrives, in some schedules."""
    program = two_stores(2, read=True)
    results = {program.run(schedules=1, seed=seed).arrays["data"].tobytes() for seed in range(40)}
    assert len(results) >= 3


def test_disjoint_parts_of_a_tile_do_not_race() -> None:
    program = Program("parts")
    tile = program.shared_array("tile", (8, 8), np.int32)

    @program.role(threads=4)
    def writer(t):
        yield t.write_shared(tile[t.index :: 4, ::2], t.index)
        values = yield t.read_shared(tile[t.index :: 4, ::2])
        assert (values == t.index).all()
        yield t.write_shared(tile[t.index :: 4, 1::2], t.index)

    assert program.run(schedules=20).clean


def test_one_shared_byte_is_enough_for_a_race() -> None:
    program = Program("touching")
    tile = program.shared_array("tile", 16)

    @program.role(threads=2)
    def writer(t):
        yield t.write_shared(tile[7 * t.index : 7 * t.index + 8], 0)

    found = finding(program.run(schedules=2), "unordered")
    assert "bytes 7…7 of 'tile'" in found.message


def test_a_named_barrier_orders_those_who_arrive_before_those_who_wait() -> None:
    def program(sync: bool) -> Program:
        made = Program("named")
        tile = made.shared_array("tile", 16)

        @made.role
        def producer(t):
            yield t.write_shared(tile, 1)
            yield t.barrier_arrive(2, 2)

        @made.role
        def consumer(t):
            if sync:
                yield t.barrier_sync(2, 2)
            values = yield t.read_shared(tile)
            assert not sync or (values == 1).all()

        return made

    assert program(True).run(schedules=20).clean
    in_every_schedule(program(False), "unordered")


@pytest.mark.parametrize("what", ["arrive", "wait"])
def test_a_relaxed_arrival_or_wait_orders_nothing(what: str) -> None:
    program = Program("relaxed")
    tile = program.shared_array("tile", 16)
    done = program.mbarrier("done")

    @program.role
    def writer(t):
        yield t.mbarrier_init(done, 1)
        yield t.syncthreads()
        yield t.write_shared(tile, 1)
        yield t.mbarrier_arrive(done, semantics="relaxed" if what == "arrive" else "release")

    @program.role
    def reader(t):
        yield t.syncthreads()
        yield t.mbarrier_wait_parity(done, 0, semantics="relaxed" if what == "wait" else "acquire")
        yield t.read_shared(tile)

    in_every_schedule(program, "unordered")


def flag_program(release_scope: str, acquire_scope: str, *, cluster: int = 1) -> Program:
    """One block writes global memory and sets a flag, another one reads it."""
    program = Program("flag", blocks=2, cluster=cluster)
    data = program.global_array("data", np.zeros(4, np.int32))
    seen = program.global_array("seen", np.zeros(4, np.int32))
    flag = program.global_array("flag", np.zeros(1, np.int32))[0]

    @program.role(blocks=[0])
    def writer(t):
        yield t.write_global(data, [1, 2, 3, 4])
        yield t.store_release(flag, 1, scope=release_scope)

    @program.role(blocks=[1])
    def reader(t):
        while not (yield t.load_acquire(flag, scope=acquire_scope)):
            pass
        values = yield t.read_global(data)
        yield t.write_global(seen, values)

    return program


def test_a_flag_orders_blocks_at_a_scope_that_includes_both() -> None:
    assert flag_program("gpu", "gpu").run(schedules=12).arrays["seen"].tolist() == [1, 2, 3, 4]
    for scopes in (("gpu", "gpu"), ("sys", "gpu"), ("gpu", "sys")):
        assert flag_program(*scopes).run(schedules=12).clean
    assert flag_program("cluster", "cluster", cluster=2).run(schedules=12).clean


@pytest.mark.parametrize("scopes", [("cta", "gpu"), ("gpu", "cta"), ("cluster", "gpu"), ("gpu", "cluster")])
def test_a_flag_of_too_narrow_a_scope_orders_nothing_and_the_note_says_so(scopes: tuple[str, str]) -> None:
    program = flag_program(*scopes)
    in_every_schedule(program, "unordered")
    (note,) = finding(program.run(schedules=2), "unordered").notes
    narrow = next(scope for scope in scopes if scope != "gpu")
    assert f"has scope {narrow!r}" in note
    assert "'gpu' is needed" in note


def test_the_report_of_a_race_shows_both_lines_and_a_label() -> None:
    text = str(store_program(fence_by="nobody").run(schedules=3))
    assert text.startswith("store: 3 schedules, 1 race\nrace proxy-fence: ")
    assert "  at storer operation 1, bulk_copy (test_program_races.py:" in text
    assert "  at writer operation 0, write_shared (test_program_races.py:" in text
    assert "  fix: " in text
    assert text.endswith("in 3 schedules, first in 0\nMore: cupytma help proxy-fence")
