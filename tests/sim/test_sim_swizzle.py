"""Where the swizzle puts a byte, and how a reader finds it again."""

from __future__ import annotations

import numpy as np
import pytest

from cupytma import sim
from cupytma.tensormap import Tiled

SPANS = {"32B": 32, "64B": 64, "128B": 128}
BASE = 0x10000


def loaded(swizzle: str, shared_offset: int, rows: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of distinct 16-byte chunks, ``(rows, span // 16)`` chunk numbers, and shared memory in chunks."""
    span = SPANS[swizzle]
    numbers = np.arange(rows * span // 16, dtype=np.uint64)
    memory = np.repeat(numbers, 2).view(np.uint8)
    m = Tiled(
        data_type="UINT8", global_address=BASE, global_dim=(span, rows), box_dim=(span, rows), swizzle=swizzle
    ).encode()
    shared = np.full(8192, 255, dtype=np.uint8)
    sim.load(m, (0, 0), memory=memory, base=BASE, shared=shared, shared_offset=shared_offset)
    return numbers.reshape(rows, -1), shared.view(np.uint64)[::2]


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("shared_offset", [0, 128, 256, 512, 896, 1024, 1152])
def test_the_index_formula_finds_every_chunk_from_the_absolute_base(swizzle: str, shared_offset: int) -> None:
    numbers, chunks = loaded(swizzle, shared_offset)
    per_row = SPANS[swizzle] // 16
    for row, line in enumerate(numbers):
        for chunk, number in enumerate(line):
            place = shared_offset // 16 + row * per_row + sim.swizzle_chunk(row, chunk, swizzle, shared_offset)
            assert chunks[place] == number


@pytest.mark.parametrize(("shared_offset", "right"), [(1024, True), (128, False)])
def test_a_reader_that_swizzles_offsets_within_the_tile_is_right_only_on_an_aligned_base(
    shared_offset: int, right: bool
) -> None:
    numbers, chunks = loaded("128B", shared_offset)
    row, chunk = np.divmod(np.arange(numbers.size), 8)
    relative = shared_offset // 16 + row * 8 + (row % 8 ^ chunk)
    assert np.array_equal(chunks[relative], numbers.ravel()) == right
    absolute = sim.swizzle_address(shared_offset + np.arange(numbers.size) * 16, "128B")
    assert np.array_equal(chunks[absolute // 16], numbers.ravel())


def test_the_founding_guides_transpose_indices_are_those_of_the_128_byte_mode() -> None:
    numbers, chunks = loaded("128B", 2048, rows=8)
    tile = chunks[128:192].reshape(8, 8)
    for j in range(8):
        for i in range(8):
            assert tile[i, i % 8 ^ j] == numbers[i, j]


@pytest.mark.parametrize("swizzle", ["NONE", *SPANS])
def test_the_swizzle_is_its_own_inverse_and_moves_chunks_within_a_span(swizzle: str) -> None:
    address = np.arange(4096)
    moved = sim.swizzle_address(address, swizzle)
    assert np.array_equal(sim.swizzle_address(moved, swizzle), address)
    assert np.array_equal(moved % 16, address % 16)
    span = SPANS.get(swizzle, 16)
    assert np.array_equal(moved // span, address // span)
    assert [sim.swizzle_address(a, swizzle) for a in range(0, 4096, 7)] == moved[::7].tolist()


@pytest.mark.parametrize("swizzle", SPANS)
def test_a_row_shorter_than_the_span_leaves_the_gap_untouched(swizzle: str) -> None:
    span, rows = SPANS[swizzle], 9
    m = Tiled(
        data_type="UINT8", global_address=BASE, global_dim=(16, rows), box_dim=(16, rows), swizzle=swizzle
    ).encode()
    shared = np.full(2048, 255, dtype=np.uint8)
    memory = np.repeat(np.arange(rows, dtype=np.uint8), 16)
    assert sim.load(m, (0, 0), memory=memory, base=BASE, shared=shared) == 16 * rows
    chunks = shared.reshape(-1, 16)
    written = [row * span // 16 + sim.swizzle_chunk(row, 0, swizzle) for row in range(rows)]
    assert [int(chunks[place, 0]) for place in written] == list(range(rows))
    assert (np.delete(chunks, written, axis=0) == 255).all()


def test_arrays_and_numbers_give_the_same_formula() -> None:
    row, chunk = np.divmod(np.arange(64), 4)
    found = sim.swizzle_chunk(row, chunk, "64B", 128)
    assert found.tolist() == [sim.swizzle_chunk(int(r), int(c), "64B", 128) for r, c in zip(row, chunk, strict=True)]


def test_a_swizzle_that_does_not_exist_is_refused_with_those_that_do() -> None:
    for wrong in ("96B", 7, None):
        with pytest.raises(sim.SimulationError, match=r"no member .*its members are NONE, 32B"):
            sim.swizzle_address(0, wrong)


@pytest.mark.parametrize(("swizzle", "n"), [("32B", 2), ("64B", 4), ("128B", 8)])
@pytest.mark.parametrize("shared_offset", [0, 128, 256, 640, 1024, 1920])
def test_the_founding_guides_formula_holds_for_lines_of_128_bytes_on_any_base(
    swizzle: str, n: int, shared_offset: int
) -> None:
    """``smem[y][((y + offset) % N) ^ x]`` with ``offset = (smem / 128) % N``: y counts lines, x chunks in a line."""
    span = SPANS[swizzle]
    p = Tiled(data_type="UINT8", global_address=BASE, global_dim=(span, 48), box_dim=(span, 48), swizzle=swizzle)
    places = sim.tile_map(p.encode(), (0, 0), shared_offset=shared_offset).shared_byte
    y, x = np.divmod(np.arange(48 * span) // 16, 8)
    offset = shared_offset // 128 % n
    expected = shared_offset + 128 * y + 16 * ((y + offset) % n ^ x) + np.arange(48 * span) % 16
    assert np.array_equal(places, expected)
    # With y as the tile's row it holds only where a row is a line, which is the 128B mode's.
    row, chunk = np.divmod(np.arange(48 * span) // 16, span // 16)
    by_row = shared_offset + span * row + 16 * ((row + offset) % n ^ chunk) + np.arange(48 * span) % 16
    assert np.array_equal(places, by_row) == (swizzle == "128B")
