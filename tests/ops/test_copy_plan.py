"""Plans of copies, carried out on the simulator against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupytma.errors import ArrayError
from cupytma.ops import copy_plan, plan_copy, simulate_copy
from cupytma.tensormap.arrays import ArrayView, view_of

DTYPES = ("u1", "u2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", "?", "i1", "i2")
GUARD = 128


def guarded(shape: tuple[int, ...], dtype: str, padding: tuple[int, ...], offset: int) -> tuple[np.ndarray, np.ndarray]:
    """A random array inside a larger buffer, some elements of padding after each dimension, and the buffer."""
    itemsize = np.dtype(dtype).itemsize
    strides, step = [], itemsize
    for extent, pad in zip(reversed(shape), reversed(padding), strict=True):
        strides.insert(0, step)
        step *= extent + pad
    buffer = np.random.default_rng(sum(shape) + offset).integers(0, 256, step + 3 * GUARD + offset, dtype=np.uint8)
    start = -buffer.ctypes.data % GUARD + GUARD + offset
    return np.ndarray(shape, dtype, buffer, start, tuple(strides)), buffer


@contextmanager
def rows_in_tiles(however_short: bool = True) -> Iterator[None]:
    """Rows go through tensor maps, and runs in bulk, wherever these can be, not only where it pays."""
    with pytest.MonkeyPatch.context() as patch:
        if however_short:
            patch.setattr(copy_plan, "LEAST_ROW_BYTES", 1)
            patch.setattr(copy_plan, "LEAST_BULK_BYTES", 1)
        plan_copy.cache_clear()
        yield
    plan_copy.cache_clear()


def assert_copies(source: np.ndarray, destination: np.ndarray, buffer: np.ndarray) -> None:
    """A simulated copy gives the destination the source's bits and changes nothing else of the buffer."""
    expected = buffer.copy()
    offset = destination.ctypes.data - buffer.ctypes.data
    bits = np.dtype(f"V{destination.itemsize}")
    np.ndarray(destination.shape, bits, expected, offset, destination.strides)[...] = source.view(bits)
    simulate_copy(source, destination)
    np.testing.assert_array_equal(buffer, expected)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_pair_of_strided_arrays_is_copied_exactly_and_nothing_else_is_touched(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 6))
    dtype = data.draw(st.sampled_from(DTYPES))
    extents = st.sampled_from([1, 1, 2, 3, 4, 5, 8, 16, 17, 33] if rank > 3 else [1, 2, 7, 16, 31, 64, 65, 130])
    shape = tuple(data.draw(extents) for _ in range(rank))
    padding = st.lists(st.sampled_from([0, 0, 1, 3, 4, 8, 16]), min_size=rank, max_size=rank).map(tuple)
    offsets = st.sampled_from([0, 16, 32, 8, 4, 1])
    source, _ = guarded(shape, dtype, data.draw(padding), data.draw(offsets))
    destination, buffer = guarded(shape, dtype, data.draw(padding), data.draw(offsets))
    with rows_in_tiles(data.draw(st.booleans())):
        assert_copies(source, destination, buffer)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_transposed_flipped_and_broadcast_sources_are_copied_exactly(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.sampled_from([1, 2, 4, 5, 16])) for _ in range(rank))
    source, _ = guarded(shape, data.draw(st.sampled_from(["u1", "f2", "f4", "f8"])), (0,) * rank, 0)
    source = source.transpose(data.draw(st.permutations(range(rank))))
    source = source[tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2]))) for _ in range(rank))]
    if data.draw(st.booleans()):
        source = np.broadcast_to(source, (3, *source.shape))
    destination, buffer = guarded(source.shape, source.dtype.str, (0,) * source.ndim, 0)
    with rows_in_tiles(data.draw(st.booleans())):
        assert_copies(source, destination, buffer)


@pytest.mark.parametrize("width", range(1, 70))
@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "f8"])
def test_rows_that_end_inside_a_16_byte_unit_do_not_spill(width: int, dtype: str) -> None:
    source, _ = guarded((32, width), dtype, (0, 80 - width), 0)
    destination, buffer = guarded((32, width), dtype, (0, 96 - width), 16)
    assert_copies(source, destination, buffer)
    with rows_in_tiles():
        plan = plan_copy(view_of(source), view_of(destination))
        assert (plan.tiles is not None) == (width * source.itemsize >= 16)
        assert_copies(source, destination, buffer)


