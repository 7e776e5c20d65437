"""Operands of every wrong kind: each function refuses them in its own words, and nothing has changed afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cupytma import sim
from cupytma.errors import ArrayError, CupytmaError
from cupytma.tensormap import Im2col, Im2colWide, TensorMap, Tiled

BASE = 0x10000
MATRIX = Tiled(
    data_type="FLOAT32", global_address=BASE, global_dim=(32, 8), box_dim=(32, 4), swizzle="128B"
).encode()  # fmt: skip
PIXELS = Im2col(
    data_type="FLOAT32", global_address=BASE, global_dim=(8, 4, 4, 2), pixel_box_lower_corner=(0, 0),
    pixel_box_upper_corner=(0, 0), channels_per_pixel=8, pixels_per_column=16,
).encode()  # fmt: skip
WIDE = Im2colWide(
    data_type="FLOAT32", global_address=BASE, global_dim=(16, 4, 4, 2), pixel_box_lower_corner_width=0,
    pixel_box_upper_corner_width=0, channels_per_pixel=16, pixels_per_column=4, swizzle="64B",
).encode(target="sm_100a")  # fmt: skip


class Memories:
    """Global and shared memory, and what they held at first."""

    def __init__(self) -> None:
        self.memory, self.shared = (np.arange(size, dtype=np.uint32).astype(np.uint8) for size in (2048, 4096))
        self._before = self.memory.copy(), self.shared.copy()

    def are_unchanged(self) -> bool:
        return all(map(np.array_equal, self._before, (self.memory, self.shared)))


Call = Callable[..., Any]


def load(at: Memories, **changes: Any) -> Any:
    operands = {"tensor_map": MATRIX, "coords": (0, 0), "memory": at.memory, "base": BASE, "shared": at.shared}
    return sim.load(**operands | changes)


def store(at: Memories, **changes: Any) -> Any:
    operands = {"tensor_map": MATRIX, "coords": (0, 0), "memory": at.memory, "base": BASE, "shared": at.shared}
    return sim.store(**operands | changes)


def reduce(at: Memories, **changes: Any) -> Any:
    operands = {"tensor_map": MATRIX, "coords": (0, 0), "memory": at.memory, "base": BASE, "shared": at.shared}
    return sim.reduce(**{"op": "add"} | operands | changes)


def multicast(at: Memories, **changes: Any) -> Any:
    operands = {"tensor_map": MATRIX, "coords": (0, 0), "memory": at.memory, "base": BASE, "shared": [at.shared]}
    return sim.multicast(**operands | changes)


def prefetch(at: Memories, **changes: Any) -> Any:
    return sim.prefetch(**{"tensor_map": MATRIX, "coords": (0, 0), "memory": at.memory, "base": BASE} | changes)


def tile_map(at: Memories, **changes: Any) -> Any:
    return sim.tile_map(**{"tensor_map": MATRIX, "coords": (0, 0)} | changes)


def grid_faults(at: Memories, **changes: Any) -> Any:
    return sim.grid_faults(**{"tensor_map": MATRIX, "coordinates": lambda x, y, z: (0, 0), "grid": 2} | changes)


def bank_conflicts(at: Memories, **changes: Any) -> Any:
    return sim.bank_conflicts(**{"tensor_map": MATRIX, "access_pattern": "row"} | changes)


def best_swizzle(at: Memories, **changes: Any) -> Any:
    return sim.best_swizzle(**{"tensor_map": MATRIX, "access_pattern": "row"} | changes)


def verified(at: Memories, **changes: Any) -> Any:
    return sim.verified(**{"tensor_map": MATRIX} | changes)


def swizzle_address(at: Memories, **changes: Any) -> Any:
    return sim.swizzle_address(**{"address": 0, "swizzle": "128B"} | changes)


def swizzle_chunk(at: Memories, **changes: Any) -> Any:
    return sim.swizzle_chunk(**{"row": 0, "chunk": 0, "swizzle": "128B"} | changes)


NO_NUMBERS: list[Any] = [
    None, True, np.bool_(True), math.nan, math.inf, 1.5, np.float32(2), "0", b"0", 1j, object(), {}, {0}, [0, [0]],
    np.array([1.5]), np.array([[0, 1], [1, 0]]) > 0,
]  # fmt: skip
FAR: list[Any] = [-1, -(2**63), 2**64, 10**30, np.int64(-128)]
NO_SEQUENCES: list[Any] = [
    None, 0, math.nan, "00", b"\0\0", bytearray(2), {0, 16}, {0: 0, 1: 1}, (0, True), (0, None), (0, math.nan),
    (0, 2**32), (0.0, 0.0), ("0", "0"), object(),
]  # fmt: skip
NO_MODES: list[Any] = [True, 0, "tiles", b"tile", "", ["tile"], np.array(["tile", "im2col"]), {}, math.nan]
NO_MAPS: list[Any] = [None, b"\0" * 128, MATRIX.decode(), np.zeros(128, np.uint8), "map", 0]

COPIES: list[Call] = [load, store, reduce, multicast]
ONE_COPY: list[Call] = [*COPIES, prefetch, tile_map]
WITH_OFFSETS: list[Call] = [load, multicast, prefetch, tile_map]
MAPS: list[Call] = [*ONE_COPY, grid_faults, bank_conflicts, best_swizzle, verified]


def cases() -> list[Any]:
    rows: list[tuple[list[Call], str, list[Any]]] = [
        (MAPS, "tensor_map", NO_MAPS),
        (ONE_COPY, "coords", [*NO_SEQUENCES, (), (0,), (0, 0, 0)]),
        ([load, store, reduce, multicast, prefetch], "base", [*NO_NUMBERS, *FAR]),
        ([*COPIES, tile_map, grid_faults, bank_conflicts, best_swizzle], "shared_offset", [*NO_NUMBERS, *FAR]),
        ([*WITH_OFFSETS, grid_faults], "offsets", NO_SEQUENCES),
        ([call for call in MAPS if call is not reduce], "mode", NO_MODES),
        ([reduce], "op", [None, True, 0, "", "sub", b"add", object()]),
        ([multicast], "cta_mask", [*NO_NUMBERS[1:], *FAR, 2, 1 << 16]),
        ([multicast], "shared", [None, 0, "x", (), [None], np.array(3), np.zeros(4096, np.uint8), object()]),
        ([grid_faults], "grid", [*NO_NUMBERS, *FAR, 0, (), (1, 1, 1, 1), (1, 65536), 2**31, (1, True)]),
        ([grid_faults], "coordinates", [None, 0, (0, 0), "x", *(lambda *_, c=c: c for c in NO_SEQUENCES)]),
        ([grid_faults], "store", [None, 1, "no", np.array([1, 2]), []]),
        ([bank_conflicts, best_swizzle], "access_bytes", [*NO_NUMBERS[1:], *FAR, 0, 3, 32]),
        ([bank_conflicts, best_swizzle], "access_pattern", [None, 0, "rows", [], {}, math.nan, lambda thread: None]),
        ([best_swizzle], "target", [0, "sm_80", "", object(), True]),
        ([swizzle_address], "address", [*NO_NUMBERS, -1, -(2**63), [0, -1], np.array([2**63], np.uint64)]),
        ([swizzle_chunk], "row", [*NO_NUMBERS, -1, [0, -1]]),
        ([swizzle_chunk], "chunk", [*NO_NUMBERS, -1, 8, [0, 8]]),
        ([swizzle_chunk], "base", [*NO_NUMBERS, -128, 64]),
        ([swizzle_address, swizzle_chunk], "swizzle", [None, True, 1.5, math.inf, 7, "256B", [], object()]),
    ]
    return [pytest.param(call, {name: bad}, id=f"{call.__name__}-{name}-{i}")
            for calls, name, values in rows for call in calls for i, bad in enumerate(values)]  # fmt: skip


@pytest.mark.parametrize(("call", "changes"), cases())
def test_a_wrong_operand_is_refused_in_words_and_changes_nothing(call: Call, changes: dict[str, Any]) -> None:
    at = Memories()
    with pytest.raises(CupytmaError) as caught:
        call(at, **changes)
    assert isinstance(caught.value, (ValueError, RuntimeError))
    assert len(str(caught.value)) > 20
    assert at.are_unchanged()


@pytest.mark.parametrize("call", WITH_OFFSETS)
@pytest.mark.parametrize("tensor_map", [PIXELS, WIDE], ids=["im2col", "im2col::w"])
@pytest.mark.parametrize("offsets", [*NO_SEQUENCES, (0,), (0, 0, 0), (0, -1)])
def test_wrong_offsets_are_refused_in_words(call: Call, tensor_map: TensorMap, offsets: Any) -> None:
    at = Memories()
    with pytest.raises(sim.SimulationError, match="offset"):
        call(at, tensor_map=tensor_map, coords=(0, 0, 0, 0), offsets=offsets)
    assert at.are_unchanged()


READ_ONLY = np.zeros(4096, np.uint8)
READ_ONLY.setflags(write=False)
NO_ARRAYS: list[Any] = [
    None, [0] * 4096, bytes(4096), bytearray(4096), memoryview(bytearray(4096)), np.zeros((64, 64), np.uint8),
    np.zeros(8192, np.uint8)[::2], np.zeros(4096, np.uint8)[::-1], np.zeros(4096, np.int8), np.zeros(4096, bool),
    np.zeros(1024, np.float32), np.array(3, np.uint8), np.ma.zeros(4096, np.uint8),
]  # fmt: skip
TOO_SMALL = [np.zeros(0, np.uint8), np.zeros(511, np.uint8)]


@pytest.mark.parametrize("call", COPIES)
@pytest.mark.parametrize("name", ["memory", "shared"])
@pytest.mark.parametrize("array", [*NO_ARRAYS, *TOO_SMALL, READ_ONLY], ids=lambda array: type(array).__name__)
def test_an_array_that_no_copy_takes_is_refused_and_the_other_unchanged(call: Call, name: str, array: Any) -> None:
    at = Memories()
    if array is READ_ONLY and (name == "memory") != (call in (store, reduce)):
        return  # it is only read
    with pytest.raises((ArrayError, sim.Fault), match=name):
        call(at, **{name: [at.shared, array] if call is multicast and name == "shared" else array})
    assert at.are_unchanged()


@pytest.mark.parametrize("call", [load, store, reduce])
@pytest.mark.parametrize("first", [0, 1024, 2047])
def test_global_and_shared_memory_are_memories_apart(call: Call, first: int) -> None:
    whole = np.arange(8192, dtype=np.uint32).astype(np.uint8)
    before = whole.copy()
    with pytest.raises(ArrayError, match="memory and shared have bytes in common, but are memories apart"):
        call(Memories(), memory=whole[:2048], shared=whole[first:])
    assert np.array_equal(whole, before)
    call(Memories(), memory=whole[:2048], shared=whole[2048:])  # neighbours are


def test_blocks_of_a_cluster_have_memories_apart() -> None:
    at = Memories()
    for shared in ([at.shared, at.shared], [at.shared[:2048], at.shared[1024:]], [at.shared, at.memory]):
        with pytest.raises(ArrayError, match=r"shared\[\d\] .*bytes in common|memory and shared\[1\]"):
            sim.multicast(MATRIX, (0, 0), memory=at.memory, base=BASE, shared=shared)
        assert at.are_unchanged()
    assert sim.multicast(MATRIX, (0, 0), memory=at.memory, base=BASE, shared=np.split(at.shared, 2)) == (512, 512)


def test_numpy_integers_ranges_and_iterators_are_what_their_numbers_are() -> None:
    expected = np.zeros(4096, np.uint8)
    at = Memories()
    sim.load(MATRIX, (0, 1), memory=at.memory, base=BASE, shared=expected)
    for coords in (np.array([0, 1]), [np.int8(0), np.uint64(1)], range(2), iter((0, 1))):
        tile = np.zeros((2, 2048), np.uint8)
        sim.multicast(MATRIX, coords, memory=at.memory, base=np.uint64(BASE), shared=list(tile))
        assert (tile == expected[:2048]).all()
    found = sim.grid_faults(MATRIX, lambda x, y, z: iter((np.int64(x), 0)), np.array([3, 1]))
    assert [(fault.block, fault.coordinates) for fault in found] == [((1, 0, 0), (1, 0)), ((2, 0, 0), (2, 0))]
    assert all(type(c) is int for fault in found for c in fault.coordinates)


def test_bytes_of_no_tensor_map_are_refused_by_every_function() -> None:
    random = np.random.default_rng(1)
    refused = 0
    for number in range(150):
        data = bytearray(bytes(MATRIX))
        changed = random.integers(0, 128, 1 + number % 40)
        for place in changed[changed >= 8]:
            data[place] = random.integers(256)
        garbage = TensorMap.from_bytes(data)
        for call in MAPS:
            at = Memories()
            try:
                call(at, tensor_map=garbage)
            except CupytmaError:
                assert at.are_unchanged()
                refused += 1
    assert refused > 500
