"""Bank conflicts of a warp's reads, against a count thread by thread and what is known of swizzles."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma import sim
from cupytma.tensormap import Im2col, Im2colWide, Swizzle, TensorMap, Tiled

SPANS = {"NONE": 256, "32B": 32, "64B": 64, "128B": 128, "128B_ATOM_32B": 128, "128B_ATOM_64B": 128}


def tile(data_type: str = "FLOAT32", box: tuple[int, ...] = (32, 32), swizzle: str = "128B") -> TensorMap:
    p = Tiled(data_type=data_type, global_address=0, global_dim=(256,) * len(box), box_dim=box, swizzle=swizzle)
    return p.encode(target="sm_100a")


def wavefronts(addresses: list[int], width: int) -> tuple[int, int]:
    """Of one read of a warp: wavefronts and phases, by the rules of the programming guide, in plain Python."""
    threads, total, phases = 32 * 4 // max(width, 4), 0, 0
    for first in range(0, len(addresses), threads):
        words = defaultdict(set)
        for address in addresses[first : first + threads]:
            for word in range(address // 4, (address + width - 1) // 4 + 1):
                words[word % 32].add(word)
        total += max(map(len, words.values()))
        phases += 1
    return total, phases


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_the_count_is_that_of_a_walk_over_the_threads(data: st.DataObject) -> None:
    data_type, size = data.draw(st.sampled_from([("UINT8", 1), ("FLOAT16", 2), ("FLOAT32", 4), ("FLOAT64", 8)]))
    swizzle = data.draw(st.sampled_from(sorted(SPANS)))
    row = 16 * data.draw(st.integers(1, SPANS[swizzle] // 16)) // size
    rows = data.draw(st.integers(1, 40))
    width = data.draw(st.sampled_from([w for w in (1, 2, 4, 8, 16) if w >= size]))
    base = 128 * data.draw(st.integers(0, 9))
    reads = data.draw(st.integers(1, 3))
    threads = data.draw(st.sampled_from([32, 32, 20, 1]))
    m = tile(data_type, (row, rows), swizzle)
    random = np.random.default_rng(data.draw(st.integers(0, 999)))
    pieces = row * size // width
    columns = random.integers(0, pieces, (reads, threads)) * width // size
    indices = np.stack([columns, random.integers(0, rows, (reads, threads))], axis=2)
    found = sim.bank_conflicts(m, indices, access_bytes=width, shared_offset=base)
    mapped = sim.tile_map(m, (0, 0), shared_offset=base)
    places = mapped.shared_byte.reshape(mapped.shape)
    counted = [wavefronts([int(places[y, x]) for x, y in read], width) for read in indices.tolist()]
    assert (found.wavefronts, found.phases) == tuple(map(sum, zip(*counted, strict=True)))
    assert found.requests == reads
    assert found.conflicts == found.wavefronts - found.phases
    if swizzle == "NONE":
        assert found.unswizzled_wavefronts == found.wavefronts


@pytest.mark.parametrize("base", [0, 128, 640])
@pytest.mark.parametrize(
    ("data_type", "box", "swizzle", "access", "width", "conflicts", "plain"),
    [
        ("FLOAT32", (32, 32), "128B", "row", 4, 0, 0),
        ("FLOAT32", (32, 32), "128B", "column", 4, 32 * 3, 32 * 31),
        ("FLOAT32", (32, 32), "128B", "column", 16, 0, 32 * 7),
        ("FLOAT32", (32, 32), "128B", "row", 16, 0, 0),
        ("FLOAT16", (64, 64), "128B", "ldmatrix", None, 0, 64 * 7),
        ("FLOAT16", (32, 64), "64B", "ldmatrix", None, 0, 32 * 3),
        ("FLOAT16", (16, 64), "32B", "ldmatrix", None, 0, 16 * 1),
        ("FLOAT16", (16, 64), "NONE", "ldmatrix", None, 16, 16),
        ("UINT8", (128, 128), "NONE", "column", None, 512 * 31, 512 * 31),
        ("FLOAT64", (16, 32), "NONE", "column", 8, 32 * 15, 32 * 15),
    ],
)
def test_what_is_known_of_rows_and_columns(
    data_type: str, box: Any, swizzle: str, access: str, width: int | None, conflicts: int, plain: int, base: int
) -> None:
    found = sim.bank_conflicts(tile(data_type, box, swizzle), access, access_bytes=width, shared_offset=base)
    assert (found.conflicts, found.unswizzled_conflicts) == (conflicts, plain)


def test_the_founding_guides_transpose_has_eight_way_conflicts_without_swizzle_and_none_with_it() -> None:
    for swizzle, worst in (("NONE", 8), ("128B", 1)):
        m = tile("FLOAT32", (32, 8), swizzle)  # 8 × 8 elements of 16 bytes
        for column in range(8):
            found = sim.bank_conflicts(m, [(4 * column, row) for row in range(8)], access_bytes=16)
            assert (found.requests, found.phases, found.worst) == (1, 1, worst)


def test_threads_that_read_the_same_word_are_served_at_once() -> None:
    assert sim.bank_conflicts(tile(), lambda thread: (0, 0)).wavefronts == 1
    assert sim.bank_conflicts(tile(), lambda thread: (thread // 8, thread % 2)).wavefronts == 1
    assert sim.bank_conflicts(tile("UINT8", (128, 4)), lambda thread: (thread % 4, 0)).wavefronts == 1


def test_a_function_an_array_and_a_name_mean_the_same() -> None:
    m = tile()
    column = sim.bank_conflicts(m, lambda thread: (5, thread))
    assert (column.conflicts, column.worst, column.access) == (3, 4, "custom")
    assert sim.bank_conflicts(m, [[5, thread] for thread in range(32)]) == column
    everything = np.stack(np.meshgrid(np.arange(32), np.arange(32), indexing="ij"), axis=2)
    whole, named = sim.bank_conflicts(m, everything), sim.bank_conflicts(m, "column")
    assert (whole.wavefronts, whole.requests) == (named.wavefronts, named.requests)


def test_tiles_of_more_dimensions_pixels_and_slices_are_read_by_their_own_indices() -> None:
    cube = tile("FLOAT32", (32, 4, 8))
    assert sim.bank_conflicts(cube, lambda thread: (0, thread % 4, thread // 4)).conflicts == 3
    pixels = Im2col(
        data_type="FLOAT16", global_address=0, global_dim=(64, 8, 8, 2), pixel_box_lower_corner=(0, 0),
        pixel_box_upper_corner=(0, 0), channels_per_pixel=64, pixels_per_column=32, swizzle="128B",
    ).encode()  # fmt: skip
    assert sim.bank_conflicts(pixels, lambda thread: (0, thread), access_bytes=16).conflicts == 0
    slices = Tiled(
        data_type="UINT8", global_address=0, global_dim=(8, 8, 4, 2), global_strides=(128, 1024, 4096),
        box_dim=(16, 4, 1, 1), interleave="16B",
    ).encode()  # fmt: skip
    found = sim.bank_conflicts(slices, lambda thread: (thread % 8, thread // 8, 0, 0))
    assert (found.access_bytes, found.phases, found.conflicts) == (16, 4, 0)


def test_the_best_swizzle_is_the_one_with_the_fewest_conflicts_and_then_the_smallest() -> None:
    advice = sim.best_swizzle(tile("FLOAT16", (64, 64), "NONE"), "ldmatrix")
    assert advice.swizzle == Swizzle.B128
    assert advice.best.conflicts == 0
    assert [r.swizzle for r in advice.results] == [Swizzle.NONE, Swizzle.B128]
    assert set(advice.illegal) == {Swizzle.B32, Swizzle.B64}
    assert all(broken[0].rule == "box-inner-span" for broken in advice.illegal.values())
    assert str(advice) == (
        "use swizzle 128B: 0 conflicts of ldmatrix reads; others: NONE 448; illegal: 32B (box-inner-span), 64B "
        "(box-inner-span)"
    )
    # Rows of 64 bytes: 64B does as well as 128B, which would take twice the shared memory.
    assert sim.best_swizzle(tile("FLOAT16", (32, 64), "128B"), "ldmatrix").swizzle == Swizzle.B64
    # Reads along rows never conflict, and rows of 256 bytes can have no swizzle.
    assert sim.best_swizzle(tile("FLOAT32", (32, 8)), "row").swizzle == Swizzle.NONE
    assert sim.best_swizzle(tile("FLOAT32", (64, 32), "NONE"), "column").swizzle == Swizzle.NONE
    assert len(sim.best_swizzle(tile("FLOAT16", (64, 64)), "ldmatrix", target="sm_100a").results) == 5


def test_every_mode_has_a_best_swizzle_among_those_that_its_loads_can_have() -> None:
    wide = Im2colWide(
        data_type="FLOAT16", global_address=0, global_dim=(64, 8, 8, 2), pixel_box_lower_corner_width=0,
        pixel_box_upper_corner_width=0, channels_per_pixel=32, pixels_per_column=64, swizzle="128B",
    ).encode(target="sm_100a")  # fmt: skip
    one_row = tile("FLOAT16", (64, 1), "NONE")
    six_bits = Tiled(data_type="16U6_ALIGN16B", global_address=0, global_dim=(256, 64), box_dim=(128, 32))
    for m, mode, best in (
        (wide, None, Swizzle.B64),
        (TensorMap.from_bytes(bytes(wide)), "im2col::w", Swizzle.B64),
        (wide, "im2col::w::128", Swizzle.B64),
        (one_row, "tile::gather4", Swizzle.B128_ATOM_32B),  # 2-way conflicts with 128B: four rows of eight chunks
        (six_bits.encode(target="sm_100a"), None, Swizzle.B128),
    ):
        advice = sim.best_swizzle(m, "ldmatrix", mode=mode)
        assert (advice.swizzle, advice.best.conflicts) == (best, 0), mode
        assert advice.best.wavefronts == min(result.wavefronts for result in advice.results)
    # 128B_ATOM_64B of 16U6 is documented for stores alone.
    assert Swizzle.B128_ATOM_64B not in [result.swizzle for result in advice.results]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_no_legal_swizzle_beats_the_best(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([1, 2, 4, 8]))
    row, rows = 16 * data.draw(st.integers(1, 8)), data.draw(st.integers(1, 70))
    width = data.draw(st.sampled_from([w for w in (1, 2, 4, 8, 16) if w >= size]))
    base = 128 * data.draw(st.integers(0, 9))
    data_type = {1: "UINT8", 2: "FLOAT16", 4: "FLOAT32", 8: "FLOAT64"}[size]
    found = {}
    for swizzle, span in SPANS.items():
        if row <= span:
            m = tile(data_type, (row // size, rows), swizzle)
            mapped = sim.tile_map(m, (0, 0), shared_offset=base)
            columns = mapped.shared_byte.reshape(mapped.shape)[:, :: width // size].T.reshape(-1).tolist()
            warps = [columns[i : i + 32] for i in range(0, len(columns), 32)]
            found[swizzle] = sum(wavefronts(warp, width)[0] for warp in warps)
    m = tile(data_type, (row // size, rows), data.draw(st.sampled_from(sorted(found))))
    advice = sim.best_swizzle(m, "column", access_bytes=width, shared_offset=base, target="sm_100a")
    counted = {str(r.swizzle): r.wavefronts for r in advice.results if str(r.swizzle) in found}
    assert counted == found
    assert advice.best.wavefronts == min(r.wavefronts for r in advice.results)


def test_results_are_one_readable_line() -> None:
    assert str(sim.bank_conflicts(tile(), "column")) == (
        "column reads of 4 B with swizzle 128B: 96 conflicts, 4-way at worst (warp reads 32, wavefronts 128, at best "
        "32); without swizzle 992 conflicts"
    )


@pytest.mark.parametrize(
    ("access", "changes", "message"),
    [
        ("diagonal", {}, "there is no access pattern 'diagonal'; give one of 'row', 'column', 'ldmatrix'"),
        ("row", {"access_bytes": 3}, "access_bytes is 3; a thread reads 1, 2, 4, 8, 16 bytes at once"),
        ("row", {"access_bytes": 2}, "access_bytes is 2, no multiple of the 4 bytes of an element"),
        ("row", {"access_bytes": 2.5}, "access_bytes is 2.5; it must be an integer"),
        ("ldmatrix", {"access_bytes": 8}, "access_bytes is 8; a thread reads 16 bytes at once"),
        ("row", {"shared_offset": 64}, "shared_offset is 64, 64 mod 128"),
        ("row", {"shared_offset": -128}, "shared_offset is -128 bytes; it must be 0 or above"),
        (lambda thread: (thread, 32), {}, r"tile index \[0, 32\] is outside the tile of \(32, 32\), driver order"),
        (lambda thread: (thread,), {}, r"the tile indices have shape \(32, 1\); they need \(threads, 2\)"),
        (lambda thread: thread, {}, r"the tile indices have shape \(32,\)"),
        (lambda thread: "x", {}, "one tile index for each thread, as whole numbers"),
        (lambda thread: (thread / 2, 0), {}, "one tile index for each thread, as whole numbers"),
        ([(0, 0)] * 33, {}, r"shape \(33, 2\).* 32 threads at most"),
        ([], {}, "one tile index for each thread"),
        (None, {}, "one tile index for each thread"),
        ([(1, 0)], {"access_bytes": 8}, "a read of 8 bytes at byte 4 of a row of 128 bytes is not aligned"),
    ],
)
def test_patterns_that_make_no_sense_say_what_does(access: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(sim.SimulationError, match=message):
        sim.bank_conflicts(tile(), access, **changes)
    if access != "row" or "access_bytes" in changes:
        with pytest.raises(sim.SimulationError, match=message):
            sim.best_swizzle(tile(), access, **changes)


def test_what_is_no_tensor_map_is_refused() -> None:
    for function in (sim.bank_conflicts, sim.best_swizzle):
        with pytest.raises(sim.SimulationError, match="tensor_map is a bytes"):
            function(bytes(tile()), "row")