@pytest.mark.parametrize(
    ("run", "tiles"), [(16, False), (240, False), (250, False), (256, True), (272, True), (512, True), (513, True)]
)
def test_short_rows_are_left_to_ordinary_loads_and_stores(run: int, tiles: bool) -> None:
    plan = plan_copy(view((64, run), (1024, 1), dtype="uint8"), view((64, run), (2048, 1), 1 << 40, "uint8"))
    assert (plan.tiles is not None) == tiles
    assert ("are short" in plan.reason) == (not tiles)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 7)])
def test_empty_arrays_need_no_work(shape: tuple[int, ...]) -> None:
    plan = plan_copy(view_of(np.empty(shape)), view_of(np.empty(shape)))
    assert plan.is_empty


def test_63_floats_all_arrive() -> None:
    source, destination = np.arange(63, dtype="f4"), np.zeros(63, "f4")
    simulate_copy(source, destination)
    np.testing.assert_array_equal(destination, source)


def test_rows_of_a_strided_array_start_at_their_stride() -> None:
    base = np.arange(80, dtype="f4")
    source, destination = base.reshape(2, 40)[:, :32], np.zeros((2, 32), "f4")
    simulate_copy(source, destination)
    assert destination[1, 0] == 40


def view(shape: tuple[int, ...], strides: tuple[int, ...], address: int = 1 << 32, dtype: str = "float32") -> ArrayView:
    return ArrayView(address, shape, strides, dtype, np.dtype(dtype).itemsize, 0)


def test_strides_of_size_1_dimensions_do_not_decide() -> None:
    plan = plan_copy(view((1, 512, 64), (2**45 + 3, 256, 4)), view((1, 512, 64), (7, 512, 4), 1 << 40))
    assert plan.tiles is not None
    assert plan.rest is None
    assert plan.reason == ""


@pytest.mark.parametrize(
    ("source", "destination", "reason"),
    [
        (view((64, 64), (256, 4), 4 + (1 << 32)), view((64, 64), (512, 4), 1 << 40), "source address is 4 mod 16"),
        (view((64, 64), (256, 4)), view((64, 64), (512, 4), 8 + (1 << 40)), "destination address is 8 mod 16"),
        (view((64, 64), (260, 4)), view((64, 64), (512, 4), 1 << 40), "stride of [260, 512] B is no multiple of 16"),
        (view((64, 64), (-256, 4)), view((64, 64), (512, 4), 1 << 40), "outside 0 … 2^40 - 1"),
        (view((64, 8), (4, 256)), view((64, 8), (32, 4), 1 << 40), "only 4 B lie together"),
        (
            view((2,) * 6, (4096, 1024, 256, 64, 16, 4)),
            view((2,) * 6, (4096, 1024, 256, 64, 16, 4), 1 << 40),
            "only 8 B lie together",
        ),
        (
            view((2,) * 5 + (4,), (8192, 2048, 512, 128, 32, 4)),
            view((2,) * 5 + (4,), (8192, 2048, 512, 128, 32, 4), 1 << 40),
            "6 dimensions are left",
        ),
    ],
)
def test_what_no_tensor_map_can_say_is_copied_otherwise_and_the_plan_says_why(
    source: ArrayView, destination: ArrayView, reason: str
) -> None:
    plan = plan_copy(source, destination)
    assert plan.tiles is None
    assert plan.rest is not None
    assert plan.rest.bytes == source.size * source.itemsize
    assert reason in plan.reason


