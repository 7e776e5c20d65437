"""What is no program: clear errors that say where and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cupytma as tma
from cupytma.errors import CupytmaError
from cupytma.sim import Program, ProgramError


def run_with(act: Any, *, threads: int = 1) -> None:
    """Run a program whose role does one thing with everything a program can have."""
    program = Program("hostile", blocks=2, cluster=2)
    things = {
        "data": program.global_array("data", np.arange(64, dtype=np.int32).reshape(8, 8)),
        "bytes": program.global_array("bytes", np.zeros(256, np.uint8)),
        "empty": program.global_array("empty", np.zeros(0, np.int32)),
        "tile": program.shared_array("tile", (8, 8), np.int32),
        "staged": program.shared_array("staged", 256),
        "full": program.mbarrier("full"),
    }

    @program.role(threads=threads, blocks=[0])
    def role(t):
        yield t.mbarrier_init(things["full"], 1)
        yield t.fence_mbarrier_init()
        yield act(t, **things)

    program.run(schedules=2)


MAP = tma.Tiled(data_type="INT32", global_address=0, global_dim=(8, 8), global_strides=(32,), box_dim=(4, 4)).encode()
WRONG_OPERANDS: dict[str, tuple[Any, str]] = {
    "count of 0": (lambda t, full, **_: t.mbarrier_init(full, 0), "count is 0; it must be 1 to 1048575"),
    "negative count": (lambda t, full, **_: t.mbarrier_init(full, -1), "count is -1"),
    "huge count": (lambda t, full, **_: t.mbarrier_init(full, 2**20), "count is 1048576"),
    "count that is no number": (lambda t, full, **_: t.mbarrier_init(full, "1"), "count is '1'; it must be an integer"),
    "count that is NaN": (lambda t, full, **_: t.mbarrier_arrive(full, float("nan")), "count is nan"),
    "count that is None": (lambda t, full, **_: t.mbarrier_arrive(full, None), "count is None"),
    "count that is a bool": (lambda t, full, **_: t.mbarrier_arrive(full, True), "count is True"),
    "barrier that is none": (lambda t, **_: t.mbarrier_arrive("full"), "mbarrier is a str"),
    "negative bytes": (lambda t, full, **_: t.mbarrier_expect_tx(full, -16), "tx_count is -16"),
    "too many bytes": (lambda t, full, **_: t.mbarrier_arrive_expect_tx(full, 2**20), "tx_count is 1048576"),
    "parity of 2": (lambda t, full, **_: t.mbarrier_wait_parity(full, 2), "parity is 2; it must be 0 to 1"),
    "negative parity": (lambda t, full, **_: t.mbarrier_try_wait_parity(full, -1), "parity is -1"),
    "token that is none": (lambda t, full, **_: t.mbarrier_wait(full, 0), "token is 0; it must be what"),
    "step without a name": (lambda t, **_: t.syncthreads().named(""), "the name of a step is ''"),
    "step that is no text": (lambda t, **_: t.syncthreads().named(1), "the name of a step is 1"),
    "unknown scope": (lambda t, full, **_: t.mbarrier_arrive(full, scope="gpu"), "scope is 'gpu'; it must be one of"),
    "unknown semantics": (lambda t, full, **_: t.mbarrier_arrive(full, semantics="acquire"), "semantics is 'acquire'"),
    "wait for another block": (lambda t, full, **_: t.mbarrier_wait_parity(full.mapa(1), 0), "is in another block"),
    "rank of no cluster": (lambda t, full, **_: t.mbarrier_arrive(full.mapa(16)), "rank is 16"),
    "array that is none": (lambda t, **_: t.read_shared(3), "array is a int"),
    "array of another memory": (lambda t, data, **_: t.read_shared(data), "it must be in shared memory"),
    "mapa of global memory": (lambda t, data, **_: t.read_global(data.mapa(0)), "is in global memory"),
    "index out of range": (lambda t, tile, **_: t.read_shared(tile[8]), "cannot be indexed by 8"),
    "values of another shape": (lambda t, tile, **_: t.write_shared(tile, np.zeros(3)), "cannot hold these values"),
    "values of no type": (lambda t, tile, **_: t.write_shared(tile, "abc"), "cannot hold these values"),
    "flag of many elements": (lambda t, data, **_: t.load_acquire(data), "it must be one element"),
    "bulk copy of odd size": (
        lambda t, bytes, staged, full, **_: t.bulk_copy(staged[:8], bytes[:8], full), "a multiple of 16",
    ),
    "bulk copy from an odd place": (
        lambda t, bytes, staged, full, **_: t.bulk_copy(staged[8:24], bytes[:16], full), "at 8 modulo 16",
    ),
    "bulk copy of a column": (
        lambda t, data, tile, full, **_: t.bulk_copy(tile[:, :4], data[:, :4], full), "contiguous",
    ),
    "bulk copy of unequal sizes": (
        lambda t, data, tile, full, **_: t.bulk_copy(tile[:4], data, full), "they must be equal",
    ),
    "bulk copy of nothing": (
        lambda t, empty, staged, full, **_: t.bulk_copy(staged[:0], empty, full), "bulk copy moves",
    ),
    "bulk copy without a barrier": (lambda t, data, tile, **_: t.bulk_copy(tile, data), "mbarrier is a NoneType"),
    "bulk store with a barrier": (
        lambda t, data, tile, full, **_: t.bulk_copy(data, tile, full), "takes no mbarrier",
    ),
    "bulk copy within a block": (
        lambda t, tile, full, **_: t.bulk_copy(tile[:4], tile[4:], full), "array.mapa",
    ),
    "bulk copy within global memory": (
        lambda t, data, full, **_: t.bulk_copy(data[:4], data[4:], full), "no bulk copy goes from global to global",
    ),
    "mask of 0": (lambda t, data, tile, full, **_: t.bulk_copy(tile, data, full, cta_mask=0), "cta_mask is 0"),
    "mask of 17 bits": (
        lambda t, tile, full, **_: t.tensor_load(tile, MAP, (0, 0), full, cta_mask=1 << 16), "cta_mask is 65536",
    ),
    "mask and mapa": (
        lambda t, tile, full, **_: t.tensor_load(tile, MAP, (0, 0), full.mapa(1), cta_mask=2), "leave out mapa",
    ),
    "map that is none": (lambda t, tile, full, **_: t.tensor_load(tile, 7, (0, 0), full), "must be a TensorMap or 128"),
    "map of too few bytes": (
        lambda t, bytes, tile, full, **_: t.tensor_load(tile, bytes[:64], (0, 0), full), "128 contiguous bytes",
    ),
    "map at an odd place": (
        lambda t, bytes, tile, full, **_: t.tensor_load(tile, bytes[64:192], (0, 0), full), "64 modulo 128",
    ),
    "map in shared memory": (
        lambda t, staged, tile, full, **_: t.tensor_load(tile, staged[:128], (0, 0), full), "must be in global memory",
    ),
    "coordinates that are a number": (lambda t, tile, full, **_: t.tensor_load(tile, MAP, 0, full), "coords is 0"),
    "coordinates that are no integers": (
        lambda t, tile, full, **_: t.tensor_load(tile, MAP, (0, 0.5), full), "coords[1] is 0.5",
    ),
    "too few coordinates": (
        lambda t, tile, full, **_: t.tensor_load(tile, MAP, (0,), full), "1 coordinate for a tensor map of rank 2",
    ),
    "store from another block": (
        lambda t, tile, **_: t.tensor_store(MAP, (0, 0), tile.mapa(1)), "executing block's own shared memory",
    ),
    "reduction that is none": (lambda t, tile, **_: t.tensor_reduce(1, MAP, (0, 0), tile), "op is 1"),
    "too many pending groups": (lambda t, **_: t.bulk_wait_group(64), "count is 64; it must be 0 to 63"),
    "negative pending groups": (lambda t, **_: t.bulk_wait_group(-1), "count is -1"),
    "read that is no bool": (lambda t, **_: t.bulk_wait_group(0, read="yes"), "read is 'yes'"),
    "fence of no space": (lambda t, **_: t.fence_proxy_async(space="shared"), "space is 'shared'; it must be one of"),
    "barrier number 16": (lambda t, **_: t.barrier_sync(16), "number is 16"),
    "replaced field that is none": (
        lambda t, staged, **_: t.tensormap_replace(staged[:128], "colour", 0), "has no field 'colour'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_OPERANDS)
def test_operands_that_no_instruction_takes_are_refused_with_their_line(name: str) -> None:
    act, message = WRONG_OPERANDS[name]
    with pytest.raises(ProgramError) as caught:
        run_with(act)
    assert message in str(caught.value)
    assert "role of block 0" in str(caught.value)
    assert "test_program_hostile.py:" in str(caught.value)
    assert isinstance(caught.value, CupytmaError)
    assert isinstance(caught.value, ValueError)


def test_a_program_without_roles_is_refused() -> None:
    with pytest.raises(ProgramError, match="has no role that any block runs"):
        Program("empty").run()
    program = Program("empty")
    program.role(lambda t: iter(()), name="nobody", blocks=[])
    with pytest.raises(ProgramError, match="has no role that any block runs"):
        program.run()


def test_a_role_that_does_nothing_is_a_program() -> None:
    program = Program("idle")

    @program.role
    def idle(t):
        return
        yield

    assert program.run(schedules=3).clean
    assert program.steps == ()


def test_a_role_that_is_no_generator_is_told_to_yield() -> None:
    program = Program("plain")

    @program.role
    def plain(t):
        t.syncthreads()

    with pytest.raises(ProgramError, match="role 'plain' is no generator: write `yield` before each operation"):
        program.run()


def test_an_operation_that_is_not_yielded_is_found() -> None:
    program = Program("forgotten")

    @program.role
    def forgetful(t):
        t.fence_mbarrier_init()
        yield t.syncthreads()

    with pytest.raises(ProgramError, match=r"fence_mbarrier_init \(test_program_hostile.py:\d+\) was not yielded"):
        program.run()


def test_a_last_operation_that_is_not_yielded_is_found() -> None:
    program = Program("forgotten")

    @program.role
    def forgetful(t):
        yield t.syncthreads()
        t.fence_mbarrier_init()

    with pytest.raises(ProgramError, match=r"fence_mbarrier_init \(test_program_hostile.py:\d+\) was not yielded"):
        program.run()


@pytest.mark.parametrize("value", [None, 3, "syncthreads"])
def test_yielding_something_else_is_refused(value: object) -> None:
    program = Program("odd")

    @program.role
    def odd(t):
        yield value

    with pytest.raises(ProgramError, match="yield what a method of the thread returns"):
        program.run()


def test_an_operation_is_yielded_once() -> None:
    program = Program("twice")

    @program.role
    def twice(t):
        operation = t.syncthreads()
        yield operation
        yield operation

    with pytest.raises(ProgramError, match="syncthreads was yielded twice"):
        program.run()


def test_what_a_role_raises_is_told_with_its_line() -> None:
    program = Program("broken")

    @program.role(threads=2)
    def broken(t):
        yield t.syncthreads()
        raise KeyError("tile")

    where = r"broken\[\d\] raised at test_program_hostile.py:\d+"
    with pytest.raises(ProgramError, match=where + ": KeyError: 'tile'") as caught:
        program.run()
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedules": 0}, "schedules is 0"), ({"schedules": -1}, "schedules is -1"),
        ({"schedules": 1.5}, "schedules is 1.5"), ({"schedules": None}, "schedules is None"),
        ({"seed": "x"}, "seed is 'x'"), ({"step_limit": 0}, "step_limit is 0"),
    ],
)  # fmt: skip
def test_options_of_a_run(options: dict[str, Any], message: str) -> None:
    program = Program("idle")

    @program.role
    def idle(t):
        yield t.syncthreads()

    with pytest.raises(ProgramError, match=message):
        program.run(**options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Program(""), "name is ''"), (lambda: Program(3), "name is 3"),
        (lambda: Program("p", blocks=0), "blocks is 0"), (lambda: Program("p", cluster=17), "cluster is 17"),
        (lambda: Program("p", blocks=3, cluster=2), "no multiple of the cluster's 2"),
        (lambda: Program("p").global_array("a", np.array([object()])), "it must be an array of numbers"),
        (lambda: Program("p").global_array("a", [[1], [1, 2]]), "a is no array"),
        (lambda: Program("p").global_array("a", [1], address=-1), "address is -1"),
        (lambda: Program("p").shared_array("a", -1), "an extent is -1"),
        (lambda: Program("p").shared_array("a", (2, None)), "an extent is None"),
        (lambda: Program("p").shared_array("a", 4, "no type"), "'no type' is no dtype"),
        (lambda: Program("p").shared_array("a", 4, align=3), "it must be a power of two"),
        (lambda: Program("p").shared_array("a", 16, offset=8), "not aligned to 128"),
        (lambda: Program("p").shared_array("a", 232449), "a block has 232448"),
        (lambda: Program("p").mbarriers("a", -1), "count is -1"),
        (lambda: Program("p").role(None, threads=0), "threads is 0"),
        (lambda: Program("p").role(3), "a generator function, not 3"),
        (lambda: Program("p").role(print, blocks=[1]), "blocks is 1; it must be 0 to 0"),
        (lambda: Program("p").role(print, blocks=3), "blocks is 3; it must be a sequence of integers"),
        (lambda: Program("p").role(print, blocks="0"), "must be an integer"),
        (lambda: Program("p").global_array("a", "text"), "it must be an array of numbers"),
        (lambda: Program("p").global_array("a", np.array(["2020-01-01"], "M8[D]")), "it must be an array of numbers"),
        (lambda: Program("p").shared_array("a", 4, "S3"), "it must be a type of numbers"),
    ],
)  # fmt: skip
def test_declarations_that_make_no_sense(make: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=message.replace("(", r"\(")):
        make()


def test_names_are_taken_once() -> None:
    program = Program("names")
    program.global_array("a", [1])
    for declare in (lambda: program.global_array("a", [1]), lambda: program.shared_array("a", 16),
                    lambda: program.mbarrier("a")):  # fmt: skip
        with pytest.raises(ProgramError, match="'a' is declared already"):
            declare()

    @program.role
    def role(t):
        yield t.syncthreads()

    with pytest.raises(ProgramError, match="has a role 'role' already"):
        program.role(role)


def test_global_arrays_do_not_overlap() -> None:
    program = Program("overlap")
    program.global_array("a", np.zeros(64, np.uint8), address=4096)
    with pytest.raises(ProgramError, match="b at 0x1020 overlaps a at 0x1000"):
        program.global_array("b", np.zeros(64, np.uint8), address=4128)


def test_a_step_that_there_is_not() -> None:
    program = Program("steps")

    @program.role
    def role(t):
        yield t.syncthreads().named("barrier")

    with pytest.raises(ProgramError, match="steps has no step 'fence'; it has 'barrier'"):
        program.without("fence")


def test_declared_values_are_copied() -> None:
    values = np.zeros(4, np.int32)
    program = Program("copy")
    data = program.global_array("data", values)
    values[:] = 9

    @program.role
    def role(t):
        found = yield t.read_global(data)
        found[:] = 7

    report = program.run(schedules=2)
    assert report.arrays["data"].tolist() == [0] * 4
    assert values.tolist() == [9] * 4
