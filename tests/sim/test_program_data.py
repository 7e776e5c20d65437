"""The bytes that programs move: those of `sim.load`, `store` and `reduce`, whatever the schedule and the tensor map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sim_reference
from hypothesis import given, settings
from hypothesis import strategies as st

import cupytma as tma
from cupytma import sim
from cupytma.limits import SWIZZLE_PERIOD
from cupytma.sim import Program
from cupytma.sim.program import ProgramArray
from cupytma.sim.program.extents import Extent, extent_of, tile_of
from cupytma.tensormap import Tiled

BASE = 0x7F0000000000
BYTES = 1 << 13


@st.composite
def tiled_maps(draw: st.DrawFn) -> tuple[Tiled, tuple[int, ...], int]:
    """A small tensor, a place to start, and a place for the tile; everything inside a window of memory."""
    rank = draw(st.integers(1, 3))
    data_type = draw(st.sampled_from(["UINT8", "UINT16", "FLOAT32", "TFLOAT32", "UINT64"]))
    size = {"UINT8": 1, "UINT16": 2, "FLOAT32": 4, "TFLOAT32": 4, "UINT64": 8}[data_type]
    swizzle = draw(st.sampled_from(["NONE", "32B", "64B", "128B"]))
    inner = 16 // size * draw(st.integers(1, 2))
    dims = (draw(st.integers(1, 40)), *(draw(st.integers(1, 5)) for _ in range(rank - 1)))
    pitch = -(-dims[0] * size // 16) * 16
    strides = tuple(pitch * 5**i for i in range(rank - 1))
    made = Tiled(
        data_type=data_type, global_address=BASE + 64, global_dim=dims, global_strides=strides,
        box_dim=(inner, *(draw(st.integers(1, 4)) for _ in range(rank - 1))),
        element_strides=(1, *(draw(st.integers(1, 2)) for _ in range(rank - 1))), swizzle=swizzle,
    )  # fmt: skip
    start = (16 // size * draw(st.integers(-1, 3)), *(draw(st.integers(-2, 4)) for _ in range(rank - 1)))
    return made, start, 128 * draw(st.integers(0, 7))


def random_memory() -> np.ndarray[Any, Any]:
    return sim_reference.random_bytes(BYTES)


@given(tiled_maps(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_load_in_pieces_brings_what_the_unit_brings(case: Any, seed: int) -> None:
    parameters, start, offset = case
    tensor_map = parameters.encode()
    program = Program("load")
    memory = program.global_array("memory", random_memory(), address=BASE)
    seen = program.global_array("seen", np.zeros(2048, np.uint8))
    shared = program.shared_array("shared", 2048, offset=offset)
    full = program.mbarrier("full")

    @program.role
    def loader(t):
        yield t.write_shared(shared, 0)
        yield t.fence_proxy_async()
        yield t.mbarrier_init(full, 1)
        yield t.fence_mbarrier_init()
        yield t.mbarrier_arrive_expect_tx(full, tensor_map.decode().transaction_bytes)
        yield t.tensor_load(shared, tensor_map, start, full)
        yield t.mbarrier_wait_parity(full, 0)
        values = yield t.read_shared(shared)
        yield t.write_global(seen, values)

    report = program.run(schedules=4, seed=seed)
    assert report.clean, report
    expected = np.zeros(2048 + offset, np.uint8)
    sim.load(tensor_map, start, memory=random_memory(), base=BASE, shared=expected, shared_offset=offset)
    np.testing.assert_array_equal(report.arrays["seen"], expected[offset:])
    assert not report.order_dependent
    assert isinstance(memory, ProgramArray)


@given(tiled_maps(), st.integers(0, 1000), st.sampled_from([None, "add"]))
@settings(max_examples=60, deadline=None)
def test_a_store_or_reduction_leaves_what_the_unit_leaves(case: Any, seed: int, op: str | None) -> None:
    parameters, start, offset = case
    start = tuple(max(0, c) for c in start)
    if op is not None:
        parameters = Tiled(
            data_type="UINT32", global_address=BASE + 64, global_dim=(21, 3), global_strides=(96,), box_dim=(8, 3),
        )  # fmt: skip
        start = (4, 1)
    tensor_map = parameters.encode()
    program = Program("store")
    program.global_array("memory", random_memory(), address=BASE)
    shared = program.shared_array("shared", 2048, offset=offset)
    content = sim_reference.random_bytes(2048, seed=3)

    @program.role
    def storer(t):
        yield t.write_shared(shared, content)
        yield t.fence_proxy_async()
        if op is None:
            yield t.tensor_store(tensor_map, start, shared)
        else:
            yield t.tensor_reduce(op, tensor_map, start, shared)
        yield t.bulk_commit_group()
        yield t.bulk_wait_group(0, read=True)

    report = program.run(schedules=4, seed=seed)
    assert report.clean, report
    expected, tile = random_memory(), np.concatenate([np.zeros(offset, np.uint8), content])
    where = {"memory": expected, "base": BASE, "shared": tile, "shared_offset": offset}
    if op is None:
        sim.store(tensor_map, start, **where)
    else:
        sim.reduce(tensor_map, op, start, **where)
    np.testing.assert_array_equal(report.arrays["memory"], expected)


@given(tiled_maps())
@settings(max_examples=100, deadline=None)
def test_a_copy_is_known_to_touch_the_bytes_that_it_does_touch(case: Any) -> None:
    """Told by running the unit on other contents: what differs was read, what changed was written."""
    parameters, start, offset = case
    tensor_map = parameters.encode()
    tile = tile_of(tensor_map, start, offset % SWIZZLE_PERIOD, ())
    written = []
    for content in (0x00, 0xFF):
        shared = np.full(offset + 4096, content, np.uint8)
        sim.load(tensor_map, start, memory=random_memory(), base=BASE, shared=shared, shared_offset=offset)
        written.append(shared)
    assert bytes_of(tile.shared.shifted(offset)) == set(np.flatnonzero(written[0] == written[1]).tolist())
    start = tuple(max(0, c) for c in start)
    tile = tile_of(tensor_map, start, offset % SWIZZLE_PERIOD, ())
    left = []
    for content in (0x00, 0xFF):
        memory = np.full(BYTES, content, np.uint8)
        shared = np.full(offset + 4096, 0x55, np.uint8)
        sim.store(tensor_map, start, memory=memory, base=BASE, shared=shared, shared_offset=offset)
        left.append(memory)
    touched = set() if tile.written is None else bytes_of(tile.written.shifted(-BASE))
    assert touched == set(np.flatnonzero(left[0] == left[1]).tolist())


def bytes_of(extent: Extent) -> set[int]:
    mask = extent.mask if extent.mask is not None else (1 << (extent.stop - extent.start)) - 1
    return {extent.start + i for i in range(extent.stop - extent.start) if mask >> i & 1}


SETS = st.sets(st.integers(0, 60), min_size=1).map(sorted)


@given(SETS, SETS, st.integers(1, 3))
def test_sets_of_bytes_are_sets(one: list[int], other: list[int], unit: int) -> None:
    a, b = (extent_of(np.array(starts, dtype=np.int64), unit) for starts in (one, other))
    assert a is not None
    assert b is not None
    first, second = ({start + i for start in starts for i in range(unit)} for starts in (one, other))
    assert bytes_of(a) == first
    assert a.count == len(first)
    common = a.common(b)
    assert (set() if common is None else bytes_of(common)) == first & second
    assert a.covers(b) == (second <= first)
    assert bytes_of(a.shifted(7)) == {byte + 7 for byte in first}


def test_an_empty_set_of_bytes_is_none() -> None:
    assert extent_of(np.empty(0, dtype=np.int64), 4) is None


@pytest.mark.parametrize("index", [0, slice(1, 3), (slice(None), 2), (Ellipsis, slice(None, None, 2)), [2, 0]])
def test_parts_of_arrays_are_numpys(index: Any) -> None:
    values = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    program = Program("parts")
    part = program.global_array("values", values)[index]
    memory = program.initial["values"].copy()
    assert part.shape == values[index].shape
    np.testing.assert_array_equal(part.read(memory), values[index])
    part.write(memory, 7)
    changed = values.copy()
    changed[index] = 7
    np.testing.assert_array_equal(memory.view(np.int16), changed.ravel())


@pytest.mark.parametrize("index", [slice(None), (slice(2, 6), slice(8, 16)), slice(None, None, 2)])
def test_a_tensor_map_is_made_of_an_array_or_a_part(index: Any) -> None:
    values = np.zeros((8, 32), np.float32)
    array = Program("map").global_array("values", values)[index]
    made = tma.tensor_map(array, box=(2, 4)).decode()
    expected = tma.tensor_map(values[index], box=(2, 4)).decode()
    assert (made.global_dim, made.global_strides, made.data_type) == (
        expected.global_dim, expected.global_strides, expected.data_type,
    )  # fmt: skip
    assert made.global_address == array.address
