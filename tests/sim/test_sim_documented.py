"""What no H100 has, as documents describe it: gathers, im2col::w, packed types, swizzles of larger atoms.

References are plain Python; nothing here has been measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sim_reference import random_bytes

from cupytma import sim
from cupytma.tensormap import Im2col, Im2colWide, TensorMap, Tiled

BASE = 0x20000


def tiled(**changes: Any) -> TensorMap:
    values: dict[str, Any] = {"data_type": "UINT16", "global_address": BASE, "global_dim": (64, 16), "box_dim": (32, 1)}
    return Tiled(**(values | changes)).encode(target="sm_100a")


# Where each of the eight 16-byte chunks of a line is found, line after line (PTX ISA, "Swizzling Modes").
TABLES = {
    "NONE": ["01234567"],
    "32B": ["01234567", "10325476"],
    "64B": ["01234567", "10325476", "23016745", "32107654"],
    "128B": ["01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"],
    "128B_ATOM_32B": ["01234567", "23016745", "45670123", "67452301"],
    "128B_ATOM_64B": ["01234567", "45670123"],
}


@pytest.mark.parametrize("swizzle", TABLES)
@pytest.mark.parametrize("base", [0, 128, 384, 896])
def test_chunks_lie_where_the_tables_of_the_ptx_isa_say(swizzle: str, base: int) -> None:
    rows, width = 16, {"32B": 32, "64B": 64}.get(swizzle, 128)
    values = random_bytes(rows * 128, 1)
    m = tiled(data_type="UINT8", global_dim=(128, rows), box_dim=(width, rows), swizzle=swizzle)
    shared = np.zeros(4096, np.uint8)
    sim.load(m, (0, 0), memory=values, base=BASE, shared=shared, shared_offset=base)
    table = TABLES[swizzle]
    linear = values.reshape(rows, 128)[:, :width].reshape(-1, 8, 16)
    for line, chunks in enumerate(linear):
        pattern = table[(base // 128 + line) % len(table)]
        found = shared[base + 128 * line :][:128].reshape(8, 16)
        assert [found[int(place)].tolist() for place in pattern] == chunks.tolist()


def test_the_flip_exchanges_the_halves_of_every_chunk_in_odd_lines() -> None:
    values = random_bytes(128 * 8, 2)
    plain, flipped = np.zeros(2048, np.uint8), np.zeros(2048, np.uint8)
    for swizzle, shared in (("128B_ATOM_32B", plain), ("128B_ATOM_32B_FLIP_8B", flipped)):
        m = tiled(data_type="UINT8", global_dim=(128, 8), box_dim=(128, 8), swizzle=swizzle)
        sim.load(m, (0, 0), memory=values, base=BASE, shared=shared, shared_offset=128)
    for line in range(1, 9):
        halves = plain[128 * line :][:128].reshape(8, 2, 8)
        expected = halves[:, ::-1] if line % 2 else halves
        assert flipped[128 * line :][:128].reshape(8, 2, 8).tolist() == expected.tolist()
    addresses = np.arange(4096)
    moved = sim.swizzle_address(addresses, "128B_ATOM_32B_FLIP_8B")
    assert sorted(moved.tolist()) == addresses.tolist()
    assert (sim.swizzle_address(moved, "128B_ATOM_32B_FLIP_8B") == addresses).all()


@pytest.mark.parametrize("swizzle", ["NONE", "64B", "128B_ATOM_64B"])
def test_a_gather_brings_four_rows_and_fills_those_outside(swizzle: str) -> None:
    matrix = random_bytes(64 * 16 * 2, 3).view(np.uint16).reshape(16, 64)
    m, rows = tiled(swizzle=swizzle), (9, 0, 16, 9)
    tile = np.full(512, 7, np.uint8)
    moved = sim.load(
        m, (48, *rows), memory=matrix.reshape(-1).view(np.uint8), base=BASE, shared=tile, mode="tile::gather4"
    )
    assert moved == 4 * 64
    found = sim.tile_map(m, (48, *rows), mode="tile::gather4")
    assert found.shape == (4, 32)
    assert not found.verified
    values = np.array([tile[place : place + 2].view(np.uint16)[0] for place in found.shared_byte]).reshape(4, 32)
    for row, got in zip(rows, values, strict=True):
        expected = np.zeros(32, np.uint16)
        if row < 16:
            expected[:16] = matrix[row, 48:]
        assert got.tolist() == expected.tolist()
    assert found.coordinates[::32].tolist() == [[48, row] for row in rows]


def test_a_scatter_writes_four_rows_and_skips_those_outside() -> None:
    memory = np.zeros((16, 64), np.uint16)
    tile = np.arange(1, 129, dtype=np.uint16)
    sim.store(
        tiled(), (32, 3, 20, 0, 15), memory=memory.reshape(-1).view(np.uint8), base=BASE, shared=tile.view(np.uint8),
        mode="tile::scatter4",
    )  # fmt: skip
    expected = np.zeros((16, 64), np.uint16)
    for number, row in enumerate((3, 20, 0, 15)):
        if row < 16:
            expected[row, 32:] = tile[32 * number : 32 * number + 32]
    assert memory.tolist() == expected.tolist()
    with pytest.raises(sim.IllegalInstruction, match="store starts at coordinate -1 of dimension 1"):
        sim.store(
            tiled(), (32, 3, -1, 0, 15), memory=memory.reshape(-1).view(np.uint8), base=BASE,
            shared=tile.view(np.uint8), mode="tile::scatter4",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("m", "coords", "mode", "message"),
    [
        (tiled(box_dim=(32, 2)), (0, 0, 1, 2, 3), "tile::gather4", r"box_dim\[1\] = 2; it must be 1"),
        (tiled(global_dim=(64,), box_dim=(32,)), (0, 0, 1, 2, 3), "tile::gather4", "rank 1; it must be 2"),
        (tiled(), (0, 0), "tile::gather4", "2 coordinates for tile::gather4; give 5"),
        (tiled(), (0, 0, 1, 2, 3), None, "5 coordinates for a tensor map of rank 2"),
        (tiled(), (0, 0), "im2col", "mode 'im2col' is none for a load of a tensor map of kind tiled; legal: 'tile'"),
        (tiled(), (0, 0), "tile::scatter4", "is none for a load"),
    ],
)
def test_modes_that_do_not_fit_say_what_does(m: TensorMap, coords: Any, mode: str | None, message: str) -> None:
    with pytest.raises(sim.SimulationError, match=message):
        sim.load(m, coords, memory=np.zeros(2048, np.uint8), base=BASE, shared=np.zeros(512, np.uint8), mode=mode)


# --- im2col::w --------------------------------------------------------------------------------------------------------

CHANNELS, WIDTH, HEIGHT, IMAGES = 32, 9, 4, 6


def wide(mode: str = "W", **changes: Any) -> TensorMap:
    values: dict[str, Any] = {
        "data_type": "UINT16", "global_address": BASE, "global_dim": (CHANNELS, WIDTH, HEIGHT, IMAGES),
        "channels_per_pixel": 32, "pixels_per_column": 20, "pixel_box_lower_corner_width": -1,
        "pixel_box_upper_corner_width": 1, "swizzle": "64B", "mode": mode,
    }  # fmt: skip
    return Im2colWide(**(values | changes)).encode(target="sm_100a")


def wide_pixels(p: Any, start: int, image: int, run: int, runs: int, halo: int, offset: int) -> list[tuple[int, int]]:
    """W and image of every pixel, one after the other."""
    lower, upper = p.pixel_box_lower_corner_width, WIDTH + p.pixel_box_upper_corner_width - 1
    step, found, w = p.element_strides[1], [], start
    for _ in range(runs):
        for _ in range(run):
            found.append((w + offset, image))
            last = w, image
            w += step
            if w > upper:
                w, image = lower, image + 1
        found += [(last[0] + step * (k + 1) + offset, last[1]) for k in range(halo)]
    return found


@pytest.mark.parametrize(
    ("mode", "start", "halo", "offset", "step"),
    [
        ("W", 3, 0, 0, 1), ("W", -1, 0, 2, 1), ("W", -5, 0, 1, 2), ("W", 9, 0, 31, 3), ("W128", 0, 0, 0, 1),
        ("W128", 3, 2, 0, 1), ("W128", -1, 1, 1, 2),
    ],
)  # fmt: skip
def test_a_wide_load_walks_along_w_and_then_through_the_batch(
    mode: str, start: int, halo: int, offset: int, step: int
) -> None:
    m = wide(mode, element_strides=(1, step, 1, 1))
    image = random_bytes(CHANNELS * WIDTH * HEIGHT * IMAGES * 2, 4).view(np.uint16)
    image = image.reshape(IMAGES, HEIGHT, WIDTH, CHANNELS)
    run, runs = (20, 1) if mode == "W" else (32, 4)
    pixels = wide_pixels(m.decode(), start, 1, run, runs, halo, offset)
    tile = np.zeros(len(pixels) * 64, np.uint8)
    use = {"offsets": (halo, offset)} if halo or offset else {}
    moved = sim.load(m, (0, start, 2, 1), memory=image.reshape(-1).view(np.uint8), base=BASE, shared=tile, **use)
    assert moved == len(pixels) * 64
    found = sim.tile_map(m, (0, start, 2, 1), **use)
    assert found.coordinates[:: 32, 1].tolist() == [w for w, _ in pixels]
    assert found.coordinates[:: 32, 3].tolist() == [n for _, n in pixels]
    assert (found.coordinates[:, 2] == 2).all()
    values = np.array([tile[place : place + 2].view(np.uint16)[0] for place in found.shared_byte]).reshape(-1, 32)
    for (w, n), got in zip(pixels, values, strict=True):
        inside = 0 <= w < WIDTH and n < IMAGES
        assert got.tolist() == (image[n, 2, w].tolist() if inside else [0] * 32)
    assert not found.verified
    sim.prefetch(m, (0, start, 2, 1), memory=image.reshape(-1).view(np.uint8), base=BASE, **use)


def test_a_halo_follows_the_pixels_of_one_image_and_is_refused_where_the_documents_are_silent() -> None:
    m = wide(pixels_per_column=6)
    found = sim.tile_map(m, (0, 2, 0, 1), offsets=(3, 0))
    assert found.coordinates[::32, 1].tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    with pytest.raises(sim.NotSimulatedError, match="a halo of 3 pixels with a walk over 2 images"):
        sim.tile_map(m, (0, 6, 0, 1), offsets=(3, 0))


@pytest.mark.parametrize(
    ("coords", "offsets", "error", "message"),
    [
        ((0, 10, 0, 0), (), sim.IllegalInstruction, "start pixel 10 in W lies to the right of the bounding box"),
        ((1, 0, 0, 0), (), sim.IllegalInstruction, "coordinate 1 of dimension 0"),
        ((0, 0, 0, 0), None, sim.SimulationError, "offsets is None; it must be a sequence of integers"),
        ((0, 0, 0, 0), (1,), sim.SimulationError, "1 offset for im2col::w; give two"),
        ((0, 0, 0, 0), (512, 0), sim.SimulationError, "the halo of im2col::w is 512 pixels; it must be 0 to 511"),
        ((0, 0, 0, 0), (0, 32), sim.SimulationError, "the offset in W of im2col::w is 32 pixels; it must be 0 to 31"),
    ],
)
def test_wide_operands_that_are_illegal_say_so(coords: Any, offsets: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        sim.tile_map(wide(), coords, offsets=offsets)


def test_a_wide_map_is_told_from_an_im2col_one_of_the_same_bytes() -> None:
    shape: dict[str, Any] = {
        "data_type": "UINT16", "global_address": BASE, "global_dim": (32, 9, 6), "channels_per_pixel": 32,
        "pixels_per_column": 20, "swizzle": "64B",
    }  # fmt: skip
    one = Im2colWide(**shape, pixel_box_lower_corner_width=0, pixel_box_upper_corner_width=0).encode()
    other = Im2col(**shape, pixel_box_lower_corner=(0,), pixel_box_upper_corner=(0,)).encode()
    assert one == other
    assert (sim.verified(one), sim.verified(other)) == (False, True)
    # The instruction says what the bits mean: one walks through H too, the other through the batch alone.
    both = [sim.tile_map(m, (0, 4, 1), mode="im2col::w").coordinates.tolist() for m in (one, other)]
    assert both[0] == both[1] == sim.tile_map(one, (0, 4, 1)).coordinates.tolist()
    with pytest.raises(sim.SimulationError, match="no im2col_wide store exists"):
        sim.store(one, (0, 0, 0), memory=np.zeros(4096, np.uint8), base=BASE, shared=np.zeros(2048, np.uint8))


@pytest.mark.parametrize("mode", ["im2col::w", "im2col::w::128"])
def test_the_bytes_of_a_wide_map_are_enough_for_the_instruction(mode: str) -> None:
    m = wide(pixel_box_lower_corner_width=-300, pixel_box_upper_corner_width=200)
    read = TensorMap.from_bytes(bytes(m))
    expected = sim.tile_map(m, (0, -2, 1, 1), mode=mode, offsets=(0, 3))
    found = sim.tile_map(read, (0, -2, 1, 1), mode=mode, offsets=(0, 3))
    assert found.coordinates.tolist() == expected.coordinates.tolist()


def test_a_wide_map_of_a_target_without_the_instruction_is_refused() -> None:
    p = wide().decode()
    with pytest.raises(sim.SimulationError, match=r"encoded for a target without im2col::w.*such as sm_100a"):
        sim.tile_map(p.encode(target="sm_90a"), (0, 0, 0, 0))


def test_a_wide_map_of_another_target_is_refused_though_an_im2col_map_of_its_bytes_was_copied_before() -> None:
    p = wide(global_dim=(32, 400, 4, 6), pixel_box_lower_corner_width=-1).decode()
    hopper = p.encode(target="sm_90a")
    same_bytes = TensorMap.from_bytes(bytes(hopper))
    assert sim.tile_map(same_bytes, (0, 300, 0, 0), mode="im2col::w").coordinates[0].tolist() == [0, 300, 0, 0]
    with pytest.raises(sim.SimulationError, match="encoded for a target without im2col::w"):
        sim.tile_map(hopper, (0, 300, 0, 0), mode="im2col::w")


# --- packed types -----------------------------------------------------------------------------------------------------


def element(packed: bytes, bits: int, number: int) -> int:
    return int.from_bytes(packed, "little") >> bits * number & (1 << bits) - 1


def packed_map(data_type: str, **changes: Any) -> TensorMap:
    bits = 6 if "U6" in data_type else 4
    values: dict[str, Any] = {
        "data_type": data_type, "global_address": BASE, "global_dim": (256, 6), "box_dim": (128, 4),
        "global_strides": (256 * bits // 8,),
    }  # fmt: skip
    return Tiled(**(values | changes)).encode(target="sm_100a")


@pytest.mark.parametrize(
    ("data_type", "bits", "room"), [("16U4_ALIGN8B", 4, 8), ("16U4_ALIGN16B", 4, 16), ("16U6_ALIGN16B", 6, 16)]
)
@pytest.mark.parametrize("swizzle", ["NONE", "128B"])
def test_packed_elements_arrive_in_groups_and_the_gaps_keep_what_they_held(
    data_type: str, bits: int, room: int, swizzle: str
) -> None:
    m = packed_map(data_type, swizzle=swizzle)
    memory = random_bytes(256 * bits // 8 * 6, 5)
    shared = np.full(2048, 0xCD, np.uint8)
    moved = sim.load(m, (128, 3), memory=memory, base=BASE, shared=shared)
    assert moved == m.box_bytes == 4 * 128 * bits // 8
    found = sim.tile_map(m, (128, 3))
    assert (found.unit_elements, found.unit_bytes, found.shape, found.verified) == (16, 2 * bits, (4, 8), False)
    written = np.zeros(2048, bool)
    for (column, row), place in zip(found.coordinates.tolist(), found.shared_byte.tolist(), strict=True):
        group = shared[place : place + 2 * bits].tobytes()
        written[place : place + 2 * bits] = True
        line = memory.reshape(6, -1)[row].tobytes() if row < 6 else bytes(256 * bits // 8)
        for number in range(16):
            assert element(group, bits, number) == element(line, bits, column + number)
    assert (shared[~written] == 0xCD).all()
    if swizzle == "NONE":
        assert found.shared_byte.tolist() == list(range(0, 32 * room, room))


def test_a_store_of_six_bit_elements_drops_the_upper_two_bits_of_every_byte() -> None:
    m = packed_map("16U6_ALIGN16B", swizzle="128B")
    memory, shared = np.zeros(192 * 6, np.uint8), random_bytes(512, 6)
    sim.store(m, (128, 1), memory=memory, base=BASE, shared=shared)
    linear = shared[sim.swizzle_address(np.arange(512), "128B")].reshape(4, 128)
    for row in range(6):
        line = memory.reshape(6, 192)[row].tobytes()
        assert not any(line[:96])
        for number in range(128):
            expected = int(linear[row - 1, number]) & 0x3F if 1 <= row < 5 else 0
            assert element(line, 6, 128 + number) == expected


def test_four_bit_elements_without_gaps_are_stored_as_they_lie() -> None:
    m = packed_map("16U4_ALIGN8B", global_dim=(256, 6))
    memory, shared = np.zeros(128 * 6, np.uint8), random_bytes(256, 7)
    sim.store(m, (0, 2), memory=memory, base=BASE, shared=shared)
    assert memory.reshape(6, 128)[2:, :64].tolist() == shared.reshape(4, 64).tolist()


def test_one_way_types_and_swizzles_and_unknown_reductions_are_refused() -> None:
    arrays: dict[str, Any] = {"memory": np.zeros(2048, np.uint8), "base": BASE, "shared": np.zeros(2048, np.uint8)}
    flip = tiled(data_type="UINT8", global_dim=(128, 8), box_dim=(128, 4), swizzle="128B_ATOM_32B_FLIP_8B")
    for operation, m, message in (
        (sim.store, packed_map("16U4_ALIGN16B"), "16U4_ALIGN16B is documented for loads alone; what stores do"),
        (sim.store, flip, "128B_ATOM_32B_FLIP_8B is documented for loads alone"),
        (sim.load, packed_map("16U6_ALIGN16B", swizzle="128B_ATOM_64B"), "documented for stores alone; what loads do"),
    ):
        with pytest.raises(sim.NotSimulatedError, match=message):
            operation(m, (0, 0), **arrays)
    with pytest.raises(sim.NotSimulatedError, match="add on 16U4_ALIGN8B has not been measured"):
        sim.reduce(packed_map("16U4_ALIGN8B"), "add", (0, 0), **arrays)


def test_verified_knows_the_modes_of_a_map_alone() -> None:
    assert not sim.verified(tiled(), "tile::scatter4")
    for wrong in ("im2col", "gather4", 4):
        with pytest.raises(sim.SimulationError, match="is none of a tensor map of kind tiled; legal: 'tile', 'tile::g"):
            sim.verified(tiled(), wrong)
    with pytest.raises(sim.SimulationError, match="tensor_map is a str"):
        sim.verified("map")


@pytest.mark.parametrize(
    ("changes", "mode", "expected"),
    [
        ({}, None, True), ({}, "tile::gather4", False), ({"swizzle": "128B"}, None, True),
        ({"swizzle": "128B_ATOM_32B"}, None, False),
    ],
)  # fmt: skip
def test_verified_says_what_has_been_measured(changes: Any, mode: str | None, expected: bool) -> None:
    m = tiled(**changes)
    assert sim.verified(m, mode) is expected
    coords = (0, 0) if mode is None else (0, 0, 1, 2, 3)
    assert sim.tile_map(m, coords, mode=mode).verified is expected
