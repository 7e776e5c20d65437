"""Random copies of every measured mode, against an oracle that walks over points and bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import sim_oracle
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_sim_box_bytes import BASE, Use, im2col, tiled

from cupytma import sim
from cupytma.sim.reductions import measured_reductions
from cupytma.tensormap import DataType, Parameters, Tiled

SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SHARED_BYTES = 1 << 17
# Bytes of which infinities, NaNs, denormals and zeros of either sign are made, for every type of float.
EDGES = np.array([0, 0, 0x80, 0x7F, 0xFF, 0x7C, 0xF8, 1], np.uint8)


def small(use: Use) -> bool:
    return use[0].box_bytes <= 6000


def contents(p: Parameters, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Global memory that holds the tensor and what stores write past it, and shared memory."""
    random = np.random.default_rng(seed)
    reach = (p.slice_bytes or p.element_bytes) * p.global_dim[0] + 16
    reach += sum(n * stride for n, stride in zip(p.global_dim[1:], p.global_strides, strict=True))
    found = []
    for size in (reach, SHARED_BYTES):
        values = random.integers(0, 256, size, np.uint8)
        edge = random.random(size) < 0.4
        values[edge] = random.choice(EDGES, int(edge.sum()))
        found.append(values)
    return found[0], found[1]


@SETTINGS
@given(st.one_of(tiled(), im2col()).filter(small), st.data())
def test_a_load_brings_what_the_oracle_brings(use: Use, data: st.DataObject) -> None:
    tensor_map, coords, place = use
    p = tensor_map.decode()
    offsets = tuple(data.draw(st.integers(0, 9)) for _ in getattr(p, "pixel_box_lower_corner", ()))
    memory, shared = contents(p, data.draw(st.integers(0, 99)))
    expected = bytearray(shared.tobytes())
    counted = sim_oracle.load(p, coords, offsets, memory.tobytes(), BASE, expected, place)
    moved = sim.load(
        tensor_map, coords, memory=memory, base=BASE, shared=shared, shared_offset=place, offsets=offsets
    )
    assert moved == counted
    assert shared.tobytes() == expected
    found = sim.tile_map(tensor_map, coords, shared_offset=place, offsets=offsets)
    points = list(sim_oracle.points(p, coords, offsets, place))
    assert found.coordinates.tolist() == [list(x) for x, _, _ in points]
    assert found.shared_byte.tolist() == [places[0] for _, _, places in points]
    inside = [all(0 <= c < extent for c, extent in zip(x, p.global_dim, strict=True)) for x, _, _ in points]
    assert found.inside.tolist() == inside
    assert found.global_address.tolist() == [a if here else -1 for (_, a, _), here in zip(points, inside, strict=True)]


@settings(SETTINGS, max_examples=250)
@given(st.one_of(tiled(), im2col()).filter(small), st.data())
def test_stores_and_reductions_write_what_the_oracle_writes(use: Use, data: st.DataObject) -> None:
    tensor_map, coords, place = use
    p = tensor_map.decode()
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    if hasattr(p, "box_dim"):
        coords = (max(0, coords[0]), *(int(random.integers(0, 1 + extent // 2)) for extent in p.global_dim[1:]))
        if random.random() < 0.7:  # several rows, most of them inside
            box = p.box_dim[0], *(int(n) for n in random.integers(1, 4, p.rank - 1))
            p = replace(p, box_dim=box, element_strides=(1,) * p.rank)
        tensor_map = p.encode()
        assume(small((tensor_map, coords, place)))
    else:
        assume(min(p.pixel_box_lower_corner) >= 0)
        slices = p.slice_bytes > 0
        spatial = range(p.rank - 2) if slices else range(1, p.rank - 1)
        coords = tuple(c if i in spatial else max(0, c) for i, c in enumerate(coords))
    if random.random() < 0.5:  # rows on the same memory
        p = replace(p, global_strides=tuple(32 * int(n) for n in random.integers(0, 3, p.rank - 1)))
        tensor_map = p.encode()
    op = str(random.choice(["store", *measured_reductions(p.data_type)]))
    memory, shared = contents(p, int(random.integers(100)))
    before, expected = shared.tobytes(), bytearray(memory.tobytes())
    sim_oracle.write(p, op, coords, expected, BASE, before, place)
    arrays = {"memory": memory, "base": BASE, "shared": shared, "shared_offset": place}
    if op == "store":
        sim.store(tensor_map, coords, **arrays)
    else:
        sim.reduce(tensor_map, op, coords, **arrays)
    assert memory.tobytes() == expected
    assert shared.tobytes() == before


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_every_reduction_of_every_type_is_the_oracles(data: st.DataObject) -> None:
    data_type = data.draw(st.sampled_from([t for t in sim_oracle.SIZES if measured_reductions(DataType[t])]))
    op = data.draw(st.sampled_from(measured_reductions(DataType[data_type])))
    size = sim_oracle.SIZES[data_type]
    byte = st.one_of(st.integers(0, 255), st.sampled_from(EDGES.tolist()))
    old, new = (bytes(data.draw(st.lists(byte, min_size=16, max_size=16))) for _ in range(2))
    m = Tiled(data_type=data_type, global_address=BASE, global_dim=(16 // size,), box_dim=(16 // size,)).encode()
    memory = np.frombuffer(old, np.uint8).copy()
    sim.reduce(m, op, (0,), memory=memory, base=BASE, shared=np.frombuffer(new, np.uint8))
    pieces = range(0, 16, size)
    expected = [sim_oracle.reduced(data_type, op, old[i : i + size], new[i : i + size]) for i in pieces]
    assert [memory[i : i + size].tobytes() for i in pieces] == expected