@pytest.mark.parametrize("rows", [2**31 - 1, 2**31, 2**31 + 1, 2**31 + 256, 2**32, 2**33])
def test_start_coordinates_stay_within_31_bits(rows: int) -> None:
    tall = view((rows, 64), (512, 4)), view((rows, 64), (1024, 4), 1 << 45)
    broadcast = view((rows, 64), (0, 4)), view((rows, 64), (256, 4), 1 << 45)
    width = -(-2 * rows // 4) * 4
    wide = view((2, width), (4 * width + 16, 4)), view((2, width), (4 * width + 32, 4), 1 << 45)
    for pair in (tall, broadcast, wide):
        plan = plan_copy(*pair)
        if plan.tiles is None:
            assert rows > 2**31, plan.reason
            assert "2^31" in plan.reason
            assert plan.rest is not None
        else:
            last = [(n - 1) * box for n, box in zip(plan.tiles.counts, plan.tiles.box_dim, strict=True)]
            assert max(last) < 2**31


def test_one_run_of_any_length_goes_in_bulk() -> None:
    for count in (2**33, 2**41):
        plan = plan_copy(view((count,), (1,), dtype="uint8"), view((count,), (1,), 1 << 45, dtype="uint8"))
        assert plan.bulk is not None
        assert plan.bulk.blocks == count // 2048
    plan = plan_copy(view((2**43,), (1,), dtype="uint8"), view((2**43,), (1,), 1 << 45, dtype="uint8"))
    assert plan.rest is not None
    assert "2^31" in plan.reason


@pytest.mark.parametrize("offsets", [(0, 0), (128, 256), (16, 0), (0, 64), (1, 1), (0, 3)])
@given(count=st.integers(1, 5000))
def test_one_run_goes_in_bulk_where_both_ends_begin_a_line(offsets: tuple[int, int], count: int) -> None:
    with rows_in_tiles():
        plan = plan_copy(
            *(view((count,), (1,), ((1 << 32) << i) + offset, "uint8") for i, offset in enumerate(offsets))
        )
    assert (plan.bulk is not None) == (count >= 16 and not any(offset % 128 for offset in offsets))
    if plan.bulk is not None:
        assert 0 <= count - plan.bulk.whole < 16
        assert plan.bulk.whole % 16 == 0
        assert (plan.bulk.chunks - 1) * 512 < plan.bulk.whole <= plan.bulk.chunks * 512
        assert (plan.bulk.blocks - 1) * 4 < plan.bulk.chunks <= plan.bulk.blocks * 4


@pytest.mark.parametrize(
    ("source", "destination", "reason"),
    [
        (view((64, 64), (1 << 40, 4)), view((64, 64), (512, 4), 1 << 50), "2^40"),
        (view((64, 64), (512, 4)), view((64, 64), (512, 4), 1 << 57), "2^57"),
        (view((2**31, 8, 4), (1024, 64, 4), 1 << 32), view((2**31, 8, 4), (2048, 128, 4), 1 << 50), ""),
    ],
)
def test_what_no_tensor_map_can_hold_is_left_to_ordinary_copies(
    source: ArrayView, destination: ArrayView, reason: str
) -> None:
    plan = plan_copy(source, destination)
    assert reason in plan.reason
    assert (plan.tiles is None) == bool(plan.reason)


def test_too_many_tiles_for_one_launch_are_left_to_ordinary_copies() -> None:
    wide = view((2**31, 3, 2048), (1 << 20, 65536, 4)), view((2**31, 3, 2048), (1 << 21, 65536, 4), 1 << 54)
    plan = plan_copy(*wide)
    assert plan.tiles is None
    assert "tiles are too many" in plan.reason


def test_overlap_that_cannot_be_settled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_hard(*_: object, **__: object) -> bool:
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", too_hard)
    plan_copy.cache_clear()
    with pytest.raises(ArrayError, match="overlap"):
        plan_copy(view((64,), (4,)), view((64,), (4,), 1 << 40))
    plan_copy.cache_clear()


def test_read_only_destinations_and_object_arrays_are_refused() -> None:
    constant = np.zeros(64, "u1")
    constant.flags.writeable = False
    with pytest.raises(ArrayError, match="read-only"):
        simulate_copy(np.ones(64, "u1"), constant)
    with pytest.raises(ArrayError, match="read-only"):
        simulate_copy(np.ones(64, "u1"), np.frombuffer(bytes(64), "u1"))
    with pytest.raises(ArrayError, match="object"):
        simulate_copy(np.array([{}, {}]), np.array([None, None]))
    assert simulate_copy(constant, np.ones(64, "u1")).sum() == 0


def test_a_run_goes_in_bulk_from_the_length_on_that_pays() -> None:
    for count in (2**25 - 1, 2**25):
        plan = plan_copy(view((count,), (1,), dtype="uint8"), view((count,), (1,), 1 << 45, dtype="uint8"))
        assert (plan.bulk is None) == (plan.rest is not None) == (count < 2**25)
        assert ("is short" in plan.reason) == (count < 2**25)


def test_2_gib_in_one_piece_become_chunks() -> None:
    plan = plan_copy(view((2**29 + 5,), (4,)), view((2**29 + 5,), (4,), 1 << 40))
    assert plan.bulk is not None
    assert plan.bulk.chunks == 2**22 + 1  # 16 of the 20 bytes
    assert plan.bulk.blocks == 2**20 + 1
    assert plan.bulk.bytes - plan.bulk.whole == 4


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        (view((4,), (4,)), view((5,), (4,), 1 << 40), "shapes differ"),
        (view((4,), (4,)), view((4,), (4,), 1 << 40, "int32"), "types differ"),
        (view((4, 4), (16, 4)), view((4, 4), (0, 4), 1 << 40), "elements of the destination overlap"),
        (view((4, 4), (16, 4)), view((4, 4), (12, 4), 1 << 40), "elements of the destination overlap"),
        (view((64,), (4,)), view((64,), (4,), (1 << 32) + 16), "source and destination overlap"),
        (view((8, 8), (4, 32)), view((8, 8), (32, 4)), "source and destination overlap"),
        (view((64,), (-4,), (1 << 32) + 252), view((64,), (4,)), "source and destination overlap"),
    ],
)
def test_copies_without_one_right_answer_are_refused(source: ArrayView, destination: ArrayView, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        plan_copy(source, destination)


def test_a_copy_onto_itself_and_between_interleaved_columns_is_no_overlap() -> None:
    plan_copy(view((64, 8), (64, 4)), view((64, 8), (64, 4)))
    plan_copy(view((64, 8), (64, 4)), view((64, 8), (64, 4), (1 << 32) + 32))
    plan_copy(view((1000,), (8,)), view((1000,), (8,), (1 << 32) + 4))


@pytest.mark.parametrize(("row", "is_whole"), [(512, True), (520, False)])
def test_blocks_that_move_a_rest_beside_their_tile_are_no_more_than_kernels_can_count(row: int, is_whole: bool) -> None:
    views = [ArrayView(1 << place, (1 << 31, 1, row), (pitch, 1024, 1), "uint8", 1, 0)
             for place, pitch in ((40, 1040), (54, 1056))]  # fmt: skip
    plan = plan_copy(*views)
    if is_whole:
        assert plan.tiles is not None
        assert plan.rest is None
    else:
        assert plan.tiles is None
        assert f"{2**27 - 1} are the most" in plan.reason


@pytest.mark.parametrize("stride", [1 << 62, 1 << 63, 1 << 70, -(1 << 63), -(1 << 70)])
def test_strides_that_lead_nowhere_do_not_matter(stride: int) -> None:
    one = ArrayView(1 << 40, (1, 64), (stride, 4), "float32", 4, 0)
    other = ArrayView(1 << 50, (1, 64), (256, 4), "float32", 4, 0)
    plain = replace(one, strides=(256, 4))
    assert plan_copy(one, other) == plan_copy(plain, other)
    assert plan_copy(other, one) == plan_copy(other, plain)


@pytest.mark.parametrize(
    ("shape", "strides"), [((1 << 62, 8), (32, 4)), ((3, 8), (1 << 63, 4)), ((3, 8), (1 << 70, 4))],
)  # fmt: skip
def test_arrays_that_no_memory_holds_are_refused_in_words(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    source = ArrayView(1 << 40, shape, (0, 4), "float32", 4, 0)
    with pytest.raises(ArrayError, match="no memory holds it"):
        plan_copy(source, ArrayView(1 << 50, shape, strides, "float32", 4, 0))
